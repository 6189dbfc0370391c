"""From a resolved config to the parts of a run: data, tokeniser, model, loss, weights, batches."""

import dataclasses
import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import holdout
from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Batcher, Column, fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import WHOLE_QUESTIONS
from as2jax.data.inputs import first_stage_ranking, teacher_scores
from as2jax.data.inputs import protocol as fitted
from as2jax.data.inputs.first_stage_ranking import FirstStageRanking, Ranking
from as2jax.data.inputs.protocol import Input, Resources, Tables, declared
from as2jax.data.load import load as load_dataset
from as2jax.data.load import reported, require
from as2jax.data.record import Question
from as2jax.data.text.input_templates import ROLES, Prompts
from as2jax.data.text.token_table import UnitTable
from as2jax.data.text.tokenise import build_units
from as2jax.evaluation import metrics, results
from as2jax.layers.transformer import is_transformer
from as2jax.models import losses
from as2jax.runtime import devices, processes, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, digest_of_arrays
from as2jax.training import state as states
from as2jax.training import stored_split
from as2jax.training.step import check_accumulation

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
    source: the encoder, with its tokeniser (`open.Source`); None for rankers without parameters.
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
    """Returns what is put before texts: `data.prompts`, or the published model's own.

    Raises:
      InputError: a prompt leaves no room for a text.

    """
    texts = tuple(self.config.data.prompts) or self.source.prompts
    prompts = Prompts(*texts)
    if any(texts):
      prompts.check(self.source.tokenizer, self.config.data.max_length, self.inputs)
    return prompts

  @property
  def most_cores(self) -> int:
    """Returns the number of CPU cores to split a shard's rows over (parameters are replicated).

    One, where most of the work is no transformer's on the rows; else as many as half of the machine's
    memory has room for: float32 parameters, their gradient and two moments.
    """
    source = self.source
    if source is None or not has_encoder(self.config.model) or not is_transformer(source.module):
      return 1
    copy = 16 * sum(value.size for value in self.pretrained.values())
    return max(devices.memory() // 2 // max(copy, 1), 1)

  def train_questions(self) -> tuple[Question, ...]:
    """Returns the training questions that holding out, protocol and fraction leave."""
    data = self.config.data
    questions = self.data.splits["train"]
    labels = [np.asarray([c.label for c in q.candidates]) for q in questions]
    kept = np.flatnonzero(metrics.filter_mask(data.train_filter, labels))
    if not 0 < data.train_fraction <= 1:
      raise InputError(f"data.train_fraction = {data.train_fraction}: give a number in (0, 1]")
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
    **options,
  ) -> BatchTables:
    """Tokenises the units of `questions` in a layout (`sentences` is one, too).

    `training`: with the inputs of the loss.

    On several hosts all must ask for it; they find what the first has put into a cache they share
    (none where not `cache`).
    """
    inputs = [entry for entry in self.inputs if training or not entry.training_only]
    return processes.in_order(lambda: self._tables(questions, layout, cache, inputs, **options))

  def examples(
    self, questions: Sequence[Question], layout: str, **options
  ) -> tuple[list[tuple[str, ...]], ExampleTable]:
    """Returns the texts of the units and the examples of `questions` in a layout."""
    function = {**layouts.LAYOUTS, "sentences": layouts.sentences}[layout]
    known = inspect.signature(function).parameters
    options: dict[str, Any] = {
      "template": self.model.template,
      "tile": self.config.batch.triplet_tile,
      "size": self.config.data.ranking_size,
      **options,
    }
    for entry in self.inputs:
      if entry.name in known:
        options[entry.name] = entry.for_layout(questions)
    if layout == "joint" and FirstStageRanking.name not in options:
      options[FirstStageRanking.name] = self.orders(questions)  # which says what is missing
    return function(questions, **{k: v for k, v in options.items() if k in known})

  def _tables(
    self,
    questions: Sequence[Question],
    layout: str,
    cached: bool,
    inputs: Sequence[Input],
    **options,
  ) -> BatchTables:
    units, table = self.examples(questions, layout, **options)
    data = self.config.data
    cache = str(cache_folder(data.cache)) if cached else ""
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
      max_length=data.max_length,
      cache=cache,
      words=any(entry.needs_words for entry in inputs),
    )
    if cached:
      log.info("%s: %s", layout, built.report())
    tables = Tables(built, table, tokenizer)
    columns = {}
    for entry in inputs:
      values = entry.columns(self.fitted[entry.name], questions, tables)
      if values is not None:
        columns[entry.name] = Column(entry.level, values)
    for entry in inputs:
      built = entry.retokenise(built)
    return BatchTables(built, table, columns)

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
    inputs = list(self.inputs)
    for i, entry in enumerate(inputs):
      if entry.name == FirstStageRanking.name:
        inputs[i] = FirstStageRanking(ranking)
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
    tables = self._training_tables()
    if not len(tables.examples):
      raise InputError(
        f"data.train_filter = {self.config.data.train_filter!r} leaves no "
        f"example for the layout {self.model.layout!r}"
      )
    batch = self.config.batch
    return fit_batcher(
      tables.units,
      tables.examples,
      sampler=batch.sampler,
      examples_per_batch=batch.examples,
      inputs=tables.inputs,
      rows=batch.rows if batch.sampler in WHOLE_QUESTIONS else 0,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      accumulate=batch.accumulate,
      buckets=batch.num_row_buckets,
    )

  def _training_tables(self) -> BatchTables:
    """Returns the tables of the training split, which the first run keeps in the cache."""
    # All hosts do the same: one that lacks the tables would wait for the others to make them.
    if all(processes.gather(lambda: stored_split.read(self) is not None)):
      stored = stored_split.read(self)
      if stored is not None:
        return BatchTables(*stored, {})
    options: dict[str, Any] = {"training": True}
    if self.loss.reads_unlabelled:
      options["judged"] = False
    tables = self.tables(self.train_questions(), self.model.layout, **options)
    if not len(tables.inputs):
      processes.in_order(lambda: stored_split.keep(self, tables.units, tables.examples))
    return tables

  def predict_batcher(
    self, questions: Sequence[Question], layout: str, *, cache: bool = True
  ) -> Batcher:
    """Returns batches with every unit (`sentences`) or every candidate of `questions` once.

    Args:
      cache: whether tokens are kept on disk, to be found the next time.

    """
    tables = self.tables(questions, layout, cache=cache, judged=False)
    batch, rows = self.config.batch, self.config.batch.predict_rows
    # Not fitted to the split: every split is predicted in the same shapes. Models of words work on
    # each slot, used or not, and their units are long.
    slots = rows // batch.shards
    if batch.packed:
      of_words = any(column.level == "word" for column in tables.inputs.values())
      shortest = 64 if of_words else 8
      slots *= max(batch.row_lengths[-1] // shortest, 1)
    return fit_batcher(
      tables.units,
      tables.examples,
      inputs=tables.inputs,
      sampler="ordered" if batch.packed else "by_length",
      examples_per_batch=slots * batch.shards,
      rows=rows,
      unit_slots=slots,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      accumulate=1,
      buckets=1,
      rows_key="batch.predict_rows",
    )


def _with_data(config: Any) -> tuple[Any, datasets.Dataset]:
  """Loads the data; returns the config as it is reported with them, and them."""
  dataset = load_dataset(config.data, config.evaluation.task)
  config = reported(config, dataset)
  model: Any = registry.find(registry.MODELS, config.model.name, "model.name")
  needed: tuple[str, ...] = ()
  if not model.has_parameters and model.reads_training:
    needed = ("train",)
  elif model.has_parameters and config.mode == "train":
    needed = ("train", holdout.selection_split(config.data))
  require(dataset, needed)
  return config, dataset


def load(
  config: Any, *, data: bool = True, workdir: epath.PathLike = "", finished: bool = False
) -> Components:
  """Reads data and weights, and finds all that is wrong with a config or its files.

  Args:
    data: whether the data set is loaded.
    workdir: the run's folder, with its vocabulary (`open.ENCODER_FOLDER`) and what inputs have fitted.
    finished: whether the run's checkpoints are used: no weights that training began with are read.

  Raises:
    InputError: see the parts.

  """
  from as2jax.encoders.open_encoder import open_encoder

  dataset = None
  if data:
    config, dataset = _with_data(config)
  if not registry.has_parameters(config.model.name):
    model = registry.build(registry.MODELS, config.model, "model")
    return Components(config, dataset, None, model, None, {}, {})
  source = open_encoder(
    config.encoder,
    texts=lambda *splits: _texts(dataset, splits),
    workdir=workdir,
    root=config.data.root,
    finished=finished and has_encoder(config.model),
  )
  model, loss = model_and_loss(config, source)
  config = with_length(config, source)
  arrays, provenance = _weights(source, model)
  encoder = source.module if has_encoder(config.model) else None
  if source.absent:
    if encoder is None:  # only the run's own encoder is in its checkpoints
      raise InputError(source.absent)
    of_run = (results.read(workdir) or {})["weights"]
    here = {"architecture": provenance["architecture"], "tokenizer": provenance["tokenizer"]}
    provenance = of_run | here
  resources = Resources(config, source, provenance["sha256"], dataset)
  parts = [model, encoder]
  if config.mode == "train":
    parts.append(loss)
  inputs = tuple(entry.bind(resources) for entry in declared(*parts))
  if config.mode == "train":
    teacher_scores.check_unused(config, inputs)
    check_accumulation(config, model, loss)
  ranks_again = any(entry.name == FirstStageRanking.name for entry in inputs)
  if config.mode != "predict" and not ranks_again:
    first_stage_ranking.check_unused(config, model.encodes)
  train = lambda: dataset.splits["train"] if dataset else None
  return Components(
    config,
    dataset,
    source,
    model,
    loss,
    {} if encoder is None else arrays,
    provenance,
    inputs,
    {entry.name: fitted.recall(entry, workdir, train) for entry in inputs},
  )


def with_length(config: Any, source: "Source") -> Any:
  """Puts the encoder's own limit into `data.max_length` where that is 0.

  Raises:
    InputError: the encoder takes fewer tokens, or 0 is given and it has no limit.

  """
  length, most = config.data.max_length, source.max_length
  if length and (most is None or length <= most):
    return config
  if most is None:
    raise InputError(
      "data.max_length = 0 is the encoder's own limit, and this one has none: give a number"
    )
  if length:
    raise InputError(
      f"data.max_length = {length} exceeds the {most} positions of {config.encoder.pretrained}"
    )
  config = config.copy_and_resolve_references().unlock()
  config.data.max_length = most
  return config.lock()


def model_and_loss(config: Any, source: "Source") -> tuple[Any, Any]:
  """Builds the model over the encoder of `source`, and its loss (None in mode `predict`).

  Raises:
    InputError: a model or a loss that is not there, or a loss that cannot read the model's outputs.

  """
  offered = {k: v for k, v in source.model_fields.items() if _open_field(config.model, k)}
  if has_encoder(config.model):
    offered["encoder"] = source.module
  model = registry.build(registry.MODELS, config.model, "model", **offered)
  if config.mode == "predict":
    return model, None
  loss = registry.build(registry.LOSSES, config.loss, "loss")
  losses.check(loss, model, config)
  return model, loss


def _texts(dataset: datasets.Dataset | None, splits: Sequence[str]) -> Iterator[str]:
  """Yields the texts of a new vocabulary: of some splits, of all if none is named.

  A pool's passages are among them.
  """
  questions_by_split = dataset.splits if dataset else {}
  for name in splits or questions_by_split:
    for question in questions_by_split.get(name, ()):
      yield question.text
      yield from (candidate.text for candidate in question.candidates)
    if pool := getattr(dataset, "pools", {}).get(name):
      yield from (passage.text for passage in pool.passages)


def has_encoder(section: Any) -> bool:
  """Returns whether the encoder is a part of the model, not of its inputs alone."""
  return _open_field(section, "encoder")


def _open_field(section: Any, key: str) -> bool:
  """Returns whether the model has the field `key` and its config leaves it open."""
  cls: Any = registry.find(registry.MODELS, section["name"], "model.name")
  return key in {f.name for f in dataclasses.fields(cls)} and section.get(key) is None


def _weights(source: "Source", model: Any) -> tuple[dict[str, np.ndarray], dict]:
  """Returns pretrained arrays by the model's parameter paths, and what results say of them."""
  arrays = {f"encoder/{path}": value for path, value in source.params.items()}
  arrays |= source.model_params
  tokenizer = getattr(source.tokenizer, "fingerprint", None)
  provenance = {
    **source.provenance,
    "architecture": source.architecture,
    "tokenizer": tokenizer,
    "pooler": "none",
  }
  if model.pooler:
    provenance["pooler"] = "random"
    if source.pooler is not None:
      provenance["pooler"] = "pretrained"
      arrays |= {f"pooler/{name}": value for name, value in source.pooler.items()}
  return arrays, {**provenance, "sha256": digest_of_arrays(arrays)}
