"""A person's table in every form in which others write it: the same rows come out."""

import csv
import gzip
import io
import json
import logging

import pytest
from file_damage import damaged, has_place
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.datasets import named, table_writer
from as2jax.data.datasets.table import is_quoted
from as2jax.data.datasets.user_files import read, read_labelled, read_unlabelled, rows
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError

ROWS = [
  {"question": 'who said "no"?', "candidate": "Ann,\nwho\tsaid so.", "label": 1, "team": "x;y"},
  {"question": 'who said "no"?', "candidate": '"Ben" did', "label": 0, "team": None},
  {"question": "why", "candidate": "so, they say", "label": 1, "team": "z"},
]
TEXT = st.text(
  st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8
).filter(str.strip)
ODD = st.text("a\"',;\t\r\n ", min_size=1, max_size=6).filter(str.strip)


def content(path):
  """(question, candidate, label, other columns) of each row of a file or frame."""
  own = read(path, labelled=True)
  return [
    (q.text, c.text, c.label, dict(own.others[q.id, c.id]))
    for q in own.questions
    for c in q.candidates
  ]


EXPECTED = [(r["question"], r["candidate"], r["label"], {"team": r["team"] or ""}) for r in ROWS]


@pytest.mark.parametrize(
  "delimiter, suffix", [(",", "csv"), (";", "csv"), ("\t", "csv"), ("\t", "tsv")]
)
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_what_csv_writes(tmp_path, delimiter, suffix, quoting, encoding):
  path = tmp_path / f"faq.{suffix}"
  with path.open("w", newline="", encoding=encoding) as file:
    writer = csv.DictWriter(file, list(ROWS[0]), delimiter=delimiter, quoting=quoting)
    writer.writeheader()
    writer.writerows(ROWS)
  assert content(path) == EXPECTED


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
  "line, delimiter", [("sep=;", ";"), ('"sep=|"', "|"), ("SEP=,", ","), ("sep=\t", "\t")]
)
def test_a_first_line_that_names_the_delimiter(tmp_path, line, delimiter, encoding):
  path = tmp_path / "faq.csv"
  with path.open("w", newline="", encoding=encoding) as file:
    file.write(line + "\r\n")
    csv.writer(file, delimiter=delimiter).writerows([list(ROWS[0]), *(r.values() for r in ROWS)])
  assert content(path) == EXPECTED
  with path.open("a", newline="", encoding=encoding.replace("utf-16", "utf-16-le")) as file:
    file.write("one cell\r\n")
  with pytest.raises(InputError, match=r"faq.csv:7: 1 columns in 'one cell'; expected 4"):
    content(path)


@pytest.mark.parametrize("name", ["faq.csv", "faq.tsv", "faq.jsonl", "faq.json", "standard input"])
@pytest.mark.parametrize("packed", [False, True])
def test_utf_16_with_its_mark(tmp_path, name, packed):
  """As Excel's "Unicode text" and PowerShell write it, in both orders of bytes."""
  delimiter = "\t" if name.endswith("tsv") else ","
  if "json" in name:
    table_writer.write(str(tmp_path / name), ROWS)
    text = (tmp_path / name).read_text()
  else:
    text = table_writer.delimited(list(ROWS[0]), ROWS, delimiter)
  for data in (text.encode("utf-16"), b"\xfe\xff" + text.encode("utf-16-be")):
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [(q, c, label) for q, c, label, _ in content(path)] == [e[:3] for e in EXPECTED]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["faq.json", "faq.json.gz", "standard input"])
def test_an_array_of_rows(tmp_path, name, indent):
  path = tmp_path / name
  text = "\n " * (name == "faq.json") + json.dumps(ROWS, indent=indent)
  path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
  assert [row[:3] for row in content(path)] == [row[:3] for row in EXPECTED]
  assert [row[3] for row in content(path)] == [{"team": row["team"]} for row in ROWS]
  nested = [{"question": "q", "candidates": ["a", {"text": "b"}]}]
  (tmp_path / "nested.json").write_text(json.dumps(nested, indent=indent))
  assert [c.text for c in read_unlabelled(tmp_path / "nested.json")[0].candidates] == ["a", "b"]


