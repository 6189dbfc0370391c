"""as2jax.evaluate and as2jax.compare: any system on labelled questions, told apart as models and methods."""

import dataclasses
import json
import shutil
from html import escape

import numpy as np
import pytest

import as2jax
from as2jax.commands import app
from as2jax.data import dataset, trec_files
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import compare as command
from as2jax.evaluation import results
from as2jax.runtime.errors import InputError


@pytest.fixture(scope="module")
def data():
  return as2jax.dataset("sample", "test", filter="clean")


@pytest.fixture(scope="module")
def folders(finished_run, tmp_path_factory):
  """Copies of finished runs: an evaluation is noted in the run's folder."""
  root = tmp_path_factory.mktemp("runs")
  for name in ("word_overlap", "bm25", "triplet"):
    shutil.copytree(finished_run(name), root / name)
  return root


def mean(folder, metric="map"):
  content = json.loads((folder / "results.json").read_text())
  return content["metrics"][f"{metric}[sample-clean/test]"]


def test_a_run_a_ranker_a_run_file_and_functions_are_measured_alike(folders, data, tmp_path):
  folder = folders / "bm25"
  run = as2jax.open_run(folder)
  ranker = run.ranker()
  clean = {question.id for question in data.questions}
  lines = (folder / "eval/test/run.trec").read_text().splitlines(keepends=True)
  file = tmp_path / "other.trec"
  file.write_text("".join(line for line in lines if line.split()[0] in clean))
  wanted, before = mean(folder), results.times_evaluated(folder, "test", "sample").most
  for system in (
    run,
    str(folder),
    ranker,
    file,
    lambda questions: next(iter(ranker.all_scores(questions).values())),
    as2jax.pairwise(ranker.scores),
  ):
    actual = as2jax.evaluate(system, data)
    assert actual.data == "sample-clean/test" and actual.values["map"].shape == (1, len(clean))
    for key in ("mean", "half_width", "questions"):
      assert actual.metrics["map"][key] == pytest.approx(wanted[key], abs=1e-9), system
    assert actual.metrics["mrr"]["mean"] == pytest.approx(mean(folder, "mrr")["mean"], abs=1e-9)
    assert f"map         {wanted['mean']:.4f} ± {wanted['half_width']:.4f}" in str(actual)
  figures = actual.metrics["map"]
  assert figures["worst"] <= figures["mean"] <= figures["best"]
  # The run, and its folder.
  assert results.times_evaluated(folder, "test", "sample").most == before + 2


def test_only_what_is_known_to_be_without_randomness_is_deterministic(folders, data):
  run = as2jax.open_run(folders / "word_overlap")
  ranker = run.ranker()
  by_file = folders / "word_overlap/eval/test/run.trec"
  every = as2jax.dataset("sample", "test", filter="all")
  assert as2jax.evaluate(ranker, data).deterministic
  assert not as2jax.evaluate(by_file, every).deterministic
  assert as2jax.evaluate(by_file, every, deterministic=True).deterministic
  assert not as2jax.evaluate(as2jax.pairwise(ranker.scores), data).deterministic


def test_words_are_weighed_by_the_whole_split_and_empty_questions_do_not_count(folders):
  """As in a run: the word that a filtered question's candidates share is the commoner one."""
  texts = lambda *its: tuple(Candidate(str(i), text, i == 0) for i, text in enumerate(its))
  asked = Question("q", "alpha beta", texts("alpha", "beta"))
  unanswered = Question(
    "r", "beta", tuple(dataclasses.replace(c, label=0) for c in texts("beta x", "beta y"))
  )
  split = {"test": (asked, unanswered, Question("s", "gamma", ()))}
  made = dataset.Dataset("mine", split, "answerable", "", {"test": ""}, filter="clean")
  ranker = as2jax.open_run(folders / "bm25").ranker()
  assert as2jax.evaluate(ranker, made).values["map"].tolist() == [[1.0]]
  assert as2jax.evaluate(ranker, made.questions).values["map"].tolist() == [[0.75]]  # a tie
  assert as2jax.evaluate(ranker, dataclasses.replace(made, filter="all")).ids == ("q", "r")
  unfiltered = as2jax.evaluate(ranker, dataclasses.replace(made, filter="official"))
  assert unfiltered.data == "mine-all/test"  # it has no official filter


