"""Compare systems question by question, each with the first.

Of *these models* seeds are averaged per question, the question is the unit (t, rand.); of *these
methods* seeds and questions are both random (`significance.methods_test`). The average of two systems
over several datasets has two readings (CETE, Figure 4). `macro average`: each dataset weighs the same,
the unit is the question (t-test with Welch and Satterthwaite's degrees of freedom; signs of the
weighted differences). `datasets`: the unit is the dataset, whose means are paired.
"""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.encoders import pretraining
from as2jax.evaluation import run_scores, significance, tables
from as2jax.evaluation.metrics import tied_text
from as2jax.evaluation.run_scores import RunScores

TESTED = ("p_t", "p_randomization", "p_methods")
METHODS = ("of methods", "p", "finds")
METHODS_LEGEND = (
  "p (t) and p (rand.) speak of these models; `of methods` and the p behind it count seeds, too, and "
  "would find the difference below `finds` in 80 % of cases"
)
STRATA_LEGEND = (
  "`first right` and `first wrong` are the questions whose first candidate is right, or is not: they "
  "describe, and a prior on order moves them apart; what is claimed is claimed of all questions"
)
HOLM_LEGEND = "p-values are adjusted by Holm's method"
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
  qrels: str = "",
) -> str:
  """Return the comparison of a command line as `text`, `json` (lines), `csv`, `markdown` or `latex`.

  Args:
    metrics: names joined by commas; "" for MAP and MRR, or MRR and R@1 of retrieval, which has no MAP.
    qrels: judgements of run files, see `run_scores.by_judgements`.

  """
  options: dict[str, Any] = {
    "split": split,
    "question_filter": question_filter,
    "deterministic": deterministic,
  }
  if qrels:
    metrics = metrics or ",".join(run_scores.MEASURES)
  wanted = list(dict.fromkeys(name.strip() for name in metrics.split(",")))
  if qrels:
    systems = run_scores.by_judgements(names, qrels, wanted, **options)
  else:
    systems = run_scores.load(names, **options)
  if not metrics:
    wanted = ["mrr", "r@1"]
    if any("map" in system.values for system in systems):
      wanted = ["map", "mrr"]
  rows = compare(systems, wanted, samples=samples, seed=seed)
  if form == "json":
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
  if form == "csv":
    return tables.render(rows, "csv")
  if form in ("markdown", "latex"):
    return for_paper(rows, form)
  known = pretraining.under_table(system.pretraining for system in systems)
  from as2jax.evaluation import results  # it takes a second, which tables alone need not wait for

  said = []
  for name in dict.fromkeys(names):
    if "test" in split.split("+") and epath.Path(name).is_dir():
      content = results.read(name) or {"data": {"name": ""}}  # what was compared is finished
      count = results.times_evaluated(name, "test", content["data"]["name"])
      said.append(f"{name}: {count or 'not known'}")
  looks = ["times that test was evaluated with each seed: " + ", ".join(said)] if said else []
  return "\n".join([as_text(rows), *looks, *known])


def compare(
  loaded: Sequence[RunScores], metrics: Sequence[str], *, samples: int, seed: int
) -> list[Row]:
  """Return one row a metric and system: its mean, and (but for the first) its tests against the first."""
  rows = []
  for metric in metrics:
    for number, system in enumerate(loaded):
      values, groups = system.metric(metric), system.groups
      by_group = significance.Groups.of(groups, values.shape[1])
      mean, sd = significance.mean_sd(values.mean(1))
      row = {
        "metric": system.title(metric),
        "system": system.name,
        "seeds": len(values),
        "questions": values.shape[1],
        "groups": by_group.count,
        "mean": mean,
        "sd": sd,
        "half_width": significance.half_width(values, groups),
        "note": system.note,
        "tied_questions": system.tied.get(metric),
        "groups_note": by_group.warning(),
      }
      for stratum, (of_stratum, width, count) in system.strata(metric).items():
        key = stratum.replace(" ", "_")
        row |= {key: of_stratum, f"{key}_half_width": width, f"{key}_questions": count}
      if system.top_first is not None:
        row["top_first"] = float(system.top_first.mean())
      if number:
        row |= _models(values, loaded[0].metric(metric), groups, samples, seed)
        row |= _methods(methods(system, loaded[0], metric))
      rows.append(row)
  return _adjusted(rows, ("metric",))


