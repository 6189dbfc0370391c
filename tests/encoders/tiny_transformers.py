"""Small transformers, and sequences laid into rows by hand, for the encoder tests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import tiny
import tiny_cassie

from as2jax.data.batches.batch import Tokens, Units
from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.deberta import DebertaEncoder
from as2jax.encoders.electra import ElectraEncoder
from as2jax.encoders.modernbert import ModernBertEncoder
from as2jax.encoders.mpnet import MPNetEncoder

SIZES = dict(
  vocab_size=61,
  hidden_size=16,
  num_layers=2,
  num_heads=4,
  intermediate_size=24,
  hidden_dropout=0.1,
  attention_dropout=0.1,
)
ENCODERS = {
  "bert": BertEncoder(**SIZES, max_positions=20, type_vocab_size=3),
  "mpnet": MPNetEncoder(**SIZES, max_positions=20, relative_buckets=8),
  "electra": ElectraEncoder(**SIZES, max_positions=20, type_vocab_size=3, embedding_size=8),
  "deberta-v2": DebertaEncoder(**SIZES, type_vocab_size=3, buckets=6, farthest=9),
  # Its window is shorter than the sequences.
  "modernbert": ModernBertEncoder(
    **{**SIZES, "num_layers": 3}, window=4, global_every=2, embedding_dropout=0.1
  ),
  "xlnet": tiny_cassie.xlnet(**SIZES),
}
SEQUENCES = [np.random.default_rng(n).integers(1, 61, n).astype(np.int32) for n in (4, 9, 6, 2, 7)]
# Two sentences and a last token of another type, as XLNet has them.
TYPES = [np.array([n * 2 // len(x) for n in range(len(x) - 1)] + [2]) for x in SEQUENCES]
ALONE = [(n,) for n in range(5)]
PACKED = [(1, 0), (2, 3, 4)]


def initialised(encoder, tokens):
  """Random parameters, wide enough for attention to be far from uniform."""
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  return jax.tree.map(jnp.asarray, tiny.drawn(shapes, 0.2))


@functools.partial(jax.jit, static_argnums=0, static_argnames=("all_layers", "train"))
def apply(encoder, params, tokens, key=None, train=False, **arguments):
  rngs = {} if key is None else {"dropout": key}
  return encoder.apply({"params": params}, tokens, train=train, rngs=rngs, **arguments)


@functools.partial(jax.jit, static_argnums=0, static_argnames="train")
def loss_and_gradient(encoder, params, tokens, weights, train=True):
  loss = lambda p: (apply(encoder, p, tokens, jax.random.key(9), train=train) * weights).sum()
  return jax.value_and_grad(loss)(params)


def lay(sequences, rows, length, *, shards=1, unused=0, types=None):
  """`rows` lists, for each row of each shard in turn, the numbers of the sequences packed into it.

  Units come in the order of `rows`, `unused` empty slots after them.
  """
  per_shard = len(rows) // shards
  ids, segment, position, type = np.zeros((4, shards, per_shard, length), np.int32)
  units = [[] for _ in range(shards)]
  for place, members in enumerate(rows):
    shard, row = divmod(place, per_shard)
    start = 0
    for number, member in enumerate(members):
      size = len(sequences[member])
      span = (shard, row, slice(start, start + size))
      ids[span], segment[span], position[span] = sequences[member], number + 1, np.arange(size)
      if types is not None:
        type[span] = types[member]
      units[shard].append((row, start, size, member))
      start += size
  slots = max(map(len, units)) + unused
  table = np.array([u + [(0, 0, 0, -1)] * (slots - len(u)) for u in units], np.int32)
  tokens = Tokens(*map(jnp.asarray, (ids, segment, position, type, np.zeros_like(ids))))
  return tokens, Units(*(jnp.asarray(table[..., i]) for i in range(4)))


def vectors(hidden, units):
  """{number of the sequence: its token vectors}."""
  by_number = {}
  for shard in range(units.id.shape[0]):
    for row, start, size, member in np.stack(
      [units.row[shard], units.start[shard], units.length[shard], units.id[shard]], axis=1
    ):
      if size:
        by_number[int(member)] = np.asarray(hidden[shard, row, start : start + size])
  return by_number