def test_a_comparison_is_that_of_the_command(folders, data):
  places = [folders / name for name in ("word_overlap", "bm25", "triplet")]
  evaluations = [as2jax.evaluate(as2jax.open_run(place), data) for place in places]
  actual = as2jax.compare(*evaluations)
  by_folder = as2jax.compare(f"{places[0]}=words", *places[1:])
  for ours, theirs in zip(by_folder.rows, actual.rows, strict=True):
    assert ours["mean"] == pytest.approx(theirs["mean"]) and ours["note"] == theirs["note"]
  assert by_folder.rows[0]["system"] == "words"
  options = {"split": "test", "question_filter": None, "samples": 100_000, "seed": 0}
  printed = command.run([*map(str, places)], metrics="map,mrr", form="json", **options)
  rows = list(map(json.loads, printed.splitlines()))
  assert len(actual.rows) == len(rows) == 6
  for ours, theirs in zip(actual.rows, rows, strict=True):
    assert ours["metric"] == theirs["metric"] and ours.keys() == theirs.keys()
    for key, value in theirs.items():
      if isinstance(value, float):
        assert ours[key] == pytest.approx(value, abs=2e-5), key
  assert actual.rows[2]["methods_note"] == "cannot be told from one seed" in str(actual)


def test_objects_say_what_they_are(folders, data, tmp_path):
  """In a few lines, and as a table in a notebook; nothing of it is Python's own form."""
  folder = folders / "triplet"
  run, text = as2jax.open_run(folder), "a <b>bold</b> text"
  ranker = run.ranker()
  index = ranker.index([text, "other"])
  words = as2jax.evaluate(as2jax.open_run(folders / "bm25"), data, name="BM25 <1>")
  figure, by_words = f"{mean(folder)['mean']:.4f}", f"{words.metrics['map']['mean']:.4f}"
  (tmp_path / "begun").mkdir()
  shutil.copy(folder / "config.json", tmp_path / "begun")
  count = sum(value.size for value in run.parameters(run.seeds[0]).values())
  for thing, parts in (
    (run, [str(folder), "triplet on sample, seeds", "map[sample-clean/test]", figure]),
    (as2jax.open_run(tmp_path / "begun"), ["not finished"]),
    (ranker, [f"triplet of {folder}, seed 0", f"{count:,} numbers, float32", "euclidean", "index"]),
    (as2jax.open_run(folders / "bm25").ranker(), ["bm25 of", "none: it ranks by words"]),
    (index, ["2 documents in memory", "euclidean of vectors", str(folder)]),
    (data, ["sample, clean questions", "test", "54 questions, 477 pairs, 63 positives"]),
    (words, ["BM25 <1> on sample-clean/test: 54 questions", "mrr", by_words]),
    (as2jax.compare(words, words), ["map[sample-clean/test]", "difference", "BM25 <1>"]),
  ):
    html = thing._repr_html_()
    assert repr(thing) == str(thing) and repr(thing).count("\n") < 15 and "<table>" in html
    for part in parts:
      assert part in repr(thing) and escape(part) in html, (part, thing)
  assert len(data) == len(data.questions) == 54
  assert set(dir(as2jax)) == {*as2jax._PUBLIC, "__version__"}


QUESTIONS = tuple(
  Question(
    f"q{i}", f"what {i}", (Candidate("a", "x", 1), Candidate("b", "y", 0), Candidate("c", "z", 0))
  )
  for i in range(4)
)


def test_average_recall_is_that_of_the_official_questions(tmp_path):
  """As SemEval reports it: recall at 1, 2 and 3 … 10 is 1 / 4, 3 / 4 and 1."""
  path = tmp_path / "run.trec"
  scores = [np.float32(its) for its in ([3, 2, 1], [2, 3, 1], [0, 1, -1], [0, 1, 2])]
  trec_files.write_run(path, [q.id for q in QUESTIONS], [list("abc")] * 4, scores, "tag")
  split = {"test": QUESTIONS}
  data = dataset.Dataset("cqa", split, "both", "", {}, official="all", average_recall=True)
  expected = (1 / 4 + 3 / 4 + 8) / 10
  for kept in ("all", "official"):
    its = as2jax.evaluate(path, dataclasses.replace(data, filter=kept)).metrics["avgrec"]
    assert its["mean"] == pytest.approx(expected)
    assert its["questions"] == 4 and its["sd"] is its["half_width"] is None
  for other in (
    dataclasses.replace(data, filter="clean"),
    dataclasses.replace(data, average_recall=False),
    QUESTIONS,
  ):
    assert "avgrec" not in as2jax.evaluate(path, other).metrics


