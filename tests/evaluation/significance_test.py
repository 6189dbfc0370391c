import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from as2jax.evaluation import significance
from as2jax.evaluation.significance import methods_test, paired_t_test
from as2jax.runtime.errors import InputError


def two_systems(count):
  random = np.random.default_rng(0)
  a = random.random(count)
  return a, np.clip(a + random.normal(0.03, 0.2, count), 0, 1)


@pytest.mark.parametrize("count", [2, 3, 20, 633])
def test_t_test_is_scipys(count):
  a, b = two_systems(count)
  actual, reference = significance.paired_t_test(a, b), stats.ttest_rel(a, b)
  assert actual.p == pytest.approx(reference.pvalue, rel=1e-9)
  interval = reference.confidence_interval(0.95)
  assert actual.difference == pytest.approx((interval.low + interval.high) / 2)
  assert actual.half_width == pytest.approx((interval.high - interval.low) / 2)
  assert actual.questions == count


def test_exact_randomization_test_by_enumeration_with_equal_sums():
  # Tenths are not exact in binary: equal sums must still count as equal.
  difference = np.array([0.1, 0.2, 0.3, -0.1, 0.4, 0.0, 0.0])
  whole = np.array([1, 2, 3, -1, 4])
  sums = [abs(np.dot(signs, whole)) for signs in itertools.product((1, -1), repeat=5)]
  actual = significance.randomization_test(difference, np.zeros(7))
  assert actual.p == np.mean(np.array(sums) >= abs(whole.sum()))
  assert actual.questions == 7


def test_sampled_randomization_test():
  a, b = two_systems(200)
  actual = significance.randomization_test(a, b, samples=20_000)
  assert actual == significance.randomization_test(a, b, samples=20_000)  # of the same seed
  assert actual.p != significance.randomization_test(a, b, samples=20_000, seed=1).p
  exact = stats.ttest_rel(a, b).pvalue  # close to it for so many questions
  assert abs(actual.p - exact) < 5 * np.sqrt(exact / 20_000) + 0.002
  swapped = significance.randomization_test(b, a, samples=20_000)
  assert swapped.difference == -actual.difference and swapped.p == actual.p
  order = np.random.default_rng(1).permutation(200)
  assert significance.randomization_test(a[order], b[order], samples=20_000).p == actual.p
  assert significance.randomization_test(a + 1, a, samples=999).p == 1 / 1000  # never zero


def test_equal_systems_have_p_one():
  a, _ = two_systems(30)
  assert significance.randomization_test(a, a).p == paired_t_test(a, a).p == 1
  assert paired_t_test(a + 0.1, a).p == 0
  written = np.array([float(f"{value:.10g}") for value in a])  # as a table of ten digits has it
  assert np.any(written != a)
  for test in (paired_t_test, significance.randomization_test):
    assert test(a, written).p == 1 and test(a, written).difference == 0
  fixed = methods_test(a, written, fixed=(True, True))
  assert (fixed.difference, fixed.p) == (0, 1)


