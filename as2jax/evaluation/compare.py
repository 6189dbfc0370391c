"""Compare systems question by question, each with the first.

  BASE X Y: on one dataset, difference of each metric, its 95 % half-width over questions, relative
    gain, p of the paired t-test and of the paired randomization test, and both p adjusted for the
    number of systems that are compared with BASE (Holm, within a metric).
  A1 A2 vs B1 B2: systems A and B on the same datasets 1 and 2, in the same order (CETE, Figure 4).
    Three hypotheses are tested about the average, because a p-value of it may mean any of them:
    `macro average`: each dataset weighs the same, the unit is the question (t-test with Welch and
    Satterthwaite's degrees of freedom; signs of the weighted differences);
    `all questions`: each question weighs the same, whatever its dataset;
    `datasets`: the unit is the dataset, whose means are paired.

Two comparisons are named. *These models*: seeds are averaged per question, the question is the
unit (t, rand.). *These methods*: training again would give other models, so seeds and questions are
both random (`significance.methods_test`); with one seed of a trained system it cannot be told. A
relative gain is that of the averages, (B - A) / A.
"""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders import pretraining
from as2jax.evaluation import run_scores, significance, tables
from as2jax.evaluation.run_scores import QUESTION_FILTERS, RunScores
from as2jax.runtime.errors import InputError

__all__ = ["QUESTION_FILTERS", "compare", "compare_groups", "run"]

VERSUS = "vs"
Row = dict[str, Any]


def run(
  names: Sequence[str],
  *,
  metrics: str,
  split: str,
  question_filter: str | None,
  samples: int,
  seed: int,
  form: str,
  deterministic: Sequence[str] = (),
) -> str:
  """Return the comparison of a command line as `text`, `json` or `csv`.

  Args:
    metrics: names joined by commas; "" for MAP and MRR, or MRR and R@1 of retrieval, which has no MAP.

  Raises:
    InputError: systems that cannot be compared (see `run_scores.load`), a metric that they lack,
      groups of different sizes, or with two runs on the same questions.

  """
  for name in sorted(set(deterministic) - set(names))[:1]:
    raise InputError(f"--deterministic={name}: it is none of the systems that are compared")
  datasets, seen = [], []
  for places in zip(*_groups(names), strict=True) if VERSUS in names else [names]:
    fixed = [name for name in places if name in deterministic]
    loaded = run_scores.load(
      places, split=split, question_filter=question_filter, deterministic=fixed
    )
    datasets.append(loaded)
    seen += [system.pretraining for system in loaded]
  wanted = list(dict.fromkeys(name.strip() for name in metrics.split(",")))
  if not metrics:
    wanted = ["mrr", "r@1"]
    if any("map" in system.values for loaded in datasets for system in loaded):
      wanted = ["map", "mrr"]
  if VERSUS in names:
    _require_different_data(datasets)
    rows = compare_groups(datasets, wanted, samples=samples, seed=seed)
  else:
    rows = compare(datasets[0], wanted, samples=samples, seed=seed)
  known = pretraining.under_table(seen)
  if form == "json":
    head = {"split": split, "question_filter": question_filter, "samples": samples, "seed": seed}
    return json.dumps({**head, "rows": rows, "pretraining": known}, indent=2)
  if form == "csv":
    return tables.render(rows, "csv")
  text = groups_as_text(rows) if VERSUS in names else as_text(rows)
  return "\n".join([text, *_ledger(names, split), *known])


def _groups(names: Sequence[str]) -> list[list[str]]:
  groups: list[list[str]] = [[]]
  for name in names:
    if name == VERSUS:
      groups.append([])
    else:
      groups[-1].append(name)
  sizes = [len(group) for group in groups]
  if len(set(sizes)) > 1 or not sizes[0]:
    raise InputError(
      f"groups of {', '.join(map(str, sizes))} systems: give each group one system a dataset, in the "
      "same order: A1 A2 vs B1 B2"
    )
  return groups


