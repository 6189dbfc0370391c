"""python -m launch.sweep configs/ablations/x.py --output=runs/x: every point and seed of a sweep.

A sweep file has `BASE`, a config file with its argument, and `points()`, which yields flat
overrides of it ({"optimizer.rate": 1e-5}). Each point and seed is a run of its own in a folder of
--output whose name is the hash of its resolved config, so that what is finished is never run again.
Points are compared, and the best is chosen, by MAP on dev (with data.holdout, on the questions
held out); only the test figures of that one are a result of the sweep.
"""

import argparse
import ast
import dataclasses
import functools
import hashlib
import importlib.util
import json
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from as2jax import config_check, flags_config
from as2jax.data import holdout
from as2jax.errors import InputError
from as2jax.workdir import write_whole
from launch import local_executor

OWN = ("seeds", "mode", "execution")  # what a sweep sets itself
DATA = ("data.name", "data.train", "data.dev", "data.test", "data.holdout",
        "evaluation.splits", "evaluation.ties")


@dataclasses.dataclass(frozen=True)
class Job:
  """One point with one seed.

  Attributes:
    id: hash of the resolved config.
    point: number of the point; title: its overrides and the seed.
    text: the resolved config as JSON.
  """

  id: str
  point: int
  title: str
  overrides: Mapping[str, Any]
  seed: int
  text: str


def load(path: str) -> tuple[str, list[dict[str, Any]]]:
  """`BASE` and the points of a sweep file; InputError where it is wrong."""
  if not pathlib.Path(path).is_file():
    raise InputError(f"there is no sweep file {path}; see configs/ablations/")
  spec = importlib.util.spec_from_file_location("sweep_file", path)
  try:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    base, points = module.BASE, list(module.points())
  except Exception as error:  # whatever a sweep file may do wrong
    raise InputError(f"{path}: {type(error).__name__}: {error}; a sweep file has BASE, a config "
                     "file, and points(), which yields overrides") from error
  if not points or not all(isinstance(point, dict) for point in points):
    raise InputError(f"{path}: points() must yield dicts of overrides, such as "
                     "{'optimizer.rate': 1e-5}")
  return base, points


def plan(base: str, points: Sequence[Mapping[str, Any]], *, seeds: Sequence[int] = (),
         settings: Mapping[str, Any] | None = None) -> list[Job]:
  """The runs of a sweep, those of the base first where it is none of the points.

  Args:
    seeds: of every point; the base config's where empty.
    settings: overrides of the base itself.

  Raises:
    InputError: an override that does not fit the base, two equal points, points on other data.
  """
  start = override(flags_config.load(base), settings or {}, "--set")
  selection = holdout.selection_split(start.data)
  if selection not in start.evaluation.splits:
    raise InputError(f"evaluation.splits lacks {selection}, by which a sweep chooses: put it there")
  seeds = tuple(seeds) or tuple(start.seeds)
  resolved: dict[str, Mapping[str, Any]] = {}
  jobs: list[Job] = []
  for point in points:
    for key in point:
      if key in OWN + DATA:
        raise InputError(f"point {_title(point)}: {key} must be the same for all points, which are "
                         "compared question by question; set it in the base, or with --set")
    text = override(start, point, _title(point)).to_json()
    if text in resolved:
      raise InputError(f"the points {_title(resolved[text])} and {_title(point)} are the same")
    resolved[text] = point
  if start.to_json() not in resolved:
    points = [{}, *points]
  for number, point in enumerate(points):
    is_base = override(start, point, "").to_json() == start.to_json()
    title = " ".join(filter(None, (_title(point), "(base)" if is_base and point else "")))
    for seed in seeds:
      config = override(start, {**point, "seeds": (seed,)}, _title(point))
      config_check.check(config)
      jobs.append(job(config, number, f"{title}, seed {seed}", point))
  return jobs


def job(config: ConfigDict, point: int, title: str, overrides: Mapping[str, Any]) -> Job:
  """The run of a config with one seed, under the hash of the whole of it."""
  content = json.dumps(json.loads(config.to_json()), sort_keys=True)
  return Job(hashlib.sha256(content.encode()).hexdigest()[:12], point, title, overrides,
             config.seeds[0], config.to_json(indent=2))


def override(config: ConfigDict, values: Mapping[str, Any], where: str) -> ConfigDict:
  """A copy of a config with flat overrides; InputError where they do not fit it."""
  config = config.copy_and_resolve_references().lock()
  for key, value in values.items():
    *sections, name = key.split(".")
    here = config
    try:
      for section in sections:
        here = here[section]
      if name not in here or isinstance(here[name], ConfigDict):
        raise KeyError(f"the config has no key {key!r}")
      here[name] = value
    except (KeyError, TypeError, AttributeError, ValueError) as error:
      text = " ".join(str(error.args[0] if error.args else error).split())
      raise InputError(f"{where}: {key} = {value!r} does not fit the base: {text}") from error
  return config


def write_manifest(output: pathlib.Path, jobs: Sequence[Job]) -> None:
  """`manifest.jsonl`: one run a line, with its resolved config."""
  lines = [json.dumps({"id": job.id, "point": dict(job.overrides), "seed": job.seed,
                       "config": json.loads(job.text)}) for job in jobs]
  write_whole(output / "manifest.jsonl", "\n".join(lines) + "\n")


