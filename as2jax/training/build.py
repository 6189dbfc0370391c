"""From a resolved config to the parts of a run: data, tokeniser, model, loss, weights, batches."""

import dataclasses
import functools
import importlib.util
import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from etils import epath

from as2jax.config.overrides import apply
from as2jax.data import dataset as datasets
from as2jax.data import holdout
from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Batcher, Column, fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import WHOLE_QUESTIONS
from as2jax.data.inputs import protocol as fitted
from as2jax.data.inputs.protocol import Input, Resources, Tables, declared
from as2jax.data.inputs.rankings import FirstStageRanking, Ranking, check_unused
from as2jax.data.load import FILES, reported, require
from as2jax.data.load import load as load_dataset
from as2jax.data.record import Question
from as2jax.data.tables import is_hub
from as2jax.data.text.input_templates import ROLES, Prompts
from as2jax.data.text.tokenise import UnitTable, build_units
from as2jax.evaluation import metrics, results
from as2jax.models import losses
from as2jax.runtime import devices, processes, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, digest_of_arrays
from as2jax.training import state as states
from as2jax.training import stored_split

if TYPE_CHECKING:
  from as2jax.encoders.family import Source

log = logging.getLogger(__name__)


class BatchTables(NamedTuple):
  """Holds what batches are cut from: units, examples, and columns of inputs by name."""

  units: UnitTable
  examples: ExampleTable
  inputs: Mapping[str, Column]


