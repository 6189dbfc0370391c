"""Compare systems question by question, each with the first.

Of *these models* seeds are averaged per question, the question is the unit (t, rand.); of *these
methods* seeds and questions are both random (`significance.methods_test`). The average of two systems
over several datasets has two readings (CETE, Figure 4). `macro average`: each dataset weighs the same,
the unit is the question (t-test with Welch and Satterthwaite's degrees of freedom; signs of the
weighted differences). `datasets`: the unit is the dataset, whose means are paired.
"""

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.tables import delimited
from as2jax.encoders import pretraining
from as2jax.evaluation import run_scores, significance, tables
from as2jax.evaluation.metrics import tied_text
from as2jax.evaluation.run_scores import RunScores
from as2jax.evaluation.significance import SAMPLES

TESTED = ("p_t", "p_randomization", "p_methods")
HEAD = ("difference", "gain", "p (t)", "p (r.)", "methods", "p", "finds")
LEGEND = "± is the 95 % half-width over questions, s.d. over (so many) seeds; systems are compared with the first"
MODELS_LEGEND = "p (t), p (r.): of these models, by the t-test and by randomization"
METHODS_LEGEND = (
  "methods: with seeds counted; a difference of `finds` would be found in 80 % of cases"
)
STRATA_LEGEND = (
  "first right, first wrong: questions whose first candidate is right, or is not; they describe, and "
  "claim nothing"
)
HOLM_LEGEND = "p-values are adjusted by Holm's method"
Row = dict[str, Any]


def read(
  names: Sequence[str], deterministic: Sequence[str] = (), **options: Any
) -> list[RunScores]:
  """Read the systems that are compared, under their names; for `options` see `run_scores.load`."""
  places = [run_scores.named(name)[1] for name in names]
  loaded, found = run_scores.load(places, deterministic=deterministic, **options), []
  for name, one in zip(names, loaded, strict=True):
    found.append(dataclasses.replace(one, name=run_scores.named(name)[0]))
  return found


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
  excel: bool = False,
) -> str:
  """Return the comparison of a command line as `text`, `json` (lines), `csv`, `markdown` or `latex`.

  Args:
    metrics: names joined by commas; "" for MAP and MRR, or MRR and R@1 of retrieval, which has no MAP.
    qrels: judgements of run files, see `run_scores.by_judgements`.
    excel: whether the CSV is for Excel, see `data.tables.write`.

  """
  options: dict[str, Any] = {
    "split": split,
    "question_filter": question_filter,
    "deterministic": deterministic,
  }
  wanted = list(dict.fromkeys(filter(None, map(str.strip, metrics.split(",")))))
  if qrels:
    wanted = wanted or list(run_scores.MEASURES)
    systems = run_scores.by_judgements(names, qrels, wanted, **options)
  else:
    systems = read(names, **options)
  if not wanted:
    wanted = ["mrr", "r@1"]
    if any("map" in system.values for system in systems):
      wanted = ["map", "mrr"]
  rows = compare(systems, wanted, samples=samples, seed=seed)
  if form == "json":
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
  if form == "csv":
    return delimited(rows, ",", excel).rstrip("\n")
  if form in ("markdown", "latex"):
    return for_paper(rows, form)
  known = pretraining.under_table(system.pretraining for system in systems)
  from as2jax.evaluation import results  # it takes a second, which tables alone need not wait for

  said = []
  for name, place in dict.fromkeys(map(run_scores.named, names)):
    if "test" in split.split("+") and epath.Path(place).is_dir():
      content = results.read(place) or {"data": {"name": ""}}  # what was compared is finished
      count = results.times_evaluated(place, "test", content["data"]["name"])
      said.append(f"{name}: {count or 'not known'}")
  looks = ["times that test was evaluated with each seed: " + ", ".join(said)] if said else []
  whole = " … (whole in as2jax report)"
  return "\n".join(
    [as_text(rows), *looks, *(textwrap.shorten(one, 120, placeholder=whole) for one in known)]
  )


