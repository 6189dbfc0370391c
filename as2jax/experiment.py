"""From a resolved config to the parts of a run: data, tokeniser, model, loss, weights, batches."""

import dataclasses
import hashlib
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import traverse_util

from as2jax import metrics, registry
from as2jax import state as states
from as2jax.data import dataset as datasets
from as2jax.data import examples as layouts
from as2jax.data.batching import Batcher, fit_batcher
from as2jax.data.examples import ExampleTable
from as2jax.data.record import Question
from as2jax.data.text import ROLES, build_units, load_tokenizer
from as2jax.data.units import UnitTable
from as2jax.errors import InputError

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Experiment:
  """What a config describes, built once.

  Attributes:
    dataset: the splits (None in mode `predict`).
    tokenizer: behind `build_units`.
    model: Linen module; loss: its loss.
    pretrained: host arrays by parameter path.
    facts: what results say of the weights.
  """

  config: Any
  dataset: datasets.Dataset | None
  tokenizer: Any
  model: Any
  loss: Any
  pretrained: Mapping[str, np.ndarray]
  facts: dict

  def train_questions(self) -> tuple[Question, ...]:
    """The training questions that the config's protocol and fraction leave."""
    data = self.config.data
    questions = self.dataset.splits["train"]
    labels = [np.asarray([c.label for c in q.candidates]) for q in questions]
    kept = np.flatnonzero(metrics.protocol_mask(data.train_protocol, labels))
    if not 0 < data.train_fraction <= 1:
      raise InputError(f"data.train_fraction = {data.train_fraction}: give a number in (0, 1]")
    if data.train_fraction < 1:
      # Not the run's seed: every seed of a comparison trains on the same part.
      size = max(int(len(kept) * data.train_fraction), 1)
      kept = np.sort(np.random.default_rng(0).permutation(kept)[:size])
    return tuple(questions[i] for i in kept)

  def tables(self, questions: Sequence[Question], layout: str, **options
             ) -> tuple[UnitTable, ExampleTable]:
    """Tokenised units and examples of `questions` in a layout (`sentences` is one, too)."""
    function = layouts.sentences if layout == "sentences" else layouts.LAYOUTS[layout]
    known = inspect.signature(function).parameters
    options = {"template": self.model.template, "tile": self.config.batch.tile, **options}
    units, table = function(questions, **{k: v for k, v in options.items() if k in known})
    data = self.config.data
    cache = str(datasets.cache_folder(data.cache))
    roles = None
    if self.model.template == "single":
      asked = {q.text for q in questions}
      roles = [ROLES["question" if text in asked else "candidate"] for text, in units]
    built = build_units(units, self.tokenizer, template=self.model.template, roles=roles,
                        max_length=data.max_length, cache=cache)
    log.info("%s: %s", layout, built.report())
    return built, table

  def fresh_state(self, batch: Any, seeds: Sequence[int], optimizer: Any, mesh: Any
                  ) -> states.TrainState:
    """A state with the pretrained weights in place; `batch` is one micro-batch."""
    return states.create(self.model, batch, seeds=seeds, pretrained=self.pretrained,
                         freeze=self.config.optimizer.freeze, optimizer=optimizer, mesh=mesh)

  def train_batcher(self) -> Batcher:
    """Batches of the training split, as `config.batch` says."""
    units, table = self.tables(self.train_questions(), self.model.layout)
    if not len(table):
      raise InputError(f"data.train_protocol = {self.config.data.train_protocol!r} leaves no "
                       f"example for the layout {self.model.layout!r}")
    batch = self.config.batch
    return fit_batcher(units, table, sampler=batch.sampler, examples_per_batch=batch.examples,
                       rows=batch.rows if batch.sampler == "grouped" else 0,
                       row_lengths=batch.row_lengths, packed=batch.packed, shards=batch.shards,
                       accumulate=batch.accumulate, buckets=batch.buckets)

  def predict_batcher(self, questions: Sequence[Question], layout: str) -> Batcher:
    """Batches that hold every unit (`sentences`) or every candidate of `questions` once."""
    units, table = self.tables(questions, layout, judged=False)
    batch = self.config.batch
    rows = batch.predict_rows
    # Not fitted to the split: every split is predicted in the same shapes.
    slots = rows // batch.shards * (batch.row_lengths[-1] // 8 if batch.packed else 1)
    return fit_batcher(units, table, sampler="ordered" if batch.packed else "by_length",
                       examples_per_batch=slots * batch.shards, rows=rows, unit_slots=slots,
                       row_lengths=batch.row_lengths, packed=batch.packed, shards=batch.shards,
                       accumulate=1, buckets=1)


def build(config: Any, *, data: bool = True) -> Experiment:
  """Builds the parts; everything that can be wrong with a config or its files is found here.

  Raises:
    InputError: see the parts.
  """
  from as2jax.encoders import pretrained
  dataset = datasets.load(config.data.name, root=config.data.root, cache=config.data.cache,
                          download=config.data.download) if data else None
  folder = pretrained.resolve(config.encoder.pretrained)
  section = {k: v for k, v in config.encoder.items() if k != "pretrained"}
  sizes = {k: v for k, v in pretrained.read_config(folder).items() if section.get(k) is None}
  section = {k: v for k, v in section.items() if v is not None}
  encoder = registry.build(registry.ENCODERS, section, "encoder", **sizes)
  model = registry.build(registry.MODELS, config.model, "model", encoder=encoder)
  loss = registry.build(registry.LOSSES, config.loss, "loss")
  if config.data.max_length > encoder.max_positions:
    raise InputError(f"data.max_length = {config.data.max_length} exceeds the {encoder.max_positions}"
                     f" positions of {config.encoder.pretrained}")
  return Experiment(config, dataset, load_tokenizer(folder), model, loss,
                    *_weights(folder, model, config))


def _weights(folder: Any, model: Any, config: Any) -> tuple[dict[str, np.ndarray], dict]:
  """Pretrained arrays by the model's parameter paths, and what results say of them."""
  from as2jax.encoders import pretrained
  encoder = traverse_util.flatten_dict(pretrained.load_params(folder, model.encoder), sep="/")
  arrays = {f"encoder/{path}": value for path, value in encoder.items()}
  facts = {"pretrained": config.encoder.pretrained, "pooler": "none"}
  if getattr(model, "pooler", False):
    pooler = pretrained.load_pooler(folder)
    facts["pooler"] = "random" if pooler is None else "pretrained"
    arrays.update({f"pooler/{name}": value for name, value in (pooler or {}).items()})
  digest = hashlib.sha256()
  for path in sorted(arrays):
    digest.update(path.encode() + np.ascontiguousarray(arrays[path]).tobytes())
  return arrays, {**facts, "sha256": digest.hexdigest()}
