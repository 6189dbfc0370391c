import pytest
import tiny
from file_damage import written

from as2jax.data.record import UNKNOWN
from as2jax.data.wikiqa_form import iterate_wikiqa

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
ROWS = (
  'Q1\thow is "ice" made?\tD1\tIce\tD1-0\tIce is "frozen water .\t0',
  'Q1\thow is "ice" made?\tD1\tIce\tD1-1\tIt forms below 0 °C .\t1',
  'Q1\thow is "ice" made?\tD1\tIce\tD1-3\tGlaciers hold much of it .\t0',
  "Q2\twho sells ice?\tD2\tIce trade\tD2-0\tMerchants did .\t1",
  "Q2\twho sells ice?\tD2\tIce trade\tD2-1\tMerchants did .\t0",
  "Q2\twho sells ice?\tD3\tTudor\tD3-2\tTudor shipped it .\t0",
  "Q7\twhere is ice?\tD1\tIce\tD1-1\tIt forms below 0 °C .\t0",
)
COUNTS = {"train": (2118, 20360, 1040), "dev": (296, 2733, 140), "test": (633, 6165, 293)}


def content(rows=ROWS, end="\r\n") -> bytes:
  return "".join(line + end for line in (HEADER, *rows)).encode()


def read(path):
  return tuple(iterate_wikiqa(path))


def test_reads_questions_with_context_and_title(tmp_path):
  first, second, third = read(written(tmp_path, content()))
  assert (first.id, first.text) == ("Q1", 'how is "ice" made?')
  assert [c.id for c in first.candidates] == ["D1-0", "D1-1", "D1-3"]
  assert [c.label for c in first.candidates] == [0, 1, 0]
  assert first.candidates[0].text == 'Ice is "frozen water .'
  top, middle, after_gap = first.candidates
  assert (top.previous, top.previous_label) == ("", UNKNOWN)
  assert (top.next, top.next_label) == (middle.text, 1)
  assert (middle.previous, middle.previous_label) == (top.text, 0)
  assert (middle.next, middle.next_label) == ("", UNKNOWN)  # D1-2 is not there
  assert (after_gap.previous, after_gap.title) == ("", "Ice")
  a, b, other_document = second.candidates
  assert (a.next, b.previous) == (b.text, a.text)  # the same text twice is kept
  assert (b.next, other_document.previous, other_document.title) == ("", "", "Tudor")
  assert third.candidates[0].previous == ""  # no neighbour of another question


def replaced(number, old, new):
  rows = list(ROWS)
  assert old in rows[number]
  rows[number] = rows[number].replace(old, new)
  return content(rows)


BROKEN = {
  "too few columns": (replaced(2, "D1\tIce\t", "D1\t"), 4, "6 columns"),
  "label": (replaced(3, "\t1", "\t2"), 5, "Label is '2'; expected 0 or 1"),
  "no label": (replaced(3, ".\t1", ".\t"), 5, "Label is ''"),
  "no sentence": (replaced(3, "Merchants did .", " "), 5, "Sentence is empty"),
  "sentence id twice": (replaced(4, "D2-1", "D2-0"), 6, "SentenceID 'D2-0' twice"),
  "sentence id without number": (replaced(4, "D2-1", "D2-x"), 6, "SentenceID is 'D2-x'"),
  "white space in an id": (replaced(6, "Q7", "Q 7"), 8, "QuestionID is 'Q 7'"),
  "two questions under one id": (replaced(5, "who", "whoever"), 7, "reads 'who sells ice?' above"),
  "question goes on later": (content([*ROWS, ROWS[2]]), 9, "has rows in two places"),
  "not UTF-8": (content().replace("°".encode(), b"\xb0"), 3, "byte 0xb0 at position"),
  "no header": (content()[len(HEADER) + 2 :], 1, "expected QuestionID, Question"),
  "header only": (content([]), 1, "nothing follows the header"),
  "cut before the label": (content()[:-3], 8, "it may be cut off"),
}


JUNK, WHOLE = (), (content(), content(end="\n"))


def check_counts(questions, data: bytes):
  lines = [line.rstrip(b"\r") for line in data.removesuffix(b"\n").split(b"\n")[1:]]
  assert len(questions) == len({line.split(b"\t")[0] for line in lines})
  assert sum(len(question.candidates) for question in questions) == len(lines)
  assert sum(len(q.positives) for q in questions) == sum(line[-1:] == b"1" for line in lines)


@pytest.mark.parametrize("split", COUNTS)
def test_official_counts(split):
  path = tiny.real_data("wikiqa", f"WikiQA-{split}.tsv")
  questions = read(path)
  pairs = [candidate for question in questions for candidate in question.candidates]
  assert (len(questions), len(pairs), sum(c.label for c in pairs)) == COUNTS[split]
  assert all(c.id.startswith(f"{q.group}-") for q in questions for c in q.candidates)
  assert all(question.candidates[0].previous == "" for question in questions)
  inner = [c for question in questions for c in question.candidates[1:]]
  assert all(c.previous and c.previous_label in (0, 1) for c in inner)