def test_infinite_scores_of_a_run_file_rank_as_in_trec_eval(tmp_path):
  """The positive, `a`, is first, first, tied with one negative, last."""
  path = tmp_path / "run.trec"
  scores = (("1e39", "1", "0"), ("inf", "2", "-inf"), ("1e39", "inf", "0"), ("-inf", "2", "1"))
  rows = [
    f"q{i} Q0 {candidate} 1 {score} tag\n"
    for i, its in enumerate(scores)
    for candidate, score in zip("abc", its, strict=True)
  ]
  path.write_text("".join(rows))
  actual = as2jax.evaluate(path, QUESTIONS).values["map"]
  assert actual.tolist() == [pytest.approx([1, 1, 3 / 4, 1 / 3])]


def test_wrong_arguments_are_said_in_pythons_terms(folders, tmp_path, capsys):
  """What, and what to give; a command says the same of its flags."""
  ranker, table = as2jax.open_run(folders / "bm25").ranker(), tmp_path / "faq.csv"
  table.write_text("ask,answer,label\nwho,Ann,1\nwho,Bob,0\n")
  for call, said in (
    (lambda: as2jax.load(3), "source = 3: give a run's folder or"),
    (lambda: as2jax.open_run(3), "folder = 3: give a run's folder"),
    (lambda: as2jax.dataset(3), "name_or_path = 3: give a data set's name"),
    (lambda: as2jax.dataset(table), 'name it: columns={"question": "COLUMN"}'),
    (lambda: as2jax.evaluate(ranker, 3), "data = 3: give a data set"),
    (lambda: as2jax.evaluate(ranker, table, measures="AP"), "measures = 'AP': they are for qrels"),
    (lambda: as2jax.evaluate("x.run", qrels="q.txt", drop=True), "columns, drop and label are for"),
    (lambda: as2jax.evaluate(ranker, QUESTIONS, drop=True), "columns and drop are for a file or"),
    (lambda: as2jax.evaluate(ranker, QUESTIONS, label="yes"), "label = 'yes': only a published"),
    (lambda: as2jax.train(3, "x"), "job = 3: give a job's name"),
    (lambda: as2jax.train("own:bm25", "x", data="faq.csv"), "data = 'faq.csv': give files or"),
    (lambda: as2jax.train("own:bm25", "x", seeds=3), "seeds = 3: give several numbers"),
    (lambda: ranker.rank_many(["who"]), "'who' is no as2jax.Question"),
    (lambda: ranker.rank("who", ["Ann"], top_k="3"), "top_k = '3': give a whole number"),
    (lambda: ranker.index(["Ann"]).search("who", depth=0), "depth = 0: give a whole number"),
  ):
    with pytest.raises(InputError) as error:
      call()
    assert said in str(error.value)
  assert app.run(["data", "check", str(table)]) == 2
  assert "name it: --columns question=COLUMN" in capsys.readouterr().err


def test_what_cannot_be_evaluated(tmp_path):
  good = lambda questions: [[1, 2, 3]] * len(questions)
  unlabelled = (Question("q", "what", (Candidate("a", "x"),)),)
  file = tmp_path / "run.trec"
  file.write_text("q0 Q0 a 1 1 tag\n")
  for system, asked, message in (
    (file, QUESTIONS, "question 'q0'.* candidate"),
    (good, (), "there are no questions"),
    (good, unlabelled, "has no label"),
    (lambda q: [[1, 2, 3]], QUESTIONS, "gives no scores of the questions"),
    (lambda q: [[1, 2]] * 4, QUESTIONS, "of question 'q0' with 3 candidates, shape"),
    (lambda q: [[1, 2, np.nan]] * 4, QUESTIONS, "is nan, which cannot be ranked"),
    (as2jax.pairwise(lambda pairs: np.ones((len(pairs), 2))), QUESTIONS, r"shape \(12, 2\) for 12"),
    (lambda q: [[1, 1e300, 3]] * 4, QUESTIONS, "is inf, which cannot be ranked"),
    (lambda q: None, QUESTIONS, "gives no scores .*: give one array of numbers"),
    (3, QUESTIONS, "int is no system"),
  ):
    with pytest.raises(InputError, match=message):
      as2jax.evaluate(system, asked)
  one = as2jax.evaluate(good, QUESTIONS)
  other = as2jax.evaluate(good, QUESTIONS[:3])
  for arguments, options, message in (
    ((one,), {}, "two or more systems"),
    ((one, "runs/x"), {}, "not some of each"),
    (("runs/none", "runs/x"), {}, "runs/none is no file"),
    ((one, other), {}, "compare systems on the same questions"),
    ((one, as2jax.evaluate(good, QUESTIONS, ties="pessimistic")), {}, "ties=pessimistic"),
    ((one, as2jax.evaluate(good, QUESTIONS)), {"metrics": ["bleu"]}, "no metric 'bleu'"),
  ):
    with pytest.raises(InputError, match=message):
      as2jax.compare(*arguments, **options)
