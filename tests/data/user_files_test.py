"""Users' tables in every form in which others write them: the same rows come out, or a refusal."""

import csv
import gzip
import io
import json
import logging
import sys
from types import SimpleNamespace

import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from as2jax.commands import documents
from as2jax.config import base
from as2jax.data import tables
from as2jax.data.dataset import by_address, dataset
from as2jax.data.load import load
from as2jax.data.record import UNKNOWN, fingerprint, groups_of
from as2jax.data.user_files import (
  LABELLED,
  PAIRS,
  WITH_NEGATIVES,
  form_of,
  read,
  read_labelled,
  rows,
)
from as2jax.runtime.errors import InputError
from tests.file_damage import damaged, has_place, written

ROWS = [
  {"question": 'who said "no"?', "candidate": "Ann,\nwho\tsaid so.", "label": 1, "team": "x;y"},
  {"question": 'who said "no"?', "candidate": '"Ben" did', "label": 0, "team": "NA"},
  {"question": "why", "candidate": "so, they say", "label": 1, "team": "007"},
]
CONTENT = [(r["question"], r["candidate"], r["label"], r["team"]) for r in ROWS]
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


def json_lines(*records) -> str:
  return "".join(json.dumps(record) + "\n" for record in records)


def content(source, **how) -> list[tuple]:
  """(question, candidate, label, team) of each row of a file or frame."""
  own = read(source, **({"labelled": True} | how))
  pairs = [(q, c) for q in own.questions for c in q.candidates]
  return [(q.text, c.text, c.label, own.others[q.id, c.id].get("team")) for q, c in pairs]


def cells(delimiter: str, quoting=csv.QUOTE_MINIMAL) -> str:
  text = io.StringIO(newline="")
  writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
  writer.writerows([list(ROWS[0]), *(row.values() for row in ROWS)])
  return text.getvalue()


def test_forms_of_text_give_the_same_rows(tmp_path):
  excel_tsv = 'question\tanswer\tlabel\tteam\r\nwhy\t"so, they say"\t1\t007\r\n'
  lines = json_lines(*ROWS)
  frame = pandas.DataFrame(ROWS)
  for name, text in (
    *[(f"faq.{s}", cells(d, q)) for s, d in (("csv", ","), ("csv", ";"), ("csv", "\t"), ("tsv", "\t"))
      for q in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)],
    ("faq.csv", "\ufeff" + cells(",")),
    ("faq.csv.gz", gzip.compress(cells(",").encode())),
    ("faq.tsv", frame.to_csv(index=False, sep="\t")),
    ("faq.csv", frame.to_csv(index=False)),
    ("faq.jsonl", lines),
    ("faq.ndjson", lines.replace("\n", "\r\n")),
    ("faq.json", lines),
    ("standard input", cells(";")),
    ("standard input", cells("\t")),
    ("standard input", lines),
  ):  # fmt: skip
    assert content(written(tmp_path, text, name)) == CONTENT, (name, text)
  assert content(written(tmp_path, excel_tsv, "faq.tsv")) == CONTENT[2:]
  assert content(frame) == CONTENT


def test_parquet_and_frames_give_the_same_rows(tmp_path):
  frame = pandas.DataFrame(ROWS)
  frame.to_parquet(tmp_path / "faq.parquet")
  assert content(tmp_path / "faq.parquet") == CONTENT
  frame.loc[1, "team"] = None
  assert content(frame)[1][3] is None
  whole = read(frame, labelled=True)
  for suffix in ("csv", "tsv", "jsonl", "json", "parquet"):
    tables.write(str(tmp_path / f"mine.{suffix}"), rows(whole))
    assert read(tmp_path / f"mine.{suffix}", labelled=None).questions == whole.questions


def test_fields_of_rows_and_objects(tmp_path):
  table = "\n".join(("\t".join(COLUMNS), *TABLE, ""))
  questions = read_labelled(written(tmp_path, table, "mine.tsv"))
  assert questions == read_labelled(written(tmp_path, json_lines(*RECORDS), "mine.txt"))
  ice, trade = questions
  assert (ice.id, ice.text) == ("q1", 'what is "ice"?')
  first, second = ice.candidates
  assert (first.id, first.label, first.next_label, first.previous_label) == ("q1-0", 1, 0, UNKNOWN)
  assert (second.previous, second.previous_label) == ("Frozen water.", 1)
  assert (trade.id, trade.candidates[0].title) == ("q2", "Ice trade")
  assert [c.text for c in trade.candidates] == ["Merchants."] * 2  # the same text twice is kept
  odd = json_lines(*(record | {"label": "?"} for record in RECORDS))
  unlabelled = read(written(tmp_path, odd, "mine.jsonl"), labelled=False).questions
  assert {c.label for q in unlabelled for c in q.candidates} == {UNKNOWN}


