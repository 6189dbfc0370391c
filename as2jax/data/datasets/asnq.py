"""ASNQ (Garg, Vu and Moschitti 2020, TANDA): Natural Questions as answer sentence selection.

A line is `question <tab> sentence <tab> class`, without a header. Class 4: the sentence is in the
long answer and holds the short answer (positive); 3: in the long answer, without the short one; 2:
holds the short answer, outside the long one; 1: neither. A quotation mark is a character like any
other. A file with a header may add `previous`, `next` and `title` (names of ours); the edition with
context that is made from Natural Questions (Lauriola and Moschitti 2021) is `asnq_context`.
"""

import dataclasses
import functools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from etils import epath

from as2jax.data.datasets.files_on_disk import Counts, Spec
from as2jax.data.datasets.grouping import CONTEXT, Row, grouped, make_question
from as2jax.data.datasets.labelled_lines import iterate_judged
from as2jax.data.lines import Lines, quoted
from as2jax.data.record import Question
from as2jax.runtime.errors import InputError

COLUMNS = ("question", "sentence", "label")
CLASSES = (1, 2, 3, 4)
POSITIVE = 4


def read_asnq(path: epath.PathLike, *, classes: Collection[int] = CLASSES) -> tuple[Question, ...]:
  """As `iterate_asnq`, all at once: for small files."""
  return tuple(iterate_asnq(path, classes=classes))


def iterate_asnq(path: epath.PathLike, *, classes: Collection[int] = CLASSES) -> Iterator[Question]:
  """The questions of an ASNQ file, of which memory holds one at a time (see `grouping.grouped`).

  Questions have no ids: they are `q1`, `q2` … in the order of first sight (by text), their
  candidates `q1-0`, `q1-1` … in the order of the file.

  Args:
    path: the file; one line is one judged sentence.
    classes: the rows to keep; a question of which none is left is left out.

  Raises:
    InputError: anything but such a file; names file, line and value.

  """
  if not set(classes) <= set(CLASSES):
    raise InputError(f"classes = {tuple(classes)}: ASNQ has the classes 1, 2, 3 and 4")
  rows = functools.partial(iterate_rows, path)
  for number, group in enumerate(grouped(rows, str(path)), 1):
    kept = [row for row in group if row.label in classes]
    if kept:
      yield make_question(f"q{number}", kept, positive=POSITIVE)


def iterate_rows(path: epath.PathLike) -> Iterator[Row]:
  """The rows of the file; `label` is the class."""
  lines = Lines(path)
  names: Sequence[str] = COLUMNS
  seen = False
  for number, line in lines:
    cells = line.split("\t")
    if number == 1 and "label" in cells:
      names = _header(cells, lines)
      continue
    seen = True
    yield _row(cells, names, line, lines)
  if not seen:
    raise lines.error("nothing follows the header; get the file again")


def _header(cells: Sequence[str], lines: Lines) -> Sequence[str]:
  names = ["sentence" if cell == "candidate" else cell for cell in cells]
  if set(COLUMNS) - set(names) or set(names) - {*COLUMNS, *CONTEXT} or len(names) > len(set(names)):
    raise lines.error(
      f"the header is {quoted(', '.join(cells), 120)}; expected {', '.join(COLUMNS)} and perhaps "
      f"{', '.join(CONTEXT)}, separated by tabs"
    )
  return names


def _row(cells: Sequence[str], names: Sequence[str], line: str, lines: Lines) -> Row:
  if len(cells) != len(names):
    raise lines.error(
      f"{len(cells)} columns in {quoted(line)}; expected {len(names)}: {', '.join(names)}"
    )
  values = dict(zip(names, cells))
  for name in ("question", "sentence"):
    if not values[name].strip():
      raise lines.error(f"the column {name} is empty; give it a value or remove the line")
  if values["label"] not in ("1", "2", "3", "4"):
    raise lines.error(f"the label is {quoted(values['label'])}; expected 1, 2, 3 or 4 (4: answers)")
  context = (values.get(name, "") for name in CONTEXT)
  return Row(lines.number, values["question"], values["sentence"], int(values["label"]), *context)


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

SPECS = (ASNQ, ASNQ_CONTEXT)
