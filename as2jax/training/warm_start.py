"""Warm start: a run that begins with the best parameters of another one (TANDA's two stages).

`warm_start.scope` = `all` copies all parameters and running statistics, and what was fitted to the first
run's data; `encoder` the encoder's with its vocabulary; `matching` also those others that this model has,
of the same shape, under the same path or the one in `System.warm_start_paths`. Optimizer, schedule, epochs
and early stopping start anew. Resuming is refused where the first run has changed since.
"""

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from etils import epath
from flax import traverse_util

from as2jax.config.overrides import differences, flatten
from as2jax.data.inputs import protocol as fitted
from as2jax.encoders.open_encoder import ENCODER_FOLDER
from as2jax.evaluation import results
from as2jax.models.system import System
from as2jax.runtime import bound, processes, registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import digest_of_arrays, read_object, write_whole
from as2jax.training import record
from as2jax.training.checkpoints import group_folder, read_best
from as2jax.training.state import TrainState

ENCODER = "encoder/"  # before the paths of an encoder's parameters
# Keys of the section `encoder` that may differ: they say how the encoder is computed or where it is
# read from. `WarmStart.check_encoder` compares what it is.
FREE = """encoder.name encoder.pretrained encoder.weights encoder.dtype encoder.precision
  encoder.hidden_dropout encoder.attention_dropout encoder.attention encoder.unroll
  encoder.remat""".split()
SHOWN = 5  # the most differences that a message lists

Arrays = dict[str, np.ndarray]
log = logging.getLogger(__name__)


class Origin(NamedTuple):
  """Names the best checkpoint of a seed of the first run: `index` is the seed's place in its arrays."""

  folder: epath.Path
  step: int
  index: int
  seed: int
  value: float