def test_ids_are_kept_and_group(tmp_path):
  text = json_lines(
    {"question_id": 7, "candidate_id": "b", "question": "same?", "sentence": "x", "label": "1"},
    {"question_id": 8, "candidate_id": "b", "question": "same?", "sentence": "y", "label": "0"},
    {"question_id": 7, "candidate_id": "a", "question": "same?", "sentence": "z", "label": 0},
  )
  seven, eight = read_labelled(written(tmp_path, text, "mine.jsonl"))
  assert (seven.id, eight.id) == ("7", "8")
  assert [(c.id, c.text) for c in seven.candidates] == [("b", "x"), ("a", "z")]
  # A column of a frame in which ids were missing holds floats.
  frame = pandas.DataFrame({"qid": [7.0, 8.0], "query": "same?", "answer": "x", "label": 1})
  assert [question.id for question in read_labelled(frame)] == ["7", "8"]


def test_a_question_with_its_candidates_in_one_object(tmp_path):
  objects = [
    {"ask": "q", "nr": 7, "candidates": [{"reply": "c", "good": 1}, {"reply": "d", "good": 0}]},
    {"ask": "r", "nr": 8, "reply": "e", "good": 1, "ctx": "T"},
    {"ask": "r", "nr": 8, "reply": "f", "good": 1},
  ]
  columns = "question=ask,candidate=reply,label=good,question_id=nr,title=ctx"
  path = written(tmp_path, json_lines(*objects), "mine.jsonl")
  first, second = read(path, labelled=True, columns=columns).questions
  assert (first.id, first.text, second.id) == ("7", "q", "8")
  assert [(c.text, c.label) for c in first.candidates] == [("c", 1), ("d", 0)]
  assert [(c.text, c.title) for c in second.candidates] == [("e", "T"), ("f", "")]
  objects = [
    {"query": "q", "candidates": ["a", "b"], "team": 1},
    {"query": "q", "candidates": [{"candidate": "c", "team": 2}]},
    {"query": "p", "candidates": []},
    {"query": "o", "candidates": None, "positive": ["d"]},
  ]
  own = read(written(tmp_path, json_lines(*objects), "mine.json"), labelled=False)
  assert [[c.text for c in q.candidates] for q in own.questions] == [["a", "b"], ["c"], [], ["d"]]
  assert [row.get("team") for row in rows(own)] == [1, 1, 2, None]


def test_lists_of_candidates_in_parquet_and_frames(tmp_path):
  objects, path = [{"reply": "a", "label": 1}, {"reply": "b", "label": 0}], tmp_path / "x.parquet"
  for row in (
    {"candidates": objects},
    {"candidates": ["a", "b"], "labels": [1, 0]},
    {"positive": ["a"], "negative": ["b"]},
    {"positive": ["a"], "negative_1": "b"},
  ):
    frame = pandas.DataFrame([{"ask": "q", "team": 7, **row}])
    frame.to_parquet(path)
    lines = written(tmp_path, frame.to_json(orient="records", lines=True), "x.jsonl")
    for source in (path, pandas.read_parquet(path), frame, lines):
      found = content(source, columns="question=ask,candidate=reply")
      assert found == [("q", "a", 1, 7), ("q", "b", 0, 7)], (source, row)
    assert form_of(path) == form_of(lines) == LABELLED


def test_columns_by_common_names(tmp_path):
  for header in (
    "query,answer,relevance",
    "Question Text,Text,Is_Correct",
    "qid,query,docno,passage,label",
  ):
    row = ["x"] * header.count(",") + ["0"]
    (question,) = read_labelled(written(tmp_path, f"{header}\n{','.join(row)}\n", "faq.csv"))
    candidate = question.candidates[0]
    assert (question.text, candidate.text, candidate.label) == ("x", "x", 0)


