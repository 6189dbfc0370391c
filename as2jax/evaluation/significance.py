"""Test whether one system is better than another: paired tests over questions, half-widths.

Values are one metric's per-question scores, [questions] or [seeds, questions]. *Are these models
better?* The trained parameters are fixed, seeds are averaged per question, the question is the unit
(`paired_t_test`, `randomization_test`). *Is this method better?* Other seeds would give other
models, so seeds and questions are both random (`methods_test`).

Questions that share an article are not independent: they are a *group*, and groups are what is drawn. With G groups
of n_g of Q questions, w_g = n_g/Q and K = Σ w², sums over groups are multiplied by
c = K / (K − 2 Σ w³ + K²), which is G/(G−1) for equal groups: the expectation is right for independent groups.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.runtime.errors import InputError

ONE_STAGE = "cannot be told: its seeds began with one first stage"
ONE_SEED = "cannot be told from one seed"
TWO_SEEDS = "cannot be told from two seeds"  # with strong luck of a run 8 % of nulls have p < .05
FEW_GROUPS, LARGE_GROUP = 10, 0.25  # fewer, or a larger share of the questions, is said
SAMPLES = 100_000  # of the randomization test
ROUNDED = 1e-9  # relative: tables of per-question scores may have ten digits
Named = Sequence[Any] | np.ndarray | None  # the group of each question; None where each is its own
_EXACT = 16  # up to so many non-zero differences all 2^n signs are enumerated
_BLOCK = 1 << 22  # signs drawn at a time


@dataclasses.dataclass(frozen=True)
class Groups:
  """Number the groups of dependent questions.

  Attributes:
    number: [questions], the number of each question's group, from 0.
    count: of groups; correction: the factor c of sums over groups.

  """

  number: np.ndarray
  count: int
  correction: float

  @classmethod
  def of(cls, groups: Named, questions: int) -> "Groups":
    """Number the groups of `questions` questions by their names; None for each question its own."""
    number = np.arange(questions)
    if groups is not None:
      if len(groups) != questions:
        raise InputError(
          f"{len(groups)} groups for {questions} questions: give each question its group"
        )
      number = np.unique(np.asarray(groups), return_inverse=True)[1]
    share = np.bincount(number) / questions
    squares = float(np.square(share).sum())
    rest = squares - 2 * float((share**3).sum()) + squares**2
    return cls(number, len(share), squares / rest if len(share) > 1 else np.inf)

  def sums(self, values: np.ndarray) -> np.ndarray:
    """Return [..., groups]: the sums of [..., questions] over each group."""
    return np.apply_along_axis(
      lambda row: np.bincount(self.number, row, self.count), -1, np.asarray(values)
    )

  def variance(self, values: np.ndarray) -> float:
    """Return the variance of the mean of [questions] values, had other groups been drawn."""
    deviations = self.sums(values - values.mean())
    return self.correction * float(np.square(deviations).sum()) / len(values) ** 2

  def warning(self) -> str:
    """Say where groups are too few, or one too large, for their half-widths to be relied on; else ""."""
    if self.count == len(self.number):
      return ""
    largest = np.bincount(self.number).max() / len(self.number)
    if self.count >= FEW_GROUPS and largest <= LARGE_GROUP:
      return ""
    return (
      f"{len(self.number)} questions from {self.count} groups (articles, series), the largest with "
      f"{largest:.0%}: half-widths and p-values of so few or unequal groups are rough"
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Hold the test of two systems on the same questions, `difference` a - b in units of the metric."""

  difference: float
  half_width: float  # 95 %
  p: float  # two-sided
  questions: int
  groups: int


