"""Plan a sweep (`as2jax lab sweep`): every point and seed is a run of its own.

A sweep file has `BASE`, a config file with its argument, and `points()`, which yields flat overrides of it
({"optimizer.rate": 1e-5}). Each point and seed is a run in a folder of the output whose name is the hash of
its resolved config, so that what is finished is never run again. Points are compared, and the best is chosen,
by MAP (over a pool by MRR) on dev, with data.holdout on the questions held out; only the test figures of that
one are a result of the sweep.
"""

import ast
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ml_collections import ConfigDict

from as2jax.config import base as base_config
from as2jax.config import check, overrides
from as2jax.config import jobs as job_files
from as2jax.data import holdout
from as2jax.evaluation import compare, results, run_scores, significance, tables
from as2jax.evaluation.run_scores import RunScores
from as2jax.experiments import figures
from as2jax.runtime.devices import huge_pages_environment
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.preemption import Preempted, stop_listening

OWN = ("seeds", "mode", "seeds_parallel")  # what a sweep sets itself
DATA = ("data.name", "data.train", "data.dev", "data.test", "data.holdout")
DATA += ("evaluation.task", "evaluation.splits", "evaluation.ties")
METRICS = {"rerank": ("map", "mrr", "p@1"), "retrieve": ("mrr", "r@1", "r@5")}  # the first chooses
POLL = 0.2  # seconds
# Let Linux kill a run with its killed sweep: going on, it would hold the lock of its folder. (By a program of
# its own: a function in the child would make `subprocess` fork, which jax's threads do not bear.)
ENDS_WITH_SWEEP = (
  "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
)
PATIENCE = 60.0  # seconds in which a process may end by itself, and save before it does


@dataclasses.dataclass(frozen=True)
class Job:
  """One run with one seed: a point of a sweep, or a cell of a paper's table.

  Attributes:
    id: hash of its config, and the name of its folder; title: of its point or cell; text: config as JSON.
    after: the jobs whose runs it begins with.

  """

  id: str
  title: str
  seed: int
  text: str
  after: tuple["Job", ...] = ()

  @property
  def name(self) -> str:
    """The title with the seed."""
    return f"{self.title}, seed {self.seed}"


def load(path: str) -> tuple[str, list[dict[str, Any]]]:
  """Return `BASE` and the points of a sweep file; InputError where it is wrong."""
  if not pathlib.Path(path).is_file():
    raise InputError(f"there is no sweep file {path}; see configs/ablations/")
  try:
    content = runpy.run_path(path)
    base, points = content["BASE"], list(content["points"]())
  except Exception as error:  # whatever a sweep file may do wrong
    raise InputError(
      f"{path}: {type(error).__name__}: {error}; a sweep file has BASE, a config file, and points(), "
      "which yields overrides"
    ) from error
  if not points or not all(isinstance(point, dict) for point in points):
    raise InputError(
      f"{path}: points() must yield dicts of overrides, such as {{'optimizer.rate': 1e-5}}"
    )
  return base, points


def grid(base: str, items: Sequence[str]) -> list[dict[str, Any]]:
  """Return every combination of the values of `KEY=A,B` texts, as points over a base config."""
  config, axes = job_files.load(base), {}
  for item in items:
    key, _, text = item.partition("=")
    for part in re.split(r",(?![^(\[]*[)\]])", text):  # commas outside of brackets
      value = overrides.parse(config, [f"{key}={part}"], "--grid ")[key]
      axes.setdefault(key, []).append(value)
  return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def plan(
  base: str,
  points: Sequence[Mapping[str, Any]],
  *,
  seeds: Sequence[int] = (),
  settings: Mapping[str, Any] | None = None,
) -> list[Job]:
  """Return the runs of a sweep, those of the base first.

  `seeds` are of every point (the base config's where empty), `settings` overrides of the base itself.

  Raises:
    InputError: an override that does not fit the base, two equal points, points on other data.

  """
  start = overrides.apply(job_files.load(base), settings or {})
  selection = holdout.selection_split(start.data)
  if selection not in start.evaluation.splits:
    raise InputError(f"evaluation.splits lacks {selection}, by which a sweep chooses: put it there")
  seeds = tuple(seeds) or tuple(start.seeds)
  check.check(overrides.apply(start, {"seeds": seeds}))  # below, each run has one of them
  titles, configs = {start.to_json(): "base"}, [start]
  for point in points:
    title = " ".join(f"{key}={value}" for key, value in point.items())
    for key in point:
      if key in OWN + DATA:
        raise InputError(
          f"point {title}: {key} must be the same for all points, which are "
          "compared question by question; set it in the base, or with --set"
        )
    config = overrides.apply(start, point, f"the point {title}: ")
    text = config.to_json()
    if titles.get(text) == "base":
      titles[text] = f"{title} (base)"
    elif text in titles:
      raise InputError(f"the points {titles[text]} and {title} are the same")
    else:
      titles[text] = title
      configs.append(config)
  jobs = []
  for config in configs:
    for seed in seeds:
      of_seed = overrides.apply(config, {"seeds": (seed,)})
      check.check(of_seed)
      jobs.append(make_job(of_seed, titles[config.to_json()]))
  return jobs


def make_job(config: ConfigDict, title: str, after: Sequence[Job] = ()) -> Job:
  """Return the run of a config with one seed, under the hash of the whole of it."""
  content = json.dumps(json.loads(config.to_json()), sort_keys=True)
  name = hashlib.sha256(content.encode()).hexdigest()[:12]
  return Job(name, title, config.seeds[0], config.to_json(indent=2), tuple(after))


