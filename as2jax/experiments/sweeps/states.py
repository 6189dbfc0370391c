"""Where each run of a sweep is, from its folder alone."""

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
  row = {
    "id": job.id,
    "title": job.title,
    "state": WAITING,
    "note": "",
    **progress.read_status(folder),
  }
  log = folder / "log.txt"
  if (folder / "results.json").exists():
    return row | {"state": progress.FINISHED} | _outcome(folder)
  if row["state"] == WAITING and not log.exists():
    return row
  if row["state"] in (WAITING, progress.TRAINING):
    age = time.time() - row.get("time", log.stat().st_mtime if log.exists() else 0.0)
    row |= {"state": RUNNING, "note": "" if "time" in row else last_line(log)}
    if age > QUIET:
      row |= {"state": SILENT, "note": f"for {duration(age)}; {last_line(log)}"}
  return row | {"note": row.pop("error", "") or row["note"]}


def _outcome(folder: pathlib.Path) -> dict[str, Any]:
  """Return the goodput of a finished run, and its MAP on the split that selects."""
  content = results.read(folder) or {}
  outcome = {"goodput": content.get("execution", {}).get("goodput")}
  for name, figure in content.get("metrics", {}).items():
    if name.startswith("map[") and name.endswith(("/heldout]", "/dev]")):
      return outcome | {"metric": name, "best": figure["mean"]}
  return outcome


def cells(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
  """Return a head, and a row of texts a run: state, step, dev, time left, goodput, note."""
  lines = [("run", "", "state", "step", "dev, best", "left", "goodput", "note")]
  for run in runs:
    left = run.get("seconds_left") if run["state"] == RUNNING else None
    lines.append(
      (
        run["id"],
        run["title"],
        run["state"],
        f"{run['step']}/{run['steps']}"
        if "step" in run and run["state"] != progress.FINISHED
        else "",
        "" if run.get("best") is None else f"{run['best']:.4f}",
        "" if left is None else duration(left),
        "" if run.get("goodput") is None else f"{run['goodput']:.0%}",
        run["note"],
      )
    )
  return lines