def compare(
  loaded: Sequence[RunScores], metrics: Sequence[str], *, samples: int = SAMPLES, seed: int = 0
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
      for key, (of_stratum, width, count) in system.strata(metric).items():
        row |= {key: of_stratum, f"{key}_half_width": width, f"{key}_questions": count}
      if system.top_first is not None:
        row["top_first"] = float(system.top_first.mean())
      if number:
        row |= _models(values, loaded[0].metric(metric), groups, samples, seed)
        row |= _methods(methods(system, loaded[0], metric))
      rows.append(row)
  return _adjusted(rows, ("metric",))


def compare_groups(
  datasets: Sequence[Sequence[RunScores]],
  metrics: Sequence[str],
  *,
  samples: int = SAMPLES,
  seed: int = 0,
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
  for row in rows:
    for key in run_scores.STRATA:
      if key in row:
        width = row[f"{key}_half_width"]
        cell = f"{row[key]:.4f}" + ("" if width is None else f" ± {width:.4f}")
        heading = f"{key.replace('_', ' ')} ({row[f'{key}_questions']})"
        found.setdefault(heading, []).append(cell)
  if found and any("top_first" in row for row in rows):
    found["top is first"] = [
      f"{row['top_first']:.0%}" if "top_first" in row else "" for row in rows
    ]
  return found


def methods_cells(row: Row) -> list[str]:
  """Return the half-width of a difference of methods, p, what would be found; empty where that is not told."""
  if row.get("p_methods") is None:
    return ["", "", ""]
  detectable = f"{row['methods_detectable']:.4f}"
  return [f"± {row['methods_half_width']:.4f}", p_text(row["p_methods"]), detectable]


def p_text(p: float) -> str:
  """Return a p-value in two digits; what is below 0.0001 is said to be so."""
  return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def as_text(rows: Sequence[Row]) -> str:
  """Return the rows of `compare` or `compare_groups` as tables, one a metric and group."""
  parts = [f"{title}\n{tables.render(cells)}".lstrip("\n") for title, cells in _tables(rows)]
  return "\n\n".join([*parts, "\n".join(_legend(rows))])


def as_html(rows: Sequence[Row]) -> str:
  """Return the tables of `as_text` as HTML."""
  parts = [tables.render(cells, "html", caption=title) for title, cells in _tables(rows)]
  return f"{''.join(parts)}<p>{'<br>'.join(map(escape, _legend(rows)))}</p>"


def _tables(rows: Sequence[Row]) -> Iterator[tuple[str, list[Sequence[str]]]]:
  """Yield the title and the cells of each table, without empty columns; strata have no title."""
  tables_of: dict[tuple, list[Row]] = {}
  for row in rows:
    tables_of.setdefault((row["metric"], row.get("group")), []).append(row)
  for (title, _), mine in tables_of.items():
    cells, counts = [["", "questions", "mean", "s.d.", *HEAD]], list(map(_count, mine))
    if len(set(counts)) == 1:
      title, counts = f"{title}, {counts[0]}", [""] * len(mine)
    for row, count in zip(mine, counts, strict=True):
      mean, sd = f"{row['mean']:.4f}", ""
      if row.get("half_width") is not None:
        mean += f" ± {row['half_width']:.4f}"
      if row.get("sd") is not None:
        sd = f"{row['sd']:.4f} ({row['seeds']})"
      count = count.replace(" questions", "")
      cells.append([_name(row), count, mean, sd, *_cells(row, _holm(mine))])
    filled = [column for column in zip(*cells, strict=True) if any(column[1:])]
    yield title, list(zip(*filled, strict=True))
    if strata := strata_cells(mine):
      beside = zip(filled[0][1:], *strata.values(), strict=True)
      yield "", [("", *strata), *beside]


def _holm(rows: Sequence[Row]) -> bool:
  return any(row.get(f"{test}_holm") != row.get(test) for row in rows for test in TESTED)


def _name(row: Row) -> str:
  name = row.get("system", "")
  if "scope" not in row:
    return name
  return f"{row['scope']}: {name} against {row['base']}" if name else row["scope"]


def _count(row: Row) -> str:
  if row["questions"] is None:
    return ""
  return significance.count_text(row["questions"], row.get("groups"))


def _legend(rows: Sequence[Row]) -> list[str]:
  """Return the lines below the tables: what their columns are, and what is to be known of their rows."""
  lines = [LEGEND]
  if any("p_t" in row for row in rows):
    lines.append(MODELS_LEGEND)
  if any(row.get("p_methods") is not None for row in rows):
    lines.append(METHODS_LEGEND)
  if _holm(rows):
    lines.append(HOLM_LEGEND)
  if strata_cells(rows):
    lines.append(STRATA_LEGEND)
  untold = [
    f"{_name(row)}: a difference of methods {row['methods_note']}"
    for row in rows
    if row.get("methods_note")
  ]
  return lines + list(dict.fromkeys(untold)) + _notes(rows)


def _notes(rows: Sequence[Row]) -> list[str]:
  """Return what is to be known of the rows: ties, what training came to, groups."""
  found = []
  for row in rows:
    if tied := tied_text(row.get("tied_questions"), row["questions"]):
      found.append(f"{_name(row)}, {_heading(row['metric'])}: {tied}")
    if row.get("note"):
      found.append(f"{_name(row)}: {row['note']}")
  found += [f"Warning: {row['groups_note']}" for row in rows if row.get("groups_note")]
  return list(dict.fromkeys(found))


def for_paper(rows: Sequence[Row], form: str) -> str:
  """Return the rows of `compare` with marks of significance, a column a metric, the best in bold."""
  by_metric: dict[str, list[Row]] = {}
  for row in rows:
    by_metric.setdefault(row["metric"], []).append(row)
  systems, bold = next(iter(by_metric.values())), set()
  cells = [["system", "seeds"], *([row["system"], row["seeds"]] for row in systems)]
  for metric, of_metric in by_metric.items():
    best = max(row["mean"] for row in of_metric)
    for number, row in enumerate(of_metric):
      width = "" if row["half_width"] is None else f" ± {row['half_width']:.3f}"
      cells[1 + number].append(f"{row['mean']:.3f}{width}{marks(row)}")
      if row["mean"] == best and len(systems) > 1:
        bold.add((number, len(cells[0])))
    cells[0].append(_heading(metric))
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  head = f"{where}, {significance.count_text(rows[0]['questions'], rows[0]['groups'])}"
  adjusted = ", Holm-adjusted" if len(systems) > 2 else ""
  legend = (
    "± is the 95 % half-width over questions. Against the first system: † p < .05, ‡ p < .01 of these "
    f"models (randomization test{adjusted}); * p < .05 of the methods, seeds counted."
  )
  legend = " ".join([legend, *(f"{note}." for note in _notes(rows))])
  if form == "latex":
    return tables.render(cells, form, caption=f"{head}. {legend}", bold=bold)
  table = tables.render(cells, form, bold=bold)
  return f"{head}\n\n{table}\n\n{tables.markdown_text(legend)}"


def _heading(metric: str) -> str:
  """Return `MAP` of `map[wikiqa-clean/test]`; `nDCG@10` as it was asked for."""
  name = metric.partition("[")[0]
  return name.upper() if name.islower() else name


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