def _require_different_data(datasets: Sequence[Sequence[RunScores]]) -> None:
  """Raise InputError where two data sets of groups are one, whose questions would count twice."""
  first: dict[str, RunScores] = {}
  for system, *_ in datasets:
    if system.fingerprint and system.fingerprint in first:
      raise InputError(
        f"{first[system.fingerprint].name} and {system.name} have the same questions, {system.data}: "
        "the systems of a group stand for different data sets, and questions that count twice make "
        "p-values too small; several seeds are one system, a run with all of its seeds or tables "
        "joined by commas"
      )
    first[system.fingerprint] = system


def _ledger(names: Sequence[str], split: str) -> list[str]:
  """Say how often the test split was evaluated by each run, from its ledger."""
  folders = [name for name in dict.fromkeys(names) if epath.Path(name).is_dir()]
  if "test" not in split.split("+") or not folders:
    return []
  from as2jax.evaluation import results  # it takes a second, which tables alone need not wait for

  said = []
  for name in folders:
    content = results.read(name) or {"data": {"name": ""}}  # what was compared is finished
    count = results.times_evaluated(name, "test", content["data"]["name"])
    said.append(f"{name}: {'not known' if count is None else count}")
  return ["times that test was evaluated with each seed: " + ", ".join(said)]


def compare(
  loaded: Sequence[RunScores], metrics: Sequence[str], *, samples: int, seed: int
) -> list[Row]:
  """Return one row a metric and system: its mean, and (but for the first) its tests against the first.

  `sd` is that over seeds, `half_width` that of the mean over questions.
  """
  rows = []
  for metric in metrics:
    for number, system in enumerate(loaded):
      values = system.metric(metric)
      mean, sd = significance.mean_sd(values.mean(1))
      row = {
        "metric": system.title(metric),
        "system": system.name,
        "seeds": len(values),
        "questions": values.shape[1],
        "mean": mean,
        "sd": sd,
        "half_width": significance.half_width(values),
        "note": system.note,
      }
      if number:
        row |= _models(values, loaded[0].metric(metric), samples, seed)
        row |= _methods(methods(system, loaded[0], metric))
      rows.append(row)
  return _adjusted(rows, ("metric",))


def compare_groups(
  datasets: Sequence[Sequence[RunScores]], metrics: Sequence[str], *, samples: int, seed: int
) -> list[Row]:
  """Return one row a metric, later group and scope: each dataset, then three readings of the average.

  Args:
    datasets: for each dataset, the system of each group.

  """
  rows: list[Row] = []
  for metric in metrics:
    for group in range(1, len(datasets[0])):
      ours, base, tested = [], [], []
      for systems in datasets:
        system, other = systems[group], systems[0]
        a, b = system.metric(metric), other.metric(metric)
        ours.append(significance.question_means(a))
        base.append(significance.question_means(b))
        tested.append(methods(system, other, metric))
        row = {
          "metric": metric,
          "group": group + 1,
          "scope": other.data,
          "base": other.name,
          "system": system.name,
          "questions": a.shape[1],
          "base_mean": float(b.mean()),
          "mean": float(a.mean()),
        }
        rows.append(row | _models(a, b, samples, seed) | _methods(tested[-1]))
      head = {"metric": metric, "group": group + 1}
      means = np.array([x.mean() for x in ours]), np.array([x.mean() for x in base])
      macro = _scope("macro average", sum(map(len, ours)), *means)
      t = significance.macro_t_test(ours, base)
      drawn = significance.macro_randomization_test(ours, base, samples=samples, seed=seed)
      macro |= _gain(t, drawn, macro["base_mean"])
      every = np.concatenate(ours), np.concatenate(base)
      whole = _scope("all questions", len(every[0]), *every)
      rows.append(head | macro | _methods(significance.macro_methods_test(tested)))
      rows.append(head | whole | _models(*every, samples, seed))
      if len(datasets) > 1:  # one dataset has no spread over datasets
        rows.append(head | _scope("datasets", None, *means) | _models(*means, samples, seed))
  return _adjusted(rows, ("metric", "scope"))


def _scope(name: str, questions: int | None, ours: np.ndarray, base: np.ndarray) -> Row:
  means = {"base_mean": float(base.mean()), "mean": float(ours.mean())}
  return {"scope": name, "questions": questions, **means}


