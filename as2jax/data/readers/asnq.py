"""ASNQ, ASNQ with context, and WDRASS: judged sentences a line, in files too large for memory.

ASNQ (Garg, Vu and Moschitti 2020, TANDA): a line is `question <tab> sentence <tab> class`, without a
header. Class 4: the sentence is in the long answer and holds the short answer (positive); 3: in the
long answer, without the short one; 2: holds the short answer, outside the long one; 1: neither. A
quotation mark is a character like any other. A file with a header may add `previous`, `next` and
`title` (names of ours).

The edition with context (Lauriola and Moschitti 2021) and WDRASS (Zhang et al. 2022, whose files were
not available, so that its form is an assumption) are files of labelled sentences: JSON objects, or
columns under a header, separated by tabs or, in a .csv file, by commas (quotation marks quote). Fields:
question, sentence (or candidate, or answer) and label (1: answers, 0: does not), and where there are
any previous, next (or successive) and title; `UNUSED` are allowed and not used.
"""

import contextlib
import csv
import dataclasses
import functools
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging
from etils import epath

from as2jax.data.lines import LONGEST, Lines, json_objects, quoted, text_problem
from as2jax.data.record import Candidate, Question, label_of
from as2jax.data.source import Counts, Spec
from as2jax.data.statistics import short_hash

COLUMNS = ("question", "sentence", "label")
CLASSES = (1, 2, 3, 4)
POSITIVE = 4
CONTEXT = ("previous", "next", "title")  # the fields of a row that may be ""
UNUSED = ("question_id", "candidate_id", "document", "doc_id", "url")
FIELDS = (*COLUMNS, *CONTEXT, *UNUSED)
ALIASES = {"candidate": "sentence", "answer": "sentence", "successive": "next"}
BUCKET_ROWS = 200_000  # of a scattered file held at once, about; BUCKETS files at most
BUCKETS = 128


class Row(NamedTuple):
  """One judged sentence of a file; `label` as the file has it, "" for absent context."""

  line: int
  question: str
  text: str
  label: int
  previous: str = ""
  next: str = ""
  title: str = ""


