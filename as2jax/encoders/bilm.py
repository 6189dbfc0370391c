"""The parts of ELMo's language model: words from characters, and clipped, projected LSTMs.

Words are read as the bytes of their UTF-8 form between two marks. Ids are one more than in the biLM's
vocabulary of characters, so that 0 can mean no word at all: byte v is v + 1, then come the marks.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, Int32

from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text import word_tokenizer
from as2jax.layers.cpu import Direction, Product, Products, affine, scan_units, single
from as2jax.layers.recurrent import DIRECTIONS

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
INITIALIZER = nn.initializers.lecun_normal()
LstmState = tuple[Array, Array]  # the cell's memory [b, c] and the (projected) output [b, p]
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(257, 262)
NUM_CHARACTERS = 262  # with 0, the id of no word


@dataclasses.dataclass(frozen=True)
class Characters(Input):
  """The character ids of each token's word, int32 `[vocabulary, max_characters]`."""

  max_characters: int

  name: ClassVar[str] = "characters"
  level: ClassVar[str] = "vocabulary"

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Int32[np.ndarray, "v c"]:
    """The characters of each entry of the vocabulary."""
    return word_characters(word_tokenizer.entries(tables.tokenizer), self.max_characters)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """`max_characters` int32 an id."""
    return (self.max_characters,), np.int32


def word_characters(words: Sequence[str], max_characters: int = 50) -> Int32[np.ndarray, "n c"]:
  """Returns character ids of words: begin of word, at most `max_characters` − 2 bytes, end, padding.

  A lone surrogate, which UTF-8 has no bytes for, is left out.
  """
  ids = np.full((len(words), max_characters), PADDING, np.int32)
  ids[:, 0] = WORD_BEGIN
  for row, word in zip(ids, words, strict=True):
    text = word.encode("utf-8", "ignore")[: max_characters - 2]
    row[1 : len(text) + 1] = np.frombuffer(text, np.uint8).astype(np.int32) + 1
    row[len(text) + 1] = WORD_END
  return ids


def sentence_boundaries(max_characters: int = 50) -> Int32[np.ndarray, "2 c"]:
  """The character ids of `<S>` and `</S>`: words of one character that no byte has."""
  ids = np.full((2, max_characters), PADDING, np.int32)
  ids[:, :3] = [[WORD_BEGIN, mark, WORD_END] for mark in (SENTENCE_BEGIN, SENTENCE_END)]
  return ids


