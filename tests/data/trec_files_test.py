import gzip
import os

import numpy as np
import pytest
import pytrec_eval
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data import trec_files
from as2jax.data.lines import Lines
from as2jax.evaluation import metrics
from as2jax.runtime.errors import InputError
from tests.file_damage import written

QUESTIONS = ["q1", "Qé", "q3"]
CANDIDATES = [["a", "b", "c"], ["a", "\U0001f600"], []]
SCORES = [np.array([0.1, 0.3, 0.3], np.float32), np.array([-1e-30, -np.inf], np.float32), []]
LABELS = [np.array([1, 0, -1]), np.array([-1, -1]), []]


def random_split(count, seed):
  random = np.random.default_rng(seed)
  sizes = random.integers(1, 15, count)
  question_ids = [f"Q{i}" for i in range(count)]
  candidate_ids = [[f"D{i}-{j}" for j in range(n)] for i, n in enumerate(sizes)]
  scores = [np.float32(random.normal(size=n).round(1) / 3) for n in sizes]
  labels = [random.integers(0, 2, n) for n in sizes]
  return question_ids, candidate_ids, scores, labels


def test_run_and_qrels_as_text(tmp_path):
  trec_files.write_run(tmp_path / "run", QUESTIONS, CANDIDATES, SCORES, "tag")
  assert (tmp_path / "run").read_text(encoding="utf-8") == (
    "q1 Q0 c 1 0.300000012 tag\n"
    "q1 Q0 b 2 0.300000012 tag\n"
    "q1 Q0 a 3 0.100000001 tag\n"
    "Qé Q0 a 1 -1e-30 tag\n"
    "Qé Q0 \U0001f600 2 -inf tag\n"
  )
  trec_files.write_qrels(tmp_path / "qrels", QUESTIONS, CANDIDATES, LABELS)
  assert (tmp_path / "qrels").read_text() == "q1 0 a 1\nq1 0 b 0\n"
  assert trec_files.read_qrels(tmp_path / "qrels") == {"q1": {"a": 1, "b": 0}}
  assert trec_files.read_run(epath.Path(tmp_path) / "run")["Qé"] == {
    "a": pytest.approx(-1e-30),
    "\U0001f600": -np.inf,
  }


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_scores_come_back_as_the_same_float32(tmp_path_factory, values):
  path = tmp_path_factory.getbasetemp() / "run"
  scores = np.array(values, np.float32)
  names = [f"D{i}" for i in range(len(scores))]
  trec_files.write_run(path, ["q"], [names], [scores], "tag")
  row = trec_files.read_run(path)["q"]
  np.testing.assert_array_equal(np.float32([row[name] for name in names]), scores)
  # The ranks in the file are trec_eval's order.
  order = [line.split()[2] for line in path.read_text().splitlines()]
  assert order == sorted(names, key=lambda name: (row[name], name), reverse=True)


def test_trec_eval_on_the_files_agrees(tmp_path):
  question_ids, candidate_ids, scores, labels = random_split(500, seed=0)
  trec_files.write_run(tmp_path / "run", question_ids, candidate_ids, scores, "tag")
  trec_files.write_qrels(tmp_path / "qrels", question_ids, candidate_ids, labels)
  with open(tmp_path / "run") as run, open(tmp_path / "qrels") as qrels:
    judgements, ranking = pytrec_eval.parse_qrel(qrels), pytrec_eval.parse_run(run)
  result = pytrec_eval.RelevanceEvaluator(judgements, {"map", "ndcg_cut.10"}).evaluate(ranking)
  actual = metrics.per_question(scores, labels, candidate_ids, ties="trec")
  for name, metric in (("map", "map"), ("ndcg_cut_10", "ndcg@10")):
    reference = [result[question][name] for question in question_ids]
    np.testing.assert_allclose(actual[metric], reference, rtol=0, atol=1e-12)


def test_per_question_scores_come_back_exactly(tmp_path):
  question_ids, _, scores, labels = random_split(50, seed=1)
  values = metrics.per_question(scores, labels)
  trec_files.write_per_question(tmp_path / "table", question_ids, labels, values)
  header, first = (tmp_path / "table").read_text().splitlines()[:2]
  assert header.split("\t") == ["question", "candidates", "positives", *metrics.METRICS]
  assert first.split("\t")[:3] == ["Q0", str(len(labels[0])), str(labels[0].sum())]
  names, columns = trec_files.read_per_question(tmp_path / "table")
  assert names == question_ids
  assert columns["candidates"].tolist() == [len(x) for x in labels]
  for metric, value in values.items():
    np.testing.assert_array_equal(columns[metric], value)


