import csv
import io
import json

import pytest

from as2jax.data.dataset import load
from as2jax.data.readers import asnq as grouping
from as2jax.data.readers.asnq import iterate_asnq, iterate_rows, write_asnq
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError
from tests.file_damage import check_refusals, joined, written

ROWS = (
  'who made "it" ?\tAnn made it .\t4',
  'who made "it" ?\tIt is &amp; was .\t1',
  'who made "it" ?\tAnn is tall .\t2',
  "when is the end ?\tIn May it ends .\t3",
  "when is the end ?\tIt is long .\t1",
)


def read(path, **how):
  return tuple(iterate_asnq(path, **how))


def test_class_4_alone_is_positive(tmp_path):
  first, second = read(written(tmp_path, joined(ROWS)))
  assert (first.id, first.text) == ("q1", 'who made "it" ?')
  assert [(c.id, c.text, c.label) for c in first.candidates] == [
    ("q1-0", "Ann made it .", 1),
    ("q1-1", "It is &amp; was .", 0),
    ("q1-2", "Ann is tall .", 0),
  ]
  assert [c.label for c in second.candidates] == [0, 0]


def test_context_where_the_file_has_it(tmp_path):
  header = "question\tcandidate\tlabel\tprevious\tnext\ttitle"
  rows = ["q ?\tone .\t4\t\ttwo .\tT", "q ?\ttwo .\t3\tone .\tthree .\tT"]
  (question,) = read(written(tmp_path, joined([header, *rows])))
  one, two = question.candidates
  assert (one.previous, one.next, one.title, one.next_label) == ("", "two .", "T", 0)
  assert (two.previous, two.previous_label) == ("one .", 1)
  assert (two.next, two.next_label) == ("three .", UNKNOWN)


def test_what_is_written_is_read(tmp_path):
  path, copy = written(tmp_path, joined(ROWS)), tmp_path / "copy"
  assert write_asnq(copy, iterate_rows(path)) == len(ROWS)
  assert read(copy) == read(path)
  with pytest.raises(InputError, match="a label of 1, 2, 3, 4"):
    write_asnq(copy, iterate_rows(written(tmp_path, joined([*ROWS, "q\ts\t5"]))))
  assert read(copy) == read(written(tmp_path, joined(ROWS)))


@pytest.mark.parametrize("pass_rows", [1, 2, 100])
def test_a_question_that_comes_back_is_brought_together(tmp_path, monkeypatch, pass_rows):
  monkeypatch.setattr(grouping, "PASS_ROWS", pass_rows)
  mixed = [ROWS[i] for i in (3, 0, 4, 1, 2)]
  end, it = read(written(tmp_path, joined(mixed)))
  whole_it, whole_end = read(written(tmp_path, joined(ROWS)))
  for actual, whole in ((it, whole_it), (end, whole_end)):
    assert actual.text == whole.text
    assert [(c.text, c.label) for c in actual.candidates] == [
      (c.text, c.label) for c in whole.candidates
    ]
  assert (end.id, it.id) == ("q1", "q2")  # by first sight


BROKEN = {
  "two columns": (joined([*ROWS[:2], "q ?\ts"]), 3, "2 columns in"),
  "label 0": (joined([ROWS[0], "q ?\ts .\t0"]), 2, "a label of 1, 2, 3, 4"),
  "no question": (joined([ROWS[0], " \ts .\t1"]), 2, "expected a question, a sentence"),
  "no sentence": (joined([ROWS[0], "q ?\t\t1"]), 2, "expected a question, a sentence"),
  "cut off": (joined(ROWS)[:-9], 5, "it may be cut off"),
  "header only": (joined(["question\tsentence\tlabel"]), 1, "nothing follows the header"),
  "unknown header": (joined(["question\ttext\tlabel"]), 1, "the fields are"),
  "empty": (b"", " is empty", ""),
}


JUNK, WHOLE = (), (joined(ROWS), joined(ROWS, end="\r\n"))


def check_counts(questions, data: bytes):
  lines = [line.rstrip(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
  lines = [line for line in lines if line.strip()]
  assert len(questions) == len({line.split(b"\t")[0] for line in lines})
  assert sum(len(q.candidates) for q in questions) == len(lines)
  assert sum(len(q.positives) for q in questions) == sum(line[-1:] == b"4" for line in lines)


NAMES = ("doc_id", "question", "answer", "previous", "successive", "title", "label")
CONTEXT_ROWS = (
  (7, 'who is "A, B" ?', 'One,\n"two" .', "", "Three .", "T", 1),
  (7, 'who is "A, B" ?', "Three .", 'One,\n"two" .', "", "T", 0),
  (8, "why ?", "So .", "", "", "", 0),
)


def commas(*rows) -> bytes:
  out = io.StringIO(newline="")
  csv.writer(out).writerows([NAMES, *rows])
  return out.getvalue().encode()


def test_the_edition_with_context(tmp_path):
  (tmp_path / "asnq").mkdir()
  for split in ("train", "dev"):
    (tmp_path / f"asnq/asnq-{split}.csv").write_bytes(commas(*CONTEXT_ROWS))
  data = load("asnq_context", root=str(tmp_path), cache=str(tmp_path / "cache"))
  first, second = data.splits["train"]
  one, three = first.candidates
  assert (first.text, one.text, one.label) == CONTEXT_ROWS[0][1:3] + (1,)
  assert (one.next, one.next_label, one.title) == ("Three .", 0, "T")
  assert (three.previous, three.previous_label) == (one.text, 1)
  assert (second.id, second.text, len(second.candidates)) == ("q2", "why ?", 1)


BROKEN_CSV = {
  "cut off": (commas(*CONTEXT_ROWS)[:-12], 6, "columns in"),
  "not closed": (commas(*CONTEXT_ROWS).replace(b"Three", b'"Three', 1), 2, "not a line of CSV"),
  "empty line": (commas(CONTEXT_ROWS[2]) + b"\n" + commas(), 3, "0 columns in"),
  "label": (commas(CONTEXT_ROWS[2][:6] + (2,)), 2, "a label of 0, 1"),
  "tabs": (joined(ROWS), 1, "the fields are"),
  "header only": (commas(), 1, "nothing follows the header"),
}


def test_broken_commas(tmp_path):
  check_refusals(lambda path: read(path, judged=True), tmp_path / "train.csv", BROKEN_CSV)


def test_wdrass_is_a_table(tmp_path):
  (tmp_path / "wdrass").mkdir()
  row = {"question": "who ?", "sentence": "Ann .", "label": 1, "next": "Ben .", "url": "http://x"}
  for split in ("train", "dev", "test"):
    (tmp_path / f"wdrass/{split}.jsonl").write_text(json.dumps(row) + "\n")
  data = load("wdrass", root=str(tmp_path), cache=str(tmp_path / "cache"))
  (question,) = data.splits["dev"]
  (candidate,) = question.candidates
  assert (question.id, candidate.id, candidate.next) == ("q1", "q1-0", "Ben .")
