"""Attention of XLNet, with relative positions and relative token types.

The position and type terms follow Transformer-XL (Dai et al. 2019, section 3.3) and XLNet (Yang et
al. 2019, section 2.5), content stream. Parameters are float32 and `dtype` is the type of the
arithmetic; scores, softmax and norm statistics are float32 always.
"""

import math
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from as2jax.layers.transformer import INITIALIZER, MASKED, Dropout, mix

WAVELENGTH = 10_000.0  # the ratio of the slowest sinusoid, just out of reach, to the fastest


def sinusoids(length: int, width: int, clamp_len: int) -> Float[Array, "{2*length} {width}"]:
  """Return [sin; cos] of the distances length, length - 1, … 1 - length, one row each.
  A clamp_len above 0 cuts distances to ±clamp_len. Frequencies are rounded to float32 where the
  reference rounds them: an angle of hundreds of radians shows the last bit of its frequency.
  """
  powers = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
  frequencies = np.float32(1) / np.power(np.float32(WAVELENGTH), powers)
  distance = length - jnp.arange(2 * length, dtype=jnp.float32)
  if clamp_len > 0:
    distance = jnp.clip(distance, -clamp_len, clamp_len)
  angle = distance[:, None] * jnp.asarray(frequencies)[None]
  return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def relative_shift(scores: Float[Array, "b h l p"]) -> Float[Array, "b h l l"]:
  """Return scores by distance as scores by key: entry (i, j) is entry (i, l - i + j) of `scores`.
  `scores` has the columns of `sinusoids`, p = 2l. In row-major order, the wanted entries of each
  row begin one place earlier than those of the row before, so that dropping the first l numbers
  and reshaping to rows of p - 1 aligns them.
  """
  b, h, l, p = scores.shape
  flat = scores.reshape(b, h, l * p)[..., l:]
  return flat.reshape(b, h, l, p - 1)[..., :l]


class RelativeAttention(nn.Module):
  """Is multi-head attention of XLNet's content stream, without residual or norm.

  The score of query i and key j (Yang et al. 2019, appendix A.2) is
  ((q_i + r_w)·k_j + (q_i + r_r)·W_r R_{i-j} + (q_i + r_s)·s_ij) / √k
  with s_ij the first vector of `seg_embed` where both tokens are of one type, else the second.
  """

  num_heads: int
  dropout: float
  dtype: Any
  precision: Any

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "b l d"],
    mask: Bool[Array, "b 1 l l"],
    same_type: Bool[Array, "b 1 l l"],
    positions: Float[Array, "p d"],
    *,
    train: bool,
  ) -> Float[Array, "b l d"]:
    """Attend where `mask` is true; `positions` are the sinusoids of distances."""
    b, l, d = x.shape
    width = d // self.num_heads
    dense = lambda name: nn.Dense(
      d,
      use_bias=False,
      dtype=self.dtype,
      precision=self.precision,
      kernel_init=INITIALIZER,
      name=name,
    )
    heads = lambda name, y: dense(name)(y).reshape(*y.shape[:-1], self.num_heads, width)
    vectors = lambda name, *shape: self.param(
      name, INITIALIZER, (*shape, self.num_heads, width), jnp.float32
    ).astype(self.dtype)
    product = partial(jnp.einsum, precision=self.precision, preferred_element_type=jnp.float32)
    query, key, value = heads("query", x), heads("key", x), heads("value", x)
    asked = lambda name: query + vectors(name)[None, None]

    scores = product("bqhk,bthk->bhqt", asked("r_w_bias"), key)
    far = product("bqhk,phk->bhqp", asked("r_r_bias"), heads("relative", positions))
    scores += relative_shift(far)
    kind = product("bqhk,shk->bhqs", asked("r_s_bias"), vectors("seg_embed", 2))
    scores += jnp.where(same_type, kind[..., :1], kind[..., 1:])

    scores = jnp.where(mask, scores * (1 / math.sqrt(width)), MASKED)
    drop = partial(Dropout(self.dropout), train=train)
    mixed = mix(scores, value, drop=drop, precision=self.precision)
    return dense("output")(mixed.reshape(b, l, d))