def compare_groups(
  datasets: Sequence[Sequence[RunScores]], metrics: Sequence[str], *, samples: int, seed: int
) -> list[Row]:
  """Return one row a metric, later group and scope: each dataset (its systems), then their average."""
  rows: list[Row] = []
  for metric in metrics:
    for group in range(1, len(datasets[0])):
      head: Row = {"metric": metric, "group": group + 1}
      ours, base, groups, tested = [], [], [], []
      for systems in datasets:
        system, other = systems[group], systems[0]
        a, b = system.metric(metric), other.metric(metric)
        ours.append(significance.question_means(a))
        base.append(significance.question_means(b))
        groups.append(system.groups)
        tested.append(methods(system, other, metric))
        named = {"base": other.name, "system": system.name}
        row = {**head, "scope": other.data, **named, "questions": a.shape[1]}
        row |= {"base_mean": float(b.mean()), "mean": float(a.mean())}
        rows.append(row | _models(a, b, groups[-1], samples, seed) | _methods(tested[-1]))
      means = np.array([x.mean() for x in ours]), np.array([x.mean() for x in base])
      head |= {"base_mean": float(means[1].mean()), "mean": float(means[0].mean())}
      macro = {**head, "scope": "macro average", "questions": sum(map(len, ours))}
      tests = significance.macro_test(ours, base, groups, samples=samples, seed=seed)
      macro |= _gain(*tests, head["base_mean"])
      rows.append(macro | _methods(significance.macro_methods_test(tested)))
      if len(datasets) > 1:  # one dataset has no spread over datasets
        row = {**head, "scope": "datasets", "questions": None}
        rows.append(row | _models(*means, None, samples, seed))
  return _adjusted(rows, ("metric", "scope"))


def _models(values, base, groups, samples, seed) -> Row:
  """Return what is said of the models: their trained parameters are fixed."""
  t = significance.paired_t_test(values, base, groups)
  drawn = significance.randomization_test(values, base, groups, samples=samples, seed=seed)
  return _gain(t, drawn.p, float(significance.question_means(base).mean()))


def _gain(t: significance.Comparison, p: float, base_mean: float) -> Row:
  return {
    "difference": t.difference,
    "difference_half_width": t.half_width,
    "relative_gain": t.difference / base_mean if base_mean else None,
    "p_t": t.p,
    "p_randomization": p,
  }


def methods(system: RunScores, base: RunScores, metric: str) -> significance.MethodsComparison:
  """Compare the methods that two systems are of, by one metric."""
  values = system.metric(metric), base.metric(metric)
  if system.shared_stage or base.shared_stage:
    difference = float(values[0].mean() - values[1].mean())
    return significance.MethodsComparison(difference, why=significance.ONE_STAGE)
  fixed = system.deterministic, base.deterministic
  return significance.methods_test(*values, fixed=fixed, groups=system.groups)


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
  for row in rows:
    for test in TESTED:
      if row.get(test) is not None:
        families.setdefault((test, *(row[key] for key in family)), []).append(row)
  for (test, *_), members in families.items():
    adjusted = significance.holm([row[test] for row in members])
    for row, p in zip(members, adjusted.tolist(), strict=True):
      row[f"{test}_holm"] = p
  return rows


HEAD = ("difference", "gain", "p (t)", "p (rand.)", *METHODS)


def _cells(row: Row, holm: bool) -> list[str]:
  """Return the cells of a row's tests under `HEAD`; empty ones of the first system."""
  if "p_t" not in row:
    return [""] * len(HEAD)
  if holm:
    row = {**row, **{test: row.get(f"{test}_holm", row.get(test)) for test in TESTED}}
  gain = row["relative_gain"]
  return [
    f"{row['difference']:+.4f} ± {row['difference_half_width']:.4f}",
    "" if gain is None else f"{100 * gain:+.1f} %",
    p_text(row["p_t"]),
    p_text(row["p_randomization"]),
    *methods_cells(row),
  ]


def strata_cells(rows: Sequence[Row]) -> dict[str, list[str]]:
  """Return {heading: a cell a row} of both strata by the first candidate, and how often it is ranked first."""
  found: dict[str, list[str]] = {}
  for stratum in run_scores.STRATA:
    key = stratum.replace(" ", "_")
    if known := [row for row in rows if key in row]:
      heading = f"{stratum} ({known[0][f'{key}_questions']})"
      found[heading] = []
      for row in rows:
        mean, width = row[key], row[f"{key}_half_width"]
        cell = "–" if mean is None else f"{mean:.4f}"
        found[heading].append(cell + ("" if width is None else f" ± {width:.4f}"))
  if any("top_first" in row for row in rows):
    found["top is first"] = [
      f"{row['top_first']:.0%}" if "top_first" in row else "" for row in rows
    ]
  return found


