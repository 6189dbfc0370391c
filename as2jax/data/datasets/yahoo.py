"""YahooCQA (Tay et al. 2017): a manner question, its best answer and four sampled negatives.

Reads the files of such triples. `yahoo_raw` makes them from the raw Yahoo! Answers files.
"""

import dataclasses
from collections.abc import Iterable, Iterator

from etils import epath

from as2jax.data.datasets.files_on_disk import Counts, Spec
from as2jax.data.lines import Lines, quoted
from as2jax.data.record import Candidate, Question
from as2jax.runtime.files import write_whole

COLUMNS = ("question", "answer", "label")
BLOCK = 5  # rows: one positive, four negatives


def read_yahoo(path: epath.PathLike) -> tuple[Question, ...]:
  """Reads (question, answer, label) rows, tab-separated, with or without a header line.

  Each five rows are a question: its best answer (label 1) and four negatives (0), in any order.
  The same text may be asked in two blocks: they are two questions. Ids are q1, q2 … and q1-0 ….

  Raises:
    InputError: anything else, also a last block of fewer rows; names file, line and value.

  """
  return tuple(iterate_yahoo(path))


def iterate_yahoo(path: epath.PathLike) -> Iterator[Question]:
  """As `read_yahoo`, one question at a time: memory does not grow with the file."""
  lines = Lines(path)
  block: list[tuple[str, str, int]] = []
  number = 0
  for row in _rows(lines):
    if block and row[0] != block[0][0]:
      raise lines.error(
        f"row {len(block) + 1} of {BLOCK} of a question reads {quoted(row[0])}, but the one before "
        f"{quoted(block[0][0])}; the {BLOCK} rows of a question stand together"
      )
    block.append(row)
    if len(block) == BLOCK:
      number += 1
      yield _question(block, f"q{number}", lines)
      block = []
  if block:
    raise lines.error(
      f"the last question has {len(block)} rows of {BLOCK}: the file is cut off; get it again"
    )
  if not number:
    raise lines.error("nothing follows the header; get the file again")


def _rows(lines: Lines) -> Iterator[tuple[str, str, int]]:
  for number, line in lines.filled("answer"):
    cells = line.split("\t")
    if number == 1 and tuple(cell.strip().lower() for cell in cells) == COLUMNS:
      continue
    if len(cells) != len(COLUMNS):
      raise lines.error(
        f"{len(cells)} columns in {quoted(line)}; expected {len(COLUMNS)}: "
        f"{', '.join(COLUMNS)}, with tabs between them"
      )
    for name, cell in zip(COLUMNS, cells):
      if not cell.strip():
        raise lines.error(f"the column {name} is empty; every row needs a {name}")
    if cells[2] not in ("0", "1"):
      raise lines.error(f"label is {quoted(cells[2])}; expected 0 or 1")
    yield cells[0], cells[1], int(cells[2])


def _question(block: list[tuple[str, str, int]], question_id: str, lines: Lines) -> Question:
  positives = sum(label for _, _, label in block)
  if positives != 1:
    raise lines.error(
      f"the question of the last {BLOCK} rows has {positives} answers with label 1; expected one"
    )
  candidates = tuple(
    Candidate(f"{question_id}-{i}", text, label) for i, (_, text, label) in enumerate(block)
  )
  return Question(question_id, block[0][0], candidates)


def write_yahoo(path: epath.PathLike, questions: Iterable[Question]) -> None:
  """Writes what `read_yahoo` reads, the whole file or none; texts hold no tab and no line break."""
  rows = ["\t".join(COLUMNS)]
  for question in questions:
    rows += [f"{question.text}\t{c.text}\t{c.label}" for c in question.candidates]
  write_whole(path, "".join(f"{row}\n" for row in rows))


def _blocks(pairs: int) -> dict[str, Counts]:
  return {"all": Counts(pairs // BLOCK, pairs, pairs // BLOCK)}


# CETE's Table 2 gives these pairs; it counts distinct question texts (50,112, 6,289 and 6,283), of
# which there are fewer than blocks.
YAHOOCQA = Spec(
  name="yahoocqa",
  reader=iterate_yahoo,
  version="1.0.0",
  files={split: (f"{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("yahoocqa",),
  clean="answerable",
  published={"train": _blocks(253440), "dev": _blocks(31680), "test": _blocks(31680)},
  citation="Tay, Phan, Luu and Hui: Learning to Rank Question Answer Pairs with Holographic Dual "
  "LSTM Architecture (SIGIR 2017), from Yahoo! Answers Manner Questions",
)

# What `as2jax data yahoo` writes: another sample, so that nothing is published.
YAHOOCQA_BUILT = dataclasses.replace(
  YAHOOCQA, name="yahoocqa_built", folders=("yahoocqa_built",), published={}
)

SPECS = (YAHOOCQA, YAHOOCQA_BUILT)