class Highway(nn.Module):
  """g relu(Wx + b) + (1 - g) x with g = σ(Vx + a) (Srivastava et al. 2015)."""

  precision: Any

  @nn.compact
  def __call__(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Applies the layer to the last axis."""
    dense = partial(nn.Dense, x.shape[-1], precision=self.precision)
    gate = jax.nn.sigmoid(dense(name="carry")(x))
    return gate * jax.nn.relu(dense(name="transform")(x)) + (1 - gate) * x


class CharacterCnn(nn.Module):
  """Word vectors from character ids alone (Kim et al. 2016): the token layer of the biLM.

  embedding [num_characters - 1, character_dim] (the id 0 has the zero vector)
  convolution_{i}/{kernel [width, character_dim, number], bias}
  highway_{i}/{carry, transform}/{kernel, bias}
  projection/{kernel, bias}, unless the filters add up to `projection_dim`
  """

  num_characters: int
  character_dim: int
  filters: Sequence[tuple[int, int]]
  activation: str
  num_highways: int
  projection_dim: int
  precision: Any

  @nn.compact
  def __call__(self, characters: Int[Array, "n c"]) -> Float[Array, "n p"]:
    """Returns the vectors of words from their character ids, which 0 pads."""
    shape = (self.num_characters - 1, self.character_dim)
    table = self.param("embedding", nn.initializers.uniform(1.0), shape, jnp.float32)
    x = jnp.take(jnp.pad(table, ((1, 0), (0, 0))), characters, axis=0)
    features = []
    for i, (width, number) in enumerate(self.filters):
      convolve = nn.Conv(
        number, (width,), padding="VALID", precision=self.precision, name=f"convolution_{i}"
      )
      # The maximum is over every place that a filter fits in, padding of the word included.
      features.append(ACTIVATIONS[self.activation](convolve(x).max(axis=1)))
    x = jnp.concatenate(features, axis=-1)
    for i in range(self.num_highways):
      x = Highway(self.precision, name=f"highway_{i}")(x)
    if x.shape[-1] != self.projection_dim:
      x = nn.Dense(self.projection_dim, precision=self.precision, name="projection")(x)
    return x


def lstm_step(
  product: Product,
  state: LstmState,
  gates: Float[Array, "b g"],
  *,
  projects: bool,
  cell_clip: float | None,
  projection_clip: float | None,
) -> tuple[LstmState, Array]:
  """One step of an LSTM with a projected output (Sak et al. 2014, without peepholes), clipped.

  The gates are i, j, f, o in this order: c' = clip(σ(f + 1) c + σ(i) tanh j), and the output is
  clip(P σ(o) tanh c'), or where nothing `projects` just σ(o) tanh c', unclipped.
  """
  cell, hidden = state
  enter, new, forget, leave = jnp.split(gates + product("recurrent", hidden), 4, axis=-1)
  cell = jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
  if cell_clip is not None:
    cell = jnp.clip(cell, -cell_clip, cell_clip)
  hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
  if projects:
    hidden = product("projection", hidden)
    if projection_clip is not None:
      hidden = jnp.clip(hidden, -projection_clip, projection_clip)
  return (cell, hidden), hidden


class ProjectedLstm(nn.Module):
  """Parameters of one direction of one layer, and what `scan_units` needs of them.

  input_kernel and recurrent_kernel [p, 4c], bias [4c], projection_kernel [c, p] unless c = p
  """

  cell_size: int
  projection_dim: int
  cell_clip: float | None
  projection_clip: float | None
  precision: Any

  def setup(self):
    """Creates the parameters."""
    p, c = self.projection_dim, self.cell_size
    kernel = lambda name, shape: self.param(name, INITIALIZER, shape, jnp.float32)
    self.input_kernel = kernel("input_kernel", (p, 4 * c))
    self.recurrent_kernel = kernel("recurrent_kernel", (p, 4 * c))
    self.bias = self.param("bias", nn.initializers.zeros, (4 * c,), jnp.float32)
    if p < c:
      self.projection_kernel = kernel("projection_kernel", (c, p))

  def project(self, x: Float[Array, "... p"]) -> Float[Array, "... g"]:
    """The gates' share of the inputs, with the bias."""
    return affine(x, self.input_kernel, self.bias, self.precision)

  def products(self) -> Products:
    """The matrices that each step multiplies by, as `scan_units` takes them."""
    matrices = {"recurrent": (self.recurrent_kernel, None)}
    if self.projection_dim < self.cell_size:
      matrices["projection"] = (self.projection_kernel, None)
    return matrices

  def step(self) -> Callable[[Product, LstmState, Array], tuple[LstmState, Array]]:
    """The step function, free of this module."""
    return partial(
      lstm_step,
      projects=self.projection_dim < self.cell_size,
      cell_clip=self.cell_clip,
      projection_clip=self.projection_clip,
    )

  def __call__(self, state: LstmState, x: Float[Array, "b p"]) -> tuple[LstmState, Array]:
    """A single step: the new state and the output."""
    return self.step()(single(self.products(), self.precision), state, self.project(x))


class BidirectionalLayer(nn.Module):
  """One layer of the biLM: `forward` and `backward`, each a `ProjectedLstm` of its own.

  `skip` adds the inputs of each direction to its outputs; states stay those of the LSTM.
  """

  cell_size: int
  projection_dim: int
  cell_clip: float | None
  projection_clip: float | None
  skip: bool
  unroll: int
  precision: Any

  @nn.compact
  def __call__(
    self,
    words: Sequence[Float[Array, "b l p"]],
    opening: Sequence[Float[Array, "1 p"]],
    position: Int[Array, "b l"],
    segment: Int[Array, "b l"],
  ) -> tuple[list[Float[Array, "b l p"]], list[Float[Array, "1 p"]]]:
    """Returns the outputs at the words and at the opening marks, one entry a direction.

    A direction reads its mark from a zero state and then a unit's words, for every unit alike.
    """
    b = segment.shape[0]
    zero = tuple(jnp.zeros((1, width)) for width in (self.cell_size, self.projection_dim))
    directions, opened = [], []
    for name, x, mark in zip(DIRECTIONS, words, opening, strict=True):
      cell = ProjectedLstm(
        self.cell_size,
        self.projection_dim,
        self.cell_clip,
        self.projection_clip,
        self.precision,
        name=name,
      )
      state, output = cell(zero, mark)
      opened.append(output)
      initial = tuple(jnp.broadcast_to(leaf, (b, leaf.shape[-1])) for leaf in state)
      directions.append(
        Direction(cell.step(), cell.products(), cell.project(x), initial, name == "backward")
      )
    scanned = scan_units(
      directions, position, segment, unroll=self.unroll, precision=self.precision
    )
    outputs = [output for output, _ in scanned]
    if self.skip:
      outputs = [x + output for x, output in zip(words, outputs, strict=True)]
      opened = [x + output for x, output in zip(opening, opened, strict=True)]
    return outputs, opened
