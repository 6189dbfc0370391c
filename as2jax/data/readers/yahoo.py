"""YahooCQA (Tay et al. 2017): a manner question, its best answer and four sampled negatives.

Reads the files of such triples, and builds them from raw Yahoo! Answers (Webscope L4, L5, L6):
`as2jax data yahoo manner.xml.gz --output FOLDER --seed 0`.
"""

import dataclasses
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from absl import logging
from etils import epath

from as2jax.data.lines import Lines, quoted
from as2jax.data.readers.xml_records import Element, XmlRecords
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts, Spec
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

COLUMNS = ("question", "answer", "label")
SPLITS = {"train": 8, "dev": 1, "test": 1}  # parts: those of the published sizes
_WORD = re.compile(r"\w+")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
BLOCK = 5  # rows: one positive, four negatives


def iterate_yahoo(path: epath.PathLike) -> Iterator[Question]:
  """Reads (question, answer, label) rows, tab-separated, with or without a header line.

  Each five rows are a question: its best answer (label 1) and four negatives (0), in any order.
  The same text may be asked in two blocks: they are two questions. Ids are q1, q2 … and q1-0 ….

  Raises:
    InputError: anything else, also a last block of fewer rows; names file, line and value.

  """
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
    if number == 1 and [cell.strip().lower() for cell in cells] == list(COLUMNS):
      continue
    if len(cells) != len(COLUMNS) or not all(map(str.strip, cells)):
      raise lines.error(
        f"{len(cells)} columns in {quoted(line)}, or an empty one; expected {len(COLUMNS)}: "
        f"{', '.join(COLUMNS)}, with tabs between them"
      )
    if cells[2] not in ("0", "1"):
      raise lines.error(f"label is {quoted(cells[2])}; expected 0 or 1")
    yield cells[0], cells[1], int(cells[2])


def _question(block: list[tuple[str, str, int]], question_id: str, lines: Lines) -> Question:
  candidates = []
  for i, (_, text, label) in enumerate(block):
    candidates.append(Candidate(f"{question_id}-{i}", text, label))
  question = Question(question_id, block[0][0], tuple(candidates))
  if len(question.positives) != 1:
    raise lines.error(
      f"the question of the last {BLOCK} rows has {len(question.positives)} answers with label 1; "
      "expected one"
    )
  return question


def write_yahoo(path: epath.PathLike, questions: Iterable[Question]) -> None:
  """Writes what the reader reads, the whole file or none; texts hold no tab and no line break."""
  rows = ["\t".join(COLUMNS)]
  for question in questions:
    rows += [f"{question.text}\t{c.text}\t{c.label}" for c in question.candidates]
  write_whole(path, "".join(f"{row}\n" for row in rows))


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
  """A question and the answer that its asker chose."""

  question: str
  answer: str


def iterate_raw(path: epath.PathLike, *, skipped: list[int] | None = None) -> Iterator[Pair]:
  """Yield the subject and the best answer of each <document>; line breaks (<br />) become spaces.

  Character references that the file escapes twice are resolved. Documents without a best answer or
  with an empty one, which the files are known to hold, are skipped, with a warning.

  Args:
    path: an XML file, or one compressed by gzip.
    skipped: takes the lines of the skipped documents.

  Raises:
    InputError: not such a file; names file and line.

  """
  records = XmlRecords(path, ("document",))
  skipped = [] if skipped is None else skipped
  for record in records:
    question = _text(record, "subject", records)
    answer = _text(record, "bestanswer", records)
    if question is None:
      raise records.error("the document has no subject; get the file again", record.line)
    if question and answer:
      yield Pair(question, answer)
    else:
      skipped.append(record.line)
  if skipped:
    logging.warning(
      "%s: skipped %d documents without a question or best answer (the first on line %d)",
      path,
      len(skipped),
      skipped[0],
    )


def _text(record: Element, tag: str, records: XmlRecords) -> str | None:
  elements = record.all(tag)
  if not elements:
    return None
  if len(elements) > 1 or elements[0].children:
    raise records.error(
      f"{len(elements)} elements {tag}, or an element inside it; expected one of text alone",
      elements[-1].line,
    )
  return " ".join(html.unescape(_BREAK.sub(" ", elements[0].text)).split())


def build(
  pairs: Iterable[Pair], *, seed: int, negatives: int, top: int, shortest: int, longest: int
) -> dict[str, tuple[Question, ...]]:
  """Questions with their best answer and `negatives` answers of other questions, in three splits.

  As Tay et al. (2017): questions and best answers of `shortest` to `longest` words (runs of letters
  and digits), and negatives drawn evenly from the `top` answers to other questions that BM25
  (theirs: Lucene) finds for the question's words. Here: a pair that occurs twice counts once;
  questions with one text are in one split and never get each other's answers; a question with fewer
  than `negatives` finds is left out, with a warning; the positive's place in its block is drawn.

  Args:
    pairs: of the raw files.
    seed: of the splits, negatives and places; the same pairs and seed give the same data.
    negatives: number of answers drawn per question.
    top: number of BM25 results from which they are drawn.
    shortest, longest: in words.

  Raises:
    InputError: no pair is left.

  """
  kept = _of_length(pairs, shortest, longest)
  if not kept:
    raise InputError(
      f"no question and best answer of {shortest} to {longest} words each; give the "
      "raw files of Yahoo! Answers"
    )
  split_of = _splits([pair.question for pair in kept], seed)
  questions_of: dict[str, list[Question]] = {split: [] for split in SPLITS}
  few = 0
  for i, drawn in enumerate(_negatives(kept, seed, negatives, top)):
    if drawn is None:
      few += 1
      continue
    own = questions_of[split_of[kept[i].question]]
    rng = np.random.default_rng((seed, i, 1))
    texts = [(kept[j].answer, 0) for j in drawn]
    texts.insert(int(rng.integers(negatives + 1)), (kept[i].answer, 1))
    name = f"q{len(own) + 1}"
    candidates = []
    for place, (text, label) in enumerate(texts):
      candidates.append(Candidate(f"{name}-{place}", text, label))
    own.append(Question(name, kept[i].question, tuple(candidates)))
  if few:
    logging.warning(
      "left out %d questions for which BM25 found fewer than %d answers", few, negatives
    )
  return {split: tuple(questions) for split, questions in questions_of.items()}


