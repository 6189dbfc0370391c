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
from collections.abc import Collection, Mapping, Sequence
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
from as2jax.runtime import processes, registry
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
  """Takes the parameters of a finished first run.

  Args:
    section: the config's section `warm_start`.
    seeds: the seeds of this run.

  """

  def __init__(self, section: Mapping[str, Any], seeds: Sequence[int]):
    self.run, self.scope = epath.Path(section["run"]), section["scope"]
    self.config, self.content = _finished(self.run)
    known = tuple(outcome["seed"] for outcome in self.content["seeds"])
    self.origins = {}
    for seed in seeds:
      taken = seed if section["seed"] is None else section["seed"]
      if taken not in known:
        raise InputError(
          f"warm_start.run = {self.run} has no seed {taken} (it has "
          f"{', '.join(map(str, known))}): say which one every seed takes, such as "
          f"--config.warm_start.seed={known[0]}"
        )
      self.origins[seed] = self._origin(taken, known)

  def _origin(self, seed: int, known: tuple[int, ...]) -> Origin:
    group = known if self.config["seeds_parallel"] else (seed,)
    step = value = 0
    for outcome in self.content["seeds"]:
      if outcome["seed"] in group:  # each save of a group holds the best so far of all its seeds
        step = max(step, outcome["best_step"])
      if outcome["seed"] == seed:
        value = outcome["best_value"]
    return Origin(group_folder(self.run, known, group), step, group.index(seed), seed, value)

  def arrays(self, seed: int) -> tuple[Arrays, Arrays]:
    """Reads the parameters and the running statistics, by path, that `seed` starts from."""
    origin = self.origins[seed]
    record.check_best(self.run, origin.folder, origin.step)
    variables = read_best(origin.folder, origin.step)
    params = self._in_scope({**variables["trainable"], **variables["frozen"]})
    mutables = self._in_scope(traverse_util.flatten_dict(variables["mutables"], sep="/"))
    of_seed = lambda tree: {path: value[origin.index] for path, value in tree.items()}
    return of_seed(params), of_seed(mutables)

  def _in_scope(self, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves what is copied; no encoder has running statistics."""
    scope = ENCODER if self.scope == "encoder" else ""
    return {path: value for path, value in tree.items() if path.startswith(scope)}

  @functools.cached_property
  def record(self) -> dict:
    """Says what is copied from where, with digests, ready for JSON."""
    digests: dict[Origin, str] = {}
    seeds = []
    for seed, origin in self.origins.items():
      if origin not in digests:
        params, statistics = self.arrays(seed)
        digests[origin] = digest_of_arrays({**params, **statistics})
      known = {"from_seed": origin.seed, "step": origin.step, "value": origin.value}
      seeds.append({"seed": seed, **known, "sha256": digests[origin]})
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

  def check_encoder_config(self, config: Any) -> None:
    """Raises InputError where the sections `encoder` describe other encoders."""
    now = json.loads(config.to_json())["encoder"]
    sections = [flatten(section, "encoder.") for section in (self.config["encoder"], now)]
    changed = differences(*sections, free=FREE)
    self._refuse("has another encoder", changed, "Describe the encoder as that run does")

  def check_encoder(self, weights: Mapping[str, Any]) -> None:
    """Raises InputError where `weights` (of `Components.provenance`) are of another encoder."""
    first = {**self.content["weights"], "tokenizer": record.read(self.run)["tokenizer"]}
    then, now = {}, {}
    for key in ("family", "architecture", "tokenizer"):
      then[key], now[key] = first[key], weights[key]
    changed = differences(flatten(then), flatten(now), free=())
    problem = (
      f"({first['pretrained']}) has not the encoder of this config ({weights['pretrained']})"
    )
    self._refuse(problem, changed, "Name the same published encoder in encoder.pretrained")

  def check_unchanged(self, before: Mapping[str, Any]) -> None:
    """Raises InputError where resumed seeds did not start from the same parameters."""
    shown = lambda e: f"seed {e['from_seed']}, step {e['step']}, {e['sha256'][:12]}"
    changed = []
    for old, now in zip(before["seeds"], self.record["seeds"]):
      if old != now:
        changed.append(f"  seed {now['seed']}: {shown(old)} then, {shown(now)} now")
    advice = "Put it back as it was, or start in another --workdir"
    self._refuse("has changed since this run began from it", changed, advice)

  def _refuse(self, problem: str, lines: list[str], advice: str) -> None:
    """Raises InputError with the lines, if there are some."""
    if len(lines) > SHOWN:
      lines = [*lines[:SHOWN], f"  … and {len(lines) - SHOWN} more"]
    if lines:
      listed = "\n".join(lines)
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
    params = {**state.trainable, **state.frozen}
    mutables = traverse_util.flatten_dict(state.mutables, sep="/")
    taken = [self.arrays(seed) for seed in seeds]
    if self.scope == "matching":
      taken = [(_matching(a, params, model), _matching(b, mutables, model)) for a, b in taken]
      copied = taken[0][0]
      self._check_matching(params, copied)
      of_encoder = [path for path in params.keys() | copied if path.startswith(ENCODER)]
      self._check_paths(params, copied, of_encoder)
    else:
      here = self._in_scope(params) | self._in_scope(mutables)
      first = {**taken[0][0], **taken[0][1]}
      self._check_paths(here, first, here.keys() | first)

    def placed(tree: Mapping[str, Any], which: int) -> dict[str, Any]:
      new = dict(tree)
      for path in tree.keys() & taken[0][which].keys():
        new[path] = _put([arrays[which][path] for arrays in taken], tree[path])
      return new

    return dataclasses.replace(
      state,
      trainable=placed(state.trainable, 0),
      frozen=placed(state.frozen, 0),
      mutables=traverse_util.unflatten_dict(placed(mutables, 1), sep="/"),
    )

  def _check_matching(self, params: Mapping[str, Any], copied: Arrays) -> None:
    """Logs what beside the encoder is copied and what is new."""
    parts = lambda paths: ", ".join(sorted({path.rpartition("/")[0] for path in paths}))
    others = parts(path for path in copied if not path.startswith(ENCODER))
    new = parts(params.keys() - copied.keys())
    if not others:
      raise InputError(
        f"warm_start.scope = 'matching': beside the encoder's, this model has none of the parameters of "
        f"warm_start.run = {self.run}; it has {new or 'no others'}: set the scope to encoder"
      )
    log.info("begins with the encoder and %s of %s; new: %s", others, self.run, new or "nothing")

  def _check_paths(self, params: Mapping[str, Any], copied: Arrays, paths: Collection[str]) -> None:
    """Raises InputError where a path or a shape is of one side alone, or none is there."""
    wrong = []
    for path in sorted(paths):
      here = params[path].shape[1:] if path in params else "absent"
      there = copied[path].shape if path in copied else "absent"
      if here != there:
        wrong.append(f"  {path}: {there} there, {here} here")
    if not paths:
      wrong.append("  neither has one")
    hint = "Name a run of this model"
    if self.scope == "all":
      hint += "; set warm_start.scope=encoder to take its encoder alone"
    problem = f"has other parameters than this model (warm_start.scope = {self.scope!r})"
    self._refuse(problem, wrong, hint)


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


def _put(values: Sequence[np.ndarray], leaf: jax.Array) -> jax.Array:
  """Stacks the values of all seeds into an array sharded like `leaf`."""
  stacked = np.stack(values).astype(leaf.dtype)
  return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: stacked[index])


def begin(config: Any, workdir: epath.PathLike) -> WarmStart | None:
  """Opens the first run that a config names; None where it names none.

  A new run's folder gets copies of what was fitted; a run that has begun is compared with the first.
  """
  workdir, section = epath.Path(workdir), config.warm_start
  run, scope = section["run"], section["scope"]
  if bool(run) != bool(scope) or (not run and section["seed"] is not None):
    raise InputError(
      "warm_start: name both the folder of the finished first stage, such as "
      "--config.warm_start.run=runs/transfer, and the scope: all (all parameters), encoder (its "
      "encoder's alone) or matching (those that this model has, too)"
    )
  if not run:
    return None
  _require_parameters(f"warm_start.run = {run}: it is for a run", config.model.name)
  if epath.Path(run).resolve() == workdir.resolve():
    raise InputError(f"warm_start.run = {run} is the --workdir itself: give another --workdir")
  start = WarmStart(section, tuple(config.seeds))
  processes.by_first(lambda: _check_or_copy(start, config, workdir))
  return start


def _check_or_copy(start: WarmStart, config: Any, workdir: epath.Path) -> None:
  if not record.begun(workdir):
    start.check_encoder_config(config)
    start.copy_fitted(workdir)
  elif before := record.read(workdir).get("warm_start"):
    start.check_unchanged(before)


def _finished(run: epath.Path) -> tuple[dict, dict]:
  """Reads the config and the results of a finished run that has parameters."""
  path = run / "config.json"
  content = results.read(run)
  if not path.exists() or content is None:
    raise InputError(
      f"warm_start.run = {run} holds no finished run (config.json and results.json): name another "
      f"--workdir, or run it to its end first, with --config=rerun:{path} --workdir={run}"
    )
  config = read_object(path, "it was changed by hand; put it back as it was")
  _require_parameters(f"warm_start.run = {run}, a run", config["model"]["name"])
  return config, content


def _require_parameters(where: str, model: str) -> None:
  if not registry.has_parameters(model):
    raise InputError(f"{where} of {model}, which has no parameters to begin with")