def _models(values, base, samples, seed) -> Row:
  """Return what is said of the models: their trained parameters are fixed."""
  t = significance.paired_t_test(values, base)
  drawn = significance.randomization_test(values, base, samples=samples, seed=seed)
  return _gain(t, drawn, float(significance.question_means(base).mean()))


def _gain(t, drawn, base_mean: float) -> Row:
  return {
    "difference": t.difference,
    "difference_half_width": t.half_width,
    "relative_gain": t.difference / base_mean if base_mean else None,
    "p_t": t.p,
    "p_randomization": drawn.p,
  }


def methods(system: RunScores, base: RunScores, metric: str) -> significance.MethodsComparison:
  """Compare the methods that two systems are of, by one metric."""
  values = system.metric(metric), base.metric(metric)
  if system.shared_stage or base.shared_stage:
    difference = float(values[0].mean() - values[1].mean())
    why = significance.ONE_STAGE
    return significance.MethodsComparison(difference, None, None, None, None, why)
  return significance.methods_test(*values, fixed=(system.deterministic, base.deterministic))


def _methods(comparison: significance.MethodsComparison) -> Row:
  return {
    "p_methods": comparison.p,
    "methods_half_width": comparison.half_width,
    "methods_detectable": comparison.detectable,
    "methods_note": comparison.why,
  }


def _adjusted(rows: list[Row], family: Sequence[str]) -> list[Row]:
  """Add Holm's adjustment over the rows that share the keys of `family`."""
  families: dict[tuple, list[Row]] = {}
  for test in ("p_t", "p_randomization", "p_methods"):
    families.clear()
    for row in rows:
      if row.get(test) is not None:
        families.setdefault(tuple(row[key] for key in family), []).append(row)
    for members in families.values():
      adjusted = significance.holm([row[test] for row in members])
      for row, p in zip(members, adjusted.tolist(), strict=True):
        row[f"{test}_holm"] = p
  return rows


TESTS = ("difference", "gain", "p (t)", "p (rand.)")
METHODS_LEGEND = (
  "p (t) and p (rand.) speak of these models; `of methods` and the p behind it count seeds, too, and "
  "would find the difference below `finds` in 80 % of cases"
)
METHODS = ("of methods", "p", "finds")


def _head(holm: bool) -> list[str]:
  if holm:
    return [*TESTS, "Holm (t)", "Holm (r.)", *METHODS, "Holm (m.)"]
  return [*TESTS, *METHODS]


def _cells(row: Row, holm: bool) -> list[str]:
  """Return the cells of a row's tests under `_head`; empty ones of the first system."""
  if "p_t" not in row:
    return [""] * len(_head(holm))
  gain = row["relative_gain"]
  cells = [
    f"{row['difference']:+.4f} ± {row['difference_half_width']:.4f}",
    "" if gain is None else f"{100 * gain:+.1f} %",
    p_text(row["p_t"]),
    p_text(row["p_randomization"]),
  ]
  if not holm:
    return cells + methods_cells(row)
  cells += [p_text(row["p_t_holm"]), p_text(row["p_randomization_holm"]), *methods_cells(row)]
  return [*cells, p_text(row["p_methods_holm"]) if "p_methods_holm" in row else ""]


def methods_cells(row: Row) -> list[str]:
  """Return the half-width of a difference of methods, p, what would be found; or why not."""
  if row.get("methods_note"):
    return [row["methods_note"], "", ""]
  if "p_methods" not in row:
    return ["", "", ""]
  detectable = f"{row['methods_detectable']:.4f}"
  return [f"± {row['methods_half_width']:.4f}", p_text(row["p_methods"]), detectable]


