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
from as2jax.report import many
from as2jax.runtime.files import write_whole

METRICS = {"rerank": ("map", "mrr", "p@1"), "retrieve": ("mrr", "r@1", "r@5")}  # the first chooses
SPLITS = ("heldout", "dev", "test", "dev+test", "heldout+test")
SAMPLES = 100_000  # of the randomization tests
ALONE = ("metric", "system", "seeds", "questions", "mean", "sd", "half_width", "note")
Row = Mapping[str, Any]


def collect(output: pathlib.Path, jobs: Sequence[Job], split: str) -> str:
  """Write the table of a sweep and its page; return the table as text.

  A point counts where all its seeds are finished; its mean and s.d. are over seeds, its difference to the base is
  tested over questions. The best is called final when every point counts. A run that has begun and has no
  results, because it diverged or failed, is named with its log's last line.

  Args:
    split: of the table; "" is that on which the choice is made: dev, or the held-out questions.

  """
  config = json.loads(jobs[0].text)
  selection = holdout.selection_split(config["data"])
  metrics = METRICS[config["evaluation"]["task"]]
  choice = f"{metrics[0].upper()} on {selection}"
  points: dict[str, list[Job]] = {}
  for job in jobs:
    points.setdefault(job.title.rpartition(", seed ")[0], []).append(job)
  done = {output / job.id: job.title for job in jobs if finished(output / job.id)}
  counts = {title: sum(output / job.id in done for job in mine) for title, mine in points.items()}
  base = next(title for title in points if title == "base" or title.endswith("(base)"))
  whole = [title for title, mine in points.items() if counts[title] == len(mine)]
  notes = [
    f"without results: {job.title} ({job.id}): {last}"
    for job in jobs
    if output / job.id not in done and (last := last_line(output / job.id / "log.txt"))
  ]
  if not whole:
    return "\n".join(["no point is finished", *notes])
  whole.sort(key=lambda title: title != base)  # the base first, where it is there
  rows: dict[str, list[Row]] = {}
  for name in SPLITS:
    if (output / points[whole[0]][0].id / "eval" / name).exists():
      systems = _systems(output, {title: points[title] for title in whole}, name)
      rows[name] = compare.compare(systems, metrics, samples=SAMPLES, seed=0)
      if base not in whole:  # differences are to another point
        rows[name] = [{key: row[key] for key in ALONE} for row in rows[name]]
  split = split or selection
  if split not in rows:
    return f"the runs were not evaluated on {split}, only on {', '.join(rows)}"
  choosing = [row for row in rows[selection] if row["metric"].startswith(f"{metrics[0]}[")]
  means = {row["system"]: row["mean"] for row in choosing}
  best = max((title for title in points if title in means), key=means.get)  # the first of equals
  result = _result(rows, best, choice, final=len(whole) == len(points))
  result += [*notes, *tests_seen(done), *seen_by(done)]
  where = rows[split][0]["metric"].partition("[")[2].rstrip("]")
  heading = (
    f"{where}, {rows[split][0]['questions']} questions; mean (s.d. over seeds); ± is the 95 % "
    f"half-width of a difference; * is the best by {choice}. {compare.METHODS_LEGEND}"
  )
  seeds = {title: f"{counts[title]}/{len(mine)}" for title, mine in points.items()}
  cells = _cells(seeds, rows[split], best)
  text = "\n".join([heading, tables.render(cells, left=2), "", *result])
  marked = [heading, "", tables.render(cells, "markdown", left=2), "", "\\\n".join(result)]
  flat = [
    {"split": name, "chosen": int(row["system"] == best), **row}
    for name in rows
    for row in rows[name]
  ]
  marks = [
    many.Mark(row["system"], row["mean"], row["half_width"], None, row["system"] == best)
    for row in choosing
  ]
  page = many.make(
    f"Sweep {output.name}",
    heading,
    result=[line.strip() for line in result],
    marks=marks,
    axis=f"{choice}, by which the choice is made",
    cells=cells,
    left=2,
    ledger=ledger(done),
  )
  write_whole(output / "table.txt", text + "\n")
  write_whole(output / "table.md", "\n".join(marked) + "\n")
  write_whole(output / "table.tex", tables.render(cells, "latex", left=2, caption=heading) + "\n")
  write_whole(output / "table.csv", tables.render(flat, "csv") + "\n")
  write_whole(output / "table.json", json.dumps(flat, indent=2) + "\n")
  write_whole(output / "report.html", page)
  return text


def _times(done: Iterable[pathlib.Path]) -> list[int | None]:
  """Return how often each finished run evaluated test; None where it has no ledger."""
  times = []
  for folder in done:
    content = results.read(folder) or {"data": {"name": ""}}
    times.append(results.times_evaluated(folder, "test", content["data"]["name"]))
  return times


