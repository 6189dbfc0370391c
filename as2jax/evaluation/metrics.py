"""Compute ranking metrics of questions, exact under ties, with trec_eval's definitions.

Scores are compared in float32, as trec_eval compares them. Everything here is numpy on the host.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from as2jax.data.record import UNKNOWN
from as2jax.evaluation.significance import half_width
from as2jax.runtime.errors import InputError

METRICS = ("map", "mrr", "p@1", "r@1", "r@5", "ndcg@10")
TIES = ("expected", "trec", "pessimistic")
TIE_TOLERANCE = 0.0005  # a run whose ties move the mean of a metric by more says so

# Which questions a question filter counts, from their numbers of candidates and of positives. The `clean`
# of a dataset is one of these: `answerable` for WikiQA, `both` for TrecQA.
RULES = {
  "all": lambda candidates, positives: candidates > 0,
  "answerable": lambda candidates, positives: positives > 0,
  "both": lambda candidates, positives: (positives > 0) & (positives < candidates),
}


@dataclasses.dataclass(frozen=True)
class _Ranking:
  """Hold all questions' candidates in one array, question by question, best first.

  A *group* is a maximal run of candidates of one question whose order is random.
  """

  question: np.ndarray  # [m] number of the candidate's question
  rank: np.ndarray  # [m] from 1
  place: np.ndarray  # [m] position within the group, from 0
  group: np.ndarray  # [m] number of the group
  size: np.ndarray  # [g] candidates in the group
  relevant: np.ndarray  # [g] positives in the group
  before: np.ndarray  # [g] positives of the question ranked before the group
  positives: np.ndarray  # [n] positives of the question


class TieRange(NamedTuple):
  """Hold what ties leave open in the mean of one metric.

  Attributes:
    worst, best: the mean with every group of tied candidates in its worst and in its best order.
    questions: how many questions have another value in the worst order than in the best.

  """

  worst: float
  best: float
  questions: int


def per_question(
  scores: Sequence[np.ndarray],
  labels: Sequence[np.ndarray],
  ids: Sequence[Sequence[str]] | None = None,
  *,
  ties: str = "expected",
  names: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
  """Return every metric of every question, as trec_eval defines it (ties apart).

  AP averages the precision at each positive over all positives; a question without a positive
  scores 0 on everything. Under `expected` ties each value is the exact expectation over uniformly
  random orders of tied candidates, in closed form (McSherry and Najork 2008), so that it depends
  neither on the order of the input nor on `ids`. `trec` orders ties by descending id (strcmp of
  the UTF-8 bytes), `pessimistic` puts negatives first.

  Args:
    scores: one array [candidates] a question, higher is better; cast to float32 before they are
      compared. Infinities are allowed, equal ones tie.
    labels: one array [candidates] a question: 1 is positive, 0 and `UNKNOWN` are negative.
    ids: one list of candidate ids a question; needed by `trec` alone.
    ties: one of `TIES`.
    names: ids of the questions, for error messages.

  Returns:
    {metric: float64 [questions]} for each of `METRICS`.

  Raises:
    InputError: a NaN score, an unknown label or policy, lengths that differ, ids that are missing
      or (under `trec`) occur twice in one question.

  """
  if ties not in TIES:
    raise InputError(f"ties={ties!r} is not a tie policy: use one of {', '.join(TIES)}")
  return _metrics(_rank(scores, labels, ids, ties, names))


def _metrics(ranking: _Ranking) -> dict[str, np.ndarray]:
  """Return every metric of every question: see `per_question`."""
  total = len(ranking.positives)

  def over_positives(gain):  # [m] -> [n]
    summed = np.bincount(ranking.question, weights=gain, minlength=total)
    return summed / np.maximum(ranking.positives, 1)

  size, relevant = ranking.size[ranking.group], ranking.relevant[ranking.group]
  share = relevant / size  # the probability that the candidate at this rank is positive
  # Positives up to this rank, given that there is one here: those of earlier groups, itself, and
  # each of the other `place` candidates of its group with probability (relevant-1)/(size-1).
  positives_to_rank = ranking.before[ranking.group] + 1
  positives_to_rank = positives_to_rank + ranking.place * (relevant - 1) / np.maximum(size - 1, 1)
  discount = np.where(ranking.rank <= 10, 1 / np.log2(ranking.rank + 1), 0.0)
  ideal = np.concatenate([[1.0], np.cumsum(1 / np.log2(np.arange(2, 12)))])
  ideal = ideal[np.minimum(ranking.positives, 10)]
  first = np.where(ranking.rank == 1, share, 0.0)
  return {
    "map": over_positives(share * positives_to_rank / ranking.rank),
    "mrr": _reciprocal_rank(ranking),
    "p@1": np.bincount(ranking.question, weights=first, minlength=total),
    "r@1": over_positives(first),
    "r@5": over_positives(np.where(ranking.rank <= 5, share, 0.0)),
    "ndcg@10": np.bincount(ranking.question, weights=share * discount, minlength=total) / ideal,
  }


def filters(clean: str, official: str = "") -> dict[str, str]:
  """Return the question filters of a data set: {name: rule of `RULES`}.

  A rule stands under one name alone: that of `clean` is not named again as `official`,
  `answerable` or `all`, that of `official` not as one of the last two.

  Args:
    clean, official: the rules of the data set's filters; "" for `official` where it has none.

  """
  named = {"clean": clean, **({"official": official} if official else {})}
  named |= {name: name for name in ("answerable", "all")}
  kept: dict[str, str] = {}
  for name, rule in named.items():
    if rule not in kept.values():
      kept[name] = rule
  return kept


def filter_mask(name: str, labels: Sequence[np.ndarray]) -> np.ndarray:
  """Return bool [questions]: which of them the rule `name` counts.

  `all`: at least one candidate; `answerable`: at least one positive; `both`: at least one positive
  and one candidate that is not. `InputError` for another name.
  """
  if name not in RULES:
    raise InputError(f"{name!r} is not a question filter rule: use one of {', '.join(RULES)}")
  candidates = np.array([len(x) for x in labels], np.int64)
  positives = np.array([np.count_nonzero(np.asarray(x) == 1) for x in labels], np.int64)
  return RULES[name](candidates, positives)


def summarize(
  values: Mapping[str, np.ndarray],
  mask: np.ndarray,
  *,
  where: str,
  ranges: Mapping[str, TieRange] | None = None,
) -> dict[str, dict[str, float | int | None]]:
  """Return mean, 95 % half-width over questions and their number, under names with the filter.

  Args:
    values: {metric: [questions]}, as from `per_question`.
    mask: bool [questions], as from `filter_mask`.
    where: data, question filter and split, `wikiqa-clean/test` of the name `map[wikiqa-clean/test]`.
    ranges: what ties leave open, as from `ranges_of` with the same mask; None where nothing is
      known of ties.

  Returns:
    {name: {"value", "half_width", "questions", "worst", "best", "tied_questions"}}, the last three
    where `ranges` has the metric; the half-width of one question is None.

  Raises:
    InputError: the question filter leaves no question.

  """
  mask = np.asarray(mask, bool)
  count = int(mask.sum())
  if not count:
    raise InputError(
      f"{where}: none of the {len(mask)} questions is counted by this question filter, so there is no "
      "mean to report: check the labels, or take another question filter"
    )
  summary: dict[str, dict[str, float | int | None]] = {}
  for metric, value in values.items():
    chosen = np.asarray(value, np.float64)[mask]
    entry = {"value": float(chosen.mean()), "half_width": half_width(chosen), "questions": count}
    if ranges is not None and metric in ranges:
      worst, best, tied = ranges[metric]
      entry |= {"worst": worst, "best": best, "tied_questions": tied}
    summary[f"{metric}[{where}]"] = entry
  return summary


def require_float32(scores: np.ndarray, question: str) -> None:
  """Raise TypeError where the scores that rank a question's candidates are not float32."""
  if scores.dtype != np.float32:
    raise TypeError(f"question {question!r}: scores that rank are float32, not {scores.dtype}")


