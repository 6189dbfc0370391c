"""Layers that the transformer encoders share: dropout, norm, activation, attention, feed-forward.

Parameters are float32 and `dtype` is the type of the arithmetic. Whatever it is, layer-norm
statistics, attention scores and their softmax are float32.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt32

from as2jax.data.batches.batch import Tokens
from as2jax.layers.dense import Dense, spread
from as2jax.runtime.errors import InputError

INITIALIZER = nn.initializers.normal(0.02)  # BERT's initializer_range
MASKED = -1e30  # finite, so that no row of scores can become NaN


def hash_bits(key: Array, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
  """Return 32 random bits an element: a hash of its number, seeded with `key`.

  The result depends only on the element's number in the whole array, so it fuses into its consumer
  and is the same however the array is sharded; jax's own generator costs a quarter of a step on CPU.
  The quality is sufficient for dropout masks only; an array of over 2³² elements repeats its bits.
  """
  number = jnp.zeros(shape, jnp.uint32)
  stride = 1
  for axis in reversed(range(len(shape))):
    number += lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride % 2**32)
    stride *= shape[axis]
  return hash_numbers(number, hash_words(key))


def hash_words(key: Array) -> UInt32[Array, "2"]:
  """Return the two words that seed `hash_numbers` with `key`."""
  return jax.random.bits(key, (2,), jnp.uint32)


def hash_numbers(number: UInt32[Array, "..."], words: Any) -> UInt32[Array, "..."]:
  """Return a hash of each number, seeded with two words.

  Three rounds of multiply and xor-shift (the constants of C. Wellons' `triple32`).
  """
  bits = number ^ words[0]
  bits = (bits ^ (bits >> 17)) * jnp.uint32(0xED5AD4BB)
  bits = bits ^ words[1]
  bits = (bits ^ (bits >> 11)) * jnp.uint32(0xAC4C1B51)
  bits = (bits ^ (bits >> 15)) * jnp.uint32(0x31848BAB)
  return bits ^ (bits >> 14)


def dropout(key: Array, x: Float[Array, "..."], rate: float) -> Float[Array, "..."]:
  """Return `x` with each element zeroed with probability `rate`, the rest divided by 1 - rate.
  A function of `key` and of the element's index: the same on any number of devices.
  """
  if not 0 <= rate < 1:
    raise ValueError(f"a dropout rate lies in [0, 1), got {rate}")
  return keep(x, hash_bits(key, x.shape), rate)


def keep(x: Float[Array, "..."], bits: UInt32[Array, "..."], rate: float) -> Float[Array, "..."]:
  """Return `x` divided by 1 - rate, and zero where its random bits are in the upper part, `rate`."""
  threshold = round((1 - rate) * 2**32)
  if threshold >= 2**32:
    return x
  scaled = x * jnp.asarray(2**32 / threshold, x.dtype)
  return jnp.where(bits < jnp.uint32(threshold), scaled, jnp.zeros((), x.dtype))


def drop_numbered(x: Array, number: UInt32[Array, "..."], words: Any, *, rate: float) -> Array:
  """Return `dropout` of those elements of an array whose numbers are given."""
  return keep(x, hash_numbers(number, words), rate)


class Dropout(nn.Module):
  """Applies `dropout` with the key of the module's `dropout` stream; nothing when `train` is false."""

  rate: float

  @nn.compact
  def __call__(self, x: Float[Array, "..."], *, train: bool) -> Float[Array, "..."]:
    """Drop elements of `x` with `train`."""
    if not train or self.rate == 0:
      return x
    return dropout(self.make_rng("dropout"), x, self.rate)


def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
  """Return x Φ(x) with the exact error function (Hendrycks and Gimpel 2016), as BERT has it."""
  return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS = {
  "gelu": gelu,
  "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
  "relu": jax.nn.relu,
}


class LayerNorm(nn.Module):
  """Normalises the last axis with float32 statistics; the result is in `dtype`."""

  epsilon: float
  dtype: Any = jnp.float32
  use_bias: bool = True

  @nn.compact
  def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Normalise, scale and shift the last axis."""
    scale = self.param("scale", nn.initializers.ones, x.shape[-1:], jnp.float32)
    shift = 0.0
    x = x.astype(jnp.float32)
    if self.use_bias:
      bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], jnp.float32)
      shift = spread(bias, x.shape)
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    scaled = centred * lax.rsqrt(variance + self.epsilon) * spread(scale, x.shape)
    return (scaled + shift).astype(self.dtype)


def segment_mask(segment: Int[Array, "b l"]) -> Bool[Array, "b 1 l l"]:
  """Return which tokens attend to which: within their own unit; padding (0) attends to padding."""
  return (segment[:, :, None] == segment[:, None, :])[:, None]


def attend(
  query: Float[Array, "b l h k"],
  key: Float[Array, "b l h k"],
  value: Float[Array, "b l h k"],
  mask: Bool[Array, "b 1 l l"],
  *,
  bias: Float[Array, "b h l l"] | None = None,
  drop: Callable[[Array], Array] = lambda weights: weights,
  precision: Any = None,
) -> Float[Array, "b l h k"]:
  """Return softmax(QKᵀ/√k)V within `mask` (Vaswani et al. 2017, eq. 1); `drop` acts on it.

  `bias` is added to the scores behind their division by √k. Scores and softmax are float32; the
  products take their operands in the type they come in.
  """
  # Heads outside of tokens: what is strided XLA:CPU multiplies at a third of the speed.
  query, key = jnp.swapaxes(query, 1, 2), jnp.swapaxes(key, 1, 2)
  scores = jnp.einsum(
    "bhqk,bhtk->bhqt", query, key, precision=precision, preferred_element_type=jnp.float32
  )
  scores = scores * query.shape[-1] ** -0.5
  scores = jnp.where(mask, scores if bias is None else scores + bias, MASKED)
  return mix(scores, value, drop=drop, precision=precision)


def mix(
  scores: Float[Array, "b h q t"],
  value: Float[Array, "b t h k"],
  *,
  drop: Callable[[Array], Array],
  precision: Any,
) -> Float[Array, "b q h k"]:
  """Return the mean of `value` by the softmax of `scores` over t, on which `drop` acts.

  The product with `value` is divided by the weights' sum, which saves a pass over all scores.
  """
  weights = jnp.exp(scores - lax.stop_gradient(scores.max(axis=-1, keepdims=True)))
  mixed = jnp.einsum(
    "bhqt,bhtk->bhqk",
    drop(weights).astype(value.dtype),
    jnp.swapaxes(value, 1, 2),
    precision=precision,
    preferred_element_type=jnp.float32,
  )
  mixed = mixed / weights.sum(axis=-1, keepdims=True)
  return jnp.swapaxes(mixed, 1, 2).astype(value.dtype)


ATTENTION = ("auto", "plain", "xla", "cudnn", "kernel")


def attention_context(
  query: Float[Array, "b l h k"],
  key: Float[Array, "b l h k"],
  value: Float[Array, "b l h k"],
  mask: Bool[Array, "b 1 l l"] | Int[Array, "b l"],
  *,
  wanted: str,
  dropout: Dropout,
  precision: Any,
  train: bool,
  bias: Float[Array, "b h l l"] | None = None,
) -> Float[Array, "b l h k"]:
  """Return each head's mean of values by attention; `wanted` is one of `ATTENTION`.

  `plain` is `attend`. `xla` and `cudnn` are `jax.nn.dot_product_attention`, which has no dropout;
  cuDNN's never holds the scores in memory, and needs half precision and a GPU. `auto` is `cudnn`
  where that is possible, else `plain`. `kernel` is `packed_attention`, whose `mask` is the segments;
  no GPU has measured it yet, so `auto` leaves it out. Raises InputError for what is not possible.
  `dropout` acts on the weights with `train`; call it from within the module that owns it.
  """
  dropping = train and dropout.rate > 0
  if wanted == "kernel":
    check_kernel(query, mask, bias)
    from as2jax.layers.packed_attention import packed_attention  # Pallas takes a while to import

    words, drop = jnp.zeros(2, jnp.uint32), None
    if dropping:
      words = hash_words(dropout.make_rng("dropout"))
      drop = partial(drop_numbered, rate=dropout.rate)
    return packed_attention(query, key, value, mask, words, drop, precision)
  half = jnp.dtype(query.dtype) in (jnp.bfloat16, jnp.float16)
  on_gpu = half and jax.default_backend() == "gpu"
  if wanted == "auto":
    wanted = "cudnn" if on_gpu and not dropping else "plain"
  elif wanted != "plain" and dropping or wanted == "cudnn" and not on_gpu:
    raise InputError(
      f"encoder.attention = {wanted!r} has no dropout: set encoder.attention_dropout to 0; 'cudnn' "
      "needs a GPU and encoder.dtype 'bfloat16', too; or leave encoder.attention at 'auto'"
    )
  if wanted == "plain":
    drop = partial(dropout, train=train)
    return attend(query, key, value, mask, bias=bias, drop=drop, precision=precision)
  with jax.default_matmul_precision(precision or jax.config.jax_default_matmul_precision):
    return jax.nn.dot_product_attention(query, key, value, bias, mask, implementation=wanted)


def check_kernel(query: Float[Array, "b l h k"], mask: Array, bias: Array | None) -> None:
  """Raise InputError where `packed_attention` cannot take the place of `attend`."""
  _, l, _, width = query.shape
  needs = {
    "one GPU in sight (CUDA_VISIBLE_DEVICES=0)": jax.default_backend() == "gpu"
    and jax.device_count() == 1,
    "BERT's attention (no windows or biases)": mask.ndim == 2 and bias is None,
    f"batch.row_lengths that are multiples of 16, not {l}": l % 16 == 0,
    f"heads as wide as a power of two from 16 on, not {width}": width >= 16
    and width & (width - 1) == 0,
  }
  absent = [what for what, there in needs.items() if not there]
  if absent:
    raise InputError(
      f"encoder.attention = 'kernel' needs {'; and '.join(absent)}: leave it at 'auto' elsewhere"
    )


class SelfAttention(nn.Module):
  """Is multi-head self-attention (Vaswani et al. 2017, section 3.2) without residual or norm."""

  num_heads: int
  dropout: float
  dtype: Any
  precision: Any
  attention: str

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "b l d"],
    mask: Bool[Array, "b 1 l l"] | Int[Array, "b l"],
    bias: Float[Array, "b h l l"] | None = None,
    *,
    train: bool,
  ) -> Float[Array, "b l d"]:
    """Attend where `mask` is true; dropout of the weights acts with `train`."""
    b, l, d = x.shape
    dense = partial(Dense, d, dtype=self.dtype, precision=self.precision, kernel_init=INITIALIZER)
    heads = b, l, self.num_heads, d // self.num_heads
    query = dense(name="query")(x).reshape(heads)
    key = dense(name="key")(x).reshape(heads)
    value = dense(name="value")(x).reshape(heads)
    how = {"wanted": self.attention, "precision": self.precision, "train": train, "bias": bias}
    context = attention_context(query, key, value, mask, dropout=Dropout(self.dropout), **how)
    return dense(name="output")(context.reshape(b, l, d))


class FeedForward(nn.Module):
  """Applies two dense layers with an activation (and dropout) between to each token."""

  width: int
  activation: str
  dtype: Any = jnp.float32
  precision: Any = None
  dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Float[Array, "b l d"], *, train: bool = False) -> Float[Array, "b l d"]:
    """Apply both layers to the last axis; dropout acts with `train`."""
    how = {"dtype": self.dtype, "precision": self.precision, "kernel_init": INITIALIZER}
    hidden = ACTIVATIONS[self.activation](Dense(self.width, name="intermediate", **how)(x))
    hidden = Dropout(self.dropout)(hidden, train=train)
    return Dense(x.shape[-1], name="output", **how)(hidden)


class TransformerLayer(nn.Module):
  """Applies attention and feed-forward, each with dropout, residual and post-norm.

  `make_attention` makes the module of attention, such as `SelfAttention`, by its name;
  `inner_dropout` is that within the feed-forward layer.
  """

  make_attention: Callable[..., nn.Module]
  intermediate_size: int
  activation: str
  layer_norm_eps: float
  hidden_dropout: float
  dtype: Any
  precision: Any
  inner_dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Float[Array, "b l d"], *given: Any, train: bool) -> Float[Array, "b l d"]:
    """Update `x`; the attention is given `x` and what follows it."""
    attended = self.make_attention(name="attention")(x, *given, train=train)
    attended = Dropout(self.hidden_dropout)(attended, train=train)
    x = LayerNorm(self.layer_norm_eps, self.dtype, name="attention_norm")(x + attended)
    feed_forward = FeedForward(
      self.intermediate_size,
      self.activation,
      self.dtype,
      self.precision,
      self.inner_dropout,
      name="feed_forward",
    )
    fed = feed_forward(x, train=train)
    fed = Dropout(self.hidden_dropout)(fed, train=train)
    return LayerNorm(self.layer_norm_eps, self.dtype, name="output_norm")(x + fed)


class Embeddings(nn.Module):
  """Sums word, position and type embeddings (and `offset`), then norm and dropout.
  `position_offset` is added to positions (RoBERTa's begin at 2); with `max_positions` or
  `type_vocab_size` 0 there are none of them, with `norm_eps` None there is no norm. An id outside
  its table gives NaN.
  """

  vocab_size: int
  hidden_size: int
  dtype: Any = jnp.float32
  dropout: float = 0.0
  norm_eps: float | None = None
  norm_bias: bool = True
  max_positions: int = 0
  type_vocab_size: int = 0
  position_offset: int = 0

  @nn.compact
  def __call__(
    self, tokens: Tokens, offset: Float[Array, "... l d"] | None, *, train: bool
  ) -> Float[Array, "... l d"]:
    """Return the input vectors of the tokens; dropout acts with `train`."""
    indices = {
      "word": (self.vocab_size, tokens.ids),
      "position": (self.max_positions, tokens.position + self.position_offset),
      "type": (self.type_vocab_size, tokens.type),
    }
    x = None
    for name, (size, index) in indices.items():
      if size:
        table = self.param(name, INITIALIZER, (size, self.hidden_size), jnp.float32)
        vectors = jnp.take(table, index, axis=0)
        x = vectors if x is None else x + vectors
    if offset is not None:
      x += offset.astype(jnp.float32)
    if self.norm_eps is not None:
      x = LayerNorm(self.norm_eps, self.dtype, self.norm_bias, name="norm")(x)
    return Dropout(self.dropout)(x.astype(self.dtype), train=train)
