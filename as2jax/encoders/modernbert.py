"""ModernBERT (Warner et al. 2024) in Flax Linen, over packed rows."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from as2jax.encoders.bert import SIZES, PackedEncoder, published
from as2jax.encoders.family import Key, Transformer, register
from as2jax.layers import transformer, vectors
from as2jax.layers.transformer import Dropout, LayerNorm
from as2jax.runtime.registry import AtLeast, OneOf, Rate


class ModernBertEncoder(PackedEncoder):
  """ModernBERT without its head.

  Pre-norm layers without biases, rotary positions that restart with each unit, gated feed-forward
  layers (GeGLU), and attention to the whole unit in every `global_every`-th layer, else to the tokens
  at most `window` // 2 away (section 2.1 of the paper). A final norm; of all layers only the last is
  normed, as in transformers' `hidden_states`.

    embeddings/word [rows, d], embeddings/norm/scale [d], final_norm/scale [d]
    first_layer, layers: attention/{qkv, output}/kernel, feed_forward/{gated, output}/kernel,
    feed_forward_norm/scale, and in `layers` attention_norm/scale
  where everything under `layers` has a first axis [num_layers − 1]: the first layer, whose attention
  reads the normed embeddings as they are, has one norm less.

  Attributes:
    window: tokens that local attention spans, half of them on either side.
    global_every: every so manieth layer, from the first, attends globally.
    global_theta, local_theta: bases of the rotary positions in both kinds of layers.
    max_positions: the longest unit in tokens that the encoder was trained for.
    embedding_dropout, hidden_dropout, attention_dropout: of the embeddings; within the feed-forward
      layers; of the attention and on its output.
    activation: of the gated half.
    attention: as in `BertEncoder`.

  """

  max_positions: int = 8192
  window: Annotated[int, AtLeast(2)] = 128
  global_every: Annotated[int, AtLeast(1)] = 3
  global_theta: float = 160_000.0
  local_theta: float = 10_000.0
  layer_norm_eps: float = 1e-5
  embedding_dropout: Rate = 0.0
  hidden_dropout: Rate = 0.0
  attention_dropout: Rate = 0.0
  attention: Annotated[str, OneOf(transformer.ATTENTION)] = "auto"

  def _encode(self, tokens, offset, scan, train):
    dtype = jnp.dtype(self.dtype)
    x = transformer.Embeddings(
      self.vocab_size,
      self.hidden_size,
      dtype,
      norm_eps=self.layer_norm_eps,
      norm_bias=False,
      name="embeddings",
    )(tokens, offset, train=train)
    x = Dropout(self.embedding_dropout)(x, train=train)
    layer = partial(
      ModernBertLayer,
      self.num_heads,
      self.intermediate_size,
      self.activation,
      self.layer_norm_eps,
      self.hidden_dropout,
      self.attention_dropout,
      dtype,
      self.precision,
      self.attention,
    )
    everywhere = transformer.segment_mask(tokens.segment)
    distance = jnp.abs(tokens.position[:, :, None] - tokens.position[:, None, :])
    near = everywhere & (distance <= self.window // 2)[:, None]
    width = self.hidden_size // self.num_heads
    globally = rotations(tokens.position, width, self.global_theta)
    locally = rotations(tokens.position, width, self.local_theta)
    first = layer(normed=False, name="first_layer")(x, everywhere, globally, train=train)
    states, every, last = x[None], first[None], first

    def apply(layer, x, whole):
      mask = jnp.where(whole, everywhere, near)
      rotation = tuple(jnp.where(whole, a, b) for a, b in zip(globally, locally))
      return layer(x, mask, rotation, train=train)

    if self.num_layers > 1:
      states = jnp.stack([x, first])
      whole = jnp.arange(1, self.num_layers) % self.global_every == 0
      rest = layer(normed=True, name="layers")
      last, every = scan(apply, rest, first, whole, length=self.num_layers - 1)
    last = LayerNorm(self.layer_norm_eps, dtype, use_bias=False, name="final_norm")(last)
    return states, every, last


Rotation = tuple[Float[Array, "b l 1 k"], Float[Array, "b l 1 k"]]


def rotations(position: Int[Array, "b l"], width: int, theta: float) -> Rotation:
  """Cosine and sine of the rotary angles t·θ^(−2i/width) of each position t (Su et al. 2021).

  Both halves of a head's width have the angles of i = 0 … width/2 − 1: dimension i is turned with
  dimension i + width/2, as published weights expect.
  """
  rate = theta ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
  angle = position[..., None].astype(jnp.float32) * rate[None, None]
  angle = jnp.concatenate([angle, angle], axis=-1)[:, :, None]
  return jnp.cos(angle), jnp.sin(angle)


def rotate(x: Float[Array, "b l h k"], rotation: Rotation) -> Float[Array, "b l h k"]:
  """`x` with each pair of dimensions turned by the angle of its position, in float32."""
  cosine, sine = (jnp.broadcast_to(part, x.shape) for part in rotation)
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  turned = jnp.concatenate([-second, first], axis=-1)
  return (x.astype(jnp.float32) * cosine + turned * sine).astype(x.dtype)


class ModernBertLayer(nn.Module):
  """x + attention(norm(x)), then x + feed_forward(norm(x)); no norm before attention if not `normed`."""

  num_heads: int
  intermediate_size: int
  activation: str
  layer_norm_eps: float
  hidden_dropout: float
  attention_dropout: float
  dtype: Any
  precision: Any
  attention: str
  normed: bool

  @nn.compact
  def __call__(
    self, x: Float[Array, "b l d"], mask: Bool[Array, "b 1 l l"], rotation: Rotation, *, train: bool
  ) -> Float[Array, "b l d"]:
    """Updates `x`; tokens attend where `mask` is true, and dropout acts with `train`."""
    norm = partial(LayerNorm, self.layer_norm_eps, self.dtype, use_bias=False)
    how = (self.dtype, self.precision)
    read = x
    if self.normed:
      read = norm(name="attention_norm")(x)
    attended = RotaryAttention(
      self.num_heads, self.attention_dropout, *how, self.attention, name="attention"
    )(read, mask, rotation, train=train)
    x = x + Dropout(self.attention_dropout)(attended, train=train)
    feed_forward = GatedFeedForward(
      self.intermediate_size, self.activation, self.hidden_dropout, *how, name="feed_forward"
    )
    return x + feed_forward(norm(name="feed_forward_norm")(x), train=train)


class RotaryAttention(nn.Module):
  """Multi-head self-attention with rotary positions and no biases; queries, keys, values at once."""

  num_heads: int
  dropout: float
  dtype: Any
  precision: Any
  attention: str

  @nn.compact
  def __call__(
    self, x: Float[Array, "b l d"], mask: Bool[Array, "b 1 l l"], rotation: Rotation, *, train: bool
  ) -> Float[Array, "b l d"]:
    """Attends where `mask` is true; dropout of the weights acts with `train`."""
    b, l, d = x.shape
    dense = partial(_dense, dtype=self.dtype, precision=self.precision)
    heads = dense(3 * d, "qkv")(x).reshape(b, l, 3, self.num_heads, d // self.num_heads)
    query, key, value = (heads[:, :, n] for n in range(3))
    query, key = rotate(query, rotation), rotate(key, rotation)
    how = {"wanted": self.attention, "precision": self.precision, "train": train}
    context = transformer.attention_context(
      query, key, value, mask, dropout=Dropout(self.dropout), **how
    )
    return dense(d, "output")(context.reshape(b, l, d))


class GatedFeedForward(nn.Module):
  """W_o (act(W_1 x) ⊙ W_2 x), W_1 and W_2 in one kernel (GeGLU, Shazeer 2020); no biases."""

  width: int
  activation: str
  dropout: float
  dtype: Any
  precision: Any

  @nn.compact
  def __call__(self, x: Float[Array, "b l d"], *, train: bool) -> Float[Array, "b l d"]:
    """Applies the layer to the last axis; dropout acts with `train` on the product."""
    dense = partial(_dense, dtype=self.dtype, precision=self.precision)
    acted, gate = jnp.split(dense(2 * self.width, "gated")(x), 2, axis=-1)
    hidden = transformer.ACTIVATIONS[self.activation](acted) * gate
    return dense(x.shape[-1], "output")(Dropout(self.dropout)(hidden, train=train))


def _dense(width: int, name: str, dtype: Any, precision: Any) -> nn.Dense:
  how = {"dtype": dtype, "precision": precision, "kernel_init": transformer.INITIALIZER}
  return nn.Dense(width, use_bias=False, name=name, **how)


_KINDS = ("full_attention", "sliding_attention")


def _adapt(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
  """Reads the attention of published configs and of transformers 5 (`layer_types`)."""
  widely = _theta(config, "full_attention", "global_rope_theta", 160_000.0)
  near = _theta(config, "sliding_attention", "local_rope_theta", 10_000.0)
  if near is None:  # as the original code has it: one base for all layers
    near = widely
  bases = {"global_theta": widely, "local_theta": near}
  kinds, layers = config.get("layer_types"), fields["num_layers"]
  if kinds is None:
    return bases
  for every in range(1, layers + 1):
    if kinds == [_KINDS[n % every > 0] for n in range(layers)]:
      return {**bases, "global_every": every}
  raise ValueError(
    f"layer_types: only {layers} layers of {' and '.join(_KINDS)} are implemented, with the first in "
    "every n-th layer"
  )


def _theta(config: Mapping[str, Any], kind: str, key: str, default: float) -> float | None:
  """Returns the base of the rotary positions of a kind of layers, None where the config has null."""
  ropes = config.get("rope_parameters") or {}
  rope = ropes.get(kind) or {}
  if not ropes.keys() <= set(_KINDS) or rope.get("rope_type", "default") != "default":
    raise ValueError(
      f"rope_parameters {ropes}: only rotary positions of type 'default', given for each of "
      f"{' and '.join(_KINDS)}, are implemented"
    )
  theta = rope.get("rope_theta", config.get(key, default))
  return None if theta is None else float(theta)


def _classifier(config: Mapping[str, Any], width: int) -> tuple[str, list]:
  """Returns the pooling and the layers of a sequence classifier."""
  pooling, activation = (config.get(f"classifier_{key}") for key in ("pooling", "activation"))
  pooling, activation = pooling or "cls", activation or "gelu"
  if pooling not in ("cls", "mean") or activation not in vectors.ACTIVATIONS:
    raise ValueError(
      f"classifier_pooling {pooling!r:.80}, classifier_activation {activation!r:.80}; "
      f"implemented are cls, mean and {', '.join(vectors.ACTIVATIONS)}"
    )
  dense = ("dense", width, activation, bool(config.get("classifier_bias", False)))
  normed = ("norm", config.get("norm_eps", 1e-5), bool(config.get("norm_bias", False)))
  last = ("dense", 0, "identity", True)
  return pooling, [(dense, "head.dense"), (normed, "head.norm"), (last, "classifier")]


_OF_A_LAYER = {
  "attention/qkv/kernel": "attn.Wqkv.weight",
  "attention/output/kernel": "attn.Wo.weight",
  "feed_forward/gated/kernel": "mlp.Wi.weight",
  "feed_forward/output/kernel": "mlp.Wo.weight",
  "feed_forward_norm/scale": "mlp_norm.weight",
}
_BASE, _LARGE = (22, 768, 1152, 12), (28, 1024, 2624, 16)
# Sizes of the Ettin suite by the table "Model Architecture" in
# https://github.com/JHU-CLSP/ettin-encoder-vs-decoder.
_SIZES = {
  "answerdotai/ModernBERT-base": _BASE,
  "answerdotai/ModernBERT-large": _LARGE,
  "jhu-clsp/ettin-encoder-17m": (7, 256, 384, 4),
  "jhu-clsp/ettin-encoder-32m": (10, 384, 576, 6),
  "jhu-clsp/ettin-encoder-68m": (19, 512, 768, 8),
  "jhu-clsp/ettin-encoder-150m": _BASE,
  "jhu-clsp/ettin-encoder-400m": _LARGE,
  "jhu-clsp/ettin-encoder-1b": (28, 1792, 3840, 28),
}

MODERNBERT = register(
  Transformer(
    name="modernbert",
    module=ModernBertEncoder,
    token="cls",
    keys=(
      *SIZES,
      Key("max_position_embeddings", "max_positions", 8192, largest=1 << 20),
      Key("local_attention", "window", 128, largest=1 << 20),
      Key("global_attn_every_n_layers", "global_every", 3, largest=1 << 10),
      Key("norm_eps", "layer_norm_eps", 1e-5, below=1.0),
      Key("embedding_dropout", "embedding_dropout", 0.0, below=1.0),
      Key("mlp_dropout", "hidden_dropout", 0.0, below=1.0),
      Key("attention_dropout", "attention_dropout", 0.0, below=1.0),
      Key("hidden_activation", "activation", "gelu", words=tuple(transformer.ACTIVATIONS)),
    ),
    names={
      "embeddings/word": "embeddings.tok_embeddings.weight",
      "embeddings/norm/scale": "embeddings.norm.weight",
      "final_norm/scale": "final_norm.weight",
      "layers/attention_norm/scale": "layers.{}.attn_norm.weight",
      **{f"first_layer/{ours}": f"layers.0.{theirs}" for ours, theirs in _OF_A_LAYER.items()},
      **{f"layers/{ours}": f"layers.{{}}.{theirs}" for ours, theirs in _OF_A_LAYER.items()},
    },
    first_stacked=1,
    classes="ModernBert",
    prefix="model.",
    ignored=re.compile(r"(head|decoder|classifier)\..+"),  # heads of other tasks
    special={"unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"},
    typed=False,
    adapt=_adapt,
    variants=("attention_bias", "mlp_bias", "norm_bias", "rope_scaling"),
    settings=lambda encoder: {
      "global_rope_theta": encoder.global_theta,
      "local_rope_theta": encoder.local_theta,
    },
    classifier=_classifier,
    published={
      name: published(*sizes, vocab_size=50368, max_position_embeddings=8192)
      for name, sizes in _SIZES.items()
    },
  )
)
