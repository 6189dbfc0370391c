"""A run's folder, opened on any machine by what lies in it."""

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from etils import epath
from flax import traverse_util
from ml_collections import ConfigDict

from as2jax.config import base, check, jobs
from as2jax.config.overrides import differences, flatten
from as2jax.data.inputs.first_stage_ranking import OrderGiven, Ranking
from as2jax.data.load import load as load_dataset
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import predict, results
from as2jax.evaluation.predict import FittedRanker
from as2jax.inference.ranker import ParameterFreeRanker, Ranker
from as2jax.runtime import cpu_compiler, devices, processes, registry, sharding
from as2jax.runtime.devices import use_compile_cache
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object
from as2jax.training import loop, optimizers, record, warm_start
from as2jax.training import state as states
from as2jax.training.build import Components, load
from as2jax.training.checkpoints import group_folder, read_best, read_progress
from as2jax.training.state import Tracker

log = logging.getLogger(__name__)
# Keys that a checkpoint's scores depend on; the others may differ when a run is used.
USED = (
  "model.",
  "encoder.name",
  "encoder.pretrained",
  "encoder.vectors",
  "encoder.weights",
  "encoder.mix",
  "encoder.treebank",
  "data.max_length",
  "data.rules",
  "data.prompts",
  "data.ranking_size",
  "seeds",
  "seeds_parallel",
)
REPORT = "as2jax.report.make:make"
# A question that every model reads: it tells the shapes of a model's parameters.
EXAMPLE = (Question("Q", "question", (Candidate("C", "candidate", 0),)),)