class WarmStart:
  """Takes the parameters of the finished first run that a config names.

  Raises:
    InputError: there is no such run, it lacks a seed, or has no or another encoder.

  """

  def __init__(self, config: Any):
    section = config.warm_start
    self.run, self.scope = epath.Path(section["run"]), section["scope"]
    path, content = bound.file(self.run, "config.json"), results.read(self.run)
    if content is None:
      raise InputError(
        f"warm_start.run = {self.run} holds no finished run: name another folder, or run it to its "
        f"end first: --config=rerun:{self.run}/config.json --workdir={self.run}"
      )
    self.content = content
    self.config = read_object(path, "it was changed by hand; put it back as it was")
    here, there = config.model.name, self.config["model"]["name"]
    for model, trains in ((here, registry.has_parameters(here)), (there, "parameters" in content)):
      if not trains:
        raise InputError(f"warm_start.run = {self.run}: {model} has no parameters to begin with")
    encoders = (self.config["encoder"], json.loads(config.to_json())["encoder"])
    changed = differences(*(flatten(encoder, "encoder.") for encoder in encoders), free=FREE)
    self._refuse("has another encoder", changed, "Describe the encoder as that run does")
    self.origins = {}
    for seed in config.seeds:
      self.origins[seed] = self._origin(seed if section["seed"] is None else section["seed"])

  def _origin(self, seed: int) -> Origin:
    outcomes = {outcome["seed"]: outcome for outcome in self.content["seeds"]}
    if seed not in outcomes:
      raise InputError(
        f"warm_start.run = {self.run} has no seed {seed} (it has {', '.join(map(str, outcomes))}): say "
        f"which one every seed takes, such as --config.warm_start.seed={min(outcomes)}"
      )
    group = tuple(outcomes) if self.config["seeds_parallel"] else (seed,)
    # Each save of a group holds the best so far of all its seeds.
    step = max(outcomes[one]["best_step"] for one in group)
    folder = group_folder(self.run, tuple(outcomes), group)
    return Origin(folder, step, group.index(seed), seed, outcomes[seed]["best_value"])

  def arrays(self, seed: int) -> Arrays:
    """Reads the parameters and the running statistics, by path, that `seed` starts from."""
    origin = self.origins[seed]
    digest = record.read(self.run)["best"].get(origin.folder.name, "")
    variables = read_best(origin.folder, origin.step, digest=digest)
    statistics = traverse_util.flatten_dict(variables["mutables"], sep="/")
    start = ENCODER if self.scope == "encoder" else ""  # no encoder has running statistics
    arrays = {}
    for path, value in {**variables["trainable"], **variables["frozen"], **statistics}.items():
      if path.startswith(start):
        arrays[path] = value[origin.index]
    return arrays

  @functools.cached_property
  def record(self) -> dict:
    """Says what is copied from where, with digests, ready for JSON."""
    seeds = []
    for seed, origin in self.origins.items():
      known = {"from_seed": origin.seed, "step": origin.step, "value": origin.value}
      seeds.append({"seed": seed, **known, "sha256": digest_of_arrays(self.arrays(seed))})
    content = {
      "run": str(self.run),
      "scope": self.scope,
      "model": self.config["model"]["name"],
      "data": self.content["data"]["name"],
      "selected_on": self.content["selected_on"],
      "seeds": seeds,
    }
    if "warm_start" in self.content:
      content["warm_start"] = self.content["warm_start"]
    return content

  def check_encoder(self, weights: Mapping[str, Any]) -> None:
    """Raises InputError where `weights` (of `Components.provenance`) are of another encoder."""
    first = {**self.content["weights"], "tokenizer": record.read(self.run)["tokenizer"]}
    keys = ("family", "architecture", "tokenizer")
    sides = [flatten({key: side[key] for key in keys}) for side in (first, weights)]
    problem = (
      f"({first['pretrained']}) has not the encoder of this config ({weights['pretrained']})"
    )
    advice = "Name the same published encoder in encoder.pretrained"
    self._refuse(problem, differences(*sides, free=()), advice)

  def check_unchanged(self, before: Mapping[str, Any]) -> None:
    """Raises InputError where resumed seeds did not start from the same parameters."""
    shown = lambda e: f"seed {e['from_seed']}, step {e['step']}, {e['sha256'][:12]}"
    changed = []
    for old, now in zip(before["seeds"], self.record["seeds"]):
      if old != now:
        changed.append(f"  seed {now['seed']}: {shown(old)} then, {shown(now)} now")
    advice = "Put it back as it was, or start in another folder"
    self._refuse("has changed since this run began from it", changed, advice)

  def _refuse(self, problem: str, lines: list[str], advice: str) -> None:
    """Raises InputError with the lines, if there are some."""
    if lines:
      more = [f"  … and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
      listed = "\n".join((*lines[:SHOWN], *more))
      raise InputError(f"warm_start.run = {self.run} {problem}:\n{listed}\n{advice}")

  def copy_fitted(self, workdir: epath.Path) -> None:
    """Copies the vocabulary and fitted inputs of the first run."""
    from as2jax.encoders import static

    source = self.run / ENCODER_FOLDER
    if (source / "vectors.json").exists():
      static.save(static.load(source), workdir / ENCODER_FOLDER)
    counted = self.run / fitted.FOLDER
    if self.scope == "all" and counted.exists():
      for path in counted.iterdir():
        write_whole(workdir / fitted.FOLDER / path.name, path.read_text())

  def place(self, state: TrainState, seeds: Sequence[int], model: System) -> TrainState:
    """Puts the first run's values into a fresh state `[seed, …]` of `model`."""
    mutables = traverse_util.flatten_dict(state.mutables, sep="/")
    here = {**state.trainable, **state.frozen, **mutables}
    taken = [self.arrays(seed) for seed in seeds]
    if self.scope == "matching":
      taken = [_matching(arrays, here, model) for arrays in taken]
      if all(path.startswith(ENCODER) for path in taken[0]):
        raise InputError(
          f"warm_start.scope = 'matching': beside the encoder's, this model has none of the parameters "
          f"of warm_start.run = {self.run}: set the scope to encoder"
        )
    self._check_paths(here, taken[0])
    log.info("%d of %d arrays begin as those of %s", len(taken[0]), len(here), self.run)

    def placed(tree: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
      new = dict(tree)
      for path in tree.keys() & taken[0].keys():
        leaf = tree[path]
        values = np.stack([arrays[path] for arrays in taken]).astype(leaf.dtype)
        new[path] = sharding.put(values, leaf.sharding)
      return new

    return dataclasses.replace(
      state,
      trainable=placed(state.trainable),
      frozen=placed(state.frozen),
      mutables=traverse_util.unflatten_dict(placed(mutables), sep="/"),
    )

  def _check_paths(self, here: Mapping[str, Any], copied: Arrays) -> None:
    """Raises InputError where what must be copied has a path or a shape of one side alone."""
    start = "" if self.scope == "all" else ENCODER
    paths = [path for path in sorted(here.keys() | copied) if path.startswith(start)]
    wrong = [] if paths else ["  neither has one"]
    for path in paths:
      ours = here[path].shape[1:] if path in here else "absent"
      theirs = copied[path].shape if path in copied else "absent"
      if ours != theirs:
        wrong.append(f"  {path}: {theirs} there, {ours} here")
    problem = f"has other parameters than this model (warm_start.scope = {self.scope!r})"
    advice = "Name a run of this model, or take its encoder alone with warm_start.scope=encoder"
    self._refuse(problem, wrong, advice)


def _matching(copied: Arrays, here: Mapping[str, Any], model: System) -> Arrays:
  """Leaves the first run's arrays that the model has, by the paths that they have here."""
  matching = {}
  for path, value in copied.items():
    targets = [path]
    for start, target in model.warm_start_paths.items():
      if path.startswith(start):
        targets.insert(-1, target + path.removeprefix(start))
    for target in targets:
      if target in here and here[target].shape[1:] == value.shape:
        matching[target] = value
        break
  return matching


def begin(config: Any, workdir: epath.PathLike) -> WarmStart | None:
  """Opens the first run that a config names; None where it names none.

  A new run's folder gets copies of what was fitted; a run that has begun is compared with the first.
  """
  section = config.warm_start
  if bool(section["run"]) != bool(section["scope"]) or (
    section["seed"] is not None and not section["run"]
  ):
    raise InputError(
      "warm_start: name both the folder of the finished first stage, such as "
      "--config.warm_start.run=runs/transfer, and the scope: all (all parameters), encoder (its "
      "encoder's alone) or matching (those that this model has, too)"
    )
  if not section["run"]:
    return None
  start, workdir = WarmStart(config), epath.Path(workdir)

  def check_or_copy() -> None:
    if not record.begun(workdir):
      start.copy_fitted(workdir)
    elif before := record.read(workdir).get("warm_start"):
      start.check_unchanged(before)

  processes.by_first(check_or_copy)
  return start