def p_text(p: float) -> str:
  """Return a p-value in two digits; what is below 0.0001 is said to be so."""
  return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def as_text(rows: Sequence[Row]) -> str:
  """Return the rows of `compare` as tables, one a metric."""
  parts = []
  for metric in dict.fromkeys(row["metric"] for row in rows):
    mine = [row for row in rows if row["metric"] == metric]
    holm = len(mine) > 2 and any("p_t_holm" in row for row in mine)
    several = any(row["seeds"] > 1 for row in mine)
    head = ["", "mean", *["s.d. (seeds)"] * several]
    if len(mine) > 1:
      head += _head(holm)
    cells = [head]
    for row in mine:
      name = f"{row['system']} ({row['note']})" if row["note"] else row["system"]
      mean = f"{row['mean']:.4f}"
      if row["half_width"] is not None:
        mean += f" ± {row['half_width']:.4f}"
      line = [name, mean]
      if several:
        line.append("" if row["sd"] is None else f"{row['sd']:.4f} ({row['seeds']})")
      if len(mine) > 1:
        line += _cells(row, holm)
      cells.append(line)
    title = (
      f"{metric}, {mine[0]['questions']} questions; ± is the 95 % half-width over them; "
      f"differences are to the first. {METHODS_LEGEND}"
    )
    parts.append(title + "\n" + textwrap.indent(tables.render(cells), "  "))
  return "\n\n".join(parts)


def groups_as_text(rows: Sequence[Row]) -> str:
  """Return the rows of `compare_groups` as tables."""
  lines = []
  holm = len({row["group"] for row in rows}) > 1
  for metric, group in dict.fromkeys((row["metric"], row["group"]) for row in rows):
    cells = [["", "questions", "group 1", f"group {group}", *_head(holm)]]
    lines.append(f"{metric}: group {group} against group 1")
    for row in rows:
      if (row["metric"], row["group"]) != (metric, group):
        continue
      line = [row["scope"], row["questions"], f"{row['base_mean']:.4f}", f"{row['mean']:.4f}"]
      cells.append([*line, *_cells(row, holm)])
      if "system" in row:
        lines.append(f"  {row['system']} against {row['base']}")
    lines += [textwrap.indent(tables.render(cells), "  "), ""]
  lines += [
    "± is the 95 % half-width. macro average: datasets weigh the same, the unit is the question.",
    "all questions: each weighs the same. datasets: the unit is the dataset.",
    METHODS_LEGEND,
  ]
  return "\n".join(lines)


def for_paper(rows: Sequence[Row], form: str) -> str:
  """Return the rows of `compare` with marks of significance, a column a metric.

  † and ‡ mark a difference to the first system with p < .05 and p < .01 by the randomization test over
  questions (of these models), adjusted by Holm's method where several systems are compared; * marks
  one of the methods with p < .05. The best of a metric is bold.

  Args:
    form: `markdown` or `latex` (booktabs).

  """
  if any("scope" in row for row in rows):
    raise InputError(f"--format={form} is for systems on one data set; for groups use text or csv")
  names = list(dict.fromkeys(row["system"] for row in rows))
  cells, bold = [["system"], *([name] for name in names)], set()
  adjusted = False
  for metric in dict.fromkeys(row["metric"] for row in rows):
    column = [row for row in rows if row["metric"] == metric]
    cells[0].append(metric.partition("[")[0].upper())
    best = max(row["mean"] for row in column)
    for row in column:
      number = names.index(row["system"])
      width = "" if row["half_width"] is None else f" ± {row['half_width']:.3f}"
      cells[1 + number].append(f"{row['mean']:.3f}{width}{marks(row)}")
      if row["mean"] == best and len(names) > 1:
        bold.add((number, len(cells[0]) - 1))
      if row.get("p_randomization_holm") != row.get("p_randomization"):
        adjusted = True
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  head = f"{where}, {rows[0]['questions']} questions"
  test = "randomization test, Holm-adjusted" if adjusted else "randomization test"
  legend = (
    "± is the 95 % half-width over questions. Against the first system: † p < .05, ‡ p < .01 of these "
    f"models ({test}); * p < .05 of the methods, seeds counted."
  )
  if form == "latex":
    return tables.render(cells, form, caption=f"{head}. {legend}", bold=bold) + "\n"
  table = tables.render(cells, form, bold=bold)
  return f"{head}\n\n{table}\n\n{legend}\n".replace("; * p", "; \\* p")


def marks(row: Row) -> str:
  """Return † or ‡ of these models, * of the methods; "" of the first system."""
  p = row.get("p_randomization_holm", row.get("p_randomization"))
  methods = row.get("p_methods_holm", row.get("p_methods"))
  mark = ""
  if p is not None and p < 0.05:
    mark = "‡" if p < 0.01 else "†"
  return mark + ("*" if methods is not None and methods < 0.05 else "")
