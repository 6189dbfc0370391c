import functools
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.datasets import columns as column_names
from as2jax.data.datasets import user_files
from as2jax.data.datasets.user_files import load, read_labelled, read_unlabelled
from as2jax.data.datasets.wikiqa import read_wikiqa
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError

RECORDS = (
  {"question": 'what is "ice"?', "candidate": "Frozen water.", "label": 1, "next": "Cold."},
  {"question": "who sells it?", "candidate": "Merchants.", "label": 0, "title": "Ice trade"},
  {"question": 'what is "ice"?', "candidate": "Cold.", "label": 0, "previous": "Frozen water."},
  {"question": "who sells it?", "candidate": "Merchants.", "label": 1},
)
COLUMNS = ("question", "candidate", "label", "previous", "next", "title")
TABLE = tuple("\t".join(str(record.get(name, "")) for name in COLUMNS) for record in RECORDS)
WIKIQA = (
  "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
  "Q1\twhat is ice?\tD1\tIce\tD1-0\tFrozen water .\t1\n"
  "Q1\twhat is ice?\tD1\tIce\tD1-1\tIt is cold .\t0\n"
)


def written(folder: Path, name: str, *lines: str, end: str = "\n") -> Path:
  path = folder / name
  path.write_bytes("".join(line + end for line in lines).encode())
  return path


def json_lines(folder: Path, records=RECORDS, name="mine.jsonl") -> Path:
  return written(folder, name, *(json.dumps(record) for record in records))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_and_json_lines_read_alike(tmp_path, end):
  table = read_labelled(written(tmp_path, "mine.tsv", "\t".join(COLUMNS), *TABLE, end=end))
  assert table == read_labelled(json_lines(tmp_path))
  assert table == read_labelled(json_lines(tmp_path, name="mine.txt"))
  ice, trade = table
  assert (ice.id, ice.text) == ("q1", 'what is "ice"?')
  assert [c.id for c in ice.candidates] == ["q1-0", "q1-1"]
  assert [c.label for c in ice.candidates] == [1, 0]
  first, second = ice.candidates
  assert (first.next, first.next_label, first.previous_label) == ("Cold.", 0, UNKNOWN)
  assert (second.previous, second.previous_label) == ("Frozen water.", 1)
  assert (trade.id, trade.candidates[0].title) == ("q2", "Ice trade")
  assert [c.text for c in trade.candidates] == ["Merchants."] * 2  # the same text twice is kept


def test_unlabelled_needs_and_reads_no_label(tmp_path):
  questions = read_unlabelled(json_lines(tmp_path))
  assert {c.label for q in questions for c in q.candidates} == {UNKNOWN}
  assert {c.next_label for q in questions for c in q.candidates} == {UNKNOWN}
  bare = [{k: v for k, v in record.items() if k != "label"} for record in RECORDS]
  assert read_unlabelled(json_lines(tmp_path, bare)) == questions
  odd = [record | {"label": "?"} for record in RECORDS]
  assert read_unlabelled(json_lines(tmp_path, odd)) == questions


def test_two_columns_without_a_header(tmp_path):
  path = written(tmp_path, "mine.tsv", "{who\tnobody", "what\tnothing", "{who\tme", "")
  first, second = read_unlabelled(path)
  assert (first.text, [c.text for c in first.candidates]) == ("{who", ["nobody", "me"])
  assert second.text == "what"


def test_ids_are_kept_and_group(tmp_path):
  records = [
    {"question_id": 7, "candidate_id": "b", "question": "same?", "sentence": "x", "label": "1"},
    {"question_id": 8, "candidate_id": "b", "question": "same?", "sentence": "y", "label": "0"},
    {"question_id": 7, "candidate_id": "a", "question": "same?", "sentence": "z", "label": 0},
  ]
  seven, eight = read_labelled(json_lines(tmp_path, records))
  assert (seven.id, eight.id) == ("7", "8")
  assert [(c.id, c.text) for c in seven.candidates] == [("b", "x"), ("a", "z")]