@pytest.mark.parametrize(
  "text, where, words",
  [
    ('[\n {"question": "q",\n  "answer": "a"},\n', "faq.json:3", "not a JSON array: "),
    ('[{"question": "q", "answer": "a"}', "faq.json:1", "may be cut off"),
    ('[{"question": "q"} {"question": "q"}]', "faq.json:1", "Expecting ',' delimiter"),
    ('[{"question": "q", "answer": "a"}]\n[]', "faq.json:2", "Extra data"),
    ('[{"question": "q", "answer": "a"}, "b"]', "faq.json: row 1", "is no row; write an object"),
    ('[{"question": "q", "answer": "a"}, {}]', "faq.json: row 1", "is no row"),
    ('[{"question": "q", "question": "q"}]', "faq.json", "a field occurs twice"),
    ("[" * 100_000, "faq.json", "not a JSON array"),
    ('[{"question": "q", "answer": "a"}, {"question": "q"}]', "faq.json: row 1", "candidate is"),
    ('[{"question": "q", "answer": 3}]', "faq.json: row 0", "expected a text"),
    ("[]", "faq.json", "nothing follows the header; add one candidate a line"),
  ],
)
def test_a_damaged_array_names_its_place(tmp_path, text, where, words):
  path = tmp_path / "faq.json"
  path.write_text(text)
  with pytest.raises(InputError) as error:
    read_unlabelled(path)
  assert str(error.value).startswith(f"{tmp_path}/{where}: ") and words in str(error.value)


