"""The words of the texts that examples point to, one text a row: what a decoder generates."""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int

from as2jax.data.batches.batch import Tokens, Units
from as2jax.data.text.word_tokenizer import PAD_ID


@struct.dataclass
class Text:
  """The words of one side of each example, cut to a fixed length: `ids` [s, e, l], `length` [s, e]."""

  ids: Int[Array, "s e l"]
  length: Int[Array, "s e"]

  @property
  def real(self) -> Bool[Array, "s e l"]:
    place = jnp.arange(self.ids.shape[-1], dtype=jnp.int32)[None, None]
    return place < self.length[..., None]


def gather_text(
  tokens: Tokens, units: Units, members: Int[Array, "s e"], mask: Array, size: int
) -> Text:
  """The words of the units that examples point to, from wherever in a row each lies.

  Args:
    members: units, local to their shard; mask: 0 for an example that is padding.
    size: words beyond so many are cut off.

  """
  of = lambda values: jnp.take_along_axis(values, members, axis=1)
  length = jnp.where(mask > 0, jnp.minimum(of(units.length), size), 0)
  text = Text(jnp.zeros((*members.shape, size), jnp.int32), length)
  place = (of(units.row) * tokens.ids.shape[2] + of(units.start))[..., None]
  index = jnp.where(text.real, place + jnp.arange(size, dtype=jnp.int32)[None, None], 0)
  flat = tokens.ids.reshape(len(members), -1)
  ids = jax.vmap(lambda x, i: jnp.take(x, i, axis=0))(flat, index)
  return Text(jnp.where(text.real, ids, PAD_ID), length)


def as_tokens(ids: Int[Array, "s e l"]) -> Tokens:
  """Words as the encoder wants them; word vectors depend on nothing else."""
  none = jnp.zeros_like(ids)
  return Tokens(ids=ids, segment=none + 1, position=none, type=none, role=none)
