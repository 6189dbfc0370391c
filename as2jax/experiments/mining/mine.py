"""Mines negatives for training questions: candidates that rank high and do not answer.

A passage of ranks `first` to `last` becomes a negative of a question unless it is, in this order: kept
out (a question of dev or test), a candidate of the question already (or a right one of a question in the
same words), or too near to its positives: with a score above `below` of that of a positive
(NV-Retriever's TopK-PercPos, Moreira et al. 2024, section 3.2) by a miner or by the judge. How many
negatives answer their question all the same is estimated on labelled candidates: of a question with
several positives each in turn counts as unlabelled.
"""

import collections
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special
from etils import epath

from as2jax.data import mined
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.text.words import plain_form
from as2jax.experiments.mining.miners import Miner, open_miners
from as2jax.experiments.mining.pool import Pool
from as2jax.experiments.working_folder import open_working
from as2jax.inference.open import load as open_ranker
from as2jax.inference.ranker import Ranker
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.version import __version__

QUESTIONS = 512  # at a time: what bounds memory beside the passages' texts
AGAINST = {"lowest": np.min, "highest": np.max}
CHOICES = ("top", "random")


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is mined.

  Attributes:
    first, last: ranks of the passages that are looked at, from 1.
    count: negatives a question, at most.
    below: of a positive's score s, a negative's is at most s − (1 − below)·|s|; 1e9 for any.
    against: of several positives, which one's score: `lowest` or `highest`.
    choose: which of those that are left: `top` (the best) or `random`.
    judge: a cross-encoder whose probability must be below that of the positives, too; "" for none.
    seed: of what is drawn.

  """

  first: int = 1
  last: int = 100
  count: int = 8
  below: float = 0.95
  against: str = "lowest"
  choose: str = "top"
  judge: str = ""
  seed: int = 0

  def check(self) -> None:
    """Raises InputError for a value that makes no sense."""
    if not 1 <= self.first <= self.last:
      raise InputError(f"ranks {self.first} to {self.last}: give 1 or more, the greater one last")
    if self.count < 1:
      raise InputError(f"count = {self.count}: give 1 or more")
    if not self.below > 0:
      raise InputError(f"below = {self.below}: give a number above 0, such as 0.95")
    for name, value, known in (
      ("against", self.against, AGAINST),
      ("choose", self.choose, CHOICES),
    ):
      if value not in known:
        raise InputError(f"{name} = {value!r}: use one of {', '.join(known)}")


def mine(
  miners: str,
  questions: Sequence[Question],
  output: epath.PathLike,
  settings: Settings = Settings(),  # noqa: B008
  *,
  passages: Sequence[str] = (),
  kept_out: Sequence[Question] = (),
  source: str = "",
) -> dict[str, Any]:
  """Mines negatives and writes them with their provenance; the same call goes on after a stop.

  Args:
    miners: as of `miners.open_miners`.
    questions: training questions.
    output: a new folder.
    settings: what is mined.
    passages: further texts beside the questions' candidates.
    kept_out: questions of dev and test.
    source: of the data, for the provenance.

  Returns:
    The provenance: rankers, data, settings, how many were dropped why, the rate of false negatives.

  Raises:
    InputError: wrong settings, a folder that holds something else, or nothing to mine.

  """
  settings.check()
  with open_working(output) as (folder, working):
    asked, skipped = _asked(questions, kept_out)
    pool = Pool(questions, passages, [q.text for q in kept_out])
    if not asked or not len(pool):
      raise InputError(
        f"there is nothing to mine: {len(questions)} questions ({skipped['without positive']} without a "
        f"positive, {skipped['in dev or test']} in dev or test), {len(pool)} passages"
      )
    opened = open_miners(miners, pool, working, settings.seed)
    judge = open_ranker(settings.judge) if settings.judge else None
    if judge is not None:
      judge.require_ranking()
    tally, answers = _Tally(), _answers(questions)
    with (working / mined.FILE).open("w") as file:
      for line in _lines(asked, answers, pool, opened, judge, settings, tally):
        file.write(line)
    data = {"source": source, "fingerprint": fingerprint(questions)}
    content = {
      **_provenance(opened, judge, settings, data),
      "passages": len(pool),
      "questions": {"asked": len(asked), **skipped},
      **tally.summary(settings.count),
    }
    if not content["negatives"]:
      raise InputError(
        f"no passage is left as a negative ({dict(tally.dropped)}): look at more ranks, allow greater "
        "scores (--below), or give more passages"
      )
    (working / mined.FILE).replace(folder / mined.FILE)
    write_whole(folder / mined.CARD, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
  return content


def _provenance(
  miners: Sequence[Miner], judge: Ranker | None, settings: Settings, data: Mapping[str, str]
) -> dict[str, Any]:
  """What the negatives are made of and how."""
  return {
    "as2jax": __version__,
    "miners": [miner.description() for miner in miners],
    "judge": {"ranker": settings.judge, "fingerprint": judge.fingerprint} if judge else None,
    "data": dict(data),
    "settings": dataclasses.asdict(settings),
  }


def report(content: Mapping[str, Any]) -> str:
  """The provenance in a few lines."""
  asked, rate = content["questions"], content["false_negatives"]
  dropped = ", ".join(f"{number} {why}" for why, number in content["dropped"].items()) or "none"
  share = "unknown, as no question with several positives has labelled candidates among them"
  if rate["taken"]:
    share = f"{rate['rate']:.1%} ({rate['positive']} of {rate['taken']} labelled candidates taken)"
  return (
    f"{content['negatives']} negatives for {asked['asked']} questions of {content['passages']} passages;"
    f" {content['questions_with_fewer']} questions have fewer than wanted\n"
    f"dropped: {dropped}\n"
    f"left out: {asked['without positive']} questions without a positive, {asked['in dev or test']} in "
    f"dev or test\nestimated rate of false negatives: {share}\n"
  )


class _Tally:
  """Counts over all questions."""

  def __init__(self):
    self.dropped = collections.Counter()
    self.taken = collections.Counter()  # by label, in the estimate of the rate of false negatives
    self.sizes = collections.Counter()

  def summary(self, count: int) -> dict[str, Any]:
    positive, taken = self.taken[1], self.taken[0] + self.taken[1]
    return {
      "negatives": sum(size * number for size, number in self.sizes.items()),
      "questions_with_fewer": sum(n for size, n in self.sizes.items() if size < count),
      "dropped": dict(self.dropped),
      "false_negatives": {
        "taken": taken,
        "positive": positive,
        "rate": positive / taken if taken else None,
      },
    }


def _asked(
  questions: Sequence[Question], kept_out: Sequence[Question]
) -> tuple[list[Question], dict[str, int]]:
  """The questions that negatives are mined for, and how many are left out why."""
  elsewhere = {plain_form(question.text) for question in kept_out}
  here = [q for q in questions if plain_form(q.text) not in elsewhere]
  asked = [q for q in here if q.positives]
  return asked, {
    "in dev or test": len(questions) - len(here),
    "without positive": len(here) - len(asked),
  }


def _answers(questions: Sequence[Question]) -> dict[str, list[str]]:
  """The right candidates of the questions in the same words, by the `plain_form` of these."""
  answers = collections.defaultdict(list)
  for question in questions:
    right = [question.candidates[i].text for i in question.positives]
    answers[plain_form(question.text)] += right
  return answers


def _lines(
  asked: Sequence[Question],
  answers: Mapping[str, Sequence[str]],
  pool: Pool,
  miners: Sequence[Miner],
  judge: Ranker | None,
  settings: Settings,
  tally: _Tally,
) -> Iterator[str]:
  """The lines of the file; only a part of the questions is in the works at a time."""
  random = np.random.default_rng(settings.seed)
  for start in range(0, len(asked), QUESTIONS):
    part = asked[start : start + QUESTIONS]
    negatives = [
      _QuestionNegatives(question, answers[plain_form(question.text)], pool, settings, tally)
      for question in part
    ]
    for miner in miners:
      for one, ranking in zip(negatives, miner.rank(part, settings.last), strict=True):
        one.take(miner.name, ranking)
    if judge is not None:
      _drop_by_judge(negatives, pool, judge)
    for one in negatives:
      yield from one.lines(random)


@dataclasses.dataclass(frozen=True)
class _Hit:
  """Where a passage was found."""

  by: str
  rank: int
  score: float


class _QuestionNegatives:
  """The passages that miners propose as negatives of one question, whose right ones are `answers`."""

  def __init__(
    self, question: Question, answers: Sequence[str], pool: Pool, settings: Settings, tally: _Tally
  ):
    self.question, self._pool, self._settings, self._tally = question, pool, settings, tally
    self.hits: dict[int, _Hit] = {}
    self.near: dict[int, str] = {}  # passages too near to the positives, and by whom
    self._scores: list[tuple[dict[int, float], np.ndarray]] = []  # of passages, of the positives
    self._own = {number: 0 for number in pool.numbers([question.text])}
    for candidate in question.candidates:  # a text of several labels is a positive
      for number in pool.numbers([candidate.text]):
        self._own[number] = max(candidate.label, self._own.get(number, candidate.label))
    self._own |= dict.fromkeys(pool.numbers(answers), 1)

  def take(self, name: str, ranking: Any) -> None:
    """Takes in what a miner found."""
    scores = dict(zip(ranking.numbers.tolist(), ranking.scores.tolist(), strict=True))
    for rank, (number, score) in enumerate(scores.items(), 1):
      if rank >= self._settings.first:
        self.hits.setdefault(number, _Hit(name, rank, score))
    self.compare(name, scores, ranking.positives)

  def compare(self, name: str, scores: dict[int, float], positives: np.ndarray) -> None:
    """Drops the passages whose scores come too near to those of the positives."""
    limit = _limit(positives, self._settings)
    for number, score in scores.items():
      if score > limit:  # never of a NaN
        self.near.setdefault(number, name)
    self._scores.append((scores, positives))

  def open(self) -> list[int]:
    """The passages that may still be taken, and labelled ones, which tell the rate of false negatives."""
    return [
      n for n in self.hits if self._pool.minable[n] and (n not in self.near or n in self._own)
    ]

  def lines(self, random: np.random.Generator) -> Iterator[str]:
    """The lines of the negatives; counts what is dropped."""
    left = []
    for number, hit in self.hits.items():
      label = self._own.get(number)
      if not self._pool.minable[number]:
        why = "dev or test question"
      elif label is not None:
        why = "candidate already"
      elif number in self.near:
        why = "near a positive by " + self.near[number]
      else:
        left.append((number, hit))
        continue
      self._tally.dropped[why] += 1
    self._estimate()
    left.sort(key=lambda entry: entry[1].rank)
    if self._settings.choose == "random":
      left = [left[i] for i in random.permutation(len(left))]
    left = left[: self._settings.count]
    self._tally.sizes[len(left)] += 1
    for number, hit in left:
      provenance = {"by": hit.by, "rank": hit.rank}
      provenance |= {} if np.isnan(hit.score) else {"score": round(hit.score, 6)}
      yield mined.line(self.question, self._pool.candidate(number), **provenance)

  def _estimate(self) -> None:
    """Counts which labelled candidates would be taken if one of several positives had no label."""
    places = self.question.positives
    if len(places) < 2:
      return
    numbers = [self._pool.numbers([self.question.candidates[i].text])[0] for i in places]
    negatives = [number for number, label in self._own.items() if label == 0]
    for place, number in enumerate(numbers):
      if numbers.count(number) > 1:  # another positive is the same passage
        continue
      for candidate, label in ((number, 1), *((other, 0) for other in negatives)):
        self._tally.taken[label] += candidate in self.hits and not any(
          scores.get(candidate, -np.inf) > _limit(np.delete(right, place), self._settings)
          for scores, right in self._scores
          if len(right) == len(places)
        )


def _limit(positives: np.ndarray, settings: Settings) -> float:
  """The greatest score that a negative may have."""
  if not len(positives):
    return np.inf
  score = float(AGAINST[settings.against](positives))
  return score - (1 - settings.below) * abs(score)


def _drop_by_judge(negatives: Sequence[_QuestionNegatives], pool: Pool, judge: Ranker) -> None:
  """Drops what the judge holds for nearly as good an answer as the positives."""
  asked, passages = [], []
  for one in negatives:
    positives = [one.question.candidates[i] for i in one.question.positives]
    numbers = one.open()
    texts = [c.text for c in positives] + [pool.texts[n] for n in numbers]
    its = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    asked.append(Question(one.question.id, one.question.text, its))
    passages.append(numbers)
  scores = next(iter(judge.all_scores(asked).values()))
  for one, numbers, values in zip(negatives, passages, scores, strict=True):
    values = np.asarray(values, np.float64)
    if not judge.has_vectors:  # a share of log-odds, which may be negative, means nothing
      values = scipy.special.expit(values)
    count = len(one.question.positives)
    one.compare(
      "the judge", dict(zip(numbers, values[count:].tolist(), strict=True)), values[:count]
    )
