"""What a sweep came to: its points beside the base, the best by MAP or MRR, that one on test."""

import dataclasses
import itertools
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
SPLITS = ("heldout", "dev", "test")
SAMPLES = 100_000  # of the randomization tests


@dataclasses.dataclass(frozen=True)
class Point:
  """One point: its runs that are finished, of so many."""

  title: str
  jobs: tuple[Job, ...]
  done: tuple[Job, ...]

  @property
  def whole(self) -> bool:
    """Whether every seed of the point is finished."""
    return len(self.done) == len(self.jobs)


def collect(output: pathlib.Path, jobs: Sequence[Job], split: str) -> str:
  """Returns the table of a sweep; writes it as `table.txt`, `.md` and `.tex`, all figures as
  `table.csv` and `.json`, and a page as `report.html`.

  A point counts where all its seeds are finished; its mean and s.d. are over seeds, its difference
  to the base is tested over questions. The best is called final when every point counts. A run that
  has begun and has no results, because it diverged or failed, is named with its log's last line.

  Args:
    split: of the table; "" is that on which the choice is made: dev, or the held-out questions.

  """
  config = json.loads(jobs[0].text)
  selection = holdout.selection_split(config["data"])
  metrics = METRICS[config["evaluation"]["task"]]
  choice = f"{metrics[0].upper()} on {selection}"
  points = _points(output, jobs)
  whole = [point for point in points if point.whole]
  base = next(p for p in points if p.title == "base" or p.title.endswith("(base)"))
  ordered = [base] * base.whole + [p for p in whole if p is not base]
  if not ordered:
    return "\n".join(["no point is finished", *_without_results(output, points)])
  rows = {
    name: compare.compare(_systems(output, ordered, name), metrics, samples=SAMPLES, seed=0)
    for name in _splits(output, ordered)
  }
  split = split or selection
  if split not in rows:
    return f"the runs were not evaluated on {split}, only on {', '.join(rows)}"
  choosing = [row for row in rows[selection] if row["metric"].startswith(f"{metrics[0]}[")]
  by_system = {row["system"]: row for row in choosing}
  best = max(whole, key=lambda point: by_system[point.title]["mean"]).title  # the first of equals
  if not base.whole:
    rows = {name: [_alone(row) for row in its] for name, its in rows.items()}
  heading = _heading(rows[split], choice)
  cells = _cells(points, rows[split], best, base)
  result = _result(rows, best, choice, len(whole) == len(points))
  result += _without_results(output, points)
  done = {output / job.id: job.title for point in points for job in point.done}
  result += [*tests_seen(done), *seen_by(done)]
  text = _write(output, heading, cells, result, _flat(rows, best))
  page = many.make(
    f"Sweep {output.name}",
    heading,
    result=[line.strip() for line in result],
    marks=[_mark(row, best) for row in choosing],
    axis=f"{choice}, by which the choice is made",
    cells=cells,
    left=2,
    ledger=ledger(done),
  )
  write_whole(output / "report.html", page)
  return text


def _write(
  output: pathlib.Path,
  heading: str,
  cells: Sequence[Sequence[str]],
  result: Sequence[str],
  flat: Sequence[dict[str, Any]],
) -> str:
  """Writes the table as text, Markdown and LaTeX, all figures as CSV and JSON; returns the text."""
  text = "\n".join([heading, tables.render(cells, left=2), "", *result])
  write_whole(output / "table.txt", text + "\n")
  write_whole(
    output / "table.md",
    "\n".join([heading, "", tables.render(cells, "markdown", left=2), "", "\\\n".join(result)])
    + "\n",
  )
  write_whole(output / "table.csv", tables.render(flat, "csv") + "\n")
  write_whole(output / "table.json", json.dumps(flat, indent=2) + "\n")
  latex = tables.render(cells, "latex", left=2, caption=heading)
  write_whole(output / "table.tex", latex + "\n")
  return text


def _mark(row: dict[str, Any], best: str) -> many.Mark:
  return many.Mark(row["system"], row["mean"], row["half_width"], None, row["system"] == best)


def ledger(done: Mapping[pathlib.Path, str]) -> list[list[str]]:
  """How often each finished run (folder -> title) evaluated test with its seeds, under a head."""
  rows = [["run", "folder", "times that test was evaluated"]]
  for folder, title in done.items():
    content = results.read(folder) or {"data": {"name": ""}}
    count = results.times_evaluated(folder, "test", content["data"]["name"])
    rows.append([title, folder.name, "not known" if count is None else str(count)])
  return rows


def _points(output: pathlib.Path, jobs: Sequence[Job]) -> list[Point]:
  grouped: dict[int, list[Job]] = {}
  for job in jobs:
    grouped.setdefault(job.point, []).append(job)
  return [
    Point(
      mine[0].title.rpartition(", seed ")[0],
      tuple(mine),
      tuple(job for job in mine if finished(output / job.id)),
    )
    for mine in grouped.values()
  ]


def _without_results(output: pathlib.Path, points: Sequence[Point]) -> list[str]:
  """A line for each run that has a log and no results."""
  left = [job for point in points for job in point.jobs if job not in point.done]
  return [
    f"without results: {job.title} ({job.id}): {last}"
    for job in left
    if (last := last_line(output / job.id / "log.txt"))
  ]


def seen_by(done: Iterable[pathlib.Path]) -> list[str]:
  """What the encoders of finished runs are known to have seen, each statement once."""
  contents = map(results.read, done)
  return pretraining.under_table(pretraining.statements(content or {}) for content in contents)


