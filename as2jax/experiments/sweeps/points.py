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
import pathlib
import re
import runpy
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from as2jax.config import check
from as2jax.config import jobs as job_files
from as2jax.config.overrides import apply as override
from as2jax.config.overrides import parse
from as2jax.data import holdout
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

OWN = ("seeds", "mode", "seeds_parallel")  # what a sweep sets itself
DATA = ("data.name", "data.train", "data.dev", "data.test", "data.holdout")
DATA += ("evaluation.task", "evaluation.splits", "evaluation.ties")


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
      value = parse(config, [f"{key}={part}"], "--grid ")[key]
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
  start = override(job_files.load(base), settings or {})
  selection = holdout.selection_split(start.data)
  if selection not in start.evaluation.splits:
    raise InputError(f"evaluation.splits lacks {selection}, by which a sweep chooses: put it there")
  seeds = tuple(seeds) or tuple(start.seeds)
  check.check(override(start, {"seeds": seeds}))  # below, each run has one of them
  titles, configs = {start.to_json(): "base"}, [start]
  for point in points:
    title = " ".join(f"{key}={value}" for key, value in point.items())
    for key in point:
      if key in OWN + DATA:
        raise InputError(
          f"point {title}: {key} must be the same for all points, which are "
          "compared question by question; set it in the base, or with --set"
        )
    config = override(start, point, f"the point {title}: ")
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
      of_seed = override(config, {"seeds": (seed,)})
      check.check(of_seed)
      jobs.append(job(of_seed, titles[config.to_json()]))
  return jobs


def job(config: ConfigDict, title: str, after: Sequence[Job] = ()) -> Job:
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
