"""From questions with candidates to the tuples of sentences that a loss sees."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from as2jax.data.record import UNKNOWN, Question
from as2jax.data.text.input_templates import split_parts, unit_parts


@dataclasses.dataclass(frozen=True)
class ExampleTable:
  """Holds all examples of a split; a sampler chooses among their numbers.

  `members` `[e, k]` are numbers of units, -1 where an example has fewer; `labels` `[e, j]` are
  `UNKNOWN` where not judged; `question` `[e]` numbers the question, whose examples are contiguous;
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


class Sentences:
  """Numbers each distinct question and each distinct candidate, in the order of first sight.
  A text that is both has two numbers: what is put before it, or which encoder reads it, depends on
  its side, and never on what else is asked.
  """

  def __init__(self):
    self._numbers: dict[tuple[bool, str], int] = {}

  def question(self, text: str) -> int:
    """Return the number of a question."""
    return self._numbers.setdefault((True, text), len(self._numbers))

  def candidate(self, text: str) -> int:
    """Return the number of a candidate."""
    return self._numbers.setdefault((False, text), len(self._numbers))

  def units(self) -> list[tuple[str]]:
    """Return the texts in the order of their numbers, as units of one part."""
    return [(text,) for _, text in self._numbers]

  def asked(self) -> np.ndarray:
    """Tell of each whether it is a question."""
    return np.asarray([asked for asked, _ in self._numbers], bool)


def triplets(questions: Sequence[Question], *, tile: int = 32) -> tuple[list, ExampleTable]:
  """Return every (question, positive, negative) of every question (ASBERT section 3.2).

  They come in blocks of `tile` positives × `tile` negatives, so that a part of a question too large
  for a shard needs few sentences: 2·tile + 1 for tile² triplets. Labels are `[e, 2]` = (1, 0).
  """
  number, rows = Sentences(), []
  for i, question in enumerate(questions):
    anchor = number.question(question.text)
    numbered = lambda places: [
      (number.candidate(question.candidates[at].text), at) for at in places
    ]
    positives, negatives = numbered(question.positives), numbered(question.negatives)
    for a, b in itertools.product(*(range(0, len(x), tile) for x in (positives, negatives))):
      for positive, at in positives[a : a + tile]:
        for negative, _ in negatives[b : b + tile]:
          rows.append((anchor, positive, negative, i, positive, at))
  table = _table(rows, 3, [(1, 0)] * len(rows), columns=2, asked=number.asked())
  return number.units(), table


def pairs(questions: Sequence[Question], *, judged: bool = True) -> tuple[list, ExampleTable]:
  """Return every (question, candidate), as two units; `judged` leaves out the unlabelled."""
  number, rows, labels = Sentences(), [], []
  for i, question in enumerate(questions):
    anchor = number.question(question.text)
    for at, candidate in enumerate(question.candidates):
      if not judged or candidate.label != UNKNOWN:
        answer = number.candidate(candidate.text)
        rows.append((anchor, answer, i, answer, at))
        labels.append(candidate.label)
  return number.units(), _table(rows, 2, labels, asked=number.asked())


def single(
  questions: Sequence[Question], *, template: str = "pair", judged: bool = True
) -> tuple[list, ExampleTable]:
  """Return every (question, candidate) as one joined sequence: what a cross-encoder reads.

  Under a template with context, labels are `[e, 3]`: of the candidate, the previous and the next.
  """
  context = len(split_parts(template)[1]) > 0
  units: dict[tuple[str, ...], int] = {}
  answers: dict[str, int] = {}
  rows, labels = [], []
  for i, question in enumerate(questions):
    for at, candidate in enumerate(question.candidates):
      if not judged or candidate.label != UNKNOWN:
        unit = units.setdefault(unit_parts(template, question.text, candidate), len(units))
        rows.append((unit, i, answers.setdefault(candidate.text, len(answers)), at))
        around = (candidate.previous_label, candidate.next_label) if context else ()
        labels.append((candidate.label, *around))
  return list(units), _table(rows, 1, labels, columns=3 if context else 1)


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
  units: dict[tuple[str, ...], int] = {}
  rows, labels, chosen = [], [], []
  for i, (question, order) in enumerate(zip(questions, first_stage_ranking, strict=True)):
    best = [int(at) for at in order[:size]]
    best_candidates = [question.candidates[at] for at in best]
    if not best_candidates or judged and all(c.label == UNKNOWN for c in best_candidates):
      continue
    unit = units.setdefault((question.text, *(c.text for c in best_candidates)), len(units))
    missing = size - len(best_candidates)
    rows.append((unit, i, -1, best[-1]))
    labels.append([c.label for c in best_candidates] + [UNKNOWN] * missing)
    chosen.append(best + [-1] * missing)
  table = _table(rows, 1, labels, columns=size)
  candidates = np.asarray(chosen, np.int32).reshape(len(rows), size)
  return list(units), dataclasses.replace(table, candidates=candidates)


def _table(
  rows: list, k: int, labels: list, columns: int = 1, asked: np.ndarray | None = None
) -> ExampleTable:
  rows = np.asarray(rows, np.int32).reshape(-1, k + 3)
  labels = np.asarray(labels, np.int8).reshape(len(rows), columns)
  return ExampleTable(rows[:, :k], labels, rows[:, k], rows[:, k + 1], rows[:, k + 2], asked=asked)


def sentences(questions: Sequence[Question]) -> tuple[list, ExampleTable]:
  """Return every distinct question and candidate once: what an embedding model encodes."""
  number, _ = sentence_pairs(questions)
  units = number.units()
  n = len(units)
  rows = np.stack([np.arange(n), np.zeros(n), np.full(n, -1), np.zeros(n)], 1).astype(np.int32)
  return units, _table(rows, 1, np.full((n, 1), UNKNOWN), asked=number.asked())


def sentence_pairs(questions: Sequence[Question]) -> tuple[Sentences, np.ndarray]:
  """Return the sentences, and (question, candidate) of every candidate, `[pairs, 2]`."""
  number, rows = Sentences(), []
  for question in questions:
    anchor = number.question(question.text)
    rows += [(anchor, number.candidate(c.text)) for c in question.candidates]
  return number, np.asarray(rows, np.int64).reshape(-1, 2)


LAYOUTS = {"triplets": triplets, "pairs": pairs, "single": single, "joint": joint}
