"""Is one system better than another? Paired tests over questions, half-widths, means over seeds.

Values are one metric's per-question scores, [questions] or [seeds, questions]; seeds are averaged
per question first, so that the unit of every test is the question.

  python -m as2jax.significance BASE OTHER ... [--metric map] [--rule answerable]

compares systems on their tables of per-question scores (`runs.write_per_question`).
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

from as2jax.errors import InputError

_EXACT = 16  # up to so many non-zero differences all 2^n signs are enumerated
_BLOCK = 1 << 22  # signs drawn at a time


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Two systems on the same questions.

  Attributes:
    difference: mean of a - b over questions, in units of the metric.
    half_width: 95 % half-width of that mean.
    p: two-sided p-value.
    questions: how many.
  """

  difference: float
  half_width: float
  p: float
  questions: int


def question_means(values: np.ndarray) -> np.ndarray:
  """Returns [questions] float64: the mean over seeds of [seeds, questions] (or [questions])."""
  values = np.asarray(values, np.float64)
  if values.ndim not in (1, 2) or not values.size:
    raise InputError(f"per-question values of shape {values.shape}: give [questions] or [seeds, "
                     "questions], not empty")
  if not np.isfinite(values).all():
    raise InputError("a per-question value is not finite: it cannot be tested")
  return values if values.ndim == 1 else values.mean(0)


def half_width(values: np.ndarray) -> float | None:
  """Returns the 95 % half-width of the mean over questions (Student's t); None for one question."""
  values = question_means(values)
  count = len(values)
  if count < 2:
    return None
  return float(stdtrit(count - 1, 0.975) * values.std(ddof=1) / np.sqrt(count))


def mean_sd(values: np.ndarray) -> tuple[float, float | None]:
  """Returns mean and sample standard deviation of [seeds] values; the s.d. of one seed is None."""
  values = np.asarray(values, np.float64)
  if values.ndim != 1 or not values.size:
    raise InputError(f"values of shape {values.shape}: give one value a seed")
  return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None


def paired_t_test(a: np.ndarray, b: np.ndarray) -> Comparison:
  """Compares two systems by Student's paired t-test over questions (CETE's test), two-sided.

  A difference that is the same for every question has no variance: p is 1 where it is zero, else 0.
  """
  difference = _differences(a, b)
  count, mean = len(difference), difference.mean()
  error = difference.std(ddof=1) / np.sqrt(count)
  # Rounding alone leaves a constant difference with a spread of about one unit in the last place.
  if error <= 1e-14 * np.abs(difference).max():
    p = 1.0 if mean == 0 else 0.0
  else:
    p = 2 * stdtr(count - 1, -abs(mean) / error)
  return _comparison(difference, p)


