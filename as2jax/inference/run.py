"""A run's folder, opened on any machine by what lies in it."""

import dataclasses
import functools
import json
import logging
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from etils import epath
from flax import traverse_util
from ml_collections import ConfigDict

from as2jax.config import base, jobs
from as2jax.config.overrides import differences, flatten
from as2jax.data.inputs.rankings import OrderGiven, Ranking
from as2jax.data.load import load as load_dataset
from as2jax.data.record import Question
from as2jax.evaluation import predict, results
from as2jax.evaluation.predict import FittedRanker
from as2jax.inference.ranker import ParameterFreeRanker, Ranker
from as2jax.runtime import compile_cache, cpu_compiler, devices, processes, registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object
from as2jax.runtime.shown import Shown
from as2jax.training import record
from as2jax.training.build import Components, load
from as2jax.training.checkpoints import group_folder, read_best

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
)
REPORT = "as2jax.report.make:make"
DTYPES = ("float32", "bfloat16")


class Run(Shown):
  """A run of `as2jax.main`, by its absolute `folder`, with its resolved `config`."""

  def __init__(
    self,
    folder: epath.PathLike,
    config: ConfigDict | None = None,
    *,
    data: bool = False,
    dtype: str | None = None,
    as_begun: bool = False,
    allow_code: bool = False,
  ):
    """Reads the config; data, weights and devices are touched by `ranker` alone.

    Args:
      folder: of the run.
      config: of the same model, in place of the run's own: for other data or devices.
      data: whether the config's data set is read, too.
      dtype: of the encoder's computation, float32 or bfloat16; None: the config's.
      as_begun: whether the encoder's folder and weights are read that training began with.
      allow_code: whether classes of one's own that the run names may be imported.

    """
    folder = epath.Path(folder).expanduser()
    self.folder = folder if "://" in str(folder) else epath.Path(folder.absolute())
    path = self.folder / "config.json"
    if not path.exists():
      raise InputError(f"{folder} holds no run (no config.json): train first")
    self._own, self._ranking, self._as_begun = config is None, None, as_begun
    self._data = data
    if config is None:
      config = jobs.of_run(str(path), allow_code)
    else:
      _check_same_model(config, path)
    if dtype not in (None, *DTYPES):
      raise InputError(f"encoder.dtype = {dtype!r}: use one of {', '.join(DTYPES)}")
    config = config.copy_and_resolve_references().unlock()
    if dtype is not None and "dtype" in config.encoder:
      config.encoder.dtype = dtype
    self.config: ConfigDict = config.lock()

  def about(self) -> dict[str, Any]:
    """Return what was trained on what, and the main figures."""
    model, seeds = self.config.model.name, ", ".join(map(str, self.seeds))
    facts = {"Run": str(self.folder), "model": f"{model} on {self.config.data.name}, seeds {seeds}"}
    content = results.read(self.folder)
    if content is None:
      return facts | {"state": "not finished: the training goes on where it stopped"}
    return facts | dict(results.main_figures(content, selecting=True))

  @functools.cached_property
  def seeds(self) -> tuple[int, ...]:
    """That were trained; 0 of a ranker without parameters, whatever its config says."""
    if not registry.has_parameters(self.config.model.name):
      return (0,)
    return tuple(self.config.seeds)

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

  def ranker(self, seed: int | Literal["best"] | None = "best") -> Ranker:
    """Places the parameters of a seed's best checkpoint on the devices, ready to rank.

    Rankers of one run share their compiled programs. The `best` seed has the greatest value of the metric
    that selects. A ranker without parameters needs no finished run.
    """
    if registry.has_parameters(self.config.model.name):
      _ = self.results  # which say that it has finished
      number = self.check_seed(seed)
      ranker = Ranker(self.predictor, self._variables(number), seed=number)
    else:
      ranker = ParameterFreeRanker(self._fitted, self.config, seed=self.check_seed(seed))
    ranker.source = str(self.folder)
    return ranker

  def report(
    self, output: epath.PathLike = "", *, against: Sequence[epath.PathLike] = (), **options: Any
  ) -> epath.Path:
    """Writes one self-contained HTML page (`report.html` in the run's folder); returns its path.

    `against` are folders of runs, tables or TREC run files that stand in the page, too: the others are
    compared with the first of them. `options` are those of `as2jax.report.make.make`.
    """
    names = [*map(str, against), str(self.folder)]
    return registry.resolve(REPORT)(names, output or self.folder / "report.html", **options)

  def check_seed(self, seed: int | Literal["best"] | None) -> int:
    """Returns the seed, the best one for `best` or None; InputError where there is no such seed."""
    if seed in ("best", None):
      if len(self.seeds) == 1:
        return self.seeds[0]
      best = max(self.results["seeds"], key=lambda outcome: outcome["best_value"] or 0.0)
      return best["seed"]
    if seed not in self.seeds:
      raise InputError(f"seed = {seed}: the run has {', '.join(map(str, self.seeds))}")
    return seed

  def parameters(self, seed: int) -> dict[str, np.ndarray]:
    """Returns the parameters of the seed's best checkpoint by path, float32."""
    flat = traverse_util.flatten_dict(self._variables(seed)["params"], sep="/")
    return {path: np.asarray(value[0], np.float32) for path, value in flat.items()}

  @functools.cached_property
  def components(self) -> Components:
    """Encoder, tokeniser and model; the data set where it was asked for.

    Of a finished run all of them, and all parameters, lie in its folder.
    """
    config = self.config
    if registry.has_parameters(config.model.name):  # no device ranks by words
      self._devices = jax.devices()
      if self._own:  # a config that was given must fit the devices
        config, self._devices = fitted_to_devices(config, str(self.folder))
    compile_cache.use(config)
    finished = self._own and not self._as_begun and results.read(self.folder) is not None
    read = functools.partial(load, config, data=self._data, workdir=self.folder, finished=finished)
    components = processes.in_order(read)
    record.check(self.folder, components)
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

  def start_from(self, ranking: epath.PathLike, questions: Sequence[Question]) -> None:
    """Names the run file of the first-stage ranking of `questions`, before `components` are read.

    The questions are under the run's text rules; joint models refuse "", which is no ranking.
    """
    if ranking:
      self._ranking = Ranking()
      self._ranking.add(ranking, questions)
    elif self.components.model.layout == "joint":
      raise InputError(
        f"{self.config.model.name} ranks the best candidates of another ranker again: name the run "
        "file of its ranking of these questions in predict.ranking (as2jax rank RUN FILE --ranking=RUN_FILE)"
      )

  @functools.cached_property
  def _fitted(self) -> FittedRanker:
    """The ranker without parameters; data is read where it counts in the training questions."""
    model, dataset = self.components.model, self.components.dataset
    if not model.reads_training:
      return FittedRanker(model, ())
    if dataset is None:
      data, task = self.config.data, self.config.evaluation.task
      dataset = processes.in_order(lambda: load_dataset(data, task))
    loaded = dataclasses.replace(self.components, dataset=dataset)
    record.check_data(self.folder, loaded, (record.TRAINING,))
    return FittedRanker(model, dataset.splits["train"])

  @functools.cached_property
  def predictor(self) -> predict.Predictor:
    """Prediction with the model for one seed's parameters, through programs that are kept."""
    components = self.components
    mesh = sharding.mesh_for_batches(
      components.config, most_cores=components.most_cores, devices=self._devices
    )
    return predict.Predictor(components, mesh, 1)

  def _variables(self, seed: int) -> dict[str, Any]:
    """Reads the best checkpoint of a seed: `{"params": …, …}`, host arrays `[1, …]`."""
    devices.backend()  # which may be absent: said before anything is read
    seeds = self.seeds if self.config.seeds_parallel else (seed,)  # those that trained together
    folder = group_folder(self.folder, self.seeds, seeds)
    content = read_best(folder, digest=record.read(self.folder)["best"].get(folder.name, ""))
    at = seeds.index(seed)
    params = {}
    for part in ("trainable", "frozen"):
      for path, value in (content.get(part) or {}).items():
        params[path] = value[at : at + 1]
    others = jax.tree.map(lambda x: x[at : at + 1], content.get("mutables") or {})
    return {"params": traverse_util.unflatten_dict(params, sep="/"), **others}


def fitted_to_devices(config: ConfigDict, source: str) -> tuple[ConfigDict, list[jax.Device]]:
  """Returns the config for the devices that are here, and those: one of them where not all fit."""
  cpu_compiler.check(devices.backend())
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
  config.mode = "predict"
  config.batch.shards = shards
  if len(here) == 1:
    config.sharding.fsdp = config.sharding.tensor = 1
  return config.lock(), here


def _check_same_model(config: ConfigDict, path: epath.Path) -> None:
  there = read_object(path, "it was changed by hand; put it back as it was")
  # For keys that are younger than the run.
  default = flatten({"data": json.loads(base.get_config().data.to_json())})
  changed = differences(default | flatten(there), flatten(json.loads(config.to_json())))
  if used := [line for line in changed if line.strip().startswith(USED)]:
    text = "\n".join([f"{path.parent} holds a run of another model:", *used])
    raise InputError(f"{text}\nLeave these keys as they are there, or train another run with them")
