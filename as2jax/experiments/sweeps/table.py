"""What a sweep came to: its points beside the base, the best by MAP or MRR, that one on test."""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from as2jax.data import holdout
from as2jax.encoders import pretraining
from as2jax.evaluation import compare, results, run_scores, tables
from as2jax.evaluation.run_scores import RunScores
from as2jax.experiments.sweeps.local_executor import finished, last_line
from as2jax.experiments.sweeps.points import Job
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

METRICS = {"rerank": ("map", "mrr", "p@1"), "retrieve": ("mrr", "r@1", "r@5")}  # the first chooses
SAMPLES = 100_000  # of the randomization tests
ALONE = ("metric", "system", "seeds", "questions", "mean", "sd", "half_width", "note")
Row = Mapping[str, Any]


def collect(output: pathlib.Path, jobs: Sequence[Job], split: str) -> str:
  """Write the table of a sweep; return it as text.

  A point counts where all its seeds are finished; its mean and s.d. are over seeds, its difference to the base is
  tested over questions. The best is called final when every point counts. A run that has begun and has no
  results, because it diverged or failed, is named with its log's last line.

  Args:
    split: of the table; "" is that on which the choice is made: dev, or the held-out questions.

  Raises:
    InputError: the runs were not evaluated on the split.

  """
  config = json.loads(jobs[0].text)
  selection = holdout.selection_split(config["data"])
  metrics = METRICS[config["evaluation"]["task"]]
  choice = f"{metrics[0].upper()} on {selection}"
  points: dict[str, list[Job]] = {}
  done: dict[pathlib.Path, str] = {}
  notes = []
  for job in jobs:
    points.setdefault(job.title.rpartition(", seed ")[0], []).append(job)
    folder = output / job.id
    if finished(folder):
      done[folder] = job.title
    elif last := last_line(folder / "log.txt"):
      notes.append(f"without results: {job.title} ({job.id}): {last}")
  base = next(title for title in points if title == "base" or title.endswith("(base)"))
  seeds, whole = {}, {}
  for title in (
    base,
    *(title for title in points if title != base),
  ):  # differences are to the first
    count = sum(output / job.id in done for job in points[title])
    seeds[title] = f"{count}/{len(points[title])}"
    if count == len(points[title]):
      whole[title] = points[title]
  if not whole:
    return "\n".join(["no point is finished", *notes])
  rows: dict[str, list[Row]] = {}
  first = next(iter(whole.values()))[0]
  for name in results.splits_of(results.read(output / first.id)):
    rows[name] = compare.compare(_systems(output, whole, name), metrics, samples=SAMPLES, seed=0)
    if base not in whole:  # differences are to another point
      rows[name] = [{key: row[key] for key in ALONE} for row in rows[name]]
  split = split or selection
  if split not in rows:
    raise InputError(f"the runs were not evaluated on {split}, only on {', '.join(rows)}")
  choosing = [row for row in rows[selection] if row["metric"].startswith(f"{metrics[0]}[")]
  means = {row["system"]: row["mean"] for row in choosing}
  best = max((title for title in points if title in means), key=means.get)  # the first of equals
  result = [
    f"best so far: {best}; not every point is finished, so there is no result yet "
    "(a point that cannot finish must be left out of the sweep)"
  ]
  if len(whole) == len(points):
    result = [f"result: {best}, chosen by {choice}", *_result(rows, best)]
  result += [*notes, *tests_seen(done), *seen_by(done)]
  where = rows[split][0]["metric"].partition("[")[2].rstrip("]")
  heading = (
    f"{where}, {rows[split][0]['questions']} questions; mean (s.d. over seeds); ± is the 95 % "
    f"half-width of a difference; * is the best by {choice}. {compare.METHODS_LEGEND}"
  )
  cells = _cells({title: seeds[title] for title in points}, rows[split], best)
  flat = []
  for name, of_split in rows.items():
    for row in of_split:
      flat.append({"split": name, "chosen": int(row["system"] == best), **row})
  return write_forms(output / "table", heading, cells, result, left=2, flat=flat)


def write_forms(
  stem: pathlib.Path,
  heading: str,
  cells: Sequence[Sequence[str]],
  notes: Sequence[str],
  *,
  left: int,
  flat: Sequence[Row] = (),
) -> str:
  """Write a table as text, Markdown, LaTeX, HTML and CSV; return the text.

  Args:
    stem: of the files' names.
    notes: lines below the table, in text and Markdown.
    left: columns that are texts.
    flat: what CSV holds in place of the cells.

  """
  text = "\n".join([heading, tables.render(cells, left=left), "", *notes])
  marked = [heading, "", tables.render(cells, "markdown", left=left), "", "\\\n".join(notes)]
  written = {
    "text": text,
    "markdown": "\n".join(marked),
    "csv": tables.render(flat or cells, "csv"),
  }
  for form, suffix in tables.FORMATS.items():
    if form not in written:
      written[form] = tables.render(cells, form, left=left, caption=heading)
    write_whole(stem.with_name(stem.name + suffix), written[form] + "\n")
  return text


