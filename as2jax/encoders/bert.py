"""BERT (Devlin et al. 2019) in Flax Linen, over packed rows."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.data.batch import Tokens
from as2jax.encoders import layers
from as2jax.errors import InputError

DTYPES = ("float32", "bfloat16")


class BertEncoder(nn.Module):
  """BERT without its pooler: token ids to token vectors, units of a row blind to one another.

  The fields are the whole configuration; `as2jax.encoders.pretrained.read_config` fills those that
  describe the architecture. Parameters are float32 and do not depend on how the encoder runs
  (`dtype`, `precision`, `unroll`, `remat`):

    embeddings/{word, position, type} [rows, d], embeddings/norm/{scale, bias} [d]
    layers/attention/{query, key, value, output}/{kernel, bias}
    layers/feed_forward/{intermediate, output}/{kernel, bias}
    layers/{attention_norm, output_norm}/{scale, bias}       all of `layers` with a first axis [layers]

  Attributes:
    activation: `gelu` (exact), `gelu_new` (tanh) or `relu`.
    dtype: type of the arithmetic and of the result, `float32` or `bfloat16`. Scores, softmax and
      norm statistics are float32 always.
    precision: of the matrix products. None is jax's default, which is full float32 on CPU but TF32
      or bfloat16 passes on GPU and TPU: the right choice for training, where "highest" costs 3-6
      times as much. Set "highest" to compare with a float32 reference there.
    unroll: layers a step of the scan over layers: 1 compiles in the time of one layer.
    remat: recompute each layer in the backward pass in place of keeping its activations.
  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  intermediate_size: int
  max_positions: int
  type_vocab_size: int = 2
  layer_norm_eps: float = 1e-12
  hidden_dropout: float = 0.1
  attention_dropout: float = 0.1
  activation: str = "gelu"
  dtype: Any = "float32"
  precision: Any = None
  unroll: int = 1
  remat: bool = False

  @nn.compact
  def __call__(
    self,
    tokens: Tokens,
    *,
    input_offset: Float[Array, "s r l d"] | None = None,
    all_layers: bool = False,
    train: bool,
  ) -> Float[Array, "s r l d"] | Float[Array, "layers s r l d"]:
    """Token vectors of the last layer, or of the embeddings and every layer (`all_layers`).

    `input_offset` is added to the input embeddings before their norm. With `train`, dropout draws
    from the stream `dropout`. Vectors at padding are finite and mean nothing.
    """
    self._check()
    dtype = jnp.dtype(self.dtype)
    s, r, l = tokens.ids.shape
    rows = lambda x: x.reshape(s * r, *x.shape[2:])  # a sharding of s stays on the major axis
    offset = None if input_offset is None else rows(input_offset)
    x = layers.Embeddings(
      self.vocab_size,
      self.hidden_size,
      self.max_positions,
      self.type_vocab_size,
      self.layer_norm_eps,
      self.hidden_dropout,
      dtype=dtype,
      name="embeddings",
    )(rows(tokens.ids), rows(tokens.position), rows(tokens.type), offset, train=train)
    mask = layers.segment_mask(rows(tokens.segment))

    def apply(layer, x):
      x = layer(x, mask, train=train)
      return x, x if all_layers else None

    if self.remat:
      apply = nn.remat(apply, prevent_cse=self.unroll > 1)  # a scan needs no barrier against CSE
    layer = layers.TransformerLayer(
      self.num_heads,
      self.intermediate_size,
      self.activation,
      self.layer_norm_eps,
      self.hidden_dropout,
      self.attention_dropout,
      dtype,
      self.precision,
      name="layers",
    )
    last, every = nn.scan(
      apply,
      variable_axes={"params": 0},
      split_rngs={"params": True, "dropout": True},
      length=self.num_layers,
      unroll=self.unroll,
    )(layer, x)
    if all_layers:
      return jnp.concatenate([x[None], every]).reshape(-1, s, r, l, self.hidden_size)
    return last.reshape(s, r, l, self.hidden_size)

  @staticmethod
  def embedding_table(params) -> Float[Array, "vocab d"]:
    """The word-embedding table in this encoder's parameters (`embeddings/word`)."""
    return params["embeddings"]["word"]

  def _check(self):
    if self.hidden_size % self.num_heads:
      raise InputError(
        f"encoder.num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}"
      )
    if self.activation not in layers.ACTIVATIONS:
      known = ", ".join(layers.ACTIVATIONS)
      raise InputError(f"encoder.activation: {self.activation!r} is none of {known}")
    if jnp.dtype(self.dtype).name not in DTYPES:
      raise InputError(f"encoder.dtype: {self.dtype!r} is none of {', '.join(DTYPES)}")
