"""What a sweep came to: its points beside the base, the best by MAP or MRR, that one on test."""

import collections
import json
import pathlib
import re
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
Row = Mapping[str, Any]


def collect(output: pathlib.Path, jobs: Sequence[Job], split: str) -> str:
  """Write the table of a sweep; return it as text.

  A point counts where all its seeds are finished; its mean and s.d. are over seeds, its difference to the base is
  tested over questions. The best is called final when every point counts. A run that has begun and has no
  results, because it diverged or failed, is named with its log's last line. `split` is that of the table, ""
  that on which the choice is made: dev, or the held-out questions.
  """
  config = json.loads(jobs[0].text)
  selection = holdout.selection_split(config["data"])
  metrics = METRICS[config["evaluation"]["task"]]
  choice = f"{metrics[0].upper()} on {selection}"
  base = next(job.title for job in jobs if re.match(r"base,|.*\(base\),", job.title))
  base = base.rpartition(", seed ")[0]
  points: dict[str, list[Job]] = {base: []}  # first, as differences are to it
  done: dict[pathlib.Path, str] = {}
  notes = []
  for job in jobs:
    points.setdefault(job.title.rpartition(", seed ")[0], []).append(job)
    folder = output / job.id
    if finished(folder):
      done[folder] = job.title
    elif last := last_line(folder / "log.txt"):
      notes.append(f"without results: {job.title} ({job.id}): {last}")
  seeds, whole = {}, {}
  for title, mine in points.items():
    count = sum(output / job.id in done for job in mine)
    seeds[title] = f"{count}/{len(mine)}"
    if count == len(mine):
      whole[title] = mine
  if not whole:
    return "\n".join(["no point is finished", *notes])
  rows: dict[str, list[Row]] = {}
  for name in results.splits_of(results.read(next(iter(done)))):
    systems = _systems(output, whole, name)
    rows[name] = []
    for group in [systems] if base in whole else zip(systems):  # without the base no differences
      rows[name] += compare.compare(group, metrics, samples=SAMPLES, seed=0)
  split = split or selection
  if split not in rows:
    raise InputError(f"the runs were not evaluated on {split}, only on {', '.join(rows)}")
  choosing = [row for row in rows[selection] if row["metric"].startswith(f"{metrics[0]}[")]
  best = max(choosing, key=lambda row: row["mean"])["system"]  # the first of equals
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
  flat = []
  for name, of_split in rows.items():
    for row in of_split:
      flat.append({"split": name, "chosen": int(row["system"] == best), **row})
  cells = _cells(seeds, rows[split], best)
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
  """Write a table as text, Markdown, LaTeX, HTML and CSV (`flat`, or its cells); return the text.

  `notes` are lines below the table, in text and Markdown; `left` columns are texts.
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


def seen_by(done: Iterable[pathlib.Path]) -> list[str]:
  """Return what the encoders of finished runs are known to have seen, each statement once."""
  return pretraining.under_table(pretraining.statements(results.read(run) or {}) for run in done)


def tests_seen(done: Iterable[pathlib.Path]) -> list[str]:
  """Return a line on how often all runs of a table together evaluated the test split."""
  known, unknown = [], 0
  for folder in done:
    count = results.times_evaluated(folder, "test", results.read(folder)["data"]["name"])
    if count is None:
      unknown += 1
    else:
      known.append(count)
  if not known and not unknown:
    return []
  line = f"test was evaluated {sum(known)} times in all by {len(known)} runs, at most "
  line += f"{max(known, default=0)} times by one"
  return [f"{line}; of {unknown} it is not known" if unknown else line]


def _systems(
  output: pathlib.Path, points: Mapping[str, Sequence[Job]], split: str
) -> list[RunScores]:
  folders = [str(output / job.id) for mine in points.values() for job in mine]
  runs, systems = run_scores.load(folders, split=split), []
  for title, mine in points.items():
    systems.append(one_system(title, mine, runs[: len(mine)]))
    runs = runs[len(mine) :]
  return systems


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
  of_point = collections.defaultdict(list)
  names: dict[str, None] = {}
  for row in rows:
    of_point[row["system"]].append(row)
    names[row["metric"].partition("[")[0].upper()] = None
  head = ["", "", "seeds", *names, f"{next(iter(names))} − base", "p (rand.)", "Holm"]
  cells = [[*head, *compare.METHODS]]
  for title, counted in seeds.items():
    its = of_point[title]
    line = ["*" if title == best else "", title, counted, *(map(_mean, its) if its else "–")]
    if its and its[0]["note"]:
      line[1] += f" ({its[0]['note']})"
    if its and "p_t" in its[0]:  # not of the base
      p = [its[0]["p_randomization"], its[0]["p_randomization_holm"]]
      line.append(f"{its[0]['difference']:+.4f} ± {its[0]['difference_half_width']:.4f}")
      line += [*map(compare.p_text, p), *compare.methods_cells(its[0])]
    cells.append(line + [""] * (len(cells[0]) - len(line)))
  return cells


def _mean(row: Row) -> str:
  return f"{row['mean']:.4f}" + ("" if row["sd"] is None else f" ({row['sd']:.4f})")


def _result(rows: Mapping[str, list[Row]], best: str) -> list[str]:
  """Return the figures of the chosen point on splits with test, which played no part in the choice."""
  lines = []
  for split, of_split in rows.items():
    for row in of_split if "test" in split else ():
      if row["system"] == best:
        width = f"± {row['half_width']:.4f} ({row['questions']} questions)"
        lines.append(f"  {row['metric']} {_mean(row)} {width}")
  return lines
