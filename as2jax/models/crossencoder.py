"""Cross-encoders: CETE's and TANDA's, LOCT with context, and published ones with their own head."""

import dataclasses
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch, Tokens
from as2jax.data.inputs.document_position import DocumentPosition
from as2jax.data.inputs.protocol import Input
from as2jax.data.text.input_templates import ROLES
from as2jax.layers import vectors
from as2jax.layers.pooling import TOKENS, mean_of_role, pool
from as2jax.layers.segment_embeddings import SEGMENTS, STARTS, role_embeddings
from as2jax.layers.vectors import take
from as2jax.models.system import Judged, Layout, PublishedForm, System, Template
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import OneOf, Rate

HEADS = ("cls", "mean", "cosine", "cosine_linear")
TOKEN_TYPES = ("own", "zero")
COSINE_SCALE = 20.0  # of the score of two means, so that a softmax over candidates can be sharp


class CrossEncoder(System):
  """Reads [CLS] question [SEP] candidate [SEP] → P(1) by a two-way softmax (CETE section 3.2).

  >>> from as2jax.config import jobs
  >>> jobs.load("wikiqa_crossencoder").data.max_length
  128

  Attributes:
    token: the one that stands for a pair, `cls` (the first) or `cls_last` (XLNet's).
    pooler: a square tanh layer before the linear one, pretrained where the weights have a trained
      one; not of cosines.
    dropout: on the linear layer's input.
    head: what gives the logits: a linear layer over the vector of `token` (`cls`) or over the mean
      of all tokens (`mean`); `cosine`, 20 · cos(u, v) without parameters, where u and v are the
      means of the question's and of the candidate's tokens, each with the special tokens that open
      or close it; or `cosine_linear`, that plus a linear layer over [u, v, |u − v|, u · v] that
      begins as 0, so that training begins as the pretrained encoder ranks.
    token_types: `own`, as the tokeniser has them, or `zero`, one type for both texts of the pair.
    position: whether w · ln(1 + i) is added to the logit of sentence i of a document (from 0); the
      learned w begins as 0.

  """

  encoder: nn.Module
  token: Annotated[str, OneOf(TOKENS)]
  pooler: bool = dataclasses.field()
  dropout: Rate
  # Runs of earlier versions state none of these.
  head: Annotated[str, OneOf(HEADS)] = dataclasses.field(default="cls", kw_only=True)
  token_types: Annotated[str, OneOf(TOKEN_TYPES)] = dataclasses.field(default="own", kw_only=True)
  position: bool = dataclasses.field(default=False, kw_only=True)

  template: ClassVar[Template] = "pair"
  layout: ClassVar[Layout] = "single"
  score_names: ClassVar[tuple[str, ...]] = ("logit",)

  @classmethod
  def check_fields(cls, values: Any) -> None:
    super().check_fields(values)
    if str(values.get("head")).startswith("cosine") and values.get("pooler"):
      raise InputError(
        f"model.pooler = True: the head {values['head']!r} compares means, which pass no pooler; set "
        "model.pooler to False"
      )

  @property
  def inputs(self) -> tuple[Input, ...]:
    if self.position:
      return (DocumentPosition(),)
    return ()

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> Judged:
    hidden = self.token_vectors(batch, train=train)
    if self.head.startswith("cosine"):
      return self._output(batch, self._compare_means(batch, hidden, train=train))
    mode = self.token if self.head == "cls" else self.head
    units = pool(hidden, batch.tokens, batch.units, mode)
    x = take(units, batch.examples.members[..., 0])
    if self.pooler:
      x = jnp.tanh(nn.Dense(x.shape[-1], name="pooler", precision=lax.Precision.HIGHEST)(x))
    x = nn.Dropout(self.dropout, deterministic=not train)(x)
    start = nn.initializers.normal(0.02)
    logits = nn.Dense(2, name="head", kernel_init=start, precision=lax.Precision.HIGHEST)(x)
    return self._output(batch, logits.astype(jnp.float32))

  def _output(self, batch: Batch, logits: Float[Array, "s e 2"]) -> Judged:
    if self.position:
      weight = self.param("position", nn.initializers.zeros, ())
      logits = logits.at[..., 1].add(weight * batch.inputs[DocumentPosition.name])
    return Judged(logits[..., 1] - logits[..., 0], logits)

  def _compare_means(self, batch: Batch, hidden: Array, *, train: bool) -> Float[Array, "s e 2"]:
    """Return 0 and 20 · cos(u, v), to which `cosine_linear` adds w · [u, v, |u − v|, u · v] + b."""
    of_units = lambda role: mean_of_role(hidden, batch.tokens, batch.units, ROLES[role])
    u, v = (take(of_units(role), batch.examples.members[..., 0]) for role in list(ROLES)[:2])
    logit = COSINE_SCALE * vectors.cosine(u, v)
    if self.head == "cosine_linear":
      x = jnp.concatenate([u, v, jnp.abs(u - v), u * v], axis=-1)
      x = nn.Dropout(self.dropout, deterministic=not train)(x)
      start = nn.initializers.zeros
      added = nn.Dense(1, name="head", kernel_init=start, precision=lax.Precision.HIGHEST)(x)
      logit = logit + added[..., 0]
    return jnp.stack([jnp.zeros_like(logit), logit], axis=-1)

  def token_vectors(self, batch: Batch, *, train: bool = False) -> Float[Array, "s r l d"]:
    tokens = batch.tokens
    if self.token_types == "zero":
      tokens = tokens.replace(type=jnp.where(tokens.type == 1, 0, tokens.type))  # XLNet's <cls>: 2
    return self.encoder(tokens, input_offset=self.input_offset(tokens), train=train)

  def input_offset(self, tokens: Tokens) -> Float[Array, "s r l d"] | None:
    """Return what is added to the encoder's input embeddings; nothing by default."""
    return None

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    """Return a sequence classifier; None with positions, or for a subclass with scores of its own."""
    computed = attrgetter("__call__", "token_vectors", "input_offset")
    if self.position or computed(type(self)) != computed(CrossEncoder):
      return None
    head = {"token": self.token, "pooler": self.pooler, "dropout": self.dropout}
    if self.head != "cls":
      head["token"] = self.head
    head["typed"] = self.token_types == "own"
    return PublishedForm("sequence_classifier", self.ranking_score, **head)


