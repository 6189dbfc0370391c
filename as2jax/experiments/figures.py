"""What every table of runs is made of: systems of several seeds, cells, notes, files.

Rows of a table are mappings from a column's heading to its text (`as2jax.evaluation.tables.render`): a new
column is a new key.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from as2jax.encoders import pretraining
from as2jax.evaluation import compare, metrics, results, significance, tables
from as2jax.evaluation.run_scores import RunScores
from as2jax.runtime.files import write_whole


def one_system(title: str, seeds: Sequence[int], runs: Sequence[RunScores]) -> RunScores:
  """Return runs of one seed each as one system; a note names the seeds that it is of."""
  values, tied = {}, {}
  for metric in runs[0].values:
    values[metric] = np.concatenate([run.metric(metric) for run in runs])
    tied[metric] = max(run.tied.get(metric, 0) for run in runs)
  noted = {seed: run.note for seed, run in zip(seeds, runs, strict=True) if run.note}
  tops = [run.top_first for run in runs]
  note = next(iter(noted.values()), "")
  if 0 < len(noted) < len(runs):
    note += f" (seed {', '.join(map(str, noted))})"
  return dataclasses.replace(
    runs[0],
    name=title,
    values=values,
    tied=tied,
    deterministic=all(run.deterministic for run in runs),
    note=note,
    origins=sum((tuple(run.origins) for run in runs), ()),
    top_first=None if any(top is None for top in tops) else np.concatenate(tops),
  )


def short(value: float) -> str:
  """Return three decimals, without a zero before the point."""
  return f"{value:.3f}".removeprefix("0")


def cell(scores: RunScores, metric: str, counted: bool = False) -> str:
  """Return the figure of a metric with its half-width and the s.d. over seeds; `counted` adds the number of seeds.

  Where candidates are tied in more than a tenth of the questions, it says so.
  """
  width = number = ""
  if metric in scores.values:
    values = scores.metric(metric)
    mean, sd = significance.mean_sd(values.mean(1))
    width = f" ± {short(significance.half_width(values, scores.groups))}"
    if counted:
      number = f"; {len(values)}"
    if scores.deterministic:
      sd = None
  else:  # it has no value of a question (SSE), or is of vectors, which a ranker of words has not
    entry = results.read(scores.name)["metrics"].get(scores.title(metric))
    if entry is None:
      return ""
    mean, sd = entry["mean"], entry["sd"]
  figure = short(mean) + width + ("" if sd is None else f" ({short(sd)}{number})")
  if metrics.tied_text(scores.tied.get(metric), len(scores.ids)):
    figure += f", ties in {scores.tied[metric]} of {len(scores.ids)}"
  return figure


def strata(scores: RunScores, every: RunScores, metric: str) -> dict[str, str]:
  """Return by heading the cells of both strata by the first candidate, and how often it is ranked first.

  `every` holds the same run on all questions, of which the last cell has the share in brackets.
  """
  cells = {}
  for stratum, (mean, width, count) in scores.strata(metric).items():
    heading = f"{stratum.replace('_', ' ')} ({count})"
    cells[heading] = short(mean) + ("" if width is None else f" ± {short(width)}")
  if cells:
    tops = scores.top_first, every.top_first
    known = tops[0] is not None and tops[1] is not None
    cells["top is first (all)"] = (
      f"{100 * tops[0].mean():.0f} % ({100 * tops[1].mean():.0f} %)" if known else ""
    )
  return cells


def groups_of(scores: RunScores) -> str:
  """Return the number of groups of dependent questions in brackets; "" where all are independent."""
  groups = significance.Groups.of(scores.groups, len(scores.ids))
  return "" if groups.count == len(scores.ids) else f" [{groups.count}]"


def difference(base: RunScores, other: RunScores, metric: str) -> str:
  """Return the difference of two methods by a metric."""
  tested = compare.methods(other, base, metric)
  shown = ("−" if tested.difference < 0 else "+") + short(abs(tested.difference))
  if tested.why:
    return f"{shown}: {tested.why}"
  p, finds = compare.p_text(tested.p), short(tested.detectable)
  return f"{shown} ± {short(tested.half_width)} (p {p}, finds {finds})"


def seen(done: Sequence[pathlib.Path]) -> list[str]:
  """Say how often all finished runs of a table evaluated test, and what their encoders have read."""
  counts, statements = [], []
  for folder in done:
    content = results.read(folder)
    counts.append(results.times_evaluated(folder, "test", content["data"]["name"]))
    statements.append(pretraining.statements(content))
  lines = pretraining.under_table(statements)
  if counts:
    known = [count.most for count in counts if count is not None]
    line = f"test was evaluated {sum(known)} times in all by {len(known)} runs, at most "
    line += f"{max(known, default=0)} times by one"
    if len(known) < len(counts):
      line += f"; of {len(counts) - len(known)} it is not known"
    lines.insert(0, line)
  return lines


def write(stem: pathlib.Path, made: Mapping[str, str], notes: Sequence[str]) -> str:
  """Write a table by its forms, with notes below text and Markdown; return the text."""
  below = {"text": "\n".join(["", "", *notes]), "markdown": "\n\n" + "\\\n".join(notes)}
  for form, table in made.items():
    path = stem.with_name(stem.name + tables.FORMATS[form])
    write_whole(path, table + below.get(form, "") + "\n")
  return made["text"] + below["text"]
