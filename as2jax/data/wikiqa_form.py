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
  first_line: dict[str, int] = {}  # of each question and sentence id
  current = None
  for number, line in lines:
    cells = line.split("\t")
    if number == 1 and tuple(cells) != HEADER:
      columns = ", ".join(HEADER)
      raise lines.error(
        f"the header is {quoted(line, 120)}; expected the columns {columns}, separated by tabs"
      )
    if number == 1:
      continue
    row = _row(cells, lines, labelled)
    name = row["QuestionID"]
    if name != current:
      if rows:
        yield _question(rows, labelled)
      if name in first_line:
        raise lines.error(
          f"question {quoted(name)}, which began on line {first_line[name]}, goes on here "
          "after another question; put the rows of a question together"
        )
      rows, current, first_line[name] = {}, name, number
    first = next(iter(rows.values()), row)
    if row["Question"] != first["Question"]:
      raise lines.error(
        f"question {quoted(name)} reads {quoted(row['Question'])} here and "
        f"{quoted(first['Question'])} on line {first_line[name]}; give each question its own id"
      )
    if row["SentenceID"] in rows:
      raise lines.error(
        f"SentenceID {quoted(row['SentenceID'])} of question {quoted(name)} was already on line "
        f"{rows[row['SentenceID']]['line']}; give each sentence its own id"
      )
    rows[row["SentenceID"]] = row | {"line": str(number)}
  if not rows:
    raise lines.error("nothing follows the header; get the file again")
  yield _question(rows, labelled)


def _row(cells: list[str], lines: Lines, labelled: bool) -> dict[str, str]:
  if len(cells) != len(HEADER):
    shown = quoted("\t".join(cells))
    raise lines.error(
      f"{len(cells)} columns in {shown}; expected {len(HEADER)}: {', '.join(HEADER)}"
    )
  row = dict(zip(HEADER, cells))
  for name, cell in row.items():
    if not cell.strip() and (labelled or name != "Label"):
      raise lines.error(f"the column {name} is empty; give it a value or remove the line")
  document, place = row["DocumentID"], _place(row)
  if not row["SentenceID"].startswith(f"{document}-") or not (
    place.isascii() and place.isdecimal()
  ):
    raise lines.error(
      f"SentenceID is {quoted(row['SentenceID'])}; expected the document and the sentence's number, "
      f"such as {quoted(document + '-0')}"
    )
  for name in ("QuestionID", "SentenceID"):
    check_id(row[name], name, lines)
  if labelled and row["Label"] not in ("0", "1"):
    raise lines.error(f"Label is {quoted(row['Label'])}; expected 0 or 1")
  return row


def _place(row: Mapping[str, str]) -> str:
  """Return the number of a sentence in its document, as written."""
  return row["SentenceID"].removeprefix(row["DocumentID"] + "-")


def _question(rows: Mapping[str, Mapping[str, str]], labelled: bool) -> Question:
  candidates = []
  for row in rows.values():
    label = int(row["Label"]) if labelled else UNKNOWN
    title = row["DocumentTitle"]
    candidates.append(Candidate(row["SentenceID"], row["Sentence"], label, title=title))
  for i, (row, after) in enumerate(pairwise(rows.values())):
    if row["DocumentID"] == after["DocumentID"] and int(_place(row)) + 1 == int(_place(after)):
      one, two = candidates[i : i + 2]
      candidates[i] = dataclasses.replace(one, next=two.text, next_label=two.label)
      candidates[i + 1] = dataclasses.replace(two, previous=one.text, previous_label=one.label)
  first = next(iter(rows.values()))
  return Question(first["QuestionID"], first["Question"], tuple(candidates))