def test_gzip_changes_nothing(tmp_path):
  plain = json_lines(tmp_path)
  packed = tmp_path / "mine.jsonl.gz"
  packed.write_bytes(gzip.compress(plain.read_bytes()))
  assert read_labelled(packed) == read_labelled(plain)


def test_nested_candidates_are_no_unread_column(tmp_path, caplog):
  nested = {"question": "q", "candidates": [{"sentence": "c"}], "cnadidate_id": "7"}
  read_unlabelled(json_lines(tmp_path, [nested]))
  (told,) = [record.getMessage() for record in caplog.records]
  assert "'cnadidate_id' is carried along unread" in told


def test_load_reads_each_split_in_its_own_form(tmp_path):
  nested = {"question": "q", "candidates": [{"sentence": "c", "label": 0}]}
  paths = {
    "train": str(json_lines(tmp_path)),
    "dev": str(json_lines(tmp_path, [nested, nested], "dev.jsonl")),
    "test": str(written(tmp_path, "test.tsv", *WIKIQA.splitlines())),
  }
  read = functools.partial(load, read=read_labelled, name="files")
  splits = read(paths)
  assert {split: len(questions) for split, questions in splits.items()} == {
    "train": 2,
    "dev": 2,
    "test": 1,
  }
  assert splits["test"][0].candidates[0].id == "D1-0"
  assert read(paths | {"test": ""}) == {split: splits[split] for split in ("train", "dev")}
  with pytest.raises(InputError, match="give --config.data.train, --config.data.dev"):
    read({"train": "", "dev": ""})
  with pytest.raises(InputError, match="absent.tsv does not exist"):
    read(paths | {"dev": str(tmp_path / "absent.tsv")})


def test_wikiqa_files_are_read_as_such(tmp_path):
  path = tmp_path / "mine.tsv"
  path.write_text(WIKIQA)
  assert read_labelled(path) == read_wikiqa(path)
  path.write_text(WIKIQA.replace("\t1\n", "\t\n"))
  assert read_unlabelled(path) == read_wikiqa(path, labelled=False)
  with pytest.raises(InputError, match=r"mine.tsv:2: .*Label is empty"):
    read_labelled(path)


def test_repeated_rows_of_a_wikiqa_file_are_told_and_dropped(tmp_path):
  path = tmp_path / "mine.tsv"
  row = lambda i, text: f"Q1\twhy\tD1\tTitle\tD1-{i}\t{text}\t0\n"
  path.write_text(WIKIQA.splitlines(keepends=True)[0] + row(0, "a") + row(1, "b") + row(2, "a"))
  whole = user_files.read(path, labelled=True)
  assert whole.problems.repeated == (4,) and len(whole.questions[0].candidates) == 3
  dropped = user_files.read(path, labelled=True, drop=True)
  assert [c.id for c in dropped.questions[0].candidates] == ["D1-0", "D1-1"]
  assert dropped.questions[0].candidates[1].next == "a"  # its neighbour in the document
  assert dropped.others["Q1", "D1-1"] == {"DocumentID": "D1"} and dropped.numbers == ((2, 3),)


def test_contradictory_rows_of_a_wikiqa_file_are_told_and_kept(tmp_path, caplog):
  path = tmp_path / "mine.tsv"
  path.write_text(WIKIQA + "Q1\twhat is ice?\tD1\tIce\tD1-2\tFrozen water .\t0\n")
  for drop in (False, True):
    caplog.clear()
    own = user_files.read(path, labelled=True, drop=drop)
    assert own.problems.contradictory == (4,) and not own.problems.repeated
    assert [c.label for c in own.questions[0].candidates] == [1, 0, 0]
    assert "repeating one with another label (line 4)" in caplog.text
  caplog.clear()
  assert user_files.read(path, labelled=False, lenient=True).problems.repeated == (4,)
  assert not caplog.text


