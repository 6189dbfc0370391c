"""DeBERTa-v2 and -v3 (He et al. 2021, 2023) in Flax Linen, over packed rows."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from as2jax.encoders import bert
from as2jax.encoders.family import Key, Transformer, register
from as2jax.layers import transformer
from as2jax.layers.dense import Dense
from as2jax.layers.relative_attention import relative_shift
from as2jax.layers.transformer import INITIALIZER, Dropout
from as2jax.runtime.registry import AtLeast


class DebertaEncoder(bert.PackedEncoder):
  """DeBERTa as v2 (without convolution) and v3 are published: positions count only as differences.

    embeddings/word [vocab_size, d], embeddings/type [types, d] where there are types
    relative [2 · buckets, d], relative_norm and embeddings/norm/{scale, bias}
    layers: those of `BertEncoder`

  Attributes:
    max_positions: the longest unit in tokens that the encoder was trained for.
    buckets: of the distances to either side; those below half of it have their own.
    farthest: distances from here on share the last bucket.

  """

  max_positions: int = 512
  type_vocab_size: int = 0
  buckets: Annotated[int, AtLeast(4)] = 256
  farthest: int = 512
  layer_norm_eps: float = 1e-7

  def _encode(self, tokens, offset, scan, train):
    how = (jnp.dtype(self.dtype), self.precision)
    x = transformer.Embeddings(
      self.vocab_size,
      self.hidden_size,
      how[0],
      self.hidden_dropout,
      self.layer_norm_eps,
      type_vocab_size=self.type_vocab_size,
      name="embeddings",
    )(tokens, offset, train=train)
    shape = (2 * self.buckets, self.hidden_size)
    relative = self.param("relative", INITIALIZER, shape, jnp.float32)
    relative = transformer.LayerNorm(self.layer_norm_eps, how[0], name="relative_norm")(relative)
    l = tokens.ids.shape[1]
    # The distances as `relative_shift` has them.
    bucket = buckets(np.arange(l, -l, -1), self.buckets, self.farthest)
    rows = np.clip(self.buckets + np.stack([bucket, -bucket]), 0, 2 * self.buckets - 1)
    given = transformer.segment_mask(tokens.segment), relative, jnp.asarray(rows)
    rates = (self.attention_dropout, self.hidden_dropout)
    attention = partial(DisentangledAttention, self.num_heads, *rates, *how)
    return self._layers(x, attention, lambda layer, x: layer(x, *given, train=train), scan)


def buckets(distance: np.ndarray, count: int, farthest: int) -> np.ndarray:
  """Returns the bucket of each distance (query minus key): its own up to count/2, then by the logarithm."""
  middle = count // 2
  ratio = np.maximum(np.abs(distance), middle) / middle
  far = np.ceil(np.log(ratio) / np.log((farthest - 1) / middle) * (middle - 1)) + middle
  return np.where(np.abs(distance) <= middle, distance, np.sign(distance) * far).astype(np.int32)


class DisentangledAttention(nn.Module):
  """Multi-head self-attention by content and relative position (He et al. 2021, equation 4).

  The score of query i and key j is (q_i·k_j + q_i·K r_δ(i−j) + k_j·Q r_δ(i−j)) / √(3k), where the
  vectors r of the buckets δ of distances pass the same layers Q and K as the tokens.
  """

  num_heads: int
  dropout: float
  position_dropout: float
  dtype: Any
  precision: Any

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "b l d"],
    mask: Bool[Array, "b 1 l l"],
    relative: Float[Array, "n d"],
    rows: Int[Array, "2 p"],
    *,
    train: bool,
  ) -> Float[Array, "b l d"]:
    """Attends where `mask` is true; `rows` of `relative` are those of i − j, and of j − i mirrored."""
    b, l, d = x.shape
    how = {"dtype": self.dtype, "precision": self.precision, "kernel_init": INITIALIZER}
    dense = {name: Dense(d, name=name, **how) for name in ("query", "key", "value", "output")}
    split = lambda y: y.reshape(*y.shape[:-1], self.num_heads, d // self.num_heads)
    query, key, value = (split(dense[name](x)) for name in ("query", "key", "value"))
    relative = Dropout(self.position_dropout)(relative, train=train)
    product = partial(jnp.einsum, precision=self.precision, preferred_element_type=jnp.float32)

    def by_position(vectors, name, rows):
      of_distance = split(jnp.take(dense[name](relative), rows, axis=0))
      return relative_shift(product("bqhk,phk->bhqp", vectors, of_distance))

    scores = product("bqhk,bthk->bhqt", query, key) + by_position(query, "key", rows[0])
    scores += jnp.swapaxes(by_position(key, "query", rows[1]), 2, 3)
    scores = jnp.where(mask, scores * (3 * query.shape[-1]) ** -0.5, transformer.MASKED)
    drop = partial(Dropout(self.dropout), train=train)
    mixed = transformer.mix(scores, value, drop=drop, precision=self.precision)
    return dense["output"](mixed.reshape(b, l, d))


# What published configs say: other forms of the attention and of its input are not implemented.
_ONLY = {
  "relative_attention": True,
  "share_att_key": True,
  "norm_rel_ebd": "layer_norm",
  "position_biased_input": False,
}
_KINDS = ["p2c", "c2p"]


def _adapt(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
  """Checks the form of the attention, and reads how far distances differ."""
  kinds = config.get("pos_att_type") or []
  if isinstance(kinds, str):
    kinds = kinds.split("|")
  if kinds == _KINDS[::-1]:  # the order means nothing
    kinds = _KINDS
  stated = {**config, "pos_att_type": kinds}
  width = {"embedding_size": fields["hidden_size"]}
  for key, only in {**_ONLY, "pos_att_type": _KINDS, **width}.items():
    if stated.get(key, width.get(key)) != only:
      raise ValueError(f"{key} is {stated.get(key)!r:.80}; only {only!r} is implemented")
  farthest = Key("max_relative_positions", "", -1, least=-1, largest=1 << 20).read(config)
  farthest = farthest if farthest > 0 else fields["max_positions"]
  if farthest - 1 <= fields["buckets"] // 2:
    raise ValueError(
      f"position_buckets is {fields['buckets']}; expected fewer than twice the {farthest} positions"
    )
  return {"farthest": farthest}


def _classifier(config: Mapping[str, Any], width: int) -> tuple[str, list]:
  """Returns the pooling and the layers of a sequence classifier."""
  activation = config.get("pooler_hidden_act", "gelu")
  return bert.dense_classifier(activation, "pooler.dense", "classifier")(config, width)


_V3 = dict(
  vocab_size=128100,
  max_position_embeddings=512,
  position_buckets=256,
  pos_att_type="p2c|c2p",
  **_ONLY,
)
DEBERTA = register(
  Transformer(
    name="deberta-v2",
    module=DebertaEncoder,
    token="cls",
    keys=(
      *bert.KEYS,
      Key("type_vocab_size", "type_vocab_size", 0, least=0, largest=1 << 10),
      Key("position_buckets", "buckets", least=4, largest=1 << 12),
    ),
    variants=("conv_kernel_size",),
    padding=900,  # mDeBERTa has 898 rows to spare
    names={
      "embeddings/word": bert.NAMES["embeddings/word"],
      "embeddings/type": bert.NAMES["embeddings/type"],
      "relative": "encoder.rel_embeddings.weight",
      **bert.tensor_names(bert.FEED_FORWARD),
      **bert.tensor_names(
        {
          "relative_norm": "encoder.LayerNorm",
          "layers/attention/query": "encoder.layer.{}.attention.self.query_proj",
          "layers/attention/key": "encoder.layer.{}.attention.self.key_proj",
          "layers/attention/value": "encoder.layer.{}.attention.self.value_proj",
          "layers/attention/output": "encoder.layer.{}.attention.output.dense",
          "layers/attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        }
      ),
    },
    classes="DebertaV2",
    prefix="deberta.",
    ignored=re.compile(
      r"embeddings\.(position_ids|position_embeddings\.weight)"
      r"|(cls|lm_predictions|mask_predictions|pooler|classifier|qa_outputs)\..+"
    ),
    special=bert.BERT.special,
    typed=True,
    adapt=_adapt,
    settings=lambda encoder: {
      "max_relative_positions": encoder.farthest,
      "pos_att_type": _KINDS,
      **_ONLY,
    },
    classifier=_classifier,
    published={
      "microsoft/deberta-v3-xsmall": bert.published(12, 384, 1536, 6, **_V3),
      "microsoft/deberta-v3-small": bert.published(6, 768, 3072, 12, **_V3),
      "microsoft/deberta-v3-base": bert.published(*bert.BASE, **_V3),
      "microsoft/deberta-v3-large": bert.published(*bert.LARGE, **_V3),
      "microsoft/mdeberta-v3-base": bert.published(*bert.BASE, **{**_V3, "vocab_size": 251000}),
    },
  )
)
