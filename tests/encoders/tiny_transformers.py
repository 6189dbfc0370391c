"""Small transformers and sequences for the encoder tests."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.deberta import DebertaEncoder
from as2jax.encoders.electra import ElectraEncoder
from as2jax.encoders.modernbert import ModernBertEncoder
from as2jax.encoders.mpnet import MPNetEncoder
from as2jax.encoders.xlnet import XLNetEncoder

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
  "xlnet": XLNetEncoder(
    **SIZES,
    attention_type="bi",
    clamp_len=-1,
    layer_norm_eps=1e-12,
    activation="gelu",
    dtype="float32",
    precision=None,
    unroll=0,
    remat=False,
  ),
}
SEQUENCES = [np.random.default_rng(n).integers(1, 61, n).astype(np.int32) for n in (4, 9, 6, 2, 7)]
# Two sentences and a last token of another type, as XLNet has them.
TYPES = [np.array([n * 2 // len(x) for n in range(len(x) - 1)] + [2]) for x in SEQUENCES]
ALONE = [(n,) for n in range(5)]
PACKED = [(1, 0), (2, 3, 4)]


def initialised(encoder, tokens):
  """Random parameters, wide enough for attention to be far from uniform."""
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  rng = np.random.default_rng(0)

  def draw(path, x):
    centre, spread = (1, 0.1) if path[-1].key == "scale" else (0, 0.2)
    return jnp.asarray(rng.normal(centre, spread, x.shape), jnp.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


@functools.partial(jax.jit, static_argnums=0, static_argnames=("all_layers", "train"))
def apply(encoder, params, tokens, key=None, train=False, **arguments):
  rngs = {} if key is None else {"dropout": key}
  return encoder.apply({"params": params}, tokens, train=train, rngs=rngs, **arguments)


@functools.partial(jax.jit, static_argnums=0, static_argnames="train")
def loss_and_gradient(encoder, params, tokens, weights, train=True):
  loss = lambda p: (apply(encoder, p, tokens, jax.random.key(9), train=train) * weights).sum()
  return jax.value_and_grad(loss)(params)
