"""YahooCQA (Tay et al. 2017): a manner question, its best answer and four sampled negatives."""

from collections.abc import Iterator

from etils import epath

from as2jax.data.lines import Lines, quoted
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts, Spec

COLUMNS = ["question", "answer", "label"]
BLOCK = 5  # rows: one positive, four negatives


def iterate_yahoo(path: epath.PathLike) -> Iterator[Question]:
  """Yield the questions of a tab-separated file of (question, answer, label), header or not.

  Each five rows are a question: its best answer (label 1) and four negatives (0), in any order.
  The same text may be asked in two blocks: they are two questions. Ids are q1, q2 … and q1-0 ….

  Raises InputError: anything else, also a last block of fewer rows; names file, line and value.
  """
  lines = Lines(path)
  block: list[list[str]] = []
  count = 0
  for number, line in lines.filled():
    cells = line.split("\t")
    if number == 1 and [cell.strip().lower() for cell in cells] == COLUMNS:
      continue
    if len(cells) != len(COLUMNS) or not all(map(str.strip, cells)) or cells[2] not in ("0", "1"):
      raise lines.error(f"{quoted(line)} is not {', '.join(COLUMNS)} (0 or 1), with tabs between")
    block.append(cells)
    if cells[0] != block[0][0]:
      raise lines.error(
        f"row {len(block)} of {BLOCK} of a question reads {quoted(cells[0])}, but the first "
        f"{quoted(block[0][0])}; the {BLOCK} rows of a question stand together"
      )
    if len(block) < BLOCK:
      continue
    count += 1
    candidates = []
    for i, (_, text, label) in enumerate(block):
      candidates.append(Candidate(f"q{count}-{i}", text, int(label)))
    question = Question(f"q{count}", block[0][0], tuple(candidates))
    if len(question.positives) != 1:
      raise lines.error(f"the last {BLOCK} rows have {len(question.positives)} labels 1, not one")
    yield question
    block = []
  if block or not count:
    raise lines.error(
      f"the last question has {len(block)} rows of {BLOCK}: the file is cut off; get it again"
    )


# Pairs of each split: a right one and four others a question.
PAIRS = {"train": 253440, "dev": 31680, "test": 31680}

# CETE's Table 2 gives these pairs; it counts distinct question texts (50,112, 6,289 and 6,283), of
# which there are fewer than blocks.
YAHOOCQA = Spec(
  name="yahoocqa",
  reader=iterate_yahoo,
  version="1.0.0",
  files={split: (f"{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("yahoocqa",),
  clean="answerable",
  published={s: {"all": Counts(n // BLOCK, n, n // BLOCK)} for s, n in PAIRS.items()},
  citation="Tay, Phan, Luu and Hui: Learning to Rank Question Answer Pairs with Holographic Dual "
  "LSTM Architecture (SIGIR 2017), from Yahoo! Answers Manner Questions",
)

SPECS = (YAHOOCQA,)
