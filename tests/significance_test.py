import itertools

import numpy as np
import pytest
from scipy import stats

from as2jax import runs, significance
from as2jax.errors import InputError


def two_systems(count, seed=0):
  random = np.random.default_rng(seed)
  a = random.random(count)
  return a, np.clip(a + random.normal(0.03, 0.2, count), 0, 1)


@pytest.mark.parametrize("count", [2, 3, 20, 633])
def test_t_test_is_scipys(count):
  a, b = two_systems(count)
  found, reference = significance.paired_t_test(a, b), stats.ttest_rel(a, b)
  assert found.p == pytest.approx(reference.pvalue, rel=1e-9)
  interval = reference.confidence_interval(0.95)
  assert found.difference == pytest.approx((interval.low + interval.high) / 2)
  assert found.half_width == pytest.approx((interval.high - interval.low) / 2)
  assert found.questions == count


def test_t_test_without_spread():
  a = np.array([0.1, 0.2, 0.7])
  assert significance.paired_t_test(a, a).p == 1
  assert significance.paired_t_test(a + 0.1, a).p == 0


def test_exact_randomization_test_is_scipys():
  for seed in range(5):
    a, b = two_systems(9, seed)
    reference = stats.permutation_test(
      (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
      vectorized=True, n_resamples=np.inf,
    )
    assert significance.randomization_test(a, b).p == pytest.approx(reference.pvalue, rel=1e-12)


def test_exact_randomization_test_by_enumeration_with_equal_sums():
  # Tenths are not exact in binary: equal sums must still count as equal.
  difference = np.array([0.1, 0.2, 0.3, -0.1, 0.4, 0.0, 0.0])
  whole = np.array([1, 2, 3, -1, 4])
  sums = [abs(np.dot(signs, whole)) for signs in itertools.product((1, -1), repeat=5)]
  found = significance.randomization_test(difference, np.zeros(7))
  assert found.p == np.mean(np.array(sums) >= abs(whole.sum()))
  assert found.questions == 7


def test_sampled_randomization_test():
  a, b = two_systems(200)
  found = significance.randomization_test(a, b, samples=20_000)
  assert found == significance.randomization_test(a, b, samples=20_000)  # of the same seed
  assert found.p != significance.randomization_test(a, b, samples=20_000, seed=1).p
  exact = stats.ttest_rel(a, b).pvalue  # close to it for so many questions
  assert abs(found.p - exact) < 5 * np.sqrt(exact / 20_000) + 0.002
  swapped = significance.randomization_test(b, a, samples=20_000)
  assert swapped.difference == -found.difference and swapped.p == found.p
  order = np.random.default_rng(1).permutation(200)
  assert significance.randomization_test(a[order], b[order], samples=20_000).p == found.p
  assert significance.randomization_test(a + 1, a, samples=999).p == 1 / 1000  # never zero


def test_sampled_agrees_with_exact(monkeypatch):
  a, b = two_systems(14, seed=3)
  exact = significance.randomization_test(a, b).p
  monkeypatch.setattr(significance, "_EXACT", 0)
  monkeypatch.setattr(significance, "_BLOCK", 1000)  # several blocks, the last one smaller
  sampled = significance.randomization_test(a, b, samples=50_001).p
  assert abs(sampled - exact) < 5 * np.sqrt(exact * (1 - exact) / 50_000)


def test_equal_systems_have_p_one():
  a, _ = two_systems(30)
  assert significance.randomization_test(a, a).p == 1


def test_seeds_are_averaged_per_question_first():
  a, b = two_systems(40)
  noise = np.random.default_rng(5).normal(0, 0.1, 40)
  seeds = np.stack([b + noise, b - noise])
  for test in (significance.paired_t_test, significance.randomization_test):
    assert test(a, seeds).p == pytest.approx(test(a, b).p)
    assert test(a, seeds).questions == 40
  assert significance.half_width(seeds) == pytest.approx(significance.half_width(b))


def test_half_width_is_scipys():
  values, _ = two_systems(30)
  interval = stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
  assert significance.half_width(values) == pytest.approx((interval[1] - interval[0]) / 2)
  assert significance.half_width(np.array([0.5])) is None


def test_mean_and_standard_deviation_over_seeds():
  assert significance.mean_sd(np.array([0.1, 0.2, 0.3])) == pytest.approx((0.2, 0.1))
  assert significance.mean_sd(np.array([0.7])) == (0.7, None)


def test_holm_by_hand():
  np.testing.assert_allclose(significance.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
  np.testing.assert_allclose(significance.holm([0.5, 0.9]), [1, 1])
  assert significance.holm([]).shape == (0,)


@pytest.mark.parametrize("a, b, message", [
  (np.zeros(3), np.zeros(4), "3 questions against 4"),
  (np.zeros(1), np.zeros(1), "at least 2 questions"),
  (np.zeros((2, 3, 4)), np.zeros(4), "shape"),
  (np.zeros(0), np.zeros(0), "not empty"),
  (np.array([0.0, np.nan]), np.zeros(2), "not finite"),
])
def test_bad_input(a, b, message):
  for test in (significance.paired_t_test, significance.randomization_test):
    with pytest.raises(InputError, match=message):
      test(a, b)


def write_system(folder, name, values, positives=1):
  labels = [[positives, 0]] * len(values)
  ids = [f"Q{i}" for i in range(len(values))]
  runs.write_per_question(folder / name, ids, labels, {"map": values})
  return str(folder / name)


def test_command_line(tmp_path, capsys):
  a, b = two_systems(30)
  base = write_system(tmp_path, "base", a)
  other = [write_system(tmp_path, f"other{i}", b + shift) for i, shift in enumerate((-0.1, 0.1))]
  assert significance.main([base, ",".join(other), other[1], "--samples", "999"]) == 0
  title, first, second, third = capsys.readouterr().out.splitlines()
  assert title.startswith("map, 30 questions (answerable)")
  assert first == f"{base}: {a.mean():.4f} (half-width {significance.half_width(a):.4f})"
  assert f": {b.mean():.4f} s.d. 0.1414 over 2 seeds" in second
  test = significance.paired_t_test(b, a)
  assert f"{test.difference:+.4f} +- {test.half_width:.4f}, p(t) {test.p:.2g}" in second
  p = [significance.randomization_test(x, a, samples=999).p for x in (b, b + 0.1)]
  for line, value, adjusted in zip((second, third), p, significance.holm(p), strict=True):
    assert line.endswith(f"p(randomization) {value:.2g}, adjusted {adjusted:.2g}")


def test_command_line_refuses(tmp_path, capsys):
  base = write_system(tmp_path, "base", np.ones(3))
  longer = write_system(tmp_path, "longer", np.ones(4))
  unanswerable = write_system(tmp_path, "unanswerable", np.zeros(3), positives=0)
  for arguments, message in [
    ([base, longer], "longer: question 'Q3' is not in both tables"),
    ([f"{base},{longer}"], "longer: question 'Q3' is not in both tables"),
    ([unanswerable], "unanswerable: no question is counted"),
    ([base, "--metric", "mrr"], "base: no metric 'mrr': it has map"),
    ([base, "--rule", "clean"], "'clean' is not a protocol rule"),
    ([base, str(tmp_path / "none")], "none: there is no such file"),
    ([base, base, "--samples", "0"], "samples=0"),
  ]:
    assert significance.main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out