def test_columns_by_mapping_and_the_others(tmp_path):
  text = "ask,reply,good,question,rank,score\nwhy,so,yes,no,3,.5\n"
  path = written(tmp_path, text, "faq.csv")
  columns = "question=ask,candidate=reply,label=good"
  own = read(path, labelled=True, columns=columns)
  assert own.questions[0].text == "why" and own.questions[0].candidates[0].label == 1
  mapping = {"question": "ask", "candidate": "reply", "label": "good"}
  assert own == read(path, labelled=True, columns=mapping)
  (row,) = rows(own)
  assert (row["question"], row["input_question"], row["label"]) == ("why", "no", 1)
  (row,) = rows(read(path, labelled=False, columns=columns), ("rank", "score"))
  assert (row["input_rank"], row["input_score"], row["good"]) == ("3", ".5", "yes")


def test_a_named_column_groups_questions(tmp_path):
  text = "question,candidate,label,article\nwhy,so,1,ice\nwho,he,0,ice\nwhy,no,0,ice\nhow,by,1,\n"
  path = written(tmp_path, text, "faq.csv")
  own = read(path, labelled=True, columns="group=article")
  assert [question.group for question in own.questions] == ["ice", "ice", ""]
  assert groups_of(own.questions) == [0, 0, 1]
  assert [row["article"] for row in rows(own)] == ["ice", "ice", "ice", ""]
  frame = pandas.read_csv(path).replace({"ice": 7})  # of a number and a missing one
  numbered = read(frame, labelled=True, columns="group=article").questions
  assert [question.group for question in numbered] == ["7", "7", ""]
  plain = read(path, labelled=True).questions
  assert groups_of(plain) is None and fingerprint(plain) == fingerprint(own.questions)
  path.write_text(text.replace("no,0,ice", "no,0,snow"))
  with pytest.raises(InputError, match=r"faq.csv:4: group is 'snow' here and 'ice' on line 2"):
    read(path, labelled=True, columns="group=article")


def test_words_for_labels(tmp_path):
  words = {
    1: (1, "1", 1.0, "1.0", True, "yes", "Yes", "TRUE", "true "),
    0: (0, "0", 0.0, False, "no", "FALSE"),
  }
  for label, spelt in words.items():
    lines = [{"question": "q", "candidate": str(i), "label": word} for i, word in enumerate(spelt)]
    (question,) = read_labelled(written(tmp_path, json_lines(*lines), "faq.jsonl"))
    assert {c.label for c in question.candidates} == {label}


def test_a_quotation_mark_of_a_plain_file_is_a_character(tmp_path, caplog):
  lines = ["question\tcandidate", 'who\t"Ann, he said', 'who\tshe said."', 'who\t5" long']
  path = written(tmp_path, "\n".join(lines) + "\n", "faq.tsv")
  assert [c.text for c in read(path, labelled=False).questions[0].candidates] == [
    x[4:] for x in lines[1:]
  ]
  assert not tables.is_quoted("\n".join(lines[:3]) + "\n")  # might be one cell of two lines
  with caplog.at_level(logging.WARNING):
    assert not tables.is_quoted('question\tcandidate\nwho\t"Ann"\nwho\tBen\n')
  assert "quotation marks are taken as part of the text" in caplog.text


def test_odd_rows_are_named_together_or_dropped(tmp_path, caplog):
  """The first ten faults with their lines, how many there are of each kind, one switch for all."""
  odd = ["q,a,1", "q,,0", "q,a,yes", ",b,0", "q,a,0", "r,c,0", "q,d,maybe", "q,e"]
  lines = ["question,answer,label", *odd, *(f"s,{i},2" for i in range(8)), ",,"]
  path = written(tmp_path, "\n".join([*lines, ""]), "faq.csv")
  said = (
    "16 rows, of these 1 with another number of cells than the header (line 9), 2 without a question or "
    "a candidate (lines 3, 5), 9 with a label other than 0 or 1, yes or no, true or false (lines 8, 10, "
    "11, 12, 13, 14, 15, 16, 17), 1 repeating a candidate of their question (line 4), 1 repeating one "
    "with another label (line 6)"
  )
  with pytest.raises(InputError) as error:
    read_labelled(path)
  first, _, rest = str(error.value).partition(
    "; line 8: label is 'maybe'; line 9: 2 columns in 'q, e'"
  )
  assert first == f"{path}:3: there is no candidate; line 5: there is no question"
  assert rest.endswith(
    f"; line 15: label is '2'; 2 more. {said}; mend the file, or leave them out: drop=True"
  )
  with caplog.at_level(logging.WARNING):
    first, second = read(path, labelled=True, drop=True).questions
  assert said in caplog.text and "left out" in caplog.text
  assert [(c.text, c.label) for c in first.candidates] == [("a", 1), ("a", 0)]
  assert second.text == "r"