def ledger(done: Mapping[pathlib.Path, str]) -> list[list[str]]:
  """Return a head, and a row a finished run (folder -> title): how often it evaluated test."""
  rows = [["run", "folder", "times that test was evaluated"]]
  for (folder, title), count in zip(done.items(), _times(done), strict=True):
    rows.append([title, folder.name, "not known" if count is None else str(count)])
  return rows


def seen_by(done: Iterable[pathlib.Path]) -> list[str]:
  """Return what the encoders of finished runs are known to have seen, each statement once."""
  contents = map(results.read, done)
  return pretraining.under_table(pretraining.statements(content or {}) for content in contents)


def tests_seen(done: Iterable[pathlib.Path]) -> list[str]:
  """Return a line on how often all runs of a table together evaluated the test split."""
  counts = _times(done)
  if not counts:
    return []
  known = [count for count in counts if count is not None]
  unknown = f"; of {len(counts) - len(known)} it is not known" if len(known) < len(counts) else ""
  return [
    f"test was evaluated {sum(known)} times in all by {len(known)} runs, at most "
    f"{max(known, default=0)} times by one{unknown}"
  ]


def _systems(
  output: pathlib.Path, points: Mapping[str, Sequence[Job]], split: str
) -> list[RunScores]:
  """Return each point as one system whose seeds are its runs."""
  folders = [str(output / job.id) for mine in points.values() for job in mine]
  loaded = iter(run_scores.load(folders, split=split))
  return [one_system(title, mine, [next(loaded) for _ in mine]) for title, mine in points.items()]


def one_system(title: str, jobs: Sequence[Job], runs: Sequence[RunScores]) -> RunScores:
  """Return runs of one seed each as one system; a note names the seeds that it is of."""
  shared = [m for m in runs[0].values if all(m in run.values for run in runs)]
  noted = [str(job.seed) for job, run in zip(jobs, runs, strict=True) if run.note]
  note = next((run.note for run in runs if run.note), "")
  if 0 < len(noted) < len(runs):
    note += f" (seed {', '.join(noted)})"
  return RunScores(
    title,
    runs[0].data,
    runs[0].ids,
    {metric: np.concatenate([run.metric(metric) for run in runs]) for metric in shared},
    all(run.deterministic for run in runs),
    note,
    runs[0].pretraining,
    tuple(digest for run in runs for digest in run.origins),
  )


def _cells(seeds: Mapping[str, str], rows: Sequence[Row], best: str) -> list[list[str]]:
  """Return a head, and a row a point: finished seeds, means, the difference to the base."""
  metrics = list(dict.fromkeys(row["metric"] for row in rows))
  names = [metric.partition("[")[0].upper() for metric in metrics]
  tests = [f"{names[0]} − base", "p (rand.)", "Holm", *compare.METHODS]
  by_cell = {(row["system"], row["metric"]): row for row in rows}
  cells = [["", "", "seeds", *names, *tests]]
  for title, counted in seeds.items():
    row = by_cell.get((title, metrics[0]))
    if row is None:
      cells.append(["", title, counted, *["–"] * len(metrics), *[""] * len(tests)])
      continue
    tested = [""] * len(tests)
    if "p_t" in row:  # not of the base
      tested = [
        f"{row['difference']:+.4f} ± {row['difference_half_width']:.4f}",
        compare.p_text(row["p_randomization"]),
        compare.p_text(row["p_randomization_holm"]),
        *compare.methods_cells(row),
      ]
    noted = f"{title} ({row['note']})" if row["note"] else title
    means = [_mean(by_cell[title, metric]) for metric in metrics]
    cells.append(["*" if title == best else "", noted, counted, *means, *tested])
  return cells


def _mean(row: Row) -> str:
  return f"{row['mean']:.4f}" + ("" if row["sd"] is None else f" ({row['sd']:.4f})")


def _result(rows: Mapping[str, list[Row]], best: str, choice: str, *, final: bool) -> list[str]:
  """Return the figures of the chosen point on splits with test, which played no part in the choice."""
  if not final:
    return [
      f"best so far: {best}; not every point is finished, so there is no result yet "
      "(a point that cannot finish must be left out of the sweep)"
    ]
  lines = [f"result: {best}, chosen by {choice}"]
  reported = [row for split in rows if "test" in split for row in rows[split]]
  for row in reported:
    if row["system"] != best:
      continue
    line = (
      f"  {row['metric']} {_mean(row)} ± {row['half_width']:.4f} ({row['questions']} questions)"
    )
    if "p_t" in row:
      difference = f"{row['difference']:+.4f} ± {row['difference_half_width']:.4f}"
      line += f"; to the base {difference}, p {compare.p_text(row['p_t'])} (t), "
      line += f"{compare.p_text(row['p_randomization'])} (randomization)"
      width, p, finds = compare.methods_cells(row)
      line += f"; of methods {width}" + (f", p {p}, finds {finds}" if p else "")
    lines.append(line)
  return lines
