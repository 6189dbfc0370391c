"""Where each run of a sweep is, from its folder alone (`as2jax lab sweep status`)."""

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.evaluation import results
from as2jax.experiments.sweeps.local_executor import last_line
from as2jax.experiments.sweeps.points import Job, read_manifest
from as2jax.training import progress
from as2jax.training.progress import duration

WAITING, RUNNING, SILENT = "waiting", "running", "silent"
QUIET = 300.0  # seconds without a word, after which a run is called silent: it may have been killed


def rows(folder: pathlib.Path) -> list[dict[str, Any]]:
  """Return the state of every run of a sweep: its id, title, `state`, `note`, and its `status.json`."""
  return [state_of(folder / job.id, job) for job in read_manifest(folder)]


def state_of(folder: pathlib.Path, job: Job) -> dict[str, Any]:
  """Return the state of one run: waiting, running, silent, stopped, failed or finished."""
  row = {"id": job.id, "title": job.title, "state": WAITING, "note": ""}
  row |= progress.read_status(folder)
  if content := results.read(folder):
    row |= {"state": progress.FINISHED, "goodput": content.get("execution", {}).get("goodput")}
    for name, figure in content.get("metrics", {}).items():
      if name.startswith("map[") and name.endswith(("/heldout]", "/dev]")):
        return row | {"metric": name, "best": figure["mean"]}
    return row
  log = folder / "log.txt"
  if row["state"] == WAITING and not log.exists():
    return row
  if row["state"] in (WAITING, progress.TRAINING):
    row["state"] = RUNNING
    if "time" not in row:
      row["note"] = last_line(log)
    age = time.time() - (row["time"] if "time" in row else log.stat().st_mtime)
    if age > QUIET:
      row |= {"state": SILENT, "note": f"for {duration(age)}; {last_line(log)}"}
  row["note"] = row.pop("error", "") or row["note"]
  return row


def cells(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
  """Return a head, and a row of texts a run: state, step, dev, time left, goodput, note."""
  lines = [("run", "", "state", "step", "dev, best", "left", "goodput", "note")]
  for run in runs:
    step = best = left = goodput = ""
    if "step" in run and run["state"] != progress.FINISHED:
      step = f"{run['step']}/{run['steps']}"
    if run.get("best") is not None:
      best = f"{run['best']:.4f}"
    if run["state"] == RUNNING and run.get("seconds_left") is not None:
      left = duration(run["seconds_left"])
    if run.get("goodput") is not None:
      goodput = f"{run['goodput']:.0%}"
    lines.append((run["id"], run["title"], run["state"], step, best, left, goodput, run["note"]))
  return lines
