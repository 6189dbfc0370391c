"""Warm start: a run that begins with the best parameters of another one (TANDA's two stages).

With `warm_start.scope` = `all`, all parameters and running statistics are copied, and they must
agree with those of the model. With `encoder`, only those of the encoder are copied, and the others
(a pooler under the head, role embeddings) are initialised as in a fresh run. With `matching`, those
others that this model has are copied, too: under the same path or the one that it declares
(`System.warm_start_paths`), and of the same shape. An encoder's own vocabulary is copied with its
parameters; what else was fitted to the first run's training data (how rare words are) is copied with
`all` only. Optimizer, schedule, epochs and early stopping start anew.

The source and the digest of the parameters are recorded in `run.json` when the run begins, and in
`results.json`; resuming is refused where the first run has changed since.
"""

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

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
from as2jax.training import optimizers, record
from as2jax.training.checkpoints import group_folder, read_best
from as2jax.training.state import TrainState

OLD_NAME = "warm_start.json"  # in the folder of a run of a version before 0.2
SCOPES = ("all", "encoder", "matching")
ENCODER = "encoder/"  # before the paths of an encoder's parameters
# Keys of the section `encoder` that may differ: they say how the encoder is computed or where it is
# read from. `WarmStart.check_encoder` compares what it is.
FREE = (
  "name",
  "pretrained",
  "weights",
  "dtype",
  "precision",
  "hidden_dropout",
  "attention_dropout",
  "attention",
  "unroll",
  "remat",
)
SHOWN = 5  # the most differences that a message lists

