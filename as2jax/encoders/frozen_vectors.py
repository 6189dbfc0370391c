"""A frozen encoder: the vectors of a table's words, computed once and kept (CETE section 3.1)."""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32

from as2jax.data.batches.batch import Tokens
from as2jax.data.batches.batcher import Batcher, Column, fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.batches.samplers import Shard
from as2jax.data.inputs.protocol import Input, Resources, Tables, declared
from as2jax.data.record import Question
from as2jax.data.text.token_table import UnitTable
from as2jax.encoders import family as families
from as2jax.encoders import frozen_vector_cache
from as2jax.encoders.family import Source
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder

log = logging.getLogger(__name__)
# Fields of an encoder that do not change what it computes without dropout.
_SILENT = ("hidden_dropout", "attention_dropout", "unroll", "remat", "parent", "name")


@dataclasses.dataclass(frozen=True)
class FrozenVectors(Input):
  """The vectors of an encoder that no step moves, in place of token ids: tokens become words.

  Attributes:
    storage: type of the files, one of `frozen_vector_cache.STORAGE`.
    encoder: what computes the vectors; None before `bind`.

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
    """The table of words: each word is a token."""
    return frozen_vector_cache.word_table(units, of_words=self.encoder.of_words).units

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float[np.ndarray, "w ..."]:
    """The vectors of all words, computed or read from the cache."""
    inputs = declared(self.encoder.source.module)
    columns = {i.name: Column(i.level, i.columns(None, questions, tables)) for i in inputs}
    return self.encoder(tables.units, columns)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """The encoder's width, by abstract evaluation, in the type of the files."""
    return self.encoder.width(), self.storage

  def statistics(self, column: Column | None, units: UnitTable) -> dict[str, Any]:
    """The type of the files, and how often the encoder has run."""
    return {"storage": self.storage, "encoder_calls": self.encoder.calls}


