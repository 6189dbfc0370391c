"""TrecQA (Wang et al. 2007), as the jacana release (Yao et al. 2013) and TANDA (Garg et al. 2020) have it."""

import dataclasses
import re
from collections.abc import Iterator

from absl import logging
from etils import epath

from as2jax.data import user_files
from as2jax.data.lines import Lines, check_id, quoted
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts, Spec

START = re.compile(r"<QApairs id='([^']*)'>")
END = "</QApairs>"
LABELS = {"positive": 1, "negative": 0}
BLOCKS = ("question", *LABELS)
OPENING = {f"<{kind}>": kind for kind in BLOCKS}
CLOSING = {f"</{kind}>": kind for kind in BLOCKS}
TAB = "\t"
ANSWER = 2  # lines under those of a positive's words: the answer's words and their places


@dataclasses.dataclass(slots=True)
class Block:
  """The lines between <kind> and </kind>."""

  kind: str
  line: int
  lines: list[str] = dataclasses.field(default_factory=list)

  @property
  def text(self) -> str:
    """Return the tokens with a space between them."""
    return " ".join(self.lines[0].split()) if self.lines else ""


def iterate_trecqa(path: epath.PathLike, *, skipped: list[int] | None = None) -> Iterator[Question]:
  """Yield the questions of a file of the jacana release: TRAIN, TRAIN-ALL, DEV or TEST.

  It looks like XML and is none: `&` and `<` stand for themselves. A block holds one line of tokens
  (tab-separated, in the Penn Treebank's spelling: see the rule `ptb`) and below it as many lines of
  annotation as there are, a column a token; a positive may have two more, the answer. The text is
  the tokens joined by spaces. Questions without candidates are kept. A candidate's id is the
  question's with its place in the file. gzip files are unpacked.

  A candidate without text is skipped, with a warning: in the public TRAIN-ALL, answers longer
  than 60 tokens lost theirs.

  Args:
    path: the file.
    skipped: takes the lines at which the skipped candidates begin.

  Raises:
    InputError: anything but such a file; names file and line.

  """
  lines = Lines(path)
  skipped = [] if skipped is None else skipped
  first_line: dict[str, int] = {}  # of each question
  shape = Shape(lines)
  content = iter(lines)
  for number, line in content:
    if not line.strip():
      continue
    start = START.fullmatch(line.strip())
    if not start:
      raise lines.error(f"{quoted(line)} where a question should begin; expected <QApairs id='1'>")
    question_id = start[1]
    check_id(question_id, "the id of <QApairs>", lines)
    if question_id in first_line:
      raise lines.error(
        f"question {quoted(question_id)} was already on line "
        f"{first_line[question_id]}; give each question its own id"
      )
    first_line[question_id] = number
    yield _question(question_id, _blocks(content, lines, number), shape, lines, skipped)
  if not first_line:
    raise lines.error("the file holds no <QApairs>; get the file again")
  if skipped:
    logging.warning(
      "%s: skipped %d candidates without text (the first on line %d); in the public "
      "TRAIN-ALL, answers longer than 60 tokens lost their text",
      path,
      len(skipped),
      skipped[0],
    )


def _blocks(content: Iterator[tuple[int, str]], lines: Lines, start: int) -> Iterator[Block]:
  """Yield the blocks up to </QApairs>."""
  block = None
  for number, line in content:
    mark = line.strip()
    if block is not None:
      if CLOSING.get(mark) == block.kind:
        yield block
        block = None
      elif mark in OPENING or mark in CLOSING or mark == END or START.fullmatch(mark):
        raise lines.error(
          f"{mark} inside the <{block.kind}> of line {block.line}, which has no end; add "
          f"</{block.kind}>"
        )
      else:
        block.lines.append(line)
    elif mark == END:
      return
    elif mark in OPENING:
      block = Block(OPENING[mark], number)
    elif mark:
      raise lines.error(
        f"{quoted(line)} stands outside any block; expected <question>, "
        "<positive>, <negative> or </QApairs>"
      )
  raise lines.error(f"the file ends inside the <QApairs> of line {start}; get it again")


class Shape:
  """How many lines the blocks of a file have: all alike, so that two merged ones show."""

  def __init__(self, lines: Lines):
    self._lines = lines
    self._first: dict[str, tuple[int, int]] = {}  # kind -> lines of its first block, and where

  def check(self, block: Block) -> None:
    """Raises InputError where `block` is unlike those before it, or its lines do not fit."""
    size = len(block.lines)
    depth, where = self._first.setdefault("question", (size, block.line))
    more = ANSWER if block.kind == "positive" and size > depth else 0
    usual, earlier = self._first.setdefault(block.kind, (depth + more, block.line))
    if size != usual:
      raise self._lines.error(
        f"the <{block.kind}> of line {block.line} has {size} lines, but {usual} were expected as "
        f"the blocks of a file are alike (see lines {where} and {earlier})",
        block.line,
      )
    width = len(block.lines[0].split(TAB))
    for at, line in enumerate(block.lines[1:depth], 1):
      if len(line.split(TAB)) != width:
        raise self._lines.error(
          f"{len(line.split(TAB))} columns, but {width} tokens on line {block.line + 1}; an "
          "annotation has a column for each token",
          block.line + 1 + at,
        )


