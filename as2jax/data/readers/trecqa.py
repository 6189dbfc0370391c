"""TrecQA (Wang et al. 2007), as the jacana release (Yao et al. 2013) and TANDA (Garg et al. 2020) have it."""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from absl import logging
from etils import epath

from as2jax.data.lines import (
  Lines,
  check_id,
  json_objects,
  label_field,
  quoted,
  renamed,
  text_field,
)
from as2jax.data.record import UNKNOWN, Candidate, Question, label_of
from as2jax.data.source import Counts, Spec

START = re.compile(r"<QApairs id='([^']*)'>")
END = "</QApairs>"
LABELS = {"positive": 1, "negative": 0}
BLOCKS = ("question", *LABELS)
OPENING = {f"<{kind}>": kind for kind in BLOCKS}
CLOSING = {f"</{kind}>": kind for kind in BLOCKS}
TAB = "\t"
ANSWER = 2  # lines under those of a positive's words: the answer's words and their places
# Of TANDA's JSON-lines.
QUESTION_FIELDS = ("question", "candidates", "question_id")
CANDIDATE_FIELDS = ("sentence", "label", "previous", "next", "title", "candidate_id")
ALIASES = {"candidate": "sentence"}


@dataclasses.dataclass(slots=True)
class Block:
  """The lines between <kind> and </kind>."""

  kind: str
  line: int
  lines: list[str] = dataclasses.field(default_factory=list)

  @property
  def text(self) -> str:
    """The tokens with a space between them."""
    return " ".join(self.lines[0].split()) if self.lines else ""


def read_trecqa(path: epath.PathLike, *, skipped: list[int] | None = None) -> tuple[Question, ...]:
  """Reads a file of the jacana release: TRAIN, TRAIN-ALL, DEV or TEST.

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
  return tuple(iterate_trecqa(path, skipped=skipped))


def iterate_trecqa(path: epath.PathLike, *, skipped: list[int] | None = None) -> Iterator[Question]:
  """As `read_trecqa`, one question at a time."""
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
  """The blocks up to </QApairs>."""
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


def read_tanda_json(path: epath.PathLike, *, labelled: bool = True) -> tuple[Question, ...]:
  """Reads `{"question": …, "candidates": [{"label": 0 or 1, "sentence": …}, …]}`, one a line.

  A line is one question, also where two have the same text; one without candidates is kept. A
  question may have `question_id`, a candidate `candidate_id`, `previous`, `next` and `title`.
  Without ids, questions are q1, q2 … and their candidates q1-0, q1-1 …. A context sentence has the
  label of the candidate with the same text, as in `asnq.make_question`. Empty lines at the end
  of the file are not read.

  Args:
    path: the file.
    labelled: False ignores labels: every label is `UNKNOWN`.

  Raises:
    InputError: anything else; names file, line and value.

  """
  return tuple(iterate_tanda_json(path, labelled=labelled))


def iterate_tanda_json(path: epath.PathLike, *, labelled: bool = True) -> Iterator[Question]:
  """As `read_tanda_json`, one question at a time."""
  lines = Lines(path)
  first_line: dict[str, int] = {}  # of each question
  own_ids = None
  for number, record in enumerate(json_objects(lines.filled("question"), lines), 1):
    record = renamed(record, QUESTION_FIELDS, {}, lines)
    own_id = text_field("question_id", record, lines)
    if own_ids not in (None, bool(own_id)):
      raise lines.error("question_id is on some lines only; give it on all or on none")
    own_ids = bool(own_id)
    question = _tanda_question(record, own_id or f"q{number}", lines, labelled)
    if question.id in first_line:
      raise lines.error(
        f"question_id {quoted(question.id)} was already on line "
        f"{first_line[question.id]}; give each question its own"
      )
    first_line[question.id] = lines.number
    yield question


def _tanda_question(record: Mapping, question_id: str, lines: Lines, labelled: bool) -> Question:
  text = _filled("question", record, lines, "line")
  check_id(question_id, "question_id", lines)
  entries = record.get("candidates")
  if not isinstance(entries, list):
    raise lines.error(
      f"candidates is {quoted(json.dumps(entries))}; expected a list of objects with "
      "label and sentence"
    )
  candidates: dict[str, Candidate] = {}
  labels: dict[str, set[int]] = defaultdict(set)  # by text
  for i, entry in enumerate(entries):
    if not isinstance(entry, dict):
      raise lines.error(
        f"candidate {i + 1} is {quoted(json.dumps(entry))}; expected an object "
        "with label and sentence"
      )
    entry = renamed(entry, CANDIDATE_FIELDS, ALIASES, lines)
    sentence = _filled("sentence", entry, lines, "candidate")
    candidate_id = text_field("candidate_id", entry, lines) or f"{question_id}-{i}"
    check_id(candidate_id, "candidate_id", lines)
    if candidate_id in candidates:
      raise lines.error(
        f"candidate_id {quoted(candidate_id)} occurs twice; give each candidate its own"
      )
    context = {name: text_field(name, entry, lines) for name in ("previous", "next", "title")}
    label = label_field(entry, lines, "candidate") if labelled else UNKNOWN
    candidates[candidate_id] = Candidate(candidate_id, sentence, label, **context)
    labels[sentence].add(label)
  return Question(
    question_id,
    text,
    tuple(
      dataclasses.replace(
        c, previous_label=label_of(labels, c.previous), next_label=label_of(labels, c.next)
      )
      for c in candidates.values()
    ),
  )


def _filled(name: str, record: Mapping, lines: Lines, what: str) -> str:
  text = text_field(name, record, lines)
  if not text.strip():
    state = "is empty" if name in record else "is missing"
    raise lines.error(f"the field {name} {state}; every {what} needs a {name}")
  return text


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
  reader=iterate_tanda_json,
  version="1.0.1",  # context sentences have labels
  files={split: (f"{split}.jsonl",) for split in ("train", "dev", "test")},
  folders=("trecqa/json", "trecqa_json"),
  other_names={f"{split}.jsonl": (f"{split}-filtered.jsonl",) for split in ("dev", "test")},
  note=DEV_NOTE.format(69, 65, JACANA),
  published={"dev": {"both": Counts(69, 1343, 243)}, "test": {"both": Counts(68, 1442, 248)}},
  url="",
)

SPECS = (TRECQA, TRECQA_ALL, TRECQA_JSON)
