"""A frozen encoder: the vectors of a table's words, computed once and kept (CETE section 3.1)."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32, Int32, Shaped

from as2jax.data.batches.batch import Tokens
from as2jax.data.batches.batcher import Batcher, Column, fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import Shard
from as2jax.data.inputs.protocol import Input, Resources, Tables, declared
from as2jax.data.record import Question
from as2jax.data.text.tokenise import UnitTable
from as2jax.encoders import family as families
from as2jax.encoders.family import Source
from as2jax.runtime import cache, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder

VERSION = 1  # of the vectors and their meaning; part of every key
# Fields of an encoder that do not change what it computes without dropout.
_SILENT = ("hidden_dropout", "attention_dropout", "unroll", "remat", "parent", "name")
_NAME = "features"  # of the array in the cache

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class FrozenVectors(Input):
  """The vectors of an encoder that no step moves, in place of token ids: tokens become words.

  They are kept in files of the type `storage`; `encoder` is None before `bind`.
  """

  storage: str
  encoder: "FrozenEncoder | None" = None

  name: ClassVar[str] = "frozen_vectors"
  level: ClassVar[str] = "token"

  @property
  def needs_words(self) -> bool:
    """Whether words are several tokens of the encoder."""
    return not self.encoder.of_words

  def bind(self, resources: Resources) -> "FrozenVectors":
    """Takes the run's encoder, its weights' digest and its cache folder."""
    config = resources.config
    encoder = FrozenEncoder(
      resources.source,
      digest=resources.digest,
      storage=self.storage,
      cache=str(cache_folder(config.data.cache)),
      rows=config.batch.predict_rows,
      row_length=config.batch.row_lengths[-1],
    )
    return FrozenVectors(self.storage, encoder)

  def retokenise(self, units: UnitTable) -> UnitTable:
    """Returns the table of words: each word is a token."""
    return word_table(units, of_words=self.encoder.of_words).units

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float[np.ndarray, "w ..."]:
    """Returns the vectors of all words, computed or read from the cache."""
    inputs = declared(self.encoder.source.module)
    columns = {i.name: Column(i.level, i.columns(None, questions, tables)) for i in inputs}
    return self.encoder(tables.units, columns)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """Returns the encoder's width, by abstract evaluation, in the type of the files."""
    return self.encoder.width(), self.storage

  def statistics(self, column: Column | None, units: UnitTable) -> dict[str, Any]:
    """Returns the type of the files, and how often the encoder has run."""
    return {"storage": self.storage, "encoder_calls": self.encoder.calls}


class WordTable(NamedTuple):
  """Units whose tokens are words, and the tokens of each word, counted from its old unit's first."""

  units: UnitTable
  first: Int32[np.ndarray, "w"]
  length: Int32[np.ndarray, "w"]


def word_table(units: UnitTable, *, of_words: bool) -> WordTable:
  """Makes each word of `units` a token, whose id is the number of its form.

  Special tokens, which no word owns, are left out; a unit without any word keeps one token that
  stands for none (its id is the number of forms). Where tokens are words (`of_words`), they stay.
  """
  if of_words:
    within = np.arange(len(units.ids)) - np.repeat(units.offsets[:-1], units.lengths)
    return WordTable(units, within.astype(np.int32), np.ones(len(units.ids), np.int32))
  counts = np.diff(units.word_offsets)
  bare = counts == 0
  places = units.word_offsets[:-1][bare]
  put = lambda values, new: np.insert(np.asarray(values), places, new)
  offsets = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))])
  begin = np.repeat(units.word_offsets[:-1], counts)
  table = dataclasses.replace(
    units,
    ids=put(units.word_form, len(units.forms)),
    offsets=offsets,
    type=np.zeros(offsets[-1], np.int8),
    role=put(units.word_role, np.asarray(units.role)[units.offsets[:-1][bare]]),
    word_start=(np.arange(len(units.word_form)) - begin).astype(np.int32),
    word_length=np.ones(len(units.word_form), np.int32),
  )
  return WordTable(table, put(units.word_start, 0), put(units.word_length, 0))


