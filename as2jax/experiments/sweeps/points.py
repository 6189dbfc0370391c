"""The points of a sweep: from a base config and overrides to the runs that they want."""

import ast
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import pathlib
import re
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


DATA = (
  "data.name",
  "data.train",
  "data.dev",
  "data.test",
  "data.holdout",
  "evaluation.task",
  "evaluation.splits",
  "evaluation.ties",
)


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
    raise InputError(
      f"{path}: {type(error).__name__}: {error}; a sweep file has BASE, a config "
      "file, and points(), which yields overrides"
    ) from error
  if not points or not all(isinstance(point, dict) for point in points):
    raise InputError(
      f"{path}: points() must yield dicts of overrides, such as {{'optimizer.rate': 1e-5}}"
    )
  return base, points


def grid(base: str, items: Sequence[str]) -> list[dict[str, Any]]:
  """Every combination of the values of `KEY=A,B` texts, as points over a base config.

  Raises:
    InputError: an unknown key, a value of another type, a key that is given twice.

  """
  config, axes = job_files.load(base), {}
  for item in items:
    key, _, text = item.partition("=")
    if key in axes:
      raise InputError(f"--grid {item}: {key} is given twice; join its values by commas")
    parts = re.findall(r"[^,(\[]*[(\[][^)\]]*[)\]][^,]*|[^,]+", text)
    one = lambda part: parse(config, [f"{key}={part}"], "--grid")[key]
    axes[key] = [one(part) for part in parts] or [one("")]
  return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def plan(
  base: str,
  points: Sequence[Mapping[str, Any]],
  *,
  seeds: Sequence[int] = (),
  settings: Mapping[str, Any] | None = None,
) -> list[Job]:
  """The runs of a sweep, those of the base first where it is none of the points.

  Args:
    seeds: of every point; the base config's where empty.
    settings: overrides of the base itself.

  Raises:
    InputError: an override that does not fit the base, two equal points, points on other data, a
      seed that is given twice.

  """
  start = override(job_files.load(base), settings or {})
  selection = holdout.selection_split(start.data)
  if selection not in start.evaluation.splits:
    raise InputError(f"evaluation.splits lacks {selection}, by which a sweep chooses: put it there")
  seeds = tuple(seeds) or tuple(start.seeds)
  check.check(override(start, {"seeds": seeds}))  # below, each run has one of them
  resolved: dict[str, Mapping[str, Any]] = {}
  jobs: list[Job] = []
  for point in points:
    for key in point:
      if key in OWN + DATA:
        raise InputError(
          f"point {_title(point)}: {key} must be the same for all points, which are "
          "compared question by question; set it in the base, or with --set"
        )
    text = override(start, point, _point(point)).to_json()
    if text in resolved:
      raise InputError(f"the points {_title(resolved[text])} and {_title(point)} are the same")
    resolved[text] = point
  if start.to_json() not in resolved:
    points = [{}, *points]
  for number, point in enumerate(points):
    is_base = override(start, point).to_json() == start.to_json()
    title = " ".join(filter(None, (_title(point), "(base)" if is_base and point else "")))
    for seed in seeds:
      config = override(start, {**point, "seeds": (seed,)}, _point(point))
      check.check(config)
      jobs.append(job(config, number, f"{title}, seed {seed}", point))
  return jobs


def job(config: ConfigDict, point: int, title: str, overrides: Mapping[str, Any]) -> Job:
  """The run of a config with one seed, under the hash of the whole of it."""
  content = json.dumps(json.loads(config.to_json()), sort_keys=True)
  return Job(
    hashlib.sha256(content.encode()).hexdigest()[:12],
    point,
    title,
    overrides,
    config.seeds[0],
    config.to_json(indent=2),
  )


def write_manifest(output: pathlib.Path, jobs: Sequence[Job]) -> None:
  """`manifest.jsonl`: one run a line, with its resolved config."""
  lines = [
    json.dumps(
      {
        "id": job.id,
        "number": job.point,
        "title": job.title,
        "point": dict(job.overrides),
        "seed": job.seed,
        "config": json.loads(job.text),
      }
    )
    for job in jobs
  ]
  write_whole(output / "manifest.jsonl", "\n".join(lines) + "\n")


def read_manifest(folder: pathlib.Path) -> list[Job]:
  """Return the runs of the sweep in a folder.

  Raises:
    InputError: no sweep's folder, or its manifest is damaged.

  """
  path = folder / "manifest.jsonl"
  if not path.exists():
    raise InputError(f"{folder} has no manifest.jsonl: name the folder of a sweep (its --output)")
  try:
    return [_listed(json.loads(line)) for line in path.read_text().splitlines()]
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise InputError(
      f"{path}: no manifest of a sweep ({error!r:.100}): start the sweep's command again, which "
      "writes it"
    ) from None


def _listed(row: dict[str, Any]) -> Job:
  """The run of a line; an id is the name of a folder, and nothing else."""
  job = Job(
    row["id"],
    row["number"],
    row["title"],
    row["point"],
    row["seed"],
    json.dumps(row["config"], indent=2),
  )
  if not (isinstance(job.id, str) and re.fullmatch(r"\w[\w.-]*", job.id)):
    raise ValueError(f"id = {job.id!r}")
  if not (isinstance(job.title, str) and isinstance(job.overrides, dict)):
    raise ValueError(f"title = {job.title!r}, point = {job.overrides!r}")
  if not (isinstance(job.point, int) and isinstance(job.seed, int)):
    raise ValueError(f"number = {job.point!r}, seed = {job.seed!r}")
  return job


def _title(point: Mapping[str, Any]) -> str:
  return " ".join(f"{key}={value}" for key, value in point.items()) or "base"


def _point(point: Mapping[str, Any]) -> str:
  return f"the point {_title(point)}:"


def settings_of(items: Sequence[str]) -> dict[str, Any]:
  """KEY=VALUE as overrides; what is no Python literal is text."""
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