def tests_seen(done: Iterable[pathlib.Path]) -> list[str]:
  """How often the test split was evaluated by all runs of a table together."""
  counts = []
  for folder in done:
    content = results.read(folder)
    if content is not None:
      name = content["data"]["name"]
      counts.append(results.times_evaluated(folder, "test", name))
  known = [count for count in counts if count is not None]
  if not counts:
    return []
  unknown = f"; of {len(counts) - len(known)} it is not known" if len(known) < len(counts) else ""
  return [
    f"test was evaluated {sum(known)} times in all by {len(known)} runs, at most "
    f"{max(known, default=0)} times by one{unknown}"
  ]


def _splits(output: pathlib.Path, points: Sequence[Point]) -> list[str]:
  """Those on which the runs were evaluated, the joined ones (dev+test) last; train is left out."""
  folder = output / points[0].jobs[0].id / "eval"
  there = [place.name for place in folder.iterdir() if set(place.name.split("+")) <= set(SPLITS)]
  return sorted(there, key=lambda name: (len(parts := name.split("+")), SPLITS.index(parts[0])))


def _systems(output: pathlib.Path, points: Sequence[Point], split: str) -> list[RunScores]:
  """Each point as one system whose seeds are its runs."""
  ids = [job.id for point in points for job in point.jobs]
  loaded = dict(zip(ids, run_scores.load([str(output / i) for i in ids], split=split), strict=True))
  joined = []
  for point in points:
    joined.append(one_system(point.title, point.jobs, [loaded[job.id] for job in point.jobs]))
  return joined


def one_system(title: str, jobs: Sequence[Job], runs: Sequence[RunScores]) -> RunScores:
  """Runs of one seed each as one system."""
  shared = [m for m in runs[0].values if all(m in run.values for run in runs)]
  return RunScores(
    title,
    runs[0].data,
    runs[0].ids,
    {metric: np.concatenate([run.metric(metric) for run in runs]) for metric in shared},
    all(run.deterministic for run in runs),
    _note([job.seed for job, run in zip(jobs, runs, strict=True) if run.note], runs),
    runs[0].pretraining,
    tuple(digest for run in runs for digest in run.origins),
  )


def _note(seeds: Sequence[int], runs: Sequence[RunScores]) -> str:
  """The note of the runs that have one, with their seeds where some have none."""
  if not seeds:
    return ""
  note = next(run.note for run in runs if run.note)
  return note if len(seeds) == len(runs) else f"{note} (seed {', '.join(map(str, seeds))})"


def _alone(row: dict[str, Any]) -> dict[str, Any]:
  """A row without its difference, which is to another point than the base."""
  shown = ("metric", "system", "seeds", "questions", "mean", "sd", "half_width", "note")
  return {key: row[key] for key in shown}


def _heading(rows: Sequence[dict], choice: str) -> str:
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  return (
    f"{where}, {rows[0]['questions']} questions; mean (s.d. over seeds); ± is the 95 % "
    f"half-width of a difference; * is the best by {choice}. {compare.METHODS_LEGEND}"
  )


def _cells(
  points: Sequence[Point], rows: Sequence[dict], best: str, base: Point
) -> list[list[str]]:
  metrics = list(dict.fromkeys(row["metric"] for row in rows))
  by_cell = {(row["system"], row["metric"]): row for row in rows}
  first = metrics[0]
  cells = [
    [
      "",
      "",
      "seeds",
      *(m.partition("[")[0].upper() for m in metrics),
      f"{first.partition('[')[0].upper()} − base",
      "p (rand.)",
      "Holm",
      *compare.METHODS,
    ]
  ]
  for point in points:
    counted = f"{len(point.done)}/{len(point.jobs)}"
    if not point.whole:
      cells.append(["", point.title, counted, *["–"] * len(metrics), *[""] * 6])
      continue
    row = by_cell[point.title, first]
    means = [_mean(by_cell[point.title, metric]) for metric in metrics]
    tests = [""] * 6
    if point is not base and "p_t" in row:
      tests = [
        f"{row['difference']:+.4f} ± {row['difference_half_width']:.4f}",
        compare.p_text(row["p_randomization"]),
        compare.p_text(row["p_randomization_holm"]),
        *compare.methods_cells(row),
      ]
    title = point.title + (f" ({row['note']})" if row["note"] else "")
    cells.append(["*" if point.title == best else "", title, counted, *means, *tests])
  return cells


def _mean(row: dict[str, Any]) -> str:
  return f"{row['mean']:.4f}" + ("" if row["sd"] is None else f" ({row['sd']:.4f})")


def _result(rows: dict[str, list[dict]], best: str, choice: str, final: bool) -> list[str]:
  """The figures of the chosen point on splits with test, which played no part in the choice."""
  if not final:
    return [
      f"best so far: {best}; not every point is finished, so there is no result yet "
      "(a point that cannot finish must be left out of the sweep)"
    ]
  lines = [f"result: {best}, chosen by {choice}"]
  reported = [rows[split] for split in rows if "test" in split.split("+")]
  for row in itertools.chain.from_iterable(reported):
    if row["system"] == best:
      line = (
        f"  {row['metric']} {_mean(row)} ± {row['half_width']:.4f} ({row['questions']} questions)"
      )
      if "p_t" in row:
        line += (
          f"; to the base {row['difference']:+.4f} ± {row['difference_half_width']:.4f}, p "
          f"{compare.p_text(row['p_t'])} (t), "
          f"{compare.p_text(row['p_randomization'])} (randomization)"
        )
        width, p, finds = compare.methods_cells(row)
        line += f"; of methods {width}" + (f", p {p}, finds {finds}" if p else "")
      lines.append(line)
  return lines


def _flat(rows: dict[str, list[dict]], best: str) -> list[dict[str, Any]]:
  """Every figure; `chosen` marks the point whose test figures are the result."""
  return [
    {"split": split, "chosen": int(row["system"] == best), **row}
    for split, its in rows.items()
    for row in its
  ]