def table(*rows: str, header: str = "question\tcandidate\tlabel") -> tuple[str, ...]:
  return ("mine.tsv", header, *rows)


def objects(*lines) -> tuple[str, ...]:
  return ("mine.jsonl", *(line if isinstance(line, str) else json.dumps(line) for line in lines))


GOOD = {"question": "q", "candidate": "c", "label": 1}
NESTED = {"question": "q", "candidates": [{"candidate": "c", "label": 1}]}
BROKEN = {
  "too few columns": (table("q\tc\t1", "q\td"), 3, "2 columns"),
  "too many columns": (table("q\tc\t1", "q\td\t0\t"), 3, "4 columns"),
  "empty candidate": (table("q\t \t1"), 2, "1 without a question or a candidate (line 2); mend the file, or leave"),
  "empty question": (table("\tc\t1"), 2, "1 without a question or a candidate (line 2)"),
  "bad label": (table("q\tc\tmaybe"), 2, "label is 'maybe'; expected 0 or 1, yes or no"),
  "label on some lines": (table("q\tc\t1", "q\td\t"), 3, "label is missing"),
  "blank line": (table("q\tc\t1", "", "q\td\t1"), 3, "3 rows, of these 1 without a question"),
  "blank lines only": (("mine.tsv", "", ""), 1, "the first line is empty"),
  "header only": (table(), 1, "nothing follows the header"),
  "no label column": (table("q\tc", header="question\tcandidate"), 1, "no column label"),
  "unknown column": (table("q\tc\t1", header="question\tcandidate\tlable"), 1, "did you mean 'lable'? name it: --columns label=lable"),
  "column twice": (table("a\tb\tc", header="question\tlabel\tlabel"), 1, "a column twice"),
  "one column": (("mine.tsv", "a question"), 1, "expected a header"),
  "three columns, no header": (("mine.tsv", "a\tb\t1"), 1, "expected a header"),
  "not JSON": (objects(GOOD, "{question: 1}"), 2, "not a JSON object"),
  "JSON cut off": (objects(GOOD, '{"question": "q", "cand'), 2, "not a JSON object"),
  "JSON of another kind": (objects(GOOD, "[1, 2]"), 2, "is not a JSON object"),
  "JSON too deep": (objects("[" * 100_000), 1, "not a JSON object"),
  "columns among JSON": (objects(GOOD, "q\tc\t1"), 2, "not a JSON object"),
  "JSON in a .tsv": (("mine.tsv", json.dumps(GOOD)), 1, "expected a header"),
  "field twice": (objects('{"question": "q", "question": "r", "candidate": "c"}'), 1, "twice"),
  "missing question": (objects({"candidate": "c", "label": 1}), 1, "every line needs a question"),
  "records inside an object": (objects({"data": [GOOD]}), 1, "if data holds the records, make this list the whole file"),
  "missing label": (objects(GOOD, {"question": "q", "candidate": "d"}), 2, "label is missing"),
  "null label": (objects(GOOD | {"label": None}), 1, "label is missing"),
  "label 2": (objects(GOOD | {"label": 2}), 1, "label is '2'"),
  "label a list": (objects(GOOD | {"label": [1]}), 1, "label is '[1]'"),
  "sentence and answer": (
    objects({"question": "q", "sentence": "s", "answer": "t", "label": 1}), 1,
    "`sentence` and `answer` may both be the candidate; keep one, or name it: --columns candidate="),
  "a number for a text": (objects(GOOD | {"title": 3}), 1, "the field title is '3'"),
  "half a surrogate pair": (objects(GOOD | {"candidate": "\ud800"}), 1, "surrogate"),
  "white space in an id": (objects(GOOD | {"question_id": "a b"}), 1, "question_id is 'a b'"),
  "white space in the id of a question without candidates": (
    objects({"question_id": "a b", "question": "who", "candidates": []}), 1, "question_id is 'a b'"),
  "a byte-order mark in an id": (
    objects(GOOD | {"candidate_id": "\ufeffa"}), 1, "candidate_id is '\\ufeffa'; an id is not empty"),
  "id on some lines": (objects(GOOD, GOOD | {"question_id": "a"}), 2, "on all lines or on none"),
  "id missing later": (objects(GOOD | {"candidate_id": "a"}, GOOD), 2, "has no candidate_id"),
  "candidate id twice": (
    objects(GOOD | {"candidate_id": "a"}, GOOD | {"candidate_id": "a"}), 2, "occurs twice"),
  "two questions under one id": (
    objects(GOOD | {"question_id": "a"}, {**GOOD, "question": "r", "question_id": "a"}), 2,
    "on line 1"),
  "two objects under one id": (
    objects(NESTED | {"question_id": "a"}, NESTED | {"question_id": "a"}), 2, "already on line 1"),
  "an object and a row under one id": (
    objects(NESTED | {"question_id": "a"}, GOOD | {"question_id": "a"}), 2,
    "question_id 'a' was already on line 1; give each question its own id"),
  "an id that one without gets": (
    objects({"question": "r", "candidates": [], "question_id": "q2"}, GOOD), 2, "already on line 1"),
}  # fmt: skip