def _of_length(pairs: Iterable[Pair], shortest: int, longest: int) -> list[Pair]:
  """Return the distinct pairs whose question and answer both have so many words."""
  fits = lambda text: shortest <= len(_WORD.findall(text)) <= longest
  return list(dict.fromkeys(pair for pair in pairs if fits(pair.question) and fits(pair.answer)))


def _splits(texts: Sequence[str], seed: int) -> dict[str, str]:
  """Return the split of each distinct text, by shares of `SPLITS`."""
  distinct = list(dict.fromkeys(texts))
  order = np.random.default_rng((seed, 0)).permutation(len(distinct))
  ends = np.cumsum(list(SPLITS.values())) * len(distinct) // sum(SPLITS.values())
  names = list(SPLITS)
  split_of = {}
  for place, j in enumerate(order):
    split_of[distinct[j]] = names[int(np.searchsorted(ends, place, side="right"))]
  return split_of


def _negatives(
  pairs: Sequence[Pair], seed: int, negatives: int, top: int
) -> Iterator[np.ndarray | None]:
  """For each pair the numbers of the pairs whose answers it gets; None where too few are found."""
  import bm25s

  vocabulary: dict[str, int] = {}
  tokens: list[list[int]] = []
  askers: dict[str, list[int]] = {}  # question -> pairs
  copies: dict[str, list[int]] = {}  # answer -> pairs
  for i, pair in enumerate(pairs):
    words = _WORD.findall(pair.answer.lower())
    tokens.append([vocabulary.setdefault(word, len(vocabulary)) for word in words])
    askers.setdefault(pair.question, []).append(i)
    copies.setdefault(pair.answer, []).append(i)
  number = {answer: i for i, answer in enumerate(copies)}
  texts = np.array([number[pair.answer] for pair in pairs])
  index = bm25s.BM25(method="lucene")
  index.index((tokens, vocabulary), create_empty_token=False, show_progress=False)
  for i, pair in enumerate(pairs):
    if i and i % 10_000 == 0:
      logging.info("negatives of %d of %d questions", i, len(pairs))
    asked = dict.fromkeys(_WORD.findall(pair.question.lower()))
    words = [vocabulary[word] for word in asked if word in vocabulary]
    scores = np.zeros(len(pairs), np.float32)
    if words:
      scores = index.get_scores_from_ids(words)
    for own in askers[pair.question]:
      scores[copies[pairs[own].answer]] = 0  # right answers, in all their copies
    hits = _best(scores, top)
    hits = hits[np.unique(texts[hits], return_index=True)[1]]  # each text once
    if len(hits) < negatives:
      yield None
      continue
    yield np.random.default_rng((seed, i, 0)).choice(np.sort(hits), negatives, replace=False)


def _best(scores: np.ndarray, top: int) -> np.ndarray:
  """Return the places of the `top` highest scores above 0; of equal ones the first in the data."""
  hits = np.flatnonzero(scores > 0)
  if len(hits) <= top:
    return hits
  least = np.partition(scores, -top)[-top]
  above = np.flatnonzero(scores > least)
  return np.concatenate([above, np.flatnonzero(scores == least)[: top - len(above)]])


def write_built(files: Sequence[str], folder: epath.PathLike, **settings: int) -> dict[str, int]:
  """Build the three files of `yahoocqa_built` from raw files; see `build` for the settings.

  Returns:
    The number of questions by the file's path.

  Raises:
    InputError: a raw file is wrong, or the folder cannot be written.

  """
  folder = epath.Path(folder)
  pairs = itertools.chain.from_iterable(map(iterate_raw, files))
  sizes = {}
  try:
    folder.mkdir(parents=True, exist_ok=True)
    for split, questions in build(pairs, negatives=BLOCK - 1, **settings).items():
      path = folder / f"{split}.tsv"
      write_yahoo(path, questions)
      sizes[str(path)] = len(questions)
  except OSError as error:
    raise InputError(
      f"--output={folder} cannot be written ({error}); name another folder"
    ) from error
  return sizes


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

# What `as2jax data yahoo` writes: another sample, so that nothing is published.
YAHOOCQA_BUILT = dataclasses.replace(
  YAHOOCQA, name="yahoocqa_built", folders=("yahoocqa_built",), published={}
)

SPECS = (YAHOOCQA, YAHOOCQA_BUILT)