def key(units: UnitTable, words: WordTable, inputs: Mapping[str, np.ndarray], settings: Any) -> str:
  """Returns the SHA-256 (hex) of all that the encoder reads (`inputs` beside ids), and of `settings`."""
  digest = hashlib.sha256(json.dumps([VERSION, settings]).encode())
  arrays = (units.ids, units.type, units.offsets, words.units.offsets, words.first, words.length)
  for array in (*arrays, *(inputs[name] for name in sorted(inputs))):
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.hexdigest()


class FrozenEncoder:
  """Word vectors of an encoder that no step moves: a word's is the mean of its tokens'.

  Where ELMo's layers are to be mixed by learned weights (`encoder.mix` = `learned`), each word has all
  of them. `calls` counts how often the encoder has run. `digest` is the hash of its parameters, which
  are on the devices while a table is computed; `rows`, `row_length` are the shape of its batches.
  """

  def __init__(
    self, source: Source, *, digest: str, storage: str, cache: str, rows: int, row_length: int
  ):
    self.source, self.storage, self.cache = source, storage, cache
    self.of_words = families.find(source.provenance["family"]).of_words
    self.all_layers = getattr(source.module, "mix", None) == "learned"
    self.row_length = row_length
    # Of this process alone: on several hosts the lock of the cache would keep the others waiting.
    mesh = sharding.make_mesh(devices=jax.local_devices())
    self._shards = len(jax.local_devices())
    self._every, self._parts = sharding.replicated(mesh), NamedSharding(mesh, PartitionSpec("data"))
    self._rows = -(-rows // self._shards) * self._shards
    self._settings = {
      # Two builds, or a CPU and a GPU, do not compute the same vectors to the bit.
      "computed_by": [jax.lib.__version__, jax.default_backend()],
      "weights": digest,
      "encoder": type(source.module).__name__,
      "fields": families.stated_fields(source.module, _SILENT),
      "all_layers": self.all_layers,
      "storage": storage,
    }
    self._encode = jax.jit(self._hidden, out_shardings=self._every)
    self.calls = 0

  def __call__(self, units: UnitTable, inputs: Mapping[str, Column]) -> np.ndarray:
    """Returns the vectors [words, d] or [words, layers, d] of `word_table`, memory-mapped.

    `units` have word spans, unless `of_words`; `inputs` are what the encoder reads beside the ids.
    """
    words = word_table(units, of_words=self.of_words)
    values = {name: column.values for name, column in inputs.items()}
    name = key(units, words, values, self._settings)
    shape = (len(words.units.ids), *self.width())

    def compute(writer: cache.Writer) -> dict[str, Any]:
      log.info("frozen vectors: computing those of %d words", shape[0])
      writer.create(_NAME, shape, self.storage)
      for start, vectors in self._vectors(words, self._batcher(units, inputs)):
        writer.write(_NAME, self._stored(vectors), start)
      return {"about": {**self._settings, "pretrained": self.source.provenance["pretrained"]}}

    return cache.cached(cache.place(self.cache, "features", name), compute).arrays[_NAME]

  def width(self) -> tuple[int, ...]:
    """Returns the shape of a word's vectors, `(d,)` or `(layers, d)`."""
    specs = {i.name: i.spec() for i in declared(self.source.module)}
    empty = lambda tail=(), kind=np.int32: jnp.zeros((1, 1, 8, *tail), kind)
    tokens = Tokens(
      *(empty() for _ in range(5)), inputs={name: empty(*spec) for name, spec in specs.items()}
    )
    module = self.source.module
    hidden = lambda: module.init_with_output(
      jax.random.key(0), tokens, all_layers=self.all_layers, train=False
    )[0]
    *layers, _, _, _, width = jax.eval_shape(hidden).shape
    return (*layers, width)

  def _stored(self, vectors: Shaped[np.ndarray, "n ..."]) -> np.ndarray:
    """Returns vectors in the type of the files; InputError where one is not finite in it."""
    with np.errstate(over="ignore"):
      stored = np.ascontiguousarray(vectors, self.storage)
    if not np.isfinite(stored).all():
      raise InputError(
        f"a word's vector holds {np.abs(vectors).max():.4g}, which is not finite in {self.storage}: "
        "set model.storage and encoder.dtype to 'float32', or take other weights"
      )
    return stored

  def _batcher(self, units: UnitTable, inputs: Mapping[str, Column]) -> Batcher:
    n = len(units)
    alone = np.zeros(n, np.int32)
    every = ExampleTable(
      np.arange(n, dtype=np.int32)[:, None], np.full((n, 1), -1, np.int8), alone, alone - 1, alone
    )
    slots = self._rows // self._shards * max(self.row_length // 4, 1)
    return fit_batcher(
      units,
      every,
      sampler="ordered",
      examples_per_batch=slots * self._shards,
      rows=self._rows,
      row_lengths=(self.row_length,),
      packed=True,
      shards=self._shards,
      accumulate=1,
      buckets=1,
      unit_slots=slots,
      inputs=inputs,
    )

  def _hidden(self, params: Any, tokens: Tokens) -> Float[Array, "s r l ..."]:
    hidden = self.source.module.apply(
      {"params": params}, tokens, all_layers=self.all_layers, train=False
    )
    if self.all_layers:
      hidden = jnp.moveaxis(hidden, 0, 3)
    return hidden.astype(jnp.float32)

  def _vectors(
    self, words: WordTable, batcher: Batcher
  ) -> Iterator[tuple[int, Float32[np.ndarray, "w ..."]]]:
    """Yields (number of the first word, vectors) of runs of words, in any order."""
    params = traverse_util.unflatten_dict(dict(self.source.params), sep="/")
    params = jax.device_put(params, self._every)  # not kept: training wants the memory
    plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
    under_way = []  # one batch is computed while the one before it is read
    for i in range(len(plan) + 1):
      if i < len(plan):
        tokens = jax.tree.map(lambda x: x[0], batcher.batch(plan, i).tokens)
        self.calls += 1
        under_way.append(self._encode(params, jax.device_put(tokens, self._parts)))
      if i > 0:
        hidden = np.asarray(under_way.pop(0))
        for shard, rows in zip(plan.steps[i - 1][0], hidden, strict=True):
          if shard is not None:
            yield from _word_vectors(words, shard, rows)


def _word_vectors(
  words: WordTable, shard: Shard, hidden: Float32[np.ndarray, "r l ..."]
) -> Iterator[tuple[int, Float32[np.ndarray, "w ..."]]]:
  """Yields (number of the first word, vectors) of each run of units that follow one another."""
  flat = hidden.reshape(-1, *hidden.shape[2:])
  order = np.argsort(shard.units)
  units = shard.units[order]
  place = shard.row[order].astype(np.int64) * hidden.shape[1] + shard.start[order]
  offsets = words.units.offsets
  for run in np.split(np.arange(len(units)), np.flatnonzero(np.diff(units) != 1) + 1):
    begin, end = offsets[units[run[0]]], offsets[units[run[-1]] + 1]
    base = np.repeat(place[run], np.diff(offsets)[units[run]])
    yield int(begin), _means(flat, base + words.first[begin:end], words.length[begin:end])


def _means(
  flat: Float32[np.ndarray, "t ..."], first: np.ndarray, length: np.ndarray
) -> Float32[np.ndarray, "w ..."]:
  """Returns the mean of each span of rows of `flat`; zero where the span is empty."""
  if (length == 1).all():
    return flat[first]
  spans = np.maximum(length, 1)
  begin = np.cumsum(spans) - spans
  rows = np.repeat(first - begin, spans) + np.arange(spans.sum())
  shape = (-1, *(1,) * (flat.ndim - 1))
  means = np.add.reduceat(flat[rows], begin, axis=0) / spans.reshape(shape).astype(np.float32)
  return np.where((length > 0).reshape(shape), means, np.float32(0))