class Run:
  """A run of `as2jax.main`, by its folder.

  Attributes:
    folder: where it lies, absolute.
    config: as the run resolved it, or the one that was given.
    seeds: that were trained.
    changed: what differs in code and versions from those that the run began with, a line each;
      empty until `components` are loaded.

  """

  def __init__(
    self,
    folder: epath.PathLike,
    config: ConfigDict | None = None,
    *,
    data: bool | None = None,
    dtype: str | None = None,
  ):
    """Reads the config; data, weights and devices are touched by `ranker` alone.

    Args:
      folder: `--workdir` of the run.
      config: in place of the run's own: to use it with other data or on other devices.
      data: whether the config's data set is read, too; by default where `config` is given.
      dtype: of the encoder's computation, float32 or bfloat16; None: the config's.

    Raises:
      InputError: the folder holds no run, or one of another model than `config` describes.

    """
    folder = epath.Path(folder).expanduser()
    self.folder = folder if "://" in str(folder) else epath.Path(folder.absolute())
    path = self.folder / "config.json"
    if not path.exists():
      raise InputError(f"{folder} holds no run (no config.json): train first")
    self._own = config is None
    self._data = config is not None if data is None else data
    self._ranking: Ranking | None = None
    self.changed: list[str] = []
    self.config = jobs.of_run(str(path)) if config is None else config
    if config is not None:
      _check_same_model(config, path)
    if dtype is not None and "dtype" in self.config.encoder:
      self.config = self.config.copy_and_resolve_references().unlock()
      self.config.encoder.dtype = dtype
      check.check(self.config.lock())
    self.seeds: tuple[int, ...] = tuple(self.config.seeds)

  @property
  def metrics(self) -> dict[str, dict]:
    """Of `results.json`: {metric: {mean, sd, seeds, questions, half_width}}."""
    return self.results["metrics"]

  @property
  def results(self) -> dict:
    """The content of `results.json`; InputError where the run has not finished."""
    content = results.read(self.folder)
    if content is None:
      raise InputError(
        f"{self.folder} is not finished (no results.json), so its best checkpoint is not "
        f"known: continue it with as2jax train {self.folder}"
      )
    return content

  def check_finished(self) -> None:
    """Raises InputError where the run has not finished."""
    _ = self.results

  @property
  def files(self) -> Mapping[str, epath.Path]:
    """What the run wrote to be read, by name: its config, results, logs, run files (`eval/…`)."""
    written: dict[str, epath.Path] = {}

    def add(folder: epath.Path, below: str) -> None:
      for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
          written[below + path.name] = path
        elif path.is_dir() and (below or path.name == "eval"):
          add(path, f"{below}{path.name}/")

    add(self.folder, "")
    return written

  def ranker(self, seed: int | Literal["best"] = "best", *, trained: bool = True) -> Ranker:
    """The model with its parameters on the devices, ready to rank.

    Rankers of one run share their compiled programs. A ranker without parameters has no checkpoint
    and needs no finished run.

    Args:
      seed: of the run's; `best` is the one with the greatest value of the metric that selects.
      trained: whether with the best checkpoint's parameters; else with those that training began
        with.

    Raises:
      InputError: no such seed, no checkpoint, or one that does not fit the run's config; `trained`,
        and the run has not finished; or training began with weights or a run that are not here or
        have changed since.

    """
    if not registry.has_parameters(self.config.model.name):
      if seed not in ("best", 0):  # its results are of seed 0, whatever the config's seeds are
        self.check_seed(seed)
      words = ParameterFreeRanker(self._fitted, self.config, seed=self.seeds[0])
      words.source = str(self.folder)
      return words
    if trained:
      self.check_finished()
    seed = self.best_seed if seed == "best" else self.check_seed(seed)
    if not trained and self.components.source.absent:
      raise InputError(
        f"the run began with weights that are not here: {self.components.source.absent}"
      )
    if trained:
      variables = placed(self._variables(seed), self.predictor.mesh)
    else:
      variables = states.ranking_variables(self._first_state(seed))
    ranker = Ranker(self.predictor, variables, seed=seed)
    ranker.source = str(self.folder) if trained else ""
    return ranker

  def report(
    self, output: epath.PathLike = "", *, against: Sequence[epath.PathLike] = (), **options: Any
  ) -> epath.Path:
    """Writes one self-contained HTML page that shows the run; returns its path.

    Args:
      output: the page, a .html; by default `report.html` in the run's folder.
      against: folders of runs, tables or TREC run files that stand in the page, too; the others are
        compared with the first of them.
      options: of `as2jax.report.make.make`.

    """
    names = [*map(str, against), str(self.folder)]
    return registry.resolve(REPORT)(names, output or self.folder / "report.html", **options)

  def check_seed(self, seed: int | None) -> int:
    """The seed itself, `best_seed` where None; InputError where the run has no such seed."""
    if seed is not None and seed not in self.seeds:
      raise InputError(f"seed = {seed}: the run has {', '.join(map(str, self.seeds))}")
    return self.best_seed if seed is None else seed

  @property
  def best_seed(self) -> int:
    """The seed whose best checkpoint has the greatest value of the metric that selects."""
    values = {}
    for seeds in loop.seed_groups(self.config) if len(self.seeds) > 1 else ():
      values |= dict(zip(seeds, self._tracker(seeds).best, strict=True))
    return max(values, key=lambda seed: values[seed] or 0.0, default=self.seeds[0])

  def parameters(self, seed: int) -> dict[str, np.ndarray]:
    """The parameters of the seed's best checkpoint, by path, float32."""
    flat = traverse_util.flatten_dict(self._variables(seed)["params"], sep="/")
    return {path: np.asarray(value[0], np.float32) for path, value in flat.items()}

  @functools.cached_property
  def components(self) -> Components:
    """Encoder, tokeniser and model; the data set where a config was given."""
    config = self.config
    if registry.has_parameters(config.model.name):  # no device ranks by words
      config = self._for_this_machine[0]
    use_compile_cache(config)
    components = processes.in_order(lambda: load(config, data=self._data, workdir=self.folder))
    self.changed = record.check(self.folder, components)
    if components.model.layout != "joint":
      if self._ranking is not None:
        raise InputError(
          "predict.ranking is for models that rank the best candidates of another "
          "ranker again (model.template = 'joint'); leave it empty"
        )
      return components
    if self._ranking is None and components.dataset is not None:
      return components
    return components.with_ranking(self._ranking or OrderGiven())

  def rerank(self, ranking: Ranking) -> None:
    """Names the first-stage ranking that a joint model starts from, before the first `ranker`.

    Without one, candidates are taken to come in its order.
    """
    self._ranking = ranking

  @functools.cached_property
  def _fitted(self) -> FittedRanker:
    """The ranker without parameters; data is read where it counts in the training questions."""
    model, dataset = self.components.model, self.components.dataset
    if model.reads_training and dataset is None:
      data, task = self.config.data, self.config.evaluation.task
      dataset = processes.in_order(lambda: load_dataset(data, task))
    if not model.reads_training or dataset is None:
      return FittedRanker(model, ())
    loaded = dataclasses.replace(self.components, dataset=dataset)
    record.check_data(self.folder, loaded, (record.TRAINING,))
    return FittedRanker(model, dataset.splits["train"])

  @functools.cached_property
  def _for_this_machine(self) -> tuple[ConfigDict, list[jax.Device]]:
    """The config, and the devices that it is used on.

    The run's own config is fitted to the devices that are here; a given one must fit.
    """
    own = lambda: fitted_to_devices(self.config, str(self.folder))
    return own() if self._own else (self.config, jax.devices())

  @functools.cached_property
  def predictor(self) -> predict.Predictor:
    """Prediction with the model for one seed's parameters, through programs that are kept."""
    config, here = self._for_this_machine
    mesh = sharding.mesh_for_batches(config, most_cores=self.components.most_cores, devices=here)
    return predict.Predictor(self.components, mesh, 1)

  @functools.cached_property
  def _example(self) -> Any:
    return example(self.components)

  def _first_state(self, seed: int) -> states.TrainState:
    """The state that training began with: fresh, or from the run that `warm_start` names."""
    components = self.components
    fresh = components.fresh_state(
      self._example, (seed,), optimizers.no_optimizer(), self.predictor.mesh
    )
    try:
      start = warm_start.begin(self.config, self.folder)
    except InputError as error:
      raise InputError(f"the run began with the parameters of another run: {error}") from error
    return start.place(fresh, (seed,), components.model) if start else fresh

  def _tracker(self, seeds: tuple[int, ...]) -> Tracker:
    devices.backend()  # whoever reads a checkpoint needs one, and it may be absent
    folder = group_folder(self.folder, self.seeds, seeds)
    return Tracker(**read_progress(folder)["tracker"])

  def _variables(self, seed: int) -> dict[str, Any]:
    """The host arrays `[1, …]` of the best checkpoint of a seed: `{"params": …, …}`."""
    seeds = next(group for group in loop.seed_groups(self.config) if seed in group)
    folder, step = group_folder(self.folder, self.seeds, seeds), self._tracker(seeds).saved_step
    record.check_best(self.folder, folder, step)
    content = read_best(folder, step)
    at = seeds.index(seed)
    params = {
      path: value[at : at + 1]
      for part in ("trainable", "frozen")
      for path, value in (content.get(part) or {}).items()
    }
    check_fits(
      self.components.model,
      self._example,
      params,
      f"{folder / 'best' / str(step)}: the checkpoint does not fit the model of "
      f"{self.folder}/config.json",
    )
    others = jax.tree.map(lambda x: x[at : at + 1], content.get("mutables") or {})
    return {"params": traverse_util.unflatten_dict(params, sep="/"), **others}