def methods_cells(row: Row) -> list[str]:
  """Return the half-width of a difference of methods, p, what would be found; or why not."""
  if row.get("p_methods") is None:
    return [row.get("methods_note", ""), "", ""]
  detectable = f"{row['methods_detectable']:.4f}"
  return [f"± {row['methods_half_width']:.4f}", p_text(row["p_methods"]), detectable]


def p_text(p: float) -> str:
  """Return a p-value in two digits; what is below 0.0001 is said to be so."""
  return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def as_text(rows: Sequence[Row]) -> str:
  """Return the rows of `compare` or `compare_groups` as tables, one a metric and group."""
  parts = []
  tables_of: dict[tuple, list[Row]] = {}
  for row in rows:
    tables_of.setdefault((row["metric"], row.get("group")), []).append(row)
  for (metric, _), mine in tables_of.items():
    holm = any(row.get(f"{test}_holm") != row.get(test) for row in mine for test in TESTED)
    strata = {} if "scope" in mine[0] else strata_cells(mine)
    tests = HEAD if len(mine) > 1 else ()
    cells = [["", "questions", "mean", "s.d. (seeds)", *tests, *strata]]
    for number, row in enumerate(mine):
      name, mean, sd = row.get("system", ""), f"{row['mean']:.4f}", ""
      if "scope" in row:
        name = f"{row['scope']}: {name} against {row['base']}" if name else row["scope"]
      if notes := list(filter(None, (row.get("note"), _tied(row)))):
        name += f" ({'; '.join(notes)})"
      if row.get("half_width") is not None:
        mean += f" ± {row['half_width']:.4f}"
      if row.get("sd") is not None:
        sd = f"{row['sd']:.4f} ({row['seeds']})"
      count = (
        ""
        if row["questions"] is None
        else significance.count_text(row["questions"], row.get("groups"))
      )
      cells.append([name, count.replace(" questions", ""), mean, sd])
      if len(mine) > 1:
        cells[-1] += _cells(row, holm)
      cells[-1] += [of_stratum[number] for of_stratum in strata.values()]
    title = f"{metric}; ± is the 95 % half-width; differences are to the first. {METHODS_LEGEND}"
    if holm:
      title += f"; {HOLM_LEGEND}"
    if strata:
      title += f"; {STRATA_LEGEND}"
    parts.append(title + "\n" + textwrap.indent(tables.render(cells), "  "))
    for note in dict.fromkeys(row.get("groups_note") for row in mine):
      parts[-1] += f"\n  warning: {note}" if note else ""
  return "\n\n".join(parts)


def _tied(row: Row) -> str:
  return tied_text(row.get("tied_questions"), row["questions"])


def for_paper(rows: Sequence[Row], form: str) -> str:
  """Return the rows of `compare` with marks of significance, a column a metric, the best in bold."""
  names = list(dict.fromkeys(row["system"] for row in rows))
  cells, bold = [["system"], *([name] for name in names)], set()
  best: dict[str, float] = {}
  for row in rows:
    best[row["metric"]] = max(row["mean"], best.get(row["metric"], -np.inf))
  for row in rows:
    metric, number = row["metric"], names.index(row["system"])
    width = "" if row["half_width"] is None else f" ± {row['half_width']:.3f}"
    cells[1 + number].append(f"{row['mean']:.3f}{width}{marks(row)}")
    if row["mean"] == best[metric] and len(names) > 1:
      bold.add((number, len(cells[1 + number]) - 1))
  cells[0] += [metric.partition("[")[0].upper() for metric in best]
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  head = f"{where}, {significance.count_text(rows[0]['questions'], rows[0]['groups'])}"
  adjusted = ", Holm-adjusted" if len(names) > 2 else ""
  legend = (
    "± is the 95 % half-width over questions. Against the first system: † p < .05, ‡ p < .01 of these "
    f"models (randomization test{adjusted}); * p < .05 of the methods, seeds counted."
  )
  for row in rows:
    if tied := _tied(row):
      legend += f" {row['system']}, {row['metric'].partition('[')[0].upper()}: {tied}."
  if form == "latex":
    return tables.render(cells, form, caption=f"{head}. {legend}", bold=bold)
  table = tables.render(cells, form, bold=bold)
  return f"{head}\n\n{table}\n\n{legend}".replace("; * p", "; \\* p")


def marks(row: Row) -> str:
  """Return † (p < .05) or ‡ (p < .01) of these models, * of the methods; "" of the first system."""
  p = row.get("p_randomization_holm", row.get("p_randomization"))
  methods = row.get("p_methods_holm", row.get("p_methods"))
  mark = ""
  if p is not None and p < 0.05:
    mark = "‡" if p < 0.01 else "†"
  if methods is not None and methods < 0.05:
    mark += "*"
  return mark