@dataclasses.dataclass(frozen=True)
class Components:
  """Holds the parts of a run, loaded once.

  Attributes:
    dataset: the splits (None in mode `predict`).
    source: the encoder, with its tokeniser (`family.Source`); None for rankers without parameters.
    model: Linen module; loss: its loss.
    pretrained: host arrays by parameter path.
    provenance: what results say of the weights.
    inputs: what the model and its encoder read beside token ids, bound to this run.
    fitted: what each input has counted in the training data, by its name.

  """

  config: Any
  dataset: datasets.Dataset | None
  source: Any
  model: Any
  loss: Any
  pretrained: Mapping[str, np.ndarray]
  provenance: dict
  inputs: tuple[Input, ...] = ()
  fitted: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def data(self) -> datasets.Dataset:
    """Returns the data set of parts that were loaded with one."""
    assert self.dataset is not None, "the parts were loaded without data"
    return self.dataset

  @property
  def prompts(self) -> Prompts:
    """Returns what is put before texts: `data.prompts`, or the published model's own."""
    texts = tuple(self.config.data.prompts) or self.source.prompts
    prompts = Prompts(*texts)
    if any(texts):
      prompts.check(self.source.tokenizer, self.config.data.max_length, self.inputs)
    return prompts

  @property
  def most_cores(self) -> int:
    """Returns the number of CPU cores to split a shard's rows over (parameters are replicated).

    As many as half of the machine's memory has room for: float32 parameters, gradient and two moments.
    """
    source = self.source
    if source is None or not hasattr(source.module, "num_heads"):  # no layers of attention
      return 1
    if not leaves_open(self.config.model, "encoder"):
      return 1
    copy = 16 * sum(value.size for value in self.pretrained.values())
    return max(devices.memory() // 2 // max(copy, 1), 1)

  def train_questions(self) -> tuple[Question, ...]:
    """Returns the training questions that holding out, protocol and fraction leave."""
    data = self.config.data
    questions = self.data.splits["train"]
    labels = [np.asarray([c.label for c in q.candidates]) for q in questions]
    kept = np.flatnonzero(metrics.filter_mask(data.train_filter, labels))
    if data.train_fraction < 1:
      # Not the run's seed: every seed of a comparison trains on the same part.
      size = max(int(len(kept) * data.train_fraction), 1)
      kept = np.sort(np.random.default_rng(0).permutation(kept)[:size])
    return tuple(questions[i] for i in kept)

  def tables(
    self,
    questions: Sequence[Question],
    layout: str,
    *,
    cache: bool = True,
    training: bool = False,
    words: bool = False,
    **options,
  ) -> BatchTables:
    """Tokenises the units of `questions` in a layout (`sentences` is one, too).

    Args:
      cache: whether tokens are kept on disk.
      training: whether the inputs of the loss are there, too.
      words: whether units have their words, also where no input needs them.
      options: of the layout's function.

    """
    inputs = [entry for entry in self.inputs if training or not entry.training_only]
    units, table = self.examples(questions, layout, **options)
    roles = None
    if self.model.template == "single":
      assert table.asked is not None, "units of one sentence are questions or candidates"
      roles = np.where(table.asked, ROLES["question"], ROLES["candidate"]).tolist()
    units = self.prompts.before(units, roles)
    tokenizer = self.source.tokenizer_of(text for unit in units for text in unit)
    built = build_units(
      units,
      tokenizer,
      template=self.model.template,
      roles=roles,
      max_length=self.config.data.max_length,
      cache=str(cache_folder(self.config.data.cache)) if cache else "",
      words=words or any(entry.needs_words for entry in inputs),
    )
    if cache and (lost := built.report()):
      log.info("%s: %s", layout, lost)
    tables, columns = Tables(built, table, tokenizer), {}
    for entry in inputs:
      values = entry.columns(self.fitted[entry.name], questions, tables)
      if values is not None:
        columns[entry.name] = Column(entry.level, values)
    for entry in inputs:
      built = entry.retokenise(built)
    return BatchTables(built, table, columns)

  def examples(
    self, questions: Sequence[Question], layout: str, **options
  ) -> tuple[list[tuple[str, ...]], ExampleTable]:
    """Returns the texts of the units and the examples of `questions` in a layout."""
    function = {**layouts.LAYOUTS, "sentences": layouts.sentences}[layout]
    options["template"] = self.model.template
    options["tile"], options["size"] = self.config.batch.triplet_tile, self.config.data.ranking_size
    known = inspect.signature(function).parameters
    if FirstStageRanking.name in known:
      options[FirstStageRanking.name] = self.orders(questions)
    return function(questions, **{k: v for k, v in options.items() if k in known})

  def statistics(self, batcher: Batcher) -> dict[str, dict]:
    """Returns what results say of the inputs in the data of `batcher`, by name."""
    statistics = {}
    for entry in self.inputs:
      of_input = entry.statistics(batcher.inputs.get(entry.name), batcher.units)
      if of_input:
        statistics[entry.name] = of_input
    return statistics

  def orders(self, questions: Sequence[Question]) -> list[np.ndarray]:
    """Returns the order of each question's candidates by the first-stage ranking."""
    for entry in self.inputs:
      if entry.name == FirstStageRanking.name:
        return entry.for_layout(questions)
    raise InputError(
      f"{type(self.model).__name__} ranks the best candidates of another ranker again, but does not "
      "name FirstStageRanking in its `inputs`"
    )

  def with_ranking(self, ranking: Ranking) -> Self:
    """Replaces the first-stage ranking, for questions that no run file has."""
    bound = FirstStageRanking(ranking)
    inputs = [bound if entry.name == bound.name else entry for entry in self.inputs]
    return dataclasses.replace(self, inputs=tuple(inputs))

  def fresh_state(
    self, batch: Any, seeds: Sequence[int], optimizer: Any, mesh: Any
  ) -> states.TrainState:
    """Creates a state with the pretrained weights in place; `batch` is one micro-batch."""
    return states.create(
      self.model,
      batch,
      seeds=seeds,
      pretrained=self.pretrained,
      lr_multipliers=self.config.optimizer.lr_multipliers,
      optimizer=optimizer,
      mesh=mesh,
    )

  def train_batcher(self) -> Batcher:
    """Returns the batches of the training split, as `config.batch` says."""
    batch, tables = self.config.batch, processes.in_order(self._train_tables)
    if not len(tables.examples):
      raise InputError(
        f"data.train_filter = {self.config.data.train_filter!r} leaves no "
        f"example for the layout {self.model.layout!r}"
      )
    return fit_batcher(
      tables.units,
      tables.examples,
      inputs=tables.inputs,
      sampler=batch.sampler,
      examples_per_batch=batch.examples,
      rows=batch.rows if batch.sampler in WHOLE_QUESTIONS else 0,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      accumulate=batch.accumulate,
      buckets=batch.num_row_buckets,
    )

  def _train_tables(self) -> BatchTables:
    """Returns the tables of the training split, which the next run finds in the cache."""
    if stored := stored_split.read(self):
      return BatchTables(*stored, {})
    options: dict[str, Any] = {"training": True}
    if self.loss.reads_unlabelled:
      options["judged"] = False
    tables = self.tables(self.train_questions(), self.model.layout, **options)
    if not tables.inputs:
      stored_split.keep(self, tables.units, tables.examples)
    return tables

  def predict_batcher(
    self, questions: Sequence[Question], layout: str, *, cache: bool = True
  ) -> Batcher:
    """Returns batches with every unit (`sentences`) or every candidate of `questions` once."""
    read = functools.partial(self.tables, questions, layout, cache=cache, judged=False)
    tables, batch = processes.in_order(read), self.config.batch
    # Not fitted to the split: every split is predicted in the same shapes. Models of words work on
    # each slot, used or not, and their units are long.
    slots = batch.predict_rows // batch.shards
    if batch.packed:
      of_words = any(column.level == "word" for column in tables.inputs.values())
      slots *= max(batch.row_lengths[-1] // (64 if of_words else 8), 1)
    return fit_batcher(
      tables.units,
      tables.examples,
      inputs=tables.inputs,
      sampler="ordered" if batch.packed else "by_length",
      examples_per_batch=slots * batch.shards,
      rows=batch.predict_rows,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      unit_slots=slots,
      accumulate=1,
      buckets=1,
      rows_key="batch.predict_rows",
    )


def load(
  config: Any, *, data: bool = True, workdir: epath.PathLike = "", finished: bool = False
) -> Components:
  """Reads data and weights, and finds all that is wrong with a config or its files (InputError).

  Args:
    data: whether the data set is loaded.
    workdir: the run's folder, with its vocabulary (`open_encoder.ENCODER_FOLDER`) and what inputs have fitted.
    finished: whether the run's checkpoints are used: no weights that training began with are read.

  """
  from as2jax.encoders.open_encoder import open_encoder

  dataset = None
  cls: Any = registry.find(registry.MODELS, config.model.name, "model.name")
  if data:
    if config.mode == "train" and cls.has_parameters:
      _check_here(config, workdir, finished)
    dataset = load_dataset(config.data, config.evaluation.task)
    if not cls.has_parameters:
      require(dataset, ("train",) if cls.reads_training else ())
    elif config.mode == "train":
      require(dataset, ("train", holdout.selection_split(config.data)))
      if config.epochs and (config.data.name == FILES or is_hub(config.data.name)):
        _check_wrong_answers(config, dataset)
    config = reported(config, dataset)
  if not cls.has_parameters:
    model = registry.build(registry.MODELS, config.model, "model")
    return Components(config, dataset, None, model, None, {}, {})
  inside = leaves_open(config.model, "encoder")
  source = open_encoder(
    config.encoder,
    texts=lambda *splits: _texts(dataset, splits),
    workdir=workdir,
    root=config.data.root,
    finished=finished and inside,
  )
  config, model, loss = with_source(config, source)
  arrays, provenance = _weights(source, model)
  if source.absent:
    if not inside:  # only the run's own encoder is in its checkpoints
      raise InputError(source.absent)
    of_run = (results.read(workdir) or {})["weights"]
    provenance = of_run | {key: provenance[key] for key in ("architecture", "tokenizer")}
  encoder = source.module if inside else None
  resources = Resources(config, source, provenance["sha256"], dataset)
  parts = [model, encoder]
  if config.mode == "train":
    parts.append(loss)
  inputs = tuple(entry.bind(resources) for entry in declared(*parts))
  if config.mode != "predict":
    check_unused(config, inputs, model.encodes)
  train = lambda: None if dataset is None else dataset.splits["train"]
  return Components(
    config,
    dataset,
    source,
    model,
    loss,
    arrays if inside else {},
    provenance,
    inputs,
    {entry.name: fitted.recall(entry, workdir, train) for entry in inputs},
  )


def _check_here(config: Any, workdir: epath.PathLike, finished: bool) -> None:
  """Raises InputError for a package or weights that are not here, before any data are read."""
  from as2jax.encoders import open_encoder

  if config.log.tensorboard and importlib.util.find_spec("tensorboardX") is None:
    raise InputError(
      "training needs tensorboardX, which is not installed: pip install 'as2jax[train]', or do without, "
      "--config.log.tensorboard=false"
    )
  open_encoder.require(config.encoder, workdir, config.data.root, finished=finished)


def _check_wrong_answers(config: Any, dataset: datasets.Dataset) -> None:
  """Raises InputError where a loss that learns from wrong answers would have none."""
  loss: Any = registry.find(registry.LOSSES, config.loss.name, "loss.name")
  if loss.whole_batch or loss.reads_unlabelled:
    return
  if not any(question.negatives for question in dataset.splits["train"]):
    raise InputError(
      f"{config.data.train or config.data.name}: the answers are all right, and loss.name = {config.loss.name!r} learns "
      "from wrong ones: give candidates with label 0, or leave the column of labels out and train on "
      "pairs, as2jax train --recipe=fast --train=FILE"
    )


def with_source(config: Any, source: "Source") -> tuple[Any, Any, Any]:
  """Builds the model over the encoder of `source`, and its loss (None in mode `predict`).

  Returns:
    The config, with the encoder's own limit in `data.max_length` where that is 0, model and loss.

  Raises:
    InputError: a model or a loss that is not there, a loss that cannot read the model's outputs, or a
      pooling or a length that the encoder does not take.

  """
  offered = {"encoder": source.module, **source.model_fields}
  offered = {key: value for key, value in offered.items() if leaves_open(config.model, key)}
  model = registry.build(registry.MODELS, config.model, "model", **offered)
  loss: Any = None
  if config.mode != "predict":
    loss = registry.build(registry.LOSSES, config.loss, "loss")
    losses.check(loss, model, config)
  if config.mode == "train":
    if source.model_fields.get("token") == "cls_last" and config.model.get("pooling") == "cls":
      raise InputError(
        "model.pooling = 'cls' reads the first token of a text, and this encoder's <cls> is the last: "
        "--config.model.pooling=cls_last"
      )
    if config.batch.accumulate > 1 and loss.whole_batch:
      raise InputError(
        f"batch.accumulate = {config.batch.accumulate}: loss.name = {config.loss.name!r} compares all "
        "texts of a batch, which its parts lack; set batch.accumulate to 1"
      )
  length, most = config.data.max_length, source.max_length
  if most is None and not length:
    raise InputError(
      "data.max_length = 0 is the encoder's own limit, and this one has none: give a number"
    )
  if most is not None and length > most:
    raise InputError(
      f"data.max_length = {length} exceeds the {most} positions of {config.encoder.pretrained}"
    )
  if not length:
    config = apply(config, {"data.max_length": most})
  return config, model, loss


def _texts(dataset: datasets.Dataset | None, splits: Sequence[str]) -> Iterator[str]:
  """Yields the texts of a new vocabulary: of some splits, of all if none is named; pools have passages."""
  questions_by_split = {} if dataset is None else dataset.splits
  for name in splits or questions_by_split:
    for question in questions_by_split.get(name, ()):
      yield question.text
      yield from (candidate.text for candidate in question.candidates)
    if pool := getattr(dataset, "pools", {}).get(name):
      yield from (passage.text for passage in pool.passages)


def leaves_open(section: Any, key: str) -> bool:
  """Returns whether the model has the field `key` and its section leaves it open.

  Of `encoder`: whether the encoder is a part of the model, not of its inputs alone.
  """
  cls: Any = registry.find(registry.MODELS, section["name"], "model.name")
  return key in [field.name for field in dataclasses.fields(cls)] and section.get(key) is None


def _weights(source: "Source", model: Any) -> tuple[dict[str, np.ndarray], dict]:
  """Returns pretrained arrays by the model's parameter paths, and what results say of them."""
  arrays = {f"encoder/{path}": value for path, value in source.params.items()}
  arrays |= source.model_params
  pooler, layer = "none", {}
  if model.pooler:
    layer = {f"pooler/{name}": value for name, value in (source.pooler or {}).items()}
    # Biases begin as 0, and a step moves all of them: a layer whose bias is 0 was never trained.
    trained = bool(layer) and layer["pooler/bias"].any()
    pooler = "pretrained" if trained else "random"
  published = digest_of_arrays(arrays | layer)
  if pooler == "pretrained":
    arrays |= layer
  provenance = {
    **source.provenance,
    "architecture": source.architecture,
    "tokenizer": getattr(source.tokenizer, "fingerprint", None),
    "pooler": pooler,
  }
  return arrays, {**provenance, "sha256": published}