def fitted_to_devices(config: ConfigDict, source: str) -> tuple[ConfigDict, list[jax.Device]]:
  """The config for the devices that are here, and those: one of them where not all fit.

  Args:
    source: what is opened, for the log.

  Raises:
    InputError: the device that $JAX_PLATFORMS names is not here.

  """
  cpu_compiler.check(devices.backend())
  if warning := devices.unused():
    log.warning(warning)
  here = jax.devices()
  shards = len(here) // config.sharding.tensor
  if sharding.are_cores(config, here):
    shards = 1  # of which the cores share the rows
  elif len(here) % (config.sharding.fsdp * config.sharding.tensor) or (
    config.batch.predict_rows % shards
  ):
    log.info("%s: one of %d devices ranks", source, len(here))
    here, shards = jax.local_devices()[:1], 1
  config = config.copy_and_resolve_references().unlock()
  config.batch.shards = shards
  if len(here) == 1:
    config.sharding.fsdp = config.sharding.tensor = 1
  return config.lock(), here


def example(components: Components) -> Any:
  """One micro-batch `[shard, …]` of what every model reads."""
  model = components.model
  # A first-stage ranking that was read knows the questions of the data alone.
  components = components.with_ranking(OrderGiven())
  layout = "sentences" if model.encodes else model.layout
  batcher = predict.smallest(components.predict_batcher(EXAMPLE, layout, cache=False))
  batch = batcher.batch(batcher.plan(batcher.sampler.blocks(), 0, 0), 0)
  return jax.tree.map(lambda x: x[0], batch)


def check_fits(model: Any, batch: Any, params: Mapping[str, np.ndarray], problem: str) -> None:
  """Raises InputError, which begins with `problem`, where `params` are not the model's.

  Args:
    model: the system; batch: one micro-batch for it.
    params: `[1, …]` by path.

  """
  init = lambda batch: model.init(jax.random.key(0), batch, train=False).get("params", {})
  wanted = traverse_util.flatten_dict(jax.eval_shape(init, batch), sep="/")
  shapes = {path: (1, *value.shape) for path, value in wanted.items()}
  for path in sorted({*shapes, *params}):
    there = tuple(params[path].shape) if path in params else None
    if there != shapes.get(path):
      raise InputError(f"{problem} ({path!r} is {there} there, {shapes.get(path)} in the model)")


def placed(variables: dict[str, Any], mesh: jax.sharding.Mesh) -> dict[str, Any]:
  """Host arrays `[1, …]` on the devices of a mesh."""
  return jax.tree.map(sharding.put, variables, sharding.tree_shardings(variables, mesh))


def _check_same_model(config: ConfigDict, path: epath.Path) -> None:
  """Raises InputError where the config describes another model than the run's at `path`."""
  there = read_object(path, "it was changed by hand; put it back as it was")
  used = lambda flat: {k: v for k, v in flat.items() if k.startswith(USED)}
  # For keys that are younger than the run.
  default = flatten({"data": json.loads(base.get_config().data.to_json())})
  changed = differences(used(default | flatten(there)), used(flatten(json.loads(config.to_json()))))
  if changed:
    raise InputError(
      f"{path.parent} holds a run of another model:\n"
      + "\n".join(changed)
      + f"\nUse --config=rerun:{path}"
    )
