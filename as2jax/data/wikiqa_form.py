"""WikiQA's form (Yang et al. 2015): a table of judged sentences, in the order of their documents."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping

from etils import epath

from as2jax.data.lines import Lines, check_id, quoted
from as2jax.data.record import Candidate, Question

HEADER = (
  "QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label",
)  # fmt: skip


def follows(id: str, after: str) -> bool:
  """Tell by their ids (`D1-3`, `D1-4`) whether one sentence stands behind another in a document."""
  document, _, place = id.rpartition("-")
  its, _, next_place = after.rpartition("-")
  numbered = place.isdecimal() and next_place.isdecimal()
  return its == document and numbered and int(next_place) == int(place) + 1


def iterate_wikiqa(path: epath.PathLike) -> Iterator[Question]:
  """Yield the questions of a TSV file of WikiQA: header, then a judged sentence a line, 7 columns.

  The format is plain: UTF-8, tabs, LF or CR LF, and a quotation mark is a character like any
  other. The rows of a question stand together. The sentence before (after) a sentence is that of
  the row above (below) where it `follows` in its document, of the same question.

  Raises InputError: anything but such a file; names file, line and value.
  """
  lines = Lines(path)
  seen: set[str] = set()
  for name, group in itertools.groupby(_rows(lines), lambda row: row["QuestionID"]):
    rows: dict[str, dict[str, str]] = {}  # by sentence id
    for row in group:
      first = next(iter(rows.values()), row)
      problem = ""
      if name in seen:
        problem = "has rows in two places; put them together"
      elif row["Question"] != first["Question"]:
        problem = f"reads {quoted(first['Question'])} above; give each question its own id"
      elif row["SentenceID"] in rows:
        problem = f"has the SentenceID {quoted(row['SentenceID'])} twice; give each its own"
      if problem:
        raise lines.error(f"question {quoted(name)} {problem}")
      rows[row["SentenceID"]] = row
    seen.add(name)
    yield _question(rows)
  if not seen:
    raise lines.error("nothing follows the header; get the file again")


def _rows(lines: Lines) -> Iterator[dict[str, str]]:
  """Yield the lines below the header: all cells filled, ids for run files, a label of 0 or 1."""
  for number, line in lines:
    cells = line.split("\t")
    if len(cells) != len(HEADER) or (number == 1 and tuple(cells) != HEADER):
      expected = f"expected {', '.join(HEADER)}, separated by tabs"
      raise lines.error(f"{len(cells)} columns in {quoted(line, 120)}; {expected}")
    if number == 1:
      continue
    row = dict(zip(HEADER, cells))
    for name in ("Question", "DocumentTitle", "Sentence"):
      if not row[name].strip():
        raise lines.error(f"the column {name} is empty; give it a value or remove the line")
    for name in ("QuestionID", "SentenceID"):
      check_id(row[name], name, lines)
    if not re.fullmatch(re.escape(row["DocumentID"]) + "-[0-9]+", row["SentenceID"]):
      example = quoted(row["DocumentID"] + "-0")
      raise lines.error(f"SentenceID is {quoted(row['SentenceID'])}; expected such as {example}")
    if row["Label"] not in ("0", "1"):
      raise lines.error(f"Label is {quoted(row['Label'])}; expected 0 or 1")
    yield row


def _question(rows: Mapping[str, Mapping[str, str]]) -> Question:
  candidates = []
  for sentence, row in rows.items():
    label = int(row["Label"])
    candidates.append(Candidate(sentence, row["Sentence"], label, title=row["DocumentTitle"]))
  for i, (id, after) in enumerate(itertools.pairwise(rows)):
    if follows(id, after):
      one, two = candidates[i : i + 2]
      candidates[i] = dataclasses.replace(one, next=two.text, next_label=two.label)
      candidates[i + 1] = dataclasses.replace(two, previous=one.text, previous_label=one.label)
  first = next(iter(rows.values()))
  return Question(first["QuestionID"], first["Question"], tuple(candidates), first["DocumentID"])
