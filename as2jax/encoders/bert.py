"""BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019) in Flax Linen, over packed rows."""

from typing import Annotated, Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from as2jax.data.batches.batch import Tokens
from as2jax.layers import transformer
from as2jax.layers.layer_scan import scan_layers
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, Dtype, OneOf, Precision, Rate

DTYPES = ("float32", "bfloat16")


class BertEncoder(nn.Module):
  """BERT without its pooler: token ids to token vectors, units of a row blind to one another.

  RoBERTa is the same network: its positions begin at `position_offset` 2. The fields are the whole
  configuration; `as2jax.encoders.checkpoints.pretrained.read_config` fills those that describe the
  architecture. Parameters are float32 and do not depend on how the encoder runs (`dtype`,
  `precision`, `attention`, `unroll`, `remat`):

    embeddings/{word, position, type} [rows, d], embeddings/norm/{scale, bias} [d]
    layers/attention/{query, key, value, output}/{kernel, bias}
    layers/feed_forward/{intermediate, output}/{kernel, bias}
    layers/{attention_norm, output_norm}/{scale, bias}
  where everything under `layers` has a first axis [num_layers].

  Attributes:
    activation: `gelu` (exact), `gelu_new` (tanh) or `relu`.
    dtype: type of the arithmetic and of the result, `float32` or `bfloat16`. Scores, softmax and
      norm statistics are float32 always.
    precision: of the matrix products. None is jax's default, which is full float32 on CPU but TF32
      or a bfloat16 pass on GPU and TPU: right for training, where "highest" takes several passes
      for each product. Set "highest" to compare with a float32 reference there.
    attention: how attention is computed; see `layers.transformer.ATTENTION`.
    unroll: how many layers one turn of the loop over layers holds; 0 is all of up to 12 layers
      (and 1 with `remat` or for deeper models). Unrolled steps are about 10 % faster on CPU; a loop
      compiles in the time of one layer (12 layers: 3 s against 8; 24 layers: 3 s against 16).
    remat: recompute each layer in the backward pass in place of keeping its activations: a fifth
      of the memory for a fifth more time.

  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  intermediate_size: int
  max_positions: int
  type_vocab_size: int = 2
  position_offset: int = 0
  layer_norm_eps: float = 1e-12
  hidden_dropout: Rate = 0.1
  attention_dropout: Rate = 0.1
  activation: str = "gelu"
  dtype: Dtype = "float32"
  precision: Precision = None
  attention: Annotated[str, OneOf(transformer.ATTENTION)] = "auto"
  unroll: Annotated[int, AtLeast(0)] = 0
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
    s, r, l = tokens.ids.shape
    # [s, r] merged into one axis: a sharding of s stays on the major dimension.
    rows = lambda x: jnp.reshape(x, (s * r, *x.shape[2:]))
    x = transformer.Embeddings(
      self.vocab_size,
      self.hidden_size,
      self.max_positions,
      self.type_vocab_size,
      self.layer_norm_eps,
      self.hidden_dropout,
      self.position_offset,
      dtype=jnp.dtype(self.dtype),
      name="embeddings",
    )(
      rows(tokens.ids),
      rows(tokens.position),
      rows(tokens.type),
      None if input_offset is None else rows(input_offset),
      train=train,
    )
    mask = transformer.segment_mask(rows(tokens.segment))
    bias = self.attention_bias(rows(tokens.position))
    last, every = self._scan(x, mask, bias, all_layers=all_layers, train=train)
    if all_layers:
      return jnp.concatenate([x[None], every]).reshape(-1, s, r, l, self.hidden_size)
    return last.reshape(s, r, l, self.hidden_size)

  def attention_bias(self, position: Int[Array, "b l"]) -> Float[Array, "b h l l"] | None:
    """What is added to the attention's scores in every layer; nothing, unless a subclass says so."""
    del position
    return None

  def _scan(self, x: Array, mask: Array, bias: Array | None, *, all_layers: bool, train: bool):
    """The last layer's output, and with `all_layers` that of each layer."""

    def apply(layer, x):
      x = layer(x, mask, bias, train=train)
      return x, x if all_layers else None

    layer = transformer.TransformerLayer(
      self.num_heads,
      self.intermediate_size,
      self.activation,
      self.layer_norm_eps,
      self.hidden_dropout,
      self.attention_dropout,
      jnp.dtype(self.dtype),
      self.precision,
      self.attention,
      name="layers",
    )
    return scan_layers(
      apply, layer, x, length=self.num_layers, unroll=self.unroll, remat=self.remat
    )

  @property
  def max_length(self) -> int:
    """The longest unit in tokens: rows of the position table."""
    return self.max_positions - self.position_offset

  @staticmethod
  def embedding_table(params: Any) -> Any:
    """The word-embedding table [vocab_size, d] of this encoder's parameters (`embeddings/word`)."""
    return params["embeddings"]["word"]

  def _check(self):
    if self.hidden_size % self.num_heads:
      raise InputError(
        f"encoder.num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}"
      )
    if self.activation not in transformer.ACTIVATIONS:
      known = ", ".join(transformer.ACTIVATIONS)
      raise InputError(f"encoder.activation: {self.activation!r} is none of {known}")
    if str(self.dtype) not in DTYPES:
      raise InputError(f"encoder.dtype: {self.dtype!r} is none of {', '.join(DTYPES)}")
    if self.attention not in transformer.ATTENTION:
      raise InputError(
        f"encoder.attention: {self.attention!r} is none of {', '.join(transformer.ATTENTION)}"
      )
    if self.unroll < 0:
      raise InputError(f"encoder.unroll: {self.unroll} is negative; 0 leaves the choice open")
