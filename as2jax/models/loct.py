"""LOCT: a cross-encoder that reads the sentences around the candidate (Lauriola and Moschitti 2021).

CASSIE's closest peer: the context is joined as text, and roles are told apart by embeddings.
"""

from jaxtyping import Array, Float

from as2jax.data.batch import Tokens
from as2jax.errors import InputError
from as2jax.models.cassie import SEGMENTS, SegmentEmbeddings
from as2jax.models.crossencoder import SequenceClassifier

TEMPLATES = ("local_context", "context", "pair")


class LocalContextCrossEncoder(SequenceClassifier):
  """[CLS] question [SEP] previous [SEP] candidate [SEP] next → P(1) by a two-way softmax.

  Attributes:
    template: `local_context`, the paper's order; `context`, which puts the candidate behind the
      question; or `pair`, without context.
    segments: embeddings by role, N(0, 0.02), added to the LM's input embeddings: `four` (question,
      candidate, previous, next), `three` (one for both context sentences) or `none`.
  """

  template: str
  segments: str

  def input_offset(self, tokens: Tokens) -> Float[Array, "s r l d"] | None:
    """The role embeddings."""
    for name, known in (("template", TEMPLATES), ("segments", tuple(SEGMENTS))):
      if getattr(self, name) not in known:
        raise InputError(f"model.{name} = {getattr(self, name)!r}: use one of {known}")
    if self.segments == "none":
      return None
    rows = SEGMENTS[self.segments] if self.template != "pair" else (0, 1)
    return SegmentEmbeddings(rows, self.encoder.hidden_size, name="segment_embeddings")(tokens)
