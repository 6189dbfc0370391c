"""Warm start: a run that begins with the best parameters of another one (TANDA's two stages).

With `warm_start.scope` = `all`, all parameters and running statistics are copied, and they must
agree with those of the model. With `encoder`, only those of the encoder are copied, and the others
(a pooler under the head, role embeddings) are initialised as in a fresh run. With `matching`, those
others that this model has are copied, too: under the same path or the one that it declares
(`System.warm_start_paths`), and of the same shape. An encoder's own
vocabulary is copied with its parameters; what else was fitted to the first run's training data (how
rare words are) is copied with `all` only. Optimizer, schedule, epochs and early stopping start
anew.

When the run begins, the source and the digest of the parameters are recorded in `warm_start.json`,
and later in `results.json`; resuming is refused where the first run has changed since.
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
from as2jax.data.inputs import fitted
from as2jax.encoders.open import ENCODER_FOLDER
from as2jax.evaluation import results
from as2jax.models.system import System
from as2jax.runtime import checksums, processes, registry, regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.training import identity, optimizers, warm_start_parts
from as2jax.training.checkpoints import group_folder, read_best
from as2jax.training.run_folder import begun
from as2jax.training.state import TrainState

NAME = "warm_start.json"  # in a run's folder
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
  """The checkpoint that one seed starts from: the best one of a seed of the first run.

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
  """The finished first run that a run starts from.

  Args:
    section: the config's section `warm_start`.
    seeds: the seeds of this run.

  Raises:
    InputError: there is no such run, it is not finished, or it lacks a seed or a checkpoint.

  """

  def __init__(self, section: Mapping[str, Any], seeds: Sequence[int]):
    self.run, self.scope = epath.Path(section["run"]), section["scope"]
    self.config, self.content = _finished(self.run)
    there = [outcome["seed"] for outcome in self.content["seeds"]]
    self.origins = {}
    for seed in seeds:
      taken = seed if section["seed"] is None else section["seed"]
      if taken not in there:
        raise InputError(
          f"warm_start.run = {self.run} has no seed {taken} (it has "
          f"{', '.join(map(str, there))}): say which one every seed takes, such as "
          f"--config.warm_start.seed={there[0]}"
        )
      self.origins[seed] = self._origin(taken, tuple(there))

  def _origin(self, seed: int, there: tuple[int, ...]) -> Origin:
    group = there if self.config["seeds_parallel"] else (seed,)
    outcomes = {outcome["seed"]: outcome for outcome in self.content["seeds"]}
    # Each save of a group holds the best parameters so far of all its seeds.
    step = max(outcomes[member]["best_step"] for member in group)
    return Origin(
      group_folder(self.run, there, group),
      step,
      group.index(seed),
      seed,
      outcomes[seed]["best_value"],
    )

  def arrays(self, seed: int) -> tuple[Arrays, Arrays]:
    """The parameters and the running statistics, by path, that `seed` starts from."""
    origin = self.origins[seed]
    identity.check_best(self.run, origin.folder, origin.step)
    variables = read_best(origin.folder, origin.step)
    params = {**variables["trainable"], **variables["frozen"]}
    mutables = traverse_util.flatten_dict(variables["mutables"], sep="/")
    of_seed = lambda tree: {path: value[origin.index] for path, value in tree.items()}
    return of_seed(self._concerned(params, False)), of_seed(self._concerned(mutables, True))

  def _concerned(self, tree: Mapping[str, Any], collections: bool) -> dict[str, Any]:
    """The part of a tree (parameters, or `collections` of statistics) that is copied."""
    below = lambda path: path.partition("/")[2] if collections else path
    return {
      path: value
      for path, value in tree.items()
      if self.scope != "encoder" or below(path).startswith(ENCODER)
    }

  @functools.cached_property
  def record(self) -> dict:
    """What is copied from where, with digests, ready for JSON."""
    digests: dict[Origin, str] = {}
    for seed, origin in self.origins.items():
      if origin not in digests:
        params, statistics = self.arrays(seed)
        digests[origin] = checksums.of_arrays({**params, **statistics})
    return {
      "run": str(self.run),
      "scope": self.scope,
      "model": self.config["model"]["name"],
      "data": self.content["data"]["name"],
      "selected_on": self.content["selected_on"],
      "seeds": [
        {
          "seed": seed,
          "from_seed": origin.seed,
          "step": origin.step,
          "value": origin.value,
          "sha256": digests[origin],
        }
        for seed, origin in self.origins.items()
      ],
      **({"warm_start": self.content["warm_start"]} if "warm_start" in self.content else {}),
    }

  def check_encoder_config(self, config: Any) -> None:
    """Raises InputError where the sections `encoder` describe other encoders."""
    both = (
      {f"encoder.{key}": value for key, value in flatten(section).items() if key not in FREE}
      for section in (self.config["encoder"], json.loads(config.to_json())["encoder"])
    )
    changed = differences(*both, free=())
    if changed:
      raise InputError(
        f"warm_start.run = {self.run} has another encoder:\n"
        + "\n".join(changed)
        + "\nDescribe the encoder as that run does"
      )

  def copy_fitted(self, workdir: epath.Path) -> None:
    """Copies the vocabulary and fitted inputs of the first run: see the module's docstring."""
    from as2jax.encoders import static

    source, target = self.run / ENCODER_FOLDER, workdir / ENCODER_FOLDER
    if (source / "vectors.json").exists():
      static.save(static.load(source), target)
    fitted_there = self.run / fitted.FOLDER
    if self.scope == "all" and fitted_there.exists():
      for path in fitted_there.iterdir():
        write_whole(workdir / fitted.FOLDER / path.name, path.read_text())

  def check_encoder(self, weights: Mapping[str, Any]) -> None:
    """Raises InputError where the encoder or its tokeniser is not the first run's.

    Args:
      weights: `Components.provenance`.

    """
    there = {**self.content["weights"], "tokenizer": identity.read(self.run)["tokenizer"]}
    for key in ("family", "architecture", "tokenizer"):
      if key not in there:
        raise InputError(
          f"{self.run}/results.json does not say the encoder's {key}: it is of an "
          "older version; train that run again"
        )
    encoders = (
      {key: side[key] for key in ("family", "architecture", "tokenizer")}
      for side in (there, weights)
    )
    changed = differences(*map(flatten, encoders), free=())
    if changed:
      raise InputError(
        f"the encoder of warm_start.run = {self.run} ({there['pretrained']}) is not "
        f"that of this config ({weights['pretrained']}):\n"
        + "\n".join(changed)
        + "\nName the same published encoder in encoder.pretrained"
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
      there = taken[0][0]
      taken = [
        (
          warm_start_parts.matching(of_params, params, model),
          warm_start_parts.matching(statistics, mutables, model),
        )
        for of_params, statistics in taken
      ]
      warm_start_parts.check_together(there, params, taken[0][0], model, self.run)
      params_here = {path: params[path] for path in params if path.startswith(ENCODER)}
      self._check_paths(
        params_here, {path: x for path, x in taken[0][0].items() if path.startswith(ENCODER)}
      )
      self._say_matching(params, taken[0][0])
    else:
      self._check_paths(
        {**self._concerned(params, False), **self._concerned(mutables, True)},
        {**taken[0][0], **taken[0][1]},
      )

    def placed(tree, which):
      return {
        path: _put([arrays[which][path] for arrays in taken], leaf)
        if path in taken[0][which]
        else leaf
        for path, leaf in tree.items()
      }

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

  def _say_matching(self, params: Mapping[str, Any], taken: Arrays) -> None:
    """Logs what beside the encoder is taken and what is new; InputError where nothing is taken."""
    parts = lambda paths: sorted({path.rpartition("/")[0] for path in paths})
    others = parts(path for path in taken if not path.startswith(ENCODER))
    new = parts(path for path in params if path not in taken)
    if not others:
      raise InputError(
        f"warm_start.scope = 'matching': beside the encoder's, this model has none of the parameters of "
        f"warm_start.run = {self.run}; it has {', '.join(new) or 'no others'}: set the scope to encoder"
      )
    log.info(
      "begins with the encoder and %s of %s; new: %s",
      ", ".join(others),
      self.run,
      ", ".join(new) or "nothing",
    )

  def _check_paths(self, here: Mapping[str, Any], taken: Arrays) -> None:
    mine = {path: leaf.shape[1:] for path, leaf in here.items()}
    source = {path: value.shape for path, value in taken.items()}
    if not mine or not source:
      raise InputError(
        f"warm_start: {'this model' if source else self.run} has no parameters "
        f"{'of an encoder ' if self.scope == 'encoder' else ''}to "
        f"{'replace' if source else 'take'}"
      )
    wrong = [
      f"  {path}: {source.get(path, 'absent')} there, {mine.get(path, 'absent')} here"
      for path in sorted(mine.keys() | source.keys())
      if source.get(path) != mine.get(path)
    ]
    if wrong:
      more = [f"  … and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
      hint = (
        "; set warm_start.scope=encoder to take its encoder alone" if self.scope == "all" else ""
      )
      raise InputError(
        f"warm_start.run = {self.run} has other parameters than this model "
        f"(warm_start.scope = {self.scope!r}):\n"
        + "\n".join(wrong[:SHOWN] + more)
        + f"\nName a run of this model{hint}"
      )


def begin(config: Any, workdir: epath.PathLike) -> WarmStart | None:
  """Opens the first run that a config names; None where it names none.

  A new run's folder gets `warm_start.json` and copies of what was fitted; for a run that has begun,
  the record is compared with the first run as it is now.

  Raises:
    InputError: a wrong section `warm_start`, or a first run that is unusable or has changed.

  """
  workdir, section = epath.Path(workdir), config.warm_start
  run, scope, seed = (section[key] for key in ("run", "scope", "seed"))
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
  if scope not in ("all", "encoder", "matching"):
    raise InputError(
      f"warm_start.scope = {scope!r}: set it to all (all parameters of {run}), "
      "encoder (its encoder's alone) or matching (those that this model has, too)"
    )
  if _absolute(run) == _absolute(workdir):
    raise InputError(f"warm_start.run = {run} is the --workdir itself: give another --workdir")
  start = WarmStart(section, tuple(config.seeds))
  processes.by_first(lambda: _settle(start, config, workdir))
  return start


def _settle(start: WarmStart, config: Any, workdir: epath.Path) -> None:
  """Records what a run starts from, or compares it with the record."""
  if begun(workdir):
    if _check_unchanged(workdir / NAME, start.record):
      return
  else:
    start.check_encoder_config(config)
    start.copy_fitted(workdir)
  write_whole(workdir / NAME, json.dumps(start.record, indent=2) + "\n")


def _check_unchanged(path: epath.Path, record: dict) -> bool:
  """Whether the seeds on record are those of now; those that are both must have begun as they would now."""
  try:
    before = json.loads(path.read_text())["seeds"]
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise InputError(
      f"{path} cannot be read ({error!r}): it says what this run began with; put it "
      "back, or start in another --workdir"
    ) from None
  changed = [
    f"  seed {now['seed']}: {_shown(old)} then, {_shown(now)} now"
    for old, now in zip(before, record["seeds"])
    if old != now
  ]
  if changed:
    raise InputError(
      f"warm_start.run = {record['run']} has changed since this run began from it:\n"
      + "\n".join(changed)
      + "\nPut it back as it was, or start in another "
      "--workdir"
    )
  return len(before) == len(record["seeds"])


def _shown(entry: Mapping[str, Any]) -> str:
  return f"seed {entry['from_seed']}, step {entry['step']}, {entry['sha256'][:12]}"


def _finished(run: epath.Path) -> tuple[dict, dict]:
  """Reads the config and the results of a finished run that has parameters."""
  path = run / "config.json"
  if not path.exists():
    raise InputError(
      f"warm_start.run = {run} holds no run (no config.json): name the --workdir of a finished one"
    )
  config = regular_files.read_object(path, "it was changed by hand; put it back as it was")
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


def _put(values: Sequence[np.ndarray], leaf: jax.Array) -> jax.Array:
  """Stacks the values of all seeds into an array sharded like `leaf`."""
  stacked = np.stack(values).astype(leaf.dtype)
  return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: stacked[index])
