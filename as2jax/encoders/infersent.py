"""InferSent (Conneau et al. 2017): a bidirectional LSTM over word vectors, for `max` pooling."""

from typing import Annotated, ClassVar

import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Tokens
from as2jax.encoders import weights
from as2jax.encoders.family import register
from as2jax.encoders.static import StaticEncoder, WordVectors
from as2jax.layers.recurrent import Recurrent, from_torch
from as2jax.layers.transformer import Dropout, Embeddings
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, Precision, Rate

_PREFIX = "enc_lstm."


class RecurrentEncoder(nn.Module):
  """Word vectors through one recurrent layer, behind the encoder contract.

  With an LSTM of 2048 in two directions and `max` pooling over each unit it is InferSent, whose
  weights `load` reads; its vocabulary has the markers and leaves unknown words out (`skip`). Of a
  sentence without known words it read `</s>` alone; here that is `<s>`, a zero vector and `</s>`.

    embeddings/word [vocab_size, word_size], recurrent/{forward, backward}/... (`layers.recurrent`)

  Attributes:
    word_size: width of the word vectors.
    hidden_dropout: rate of dropout on the word vectors (InferSent: 0).
    cell, hidden_size, bidirectional, unroll, precision: see `layers.recurrent.Recurrent`; vectors
      have 2·hidden_size numbers where bidirectional.

  """

  vocab_size: int
  word_size: int
  hidden_size: int
  cell: str
  bidirectional: bool
  hidden_dropout: Rate
  unroll: Annotated[int, AtLeast(1)]
  precision: Precision = None

  max_length: ClassVar[None] = None  # units may have any length

  @nn.compact
  def __call__(
    self,
    tokens: Tokens,
    *,
    input_offset: Float[Array, "s r l d"] | None = None,
    all_layers: bool = False,
    train: bool,
  ) -> Float[Array, "s r l h"] | Float[Array, "1 s r l h"]:
    """The layer's outputs, zero at padding; `input_offset` is added to the word vectors.

    Word vectors and outputs differ in width, so that `all_layers` gives the outputs alone.
    """
    s, r, l = tokens.ids.shape
    rows = lambda x: jnp.reshape(x, (s * r, *x.shape[2:]))
    x = Embeddings(self.vocab_size, self.word_size, name="embeddings")(
      tokens, input_offset, train=train
    )
    x = Dropout(self.hidden_dropout)(x, train=train)
    x = Recurrent(
      self.cell, self.hidden_size, self.bidirectional, self.unroll, self.precision, name="recurrent"
    )(rows(x), rows(tokens.position), rows(tokens.segment))
    x = x.reshape(s, r, l, -1)
    return x[None] if all_layers else x

  embedding_table = staticmethod(StaticEncoder.embedding_table)


def load(path: epath.PathLike) -> dict[str, np.ndarray]:
  """Loads `RecurrentEncoder`'s parameters over the vectors from infersent1.pkl or infersent2.pkl.

  The first belongs to GloVe (glove.840B.300d), the second to fastText (crawl-300d-2M).
  """
  tensors = weights.read_file(path)
  try:
    params = from_torch(tensors, _PREFIX)
  except InputError as error:
    raise InputError(f"{path}: {error}") from error
  hidden, width = params["forward"]["recurrent_kernel"].shape
  if "backward" not in params or width != 4 * hidden or len(tensors) != 8:
    raise InputError(f"{path}: holds more or less than one bidirectional LSTM layer {_PREFIX}*_l0*")
  return weights.flat({"recurrent": params})


register(WordVectors("recurrent", "word_size", load))
