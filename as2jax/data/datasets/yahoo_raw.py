"""Builds YahooCQA's kind of data from the raw Yahoo! Answers files (Webscope L4, L5, L6).

  as2jax data yahoo manner.xml.gz --output FOLDER --seed 0

writes train.tsv, dev.tsv and test.tsv, which the data set `yahoocqa_built` reads from the folder
of that name under the root of the data.
"""

import argparse
import dataclasses
import html
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from absl import logging
from etils import epath

from as2jax.data.datasets.xml_records import Element, XmlRecords
from as2jax.data.datasets.yahoo import BLOCK, write_yahoo
from as2jax.data.lines import quoted
from as2jax.data.record import Candidate, Question
from as2jax.runtime.errors import InputError

SPLITS = {"train": 8, "dev": 1, "test": 1}  # parts: those of the published sizes
_WORD = re.compile(r"\w+")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
  """A question and the answer that its asker chose."""

  question: str
  answer: str


def iterate_raw(path: epath.PathLike, *, skipped: list[int] | None = None) -> Iterator[Pair]:
  """The subject and the best answer of each <document>; line breaks (<br />) become spaces.

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
  if len(elements) > 1:
    raise records.error(
      f"{len(elements)} elements {tag} in a document; expected one", elements[1].line
    )
  if not elements:
    return None
  if elements[0].children:
    raise records.error(
      f"the element {quoted(elements[0].children[0].tag)} inside {tag}; escape it",
      elements[0].children[0].line,
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
    own.append(
      Question(
        name,
        kept[i].question,
        tuple(
          Candidate(f"{name}-{place}", text, label) for place, (text, label) in enumerate(texts)
        ),
      )
    )
  if few:
    logging.warning(
      "left out %d questions for which BM25 found fewer than %d answers", few, negatives
    )
  return {split: tuple(questions) for split, questions in questions_of.items()}


def _of_length(pairs: Iterable[Pair], shortest: int, longest: int) -> list[Pair]:
  """The distinct pairs whose question and answer both have so many words."""
  fits = lambda text: shortest <= len(_WORD.findall(text)) <= longest
  return list(dict.fromkeys(pair for pair in pairs if fits(pair.question) and fits(pair.answer)))


def _splits(texts: Sequence[str], seed: int) -> dict[str, str]:
  """The split of each distinct text, by shares of `SPLITS`."""
  distinct = list(dict.fromkeys(texts))
  order = np.random.default_rng((seed, 0)).permutation(len(distinct))
  ends = np.cumsum(list(SPLITS.values())) * len(distinct) // sum(SPLITS.values())
  names = list(SPLITS)
  return {
    distinct[j]: names[int(np.searchsorted(ends, place, side="right"))]
    for place, j in enumerate(order)
  }


def _negatives(
  pairs: Sequence[Pair], seed: int, negatives: int, top: int
) -> Iterator[np.ndarray | None]:
  """For each pair the numbers of the pairs whose answers it gets; None where too few are found."""
  import bm25s

  tokens = [_WORD.findall(pair.answer.lower()) for pair in pairs]
  vocabulary = {word: i for i, word in enumerate(dict.fromkeys(w for text in tokens for w in text))}
  index = bm25s.BM25(method="lucene")
  index.index(
    ([[vocabulary[word] for word in text] for text in tokens], vocabulary),
    create_empty_token=False,
    show_progress=False,
  )
  askers: dict[str, list[int]] = {}  # question -> pairs
  for i, pair in enumerate(pairs):
    askers.setdefault(pair.question, []).append(i)
  number: dict[str, int] = {}
  texts = np.array([number.setdefault(pair.answer, len(number)) for pair in pairs])
  copies: list[list[int]] = [[] for _ in number]  # of each answer's text
  for i, text in enumerate(texts):
    copies[text].append(i)
  for i, pair in enumerate(pairs):
    if i and i % 10_000 == 0:
      logging.info("negatives of %d of %d questions", i, len(pairs))
    words = [
      vocabulary[word]
      for word in dict.fromkeys(_WORD.findall(pair.question.lower()))
      if word in vocabulary
    ]
    scores = index.get_scores_from_ids(words) if words else np.zeros(len(pairs), np.float32)
    for own in askers[pair.question]:
      scores[copies[texts[own]]] = 0  # right answers, in all their copies
    hits = _best(scores, top)
    hits = hits[np.unique(texts[hits], return_index=True)[1]]  # each text once
    if len(hits) < negatives:
      yield None
      continue
    yield np.random.default_rng((seed, i, 0)).choice(np.sort(hits), negatives, replace=False)


def _best(scores: np.ndarray, top: int) -> np.ndarray:
  """The places of the `top` highest scores above 0; of equal ones the first in the data."""
  hits = np.flatnonzero(scores > 0)
  if len(hits) <= top:
    return hits
  least = np.partition(scores, -top)[-top]
  above = np.flatnonzero(scores > least)
  return np.concatenate([above, np.flatnonzero(scores == least)[: top - len(above)]])


def _make(folder: epath.Path) -> None:
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(
      f"--output={folder}: it cannot be made a folder ({error.strerror or error}): name another"
    ) from error


def main(arguments: Sequence[str] | None = None) -> int:
  """Builds and writes the three files; returns the exit status: 0 or 2 (bad input)."""
  parser = argparse.ArgumentParser(
    prog="as2jax data yahoo",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("raw", nargs="+", help="raw files, XML or XML compressed by gzip")
  parser.add_argument("--output", required=True, help="folder of the three files")
  parser.add_argument("--seed", type=int, required=True, help="of the sample")
  parser.add_argument("--top", type=int, default=1000, help="finds that negatives are drawn from")
  parser.add_argument("--shortest", type=int, default=5, help="words of a question or an answer")
  parser.add_argument("--longest", type=int, default=50, help="words of a question or an answer")
  flags = parser.parse_args(arguments)
  if flags.top < BLOCK - 1 or not 0 < flags.shortest <= flags.longest or flags.seed < 0:
    parser.error(
      f"--top is at least {BLOCK - 1}, --shortest between 1 and --longest, --seed not below 0"
    )
  folder = epath.Path(flags.output)
  try:
    _make(folder)
    splits = build(
      (pair for path in flags.raw for pair in iterate_raw(path)),
      seed=flags.seed,
      negatives=BLOCK - 1,
      top=flags.top,
      shortest=flags.shortest,
      longest=flags.longest,
    )
  except InputError as error:
    print(error, file=sys.stderr)
    return 2
  for split, questions in splits.items():
    try:
      write_yahoo(folder / f"{split}.tsv", questions)
    except OSError as error:
      print(f"--output={folder}: {split}.tsv cannot be written: {error}", file=sys.stderr)
      return 2
    print(f"{folder / split}.tsv: {len(questions)} questions")
  return 0