def test_wikiqa_files_are_read_as_such(tmp_path, caplog):
  path = written(tmp_path, WIKIQA, "mine.tsv")
  whole = read_labelled(path)
  row = lambda i, text, label: f"Q1\twhat is ice?\tD1\tIce\tD1-{i}\t{text}\t{label}\n"
  more = row(2, "It is cold .", 0) + row(3, "Frozen water .", 0)
  path.write_text(WIKIQA + more)
  own = read(path, labelled=True, drop=True)
  assert [c.id for c in own.questions[0].candidates] == ["D1-0", "D1-1", "D1-3"]
  assert own.questions[0].candidates[1].next == "It is cold ."  # its neighbour in the document
  assert own.others["Q1", "D1-1"] == {"DocumentID": "D1"}
  assert (own.problems.repeated, own.problems.contradictory) == ([4], [5])
  assert "repeating one with another label (line 5)" in caplog.text
  frame = pandas.read_csv(io.StringIO(WIKIQA), sep="\t")
  for name, form in (("x.csv", {}), ("x.tsv", {"sep": "\t", "quoting": csv.QUOTE_ALL})):
    assert read_labelled(written(tmp_path, frame.to_csv(index=False, **form), name)) == whole
  path.write_text(WIKIQA.replace("\t1\n", "\t\n") + more)
  labels = {c.label for q in read(path, labelled=False).questions for c in q.candidates}
  assert labels == {UNKNOWN} and read(path, labelled=True, drop=True).problems.wrong


GOOD = {"question": "q", "candidate": "c", "label": 1}
NESTED = {"question": "q", "candidates": [{"candidate": "c", "label": 1}]}
HEADER = "question\tcandidate\tlabel\n"
NAMED = "question=ask,candidate=reply,"


def objects(*records) -> tuple[str, str]:
  lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
  return "mine.jsonl", "".join(line + "\n" for line in lines)


def table(text: str, header=HEADER) -> tuple[str, str]:
  return "mine.tsv", header + text


