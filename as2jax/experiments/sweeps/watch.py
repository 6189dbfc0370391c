"""Where each run of a sweep is, from its folder alone: on this disk or in a bucket.

A sweep's folder has `manifest.jsonl`, its runs; where the runs are in a bucket, `store.json` says in
which. A run's folder has `status.json` from its first minute and `results.json` at its end.
"""

import json
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from etils import epath
from rich.table import Table
from rich.text import Text

from as2jax.evaluation import results
from as2jax.experiments.sweeps.local_executor import last_line
from as2jax.experiments.sweeps.points import Job, read_manifest
from as2jax.runtime.errors import InputError
from as2jax.training import status
from as2jax.training.progress_bar import duration

WAITING, RUNNING, STOPPED, FAILED, FINISHED = "waiting", "running", "stopped", "failed", "finished"
COLOURS = {FAILED: "red", RUNNING: "cyan", STOPPED: "yellow", WAITING: "dim", FINISHED: "green"}
FRESH = 60.0  # seconds for which a status speaks for a process that is not on this machine
SILENT = 600.0  # seconds after which a run that says nothing is called so
ROWS = 30  # of the table, at most; what failed and what is under way comes first
CANCELLED = "cancelled"  # a file beside the runs: they save and end, and no other begins


class State(NamedTuple):
  """Where one run is.

  Attributes:
    id, title: of the run; state: one of `COLOURS`.
    content: of its `status.json`.
    note: the last line of an error, or what else there is to say.

  """

  id: str
  title: str
  state: str
  content: dict[str, Any]
  note: str