@dataclasses.dataclass(frozen=True)
class MethodsComparison:
  """Hold the test of two methods on the same questions; None where it cannot be told.

  Attributes:
    difference: mean of a - b over seeds and questions, in units of the metric.
    half_width, p: 95 % half-width of that mean over seeds and questions; two-sided p-value.
    freedom: Satterthwaite's degrees of freedom.
    detectable: the smallest difference that this comparison would find (p < .05) in 80 % of cases.
    why: why it cannot be told, "" where it can.

  """

  difference: float
  half_width: float | None = None
  p: float | None = None
  freedom: float | None = None
  detectable: float | None = None
  why: str = ""


def methods_test(
  a: np.ndarray, b: np.ndarray, *, fixed: tuple[bool, bool] = (False, False), groups: Named = None
) -> MethodsComparison:
  """Compare two methods: seeds are nested in the method, questions are crossed with both.

  The variance of the difference of means (Obuchowski and Rockette 1995; Clark's quasi-F, 1973) is

    V = s²_A/S_A + s²_B/S_B + V_q − W (1/S_A + 1/S_B), never below V_q,

  with s²_A, s²_B the variances over seeds of the means over questions, V_q the variance of the
  mean over groups of questions of the difference of the means over seeds, and W that of what seeds
  and questions leave (pooled over both methods), which the first three terms count twice. The
  difference over √V is compared with Student's t with Satterthwaite's degrees of freedom, at most
  G − 1, and at least those of the term that has the fewest (they would be fewer where the last term
  nearly cancels the others).

  Args:
    a, b: `[seeds, questions]` (or `[questions]`, one seed); three seeds at least, where not fixed.
    fixed: whether a and b are without randomness (BM25, an untrained cosine): their seed variance
      is 0, and one run is all there is.
    groups: the group of each question; None where each is its own.

  """
  difference = _differences(a, b)
  mean, by_group = float(difference.mean()), Groups.of(groups, len(difference))
  questions = by_group.variance(difference)
  terms = []  # of the variance, with their degrees of freedom
  residual, runs, inverse = 0.0, 0, 0.0
  for values, known in zip((a, b), fixed, strict=True):
    if known:
      continue
    values = np.atleast_2d(np.asarray(values, np.float64))
    seeds = len(values)
    if seeds < 3:
      return MethodsComparison(mean, why=ONE_SEED if seeds == 1 else TWO_SEEDS)
    of_seed = values.mean(1)
    rest = values - values.mean(0) - of_seed[:, None] + values.mean()
    terms.append((float(of_seed.var(ddof=1)) / seeds, seeds - 1))
    residual += float(np.square(by_group.sums(rest)).sum())
    runs += seeds - 1
    inverse += 1 / seeds
  freedom = by_group.count - 1
  twice = by_group.correction * residual / max(runs, 1) / len(difference) ** 2
  terms += [(questions, freedom), (-twice * inverse, runs * freedom)]
  variance = sum(term for term, _ in terms)
  freedom = float(freedom)
  if variance > questions:
    fewest = min(f for t, f in terms if t > 0)
    freedom = min(max(variance**2 / sum(t * t / f for t, f in terms if f), fewest), freedom)
  error = float(np.sqrt(max(variance, questions)))
  return _methods_comparison(mean, error, freedom, float(np.abs(difference).max()))


def question_means(values: np.ndarray) -> np.ndarray:
  """Return [questions] float64: the mean over seeds of [seeds, questions] (or [questions])."""
  values = np.asarray(values, np.float64)
  if values.ndim not in (1, 2) or not values.size or not np.isfinite(values).all():
    raise InputError(
      f"per-question values of shape {values.shape}: give finite [questions] or [seeds, questions]"
    )
  return values if values.ndim == 1 else values.mean(0)


def count_text(questions: int, groups: int | None) -> str:
  """Return `54 questions of 17 groups`; without groups where each question is its own."""
  text = "1 question" if questions == 1 else f"{questions} questions"
  return text if groups in (None, questions) else f"{text} of {groups} groups"