REFUSED = [  # (name, content), where, words, what else `read` is given
  (table("q\tc\t1\nq\td\n"), ":3", "2 columns in 'q, d'; expected 3", {}),
  (table("q\tc\tmaybe\nq\td\t1\nq\te\t\n"), ":2", "label is 'maybe'; line 4: label is ''. 3 rows, of these 2 with a label other than 0 or 1, yes or no, true or false (lines 2, 4); mend the file, or leave them out: drop=True", {}),
  (table("q\t \t1\n"), ":2", "there is no candidate. 1 rows, of these 1 without a question or a candidate (line 2); mend", {}),
  (table(""), ":1", "no row holds a question and a candidate", {}),
  (table("q\tc\tx\nq\td\ty\nr\te\ty\n", "question\tcandidate\tgood\n"), ":1", "'good' has two values, x and y: if they tell right answers from wrong ones, columns={\"label\": \"good\"}; if every answer is right, columns={\"label\": \"\"}", {}),
  (objects({"question": "q", "candidates": ["c", "d"]}), "", "no column label", {}),
  (objects(*({"question": "q", "candidate": c, "good": int(c == "a")} for c in "abc")), "", "'good' has two values, 0 and 1", {}),
  (table("q\tc\t1\n", "question\tcandidate\tlable\n"), ":1", "did you mean 'lable'? name it: columns={\"label\": \"lable\"}", {}),
  (objects(GOOD, "{question: 1}", "[1, 2]"), ":2", "line 3: '[1, 2]' is not a JSON object", {}),
  (objects('{"question": "q", "question": "r", "candidate": "c"}'), ":1", "a field occurs twice", {}),
  (objects({"candidate": "c", "label": 1}), "", "no column question (there are 'candidate, label')", {}),
  (objects({"question": "q", "sentence": "s", "answer": "t", "label": 1}), "", "`sentence` and `answer` may both be the candidate; keep one, or name it: columns={\"candidate\": ", {}),
  (objects(GOOD | {"candidate": ["a", "b"]}), ":1", "the field candidate is '[\"a\", \"b\"]'; expected a text", {}),
  (objects({"question": "q", "answer": "a", "negatives": 3}), ":1", "the field negative is '3'; expected a text", {}),
  (objects({"question": "q", "answer": "a", "negatives": [{"text": "b"}]}), ":1", "the field negative is", {}),
  (objects(GOOD | {"candidate": "\ud800"}), ":1", "surrogate", {}),
  (objects(GOOD | {"question_id": 1.5}), ":1", "the field question_id is '1.5'; expected a text", {}),
  (objects(GOOD | {"label": 2}, GOOD | {"label": -1}), ":1", "label is '2'", {}),
  (objects(GOOD | {"label": -1}), ":1", "label is '-1'", {}),
  (objects({"question": "q", "candidates": {"a": 1}}), ":1", "candidates is \"{'a': 1}\"; expected a list", {}),
  (objects({"question": "q", "candidates": ["a", "b"], "labels": [1]}), ":1", "1 labels for 2 candidates", {}),
  (("mine.csv.zst", b"\x28\xb5\x2f\xfd\x04"), " is packed by Zstandard", "unpack it, or pack it by gzip", {}),
  (objects(GOOD | {"question_id": "a b"}), ":1", "question_id is 'a b'", {}),
  (objects(GOOD, GOOD | {"question_id": "a"}), ":1", "question_id is ''; give one on all lines or none", {}),
  (objects(GOOD | {"candidate_id": "a"}, GOOD), ":2", "candidate_id is ''; give one on all lines", {}),
  (objects(GOOD | {"candidate_id": "a"}, GOOD | {"candidate_id": "a"}), ":2", "occurs twice", {}),
  (objects(GOOD | {"question_id": "a"}, {**GOOD, "question": "r", "question_id": "a"}), ":2", "on line 1", {}),
  (objects(NESTED | {"question_id": "a"}, GOOD | {"question_id": "a"}), ":2", "question_id 'a' was already that of an earlier line", {}),
  (objects({"question": "q", "candidate": "d"}, GOOD), ":1", "label is 'None'", {"labelled": None}),
  (objects({"ask": "q", "reply": "c", "good": 1}), "", "no column 'context', which was named for title; there are", {"columns": NAMED + "label=good,title=context"}),
  (("mine.csv", "ask,reply,good\nq,c,1\n,,\nq,d,0\n"), ":3", "3 rows, of these 1 without", {"columns": NAMED + "label=good"}),
  (("mine.json", json.dumps([GOOD])), ":1", "is not a JSON object: write one object a line", {}),
  (("mine.csv", 'question,answer,label\nq,"a,1\n'), ":2", "close each quotation mark", {}),
  (("mine.jsonl", json.dumps(GOOD).encode() + b'\n{"question": "caf\xe9"}\n'), ":2", "byte 0xe9 at position 18", {}),
  (("mine.jsonl", b""), " is empty", "get the file again", {}),
  (("mine.tsv", HEADER.encode("utf-16") + b"q"), ":1", "is not UTF-8; convert the file", {}),
  (("mine.parquet", "question,answer\n"), " cannot be read as Parquet", "get the file again", {}),
  (("mine.csv", "ask,reply\n"), "columns {", "'quest' with 'ask' is no FIELD=COLUMN; did you mean 'question'", {"columns": {"quest": "ask"}}),
  (("mine.csv", "ask,reply\n"), "columns '", "the column ask is given twice", {"columns": "question=ask,candidate=ask"}),
  (("mine.csv", "ask,reply\n"), "columns '", "given twice", {"columns": "question=ask,question=reply"}),
]  # fmt: skip


@pytest.mark.parametrize("file, where, words, how", REFUSED)
def test_refused(tmp_path, file, where, words, how):
  path = written(tmp_path, *reversed(file))
  with pytest.raises(InputError) as error:
    read(path, **({"labelled": True} | how))
  message = str(error.value)
  assert message.startswith(where if where[:1] in "c-" and where else f"{path}{where}")
  assert words in message


