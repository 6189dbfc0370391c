"""The cross-encoder: question and candidate in one sequence (CETE section 3.2, TANDA)."""

import dataclasses
from typing import Annotated, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jax import lax
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch, Tokens
from as2jax.layers.pooling import TOKENS, pool
from as2jax.layers.vectors import take
from as2jax.models.system import Layout, PublishedForm, System, Template
from as2jax.runtime.registry import OneOf, Rate


@struct.dataclass
class CrossEncoderOutput:
  """Two-way logits, and the score log P(1) − log P(0) that ranks by P(1) without saturating."""

  scores: Float[Array, "s e"]
  logits: Float[Array, "s e 2"]


class SequenceClassifier(System):
  """One joined sequence → P(1) by a two-way softmax over one token's vector.

  Expects the layout `single` (one joined sequence an example).

  Attributes:
    encoder: LM, behind the encoder contract.
    token: whose vector classifies: `cls` (first token) or `cls_last` (XLNet).
    pooler: a square tanh layer before the head, pretrained where the weights have one.
    dropout: on the head's input.

  """

  encoder: nn.Module
  token: Annotated[str, OneOf(TOKENS)]
  pooler: bool = dataclasses.field()
  dropout: Rate

  layout: ClassVar[Layout] = "single"
  score_names: ClassVar[tuple[str, ...]] = ("logit",)

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> CrossEncoderOutput:
    hidden = self.token_vectors(batch, train=train)
    units = pool(hidden, batch.tokens, batch.units, self.token)
    x = take(units, batch.examples.members[..., 0])
    if self.pooler:
      x = jnp.tanh(nn.Dense(x.shape[-1], name="pooler", precision=lax.Precision.HIGHEST)(x))
    x = nn.Dropout(self.dropout, deterministic=not train)(x)
    start = nn.initializers.normal(0.02)
    logits = nn.Dense(2, name="head", kernel_init=start, precision=lax.Precision.HIGHEST)(x)
    logits = logits.astype(jnp.float32)
    return CrossEncoderOutput(logits[..., 1] - logits[..., 0], logits)

  def token_vectors(self, batch: Batch, *, train: bool = False) -> Float[Array, "s r l d"]:
    """The encoder's vector of each token, which has read `input_offset`."""
    offset = self.input_offset(batch.tokens)
    return self.encoder(batch.tokens, input_offset=offset, train=train)

  def input_offset(self, tokens: Tokens) -> Float[Array, "s r l d"] | None:
    """What is added to the encoder's input embeddings; nothing, unless a subclass says so."""
    del tokens
    return None


class CrossEncoder(SequenceClassifier):
  """[CLS] question [SEP] candidate [SEP] → P(1) by a two-way softmax (CETE section 3.2)."""

  template: ClassVar[Template] = "pair"

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    """A sequence classifier; None for a subclass that classifies in another way."""
    own = (type(self).__call__, type(self).input_offset)
    if own != (SequenceClassifier.__call__, SequenceClassifier.input_offset):
      return None
    return PublishedForm(
      "sequence_classifier",
      self.ranking_score,
      token=self.token,
      pooler=self.pooler,
      dropout=self.dropout,
    )