@pytest.mark.parametrize("file, line, words", BROKEN.values(), ids=BROKEN)
def test_broken_file(tmp_path, file, line, words):
  path = written(tmp_path, *file)
  with pytest.raises(InputError) as error:
    read_labelled(path)
  assert str(error.value).startswith(f"{path}:{line}: ")
  assert words in str(error.value)


OWN = {"ask": "q", "reply": "c", "good": 1}


def test_labels_that_are_optional_are_on_all_lines_or_on_none(tmp_path):
  bare = {"question": "q", "candidate": "d"}
  read = lambda *records: user_files.read(json_lines(tmp_path, records), labelled=None)
  assert read(GOOD, NESTED).labelled and not read(bare, bare | {"candidate": "e"}).labelled
  nested = {"question": "r", "candidates": ["e", {"candidate": "f", "label": 1}]}
  for records, words in (
    ((bare, GOOD), "2: this line has a label, earlier ones have none; give it on all lines or on"),
    ((GOOD, bare), "2: this line has no label, earlier ones have one; give it on all lines or on"),
    ((nested,), "1: this line has a label, earlier ones have none"),
  ):
    with pytest.raises(InputError, match=f"mine.jsonl:{words}"):
      read(*records)
    unlabelled = read_unlabelled(json_lines(tmp_path, records))
    assert {c.label for q in unlabelled for c in q.candidates} == {UNKNOWN}


@pytest.mark.parametrize(
  "file",
  [
    ("mine.csv", "ask,reply,good", "q,c,1", "", "q,d,0"),
    ("mine.csv", "ask,reply,good", "q,c,1", ",,", "q,d,0"),
    ("mine.jsonl", json.dumps(OWN), "", json.dumps(OWN | {"reply": "d"})),
  ],
)
def test_an_empty_line_under_named_columns_is_counted_and_dropped(tmp_path, file):
  path = written(tmp_path, *file)
  columns = "question=ask,candidate=reply,label=good"
  with pytest.raises(InputError, match="3 rows, of these 1 without a question or a candidate"):
    read_labelled(path, columns=columns)
  (question,) = read_labelled(path, columns=columns, drop=True)
  assert [c.text for c in question.candidates] == ["c", "d"]