def test_what_cannot_be_written_is_said_before(tmp_path, monkeypatch):
  (tmp_path / "folder.csv").mkdir()
  (tmp_path / "file").write_text("")
  for target, words in (
    ("x.xml", "ends in .jsonl"),
    (str(tmp_path / "folder.csv"), "name a file"),
    (str(tmp_path / "file" / "x.csv"), "name a file"),
    ("/proc/as2jax/x.csv", "cannot be written"),
  ):
    with pytest.raises(InputError, match=words):
      tables.check_target(target)
  (tmp_path / "y.parquet").mkdir()
  with pytest.raises(InputError, match="y.parquet cannot be written"):
    tables.write(str(tmp_path / "y.parquet"), ROWS)
  assert not list(tmp_path.glob(".*"))  # no unfinished file
  with pytest.raises(InputError, match="is the file that is read: name another"):
    tables.check_target(f"{tmp_path}/./x.csv", source=str(written(tmp_path, "", "x.csv")))
  monkeypatch.setitem(sys.modules, "pyarrow", None)
  for act in (read_labelled, tables.check_target):
    with pytest.raises(InputError, match=r"Parquet needs pyarrow.*pip install 'as2jax\[parquet\]'"):
      act(str(tmp_path / "x.parquet"))


def test_damaged_text_of_a_parquet_file_is_one_error(tmp_path):
  path = tmp_path / "x.parquet"
  records = [{"question": "who sat", "candidate": f"the cat {i}", "label": 1} for i in range(9)]
  plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
  parquet.write_table(pyarrow.Table.from_pylist(records), path, **plain, write_page_checksum=True)
  assert len(read_labelled(path)[0].candidates) == 9
  path.write_bytes(path.read_bytes().replace(b"the cat 3", b"the cut 3"))
  with pytest.raises(InputError, match="x.parquet cannot be read"):
    read_labelled(path)


def test_columns_of_any_values_are_written(tmp_path):
  columns = {"a": [{}, None], "b": [[], [{}]], "c": [2**70, 1], "d": [1, "a"], "e": [1, None]}
  expected = [
    {"a": "{}", "b": "[]", "c": str(2**70), "d": "1", "e": 1},
    {"a": None, "b": "[{}]", "c": "1", "d": "a", "e": None},
  ]
  table_rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
  tables.write(str(tmp_path / "x.parquet"), table_rows)
  assert parquet.read_table(tmp_path / "x.parquet").to_pylist() == expected
  tables.write(str(tmp_path / "x.csv"), table_rows)
  with (tmp_path / "x.csv").open(newline="") as file:
    for row, wanted in zip(csv.DictReader(file), expected, strict=True):
      assert row == {name: "" if x is None else str(x) for name, x in wanted.items()}


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
ODD = st.text("a\"',;\t\r\n ", min_size=1, max_size=6)


@given(texts=st.lists(st.one_of(TEXT, ODD).filter(str.strip), min_size=2, max_size=6, unique=True))
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_what_is_written_is_read_again(tmp_path, suffix, texts):
  question, *candidates = texts
  expected = [(question, text, i % 2, text[::-1]) for i, text in enumerate(candidates)]
  names = ("question", "candidate", "label", "team")
  path = tmp_path / f"mine{suffix}"
  tables.write(str(path), [dict(zip(names, row)) for row in expected])
  assert content(path) == expected


@given(drawn=st.data(), delimiter=st.sampled_from(",;\t"))
def test_damage_is_an_error_with_its_place_or_what_csv_reads(tmp_path, drawn, delimiter):
  data = damaged(drawn.draw, cells(delimiter).encode(), (b'"', b"\n", delimiter.encode()))
  path = written(tmp_path, data, "mine.csv")
  try:
    own = read(path, labelled=True)
  except InputError as error:
    assert has_place(error, path)
    return
  theirs = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter)
  records = [record for record in theirs if any(cell.strip() for cell in record)]
  assert sum(len(q.candidates) for q in own.questions) == len(records) - 1
  texts = {cell for record in records[1:] for cell in record}
  assert {c.text for q in own.questions for c in q.candidates} <= texts


