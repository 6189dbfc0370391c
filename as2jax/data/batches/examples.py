"""From questions with candidates to the tuples of sentences that a loss sees."""

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.data.record import UNKNOWN, Question
from as2jax.data.text.input_templates import CONTEXT, unit_parts


@dataclasses.dataclass(frozen=True)
class ExampleTable:
  """Holds all examples of a split; a sampler chooses among their numbers.

  `members` `[e, k]` are numbers of units; `labels` `[e, j]` are `UNKNOWN` where not judged;
  `question` `[e]` numbers the question, whose examples are contiguous;
  `answer` `[e]` the answer's distinct text, -1 without one; `candidate` `[e]` is the position of
  the (last) candidate among the question's, `candidates` `[e, K]` those of several, -1 where there
  are fewer. `asked` `[units]` tells of units of one sentence whether each is a question.
  """

  members: np.ndarray
  labels: np.ndarray
  question: np.ndarray
  answer: np.ndarray
  candidate: np.ndarray
  candidates: np.ndarray | None = None
  asked: np.ndarray | None = None

  def __len__(self) -> int:
    return len(self.members)


def _numbers() -> dict[Any, int]:
  """Return an empty dictionary that numbers its keys in the order of first sight."""
  return collections.defaultdict(itertools.count().__next__)


def triplets(questions: Sequence[Question], *, tile: int = 32) -> tuple[list, ExampleTable]:
  """Return every (question, positive, negative) of every question (ASBERT section 3.2).

  They come in blocks of `tile` positives × `tile` negatives, so that a part of a question too large
  for a shard needs few sentences: 2·tile + 1 for tile² triplets. Labels are `[e, 2]` = (1, 0).
  """
  number, rows = _numbers(), []
  for i, question in enumerate(questions):
    anchor = number[True, question.text]
    texts = [candidate.text for candidate in question.candidates]
    positives = [(number[False, texts[at]], at) for at in question.positives]
    negatives = [number[False, texts[at]] for at in question.negatives]
    for a in range(0, len(positives), tile):
      for b in range(0, len(negatives), tile):
        block = itertools.product(positives[a : a + tile], negatives[b : b + tile])
        rows += [(anchor, positive, other, i, positive, at) for (positive, at), other in block]
  return _of_sentences(number, rows, 3, [(1, 0)] * len(rows))


def pairs(questions: Sequence[Question], *, judged: bool = True) -> tuple[list, ExampleTable]:
  """Return every (question, candidate), as two units; `judged` leaves out the unlabelled."""
  number, rows, labels = _numbers(), [], []
  for i, question in enumerate(questions):
    anchor = number[True, question.text]
    for at, candidate in enumerate(question.candidates):
      if not judged or candidate.label != UNKNOWN:
        answer = number[False, candidate.text]
        rows.append((anchor, answer, i, answer, at))
        labels.append((candidate.label,))
  return _of_sentences(number, rows, 2, labels)


def single(
  questions: Sequence[Question], *, template: str = "pair", judged: bool = True
) -> tuple[list, ExampleTable]:
  """Return every (question, candidate) as one joined sequence: what a cross-encoder reads.

  Under a template with context, labels are `[e, 3]`: of the candidate, the previous and the next.
  """
  units, answers, rows, labels = _numbers(), _numbers(), [], []
  for i, question in enumerate(questions):
    for at, candidate in enumerate(question.candidates):
      if not judged or candidate.label != UNKNOWN:
        unit = units[unit_parts(template, question.text, candidate)]
        rows.append((unit, i, answers[candidate.text], at))
        around = (candidate.previous_label, candidate.next_label) if template in CONTEXT else ()
        labels.append((candidate.label, *around))
  return list(units), _table(rows, 1, labels, 3 if template in CONTEXT else 1)


def joint(
  questions: Sequence[Question],
  *,
  size: int,
  first_stage_ranking: Sequence[np.ndarray],
  judged: bool = True,
) -> tuple[list, ExampleTable]:
  """Return each question with the best `size` candidates of another ranker as one joined sequence.
  `first_stage_ranking` holds the positions of each question's candidates, best first. A question
  without candidates is no example; `judged` leaves out those without any judged one among them,
  too. Labels and candidates are `[e, size]`.
  """
  units, rows, labels, chosen = _numbers(), [], [], []
  for i, (question, order) in enumerate(zip(questions, first_stage_ranking, strict=True)):
    best = [int(at) for at in order[:size]]
    best_candidates = [question.candidates[at] for at in best]
    if not best_candidates or judged and all(c.label == UNKNOWN for c in best_candidates):
      continue
    missing = size - len(best_candidates)
    rows.append((units[question.text, *(c.text for c in best_candidates)], i, -1, best[-1]))
    labels.append([c.label for c in best_candidates] + [UNKNOWN] * missing)
    chosen.append(best + [-1] * missing)
  table = _table(rows, 1, labels, size)
  candidates = np.asarray(chosen, np.int32).reshape(len(rows), size)
  return list(units), dataclasses.replace(table, candidates=candidates)


def _table(rows: Any, k: int, labels: Any, columns: int) -> ExampleTable:
  rows = np.asarray(rows, np.int32).reshape(-1, k + 3)
  labels = np.asarray(labels, np.int8).reshape(len(rows), columns)
  return ExampleTable(rows[:, :k], labels, rows[:, k], rows[:, k + 1], rows[:, k + 2])


def _of_sentences(
  numbers: dict[tuple[bool, str], int], rows: Any, k: int, labels: Any
) -> tuple[list, ExampleTable]:
  """Return sentences as units of one part, and the table of their examples.
  A text that is both question and candidate has two numbers: what is put before it, or which
  encoder reads it, depends on its side, and never on what else is asked.
  """
  table = _table(rows, k, labels, 2 if k == 3 else 1)
  asked = np.asarray([asked for asked, _ in numbers], bool)
  return [(text,) for _, text in numbers], dataclasses.replace(table, asked=asked)


def sentences(questions: Sequence[Question]) -> tuple[list, ExampleTable]:
  """Return every distinct question and candidate once: what an embedding model encodes."""
  numbers, _ = sentence_pairs(questions)
  n = len(numbers)
  rows = np.stack([np.arange(n), np.zeros(n), np.full(n, -1), np.zeros(n)], 1)
  return _of_sentences(numbers, rows, 1, [UNKNOWN] * n)


def sentence_pairs(questions: Sequence[Question]) -> tuple[dict[tuple[bool, str], int], np.ndarray]:
  """Return the number of each (is a question, text), and the two of every candidate, `[pairs, 2]`."""
  numbers, rows = _numbers(), []
  for question in questions:
    anchor = numbers[True, question.text]
    rows += [(anchor, numbers[False, c.text]) for c in question.candidates]
  return numbers, np.asarray(rows, np.int64).reshape(-1, 2)


LAYOUTS = {"triplets": triplets, "pairs": pairs, "single": single, "joint": joint}
