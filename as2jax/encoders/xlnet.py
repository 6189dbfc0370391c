"""XLNet (Yang et al. 2019) in Flax Linen, content stream, over packed rows."""

from typing import Annotated, Any

import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from as2jax.data.batches.batch import Tokens
from as2jax.layers import transformer
from as2jax.layers.layer_scan import scan_layers
from as2jax.layers.relative_attention import RelativeLayer, sinusoids
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, Dtype, Precision, Rate

DTYPES = ("float32", "bfloat16")
ATTENTION_TYPES = ("bi", "uni")


class XLNetEncoder(nn.Module):
  """XLNet as it is fine-tuned: token ids to token vectors, units of a row blind to one another.

  Positions count only as differences, so a unit gives the same vectors wherever it lies in a row,
  and no length is too long. `tokens.type` counts only as same or other: XLNet's 0 and 1 for two
  sentences and 2 for `<cls>`. The query stream, permutation masks and the mask embedding belong to
  pre-training and are not here. The fields are the whole configuration; parameters are float32:

    embeddings/word [vocab_size, d]
    layers/attention/{query, key, value, relative, output}/kernel [d, d]
    layers/attention/{r_w_bias, r_r_bias, r_s_bias} [heads, k], seg_embed [2, heads, k]
    layers/feed_forward/{intermediate, output}/{kernel, bias}
    layers/{attention_norm, output_norm}/{scale, bias}
  where everything under `layers` has a first axis [num_layers].

  Attributes:
    attention_type: `bi` (every token sees its whole unit: fine-tuning) or `uni` (itself and those
      before it).
    clamp_len: distances are cut to ±clamp_len; not above 0 is no cut.
    hidden_dropout: of embeddings, sinusoids, residual branches, the feed-forward's inner layer and
      the last output. The sinusoids' mask is one for all rows of the call; the original draws one
      for each row, which would make their product as large as the keys'.
    activation: `gelu` (exact: transformers' checkpoints), `gelu_new` (tanh: the original code's
      `gelu`) or `relu`.
    dtype, precision, unroll, remat: how it runs, as in `BertEncoder`.

  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  intermediate_size: int
  attention_type: str
  clamp_len: int
  layer_norm_eps: float
  hidden_dropout: Rate
  attention_dropout: Rate
  activation: str
  dtype: Dtype
  precision: Precision
  unroll: Annotated[int, AtLeast(0)]
  remat: bool

  def __call__(
    self,
    tokens: Tokens,
    *,
    input_offset: Float[Array, "s r l d"] | None = None,
    all_layers: bool = False,
    train: bool,
  ) -> Float[Array, "s r l d"] | Float[Array, "layers s r l d"]:
    """Token vectors of the last layer, or of the embeddings and every layer (`all_layers`).

    `input_offset` is added to the word embeddings, which XLNet does not normalise. With `train`,
    dropout draws from the stream `dropout`. Vectors at padding are finite and mean nothing.
    """
    return self._encode(tokens, None, input_offset, all_layers=all_layers, train=train)

  def with_mems(
    self,
    tokens: Tokens,
    mems: Float[Array, "layers s r m d"] | None,
    *,
    mem_len: int,
    reuse_len: int | None = None,
    train: bool,
  ) -> tuple[Float[Array, "s r l d"], Float[Array, "layers s r n d"]]:
    """Token vectors that also look back at `mems`, and the mems for the row's continuation.

    `mems` are the inputs of each layer at the tokens before this row (None: there are none), of
    type 0, seen by every token. A row must be one unit without padding: whatever the row holds is
    remembered. The new ones are the last `mem_len` of `mems` and of the row's first `reuse_len`
    tokens (None: all), without gradient.

    Errors: `InputError` for a mem_len or reuse_len below 1.
    """
    for name, value in (("mem_len", mem_len), ("reuse_len", reuse_len)):
      if value is not None and value < 1:
        raise InputError(f"with_mems: {name} = {value}; remember at least 1 token")
    states = self._encode(tokens, mems, None, all_layers=True, train=train)
    kept = states[:-1, ..., :reuse_len, :]
    if mems is not None:
      kept = jnp.concatenate([mems.astype(kept.dtype), kept], axis=-2)
    return states[-1], lax.stop_gradient(kept[..., -mem_len:, :])

  @property
  def max_length(self) -> int | None:
    """The longest unit in tokens: None, for relative positions have no end."""
    return None

  @staticmethod
  def embedding_table(params: Any) -> Any:
    """The word-embedding table [vocab_size, d] of this encoder's parameters (`embeddings/word`)."""
    return params["embeddings"]["word"]

  @nn.compact
  def _encode(self, tokens: Tokens, mems, input_offset, *, all_layers: bool, train: bool):
    self._check()
    s, r, l = tokens.ids.shape
    # [s, r] merged into one axis: a sharding of s stays on the major dimension.
    rows = lambda x: jnp.reshape(x, (s * r, *x.shape[2:]))
    x = WordEmbeddings(
      self.vocab_size,
      self.hidden_size,
      self.hidden_dropout,
      jnp.dtype(self.dtype),
      name="embeddings",
    )(rows(tokens.ids), None if input_offset is None else rows(input_offset), train=train)
    if mems is not None:
      mems = mems.reshape(mems.shape[0], s * r, *mems.shape[3:]).astype(x.dtype)
    m = 0 if mems is None else mems.shape[2]
    positions = sinusoids(l, m + l, self.hidden_size, self.clamp_len)
    positions = transformer.Dropout(self.hidden_dropout)(positions, train=train).astype(x.dtype)
    mask, same_type = self._seen(rows(tokens.segment), rows(tokens.type), m)
    last, every = self._scan(
      x, mems, (mask, same_type, positions), all_layers=all_layers, train=train
    )
    last = transformer.Dropout(self.hidden_dropout)(last, train=train)
    if all_layers:
      states = jnp.concatenate([x[None], every[:-1], last[None]])
      return states.reshape(-1, s, r, l, self.hidden_size)
    return last.reshape(s, r, l, self.hidden_size)

  def _seen(
    self, segment: Int[Array, "b l"], type: Int[Array, "b l"], memory: int
  ) -> tuple[Bool[Array, "b 1 l t"], Bool[Array, "b 1 l t"]]:
    """Which keys (`memory` of type 0, then the row) a token sees, and which are of its type."""
    b, l = segment.shape
    mask = transformer.segment_mask(segment)
    if self.attention_type == "uni":
      mask &= jnp.tril(jnp.ones((l, l), bool))[None, None]
    mask = jnp.concatenate([jnp.ones((b, 1, l, memory), bool), mask], axis=-1)
    keys = jnp.pad(type, ((0, 0), (memory, 0)))
    return mask, (type[:, :, None] == keys[:, None, :])[:, None]

  def _scan(self, x: Array, mems: Array | None, shared: tuple, *, all_layers: bool, train: bool):
    """The last layer's output, and with `all_layers` that of each layer."""

    def apply(layer, x, memory):
      context = x if memory is None else jnp.concatenate([memory, x], axis=1)
      x = layer(x, context, *shared, train=train)
      return x, x if all_layers else None

    layer = RelativeLayer(
      self.num_heads,
      self.intermediate_size,
      self.activation,
      self.layer_norm_eps,
      self.hidden_dropout,
      self.attention_dropout,
      jnp.dtype(self.dtype),
      self.precision,
      name="layers",
    )
    return scan_layers(
      apply, layer, x, mems, length=self.num_layers, unroll=self.unroll, remat=self.remat
    )

  def _check(self):
    if self.hidden_size % self.num_heads:
      raise InputError(
        f"encoder.num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}"
      )
    if self.hidden_size % 2:
      raise InputError(f"encoder.hidden_size: {self.hidden_size} is odd; sinusoids come in pairs")
    for name, known in (
      ("attention_type", ATTENTION_TYPES),
      ("activation", tuple(transformer.ACTIVATIONS)),
      ("dtype", DTYPES),
    ):
      if str(getattr(self, name)) not in known:
        raise InputError(f"encoder.{name}: {getattr(self, name)!r} is none of {', '.join(known)}")
    if self.unroll < 0:
      raise InputError(f"encoder.unroll: {self.unroll} is negative; 0 leaves the choice open")


class WordEmbeddings(nn.Module):
  """Word embeddings (and `offset`), then dropout. An id outside the table gives NaN."""

  vocab_size: int
  hidden_size: int
  dropout: float
  dtype: Any

  @nn.compact
  def __call__(
    self, ids: Int[Array, "b l"], offset: Float[Array, "b l d"] | None, *, train: bool
  ) -> Float[Array, "b l d"]:
    """Looks up each id, adds `offset`, and applies dropout with `train`."""
    shape = (self.vocab_size, self.hidden_size)
    x = jnp.take(self.param("word", transformer.INITIALIZER, shape, jnp.float32), ids, axis=0)
    if offset is not None:
      x += offset.astype(jnp.float32)
    return transformer.Dropout(self.dropout)(x.astype(self.dtype), train=train)
