"""A small XLNet with weights and inputs drawn by numpy, for the encoder tests."""

import jax.numpy as jnp
import numpy as np

from as2jax.data.batches.batch import Tokens
from as2jax.encoders.xlnet import XLNetEncoder

RUN = dict(dtype="float32", precision=None, unroll=0, remat=False)
TINY = RUN | dict(
  vocab_size=61,
  hidden_size=16,
  num_layers=2,
  num_heads=4,
  intermediate_size=24,
  attention_type="bi",
  clamp_len=-1,
  layer_norm_eps=1e-12,
  hidden_dropout=0.1,
  attention_dropout=0.1,
  activation="gelu",
)
SEQUENCES = [np.random.default_rng(n).integers(1, 61, n).astype(np.int32) for n in (4, 9, 6, 2, 7)]
# Two sentences and XLNet's last token, as its tokeniser types them.
TYPES = [np.array([n * 2 // len(x) for n in range(len(x) - 1)] + [2]) for x in SEQUENCES]
ALONE = [(n,) for n in range(5)]
PACKED = [(1, 0), (2, 3, 4)]


def tiny(**fields):
  return XLNetEncoder(**{**TINY, **fields})


def hf_weights():
  """Every tensor of `XLNetModel` of `TINY` but `mask_emb`, wide enough for uneven attention.

  RandomState, whose stream numpy keeps for ever: the golden file holds outputs alone.
  """
  d, heads, k, inner = 16, 4, 4, 24
  shapes = {"word_embedding.weight": (61, d)}
  for n in range(2):
    attention, fed = f"layer.{n}.rel_attn.", f"layer.{n}.ff."
    shapes |= {attention + name: (d, heads, k) for name in "qkvor"}
    shapes |= {attention + f"r_{name}_bias": (heads, k) for name in "rsw"}
    shapes[attention + "seg_embed"] = (2, heads, k)
    shapes |= {fed + "layer_1.weight": (inner, d), fed + "layer_1.bias": (inner,)}
    shapes |= {fed + "layer_2.weight": (d, inner), fed + "layer_2.bias": (d,)}
    for part in (attention, fed):
      shapes |= {part + "layer_norm.weight": (d,), part + "layer_norm.bias": (d,)}
  random = np.random.RandomState(7)
  centre = lambda name: 1.0 if name.endswith("layer_norm.weight") else 0.0
  return {
    name: random.normal(centre(name), 0.3, shapes[name]).astype(np.float32)
    for name in sorted(shapes)
  }


def full_rows(rows, types=None):
  """Tokens of rows that one unit fills: [1, r, l]."""
  rows = np.asarray(rows, np.int32)
  types = 0 if types is None else types
  fill = lambda x: jnp.asarray(np.broadcast_to(np.asarray(x, np.int32), rows.shape))[None]
  return Tokens(fill(rows), fill(1), fill(np.arange(rows.shape[1])), fill(types), fill(0))