def half_width(values: np.ndarray, groups: Named = None) -> float | None:
  """Return the 95 % half-width of the mean over questions (Student's t); None for one group."""
  values = question_means(values)
  by_group = Groups.of(groups, len(values))
  if by_group.count < 2:
    return None
  return _quantile(by_group.count - 1) * float(np.sqrt(by_group.variance(values)))


def mean_sd(values: np.ndarray) -> tuple[float, float | None]:
  """Return mean and sample standard deviation of [seeds] values; the s.d. of one seed is None."""
  values = np.asarray(values, np.float64)
  return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None


def paired_t_test(a: np.ndarray, b: np.ndarray, groups: Named = None) -> Comparison:
  """Compare two systems by Student's paired t-test over (groups of) questions, two-sided (CETE's test).

  A difference that is the same for every question has no variance: p is 1 where it is zero, else 0.
  """
  difference = _differences(a, b)
  by_group = Groups.of(groups, len(difference))
  error = np.sqrt(by_group.variance(difference))
  largest = np.abs(difference).max()
  p = _two_sided(difference.mean(), error, by_group.count - 1, largest)
  return _comparison(difference, by_group, p)


def randomization_test(
  a: np.ndarray, b: np.ndarray, groups: Named = None, *, samples: int = SAMPLES, seed: int = 0
) -> Comparison:
  """Compare two systems by the paired randomization (sign-flip) test over questions, two-sided.

  Under the null hypothesis each group's differences have either sign, all of them at once, with equal
  probability; p is the share of sign vectors whose |sum| reaches the observed one. Exact where at most
  16 sums are not zero; otherwise estimated as (1 + hits) / (1 + samples), which is never 0.
  """
  difference = _differences(a, b)
  by_group = Groups.of(groups, len(difference))
  sums = by_group.sums(difference)
  # Sorted magnitudes: p depends on neither the order of the questions nor that of the systems.
  moved = np.sort(np.abs(sums[sums != 0]))
  total = moved.sum()
  # Equal sums in exact arithmetic must count as equal after rounding.
  reached = abs(difference.sum()) - 1e-12 * total

  def hits(flips):  # [samples, n] of 0 and 1: the negative differences
    return int(np.count_nonzero(np.abs(total - 2 * (flips @ moved)) >= reached))

  if len(moved) <= _EXACT:
    flips = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
    return _comparison(difference, by_group, hits(flips) / len(flips))
  random = np.random.default_rng(seed)
  block = max(_BLOCK // len(moved), 1)
  count = 0
  for start in range(0, samples, block):
    rows = min(block, samples - start)
    bits = np.frombuffer(random.bytes((rows * len(moved) + 7) // 8), np.uint8)
    flips = np.unpackbits(bits, count=rows * len(moved)).reshape(rows, len(moved))
    count += hits(flips.astype(np.float64))
  return _comparison(difference, by_group, (1 + count) / (1 + samples))


def macro_test(
  a: Sequence[np.ndarray],
  b: Sequence[np.ndarray],
  groups: Sequence[Named] | None = None,
  *,
  samples: int = SAMPLES,
  seed: int = 0,
) -> tuple[Comparison, float]:
  """Compare two systems' averages over datasets, each weighing the same; return p of signs beside.

  The difference is Σ_k mean_k(a - b) / K. Its error is that of questions drawn anew from the same
  K datasets, √(Σ_k V_k) / K, with Welch and Satterthwaite's degrees of freedom. The second p is that
  of the randomization test, in which the weighted differences of each group have either sign.
  """
  parts = list(map(_differences, a, b))
  by_group = [
    Groups.of(one, len(x)) for x, one in zip(parts, groups or [None] * len(parts), strict=True)
  ]
  every, sizes = np.concatenate(parts), np.array(list(map(len, parts)))
  mean = float(np.mean(list(map(np.mean, parts))))
  variances = np.array([one.variance(x) for one, x in zip(by_group, parts, strict=True)])
  counts = np.array([one.count for one in by_group])
  largest, questions = np.abs(every).max(), len(every)
  error, freedom = _of_average(variances, counts - 1, largest)
  weighted = every * np.repeat(questions / len(parts) / sizes, sizes)
  before = np.cumsum(counts) - counts
  names = np.concatenate([one.number + first for one, first in zip(by_group, before, strict=True)])
  signs = randomization_test(weighted, np.zeros(questions), names, samples=samples, seed=seed)
  p = _two_sided(mean, error, freedom, largest)
  width = _quantile(freedom) * error
  return Comparison(mean, width, p, questions, int(counts.sum())), signs.p


def macro_methods_test(parts: Sequence[MethodsComparison]) -> MethodsComparison:
  """Compare two methods' averages over datasets, on each of which both were trained apart.

  The variance of the average is Σ_k V_k / K², with Welch and Satterthwaite's degrees of freedom.
  """
  difference = float(np.mean([part.difference for part in parts]))
  for part in parts:
    if part.why:
      return MethodsComparison(difference, why=part.why)
  freedoms = np.array([part.freedom for part in parts])
  widths = np.array([part.half_width for part in parts])
  variances = (widths / np.array(list(map(_quantile, freedoms)))) ** 2
  largest = max(abs(part.difference) for part in parts)
  error, freedom = _of_average(variances, freedoms, largest)
  return _methods_comparison(difference, error, freedom, largest)


def _of_average(variances, freedoms, largest) -> tuple[float, float]:
  """Return the standard error of an average of means, and Welch and Satterthwaite's degrees of freedom."""
  error = float(np.sqrt(variances.sum())) / len(variances)
  if error <= 1e-14 * largest:  # rounding alone
    return 0.0, 1.0
  return error, float(variances.sum() ** 2 / (variances**2 / freedoms).sum())


def _methods_comparison(mean, error, freedom, largest) -> MethodsComparison:
  p = _two_sided(mean, error, freedom, largest)
  if error <= 1e-14 * largest:
    return MethodsComparison(mean, 0.0, p, freedom, 0.0)
  wide = _quantile(freedom)
  detectable = (wide + _quantile(freedom, 0.8)) * error
  return MethodsComparison(mean, wide * error, p, freedom, detectable)


def holm(p_values: Sequence[float]) -> np.ndarray:
  """Return p-values adjusted for several comparisons (Holm 1979), in the order given."""
  p = np.asarray(p_values, np.float64)
  order = np.argsort(p, kind="stable")
  adjusted = np.empty_like(p)
  adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
  return adjusted


def _differences(a, b) -> np.ndarray:
  """Return the difference of each question; 0 where only a table's digits tell one from the other."""
  a, b = question_means(a), question_means(b)
  if a.shape != b.shape or len(a) < 2:
    raise InputError(
      f"{len(a)} questions against {len(b)}: both systems must answer the same, at least 2 questions"
    )
  equal = np.abs(a - b) <= ROUNDED * np.maximum(np.abs(a), np.abs(b))
  return np.where(equal, 0.0, a - b)


def _comparison(difference, by_group: Groups, p) -> Comparison:
  count = by_group.count
  if count < 2:
    raise InputError("all questions are of one group: a difference cannot be told from one article")
  width = _quantile(count - 1) * float(np.sqrt(by_group.variance(difference)))
  return Comparison(float(difference.mean()), width, float(p), len(difference), count)


def _two_sided(mean, error, freedom, largest) -> float:
  """Return the p-value of a mean whose standard error has `freedom` degrees of freedom."""
  # Rounding alone leaves a constant difference with a spread of about one unit in the last place.
  if error <= 1e-14 * largest:
    return 1.0 if mean == 0 else 0.0
  from scipy.special import stdtr  # here and below: it takes a third of a second

  return float(2 * stdtr(freedom, -abs(mean) / error))


def _quantile(freedom, probability: float = 0.975) -> float:
  from scipy.special import stdtrit

  return float(stdtrit(freedom, probability))
