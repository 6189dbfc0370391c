"""MPNet (Song et al. 2020): BERT's layers with a bias by relative position, over packed rows."""

import math
import re
from typing import Annotated

import jax.numpy as jnp
import numpy as np

from as2jax.encoders import bert
from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.family import Key, Transformer, register
from as2jax.layers.transformer import INITIALIZER
from as2jax.runtime.registry import AtLeast

FARTHEST = 128  # distances from here on share a bucket


class MPNetEncoder(BertEncoder):
  """BERT's network without token types, with one table of relative positions for all layers.

  The score of a query at i and a key at j gets the bias of the bucket of j − i, a head each (section
  2.3; the buckets are those of T5, Raffel et al. 2020, section 2.1). Positions are those of a unit, so
  that units of a packed row have the biases that they have alone. Parameters: those of `BertEncoder`,
  and `relative_bias` [buckets, heads].

  Attributes:
    relative_buckets: half of them for keys before the query, half for keys behind it.

  """

  type_vocab_size: int = 0
  position_offset: int = 2
  relative_buckets: Annotated[int, AtLeast(4)] = 32

  def _encode(self, tokens, offset, scan, train, bias=None):
    shape = (self.relative_buckets, self.num_heads)
    table = self.param("relative_bias", INITIALIZER, shape, jnp.float32)
    farthest = self.max_positions
    bucket = jnp.asarray(buckets(np.arange(-farthest, farthest + 1), self.relative_buckets))
    # One gather a distance, then one a pair: the bucket's logarithm is not taken for every pair.
    of_distance = jnp.take(table, bucket, axis=0)
    position = tokens.position
    distance = position[:, None, :] - position[:, :, None] + farthest
    bias = jnp.moveaxis(jnp.take(of_distance, distance, axis=0), -1, 1)
    return super()._encode(tokens, offset, scan, train, bias)


def buckets(distance: np.ndarray, count: int) -> np.ndarray:
  """Returns the bucket of each distance (key minus query): its own, or by the logarithm to `FARTHEST`."""
  half = count // 2
  near = half // 2
  size = np.abs(distance)
  ratio = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(near))
  scaled = ratio / np.float32(math.log(FARTHEST / near)) * np.float32(half - near)
  far = np.minimum(near + scaled.astype(np.int32), half - 1)
  return np.where(size < near, size, far).astype(np.int32) + half * (distance > 0)


MPNET = register(
  Transformer(
    name="mpnet",
    module=MPNetEncoder,
    token="cls",
    keys=(
      *bert.KEYS,
      Key("relative_attention_num_buckets", "relative_buckets", 32, least=4, largest=1 << 12),
    ),
    names={
      **bert.EMBEDDINGS,
      "relative_bias": "encoder.relative_attention_bias.weight",
      **bert.tensor_names(bert.FEED_FORWARD),
      **bert.tensor_names(
        {
          "layers/attention/query": "encoder.layer.{}.attention.attn.q",
          "layers/attention/key": "encoder.layer.{}.attention.attn.k",
          "layers/attention/value": "encoder.layer.{}.attention.attn.v",
          "layers/attention/output": "encoder.layer.{}.attention.attn.o",
          "layers/attention_norm": "encoder.layer.{}.attention.LayerNorm",
        }
      ),
    },
    classes="MPNet",
    prefix="mpnet.",
    # The pooler that transformers adds was never trained.
    ignored=re.compile(
      r"embeddings\.position_ids|pooler\.dense\.(weight|bias)|(classifier|lm_head)\..+"
    ),
    head={"pooler": "classifier.dense", "head": "classifier.out_proj"},
    special={"bos": "<s>", "eos": "</s>", "unk": "[UNK]", "pad": "<pad>", "mask": "<mask>"},
    typed=False,
    settings=lambda encoder: {"pad_token_id": 1},
    published={
      "microsoft/mpnet-base": bert.published(
        *bert.BASE, vocab_size=30527, max_position_embeddings=514, layer_norm_eps=1e-5
      )
    },
  )
)