def store_of(place: str) -> epath.Path:
  """The folder of a sweep's runs: `place`, or the bucket that it names.

  Raises:
    InputError: `place` is no sweep's folder.

  """
  folder = epath.Path(place)
  named = folder / "store.json"
  if named.exists():
    try:
      return _place(json.loads(named.read_text())["store"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
      raise InputError(
        f"{named}: does not name the folder of the runs ({error!r:.100}): emit the sweep again, which "
        "writes it"
      ) from None
  if not (folder / "manifest.jsonl").exists():
    raise InputError(
      f"{place} has no manifest.jsonl: name the folder of a sweep (its --output, or its --store)"
    )
  return folder


def _place(text: Any) -> epath.Path:
  """The folder of that name; ValueError for what cannot be one."""
  if not isinstance(text, str) or not text.strip() or "\0" in text:
    raise ValueError(f"store = {text!r}")
  return epath.Path(text)


def jobs_of(place: str) -> list[Job]:
  """The runs of a sweep, from its manifest."""
  store_of(place)
  return read_manifest(epath.Path(place) / "manifest.jsonl")


def states(place: str) -> list[State]:
  """Where every run of a sweep is; one that finished here is started in no other place."""
  store, here = store_of(place), epath.Path(place)
  cancelled = (store / CANCELLED).exists()
  found = []
  for job in jobs_of(place):
    folder = here if (here / job.id / "results.json").exists() else store
    state = state_of(folder / job.id, job)
    if cancelled and state.state == WAITING:
      state = state._replace(state=STOPPED, note="the sweep is cancelled")
    found.append(state)
  return found


def state_of(folder: epath.Path, job: Job) -> State:
  """Where one run is."""
  content = status.read(folder)
  if (folder / "results.json").exists():
    return State(job.id, job.title, FINISHED, content | _finished(folder), "")
  logs = log_files(folder)
  if not content and not logs:
    return State(job.id, job.title, WAITING, {}, "")
  state = {status.STOPPED: STOPPED, status.FAILED: FAILED}.get(content.get("state", ""), RUNNING)
  note = content.get("error", "")
  if state == RUNNING:
    age = time.time() - content.get("time", 0.0)
    if "://" not in str(folder) and age > FRESH and not _alive(folder):
      state, note = FAILED, _last(logs)  # it was killed, or failed before it could say so
    elif not content:
      note = _last(logs)
    elif age > SILENT:
      note = f"silent for {duration(age)}"
  return State(job.id, job.title, state, content, note)


def _alive(folder: epath.Path) -> bool:
  """Whether the process that has locked a run's folder on this machine is there.

  The lock itself is not tried: a run that starts in that moment would not get it.
  """
  try:
    os.kill(int((folder / ".lock").read_text().removeprefix("pid ")), 0)
  except PermissionError:
    return True
  except (OSError, ValueError):
    return False
  return True


def _finished(folder: epath.Path) -> dict[str, Any]:
  content = results.read(folder) or {}
  outcome = {"goodput": content.get("execution", {}).get("goodput")}
  chosen = [m for m in content.get("metrics", {}) if m.startswith("map[")]
  name = next((m for m in chosen if m.endswith(("/heldout]", "/dev]"))), None)
  if name:
    outcome |= {"metric": name, "best": content["metrics"][name]["mean"]}
  return outcome


def log_files(folder: epath.Path) -> list[epath.Path]:
  """The logs of a run: of this machine, or one a host."""
  there = [folder / "log.txt"] if (folder / "log.txt").exists() else []
  hosts = folder / "logs"
  return there + (sorted(hosts.iterdir()) if hosts.exists() else [])


def _last(logs: Sequence[epath.Path]) -> str:
  return next((line for log in logs if (line := last_line(log))), "")


def table(runs: Sequence[State], heading: str = "") -> Table:
  """Counts, then a row a run: step, metric on the split that selects, time left, goodput, error."""
  counts = {state: sum(one.state == state for one in runs) for state in COLOURS}
  rich_table = Table(
    title=heading + ", ".join(f"{n} {state}" for state, n in counts.items() if n), expand=True
  )
  columns = (("run", 0), ("", 2), ("state", 0), ("step", 0), ("dev, best", 0), ("left", 0))
  for name, ratio in (*columns, ("goodput", 0), ("note", 3)):
    rich_table.add_column(name, overflow="ellipsis", no_wrap=True, ratio=ratio or None)
  order = list(COLOURS)
  for one in sorted(runs, key=lambda one: order.index(one.state))[:ROWS]:
    rich_table.add_row(
      one.id, Text(one.title), Text(one.state, COLOURS[one.state]), *_cells(one), Text(one.note)
    )
  if len(runs) > ROWS:
    rich_table.caption = f"and {len(runs) - ROWS} more"
  return rich_table


def _cells(one: State) -> list[str]:
  its, left = one.content, one.content.get("seconds_left")
  best, goodput = its.get("best"), its.get("goodput")
  return [
    f"{its['step']}/{its['steps']}" if "step" in its and one.state != FINISHED else "",
    "" if best is None else f"{best:.4f}",
    duration(left) if left is not None and one.state == RUNNING else "",
    "" if goodput is None else f"{goodput:.0%}",
  ]


def rows(runs: Sequence[State]) -> list[dict[str, Any]]:
  """The same as JSON data."""
  return [
    {"id": s.id, "title": s.title, "state": s.state, "note": s.note, **_plain(s.content)}
    for s in runs
  ]


def _plain(content: dict[str, Any]) -> dict[str, Any]:
  return {key: value for key, value in content.items() if key not in ("state", "error")}


def cancel(place: str) -> str:
  """Ends the runs of a sweep: each saves its state. Returns what happens next."""
  store = store_of(place)
  (store / CANCELLED).write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()))
  script = epath.Path(place) / "skypilot" / "launch.sh"
  more = f"; now: bash {script} cancel" if script.exists() else ""
  return (
    f"{store / CANCELLED}: runs save and end within a minute, and their machines are deleted by the "
    f"script that made them{more}. The sweep goes on when it is started again."
  )


def bring(place: str) -> None:
  """Copies the finished runs of a sweep in a bucket here, all but checkpoints and compiled programs."""
  store, here = store_of(place), epath.Path(place)
  for job in jobs_of(place) if store != here else ():
    if (store / job.id / "results.json").exists():
      whole = (here / job.id / "results.json").exists()  # else a copy was broken off
      _copy(store / job.id, here / job.id, anew=not whole)


def _copy(source: epath.Path, target: epath.Path, *, anew: bool) -> None:
  target.mkdir(parents=True, exist_ok=True)
  last = ("results.json",)  # copied each time: it may have been broken off itself
  for path in sorted(source.iterdir(), key=lambda path: path.name in last):
    if path.name == "checkpoints":
      continue
    if path.is_dir():
      _copy(path, target / path.name, anew=anew)
    elif anew or not (target / path.name).exists() or path.name in last:
      (target / path.name).write_bytes(path.read_bytes())
