"""ASNQ and ASNQ with context, in files too large for memory; and WDRASS.

ASNQ (Garg, Vu and Moschitti 2020, TANDA): a line is `question <tab> sentence <tab> class`, without a
header. Class 4: the sentence is in the long answer and holds the short answer (positive); 3: in the
long answer, without the short one; 2: holds the short answer, outside the long one; 1: neither. A
quotation mark is a character like any other. A file with a header may add `previous`, `next` and
`title` (names of ours).

The edition with context (Lauriola and Moschitti 2021) is CSV under a header: question, answer (or
sentence, or candidate) and label (1: answers, 0: does not), and where there are any previous, next (or
successive) and title; `UNUSED` are allowed and not used. The files of WDRASS (Zhang et al. 2022) were
not available; they are read as users' tables.
"""

import dataclasses
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from etils import epath

from as2jax.data import user_files
from as2jax.data.lines import Lines, csv_records, quoted
from as2jax.data.record import CONTEXT, Candidate, Question, label_of
from as2jax.data.source import Counts, Spec
from as2jax.data.statistics import short_hash
from as2jax.runtime.files import write_whole

log = logging.getLogger(__name__)

COLUMNS = ("question", "sentence", "label")
UNUSED = ("question_id", "candidate_id", "document", "doc_id", "url")
ALIASES = {"candidate": "sentence", "answer": "sentence", "successive": "next"}
CLASSES, POSITIVE = ("1", "2", "3", "4"), 4
PASS_ROWS = 1_000_000  # that are held at once of a file whose questions' rows stand apart, about


class Row(NamedTuple):
  """One judged sentence of a file; `label` as the file has it, "" for absent context."""

  question: str
  text: str
  label: int
  previous: str = ""
  next: str = ""
  title: str = ""


def grouped(rows: Callable[[], Iterable[Row]], name: str) -> Iterator[list[Row]]:
  """Yield the rows of each question (by its text), in the order in which questions are first seen.

  `rows` returns a new iterator at each call. Where each question's rows stand together, they are read
  twice and passed on as they come; otherwise they are read once for each `PASS_ROWS` of them. Memory
  holds a hash of each question.
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
  log.info("%s: rows of a question stand apart: the file is read several times", name)
  size = max(len(ranks) * PASS_ROWS // count, 1)
  for first in range(0, len(ranks), size):
    groups: dict[str, list[Row]] = {}
    for row in rows():
      if first <= ranks[short_hash(row.question)] < first + size:
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
  return Question(id, rows[0].question, tuple(candidates), rows[0].title)


def iterate_asnq(path: epath.PathLike, *, judged: bool = False) -> Iterator[Question]:
  """Yield the questions of a file of ASNQ, or (`judged`) of CSV with labels 0 and 1.

  Questions have no ids: they are `q1`, `q2` … in the order of first sight (by text), their
  candidates `q1-0`, `q1-1` … in the order of the file. Raises InputError for anything but such a file.
  """
  rows = functools.partial(iterate_rows, path, judged=judged)
  positive = 1 if judged else POSITIVE
  for number, group in enumerate(grouped(rows, str(path)), 1):
    yield make_question(f"q{number}", group, positive=positive)


def iterate_rows(path: epath.PathLike, *, judged: bool = False) -> Iterator[Row]:
  """Yield the rows of a file of ASNQ, or (`judged`) of CSV with labels 0 or 1."""
  lines = Lines(path, ends=judged)
  labels = ("0", "1") if judged else CLASSES
  if judged:
    records = csv_records((line for _, line in lines), ",", lines.error)
  else:
    records = ((number, line.split("\t")) for number, line in lines.filled())
  names: Sequence[str] = COLUMNS
  count = 0
  for number, cells in records:
    if number == 1 and (judged or "label" in cells):
      names = _fields(cells, lines)
      continue
    count += 1
    shown = quoted(", ".join(cells))
    if len(cells) != len(names):
      expected = f"expected {len(names)}: {', '.join(names)}"
      raise lines.error(f"{len(cells)} columns in {shown}; {expected}")
    row = dict(zip(names, cells))
    if not row["question"].strip() or not row["sentence"].strip() or row["label"] not in labels:
      expected = f"expected a question, a sentence and a label of {', '.join(labels)}"
      raise lines.error(f"the line is {shown}; {expected}")
    around = [row.get(name, "") for name in CONTEXT]
    yield Row(row["question"], row["sentence"], int(row["label"]), *around)
  if not count:
    raise lines.error("nothing follows the header; get the file again")


def _fields(cells: Sequence[str], lines: Lines) -> list[str]:
  """Return the fields of a header, which must be known, differ, and include `COLUMNS`."""
  names = [ALIASES.get(cell, cell) for cell in cells]
  known = {*COLUMNS, *CONTEXT, *UNUSED}
  if not set(COLUMNS) <= set(names) <= known or len(set(names)) < len(names):
    raise lines.error(
      f"the fields are {quoted(', '.join(cells), 120)}; expected {', '.join(COLUMNS)} and perhaps "
      f"{', '.join((*CONTEXT, *UNUSED))}"
    )
  return names


def write_asnq(path: epath.PathLike, rows: Iterable[Row]) -> int:
  """Write rows (with classes as labels) under a header, the whole file or none; returns how many.

  Tabs and line breaks in texts become spaces.
  """
  lines = ["\t".join((*COLUMNS, *CONTEXT))]
  for row in rows:
    cells = row.question, row.text, str(row.label), row.previous, row.next, row.title
    lines.append("\t".join(" ".join(cell.split()) for cell in cells))
  write_whole(path, "\n".join(lines) + "\n")
  return len(lines) - 1


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
  reader=functools.partial(iterate_asnq, judged=True),
  files={split: (f"asnq-{split}.csv",) for split in ("train", "dev")},
  published={},
  url="",
  licence="",
  citation="Lauriola and Moschitti: Answer Sentence Selection Using Local and Global Context in "
  "Transformer Models (ECIR 2021)",
)

WDRASS = Spec(
  name="wdrass",
  reader=user_files.read_published,
  version="1.0.0",
  files={split: (f"{split}.jsonl",) for split in ("train", "dev", "test")},
  folders=("wdrass", "WDRASS"),
  clean="answerable",
  published={},
  citation="Zhang, Vu, Gandhi, Chadha and Moschitti: WDRASS: A Web-scale Dataset for Document "
  "Retrieval and Answer Sentence Selection (CIKM 2022)",
)

SPECS = (ASNQ, ASNQ_CONTEXT, WDRASS)