Arrays = dict[str, np.ndarray]
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Origin:
  """Names the checkpoint that one seed starts from: the best one of a seed of the first run.

  Attributes:
    folder: the folder that holds `best/`.
    step: the step of the checkpoint.
    index: the position of the seed in the checkpoint's arrays.
    seed: the seed of the first run.
    value: the first run's selection metric at this checkpoint.

  """

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

  Raises:
    InputError: there is no such run, it is not finished, or it lacks a seed or a checkpoint.

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
    params = {**variables["trainable"], **variables["frozen"]}
    mutables = traverse_util.flatten_dict(variables["mutables"], sep="/")
    of_seed = lambda tree: jax.tree.map(lambda value: value[origin.index], tree)
    return of_seed(self._in_scope(params)), of_seed(self._in_scope(mutables, statistics=True))

  def _in_scope(self, tree: Mapping[str, Any], *, statistics: bool = False) -> dict[str, Any]:
    """Leaves what is copied of a tree of parameters, or of (collections of) running statistics."""
    if self.scope != "encoder":
      return dict(tree)
    below = lambda path: path.partition("/")[2] if statistics else path
    return {path: value for path, value in tree.items() if below(path).startswith(ENCODER)}

  @functools.cached_property
  def record(self) -> dict:
    """Says what is copied from where, with digests, ready for JSON."""
    digests: dict[Origin, str] = {}
    seeds = []
    for seed, origin in self.origins.items():
      if origin not in digests:
        params, statistics = self.arrays(seed)
        digests[origin] = digest_of_arrays({**params, **statistics})
      seeds.append(
        {
          "seed": seed,
          "from_seed": origin.seed,
          "step": origin.step,
          "value": origin.value,
          "sha256": digests[origin],
        }
      )
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
    sections = []
    for section in (self.config["encoder"], json.loads(config.to_json())["encoder"]):
      values = flatten(section).items()
      sections.append({f"encoder.{key}": value for key, value in values if key not in FREE})
    changed = differences(*sections, free=())
    if changed:
      raise InputError(
        f"warm_start.run = {self.run} has another encoder:\n"
        + "\n".join(changed)
        + "\nDescribe the encoder as that run does"
      )

  def check_encoder(self, weights: Mapping[str, Any]) -> None:
    """Raises InputError where the encoder or its tokeniser is not the first run's.

    Args:
      weights: `Components.provenance`.

    """
    first = {**self.content["weights"], "tokenizer": record.read(self.run)["tokenizer"]}
    keys = ("family", "architecture", "tokenizer")
    lacking = [key for key in keys if key not in first]
    if lacking:
      raise InputError(
        f"{self.run}/results.json does not say the encoder's {lacking[0]}: it is of an older version; "
        "train that run again"
      )
    then, now = {}, {}
    for key in keys:
      then[key], now[key] = first[key], weights[key]
    changed = differences(flatten(then), flatten(now), free=())
    if changed:
      raise InputError(
        f"the encoder of warm_start.run = {self.run} ({first['pretrained']}) is not "
        f"that of this config ({weights['pretrained']}):\n"
        + "\n".join(changed)
        + "\nName the same published encoder in encoder.pretrained"
      )

  def copy_fitted(self, workdir: epath.Path) -> None:
    """Copies the vocabulary and fitted inputs of the first run: see the module's docstring."""
    from as2jax.encoders import static

    source = self.run / ENCODER_FOLDER
    if (source / "vectors.json").exists():
      static.save(static.load(source), workdir / ENCODER_FOLDER)
    counted = self.run / fitted.FOLDER
    if self.scope == "all" and counted.exists():
      for path in counted.iterdir():
        write_whole(workdir / fitted.FOLDER / path.name, path.read_text())

  def check_unchanged(self, before: Mapping[str, Any]) -> None:
    """Raises InputError where resumed seeds did not start from the same parameters."""
    shown = lambda e: f"seed {e['from_seed']}, step {e['step']}, {e['sha256'][:12]}"
    changed = []
    for old, now in zip(before["seeds"], self.record["seeds"]):
      if old != now:
        changed.append(f"  seed {now['seed']}: {shown(old)} then, {shown(now)} now")
    if changed:
      raise InputError(
        f"warm_start.run = {self.run} has changed since this run began from it:\n"
        + "\n".join(changed)
        + "\nPut it back as it was, or start in another --workdir"
      )

  def place(self, state: TrainState, seeds: Sequence[int], model: System) -> TrainState:
    """Puts the first run's values into a fresh state `[seed, …]` of `model`.

    Raises:
      InputError: their paths or shapes are not those of the model; the message lists differences.

    """
    params = {**state.trainable, **state.frozen}
    mutables = traverse_util.flatten_dict(state.mutables, sep="/")
    taken = [self.arrays(seed) for seed in seeds]
    if self.scope == "matching":
      every = taken[0][0]
      taken = [(_matching(a, params, model), _matching(b, mutables, model)) for a, b in taken]
      copied = taken[0][0]
      self._check_together(every, params, copied, model)
      of_encoder = lambda tree: {path: x for path, x in tree.items() if path.startswith(ENCODER)}
      self._check_paths(of_encoder(params), of_encoder(copied))
      self._log_matching(params, copied)
    else:
      here = self._in_scope(params) | self._in_scope(mutables, statistics=True)
      self._check_paths(here, {**taken[0][0], **taken[0][1]})

    def placed(tree: Mapping[str, Any], which: int) -> dict[str, Any]:
      new = dict(tree)
      for path in tree.keys() & taken[0][which].keys():
        new[path] = _put([arrays[which][path] for arrays in taken], tree[path])
      return new

    opt_state = state.opt_state
    if isinstance(
      opt_state, optimizers.Averaged
    ):  # before the first step the parameters themselves
      opt_state = opt_state.replace(parameters=placed(opt_state.parameters, 0))
    return dataclasses.replace(
      state,
      trainable=placed(state.trainable, 0),
      frozen=placed(state.frozen, 0),
      mutables=traverse_util.unflatten_dict(placed(mutables, 1), sep="/"),
      opt_state=opt_state,
    )

  def _check_together(
    self, first: Arrays, params: Mapping[str, Any], copied: Arrays, model: System
  ) -> None:
    """Raises InputError where of the parts that a model renames only some are copied.

    A head without the pooler that it was trained on, for example, gives other scores.
    """
    has = lambda paths, start: any(path.startswith(start) for path in paths)
    parts = model.warm_start_paths.items()
    came = [start for start, target in parts if has(copied, target)]
    for start, target in parts:
      if came and start not in came and has(first, start) != has(params, target):
        trained, none = f"without {start}, but", ""
        if has(first, start):
          trained, none = f"with {start}, and", "no "
        raise InputError(
          f"warm_start.scope = 'matching': {', '.join(came)} of warm_start.run = {self.run} was trained "
          f"{trained} this model has {none}{target}: give it the same parts (of CASSIE, "
          "model.ranker_head = 'pooled' where there is a pooler, else 'linear'), or set the scope to "
          "encoder"
        )

  def _log_matching(self, params: Mapping[str, Any], copied: Arrays) -> None:
    """Logs what beside the encoder is copied and what is new; InputError where nothing is copied."""
    parts = lambda paths: sorted({path.rpartition("/")[0] for path in paths})
    others = parts(path for path in copied if not path.startswith(ENCODER))
    new = ", ".join(parts(params.keys() - copied.keys()))
    if not others:
      raise InputError(
        f"warm_start.scope = 'matching': beside the encoder's, this model has none of the parameters of "
        f"warm_start.run = {self.run}; it has {new or 'no others'}: set the scope to encoder"
      )
    log.info(
      "begins with the encoder and %s of %s; new: %s", ", ".join(others), self.run, new or "nothing"
    )

  def _check_paths(self, params: Mapping[str, Any], copied: Arrays) -> None:
    here = {path: leaf.shape[1:] for path, leaf in params.items()}
    first = {path: value.shape for path, value in copied.items()}
    of_encoder = "of an encoder " * (self.scope == "encoder")
    if not first:
      raise InputError(f"warm_start: {self.run} has no parameters {of_encoder}to take")
    if not here:
      raise InputError(f"warm_start: this model has no parameters {of_encoder}to replace")
    wrong = []
    for path in sorted(here.keys() | first.keys()):
      if first.get(path) != here.get(path):
        wrong.append(
          f"  {path}: {first.get(path, 'absent')} there, {here.get(path, 'absent')} here"
        )
    if wrong:
      if len(wrong) > SHOWN:
        wrong[SHOWN:] = [f"  … and {len(wrong) - SHOWN} more"]
      hint = "; set warm_start.scope=encoder to take its encoder alone" * (self.scope == "all")
      raise InputError(
        f"warm_start.run = {self.run} has other parameters than this model "
        f"(warm_start.scope = {self.scope!r}):\n"
        + "\n".join(wrong)
        + f"\nName a run of this model{hint}"
      )


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

  A new run's folder gets copies of what was fitted; of a run that has begun, the record is compared
  with the first run as it is now.

  Raises:
    InputError: a wrong section `warm_start`, or a first run that is unusable or has changed.

  """
  workdir, section = epath.Path(workdir), config.warm_start
  run, scope, seed = section["run"], section["scope"], section["seed"]
  if not run:
    if scope or seed is not None:
      raise InputError(
        "warm_start.run is missing: name the folder of the finished first stage, "
        "such as --config.warm_start.run=runs/transfer"
      )
    return None
  if not registry.has_parameters(config.model.name):
    raise InputError(
      f"warm_start.run = {run}: {config.model.name} has no parameters to begin with; set it to ''"
    )
  if scope not in SCOPES:
    raise InputError(
      f"warm_start.scope = {scope!r}: set it to all (all parameters of {run}), "
      "encoder (its encoder's alone) or matching (those that this model has, too)"
    )
  if _absolute(run) == _absolute(workdir):
    raise InputError(f"warm_start.run = {run} is the --workdir itself: give another --workdir")
  start = WarmStart(section, tuple(config.seeds))
  processes.by_first(lambda: _check_or_copy(start, config, workdir))
  return start


def _check_or_copy(start: WarmStart, config: Any, workdir: epath.Path) -> None:
  if not record.begun(workdir):
    start.check_encoder_config(config)
    start.copy_fitted(workdir)
    return
  before = record.read(workdir).get("warm_start")
  if before is None and (workdir / OLD_NAME).exists():
    advice = "it says what this run began with; put it back, or start in another --workdir"
    before = read_object(workdir / OLD_NAME, advice)
  if before is not None:
    start.check_unchanged(before)


def _finished(run: epath.Path) -> tuple[dict, dict]:
  """Reads the config and the results of a finished run that has parameters."""
  path = run / "config.json"
  if not path.exists():
    raise InputError(
      f"warm_start.run = {run} holds no run (no config.json): name the --workdir of a finished one"
    )
  config = read_object(path, "it was changed by hand; put it back as it was")
  content = results.read(run)
  if content is None:
    raise InputError(
      f"warm_start.run = {run} is not finished (no results.json): run it to its end "
      f"first, with --config=rerun:{path} --workdir={run}"
    )
  if not registry.has_parameters(config["model"]["name"]):
    raise InputError(
      f"warm_start.run = {run} is a run of {config['model']['name']}, which has no "
      "parameters to begin with"
    )
  return config, content


def _absolute(path: epath.PathLike) -> str:
  text = str(path)
  return text.rstrip("/") if "://" in text else str(epath.Path(text).resolve())