def randomization_test(
  a: np.ndarray, b: np.ndarray, *, samples: int = 100_000, seed: int = 0
) -> Comparison:
  """Compares two systems by the paired randomization (sign-flip) test over questions, two-sided.

  Under the null hypothesis each question's difference has either sign with equal probability; p is
  the share of sign vectors whose |sum| reaches the observed one. Exact where at most 16 differences
  are not zero; otherwise estimated as (1 + hits) / (1 + samples), which is never 0.
  """
  difference = _differences(a, b)
  if samples < 1:
    raise InputError(f"samples={samples}: give at least 1")
  # Sorted magnitudes: p depends on neither the order of the questions nor that of the systems.
  moved = np.sort(np.abs(difference[difference != 0]))
  total = moved.sum()
  # Equal sums in exact arithmetic must count as equal after rounding.
  reached = abs(difference.sum()) - 1e-12 * total

  def hits(flips):  # [samples, n] of 0 and 1: the negative differences
    return int(np.count_nonzero(np.abs(total - 2 * (flips @ moved)) >= reached))

  if len(moved) <= _EXACT:
    flips = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
    return _comparison(difference, hits(flips) / len(flips))
  random = np.random.default_rng(seed)
  block = max(_BLOCK // len(moved), 1)
  count = 0
  for start in range(0, samples, block):
    rows = min(block, samples - start)
    bits = np.frombuffer(random.bytes((rows * len(moved) + 7) // 8), np.uint8)
    flips = np.unpackbits(bits, count=rows * len(moved)).reshape(rows, len(moved))
    count += hits(flips.astype(np.float64))
  return _comparison(difference, (1 + count) / (1 + samples))


def holm(p_values: Sequence[float]) -> np.ndarray:
  """Returns p-values adjusted for several comparisons (Holm 1979), in the order given."""
  p = np.asarray(p_values, np.float64)
  order = np.argsort(p, kind="stable")
  adjusted = np.empty_like(p)
  adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
  return adjusted


def _differences(a, b) -> np.ndarray:
  a, b = question_means(a), question_means(b)
  if a.shape != b.shape:
    raise InputError(f"{len(a)} questions against {len(b)}: both systems must answer the same ones")
  if len(a) < 2:
    raise InputError("a paired test needs at least 2 questions, got 1")
  return a - b


def _comparison(difference, p) -> Comparison:
  return Comparison(float(difference.mean()), half_width(difference), float(p), len(difference))


def load(files: str, metric: str, rule: str) -> tuple[list[str], np.ndarray]:
  """Reads one system: ids of the questions that `rule` counts, and `metric` [seeds, questions].

  `files` are the tables of the system's seeds, joined by commas. `InputError` where a table lacks
  the metric or the tables differ in their questions.
  """
  from as2jax import metrics, runs

  if rule not in metrics.RULES:
    raise InputError(f"{rule!r} is not a protocol rule: use one of {', '.join(metrics.RULES)}")
  ids, seeds = None, []
  for path in files.split(","):
    names, table = runs.read_per_question(path)
    if metric not in table:
      raise InputError(f"{path}: no metric {metric!r}: it has {', '.join(list(table)[2:])}")
    counted = metrics.RULES[rule](table["candidates"], table["positives"])
    values = {name: table[metric][i] for i, name in enumerate(names) if counted[i]}
    ids = sorted(values) if ids is None else ids
    seeds.append(_values(path, values, ids))
  return ids, np.stack(seeds)


def compare(systems: Sequence[str], metric: str, rule: str, samples: int, seed: int) -> str:
  """Returns a text table of the systems, each beside the first and tested against it.

  `systems` are names as `load` takes them; p-values are also adjusted over the comparisons (Holm,
  of the randomization tests). Errors are those of `load` and of the tests.
  """
  loaded = [load(files, metric, rule) for files in systems]
  ids, base = loaded[0]
  tests = []
  for files, (names, values) in zip(systems[1:], loaded[1:], strict=True):
    _values(files, dict.fromkeys(names), ids)
    tests.append((paired_t_test(values, base),
                  randomization_test(values, base, samples=samples, seed=seed)))
  adjusted = holm([randomized.p for _, randomized in tests])
  lines = [f"{metric}, {len(ids)} questions ({rule}), differences to {systems[0]}"]
  for i, (files, (_, values)) in enumerate(zip(systems, loaded, strict=True)):
    mean, spread = mean_sd(values.mean(1))
    width = half_width(values)
    line = f"{files}: {mean:.4f}"
    line += "" if spread is None else f" s.d. {spread:.4f} over {len(values)} seeds"
    line += "" if width is None else f" (half-width {width:.4f})"
    if i:
      t, randomized = tests[i - 1]
      line += f"; {t.difference:+.4f} +- {t.half_width:.4f}, p(t) {t.p:.2g}, p(randomization) "
      line += f"{randomized.p:.2g}, adjusted {adjusted[i - 1]:.2g}"
    lines.append(line)
  return "\n".join(lines)


def _values(path, values, ids) -> list:
  """Returns the values in the order of `ids`, which must be the same questions."""
  if not ids:
    raise InputError(f"{path}: no question is counted: take another rule")
  for name in sorted(values.keys() ^ set(ids))[:1]:
    raise InputError(f"{path}: question {name!r} is not in both tables: compare the same split")
  return [values[name] for name in ids]


def main(arguments: Sequence[str] | None = None) -> int:
  """Prints `compare` of the systems on the command line; returns the exit status."""
  parser = argparse.ArgumentParser(prog="python -m as2jax.significance", description=main.__doc__)
  parser.add_argument("systems", nargs="+", metavar="SYSTEM",
                      help="tables of per-question scores, those of one system's seeds joined by "
                      "commas; the first system is the base")
  parser.add_argument("--metric", default="map")
  parser.add_argument("--rule", default="answerable", help="the questions to count")
  parser.add_argument("--samples", type=int, default=100_000)
  parser.add_argument("--seed", type=int, default=0)
  try:
    print(compare(**vars(parser.parse_args(arguments))))
  except InputError as e:
    print(e, file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
