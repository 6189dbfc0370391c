"""Compute ranking metrics of questions, exact under ties, with trec_eval's definitions.

Scores are compared in float32, as trec_eval compares them. Everything here is numpy on the host.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.data.record import UNKNOWN, Query, Question, groups_of, in_order
from as2jax.evaluation.significance import half_width
from as2jax.runtime.errors import InputError

METRICS = ("map", "mrr", "p@1", "r@1", "r@5", "ndcg@10")
# Of each task the metric that its results have, and the question filter that selects.
KEYS = {"rerank": ("map", "clean"), "retrieve": ("mrr", "gold")}
TIES = ("expected", "trec", "pessimistic")
_OPTIMISTIC: Any = object()  # positives first: of `tie_extremes` alone, no policy to ask for
TIED = 0.1  # of the questions: a table says where more of them hang on the order of tied candidates
TIE_TOLERANCE = 0.0005  # a run whose ties move the mean of a metric by more says so

_MEASURE = re.compile(
  r"(ap|map|rr|mrr|p|r|ndcg)(?:\(rel=([1-9]\d*)\))?(?:@([1-9]\d*))?", re.IGNORECASE
)
# Which questions a question filter counts, from their numbers of candidates and of positives. The `clean`
# of a dataset is one of these: `answerable` for WikiQA, `both` for TrecQA.
RULES = {
  "all": lambda candidates, positives: candidates > 0,
  "answerable": lambda candidates, positives: positives > 0,
  "both": lambda candidates, positives: (positives > 0) & (positives < candidates),
}
# By metric: worst mean, best mean, questions that differ.
Ranges = dict[str, tuple[float, float, int]]


class Measure(NamedTuple):
  """Hold what the name of a measure says: `nDCG@10`, `AP(rel=2)`, `RR@10`, `R@100`, `P@1`."""

  kind: str  # ap, rr, p, r, ndcg
  cut: float  # the last rank that counts, inf for all
  rel: int  # the least label that is right; of ndcg labels are gains

  @classmethod
  def of(cls, name: str) -> "Measure":
    """Read a name as ir_measures spells it, or as we do (`map`, `ndcg@10`); capitals do not matter."""
    found = _MEASURE.fullmatch(name)
    kind, rel, cut = found.groups() if found else ("", "", "")
    kind = kind.lower().removeprefix("m")
    if not kind or (kind in ("p", "r") and not cut) or (kind == "ndcg" and rel):
      raise InputError(
        f"{name!r} is no measure: use nDCG, nDCG@10, AP, RR, RR@10, R@100 or P@1 with any number; "
        "AP(rel=2) counts labels from 2 on as right, and so do the others but nDCG"
      )
    return cls(kind, float(cut or "inf"), int(rel or 1))

  def gains(self, labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what each label is worth: 1 or 0, of ndcg the label where it is positive."""
    if self.kind == "ndcg":
      return [np.maximum(of_question, 0) for of_question in labels]
    return [(of_question >= self.rel).astype(np.int64) for of_question in labels]


class _Ranking(NamedTuple):
  """Hold all questions' candidates in one array, question by question, best first.

  A *group* is a maximal run of candidates of one question whose order is random.
  """

  question: np.ndarray  # [m] number of the candidate's question
  rank: np.ndarray  # [m] from 1
  place: np.ndarray  # [m] position within the group, from 0
  group: np.ndarray  # [m] number of the group
  size: np.ndarray  # [g] candidates in the group
  relevant: np.ndarray  # [g] positives in the group; by graded labels their gains, as below
  before: np.ndarray  # [g] positives of the question ranked before the group
  positives: np.ndarray  # [n] positives of the question

  def summed(self, values: np.ndarray) -> np.ndarray:
    """Return the sum over each question's candidates of [m] values, [n]."""
    return np.bincount(self.question, weights=values, minlength=len(self.positives))

  def discounted(self, cut: float) -> np.ndarray:
    """Return the expected discounted cumulative gain of each question, [n]."""
    share = (self.relevant / self.size)[self.group]
    return self.summed(share * np.where(self.rank <= cut, 1 / np.log2(self.rank + 1), 0.0))


def columns_of(
  questions: Sequence[Question],
) -> tuple[list[str], list[list[str]], list[np.ndarray]]:
  """Return the ids of questions, and the ids and labels of each one's candidates."""
  names, ids, labels = [], [], []
  for question in questions:
    names.append(question.id)
    ids.append([candidate.id for candidate in question.candidates])
    labels.append(np.asarray([candidate.label for candidate in question.candidates]))
  return names, ids, labels


