"""Selects the sentences of documents that answer a question: kept, in order, with exact offsets."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.data.text.sentences import document_spans
from as2jax.evaluation import calibration
from as2jax.inference.index import check_count
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
Spans = Sequence[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Sentence:
  """A sentence of a document.

  Attributes:
    text: `document[start:end]`; document: the number of its document, from 0.
    score: that ranks; probability: that it answers, None where the ranker is not calibrated.

  """

  text: str
  start: int
  end: int
  document: int
  score: float
  probability: float | None


@dataclasses.dataclass(frozen=True)
class Selection:
  """What of the documents answers a question.

  Attributes:
    sentences: that are kept, in the order of the documents.
    answered: whether any is kept; None without a threshold, as then the best are kept in any case.
    every: all sentences of the documents, in their order.

  """

  sentences: tuple[Sentence, ...]
  answered: bool | None
  every: tuple[Sentence, ...] = dataclasses.field(repr=False)

  @property
  def text(self) -> str:
    """Returns the kept sentences, joined by spaces, those of each document in a line of its own."""
    lines: dict[int, list[str]] = {}
    for one in self.sentences:
      lines.setdefault(one.document, []).append(one.text)
    return "\n".join(map(" ".join, lines.values()))


def select(
  ranker: Any,
  question: str,
  document: str | Sequence[str],
  *,
  top_k: int | None = None,
  threshold: float | str | None = "calibrated",
  sentences: Spans | Sequence[Spans] | None = None,
) -> Selection:
  """Selects the sentences that answer a question.

  Args:
    ranker: a `Ranker`; context systems read a sentence's neighbours by themselves.
    question: its text.
    document: its text, or those of several, over which scores are compared.
    top_k: at most so many are kept, those of the best scores.
    threshold: the least score that is kept; `calibrated`: the one of best F1 on the dev questions of the
      ranker's run, `precision=0.9`: the lowest whose precision there is at least so much, by its lower
      bound; None: none. Without dev questions all are kept, up to `top_k`, and a line says so.
    sentences: (start, end) of the sentences of the document, or a list of these for each of several, in
      order; None: cut as `document_spans` does.

  """
  one = isinstance(document, str)
  documents = [document] if one else list(document)
  if top_k is not None:
    check_count("top_k", top_k)
  given = sentences
  if given is not None and one:
    given = [given]
  if given is not None and len(given) != len(documents):
    raise InputError(
      f"sentences of {len(given)} documents were given for {len(documents)}: give a list for each"
    )
  if not isinstance(question, str) or not question.strip():
    raise InputError(f"the question is {question!r:.100}: give a text")
  ranker.require_ranking()
  places, candidates = [], []
  for number, text in enumerate(documents):
    if not isinstance(text, str) or "\0" in text:
      raise InputError(f"document {number} is {text!r:.100}: give a text")
    spans = document_spans(text) if given is None else _checked(given[number], text, number)
    texts = [text[start:end] for start, end in spans]
    around = ["", *texts, ""]
    for i, (span, sentence) in enumerate(zip(spans, texts, strict=True)):
      places.append((number, *span))
      candidates.append(
        Candidate(str(len(candidates)), sentence, previous=around[i], next=around[i + 2])
      )
  if not candidates:
    raise InputError("the document has no sentence: give a text with a word in it")
  _say_what_is_cut(ranker, [question, *(candidate.text for candidate in candidates)])
  (scores,) = ranker.all_scores([Question("0", question, tuple(candidates))])[ranker.similarity]
  fitted = None
  try:
    fitted = ranker.calibration
  except InputError as error:
    if isinstance(threshold, str):
      raise InputError(f"{error}: give a score as threshold, or None") from error
  probabilities: Sequence[float | None] = [None] * len(scores)
  if fitted is not None:
    probabilities = fitted.probability(scores).tolist()
  every = []
  for (number, start, end), score, probability, candidate in zip(
    places, scores.tolist(), probabilities, candidates, strict=True
  ):
    every.append(Sentence(candidate.text, start, end, number, score, probability))
  least = _least(threshold, fitted, ranker)
  best = np.argsort(-scores, kind="stable")[:top_k]
  kept = sorted(best[scores[best] >= least].tolist())
  answered = None if least == -np.inf else bool(kept)
  return Selection(tuple(every[i] for i in kept), answered, tuple(every))


def _least(
  threshold: float | str | None, fitted: calibration.Calibration | None, ranker: Any
) -> float:
  """Returns the least score that is kept."""
  if threshold is None:
    return -np.inf
  if not isinstance(threshold, str):
    return float(threshold)
  calibration.asked_precision(threshold)  # a mistake is one without dev questions, too
  if fitted is not None:
    return fitted.threshold(threshold)
  log.warning(
    "%s has no dev questions by which to calibrate a threshold: the best sentences are kept, whether or not they "
    "answer; give a score as threshold, or train a run that evaluates dev",
    ranker.source or ranker.name,
  )
  return -np.inf


def _checked(spans: Spans, text: str, number: int) -> list[tuple[int, int]]:
  """Returns the spans that a caller gave; InputError where one is none of the text's."""
  found, before = [], 0
  for start, end in spans:
    if not before <= start < end <= len(text) or not text[start:end].strip():
      raise InputError(
        f"sentences of document {number}: ({start}, {end}) is empty, before the one it follows, or beyond the "
        f"{len(text)} characters: give (start, end) in order"
      )
    found.append((start, end))
    before = end
  return found


def _say_what_is_cut(ranker: Any, texts: Sequence[str]) -> None:
  """Says of how many texts, the question first, the end is not read."""
  if ranker.longest == float("inf"):
    return
  lengths = ranker.predictor.components.source.tokenizer_of(texts).encode(texts).lengths
  over = lengths > ranker.longest
  for what, cut in (("questions", over[:1]), ("sentences", over[1:])):
    if cut.any():
      log.warning(
        "%d of %d %s have more than %d tokens: their ends are not read",
        cut.sum(),
        len(cut),
        what,
        ranker.longest,
      )