def test_forms_are_known_by_their_columns(tmp_path, caplog):
  """Pairs, pairs with wrong answers, labelled candidates: said in one line, and before the rows are read."""
  right = lambda *texts: [(text, 1) for text in texts]
  wrong = lambda *texts: [(text, 0) for text in texts]
  two = "why;so;\nwho;he;\nwhy;thus;x\nhow;by;y\n"
  for name, text, form, expected in (
    ("faq.csv", "Question;Answer;note\n" + two, PAIRS, right("so", "thus")),
    ("faq.csv", "anchor,positive,negative\nwhy,so,no\nwho,he,\n", WITH_NEGATIVES, right("so") + wrong("no")),
    ("faq.tsv", "query\tanswer\tnegative_1\tHard Negative 2\nwhy\tso\t[7]\t[x\n", WITH_NEGATIVES, right("so") + wrong("[7]", "[x")),
    ("faq.csv", 'question,answer,negatives\nwhy,so,"[""no"", ""nor""]"\n', WITH_NEGATIVES, right("so") + wrong("no", "nor")),
    ("faq.jsonl", json_lines({"question": "why", "answer": "so", "negative": ["no", "nor"]}), WITH_NEGATIVES, right("so") + wrong("no", "nor")),
    ("faq.jsonl", json_lines(PAIR, {"question": "why", "answer": "so", "negative": "no"}), WITH_NEGATIVES, right("she")),
    ("faq.csv", "\nquestion,answer\nwhy,so\n", PAIRS, right("so")),
    ("faq.csv", "question,answer,negative,label\nwhy,so,no,1\nwhy,no,,0\n", LABELLED, right("so") + wrong("no")),
  ):  # fmt: skip
    path = written(tmp_path, text, name)
    columns = "label=" * (form == PAIRS)  # `note` has two values
    caplog.clear()
    with caplog.at_level(logging.INFO):
      own = read(path, labelled=True, columns=columns)
    assert [(c.text, c.label) for c in own.questions[0].candidates] == expected, text
    assert own.form == form == form_of(path, columns)
    assert f"{path}: {form}, " in caplog.text
  frame = pandas.DataFrame({"question": ["why"], "answer": ["so"], "negatives": [["no"]]})
  assert read(frame, labelled=True).form == WITH_NEGATIVES
  assert form_of(tmp_path / "absent.csv") == LABELLED
  broken = (
    b"question,answer\nwhy,\xff\n"  # below the header, which tells the form: the reader says so
  )
  assert form_of(written(tmp_path, broken, "faq.csv")) == PAIRS
  unlabelled = written(tmp_path, "question,answer\nwhy,so\n", "faq.csv")
  assert read(unlabelled, labelled=None).form == ""


PAIR, AGAIN = {"question": "who", "answer": "she"}, {"question": "who", "answer": "you"}
READ = [("who", "she", 1), ("who", "you", 0)]
NO_YES = ["no it", "yes it"]
# Name on the hub, names of the classes of its label, rows of a split as the hub has them, as they are read.
OF_HUB = [
  ("lucadiliello/news_as2", (), [PAIR | {"label": 1}, AGAIN | {"label": 0}], READ),  # and trivia_as2 …
  ("asnq", ("neg", "pos"),
   [{"question": "who", "sentence": text, "label": label, "sentence_in_long_answer": True,
     "short_answer_in_sentence": bool(label)} for _, text, label in READ], READ),
  ("own/asnq_original", (),
   [{"question": "who", "sentence": f"s{n}", "label": n} for n in (1, 4, 3, 2)],
   [("who", f"s{n}", int(n == 4)) for n in (1, 4, 3, 2)]),
  ("nyu-mll/glue", ("entailment", "not_entailment"),
   [{"question": "who", "sentence": text, "label": 1 - label} for _, text, label in READ], READ),
  ("microsoft/ms_marco", (),
   [{"query": "is it", "query_id": 7, "answers": ["yes"],
     "passages": {"is_selected": [0, 1], "passage_text": NO_YES, "url": ["u", "v"]}}],
   [("is it", "no it", 0), ("is it", "yes it", 1)]),
  ("mteb/rerank", (), [{"query": "who", "positive": ["she"], "negative": ["you"]}], READ),
  ("sentence-transformers/pairs", (), [PAIR], [("who", "she", 1)]),
  ("rag", (), [PAIR | {"label": 1, "passages": []}, AGAIN | {"label": 0, "passages": ["a", "b"]}], READ),
]  # fmt: skip


class Streamed(list):
  """The rows of a split as `datasets` streams them, with what its card states of it."""

  def __init__(self, rows, names=(), stated=None):
    super().__init__(rows)
    self.features = {"label": SimpleNamespace(names=names)} if names else {}
    counts = SimpleNamespace(num_examples=stated)
    self.info = SimpleNamespace(splits={"validation": counts} if stated else None)