def per_question(
  scores: Sequence[np.ndarray],
  labels: Sequence[np.ndarray],
  ids: Sequence[Sequence[str]] | None = None,
  *,
  ties: str = "expected",
  names: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
  """Return every metric of every question, as trec_eval defines it (ties apart): {metric: [questions]}.

  A question without a positive scores 0 on everything. `expected` is the exact expectation over
  uniformly random orders of tied candidates, in closed form (McSherry and Najork 2008); `trec` orders
  ties by descending id (strcmp of the UTF-8 bytes), `pessimistic` puts negatives first.

  Args:
    scores, labels: one array [candidates] a question; labels are 1, 0 and `UNKNOWN` (negative).
    ids: of the candidates, needed by `trec` alone; names: of the questions, for error messages.

  """
  ranking = _rank(scores, labels, ids, ties, names)
  best = _rank(labels, labels, None, "expected", names)
  return {name: _measured(ranking, best, Measure.of(name)) for name in METRICS}


def judged(
  scores: Sequence[np.ndarray],
  labels: Sequence[np.ndarray],
  every: Sequence[np.ndarray],
  measures: Sequence[str],
  ids: Sequence[Sequence[str]] | None = None,
  *,
  ties: str = "expected",
) -> dict[str, np.ndarray]:
  """Return measures of ranked lists by graded labels, as trec_eval has them: {name: [questions]}.

  Args:
    scores, labels, ids, ties: of what is ranked, as in `per_question`; labels are integers.
    every: all labels of each question, also of what is not ranked.
    measures: names, see `Measure`.

  """
  rankings: dict[tuple[bool, int], tuple[_Ranking, _Ranking]] = {}
  found = {}
  for name in measures:
    measure = Measure.of(name)
    rule = measure.kind == "ndcg", measure.rel
    if rule not in rankings:
      best = measure.gains(every)
      ranking = _rank(scores, measure.gains(labels), ids, ties, None, graded=True)
      rankings[rule] = ranking, _rank(best, best, None, "expected", None, graded=True)
    found[name] = _measured(*rankings[rule], measure)
  return found


def _measured(ranking: _Ranking, best: _Ranking, measure: Measure) -> np.ndarray:
  """Return a measure of every question, [n]; `best` ranks all that is judged by its gains."""
  positives = np.maximum(best.positives, 1)
  size, relevant = ranking.size[ranking.group], ranking.relevant[ranking.group]
  # The probability that the candidate at this rank is positive.
  share = np.where(ranking.rank <= measure.cut, relevant / size, 0.0)
  if measure.kind == "p":
    return ranking.summed(share) / measure.cut
  if measure.kind == "r":
    return ranking.summed(share) / positives
  if measure.kind == "ap":
    # Positives up to this rank, given that there is one here: those of earlier groups, itself, and
    # each of the other `place` candidates of its group with probability (relevant-1)/(size-1).
    to_rank = ranking.before[ranking.group] + 1
    to_rank = to_rank + ranking.place * (relevant - 1) / np.maximum(size - 1, 1)
    return ranking.summed(share * to_rank / ranking.rank) / positives
  if measure.kind == "ndcg":
    ideal = best.discounted(measure.cut)
    return ranking.discounted(measure.cut) / np.where(ideal > 0, ideal, 1.0)
  # Of the first group with a positive, in which the first positive is.
  deciding = np.flatnonzero((ranking.before == 0) & (ranking.relevant > 0))
  begin, right = np.flatnonzero(ranking.place == 0)[deciding], ranking.relevant[deciding]
  wrong, reciprocal = ranking.size[deciding] - right, np.zeros(len(positives))
  expected = reciprocal_of_first(ranking.rank[begin] - 1, wrong, right, measure.cut)
  reciprocal[ranking.question[begin]] = expected
  return reciprocal


def with_groups(
  table: dict[str, np.ndarray], asked: Sequence[Question | Query]
) -> dict[str, np.ndarray]:
  """Return the table of [questions] columns, with `group` where questions depend on one another."""
  groups = groups_of(asked)
  return table if groups is None else {"group": np.asarray(groups, np.float64), **table}


def of_first(scores: Sequence[np.ndarray], questions: Sequence[Question]) -> dict[str, np.ndarray]:
  """Return [questions] `first_right` and `top_first`, of candidates in a document's order; else {}.

  Whether the first candidate is right, which parts questions into two strata, and how probable it is that
  it is ranked first (ties have a random order). Both are diagnostics: nothing is selected or tested by them.
  """
  if not in_order(questions):
    return {}
  right, top = np.zeros(len(questions)), np.zeros(len(questions))
  for number, (values, question) in enumerate(zip(scores, questions, strict=True)):
    if question.candidates:
      values = np.asarray(values)
      right[number] = question.candidates[0].label == 1
      top[number] = (values[0] == values.max()) / np.count_nonzero(values == values.max())
  return {"first_right": right, "top_first": top}


def filters(clean: str, official: str) -> dict[str, str]:
  """Return a data set's question filters from two rules: {name: rule}, no rule under two names."""
  named = {"clean": clean, "official": official, "answerable": "answerable", "all": "all"}
  kept: dict[str, str] = {}
  for name, rule in named.items():
    if rule and rule not in kept.values():
      kept[name] = rule
  return kept


def filter_mask(name: str, labels: Sequence[np.ndarray]) -> np.ndarray:
  """Return bool [questions]: which of them the rule `name` of `RULES` counts."""
  candidates = np.array(list(map(len, labels)), np.int64)
  positives = np.array([np.count_nonzero(np.asarray(x) == 1) for x in labels], np.int64)
  return RULES[name](candidates, positives)


def summarize(
  values: Mapping[str, np.ndarray],
  mask: np.ndarray,
  *,
  where: str,
  ranges: Ranges,
  groups: np.ndarray | None,
) -> dict[str, dict[str, float | int | None]]:
  """Return mean, 95 % half-width over questions and their number, under names with the filter.

  Args:
    values: as from `per_question`; mask: as from `filter_mask`; ranges: as from `ranges_of`.
    groups: [questions], the number of each one's group of dependent questions.
    where: data, question filter and split, `wikiqa-clean/test` of the name `map[wikiqa-clean/test]`.

  """
  count = int(np.count_nonzero(mask))
  summary: dict[str, dict[str, float | int | None]] = {}
  of = None if groups is None else groups[mask]
  for metric, value in values.items():
    chosen = np.asarray(value, np.float64)[mask]
    entry = {
      "value": float(chosen.mean()),
      "half_width": half_width(chosen, of),
      "questions": count,
    }
    if of is not None:
      entry["groups"] = len(np.unique(of))
    entry |= zip(("worst", "best", "tied_questions"), ranges[metric], strict=True)
    summary[f"{metric}[{where}]"] = entry
  return summary


def tie_extremes(
  scores: Sequence[np.ndarray], labels: Sequence[np.ndarray], *, names: Sequence[str] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Return each metric of each question under the worst and the best order of tied candidates."""
  worst = per_question(scores, labels, ties="pessimistic", names=names)
  return worst, per_question(scores, labels, ties=_OPTIMISTIC, names=names)


def ranges_of(
  worst: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray], mask: np.ndarray
) -> Ranges:
  """Return {metric: (worst mean, best mean, questions that differ)} over the questions in `mask`."""
  questions, ranges = max(int(mask.sum()), 1), {}
  for metric in worst:
    low, high = worst[metric][mask], best[metric][mask]
    tied = int(np.count_nonzero(low != high))
    ranges[metric] = float(low.sum()) / questions, float(high.sum()) / questions, tied
  return ranges


def tie_note(ranges: Ranges, where: str) -> list[str]:
  """Return one line where ties leave more than `TIE_TOLERANCE` of a metric open, else none."""
  moved = []
  for metric, (worst, best, tied) in ranges.items():
    if best - worst > TIE_TOLERANCE:
      moved.append(f"{metric} from {worst:.4f} to {best:.4f} ({tied} questions)")
  return [f"{where}: by the order of tied candidates {', '.join(moved)}"] if moved else []


def tied_text(tied: int | None, questions: int) -> str:
  """Say in how many questions a metric hangs on tied candidates, where these are more than `TIED`."""
  if tied is None or tied <= TIED * questions:
    return ""
  return f"candidates are tied in {tied} of {questions} questions"


def average_recall(
  scores: Sequence[np.ndarray], labels: Sequence[np.ndarray], *, mask: np.ndarray
) -> float:
  """Return AvgRec of the SemEval CQA tasks: mean recall at k = 1 … 10, over all questions.

  Recall at k is the number of positives among the first k candidates of every question, over the
  number that a perfect ranking would have there (Nakov et al. 2016, section 4): a ratio of sums.
  """
  ranking = _rank(scores, labels, None, "expected", None)
  counted = np.asarray(mask, bool)
  share = (ranking.relevant / ranking.size)[ranking.group]
  recalls = []
  for k in range(1, 11):
    taken = share[(ranking.rank <= k) & counted[ranking.question]].sum()
    perfect = np.minimum(ranking.positives[counted], k).sum()
    recalls.append(taken / max(perfect, 1))
  return float(np.mean(recalls))


def _rank(scores, labels, ids, ties, names, *, graded=False) -> _Ranking:
  """Check the input and sort the candidates of all questions at once."""
  if ties not in (*TIES, _OPTIMISTIC):
    raise InputError(f"ties={ties!r} is not a tie policy: use one of {', '.join(TIES)}")
  score, gain, question, lengths = _flatten(scores, labels, names, graded)
  keys = {"pessimistic": gain, _OPTIMISTIC: -gain}
  if ties == "trec":
    keys["trec"] = _descending_ids(ids, lengths)
  order = np.lexsort((keys.get(ties, question), -score, question))
  starts = np.ones(len(order), bool)  # of groups: but for `expected` the order is settled
  if ties == "expected":
    sorted_score, sorted_question = score[order], question[order]
    starts[1:] = sorted_question[1:] != sorted_question[:-1]
    starts[1:] |= sorted_score[1:] != sorted_score[:-1]
  gain = gain[order]
  group = np.cumsum(starts) - 1
  first = np.flatnonzero(starts)
  seen = np.cumsum(gain) - gain  # positives before each candidate, over all questions
  question_start = np.cumsum(lengths) - lengths
  place = np.arange(len(order))
  return _Ranking(
    question=question,
    rank=place - question_start[question] + 1,
    place=place - first[group],
    group=group,
    size=np.bincount(group, minlength=len(first)),
    relevant=np.bincount(group, weights=gain, minlength=len(first)),
    before=seen[first] - seen[question_start[question[first]]],
    positives=np.bincount(question, weights=gain, minlength=len(lengths)),
  )


def _flatten(scores, labels, names, graded):
  """Join all questions' arrays into one, cast and checked; labels are gains where they are graded."""
  lengths = np.array(list(map(len, scores)), np.int64)
  if lengths.tolist() != list(map(len, labels)):
    raise InputError("scores and labels differ in questions or candidates: give one a candidate")
  question = np.repeat(np.arange(len(lengths)), lengths)
  empty = np.zeros(0, np.float32)
  with np.errstate(over="ignore"):  # beyond float32 means infinite, as in trec_eval
    score = np.concatenate([empty, *scores]).astype(np.float32)
  label = np.concatenate([empty, *labels])
  for wrong, what in (
    (
      np.isnan(score),
      "a score is not a number (NaN); mend the model or the run file it comes from",
    ),
    (
      ~(graded | np.isin(label, (1, 0, UNKNOWN))),
      f"use the labels 1 (positive), 0 and {UNKNOWN} (unknown)",
    ),
  ):
    if wrong.any():
      at = int(np.argmax(wrong))
      number = question[at]
      name = number + 1 if names is None else repr(names[number])
      candidate = at - lengths[:number].sum() + 1
      raise InputError(
        f"question {name}, candidate {candidate} (score {score[at]}, label {label[at]}): {what}"
      )
  gain = label if graded else label == 1
  return score, gain.astype(np.int64), question, lengths


def _descending_ids(ids, lengths):
  """Return int [m]: a key that puts candidates in descending order of id."""
  if ids is None or list(map(len, ids)) != lengths.tolist():
    raise InputError("ties='trec' orders tied candidates by their ids: give one id a candidate")
  flat = list(itertools.chain.from_iterable(ids))
  # Python orders strings by code point, which is the order of their UTF-8 bytes.
  number = {text: -i for i, text in enumerate(sorted(set(flat)))}
  return np.array([number[text] for text in flat], np.int64)


def reciprocal_of_first(
  above: np.ndarray, wrong: np.ndarray, right: np.ndarray, cut: float = np.inf
) -> np.ndarray:
  """Return E[1 / rank of the first right entry], `[q]`: `above` lie before the tied ones.

  A rank below `cut` counts 0.
  """
  expected = np.zeros(len(above))
  live, place = np.flatnonzero(above < cut), 0
  missed = np.ones(len(live))
  while len(live):  # one place of the tied entries a turn
    left = wrong[live] + right[live] - place
    expected[live] += missed * right[live] / left / (above[live] + place + 1)
    missed = missed * (left - right[live]) / left
    place += 1
    more = (wrong[live] >= place) & (above[live] + place < cut)
    live, missed = live[more], missed[more]
  return expected