def test_what_excel_writes_between_tabs(tmp_path):
  """It quotes cells with commas, too."""
  path = tmp_path / "faq.tsv"
  path.write_bytes(b'question\tanswer\tlabel\r\nwhy\t"so, they say"\t1\r\nwhy\tno\t0\r\n')
  assert [c.text for c in read_labelled(path)[0].candidates] == ["so, they say", "no"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_what_pandas_writes_of_a_data_set(tmp_path, suffix):
  pytest.importorskip("pandas", reason="pandas is not installed")
  frame = named.dataset("sample", "train").to_pandas()
  frame.loc[::7, "candidate"] = 'He said "' + frame.loc[::7, "candidate"] + '", twice.'
  path = tmp_path / f"sample.{suffix}"
  frame.to_csv(path, sep="\t" if suffix == "tsv" else ",", index=False)
  actual = read_labelled(path)
  assert [c.text for q in actual for c in q.candidates] == frame["candidate"].tolist()
  assert actual == read_labelled(frame)
  assert [c.label for q in actual for c in q.candidates] == frame["label"].tolist()


def test_a_quotation_mark_of_a_plain_file_is_a_character(tmp_path, caplog):
  path = tmp_path / "faq.tsv"
  lines = ["question\tcandidate", 'who\t"Ann, he said', 'who\tshe said."', 'who\t5" long']
  path.write_text("\n".join(lines) + "\n")
  assert [c.text for c in read_unlabelled(path)[0].candidates] == [x[4:] for x in lines[1:]]
  path.write_text("\n".join(lines[:3]) + "\n")  # might be one cell of two lines
  assert not is_quoted(path)
  path.write_text('question\tcandidate\nwho\t"Ann"\nwho\tBen\n')
  with caplog.at_level(logging.WARNING):
    assert not is_quoted(path)
  assert "quotation marks are taken as part of the text" in caplog.text


def test_json_is_written_as_one_array(tmp_path):
  table_writer.write(str(tmp_path / "faq.json"), ROWS)
  assert json.loads((tmp_path / "faq.json").read_text()) == ROWS


@given(texts=st.lists(st.one_of(TEXT, ODD), min_size=2, max_size=6, unique=True))
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_what_is_written_is_read_again(tmp_path, suffix, texts):
  if suffix == ".parquet":
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
  question, *candidates = texts
  records = [
    {"question": question, "candidate": text, "label": i % 2, "more": text[::-1]}
    for i, text in enumerate(candidates)
  ]
  path = tmp_path / f"mine{suffix}"
  table_writer.write(str(path), records)
  assert content(path) == [
    (question, r["candidate"], r["label"], {"more": r["more"]}) for r in records
  ]


@pytest.mark.parametrize(
  "values, texts",
  [
    ([{}, None], ["{}", None]),
    ([{"a": "é"}, {"b": 1}], ['{"a": "é"}', '{"b": 1}']),
    ([[], [{}]], ["[]", "[{}]"]),
    ([2**70, 1], [str(2**70), "1"]),
    ([1, "a"], ["1", "a"]),
    ([1, None], [1, None]),
  ],
)
def test_a_column_of_any_values_is_written_to_parquet(tmp_path, values, texts):
  pytest.importorskip("pyarrow", reason="pyarrow is not installed")
  from pyarrow import parquet

  path = tmp_path / "x.parquet"
  table_writer.write(str(path), [{"more": value} for value in values])
  assert parquet.read_table(path)["more"].to_pylist() == texts


def test_every_form_reads_alike(tmp_path):
  pandas = pytest.importorskip("pandas", reason="pandas is not installed")
  frame = pandas.DataFrame(ROWS)
  whole = read(frame, labelled=True)
  assert [(*row[:3], {"team": row[3]["team"] or ""}) for row in content(frame)] == EXPECTED
  for suffix in ("csv", "tsv", "jsonl", "parquet"):
    if suffix == "parquet":
      pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / f"mine.{suffix}"
    table_writer.write(str(path), rows(whole))
    again = read(path, labelled=None)
    assert again.questions == whole.questions and again.labelled
  frame.to_parquet(tmp_path / "theirs.parquet")
  assert read_labelled(tmp_path / "theirs.parquet") == whole.questions


@pytest.mark.parametrize("checksums, text", [(False, b"the c\xd2t 3"), (True, b"the cut 3")])
def test_damaged_text_of_a_parquet_file_is_one_error(tmp_path, checksums, text):
  """Pages without checksums are refused where they are no UTF-8, with them in any case."""
  pyarrow = pytest.importorskip("pyarrow")
  from pyarrow import parquet

  path = tmp_path / "x.parquet"
  rows = [{"question": "who sat", "candidate": f"the cat {i}", "label": i % 2} for i in range(9)]
  plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
  parquet.write_table(pyarrow.Table.from_pylist(rows), path, **plain, write_page_checksum=checksums)
  assert len(read_labelled(path)[0].candidates) == 9
  data = path.read_bytes()
  assert data.count(b"the cat 3") == 1
  path.write_bytes(data.replace(b"the cat 3", text))
  with pytest.raises(InputError, match="x.parquet cannot be read"):
    read_labelled(path)


def test_parquet_without_pyarrow_is_one_sentence(tmp_path, monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
  for act in (
    lambda: read_labelled(tmp_path / "x.parquet"),
    lambda: table_writer.check(str(tmp_path / "x.parquet")),
  ):
    with pytest.raises(InputError, match=r"Parquet needs pyarrow.*pip install 'as2jax\[parquet\]'"):
      act()


def test_a_file_that_is_no_parquet(tmp_path):
  pytest.importorskip("pyarrow", reason="pyarrow is not installed")
  (tmp_path / "x.parquet").write_text("question,answer\n")
  with pytest.raises(InputError, match="x.parquet cannot be read"):
    read_labelled(tmp_path / "x.parquet")


@pytest.mark.parametrize(
  "header",
  ["query,answer,relevance", "Question Text,Text,Is_Correct", "qid,query,docno,passage,label"],
)
def test_columns_by_common_names(tmp_path, header):
  path = tmp_path / "faq.csv"
  cells = [
    "0" if name in ("relevance", "Is_Correct", "label") else "x" for name in header.split(",")
  ]
  path.write_text(f"{header}\n{','.join(cells)}\n")
  (question,) = read_labelled(path)
  assert (question.text, question.candidates[0].text, question.candidates[0].label) == ("x", "x", 0)


def test_columns_by_mapping_and_the_others(tmp_path):
  path = tmp_path / "faq.csv"
  path.write_text("ask,reply,good,question,rank,score\nwhy,so,yes,no,3,.5\n")
  columns = "question=ask,candidate=reply,label=good"
  own = read(path, labelled=True, columns=columns)
  assert own.questions[0].text == "why" and own.questions[0].candidates[0].label == 1
  assert own == read(
    path, labelled=True, columns={"question": "ask", "candidate": "reply", "label": "good"}
  )
  (row,) = rows(own)
  assert (row["question"], row["input_question"], row["label"]) == ("why", "no", 1)
  (row,) = rows(read(path, labelled=False, columns=columns), ("rank", "score"))
  assert (row["input_rank"], row["input_score"], row["good"]) == ("3", ".5", "yes")
  for wrong, message in (
    ("question=asked", "no column 'asked', which was named for question"),
    ("quest=ask", "no field 'quest'; did you mean 'question'"),
    ("question", "no FIELD=COLUMN"),
    ("question=ask,candidate=ask", "one column stands for two"),
    ("question=ask,question=reply", "given twice"),
  ):
    with pytest.raises(InputError, match=message):
      read(path, labelled=True, columns=wrong)


@pytest.mark.parametrize(
  "words, label",
  [((1, "1", 1.0, "1.0", True, "yes", "Yes", "TRUE", "true "), 1),
   ((0, "0", 0.0, "0.0", False, "no", "No", "FALSE", "false"), 0)],
)  # fmt: skip
def test_words_for_labels(tmp_path, words, label):
  path = tmp_path / "faq.jsonl"
  lines = [{"question": "q", "candidate": str(i), "label": word} for i, word in enumerate(words)]
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  assert {c.label for c in read_labelled(path)[0].candidates} == {label}


ODD_ROWS = "question,answer,label\nq,a,1\nq,,0\nq,a,yes\n,b,0\nq,a,0\nr,c,0\n,,\n"


def test_empty_and_repeated_rows_are_named_together(tmp_path, caplog):
  path = tmp_path / "faq.csv"
  path.write_text(ODD_ROWS)
  said = (
    "6 rows, of these 2 without a question or a candidate (lines 3, 5), 1 repeating a candidate of "
    "their question (line 4), 1 repeating one with another label (line 6)"
  )
  with pytest.raises(InputError) as error:
    read_labelled(path)
  assert said in str(error.value) and "--drop" in str(error.value)
  assert str(error.value).startswith(f"{path}:3: ")
  with caplog.at_level(logging.WARNING):
    first, second = read_labelled(path, drop=True)
  assert said in caplog.text and "left out" in caplog.text
  assert [(c.text, c.label) for c in first.candidates] == [("a", 1), ("a", 0)]
  assert second.text == "r"
  own = read(path, labelled=None, lenient=True)
  assert own.problems.empty == (3, 5) and len(own.questions[0].candidates) == 3


def test_a_near_name_is_said_and_carried(tmp_path, caplog):
  path = tmp_path / "faq.csv"
  path.write_text("question,answer,previos\nq,a,b\n")
  with caplog.at_level(logging.WARNING):
    own = read(path, labelled=None)
  assert "'previos' is carried along unread; did you mean 'previous'?" in caplog.text
  assert own.questions[0].candidates[0].label == UNKNOWN and not own.labelled


def test_a_question_with_its_candidates_in_one_object(tmp_path):
  path = tmp_path / "faq.jsonl"
  objects = [
    {"query": "q", "candidates": ["a", "b"], "team": 1},
    {"query": "q", "candidates": [{"text": "c", "team": 2}]},
  ]
  path.write_text("".join(json.dumps(line) + "\n" for line in objects))
  own = read(path, labelled=False)
  assert [[c.text for c in q.candidates] for q in own.questions] == [["a", "b"], ["c"]]
  assert [row["team"] for row in rows(own)] == [1, 1, 2]


def test_standard_input_is_known_by_its_content(tmp_path):
  path = tmp_path / "standard input"
  for text in (
    "question\tanswer\nq, r; s\ta\n",
    "answer;question\na;q, r\n",
    "team,query,text\nx,q,a\n",
  ):
    path.write_text(text)
    assert read_unlabelled(path)[0].candidates[0].text == "a"
  path.write_text("q, r\ta\n")  # no header
  assert read_unlabelled(path)[0].text == "q, r"


@pytest.mark.parametrize(
  "text, line, words",
  [
    ('question,answer\nq,"a\n', 2, "a quotation mark is not closed"),
    ('question,answer\n"q"x,a\n', 2, "not a line of CSV"),
    ("question,answer\nq,a\n\n\nq,b\n", 4, "2 without a question"),
    ("question,answer\nq,a,b\n", 2, "3 columns in 'q, a, b'; expected 2"),
    ("question,text,answer\nq,a,b\n", 1, "`text` and `answer` may both be the candidate"),
    ("a,b\nq,a\n", 1, "expected a header"),
    ("question,reply\nq,a\n", 1, "no column candidate"),
    ("question,question\nq,a\n", 1, "names a column twice"),
  ],
)
def test_a_mistake_names_its_line(tmp_path, text, line, words):
  path = tmp_path / "faq.csv"
  path.write_text(text)
  with pytest.raises(InputError) as error:
    read_unlabelled(path)
  assert words in str(error.value)
  assert str(error.value).startswith(f"{path}:{line if 'without' not in words else 3}: ")


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_long_cell_is_read_and_the_limit_of_csv_is_not_lowered(tmp_path, suffix):
  path = tmp_path / f"faq.{suffix}"
  long = 'a "b", ' * 30_000 + "c"  # beyond the 131,072 characters of `csv`
  rows = [{"question": "q", "candidate": long}]
  path.write_text(table_writer.delimited(list(rows[0]), rows, "\t" if suffix == "tsv" else ","))
  before = csv.field_size_limit(131_072)
  try:
    assert read_unlabelled(path)[0].candidates[0].text == long
    csv.field_size_limit(1 << 30)
    read_unlabelled(path)
    assert csv.field_size_limit() == 1 << 30
  finally:
    csv.field_size_limit(before)


def test_what_cannot_be_written_is_said_before(tmp_path):
  (tmp_path / "folder.csv").mkdir()
  (tmp_path / "file").write_text("")
  for target, words in (
    ("x.xml", "ends in .jsonl"),
    (str(tmp_path / "folder.csv"), "name a file"),
    (str(tmp_path / "file" / "x.csv"), "name a file"),
    (str(tmp_path / "file" / "y" / "x.csv"), "cannot be written: .*Not a directory"),
    ("/proc/as2jax/x.csv", "cannot be written"),
  ):
    with pytest.raises(InputError, match=words):
      table_writer.check(target)
  actual = table_writer.delimited(["a"], [{"a": ["x"]}, {"a": None}], ",")
  assert actual.splitlines() == ["a", '"[""x""]"', ""]


def test_a_carriage_return_in_the_header_is_one_error(tmp_path):
  path = tmp_path / "mine.csv"
  path.write_bytes(b"question,candi\rdate\nwho,so\n")
  with pytest.raises(InputError, match="mine.csv:1: not a line of CSV"):
    read(path, labelled=False)


@given(drawn=st.data(), delimiter=st.sampled_from(",;\t"))
def test_damage_is_an_error_with_its_place_or_what_csv_reads(tmp_path, drawn, delimiter):
  path = tmp_path / "mine.csv"
  text = table_writer.delimited(list(ROWS[0]), ROWS, delimiter)
  path.write_bytes(damaged(drawn.draw, text.encode(), (b'"', b"\n", delimiter.encode())))
  try:
    own = read(path, labelled=True)
  except InputError as error:
    assert has_place(error, path)
    return
  lines = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
  theirs = csv.reader(lines, delimiter=delimiter)
  records = [record for record in theirs if any(cell.strip() for cell in record)]
  assert sum(len(q.candidates) for q in own.questions) == len(records) - 1
  texts = {cell for record in records[1:] for cell in record}
  assert {c.text for q in own.questions for c in q.candidates} <= texts
