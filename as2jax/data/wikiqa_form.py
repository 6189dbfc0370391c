"""WikiQA's form (Yang et al. 2015): a table of judged sentences, in the order of their documents."""

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import pairwise

from etils import epath

from as2jax.data.lines import Lines, check_id, quoted
from as2jax.data.record import UNKNOWN, Candidate, Question

HEADER = (
  "QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label",
)  # fmt: skip


def read_wikiqa(path: epath.PathLike, *, labelled: bool = True) -> tuple[Question, ...]:
  """Read one of WikiQA's TSV files: header, then a judged sentence a line, 7 columns.

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
  """Yield what `read_wikiqa` gives, one question at a time: memory does not grow with the file."""
  lines = Lines(path)
  rows: dict[str, dict[str, str]] = {}  # of one question, by sentence id
  first_line: dict[str, int] = {}  # of each question
  for number, line in lines:
    cells = line.split("\t")
    if number == 1:
      if tuple(cells) != HEADER:
        raise lines.error(
          f"the header is {quoted(line, 120)}; expected the columns {', '.join(HEADER)}, separated by "
          "tabs"
        )
      continue
    row = _row(cells, lines, labelled)
    name, sentence = row["QuestionID"], row["SentenceID"]
    first = next(iter(rows.values()), row)
    if rows and name != first["QuestionID"]:
      yield _question(rows, labelled)
      rows, first = {}, row
    if not rows and name in first_line:
      raise lines.error(
        f"question {quoted(name)}, which began on line {first_line[name]}, goes on here after another "
        "question; put the rows of a question together"
      )
    first_line.setdefault(name, number)
    if row["Question"] != first["Question"]:
      raise lines.error(
        f"question {quoted(name)} reads {quoted(row['Question'])} here and "
        f"{quoted(first['Question'])} on line {first_line[name]}; give each question its own id"
      )
    if sentence in rows:
      raise lines.error(
        f"SentenceID {quoted(sentence)} of question {quoted(name)} was already on line "
        f"{rows[sentence]['line']}; give each sentence its own id"
      )
    rows[sentence] = row | {"line": str(number)}
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
  document, _, place = row["SentenceID"].rpartition("-")
  if document != row["DocumentID"] or not (place.isascii() and place.isdecimal()):
    raise lines.error(
      f"SentenceID is {quoted(row['SentenceID'])}; expected the document and the sentence's number, "
      f"such as {quoted(row['DocumentID'] + '-0')}"
    )
  check_id(row["QuestionID"], "QuestionID", lines)
  check_id(row["SentenceID"], "SentenceID", lines)
  if labelled and row["Label"] not in ("0", "1"):
    raise lines.error(f"Label is {quoted(row['Label'])}; expected 0 or 1")
  return row


def _place(row: Mapping[str, str]) -> int:
  """Return the number of a sentence in its document."""
  return int(row["SentenceID"].rpartition("-")[2])


def _question(rows: Mapping[str, Mapping[str, str]], labelled: bool) -> Question:
  candidates = []
  for row in rows.values():
    label = int(row["Label"]) if labelled else UNKNOWN
    title = row["DocumentTitle"]
    candidates.append(Candidate(row["SentenceID"], row["Sentence"], label, title=title))
  for i, (row, after) in enumerate(pairwise(rows.values())):
    if row["DocumentID"] == after["DocumentID"] and _place(row) + 1 == _place(after):
      one, two = candidates[i : i + 2]
      candidates[i] = dataclasses.replace(one, next=two.text, next_label=two.label)
      candidates[i + 1] = dataclasses.replace(two, previous=one.text, previous_label=one.label)
  first = next(iter(rows.values()))
  return Question(first["QuestionID"], first["Question"], tuple(candidates))
