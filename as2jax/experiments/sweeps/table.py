"""What a sweep came to: its points beside the base, the best by MAP or MRR, that one on test."""

import json
import pathlib
from collections.abc import Mapping, Sequence

from as2jax.data import holdout
from as2jax.evaluation import compare, results, run_scores, significance, tables
from as2jax.evaluation.run_scores import RunScores
from as2jax.experiments import figures
from as2jax.experiments.sweeps.local_executor import finished, last_line
from as2jax.experiments.sweeps.points import Job

METRICS = {"rerank": ("map", "mrr", "p@1"), "retrieve": ("mrr", "r@1", "r@5")}  # the first chooses


def collect(output: pathlib.Path, jobs: Sequence[Job]) -> str:
  """Write `table.txt`, `.md`, `.tex` and (with all splits) `.csv` of a sweep; return it as text.

  A point counts where all its seeds are finished. The best by MAP or MRR on the split that chooses is final
  when every point counts. A run without results is named with its log's last line.
  """
  config = json.loads(jobs[0].text)
  selection = holdout.selection_split(config["data"])
  metrics = METRICS[config["evaluation"]["task"]]
  points: dict[str, list[Job]] = {}  # the base first, as differences are to it
  done, notes, unfinished = [], [], set()
  for job in jobs:
    points.setdefault(job.title, []).append(job)
    folder = output / job.id
    if finished(folder):
      done.append(folder)
    else:
      unfinished.add(job.title)
      why = last_line(folder / "log.txt") or "not run yet"
      notes.append(f"without results: {job.name} ({job.id}): {why}")
  whole = {title: points[title] for title in points if title not in unfinished}
  if not whole:
    return "\n".join(["no point is finished", *notes])
  rows = []
  for split in results.splits_of(results.read(done[0])):
    systems = _systems(output, whole, split)
    for row in compare.compare(systems, metrics, samples=figures.SAMPLES, seed=0):
      rows.append({"split": split, **row})
  shown = [row for row in rows if row["split"] == selection]
  choosing = [row for row in shown if row["metric"].startswith(f"{metrics[0]}[")]
  best = max(choosing, key=lambda row: row["mean"])["system"]  # the first of equals
  result = [
    f"best so far: {best}; not every point is finished, so there is no result yet "
    "(a point that cannot finish must be left out of the sweep)"
  ]
  if not unfinished:
    result = [f"result: {best}, chosen by {metrics[0].upper()} on {selection}"]
    for row in rows:  # test played no part in the choice
      if "test" in row["split"] and row["system"] == best:
        sd = "" if row["sd"] is None else f" ({row['sd']:.4f})"
        counts = significance.count_text(row["questions"], row.get("groups"))
        width = f"± {row['half_width']:.4f} ({counts})"
        result.append(f"  {row['metric']} {row['mean']:.4f}{sd} {width}")
  made = {form: compare.for_paper(shown, form) for form in ("markdown", "latex")}
  made["csv"] = tables.render(rows, "csv")
  made["text"] = compare.as_text(shown)
  return figures.write(output / "table", made, [*result, *notes, *figures.seen(done)])


def _systems(
  output: pathlib.Path, points: Mapping[str, Sequence[Job]], split: str
) -> list[RunScores]:
  folders = [str(output / job.id) for mine in points.values() for job in mine]
  runs, systems = run_scores.load(folders, split=split), []
  for title, mine in points.items():
    seeds = [job.seed for job in mine]
    systems.append(figures.one_system(title, seeds, runs[: len(mine)]))
    runs = runs[len(mine) :]
  return systems