def test_named_columns_of_json_lines_may_be_nested_or_absent(tmp_path):
  nested = {
    "ask": "q",
    "nr": 7,
    "candidates": [{"reply": "c", "good": 1}, {"reply": "d", "good": 0}],
  }
  flat = {"ask": "r", "nr": 8, "reply": "e", "good": 1}
  columns = "question=ask,candidate=reply,label=good,question_id=nr,title=ctx"
  path = json_lines(tmp_path, [nested, flat | {"ctx": "T"}, flat | {"reply": "f"}])
  first, second = read_labelled(path, columns=columns)
  assert (first.id, first.text, second.id) == ("7", "q", "8")
  assert [(c.text, c.label) for c in first.candidates] == [("c", 1), ("d", 0)]
  assert [(c.text, c.title) for c in second.candidates] == [("e", "T"), ("f", "")]
  (texts,) = read_unlabelled(
    json_lines(tmp_path, [{"ask": "q", "candidates": ["c", {"reply": "d"}]}]),
    columns="question=ask,candidate=reply",
  )
  assert [c.text for c in texts.candidates] == ["c", "d"]
  for named, words in (
    (
      "label=good,title=context",
      "mine.jsonl: no row has a column 'context', which was named for title",
    ),
    ("label=right", "mine.jsonl:1: there is no column 'right', which was named for label"),
  ):
    with pytest.raises(InputError, match=words):
      read_labelled(json_lines(tmp_path, [OWN]), columns=f"question=ask,candidate=reply,{named}")


def test_unlabelled_headers(tmp_path):
  with pytest.raises(InputError, match=r":1: there is no column candidate"):
    read_unlabelled(written(tmp_path, "mine.tsv", "Question\ttitle", "q\tc"))
  assert len(read_unlabelled(written(tmp_path, "mine.tsv", "Question\tSentence", "q\tc"))) == 1


def test_undecodable_empty_and_cut_files(tmp_path):
  path = tmp_path / "mine.jsonl"
  path.write_bytes(json.dumps(GOOD).encode() + b'\n{"question": "caf\xe9"}\n')
  with pytest.raises(InputError, match=r"mine.jsonl:2: byte 0xe9"):
    read_labelled(path)
  path.write_bytes(json.dumps(GOOD).encode()[:-5])
  with pytest.raises(InputError, match=r"mine.jsonl:1: .*it may be cut off"):
    read_labelled(path)
  path.write_bytes(b"")
  with pytest.raises(InputError, match=r"mine.jsonl is empty"):
    read_labelled(path)
  with pytest.raises(InputError, match=r"is a directory"):
    read_labelled(tmp_path)


@given(drawn=st.data(), name=st.sampled_from(("mine.tsv", "mine.jsonl")))
def test_damage_is_an_error_with_its_place_or_changes_no_count(tmp_path, drawn, name):
  make = json_lines if name == "mine.jsonl" else written
  lines = () if name == "mine.jsonl" else ("mine.tsv", "\t".join(COLUMNS), *TABLE)
  path = make(tmp_path, *lines)
  data = path.read_bytes()
  for _ in range(drawn.draw(st.integers(1, 3))):
    at = drawn.draw(st.integers(0, len(data)))
    gone = drawn.draw(st.sampled_from((0, 1, 5, 30, len(data))))
    junk = drawn.draw(
      st.one_of(st.binary(max_size=3), st.sampled_from((b"\n", b"\t", b"\r\n", b'"', b"{}\n")))
    )
    data = data[:at] + junk + data[at + gone :]
  path.write_bytes(data)
  try:
    questions = read_labelled(path)
  except InputError as error:
    place = str(error).removeprefix(str(path))
    assert place[0] == ":" and place[1:].split(":")[0].isdecimal() or "is empty" in place
    return
  filled = [line for line in data.split(b"\n") if line.strip()][name == "mine.tsv" :]
  assert sum(len(question.candidates) for question in questions) == len(filled)
  assert len(questions) == len({_question(line, name, data) for line in filled})


def _question(line: bytes, name: str, data: bytes) -> str:
  """Of one line; a column is known by its name without case, blanks, hyphens and underscores."""
  if name == "mine.jsonl":
    record = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    (text,) = (text for column, text in record.items() if column_names.simple(column) == "question")
    return text
  header = data.split(b"\n")[0].removeprefix(b"\xef\xbb\xbf").decode().rstrip("\r").split("\t")
  position = [column_names.simple(column) for column in header].index("question")
  return line.decode().rstrip("\r").split("\t")[position]