def tie_extremes(
  scores: Sequence[np.ndarray], labels: Sequence[np.ndarray], *, names: Sequence[str] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Return each metric of each question under the worst and the best order of tied candidates.

  The worst order puts the negatives of a group first, the best order its positives; both hold for
  all metrics at once. Arguments and errors are those of `per_question`.
  """
  worst, best = (
    _metrics(_rank(scores, labels, None, order, names)) for order in ("pessimistic", "optimistic")
  )
  return worst, best


def ranges_of(
  worst: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray], mask: np.ndarray
) -> dict[str, TieRange]:
  """Return the ranges of the means over the questions in `mask`.

  Args:
    worst, best: {metric: [questions]} under the worst and the best order of ties.

  """
  questions = max(int(mask.sum()), 1)
  return {
    metric: TieRange(
      float(worst[metric][mask].sum()) / questions,
      float(best[metric][mask].sum()) / questions,
      int(np.count_nonzero(worst[metric][mask] != best[metric][mask])),
    )
    for metric in worst
  }


def tie_note(ranges: Mapping[str, TieRange], where: str) -> list[str]:
  """Return one line where ties leave more than `TIE_TOLERANCE` of a metric open, else none."""
  moved = [
    f"{metric} from {tie_range.worst:.4f} to {tie_range.best:.4f} ({tie_range.questions} questions)"
    for metric, tie_range in ranges.items()
    if tie_range.best - tie_range.worst > TIE_TOLERANCE
  ]
  return [f"{where}: by the order of tied candidates {', '.join(moved)}"] if moved else []


def average_recall(
  scores: Sequence[np.ndarray],
  labels: Sequence[np.ndarray],
  *,
  mask: np.ndarray,
  depth: int = 10,
  names: Sequence[str] | None = None,
) -> float:
  """Return AvgRec of the SemEval CQA tasks: mean recall at k = 1 … depth, over all questions.

  Recall at k is the number of positives among the first k candidates of every question, over the
  number that a perfect ranking would have there (Nakov et al. 2016, section 4; the organisers'
  scorer). It is a ratio of sums, not a mean over questions, so that it has no value of a question.
  Ties are resolved by exact expectation.

  Raises:
    InputError: see `per_question`.

  """
  ranking = _rank(scores, labels, None, "expected", names)
  counted = np.asarray(mask, bool)
  share = (ranking.relevant / ranking.size)[ranking.group]
  recalls = []
  for k in range(1, depth + 1):
    taken = share[(ranking.rank <= k) & counted[ranking.question]].sum()
    perfect = np.minimum(ranking.positives[counted], k).sum()
    recalls.append(taken / perfect if perfect else 0.0)
  return float(np.mean(recalls))


def _rank(scores, labels, ids, ties, names) -> _Ranking:
  """Check the input and sort the candidates of all questions at once."""
  score, positive, question, lengths = _flatten(scores, labels, names)
  order = np.lexsort((-score, question))
  starts = _group_starts(question[order], score[order])
  if ties == "trec":
    key = _descending_ids(ids, lengths, order, starts, names)
    order = np.lexsort((key, -score, question))
  elif ties in ("pessimistic", "optimistic"):
    key = positive if ties == "pessimistic" else ~positive
    order = np.lexsort((key, -score, question))
  if ties != "expected":
    starts = np.ones(len(order), bool)  # the order is settled: each candidate is its own group
  positive = positive[order].astype(np.int64)
  group = np.cumsum(starts) - 1
  first = np.flatnonzero(starts)
  seen = np.cumsum(positive) - positive  # positives before each candidate, over all questions
  question_start = np.cumsum(lengths) - lengths
  place = np.arange(len(order))
  return _Ranking(
    question=question,
    rank=place - question_start[question] + 1,
    place=place - first[group],
    group=group,
    size=np.bincount(group, minlength=len(first)),
    relevant=np.bincount(group[positive == 1], minlength=len(first)),
    before=seen[first] - seen[question_start[question[first]]],
    positives=np.bincount(question[positive == 1], minlength=len(lengths)),
  )


def _flatten(scores, labels, names):
  """Join all questions' arrays into one, cast and checked."""
  lengths = np.array([len(x) for x in scores], np.int64)
  if len(labels) != len(scores):
    raise InputError(f"scores of {len(scores)} questions, but labels of {len(labels)}: give both")
  label_lengths = np.array([len(x) for x in labels], np.int64)
  for i in np.flatnonzero(lengths != label_lengths)[:1]:
    raise InputError(
      f"{_name(names, i)}: {lengths[i]} scores but {label_lengths[i]} labels: give one a candidate"
    )
  question = np.repeat(np.arange(len(lengths)), lengths)
  empty = np.zeros(0, np.float32)
  with np.errstate(over="ignore"):  # beyond float32 means infinite, as in trec_eval
    score = np.concatenate([empty, *scores]).astype(np.float32)
  label = np.concatenate([empty, *labels])
  for i in np.flatnonzero(np.isnan(score))[:1]:
    raise InputError(
      f"{_name(names, question[i])}: the score of candidate {i - lengths[: question[i]].sum() + 1} "
      "is not a number (NaN): it cannot be ranked; mend the model or the run file it comes from"
    )
  for i in np.flatnonzero(~np.isin(label, (1, 0, UNKNOWN)))[:1]:
    number = np.issubdtype(label.dtype, np.number)
    shown = f"{label[i]:g}" if number else repr(str(label[i]))
    raise InputError(
      f"{_name(names, question[i])}: label {shown}: use the number 1 (positive), 0 or {UNKNOWN} (unknown)"
    )
  return score, label == 1, question, lengths


def _group_starts(question, score):
  """Return bool [m]: where a candidate differs from the one before it in question or score."""
  starts = np.ones(len(score), bool)
  starts[1:] = (question[1:] != question[:-1]) | (score[1:] != score[:-1])
  return starts


def _descending_ids(ids, lengths, order, starts, names):
  """Return int [m]: a key that puts tied candidates in descending order of id."""
  if ids is None:
    raise InputError("ties='trec' orders tied candidates by their ids: give ids")
  if not np.array_equal([len(x) for x in ids], lengths):
    raise InputError("ids and scores differ in questions or candidates: give one id a candidate")
  flat = [candidate for question in ids for candidate in question]
  key = np.zeros(len(flat), np.int64)
  alone = starts & np.append(starts[1:], True)[: len(starts)]
  tied = order[~alone]
  # Python orders strings by code point, which is the order of their UTF-8 bytes.
  number = {text: i for i, text in enumerate(sorted({flat[i] for i in tied}))}
  key[tied] = [-number[flat[i]] for i in tied]
  question = np.repeat(np.arange(len(lengths)), lengths)
  by_id = tied[np.lexsort((key[tied], question[tied]))]
  twice = (question[by_id[1:]] == question[by_id[:-1]]) & (key[by_id[1:]] == key[by_id[:-1]])
  for i in by_id[1:][twice][:1]:
    raise InputError(
      f"{_name(names, question[i])}: candidate id {flat[i]!r} occurs twice: ids must differ"
    )
  return key


def _reciprocal_rank(ranking: _Ranking) -> np.ndarray:
  """Return the expectation of 1 / (rank of the first positive), [n] (0 without one)."""
  reciprocal = np.zeros(len(ranking.positives))
  deciding = np.flatnonzero((ranking.before == 0) & (ranking.relevant > 0))
  first = np.flatnonzero(ranking.place == 0)[deciding]
  question, rank = ranking.question[first], ranking.rank[first]
  size, relevant = ranking.size[deciding], ranking.relevant[deciding]
  missed = np.ones(len(deciding))  # the probability that the group's places so far are negative
  place = 0
  while len(question):  # once a place; groups whose negatives are used up drop out
    reciprocal[question] += missed * relevant / (size - place) / (rank + place)
    missed = missed * (size - relevant - place) / (size - place)
    place += 1
    left = size - relevant >= place
    question, rank, missed = question[left], rank[left], missed[left]
    size, relevant = size[left], relevant[left]
  return reciprocal


def _name(names, i) -> str:
  return f"question {names[i]!r}" if names is not None else f"question {int(i) + 1}"
