"""Embeddings of the role of a token, added to the encoder's own (CASSIE section 3.1, LOCT)."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Tokens
from as2jax.runtime.errors import InputError

STARTS = {"normal": nn.initializers.normal(0.02), "zero": nn.initializers.zeros}
# Rows of the table, by role; later roles have the last row.
SEGMENTS = {
  "four": (0, 1, 2, 3),
  "three": (0, 1, 2, 2),
  "ranks": tuple(range(17)),  # of `joint`: the question, the candidates of ranks 1 to 16
  "none": (),
}


class SegmentEmbeddings(nn.Module):
  """Holds learned vectors by role, `embedding` [rows, width]: an `input_offset`.
  `rows` is the row of each role, `width` that of the encoder's hidden vectors; `start` is `normal`,
  N(0, 0.02), or `zero`, by which the encoder begins as it was pretrained.
  """

  rows: tuple[int, ...]
  width: int
  start: str

  @nn.compact
  def __call__(self, tokens: Tokens) -> Float[Array, "s r l d"] | None:
    """Return the vector of each token's role; None where roles have none."""
    if not self.rows:
      return None
    shape = (max(self.rows) + 1, self.width)
    table = self.param("embedding", STARTS[self.start], shape, jnp.float32)
    row = jnp.asarray(self.rows)[jnp.minimum(tokens.role, len(self.rows) - 1)]
    # A product: its gradient adds up over tokens, where that of a lookup scatters into few rows.
    return jnp.einsum(
      "srln,nd->srld", jax.nn.one_hot(row, shape[0]), table, precision=lax.Precision.HIGHEST
    )


def role_embeddings(model: nn.Module) -> SegmentEmbeddings:
  """Return the embeddings of `model.segments`, of two roles without context or ranks.

  Raises InputError for `ranks` in a template that has none, and for an encoder without such input.
  """
  if model.segments == "none":
    return SegmentEmbeddings((), 0, model.segments_start)
  if model.segments == "ranks" and model.template != "joint":
    raise InputError(
      f"model.segments = 'ranks': the template {model.template!r} has no ranks; use it with 'joint'"
    )
  if not hasattr(model.encoder, "hidden_size"):
    raise InputError(
      f"model.segments = {model.segments!r} is added to the input of a transformer; "
      f"{type(model.encoder).__name__} has none: use bert, roberta or xlnet"
    )
  named = "context" in model.template or model.segments == "ranks"
  rows = SEGMENTS[model.segments] if named else (0, 1)
  return SegmentEmbeddings(rows, model.encoder.hidden_size, model.segments_start)
