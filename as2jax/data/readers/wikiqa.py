"""WikiQA (Yang et al. 2015) in the format in which it is distributed."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from etils import epath

from as2jax.data.lines import Lines, check_id, quoted
from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.data.source import Counts, Spec

HEADER = (
  "QuestionID",
  "Question",
  "DocumentID",
  "DocumentTitle",
  "SentenceID",
  "Sentence",
  "Label",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
  """One line of the file: a sentence of a document, judged for a question."""

  question_id: str
  question: str
  document: str
  title: str
  id: str
  place: int  # of the sentence in its document
  text: str
  label: int
  line: int


def read_wikiqa(path: epath.PathLike, *, labelled: bool = True) -> tuple[Question, ...]:
  """Reads one of WikiQA's TSV files: header, then a judged sentence a line, 7 columns.

  The format is plain: UTF-8, tabs, LF or CR LF, and a quotation mark is a character like any
  other. The rows of a question stand together. The sentence before (after) a sentence is that of
  the row above (below) where both are of one question and document and their numbers (`D1-3`) are
  consecutive.

  Args:
    path: the file.
    labelled: False ignores the column Label: every label is `UNKNOWN`.

  Raises:
    InputError: anything but such a file; names file, line and value.

  """
  return tuple(iterate_wikiqa(path, labelled=labelled))


def iterate_wikiqa(path: epath.PathLike, *, labelled: bool = True) -> Iterator[Question]:
  """As `read_wikiqa`, one question at a time: memory does not grow with the file."""
  lines = Lines(path)
  rows: dict[str, Row] = {}  # of one question, by sentence id
  first_line: dict[str, int] = {}  # of each question
  current = None
  for number, line in lines:
    if number == 1:
      _check_header(line, lines)
      continue
    row = _row(line, lines, labelled)
    if row.question_id != current:
      if rows:
        yield _question(tuple(rows.values()))
      rows, current = {}, row.question_id
      if current in first_line:
        raise lines.error(
          f"question {quoted(current)}, which began on line {first_line[current]}, goes on here "
          "after another question; put the rows of a question together"
        )
      first_line[current] = number
    _check_belongs(row, rows, lines)
    rows[row.id] = row
  if not rows:
    raise lines.error("nothing follows the header; get the file again")
  yield _question(tuple(rows.values()))


def _check_header(line: str, lines: Lines) -> None:
  if tuple(line.split("\t")) != HEADER:
    raise lines.error(
      f"the header is {quoted(line, 120)}; expected the columns {', '.join(HEADER)}, separated by "
      "tabs"
    )


def _row(line: str, lines: Lines, labelled: bool) -> Row:
  cells = line.split("\t")
  if len(cells) != len(HEADER):
    raise lines.error(
      f"{len(cells)} columns in {quoted(line)}; expected {len(HEADER)}: {', '.join(HEADER)}"
    )
  for name, cell in zip(HEADER, cells):
    if not cell.strip() and (labelled or name != "Label"):
      raise lines.error(f"the column {name} is empty; give it a value or remove the line")
  question_id, question, document, title, sentence_id, text, label = cells
  place = sentence_id.removeprefix(document + "-")
  if place == sentence_id or not (place.isascii() and place.isdecimal()):
    raise lines.error(
      f"SentenceID is {quoted(sentence_id)}; expected the document and the sentence's number, "
      f"such as {quoted(document + '-0')}"
    )
  check_id(question_id, "QuestionID", lines)
  check_id(sentence_id, "SentenceID", lines)
  if labelled and label not in ("0", "1"):
    raise lines.error(f"Label is {quoted(label)}; expected 0 or 1")
  value = int(label) if labelled else UNKNOWN
  return Row(
    question_id, question, document, title, sentence_id, int(place), text, value, lines.number
  )


def _check_belongs(row: Row, rows: Mapping[str, Row], lines: Lines) -> None:
  first = next(iter(rows.values()), row)
  if row.question != first.question:
    raise lines.error(
      f"question {quoted(row.question_id)} reads {quoted(row.question)} here and "
      f"{quoted(first.question)} on line {first.line}; give each question its own id"
    )
  if row.id in rows:
    raise lines.error(
      f"SentenceID {quoted(row.id)} of question {quoted(row.question_id)} was already on line "
      f"{rows[row.id].line}; give each sentence its own id"
    )


def _question(rows: Sequence[Row]) -> Question:
  candidates = [Candidate(row.id, row.text, row.label, title=row.title) for row in rows]
  for i, (row, after) in enumerate(pairwise(rows)):
    if row.document == after.document and row.place + 1 == after.place:
      candidates[i] = dataclasses.replace(candidates[i], next=after.text, next_label=after.label)
      candidates[i + 1] = dataclasses.replace(
        candidates[i + 1], previous=row.text, previous_label=row.label
      )
  return Question(rows[0].question_id, rows[0].question, tuple(candidates))


WIKIQA = Spec(
  name="wikiqa",
  reader=iterate_wikiqa,
  version="1.0.0",
  files={split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("wikiqa", "", "WikiQACorpus", "wikiqa/WikiQACorpus"),
  clean="answerable",
  official="both",  # what its filtered reference files hold
  published={
    "train": {
      "all": Counts(2118, 20360, 1040),
      "answerable": Counts(873, 8672),
      "both": Counts(857, 8651),
    },
    "dev": {
      "all": Counts(296, 2733, 140),
      "answerable": Counts(126, 1130),
      "both": Counts(122, 1126),
    },
    "test": {
      "all": Counts(633, 6165, 293),
      "answerable": Counts(243, 2351),
      "both": Counts(237, 2341),
    },
  },
  url=(
    "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/"
    "WikiQACorpus.zip"
  ),
  sha256={
    "WikiQA-train.tsv": "295757943bc4df27f09763fc73b9f63063b13a577718b17805cbc9bb436f9dbe",
    "WikiQA-dev.tsv": "023c530e742caca2a760d48bd249e13259248c11f3b880a4c1842aa259a30a54",
    "WikiQA-test.tsv": "3c3b66966cb183b71abf19510bc2302295c68dd7a25284ec9cf8b63d5b6929e3",
  },
  licence="Microsoft Research Data License Agreement, for research (in the public archive)",
  citation="Yang, Yih and Meek: WikiQA: A Challenge Dataset for Open-Domain Question Answering "
  "(EMNLP 2015)",
)

SAMPLE = Spec(
  name="sample",
  reader=iterate_wikiqa,
  version="1.0.0",
  files={split: (f"sample-{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("data/readers/sample",),
  clean="answerable",
  published={},
  embedded=True,
  licence="Apache-2.0 (the licence of as2jax)",
  citation="written by this project",
)

SPECS = (WIKIQA, SAMPLE)