def _title(point: Mapping[str, Any]) -> str:
  return " ".join(f"{key}={value}" for key, value in point.items()) or "base"


def settings_of(given: Sequence[str]) -> dict[str, Any]:
  """KEY=VALUE as overrides; what is no Python literal is text."""
  settings = {}
  for item in given:
    key, equals, value = item.partition("=")
    if not equals:
      raise InputError(f"--set {item}: give KEY=VALUE")
    try:
      settings[key] = ast.literal_eval(value)
    except (ValueError, SyntaxError):
      settings[key] = value
  return settings


def seeds_of(given: str) -> tuple[int, ...]:
  """The seeds of `0,1,2`."""
  try:
    return tuple(int(seed) for seed in given.split(",") if seed)
  except ValueError:
    raise InputError(f"--seeds={given}: give whole numbers, such as 0,1,2") from None


def sweep(path: str, output: str, *, base: str = "", seeds: Sequence[int] = (),
          settings: Sequence[str] = (), parallel: int = 1, split: str = "",
          elsewhere: Callable[[Sequence[Job], pathlib.Path], str] | None = None) -> int:
  """Plans, runs and collects; prints the table. Returns 0, or 1 where a run failed.

  Args:
    split: of the table; "" for that by which the best is chosen.
    elsewhere: writes what runs the jobs on other machines and says what to do with it; None to run
      them here.
  """
  if "://" in output:
    raise InputError(f"--output={output}: runs on this machine want a local folder")
  if parallel < 0:
    raise InputError(f"--parallel={parallel}: give 1 or more, or 0 to collect alone")
  named, points = load(path)
  jobs = plan(base or named, points, seeds=seeds, settings=settings_of(settings))
  folder = pathlib.Path(output).absolute()
  write_manifest(folder, jobs)
  if elsewhere:
    print(elsewhere(jobs, folder))
    return 0
  failed = run_here(jobs, folder, parallel) if parallel else {}
  from launch import sweep_table  # with numpy and all that reads results
  print(sweep_table.collect(folder, jobs, split))
  for job in jobs:
    if job.id in failed:
      print(f"failed: {job.id} {job.title}: {failed[job.id]}")
  return 1 if failed else 0


def run_here(jobs: Sequence[Job], folder: pathlib.Path, parallel: int) -> dict[str, str]:
  """Runs jobs on this machine, with a live table on a terminal; returns what failed, as `execute`.
  """
  if not sys.stdout.isatty():
    return local_executor.execute(jobs, folder, parallel=parallel,
                                  say=lambda line: print(line, flush=True))
  from launch.live_table import LiveTable
  with LiveTable(folder) as live:
    return local_executor.execute(jobs, folder, parallel=parallel, say=live.say, watch=live.watch)


def _elsewhere(given: argparse.Namespace) -> Callable[[Sequence[Job], pathlib.Path], str] | None:
  if not given.emit:
    return None
  from launch import cloud
  where = cloud.machine(given.tpu, zone=given.zone, spot=given.spot, queued=given.queued)
  return functools.partial(cloud.emit, given.emit, where=where, store=given.store.rstrip("/"),
                           data=given.data.rstrip("/"), nodes=given.nodes)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs a sweep; returns the exit status: 1 where a run failed, 2 for bad input."""
  parser = argparse.ArgumentParser(prog="python -m launch.sweep", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("sweep", help="a file such as configs/ablations/cete_grid.py")
  parser.add_argument("--output", required=True, help="folder of the runs and the tables")
  parser.add_argument("--base", default="", help="another config file than the sweep's BASE")
  parser.add_argument("--seeds", default="", help="such as 0,1,2; the base's where not given")
  parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                      help="an override of the base, for every point")
  parser.add_argument("--parallel", type=int, default=1,
                      help="runs at a time; 0 only collects what is finished")
  parser.add_argument("--table", choices=("dev", "test", "heldout"), default="",
                      help="the split of the table of all points (default: that which chooses)")
  clouds = parser.add_argument_group("on Cloud TPUs (launch/tpu_vm.md): files are written, nothing "
                                     "is started")
  clouds.add_argument("--emit", choices=("skypilot", "gcloud"), default="")
  clouds.add_argument("--tpu", default="v5e-1", help="generation and size, such as v5e-8, v6e-4")
  clouds.add_argument("--zone", default="us-west4-a")
  clouds.add_argument("--store", default="", help="gs:// folder of the runs")
  clouds.add_argument("--data", default="", help="gs:// folder that becomes AS2JAX_DATA")
  clouds.add_argument("--spot", action=argparse.BooleanOptionalAction, default=True)
  clouds.add_argument("--queued", action=argparse.BooleanOptionalAction, default=True,
                      help="as queued resources")
  clouds.add_argument("--nodes", type=int, default=1, help="machines at a time, of gcloud")
  given = parser.parse_args(arguments)
  try:
    return sweep(given.sweep, given.output, base=given.base, seeds=seeds_of(given.seeds),
                 settings=given.set,
                 parallel=given.parallel, split=given.table, elsewhere=_elsewhere(given))
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print("as2jax: interrupted; the same command goes on where it stopped", file=sys.stderr)
    return 130


if __name__ == "__main__":
  sys.exit(main())