def grouped(rows: Callable[[], Iterable[Row]], name: str) -> Iterator[list[Row]]:
  """Yield the rows of each question (by its text), in the order in which questions are first seen.

  The rows are read twice. Where each question's rows stand together, they are passed on as they
  come; otherwise they go through temporary files, so that memory holds a hash of each question and
  the rows of one bucket of questions.

  Args:
    rows: returns a new iterator over the rows at each call.
    name: of the file, for the log.

  """
  ranks: dict[int, int] = {}  # of the questions, by a hash of their texts
  count, current, scattered = 0, None, False
  for row in rows():
    count += 1
    if row.question != current:
      current = row.question
      key = short_hash(current)
      scattered = scattered or key in ranks
      ranks.setdefault(key, len(ranks))
  if not scattered:
    yield from together(rows())
    return
  logging.info("%s: rows of a question stand apart; they are brought together on disk", name)
  buckets = min(max(count // BUCKET_ROWS, 1), BUCKETS)
  with contextlib.ExitStack() as stack:
    files = []
    for _ in range(buckets):
      file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")
      files.append(stack.enter_context(file))
    for row in rows():
      rank = ranks[short_hash(row.question)]
      files[rank * buckets // len(ranks)].write(json.dumps(row) + "\n")
    for file in files:
      file.seek(0)
      groups: dict[str, list[Row]] = {}
      for line in file:
        row = Row(*json.loads(line))
        groups.setdefault(row.question, []).append(row)
      yield from groups.values()


def together(rows: Iterable[Row]) -> Iterator[list[Row]]:
  """Yield the runs of rows with one question."""
  group: list[Row] = []
  for row in rows:
    if group and row.question != group[0].question:
      yield group
      group = []
    group.append(row)
  if group:
    yield group


def make_question(id: str, rows: Sequence[Row], *, positive: int) -> Question:
  """Return the question of `rows`: label 1 for those with the label `positive`, 0 for others.

  A context sentence has the label of the candidate with the same text, where there is one and its
  rows agree.
  """
  labels: dict[str, set[int]] = defaultdict(set)
  for row in rows:
    labels[row.text].add(int(row.label == positive))
  candidates = []
  for i, row in enumerate(rows):
    around = label_of(labels, row.previous), label_of(labels, row.next)
    label = int(row.label == positive)
    candidates.append(
      Candidate(f"{id}-{i}", row.text, label, row.previous, row.next, *around, row.title)
    )
  return Question(id, rows[0].question, tuple(candidates))


def read_asnq(path: epath.PathLike) -> tuple[Question, ...]:
  """Read the questions of `iterate_asnq` all at once: for small files."""
  return tuple(iterate_asnq(path))


def iterate_asnq(path: epath.PathLike) -> Iterator[Question]:
  """Yield the questions of an ASNQ file, of which memory holds one at a time (see `grouped`).

  Questions have no ids: they are `q1`, `q2` … in the order of first sight (by text), their
  candidates `q1-0`, `q1-1` … in the order of the file.

  Raises:
    InputError: anything but such a file; names file, line and value.

  """
  rows = functools.partial(iterate_rows, path)
  for number, group in enumerate(grouped(rows, str(path)), 1):
    yield make_question(f"q{number}", group, positive=POSITIVE)


def iterate_rows(path: epath.PathLike) -> Iterator[Row]:
  """Yield the rows of the file; `label` is the class."""
  lines = Lines(path)
  names: Sequence[str] = COLUMNS
  count = 0
  for number, line in lines:
    cells = line.split("\t")
    if number == 1 and "label" in cells:
      names = _header(cells, lines, (*COLUMNS, *CONTEXT))
      continue
    count += 1
    yield _row(names, cells, CLASSES, lines)
  if not count:
    raise lines.error("nothing follows the header; get the file again")


def _header(cells: Sequence[str], lines: Lines, known: Sequence[str]) -> list[str]:
  """Return the fields of a header, which must be known, differ, and include `COLUMNS`."""
  names = [ALIASES.get(cell, cell) for cell in cells]
  if not set(COLUMNS) <= set(names) <= set(known) or len(set(names)) < len(names):
    raise lines.error(
      f"the header is {quoted(', '.join(cells), 120)}; expected {', '.join(COLUMNS)} and perhaps "
      f"{', '.join(known[len(COLUMNS) :])}"
    )
  return names


def _row(names: Sequence[str], cells: Sequence[Any], labels: Sequence[int], lines: Lines) -> Row:
  """Check the cells of a row; `labels` are those that its label may be."""
  if len(cells) != len(names):
    shown = quoted(", ".join(cells))
    raise lines.error(f"{len(cells)} columns in {shown}; expected {len(names)}: {', '.join(names)}")
  record = dict(zip(names, cells))
  texts = []
  for name in ("question", "sentence", *CONTEXT):
    value = record.get(name)
    if problem := text_problem(name, value):
      raise lines.error(problem)
    texts.append(value or "")
    if name in COLUMNS and not texts[-1].strip():
      raise lines.error(f"the field {name} is empty; every line needs a {name}")
  label = record.get("label")
  if type(label) not in (int, str) or str(label) not in map(str, labels):
    raise lines.error(
      f"label is {quoted(str(label))}; expected one of {', '.join(map(str, labels))}"
    )
  return Row(lines.number, *texts[:2], int(label), *texts[2:])


def write_asnq(path: epath.PathLike, rows: Iterable[Row], *, context: bool) -> int:
  """Writes rows (with classes as labels) in ASNQ's format, the whole file or none; returns how many.

  Args:
    rows: tabs and line breaks in their texts become spaces.
    context: writes a header and the columns previous, next and title too.

  """
  path = epath.Path(path)
  scratch = path.parent / f".{path.name}.{os.getpid()}"
  count = 0
  try:
    with scratch.open("wb") as file:
      if context:
        file.write(("\t".join((*COLUMNS, *CONTEXT)) + "\n").encode())
      for row in rows:
        cells = [row.question, row.text, str(row.label)]
        cells += [row.previous, row.next, row.title] if context else []
        file.write(("\t".join(" ".join(cell.split()) for cell in cells) + "\n").encode())
        count += 1
    scratch.replace(path)
  except BaseException:
    scratch.unlink(missing_ok=True)
    raise
  return count


def iterate_judged(path: epath.PathLike) -> Iterator[Question]:
  """Yield the questions of a file, of which memory holds one at a time (see `grouped`).

  Questions are told apart by their text and numbered as in `iterate_asnq`.

  Raises:
    InputError: anything but such a file; names file, line and value.

  """
  rows = functools.partial(judged_rows, path)
  for number, group in enumerate(grouped(rows, str(path)), 1):
    yield make_question(f"q{number}", group, positive=1)


def judged_rows(path: epath.PathLike) -> Iterator[Row]:
  """Yield the rows of a file of labelled sentences: JSON objects, or columns under a header."""
  path = epath.Path(path)
  is_csv = path.name.lower().removesuffix(".gz").endswith(".csv")
  lines = Lines(path, ends=is_csv)
  header: list[str] = []
  count = 0
  for cells in _comma_separated(lines) if is_csv else _lines_of_cells(lines):
    if isinstance(cells, dict):
      names = [ALIASES.get(field, field) for field in cells]
      if unknown := [name for name in names if name not in FIELDS or names.count(name) > 1]:
        problem = f"{quoted(unknown[0])} is not a known field, or is given twice"
        raise lines.error(f"{problem}; known are {', '.join((*FIELDS, *ALIASES))}")
      yield _row(names, list(cells.values()), (0, 1), lines)
    elif not header:
      header = _header(cells, lines, FIELDS)
      continue
    else:
      yield _row(header, cells, (0, 1), lines)
    count += 1
  if not count:
    raise lines.error("nothing follows the header; get the file again")


def _lines_of_cells(lines: Lines) -> Iterator[list[str] | dict]:
  """Yield the JSON object of each line, or the cells between its tabs, as the first line has it."""
  objects = False
  for number, line in lines.filled("sentence"):
    objects = objects or (number == 1 and line.lstrip().startswith("{"))
    yield next(json_objects([(number, line)], lines)) if objects else line.split("\t")


def _comma_separated(lines: Lines) -> Iterator[list[str]]:
  csv.field_size_limit(max(LONGEST, csv.field_size_limit()))
  reader = csv.reader((line for _, line in lines), strict=True)
  first = 1
  try:
    for cells in reader:
      yield cells
      first = lines.number + 1
  except csv.Error as error:
    problem = f"not a line of CSV ({error}); close quotation marks, and double those inside a cell"
    raise lines.error(problem, first) from error


ASNQ = Spec(
  name="asnq",
  reader=iterate_asnq,
  version="1.0.0",
  files={"train": ("train.tsv",), "dev": ("dev.tsv",)},
  folders=("asnq", "data/asnq", "ASNQ"),
  clean="answerable",
  # The paper's Table 1: 20,377,568 and 930,062 rows, of which 61,186 and 4,286 of class 4.
  published={
    "train": {"all": Counts(57242, 20377568, 61186)},
    "dev": {"all": Counts(2672, 930062, 4286)},
  },
  url="https://wqa-public.s3.amazonaws.com/tanda-aaai-2020/data/asnq.tar",
  max_bytes=16 << 30,
  licence="CC BY-NC-SA 3.0 (its authors' card, huggingface.co/datasets/AmazonScience/asnq)",
  citation="Garg, Vu and Moschitti: TANDA: Transfer and Adapt Pre-Trained Transformer Models for "
  "Answer Sentence Selection (AAAI 2020)",
)

# What its authors' script writes: CSV with question, answer, previous, successive, title, doc_id
# and label (1: class 4). Users make it from ASNQ and NQ themselves, so that no counts are claimed.
ASNQ_CONTEXT = dataclasses.replace(
  ASNQ,
  name="asnq_context",
  reader=iterate_judged,
  files={split: (f"asnq-{split}.csv",) for split in ("train", "dev")},
  published={},
  url="",
  licence="",
  citation="Lauriola and Moschitti: Answer Sentence Selection Using Local and Global Context in "
  "Transformer Models (ECIR 2021)",
)

WDRASS = Spec(
  name="wdrass",
  reader=iterate_judged,
  version="1.0.0",
  files={split: (f"{split}.jsonl",) for split in ("train", "dev", "test")},
  folders=("wdrass", "WDRASS"),
  clean="answerable",
  published={},
  citation="Zhang, Vu, Gandhi, Chadha and Moschitti: WDRASS: A Web-scale Dataset for Document "
  "Retrieval and Answer Sentence Selection (CIKM 2022)",
)

SPECS = (ASNQ, ASNQ_CONTEXT, WDRASS)