TEMPLATES = ("local_context", "context", "pair")


class LocalContextCrossEncoder(CrossEncoder):
  """Reads [CLS] question [SEP] previous [SEP] candidate [SEP] next → P(1) by a two-way softmax.

  `template` is `local_context`, the paper's order; `context`, which puts the candidate behind the
  question; or `pair`, without context. `segments` are embeddings by role, added to the LM's input
  embeddings: `four` (question, candidate, previous, next), `three` (one for both context sentences)
  or `none`; they start as `normal`, N(0, 0.02), or `zero`.

  >>> from as2jax.config import jobs
  >>> jobs.load("wikiqa_loct").model.template
  'local_context'
  """

  template: Annotated[str, OneOf(TEMPLATES)] = dataclasses.field()
  segments: Annotated[str, OneOf(tuple(SEGMENTS))]
  segments_start: Annotated[str, OneOf(tuple(STARTS))]

  def setup(self):
    self.segment_embeddings = role_embeddings(self)

  def input_offset(self, tokens: Tokens) -> Float[Array, "s r l d"] | None:
    return self.segment_embeddings(tokens)


class Reranker(System):
  """Reads question and candidate in one sequence, pooled, through the layers of a published head.

  `as2jax.encoders.cross_encoder_folder.read` gives `pooling`, modes whose vectors are joined, and
  `layers` of `as2jax.layers.vectors`, the last with one output a class; `label` is the class that
  means that the candidate answers the question. With one logit the score is that logit, with n the
  log-odds of class `label`, l_k − ln Σ_{j≠k} exp(l_j), which is l_1 − l_0 for two. Losses see
  two-way logits with the same probability of class `label`.
  """

  encoder: nn.Module
  pooling: tuple[str, ...]
  layers: tuple[tuple, ...]
  dropout: Rate
  label: int | None = dataclasses.field(default=None, kw_only=True)

  template: ClassVar[Template] = "pair"
  layout: ClassVar[Layout] = "single"
  score_names: ClassVar[tuple[str, ...]] = ("logit",)

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> Judged:
    classes = self.layers[-1][1]
    if self.label is None or not 0 <= self.label < classes:
      raise InputError(
        f"model.label = {self.label}: the head has {classes} classes; give the number of the one "
        f"that means 'answers the question', 0 to {classes - 1}"
      )
    hidden = self.encoder(batch.tokens, train=train)
    units = jnp.concatenate(
      [pool(hidden, batch.tokens, batch.units, mode) for mode in self.pooling], axis=-1
    )
    x = take(units, batch.examples.members[..., 0]).astype(jnp.float32)
    for number, layer in enumerate(self.layers):
      if number == len(self.layers) - 1:
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
      x = vectors.apply_layer(layer, f"layer_{number}", x)
    logits = _two_way(x.astype(jnp.float32), self.label)
    return Judged(logits[..., 1] - logits[..., 0], logits)

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    if type(self).__call__ is not Reranker.__call__:
      return None
    head = {"layers": self.layers, "dropout": self.dropout, "label": self.label}
    return PublishedForm("reranker", self.ranking_score, pooling=self.pooling, **head)


def _two_way(logits: Float[Array, "s e n"], label: int) -> Float[Array, "s e 2"]:
  """Return logits of "any other class" and of class `label`, by which the softmax is the same."""
  own = logits[..., label]
  if logits.shape[-1] == 1:
    return jnp.stack([jnp.zeros_like(own), own], -1)
  others = jnp.concatenate([logits[..., :label], logits[..., label + 1 :]], -1)
  return jnp.stack([jax.nn.logsumexp(others, axis=-1), own], -1)
