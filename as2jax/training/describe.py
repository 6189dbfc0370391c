"""From a resolved config to its modules and shapes, without weights and without its data.

Encoders have the sizes that their folder's config states, or their published ones. Batches have the
examples of the embedded sample in the config's layout, with texts as long as WikiQA's, cut as in a run:
so their shapes are a run's, near enough, though a data set of longer texts fills more rows of `paper`
batches (`batch.rows` states those of the others).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from as2jax.config import base
from as2jax.data.batches.batcher import Batcher, Column, Plan, Steps
from as2jax.data.inputs.protocol import Resources, declared
from as2jax.data.inputs.rankings import OrderGiven
from as2jax.data.load import load as load_dataset
from as2jax.data.text.tokenise import UnitTable
from as2jax.encoders import open_encoder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.training import state as states
from as2jax.training.build import BatchTables, Components, leaves_open, with_source

# Tokens a word of the sample's texts, which makes them as long as WikiQA's (8 and 28 word pieces).
QUESTION, SENTENCE = 1.15, 1.8
_NONE = np.zeros(0, np.int32)


def describe(config: Any) -> "Description":
  """Returns the parts that a config describes, without weights or data."""
  if not registry.has_parameters(config.model.name):
    raise InputError(f"model.name = {config.model.name!r} has no step to compile")
  source = open_encoder.describe(config.encoder)
  config, model, loss = with_source(config, source)
  sample = base.get_config().data  # without the files, columns, rules and negatives of other data
  sample.name, sample.holdout = "sample", 0.1
  sample.root, sample.cache = config.data.root, config.data.cache
  encoder = source.module if leaves_open(config.model, "encoder") else None
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
    asked = {question.text for question in questions}
    lengths = []  # of texts, and a token before, between and after them
    for parts in units:
      length = len(parts) + 1
      for text in parts:
        length += round(len(text.split()) * (QUESTION if text in asked else SENTENCE))
      lengths.append(min(length, self.config.data.max_length))
    unit_table = UnitTable.of_lengths(lengths)
    rows = {
      "token": len(unit_table.ids),
      "vocabulary": 1,  # the only id
      "word": len(unit_table.word_form),
      "unit": len(unit_table),
      "example": len(table),
    }
    columns = {}
    for entry in self.inputs:
      spec = entry.spec()
      if spec is not None and (training or not entry.training_only):
        tail, kind = spec
        values = np.broadcast_to(np.zeros((), kind), (rows[entry.level], *tail))
        columns[entry.name] = Column(entry.level, values)
    return BatchTables(unit_table, table, columns)

  def batch(self, batcher: Batcher) -> Any:
    """Returns the shapes of one shard of the largest batch, `[1, …]`."""
    alone = dataclasses.replace(batcher, shards=1, accumulate=1)
    empty = Plan(Steps(1, 1), _NONE, _NONE, _NONE, _NONE)
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
