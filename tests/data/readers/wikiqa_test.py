import pytest
import tiny
from file_damage import written

from as2jax.data.readers.wikiqa import read_wikiqa
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError

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


def test_reads_questions_with_context_and_title(tmp_path):
  path = written(tmp_path, "\r\n".join((HEADER, *ROWS, "")))
  first, second, third = read_wikiqa(path)
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
  for header in (HEADER.removesuffix("\tLabel"), HEADER.replace("QuestionID", "QID"), ROWS[0]):
    other = written(tmp_path, "\n".join((header, *(row[:-2] for row in ROWS))))
    with pytest.raises(
      InputError, match="expected the columns QuestionID, .*; get the official file"
    ):
      read_wikiqa(other)


@pytest.mark.parametrize("split", COUNTS)
def test_official_counts(split):
  path = tiny.real_data("wikiqa", f"WikiQA-{split}.tsv")
  questions = read_wikiqa(path)
  pairs = [candidate for question in questions for candidate in question.candidates]
  assert (len(questions), len(pairs), sum(c.label for c in pairs)) == COUNTS[split]
  assert all(c.id.startswith(f"{q.group}-") for q in questions for c in q.candidates)
  assert all(question.candidates[0].previous == "" for question in questions)
  inner = [c for question in questions for c in question.candidates[1:]]
  assert all(c.previous and c.previous_label in (0, 1) for c in inner)