def _times(folder: pathlib.Path) -> int | None:
  """Return how often a finished run evaluated test; None where it has no ledger."""
  content = results.read(folder) or {"data": {"name": ""}}
  return results.times_evaluated(folder, "test", content["data"]["name"])


def seen_by(done: Iterable[pathlib.Path]) -> list[str]:
  """Return what the encoders of finished runs are known to have seen, each statement once."""
  return pretraining.under_table(pretraining.statements(results.read(run) or {}) for run in done)


def tests_seen(done: Iterable[pathlib.Path]) -> list[str]:
  """Return a line on how often all runs of a table together evaluated the test split."""
  counts = [_times(folder) for folder in done]
  if not counts:
    return []
  known = [count for count in counts if count is not None]
  line = f"test was evaluated {sum(known)} times in all by {len(known)} runs, at most "
  line += f"{max(known, default=0)} times by one"
  if len(known) < len(counts):
    line += f"; of {len(counts) - len(known)} it is not known"
  return [line]


def _systems(
  output: pathlib.Path, points: Mapping[str, Sequence[Job]], split: str
) -> list[RunScores]:
  """Return each point as one system whose seeds are its runs."""
  folders = [str(output / job.id) for mine in points.values() for job in mine]
  loaded = iter(run_scores.load(folders, split=split))
  return [one_system(title, mine, [next(loaded) for _ in mine]) for title, mine in points.items()]


def one_system(title: str, jobs: Sequence[Job], runs: Sequence[RunScores]) -> RunScores:
  """Return runs of one seed each as one system; a note names the seeds that it is of."""
  noted, note, origins = [], "", []
  for job, run in zip(jobs, runs, strict=True):
    origins += run.origins
    if run.note:
      noted.append(str(job.seed))
      note = note or run.note
  if 0 < len(noted) < len(runs):
    note += f" (seed {', '.join(noted)})"
  values = {}
  for metric in runs[0].values:
    if all(metric in run.values for run in runs):
      values[metric] = np.concatenate([run.metric(metric) for run in runs])
  fixed = all(run.deterministic for run in runs)
  first = runs[0]
  return RunScores(
    title, first.data, first.ids, values, fixed, note, first.pretraining, tuple(origins)
  )


def _cells(seeds: Mapping[str, str], rows: Sequence[Row], best: str) -> list[list[str]]:
  """Return a head, and a row a point: finished seeds, means, the difference to the base."""
  by_cell = {(row["system"], row["metric"]): row for row in rows}
  metrics = list(dict.fromkeys(row["metric"] for row in rows))
  names = [metric.partition("[")[0].upper() for metric in metrics]
  tests = [f"{names[0]} − base", "p (rand.)", "Holm", *compare.METHODS]
  cells = [["", "", "seeds", *names, *tests]]
  for title, counted in seeds.items():
    row = by_cell.get((title, metrics[0]))
    if row is None:
      cells.append(["", title, counted, *["–"] * len(metrics), *[""] * len(tests)])
      continue
    tested = [""] * len(tests)
    if "p_t" in row:  # not of the base
      p = (compare.p_text(row[key]) for key in ("p_randomization", "p_randomization_holm"))
      tested = [_difference(row), *p, *compare.methods_cells(row)]
    noted = f"{title} ({row['note']})" if row["note"] else title
    means = [_mean(by_cell[title, metric]) for metric in metrics]
    cells.append(["*" if title == best else "", noted, counted, *means, *tested])
  return cells


def _mean(row: Row) -> str:
  return f"{row['mean']:.4f}" + ("" if row["sd"] is None else f" ({row['sd']:.4f})")


def _difference(row: Row) -> str:
  return f"{row['difference']:+.4f} ± {row['difference_half_width']:.4f}"


def _result(rows: Mapping[str, list[Row]], best: str) -> list[str]:
  """Return the figures of the chosen point on splits with test, which played no part in the choice."""
  lines = []
  for row in (row for split in rows if "test" in split for row in rows[split]):
    if row["system"] != best:
      continue
    line = (
      f"  {row['metric']} {_mean(row)} ± {row['half_width']:.4f} ({row['questions']} questions)"
    )
    if "p_t" in row:
      line += f"; to the base {_difference(row)}, p {compare.p_text(row['p_t'])} (t), "
      line += f"{compare.p_text(row['p_randomization'])} (randomization)"
      width, p, finds = compare.methods_cells(row)
      line += f"; of methods {width}" + (f", p {p}, finds {finds}" if p else "")
    lines.append(line)
  return lines