def _question(
  question_id: str, blocks: Iterator[Block], shape: Shape, lines: Lines, skipped: list[int]
) -> Question:
  first = next(blocks, None)
  if first is None or first.kind != "question":
    raise lines.error(
      f"question {quoted(question_id)} does not begin with <question>; add its text",
      first and first.line,
    )
  if not first.text:
    raise lines.error(f"question {quoted(question_id)} has no text", first.line)
  shape.check(first)
  candidates = []
  for place, block in enumerate(blocks):
    if block.kind == "question":
      raise lines.error(
        f"a second <question> in {quoted(question_id)}; begin a <QApairs>", block.line
      )
    if not block.text:
      skipped.append(block.line)
      continue
    shape.check(block)
    candidates.append(Candidate(f"{question_id}-{place}", block.text, LABELS[block.kind]))
  return Question(question_id, first.text, tuple(candidates))


def read_tanda_json(path: epath.PathLike) -> tuple[Question, ...]:
  """Read TANDA's JSON-lines: a question a line, with `candidates` of `label` and `sentence`."""
  return user_files.read_labelled(path)


DEV = {"all": Counts(82, 1148, 222), "both": Counts(65, 1117)}
TEST = {"all": Counts(100, 1517, 284), "both": Counts(68, 1442)}

DEV_NOTE = (
  "TrecQA has two dev sets, of {} questions with a positive and a negative here and of {} in {}: figures "
  "on dev, and what was selected by it, do not compare; the test sets are the same"
)
JSON_LINES, JACANA = "the JSON-lines form (trecqa_json)", "jacana's form (trecqa)"

TRECQA = Spec(
  name="trecqa",
  reader=iterate_trecqa,
  version="1.0.0",
  files={"train": ("train.xml",), "dev": ("dev.xml",), "test": ("test.xml",)},
  folders=("trecqa/jacana", "trecqa", "", "jacana"),
  clean="both",
  official="both",
  published={"train": {"all": Counts(94, 4718, 348)}, "dev": DEV, "test": TEST},
  url="http://cs.jhu.edu/~xuchen/packages/jacana-qa-naacl2013-data-results.tar.bz2",
  sha256={
    "train.xml": "8c36007a23b754807344f08b52bc1baeaa6fa5dc85b8ad49f340cc8acc438b66",
    "dev.xml": "87f6ed5818fcb885dc8e8206c83cce658d7187118d1e093d841629a08d9291bc",
    "test.xml": "fb96ee795015c98299fe78f1e697eb9e74789b1db6b1bbc0203416dedc0c467f",
  },
  citation="Wang, Smith and Mitamura: What is the Jeopardy Model? (EMNLP 2007), as released with "
  "Yao et al.: Answer Extraction as Sequence Tagging with Tree Edit Distance (NAACL 2013)",
  note=DEV_NOTE.format(65, 69, JSON_LINES),
)

TRECQA_ALL = dataclasses.replace(
  TRECQA,
  name="trecqa_all",
  files=TRECQA.files | {"train": ("train2393.cleanup.xml",)},
  published={"train": {"all": Counts(1229, 53417, 6403)}, "dev": DEV, "test": TEST},
)

# TANDA's form of the clean edition; its training part is TRAIN-ALL in some copies and not in
# others, so that no counts of it are claimed. Its development questions are not jacana's: 69 of
# them have a positive and a negative, against jacana's 65.
TRECQA_JSON = dataclasses.replace(
  TRECQA,
  name="trecqa_json",
  reader=read_tanda_json,
  version="1.0.1",  # context sentences have labels
  files={split: (f"{split}.jsonl",) for split in ("train", "dev", "test")},
  folders=("trecqa/json", "trecqa_json"),
  other_names={f"{split}.jsonl": (f"{split}-filtered.jsonl",) for split in ("dev", "test")},
  note=DEV_NOTE.format(69, 65, JACANA),
  published={"dev": {"both": Counts(69, 1343, 243)}, "test": {"both": Counts(68, 1442, 248)}},
  url="",
)

SPECS = (TRECQA, TRECQA_ALL, TRECQA_JSON)
