"""From a resolved config to its modules and shapes, without weights and without its data.

Encoders have the sizes that their folder's config states, or their published ones
(their families'). Batches have the examples of the embedded sample in
the config's layout, with texts as long as WikiQA's, cut by `as2jax.data.batches.batcher` as in a
run: so their shapes are a run's, near enough, though a data set of longer texts fills more rows of
`paper` batches (`batch.rows` states those of the others).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from as2jax.config import base
from as2jax.data.batches.batcher import Batcher, Column, Plan, Steps
from as2jax.data.inputs.first_stage_ranking import OrderGiven
from as2jax.data.inputs.protocol import Resources, declared
from as2jax.data.load import load as load_dataset
from as2jax.data.text.token_table import UnitTable
from as2jax.encoders import open_encoder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.training import state as states
from as2jax.training.build import BatchTables, Components, has_encoder, model_and_loss, with_length

# Tokens a word of the sample's texts, which makes them as long as WikiQA's (8 and 28 word pieces).
QUESTION, SENTENCE = 1.15, 1.8
_NONE = np.zeros(0, np.int32)


def describe(config: Any) -> "Description":
  """Returns the parts that a config describes, without weights or data.

  Raises:
    InputError: a ranker without parameters, or an encoder whose sizes only its files tell.

  """
  if not registry.has_parameters(config.model.name):
    raise InputError(f"model.name = {config.model.name!r} has no step to compile")
  source = open_encoder.describe(config.encoder)
  config = with_length(config, source)
  model, loss = model_and_loss(config, source)
  sample = base.get_config().data  # without the files, columns, rules and negatives of other data
  sample.name, sample.holdout = "sample", 0.1
  sample.root, sample.cache = config.data.root, config.data.cache
  encoder = source.module if has_encoder(config.model) else None
  resources = Resources(config, source, "", None)
  inputs = tuple(entry.bind(resources) for entry in declared(model, encoder, loss))
  parts = Description(config, load_dataset(sample), source, model, loss, {}, {}, inputs)
  return parts.with_ranking(OrderGiven())


@dataclasses.dataclass(frozen=True)
class Description(Components):
  """Holds the parts of a run without weights, over texts that are only so and so long.

  `dataset` is the embedded sample; `source` has no parameters and no tokeniser.
  """

  def tables(
    self, questions: Sequence[Any], layout: str, *, training: bool = False, **options
  ) -> BatchTables:
    """Returns units of nothing but lengths, and columns of zeros."""
    units, table = self.examples(questions, layout, **options)
    unit_table = _units(units, {q.text for q in questions}, self.config.data.max_length)
    rows = {
      "token": len(unit_table.ids),
      "vocabulary": 1,  # the only id
      "word": len(unit_table.word_form),
      "unit": len(unit_table),
      "example": len(table),
    }
    columns = {}
    for entry in self.inputs:
      if entry.training_only and not training:
        continue
      if (spec := entry.spec()) is not None:
        tail, kind = spec
        values = np.broadcast_to(np.zeros((), kind), (rows[entry.level], *tail))
        columns[entry.name] = Column(entry.level, values)
    return BatchTables(unit_table, table, columns)

  def batch(self, batcher: Batcher) -> Any:
    """Returns the shapes of one shard of the largest batch, `[1, …]`."""
    alone = dataclasses.replace(batcher, shards=1, accumulate=1)
    empty = Plan(Steps((), 1, 1), _NONE, _NONE, _NONE)
    batch = alone.batch(empty, 0, (batcher.rows[-1], batcher.row_lengths[-1]))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch)

  def state(self, batch: Any, seeds: Sequence[int], optimizer: Any, mesh: Any) -> states.TrainState:
    """Returns shapes and shardings of the train state; `batch` is of one shard."""
    return states.shapes(
      self.model,
      batch,
      seeds=seeds,
      lr_multipliers=self.config.optimizer.lr_multipliers,
      optimizer=optimizer,
      mesh=mesh,
    )


def _units(units: Sequence[tuple[str, ...]], questions: set[str], most: int) -> UnitTable:
  """Makes a table of nothing but lengths: of texts, and a token before, between and after them."""

  def tokens(text: str) -> int:
    return round(len(text.split()) * (QUESTION if text in questions else SENTENCE))

  lengths = [min(sum(map(tokens, parts)) + len(parts) + 1, most) for parts in units]
  return UnitTable.of_lengths(lengths)
