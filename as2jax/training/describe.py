"""From a resolved config to its modules and shapes, without weights and without its data.

Encoders have the sizes that their folder's config states, or their published ones
(`as2jax.encoders.checkpoints.published_shapes`). Batches have the examples of the embedded sample in
the config's layout, with texts as long as WikiQA's, cut by `as2jax.data.batches.batcher` as in a
run: so their shapes are a run's, near enough, though a data set of longer texts fills more rows of
`paper` batches (`batch.rows` states those of the others).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from as2jax.config import base
from as2jax.data.batches.batcher import Batcher, Column, Plan, Steps
from as2jax.data.inputs.first_stage_ranking import OrderGiven
from as2jax.data.inputs.protocol import Resources, declared
from as2jax.data.load import load as load_dataset
from as2jax.data.text.token_table import UnitTable
from as2jax.encoders.checkpoints import published_shapes
from as2jax.encoders.checkpoints.families import FAMILIES
from as2jax.encoders.open import Source
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.training import state as states
from as2jax.training.build import BatchTables, Components, has_encoder, model_and_loss, with_length

WORDS = 50_000  # rows of a vocabulary of words that only the data would tell
# Tokens a word of the sample's texts, which makes them as long as WikiQA's (8 and 28 word pieces).
QUESTION, SENTENCE = 1.15, 1.8
_NONE = np.zeros(0, np.int32)


def describe(config: Any) -> "Description":
  """The parts that a config describes; reads no weights, and no data but the embedded sample.

  Raises:
    InputError: a ranker without parameters, or an encoder whose sizes only its files tell.

  """
  if not registry.has_parameters(config.model.name):
    raise InputError(f"model.name = {config.model.name!r} has no step to compile")
  source = _source(config.encoder)
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
  """The parts of a run without weights, over texts that are only so and so long.

  `dataset` is the embedded sample; `source` has no parameters and no tokeniser.
  """

  def tables(
    self, questions: Sequence[Any], layout: str, *, training: bool = False, **options
  ) -> BatchTables:
    """Units of nothing but lengths, and columns of zeros."""
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
    """Shapes of one shard of the largest batch, `[1, …]`."""
    alone = dataclasses.replace(batcher, shards=1, accumulate=1)
    empty = Plan(Steps((), 1, 1), _NONE, _NONE, _NONE)
    batch = alone.batch(empty, 0, (batcher.rows[-1], batcher.row_lengths[-1]))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch)

  def state(self, batch: Any, seeds: Sequence[int], optimizer: Any, mesh: Any) -> states.TrainState:
    """Shapes and shardings of the train state; `batch` is of one shard."""
    return states.shapes(
      self.model,
      batch,
      seeds=seeds,
      lr_multipliers=self.config.optimizer.lr_multipliers,
      optimizer=optimizer,
      mesh=mesh,
    )


def _units(units: Sequence[tuple[str, ...]], questions: set[str], most: int) -> UnitTable:
  """A table of nothing but lengths: of each text, and a token before, between and after texts."""

  def tokens(text: str) -> int:
    return round(len(text.split()) * (QUESTION if text in questions else SENTENCE))

  lengths = [min(sum(map(tokens, parts)) + len(parts) + 1, most) for parts in units]
  return UnitTable.of_lengths(lengths)


def _source(section: Mapping[str, Any]) -> Source:
  """The encoder that a section describes, without parameters and without a tokeniser."""
  kind = section["name"]
  settings = {k: v for k, v in section.items() if v is not None}
  fields: dict[str, Any] = {}
  model_fields: Mapping[str, Any] = {}
  most = None
  if kind in ("auto", *FAMILIES) or ":" in kind:
    family, sizes = published_shapes.family(section["pretrained"])
    name = kind if ":" in kind else family.name
    own = {k: v for k, v in settings.items() if k != "pretrained"} | {"name": name}
    fields = {k: v for k, v in {"precision": None, **sizes}.items() if k not in own}
    model_fields = {"token": family.tokens}
  elif kind == "sentence_bert":
    sentence = published_shapes.sentence_bert(section["pretrained"])
    own = {k: v for k, v in settings.items() if k != "pretrained"} | {"name": sentence.family.name}
    fields = {k: v for k, v in {"precision": None, **sentence.sizes}.items() if k not in own}
    model_fields, most = sentence.fields, sentence.max_length
  elif kind == "reranker":
    shapes = published_shapes.reranker(section["pretrained"])
    own = {k: v for k, v in settings.items() if k != "pretrained"} | {"name": shapes.family.name}
    fields = {k: v for k, v in {"precision": None, **shapes.sizes}.items() if k not in own}
    model_fields, most = shapes.fields, shapes.max_length
  elif kind == "words":
    own = {"name": kind, "hidden_dropout": section["hidden_dropout"]}
    generated = section["size"] or WORDS
    fields = {
      "vocab_size": WORDS if section["vocabulary"] == "data" else generated,
      "hidden_size": published_shapes.family(section["pretrained"])[1]["hidden_size"],
    }
    model_fields = {"marks": (2, 3), "output_size": generated}
  elif kind in ("static", "recurrent"):
    drop = ("vectors", "weights", "vocabulary", "lower", "treebank", "unknown_words", "markers")
    own = {k: v for k, v in settings.items() if k not in drop}
    size = "hidden_size" if kind == "static" else "word_size"
    fields = {"vocab_size": WORDS, size: published_shapes.vector_width(section["vectors"])}
    fields |= {"precision": None} if kind == "recurrent" and "precision" not in own else {}
  elif kind == "elmo":
    own = {k: v for k, v in settings.items() if k not in ("pretrained", "treebank")}
    fields = published_shapes.elmo()
    fields |= {"precision": None} if "precision" not in own else {}
  else:
    raise InputError(
      f"encoder.name = {kind!r}: only the files of such an encoder tell its sizes, "
      "and nothing is read here; compile the step of another one"
    )
  module = registry.build(registry.ENCODERS, own, "encoder", **fields)
  return Source(
    module=module,
    params={},
    tokenizer=None,
    max_length=most,
    provenance={"family": own["name"]},
    model_fields=model_fields,
  )
