"""WikiQA's form (Yang et al. 2015): a table of judged sentences, in the order of their documents."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from etils import epath

from as2jax.data.lines import Lines, check_id, quoted
from as2jax.data.record import UNKNOWN, Candidate, Question

HEADER = (
  "QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label",
)  # fmt: skip


def read_wikiqa(path: epath.PathLike, *, labelled: bool = True) -> tuple[Question, ...]:
  """Read one of WikiQA's TSV files at once; see `iterate_wikiqa`."""
  return tuple(iterate_wikiqa(path, labelled=labelled))


def iterate_wikiqa(path: epath.PathLike, *, labelled: bool = True) -> Iterator[Question]:
  """Yield the questions of a TSV file of WikiQA: header, then a judged sentence a line, 7 columns.

  The format is plain: UTF-8, tabs, LF or CR LF, and a quotation mark is a character like any
  other. The rows of a question stand together. The sentence before (after) a sentence is that of
  the row above (below) where both are of one question and document and their numbers (`D1-3`) are
  consecutive.

  Args:
    path: the file.
    labelled: False ignores the column Label: every label is `UNKNOWN`.

  Raises InputError: anything but such a file; names file, line and value.

  """
  lines = Lines(path)
  rows: dict[str, dict[str, str]] = {}  # of one question, by sentence id
  first_line: dict[str, int] = {}  # of each question
  for number, line in lines:
    cells = line.split("\t")
    if number == 1:
      if tuple(cells) != HEADER:
        expected = f"expected the columns {', '.join(HEADER)}, separated by tabs"
        raise lines.error(f"the header is {quoted(line, 120)}; {expected}")
      continue
    row = _row(cells, lines, labelled)
    name, sentence = row["QuestionID"], row["SentenceID"]
    first = next(iter(rows.values()), row)
    if name != first["QuestionID"]:
      yield _question(rows, labelled)
      rows, first = {}, row
    began = first_line.setdefault(name, number)
    problem = ""
    if not rows and began != number:
      problem = f"began on line {began}; put the rows of a question together"
    elif row["Question"] != first["Question"]:
      problem = f"reads {quoted(first['Question'])} on line {began}; give each question its own id"
    elif sentence in rows:
      problem = f"has the SentenceID {quoted(sentence)} twice; give each sentence its own id"
    if problem:
      raise lines.error(f"question {quoted(name)} {problem}")
    rows[sentence] = row
  if not rows:
    raise lines.error("nothing follows the header; get the file again")
  yield _question(rows, labelled)


def _row(cells: list[str], lines: Lines, labelled: bool) -> dict[str, str]:
  """Check the cells of a line: all filled, ids that a run file can hold, a label of 0 or 1."""
  if len(cells) != len(HEADER):
    shown = quoted("\t".join(cells))
    raise lines.error(
      f"{len(cells)} columns in {shown}; expected {len(HEADER)}: {', '.join(HEADER)}"
    )
  row = dict(zip(HEADER, cells))
  for name, cell in row.items():
    if not cell.strip() and (labelled or name != "Label"):
      raise lines.error(f"the column {name} is empty; give it a value or remove the line")
  if not re.fullmatch(re.escape(row["DocumentID"]) + "-[0-9]+", row["SentenceID"]):
    raise lines.error(
      f"SentenceID is {quoted(row['SentenceID'])}; expected the document and the sentence's number, "
      f"such as {quoted(row['DocumentID'] + '-0')}"
    )
  check_id(row["QuestionID"], "QuestionID", lines)
  check_id(row["SentenceID"], "SentenceID", lines)
  if labelled and row["Label"] not in ("0", "1"):
    raise lines.error(f"Label is {quoted(row['Label'])}; expected 0 or 1")
  return row


def _question(rows: Mapping[str, Mapping[str, str]], labelled: bool) -> Question:
  candidates = []
  for sentence, row in rows.items():
    label = int(row["Label"]) if labelled else UNKNOWN
    candidates.append(Candidate(sentence, row["Sentence"], label, title=row["DocumentTitle"]))
  for i, (id, after) in enumerate(pairwise(rows)):
    document, _, place = id.rpartition("-")
    if after.rpartition("-")[0] == document and int(after.rpartition("-")[2]) == int(place) + 1:
      one, two = candidates[i : i + 2]
      candidates[i] = dataclasses.replace(one, next=two.text, next_label=two.label)
      candidates[i + 1] = dataclasses.replace(two, previous=one.text, previous_label=one.label)
  first = next(iter(rows.values()))
  return Question(first["QuestionID"], first["Question"], tuple(candidates))
