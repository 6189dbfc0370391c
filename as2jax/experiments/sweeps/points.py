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
  """One point with one seed: id (hash of its config), number and overrides of the point, config as JSON."""

  id: str
  point: int
  title: str
  overrides: Mapping[str, Any]
  seed: int
  text: str


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
    if key in axes:
      raise InputError(f"--grid {item}: {key} is given twice; join its values by commas")
    axes[key] = []
    for part in re.split(r",(?![^(\[]*[)\]])", text):  # commas outside of brackets
      axes[key].append(parse(config, [f"{key}={part}"], "--grid")[key])
  return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def plan(
  base: str,
  points: Sequence[Mapping[str, Any]],
  *,
  seeds: Sequence[int] = (),
  settings: Mapping[str, Any] | None = None,
) -> list[Job]:
  """Return the runs of a sweep, those of the base first where it is none of the points.

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
  titles: dict[str, str] = {}
  for point in points:
    title = _title(point)
    for key in point:
      if key in OWN + DATA:
        raise InputError(
          f"point {title}: {key} must be the same for all points, which are "
          "compared question by question; set it in the base, or with --set"
        )
    text = override(start, point, f"the point {title}:").to_json()
    if text in titles:
      raise InputError(f"the points {titles[text]} and {title} are the same")
    titles[text] = title
  same_as_base = titles.get(start.to_json())
  if same_as_base is None:
    points = [{}, *points]
  jobs: list[Job] = []
  for number, point in enumerate(points):
    title = _title(point)
    shown = f"{title} (base)" if point and title == same_as_base else title
    for seed in seeds:
      config = override(start, {**point, "seeds": (seed,)}, f"the point {title}:")
      check.check(config)
      jobs.append(job(config, number, f"{shown}, seed {seed}", point))
  return jobs


def _title(point: Mapping[str, Any]) -> str:
  return " ".join(f"{key}={value}" for key, value in point.items()) or "base"


def job(config: ConfigDict, point: int, title: str, overrides: Mapping[str, Any]) -> Job:
  """Return the run of a config with one seed, under the hash of the whole of it."""
  content = json.dumps(json.loads(config.to_json()), sort_keys=True)
  name = hashlib.sha256(content.encode()).hexdigest()[:12]
  return Job(name, point, title, overrides, config.seeds[0], config.to_json(indent=2))


def write_manifest(output: pathlib.Path, jobs: Sequence[Job]) -> None:
  """Write `manifest.jsonl`: one run a line, with its resolved config."""
  lines = []
  for one in jobs:
    row = {"id": one.id, "number": one.point, "title": one.title, "point": dict(one.overrides)}
    lines.append(json.dumps({**row, "seed": one.seed, "config": json.loads(one.text)}) + "\n")
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
