"""Finished runs that fill a table's cells in place of training: those of the very config of a row."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from as2jax.config import base
from as2jax.config.overrides import differences, flatten
from as2jax.evaluation import results
from as2jax.experiments.papers.plan import Plan
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.runtime.errors import InputError


def take(plan: Plan, folders: Sequence[pathlib.Path]) -> None:
  """Fills cells of `plan` with finished runs, whose jobs are then not run.

  A run fits where its config differs in nothing but its seeds, all of which the row asks for, and it
  was evaluated on the splits that the row reports.

  Args:
    plan: gets `taken`; jobs that no other cell needs leave its waves.
    folders: of runs, or of folders of runs.

  Raises:
    InputError: a folder holds no finished run.

  """
  runs = [run for folder in folders for run in _finished(folder)]
  for cell, jobs in plan.cells.items():
    wanted = _known(json.loads(jobs[0].text))
    seeds = sorted(job.seed for job in jobs)
    for folder, config, content in runs:
      its = sorted(outcome["seed"] for outcome in content["seeds"])
      lacks = _unevaluated(content, wanted["evaluation.splits"])
      if its == seeds and not lacks and not differences(config, wanted):
        plan.taken[cell] = folder
        break
  plan.drop_idle()


def _finished(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict[str, Any], dict[str, Any]]]:
  """The folder, config and results of each finished run that lies at `folder` or in it."""
  there = [folder, *sorted(folder.iterdir())] if folder.is_dir() else []
  runs = [path for path in there if finished(path) and (path / "config.json").exists()]
  if not runs:
    raise InputError(
      f"--runs={folder}: there is no finished run (a folder with results.json), nor in its folders"
    )
  return [
    (path.absolute(), _known(json.loads((path / "config.json").read_text())), results.read(path))
    for path in runs
  ]


def _unevaluated(content: dict[str, Any], asked: Sequence[str]) -> list[str]:
  """The splits that a row reports and its data have, but the results lack."""
  there, parts = results.splits_of(content), content["data"]["splits"].keys()
  return [split for split in asked if split not in there and set(split.split("+")) <= parts]


def _known(config: dict[str, Any]) -> dict[str, Any]:
  """A flat config without seeds; keys that are younger than the run have their defaults."""
  flat = {**flatten(json.loads(base.get_config().to_json())), **flatten(config)}
  flat.pop("seeds")
  return flat