def test_holm_by_hand():
  np.testing.assert_allclose(significance.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
  np.testing.assert_allclose(significance.holm([0.5, 0.9]), [1, 1])
  assert significance.holm([]).shape == (0,)


@pytest.mark.parametrize(
  "a, b, message",
  [
    (np.zeros(3), np.zeros(4), "3 questions against 4"),
    (np.zeros(1), np.zeros(1), "at least 2 questions"),
    (np.zeros((2, 3, 4)), np.zeros(4), "shape"),
    (np.zeros(0), np.zeros(0), "give finite"),
    (np.array([0.0, np.nan]), np.zeros(2), "give finite"),
  ],
)
def test_bad_input(a, b, message):
  for test in (significance.paired_t_test, significance.randomization_test):
    with pytest.raises(InputError, match=message):
      test(a, b)


def test_macro_t_test_of_two_datasets_is_welchs():
  """With two datasets the sum of the means of d and -(-d) is what Welch's test compares."""
  a, b = zip(two_systems(7), two_systems(40))
  actual = significance.macro_test(a, b, samples=1)[0]
  d = [x - y for x, y in zip(a, b)]
  reference = stats.ttest_ind(d[0], -d[1], equal_var=False)
  interval = reference.confidence_interval(0.95)
  assert actual.p == pytest.approx(reference.pvalue, rel=1e-9)
  assert actual.difference == pytest.approx((d[0].mean() + d[1].mean()) / 2)
  assert actual.half_width == pytest.approx((interval.high - interval.low) / 4)
  assert actual.questions == 47


def test_macro_randomization_test_by_enumeration():
  a, b = [np.array([0.5, 0.9]), np.array([0.3, 0.6, 0.2])], [np.array([0.1, 1.0]), np.zeros(3)]
  d = [x - y for x, y in zip(a, b)]
  observed = abs(d[0].mean() + d[1].mean())
  sums = [
    abs((d[0] * signs[:2]).mean() + (d[1] * signs[2:]).mean())
    for signs in itertools.product((1, -1), repeat=5)
  ]
  actual, p = significance.macro_test(a, b)
  assert p == np.mean(np.array(sums) >= observed - 1e-12)
  assert actual.difference == pytest.approx((d[0].mean() + d[1].mean()) / 2)


def test_scipy_is_imported_only_where_a_test_is_made():
  """Most of what imports this module tests nothing; scipy.special alone takes 0.3 s."""
  code = "import sys, as2jax.evaluation.significance, as2jax.evaluation.run_scores as s; print('scipy' in sys.modules)"
  process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
  assert process.stdout == "False\n", process.stderr


def test_one_or_two_seeds_tell_too_little_of_a_method():
  """With strong luck of a run 7.6 % of the nulls of two seeds have p < .05."""
  rng = np.random.default_rng(0)
  several, two, one = (rng.random((seeds, 20)) for seeds in (3, 2, 1))
  pairs = [(several, one, "one seed"), (one, several, "one seed"), (one[0], one, "one seed")]
  for a, b, why in (*pairs, (several, two, "two seeds")):
    actual = methods_test(a, b)
    assert actual.why == f"cannot be told from {why}" and actual.p is actual.half_width is None
    assert actual.difference == pytest.approx(np.mean(a) - np.mean(b))


def grouped_by_hand(a, b, groups):
  """Return difference, variance and degrees of freedom of methods, term by term in plain loops."""
  names = sorted(set(groups))
  count = a.shape[1]
  share = [groups.count(name) / count for name in names]
  k = sum(w * w for w in share)
  c = k / (k - 2 * sum(w**3 for w in share) + k * k)
  d = a.mean(0) - b.mean(0)

  def squares(values):
    total = 0.0
    for name in names:
      total += sum(value for value, group in zip(values, groups) if group == name) ** 2
    return total

  questions = c * squares(d - d.mean()) / count**2
  residual = 0.0
  for x in (a, b):
    for s in range(len(x)):
      residual += squares(x[s] - x.mean(0) - x[s].mean() + x.mean())
  runs = len(a) + len(b) - 2
  twice = c * residual / (count**2 * runs) * (1 / len(a) + 1 / len(b))
  terms = [x.mean(1).var(ddof=1) / len(x) for x in (a, b)] + [questions, -twice]
  freedoms = [len(a) - 1, len(b) - 1, len(names) - 1, runs * (len(names) - 1)]
  variance = sum(terms)
  if variance <= questions:
    return d.mean(), questions, len(names) - 1
  wanted = variance**2 / sum(t * t / f for t, f in zip(terms, freedoms))
  return d.mean(), variance, min(max(wanted, min(freedoms)), len(names) - 1)


@pytest.mark.parametrize("groups", ["bbbbbaacdefb", "abcdefghijkl"])
@pytest.mark.parametrize("luck", [0.0, 1.0, 4.0])
def test_methods_by_hand(luck, groups):
  rng = np.random.default_rng(6)
  a, b = rng.random((4, 12)) + luck * rng.random((4, 1)), rng.random((3, 12))
  groups = list(groups)
  difference, variance, freedom = grouped_by_hand(a, b, groups)
  actual = methods_test(a, b, groups=groups)
  assert (actual.difference, actual.freedom) == pytest.approx((difference, freedom))
  t = stats.t(freedom)
  assert actual.half_width == pytest.approx(t.ppf(0.975) * variance**0.5)
  assert actual.p == pytest.approx(2 * t.sf(abs(difference) / variance**0.5))
  assert actual.detectable == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * variance**0.5)
  fixed = methods_test(a, b, fixed=(True, True), groups=groups)  # questions alone are random
  alone = paired_t_test(a, b, groups)
  assert (fixed.p, fixed.half_width) == pytest.approx((alone.p, alone.half_width))
  assert alone.half_width == pytest.approx(significance.half_width(a.mean(0) - b.mean(0), groups))
  # Methods vary more than their questions do, and never less.
  assert (actual.half_width > 1.01 * alone.half_width) == (luck > 0)
  assert (alone.questions, alone.groups) == (12, len(set(groups)))