@pytest.fixture
def hub(monkeypatch):
  """hub(loaded) puts a stand-in of the package `datasets` in place; `loaded` is what it opens."""
  tables._hub_streams.cache_clear()
  yield lambda loaded: monkeypatch.setitem(
    sys.modules,
    "datasets",
    SimpleNamespace(
      __version__="4.0.0",
      disable_progress_bars=lambda: None,
      load_dataset=lambda *_, streaming: loaded[_],
    ),
  )
  tables._hub_streams.cache_clear()


@pytest.mark.parametrize("name, classes, records, expected", OF_HUB)
def test_data_sets_of_the_hub(hub, name, classes, records, expected):
  splits = {split: Streamed(records, classes, 0) for split in ("train", "validation")}
  hub({(name, config): splits for config in (None, "v2.1")})
  for address in (f"hub:{name}:dev", f"hub:{name}:validation", f"hub:{name}:v2.1:dev"):
    assert by_address(address).pairs() == expected
  both = by_address(f"hub:{name}:train+dev")
  assert list(both.splits) == ["train", "dev"] and both.reported == ("train+dev",)
  whole = dataset(f"hub:{name}")
  assert list(whole.splits) == ["train", "dev"] and whole.name == f"hub-{name.split('/')[-1]}"
  labelled = "label" in records[0] or "positive" in records[0] or "passages" in records[0]
  assert form_of(f"hub:{name}") == (LABELLED if labelled else PAIRS)


def test_the_package_of_the_hub_gives_the_same(tmp_path):
  """`datasets` itself, which opens a folder of files as it opens a name of the hub."""
  library = pytest.importorskip("datasets", reason="datasets is not installed")
  for name, classes, records, expected in OF_HUB:
    stored = library.Dataset.from_list(records)
    if classes:
      stored = stored.cast_column("label", library.ClassLabel(names=list(classes)))
    folder = tmp_path / name.replace("/", "-")
    folder.mkdir()
    stored.to_parquet(folder / "validation.parquet")
    assert dataset(f"hub:{folder}").pairs() == expected
  with pytest.raises(InputError, match="'v9' not found.*: check the name and its config"):
    dataset(f"hub:{folder}:v9:dev")


def test_a_data_set_of_the_hub_is_checked_and_its_refusals_say_the_way_out(hub, caplog):
  class Unreachable(dict):
    def __missing__(self, key):
      raise ConnectionError(f"Couldn't reach {key[0]!r} on the Hub")

  rows = [PAIR | {"label": 1}, AGAIN | {"label": 0}]
  two = {"train": Streamed(rows), "validation": Streamed(rows, stated=2)}
  graded = {"test": Streamed([PAIR | {"label": 3}])}
  cut = {"validation": Streamed(rows, stated=3)}
  hub(Unreachable({("a", None): two, ("graded", None): graded, ("cut", None): cut}))
  caplog.set_level(logging.INFO)
  assert len(read("hub:a:dev", labelled=True).questions) == 1
  assert "hub:a:dev: 2 rows, as its card states" in caplog.messages
  assert documents.read("hub:a:dev") == (None, ["she", "you"])
  section = base.get_config().data
  for how in ({"name": "hub:a"}, {"name": "files", "train": "hub:a", "dev": "hub:a"}):
    section.update(how)  # each of the files in its own split
    assert dict(load(section).splits) == dict.fromkeys(("train", "dev"), read_labelled("hub:a:dev"))
  for address, words in (
    ("hub:a", "hub:a: its splits are train, validation: name one, hub:a:train"),
    ("hub:a:test", "its splits are train, validation"),
    ("hub:cut:dev", "hub:cut:dev: 2 rows came, and its card states 3: try again, or copy"),
    ("hub:graded", "hub:graded: row 0: label is '3'"),
    ("hub:gone/away:dev", "hub:gone/away cannot be opened (Couldn't reach 'gone/away' on the Hub)"),
    ("hub:a:b:c:d", "write hub:NAME, hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT"),
  ):
    with pytest.raises(InputError) as error:
      read(address, labelled=True)
    assert words in str(error.value), address
  sys.modules["datasets"].__version__ = "3.6.0"  # would run scripts of data sets
  with pytest.raises(InputError, match=r"hub:b needs datasets from 4.0 on"):
    read("hub:b:test", labelled=True)
  sys.modules["datasets"] = None
  with pytest.raises(InputError, match=r"hub:b needs datasets .*pip install 'as2jax\[hub\]'"):
    read("hub:b:test", labelled=True)
