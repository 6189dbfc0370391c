"""LOCT: a cross-encoder that reads the sentences around the candidate (Lauriola and Moschitti 2021).

CASSIE's closest peer: the context is joined as text, and roles are told apart by embeddings.
"""

import dataclasses
from typing import Annotated

from jaxtyping import Array, Float

from as2jax.data.batches.batch import Tokens
from as2jax.layers.segment_embeddings import (
  SEGMENTS,
  STARTS,
  SegmentEmbeddings,
  check_fields,
  segment_rows,
)
from as2jax.models.crossencoder import SequenceClassifier
from as2jax.runtime.registry import OneOf

TEMPLATES = ("local_context", "context", "pair")


class LocalContextCrossEncoder(SequenceClassifier):
  """[CLS] question [SEP] previous [SEP] candidate [SEP] next → P(1) by a two-way softmax.

  Attributes:
    template: `local_context`, the paper's order; `context`, which puts the candidate behind the
      question; or `pair`, without context.
    segments: embeddings by role, added to the LM's input embeddings: `four` (question, candidate,
      previous, next), `three` (one for both context sentences) or `none`.
    segments_start: of these embeddings: `normal`, N(0, 0.02), or `zero`.

  """

  template: Annotated[str, OneOf(TEMPLATES)] = dataclasses.field()
  segments: Annotated[str, OneOf(tuple(SEGMENTS))]
  segments_start: Annotated[str, OneOf(STARTS)]

  def setup(self):
    check_fields(self, TEMPLATES)
    if self.segments != "none":
      self.segment_embeddings = SegmentEmbeddings(
        segment_rows(self), self.encoder.hidden_size, self.segments_start
      )

  def input_offset(self, tokens: Tokens) -> Float[Array, "s r l d"] | None:
    """The role embeddings."""
    return None if self.segments == "none" else self.segment_embeddings(tokens)