def test_questions_of_their_own_group_are_as_without_groups():
  rng = np.random.default_rng(8)
  a, b, own = rng.random((3, 20)), rng.random((3, 20)), list(map(str, range(20)))
  for test in (methods_test, paired_t_test, significance.randomization_test):
    assert test(a, b, groups=own) == test(a, b)


def test_signs_of_a_group_flip_together():
  """Two groups: of four sign vectors two reach the observed sum, however many questions there are."""
  difference, groups = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), list("xxyyy")
  assert significance.randomization_test(difference, np.zeros(5), groups).p == 2 / 4
  three = [difference, np.array([0.1, 0.2])]
  _, p = significance.macro_test(three, [np.zeros(5), np.zeros(2)], [groups, None])
  assert p == 2 / 16  # groups of different data sets flip apart, whatever their names


def test_few_or_large_groups_are_said():
  of = significance.Groups.of
  assert of(None, 5).warning() == of(list("abcde"), 5).warning() == ""
  assert of([str(i // 2) for i in range(40)], 40).warning() == ""
  assert "40 questions from 8 groups" in of([str(i // 5) for i in range(40)], 40).warning()
  large = [str(max(i, 15)) for i in range(40)]
  assert "the largest with 40%" in of(large, 40).warning()
  with pytest.raises(InputError, match="from one article"):
    paired_t_test(np.arange(3.0), np.zeros(3), ["a"] * 3)


LUCK = 0.012  # s.d. of MAP over seeds of the trained rows in the README
CLUSTERS = {
  "each its own, as many as WikiQA's": [1] * 243,
  "fives": [5] * 40,
  "unequal": [2, 3, 5, 8, 12, 20] * 5,
  "one of a quarter": [60] + [9] * 20,
}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(1, 1), (3, 3), (5, 1)], ids=str)
@pytest.mark.parametrize("sizes", CLUSTERS)
def test_equal_methods_of_dependent_questions_differ_as_rarely_as_they_should(sizes, seeds):
  """Half of what a method or a run has of its own on a question is its article's."""
  rng = np.random.default_rng(11)
  number = np.repeat(np.arange(len(CLUSTERS[sizes])), CLUSTERS[sizes])
  groups, count, draws = number.astype(str), number.max() + 1, 10_000
  fixed = tuple(one == 1 for one in seeds)

  def effect(rows, size):
    of_group = rng.normal(0, size / 2**0.5, (rows, count))[:, number]
    return of_group + rng.normal(0, size / 2**0.5, (rows, len(number)))

  wins = 0
  for _ in range(draws):
    values = []
    for one in seeds:
      runs_of_it = effect(1, 0.1)
      if one > 1:
        runs_of_it = runs_of_it + effect(one, 0.1) + rng.normal(0, LUCK, (one, 1))
      values.append(runs_of_it)
    wins += methods_test(*values, fixed=fixed, groups=groups).p < 0.05
  assert wins / draws <= 0.06


def test_the_average_over_datasets_of_methods():
  """Variances add; equal ones with equal degrees of freedom have twice these."""
  rng = np.random.default_rng(5)
  one = methods_test(rng.random((3, 40)), rng.random((3, 40)))
  both = significance.macro_methods_test([one, one])
  error = one.half_width / stats.t(one.freedom).ppf(0.975) / 2**0.5
  t = stats.t(2 * one.freedom)
  assert both.difference == pytest.approx(one.difference)
  assert both.freedom == pytest.approx(2 * one.freedom)
  assert both.half_width == pytest.approx(t.ppf(0.975) * error)
  untold = methods_test(rng.random((1, 9)), rng.random((3, 9)))
  assert significance.macro_methods_test([one, untold]).why == significance.ONE_SEED
  same = methods_test(np.ones((3, 9)), np.zeros((3, 9)))
  assert significance.macro_methods_test([same, same]).p == 0