class FrozenEncoder:
  """Word vectors of an encoder that no step moves: a word's is the mean of its tokens'.

  ELMo's words and rows of word vectors are words already. Where ELMo's layers are to be mixed by
  learned weights (`encoder.mix` = `learned`), each word has all of them.

  Args:
    source: the encoder; its parameters are on the devices while a table is computed.
    digest: the hash of its parameters.
    storage: type of the files, one of `frozen_vector_cache.STORAGE`.
    cache: the folder in which they are kept.
    rows, row_length: shape of the batches that the encoder sees.

  Attributes:
    calls: how often the encoder has run.

  Raises:
    InputError: an unknown type of file.

  """

  def __init__(
    self, source: Source, *, digest: str, storage: str, cache: str, rows: int, row_length: int
  ):
    if storage not in frozen_vector_cache.STORAGE:
      raise InputError(
        f"model.storage = {storage!r}: use one of {', '.join(frozen_vector_cache.STORAGE)}"
      )
    self.source, self.storage, self.cache = source, storage, cache
    self.all_layers = getattr(source.module, "mix", None) == "learned"
    self.row_length = row_length
    # Of this process alone: on several hosts the lock of the cache would keep the others waiting.
    mesh = sharding.make_mesh(devices=jax.local_devices())
    self._shards = len(jax.local_devices())
    self._every, self._parts = sharding.replicated(mesh), NamedSharding(mesh, PartitionSpec("data"))
    self._rows = -(-rows // self._shards) * self._shards
    fields = {
      f.name: getattr(source.module, f.name)
      for f in dataclasses.fields(source.module)
      if f.name not in _SILENT
    }
    self._settings = {
      # Two builds, or a CPU and a GPU, do not compute the same vectors to the bit.
      "computed_by": [jax.lib.__version__, jax.default_backend()],
      "weights": digest,
      "encoder": type(source.module).__name__,
      "fields": {name: repr(value) for name, value in sorted(fields.items())},
      "all_layers": self.all_layers,
      "storage": storage,
    }
    self._encode = jax.jit(self._hidden, out_shardings=self._every)
    self.calls = 0

  @property
  def of_words(self) -> bool:
    """Whether the encoder's tokens are words, so that a table needs no word spans."""
    return families.find(self.source.provenance["family"]).of_words

  def __call__(self, units: UnitTable, inputs: Mapping[str, Column]) -> np.ndarray:
    """The vectors of the words of `units`.

    Args:
      units: with word spans, unless `of_words`.
      inputs: what the encoder reads beside the ids, by name.

    Returns:
      `[words, d]` or `[words, layers, d]`, memory-mapped, of the words of
      `frozen_vector_cache.word_table`.

    Raises:
      InputError: see `frozen_vector_cache.cached`.

    """
    words = frozen_vector_cache.word_table(units, of_words=self.of_words)
    values = {name: column.values for name, column in inputs.items()}
    name = frozen_vector_cache.key(units, words, values, self._settings)
    batcher = self._batcher(units, inputs)
    shape = (len(words.units.ids), *self.width())
    about = {**self._settings, "pretrained": self.source.provenance["pretrained"], "shape": shape}
    before = self.calls
    vectors = frozen_vector_cache.cached(
      self.cache,
      name,
      shape,
      self.storage,
      lambda writer: self._fill(writer, words, batcher),
      about,
    )
    log.info(
      "frozen vectors: %s words × %s in %s, %s",
      f"{shape[0]:,}",
      shape[1:],
      self.storage,
      f"{self.calls - before} calls of the encoder" if self.calls > before else "cached",
    )
    return vectors

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

  def width(self) -> tuple[int, ...]:
    """`(d,)`, or `(layers, d)`: the shape of a word's vectors."""
    specs = {i.name: i.spec() for i in declared(self.source.module)}
    empty = lambda tail=(), kind=np.int32: jnp.zeros((1, 1, 8, *tail), kind)
    tokens = Tokens(
      *(empty() for _ in range(5)), inputs={name: empty(*spec) for name, spec in specs.items()}
    )
    module = self.source.module
    hidden = lambda: module.init_with_output(
      jax.random.key(0), tokens, all_layers=self.all_layers, train=False
    )[0]
    shape = jax.eval_shape(hidden).shape
    return (shape[0], *shape[4:]) if self.all_layers else shape[3:]

  def _tree(self) -> dict:
    return traverse_util.unflatten_dict(dict(self.source.params), sep="/")

  def _hidden(self, params: Any, tokens: Tokens) -> Float[Array, "s r l ..."]:
    hidden = self.source.module.apply(
      {"params": params}, tokens, all_layers=self.all_layers, train=False
    )
    hidden = jnp.moveaxis(hidden, 0, 3) if self.all_layers else hidden
    return hidden.astype(jnp.float32)

  def _fill(
    self,
    writer: frozen_vector_cache.FeatureWriter,
    words: frozen_vector_cache.WordTable,
    batcher: Batcher,
  ) -> None:
    params = jax.device_put(self._tree(), self._every)  # not kept: training wants the memory
    plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
    for i, hidden in enumerate(self._run(params, plan, batcher)):
      for shard, rows in zip(plan.steps[i][0], hidden, strict=True):
        if shard is not None:
          for start, vectors in _word_vectors(words, shard, rows):
            writer.put(start, vectors)

  def _run(
    self, params: Any, plan: Any, batcher: Batcher
  ) -> Iterator[Float32[np.ndarray, "s r l ..."]]:
    """The vectors of each batch; the next one is under way while one is read."""
    under_way = None
    for i in range(len(plan)):
      tokens = jax.tree.map(lambda x: x[0], batcher.batch(plan, i).tokens)
      placed = jax.device_put(tokens, self._parts)
      self.calls += 1
      started, under_way = under_way, self._encode(params, placed)
      if started is not None:
        yield np.asarray(started)
    if under_way is not None:
      yield np.asarray(under_way)


def _word_vectors(
  words: frozen_vector_cache.WordTable, shard: Shard, hidden: Float32[np.ndarray, "r l ..."]
) -> Iterable[tuple[int, Float32[np.ndarray, "w ..."]]]:
  """(number of the first word, vectors) of each run of units that follow one another."""
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
  """The mean of each span of rows of `flat`; zero where the span is empty."""
  if (length == 1).all():
    return flat[first]
  spans = np.maximum(length, 1)
  begin = np.cumsum(spans) - spans
  rows = np.repeat(first - begin, spans) + np.arange(spans.sum())
  shape = (-1, *(1,) * (flat.ndim - 1))
  means = np.add.reduceat(flat[rows], begin, axis=0) / spans.reshape(shape).astype(np.float32)
  return np.where((length > 0).reshape(shape), means, np.float32(0))