def write_manifest(output: pathlib.Path, jobs: Sequence[Job]) -> None:
  """Write `manifest.jsonl`: one run a line, with its resolved config."""
  lines = []
  for one in jobs:
    row = {"id": one.id, "title": one.title, "seed": one.seed, "config": json.loads(one.text)}
    lines.append(json.dumps(row) + "\n")
  write_whole(output / "manifest.jsonl", "".join(lines))


def settings_of(items: Sequence[str]) -> dict[str, Any]:
  """Read KEY=VALUE as overrides; what is no Python literal is text."""
  settings = {}
  for item in items:
    key, equals, value = item.partition("=")
    if not equals:
      raise InputError(f"--set {item}: give KEY=VALUE")
    try:
      settings[key] = ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    except (ValueError, SyntaxError):
      settings[key] = value
  return settings


def finished(folder: pathlib.Path) -> bool:
  """Tell whether a run has its results, which are the last that it writes."""
  return (folder / "results.json").exists()


def command(folder: pathlib.Path) -> list[str]:
  """Return the command that starts or continues the run in `folder`."""
  config = f"--config=rerun:{folder / 'config.json'}"
  return [sys.executable, "-m", "as2jax.main", config, f"--workdir={folder}"]


def options(job: Job) -> list[str]:
  """Return what a run's folder does not tell its process: this machine's folders, leave to run code."""
  defaults = overrides.flatten(base_config.get_config())
  config = defaults | overrides.flatten(json.loads(job.text))
  given = [
    f"--config.{key}={config[key]}" for key in base_config.FOLDERS if config[key] != defaults[key]
  ]
  names = [str(config[f"{section}.name"]) for section in ("model", "loss", "encoder")]
  return [*given, *["--allow-code"] * any(":" in name for name in names)]


def execute(jobs: Sequence[Job], output: pathlib.Path, *, parallel: int) -> dict[str, str]:
  """Run what is not finished; return {id: last line of its log} of the runs that failed.

  A job starts when those that it begins with are finished. Where this process is interrupted
  (KeyboardInterrupt, or Preempted by SIGTERM) its runs end; called again, they go on.
  """
  every: dict[str, Job] = {}
  for job in jobs:
    for one in _with_first(job):
      every.setdefault(one.id, one)
  waiting = [job for job in every.values() if not finished(output / job.id)]
  print(f"{len(every)} runs, {len(every) - len(waiting)} of them finished before", flush=True)
  failed: dict[str, str] = {}
  running: dict[str, tuple[Job, subprocess.Popen, float]] = {}  # with when it started
  before = signal.signal(signal.SIGTERM, _end)
  stop_listening()  # SIGINT is KeyboardInterrupt from here on
  try:
    while waiting or running:
      for job in list(waiting):
        if any(first.id in failed for first in job.after):
          failed[job.id] = "what it begins with has failed"
          waiting.remove(job)
        elif len(running) < parallel and all(finished(output / first.id) for first in job.after):
          waiting.remove(job)
          process = _start(job, output / job.id)
          running[job.id] = job, process, time.monotonic()
      for job, process, started in list(running.values()):
        if process.poll() is None:
          continue
        del running[job.id]
        said = f"finished in {time.monotonic() - started:.0f} s"
        if process.returncode or not finished(output / job.id):
          log = output / job.id / "log.txt"
          failed[job.id] = last_line(log) or "it wrote nothing"
          said = f"FAILED with status {process.returncode}: {failed[job.id]} ({log})"
        done = len(every) - len(waiting) - len(running)
        print(f"[{done}/{len(every)}] {job.id} {job.name}: {said}", flush=True)
      time.sleep(POLL)
  finally:
    _stop([process for _, process, _ in running.values()])
    signal.signal(signal.SIGTERM, before)
  return failed


def _end(*_: Any) -> NoReturn:
  raise Preempted("its runs were told to save and to end")


def _with_first(job: Job) -> Iterator[Job]:
  """Yield a job after all that it begins with."""
  for first in job.after:
    yield from _with_first(first)
  yield job


def write_config(folder: pathlib.Path, job: Job) -> None:
  """Write a run's config, unless it is there."""
  if not (folder / "config.json").exists():
    write_whole(folder / "config.json", job.text + "\n")


def _start(job: Job, folder: pathlib.Path) -> subprocess.Popen:
  write_config(folder, job)
  words = [*command(folder), *options(job)]
  if sys.platform == "linux":
    words = [sys.executable, "-ISc", ENDS_WITH_SWEEP, *words]
  with open(folder / "log.txt", "ab") as log:
    return subprocess.Popen(
      words,
      stdout=log,
      stderr=subprocess.STDOUT,
      stdin=subprocess.DEVNULL,
      env=huge_pages_environment(os.environ),
    )


def last_line(log: pathlib.Path) -> str:
  """Return the last line of a log, which may be under way; "" where there is none yet."""
  lines = log.read_text(errors="replace").splitlines() if log.exists() else []
  return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _stop(processes: Sequence[subprocess.Popen]) -> None:
  """End what still runs: told to, it saves itself; interrupted again, or too late, it is killed."""
  try:
    for process in processes:
      process.terminate()
    end = time.monotonic() + PATIENCE
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
      time.sleep(POLL)
  finally:
    for process in processes:
      process.kill()
      process.wait()


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
    for row in compare.compare(systems, metrics):
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