@pytest.mark.parametrize(
  "change, message",
  [
    ({"question_ids": ["q 1"]}, r"question 'q 1' .*: an id is not empty and has no white"),
    ({"candidate_ids": [["a", "b\t"]]}, r"'q1': candidate 'b\\t' .*: an id"),
    ({"candidate_ids": [["a", ""]]}, r"candidate '' .*: an id is not empty"),
    ({"candidate_ids": [["a", "\ud800"]]}, r"white space"),
    ({"candidate_ids": [["a", "a"]]}, r"'a' occurs twice"),
    ({"question_ids": ["q1", "q1"], "candidate_ids": [["a", "b"]] * 2, "scores": [[1, 2]] * 2}, r"'q1' occurs twice"),
    ({"scores": [[0.5, np.nan]]}, r"question 'q1' has a NaN score"),
    ({"tag": "two words"}, r"tag 'two words'"),
  ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(tmp_path, change, message):
  arguments = {
    "question_ids": ["q1"],
    "candidate_ids": [["a", "b"]],
    "scores": [[0.5, 1]],
    "tag": "tag",
  } | change
  with pytest.raises(InputError, match=message):
    trec_files.write_run(tmp_path / "run", **arguments)
  if "tag" not in change and not (change.keys() == {"scores"}):
    labels = arguments.pop("scores")
    del arguments["tag"]
    with pytest.raises(InputError, match=message):
      trec_files.write_qrels(tmp_path / "run", **arguments, labels=labels)
  assert not list(tmp_path.iterdir())


TABLE = b"question\tcandidates\tpositives\tmap\n"
MALFORMED = [  # reader, content, words
  (trec_files.read_run, b"q Q0 a 1 0.5 t\nq Q0 b 2 0.4\n", r"x:2: 5 fields where there must be 6"),
  (trec_files.read_run, b"q Q0 a 1 0.5 my tag\n", r"x:1: 7 fields where .* no space in an id or a tag"),
  (trec_files.read_run, b"\x28\xb5\x2f\xfd\x04", r"x is packed by Zstandard, which is not read: unpack it"),
  (trec_files.read_run, b"q Q0 a 1 high t\n", r"x:1: 'high' is not a number"),
  (trec_files.read_run, b"q Q0 a 1 1_0 t\n", r"x:1: '1_0' is not a number"),
  (trec_files.read_run, b"q Q0 a 1 nan t\n", r"x:1: candidate.*'nan' cannot be ranked"),
  (trec_files.read_run, b"q Q0 a 1 0.5 t\np Q0 a 1 0.5 t\nq Q0 a 2 0.4 t\n", r"x:3: candidate 'a' of question 'q'"),
  (trec_files.read_run, b"q Q0 a 1 0.5 t\nq Q0 \xff 2 0.4 t\n", r"x:2: byte 0xff at position 6"),
  (trec_files.read_qrels, b"q 0 a\n", r"x:1: 3 fields where there must be 4"),
  (trec_files.read_qrels, b"q 0 a 0.5\n", r"x:1: '0.5' is not a whole number"),
  (trec_files.read_qrels, b"q 0 a 1_0\n", r"x:1: '1_0' is not a whole number"),
  (trec_files.read_qrels, b"query-id\tcorpus-id\tscore\nq\ta\t1\nq\ta\n", r"x:3: 2 fields where there must be 3"),
  (trec_files.read_qrels, b"q 0 a 1\nq 0 a 0\n", r"x:2: candidate 'a' of question 'q' occurs twice"),
  (trec_files.read_per_question, b"", r"x:1: not a table"),
  (trec_files.read_per_question, TABLE + b"q\t2\t1\n", r"x:2: 3 columns.*has 4"),
  (trec_files.read_per_question, TABLE + b"q\t2\t1\tx\n", r"x:2: 'x' is not a number"),
  (trec_files.read_per_question, TABLE + b"q\t2\t1\tnan\n", r"x: a value is not finite"),
  (trec_files.read_per_question, TABLE + b"q\t2\t1\t1\n" * 2, r"x:3: .*question 'q' occurs twice"),
]  # fmt: skip


def test_malformed_files_are_refused(tmp_path):
  for read, content, message in MALFORMED:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=message):
      read(tmp_path / "x")


def test_other_tools_files_are_read(tmp_path):
  (tmp_path / "run").write_bytes(b"\xef\xbb\xbfq\tQ0  a\t1 5e-1 t\r\nq Q0 b\xc2\xa0c 2 0.4 t\r\n\n")
  assert trec_files.read_run(tmp_path / "run") == {"q": {"a": 0.5, "b\u00a0c": 0.4}}
  packed = tmp_path / "run.gz"
  packed.write_bytes(gzip.compress((tmp_path / "run").read_bytes()))
  assert trec_files.read_run(packed) == trec_files.read_run(tmp_path / "run")
  with pytest.raises(InputError, match="missing does not exist"):
    trec_files.read_run(tmp_path / "missing")


def test_an_unwritable_place_is_an_input_error(tmp_path):
  (tmp_path / "file").touch()
  for place in (tmp_path / "file" / "run", tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
      trec_files.write_run(place, ["q"], [["a"]], [[1.0]], "tag")


TEXT = "first\r\nsecond \u00e9\nlast"
LINES = [(1, "first"), (2, "second \u00e9"), (3, "last")]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_gzip_is_unpacked_by_content(tmp_path, mark):
  data = mark + TEXT.encode()
  assert list(Lines(written(tmp_path, data))) == LINES
  assert list(Lines(written(tmp_path, gzip.compress(data)))) == LINES


def test_damaged_gzip(tmp_path):
  packed = gzip.compress(b"".join(b"%d line\n" % (i * i) for i in range(5000)))
  for cut in (len(packed) // 2, -4, 5):  # without the check sum all lines are there
    with pytest.raises(InputError, match=r"file:1: the gzip file is cut off"):
      list(Lines(written(tmp_path, packed[:cut])))
  with pytest.raises(InputError, match=r"file is empty"):
    list(Lines(written(tmp_path, gzip.compress(b""))))


@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a device"])
def test_what_is_no_file_is_not_opened(tmp_path, kind):
  path = tmp_path / "file"
  if kind == "a named pipe":
    os.mkfifo(path)
  elif kind == "a directory":
    path.mkdir()
  else:
    path.symlink_to("/dev/zero")
  with pytest.raises(InputError, match=f"^{path} is {kind}; give the path of a file"):
    list(Lines(path))
