"""ELMo (Peters et al. 2018) in Flax Linen, over packed rows."""

from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Tokens
from as2jax.data.inputs.protocol import Input
from as2jax.encoders.bilm import ACTIVATIONS, BidirectionalLayer, CharacterCnn
from as2jax.encoders.characters import Characters, sentence_boundaries
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, Precision

MIXES = ("uniform", "learned", "top")


@struct.dataclass
class State:
  """What the biLM carries from sentence to sentence, by layer n and direction (forward, backward).

  `cell` is the LSTM's memory and `hidden` its (projected) output.
  """

  cell: Float[Array, "s r n 2 c"]
  hidden: Float[Array, "s r n 2 p"]


class LayerMix(nn.Module):
  """γ Σ softmax(w)ₖ hₖ (Peters et al. 2018, equation 1), with `weights` [layers] and `gamma`."""

  @nn.compact
  def __call__(self, layers: Float[Array, "layers ..."]) -> Float[Array, "..."]:
    """Sums the layers over the first axis, with their weights."""
    weights = self.param("weights", nn.initializers.zeros, layers.shape[:1], jnp.float32)
    gamma = self.param("gamma", nn.initializers.ones, (), jnp.float32)
    return gamma * jnp.einsum(
      "k,k...->...", jax.nn.softmax(weights), layers, precision=jax.lax.Precision.HIGHEST
    )


class ElmoEncoder(nn.Module):
  """The bidirectional language model of ELMo: words, as characters, to a mix of its layers.

  Tokens hold words alone. The encoder itself puts `<S>` before and `</S>` behind each unit: a
  direction starts a unit from the state that its mark leaves behind a zero state, which is computed
  once a call. Units of a row are blind to one another, and nothing is carried from call to call
  unless through `with_state`. `elmo_weights` fills the fields that `options.json` states.

  Parameters are `characters` (see `bilm.CharacterCnn`), `layers_{k}/{forward, backward}` (see
  `bilm.ProjectedLstm`) and with a learned mix `layer_mix/{weights, gamma}`. Frozen use is a matter
  of the optimiser. The encoder has no dropout.

  Attributes:
    num_characters: ids of characters, 0 included.
    filters: (width in characters, number) of each convolution.
    max_characters: the length of a word's row of characters.
    activation: of the convolutions, `relu` or `tanh`.
    cell_size: c, the LSTMs' width; their output is projected where it is more than
    projection_dim: p, the width of the token layer and of each direction.
    cell_clip, projection_clip: bounds of the memory and of the projected output, or None.
    skip_connections: each LSTM but the first adds its input to its output.
    mix: `uniform` (the mean of the layers), `learned`, `top`, or the number of a layer, 0 being the
      token layer.
    unroll: time steps that one turn of the compiled loop holds.
    precision: of the matrix products, as `jax.lax.Precision` or its names; None is jax's default.

  """

  num_characters: int
  character_dim: int
  filters: Sequence[tuple[int, int]]
  max_characters: int
  activation: str
  num_highways: int
  num_layers: int
  cell_size: int
  projection_dim: int
  cell_clip: float | None
  projection_clip: float | None
  skip_connections: bool
  mix: str | int
  unroll: Annotated[int, AtLeast(1)]
  precision: Precision

  @property
  def inputs(self) -> tuple[Input, ...]:
    """The characters of words."""
    return (Characters(self.max_characters),)

  def setup(self):
    """Checks the fields and creates the layers."""
    self._check()
    self.characters = CharacterCnn(
      self.num_characters,
      self.character_dim,
      self.filters,
      self.activation,
      self.num_highways,
      self.projection_dim,
      self.precision,
    )
    self.layers = [
      BidirectionalLayer(
        self.cell_size,
        self.projection_dim,
        self.cell_clip,
        self.projection_clip,
        self.skip_connections and k > 0,
        self.unroll,
        self.precision,
      )
      for k in range(self.num_layers)
    ]
    if self.mix == "learned":
      self.layer_mix = LayerMix()

  def __call__(
    self,
    tokens: Tokens,
    *,
    input_offset: Float[Array, "s r l d"] | None = None,
    all_layers: bool = False,
    train: bool,
  ) -> Float[Array, "s r l d"] | Float[Array, "layers s r l d"]:
    """Word vectors of width d = 2p, or (`all_layers`) the token layer, twice, and each biLSTM.

    `input_offset` is added to the token layer: its first half is what the forward direction reads,
    its second the backward one. Vectors at padding are finite and mean nothing.

    Errors: `InputError` where the tokens have no characters, or rows of another length.
    """
    layers, _ = self._run(tokens, input_offset, None)
    if all_layers:
      return jnp.stack(layers)
    if self.mix == "uniform":
      return sum(layers[1:], layers[0]) / len(layers)
    if self.mix == "learned":
      return self.layer_mix(jnp.stack(layers))
    return layers[self._layer()]

  def with_state(
    self, tokens: Tokens, state: State, train: bool = False
  ) -> tuple[Float[Array, "layers s r l d"], State]:
    """All layers, and the state after the sentences, both started from `state`.

    The original biLM ran so: `<S>` (backward `</S>`) is read from the carried state, and what is
    carried on is the state after a sentence's other mark, whatever the length of the others. One
    unit a row; a row without one hands its state on. Start with `zero_state`.
    """
    s, r = tokens.segment.shape[:2]
    carried = [
      [tuple(x[:, :, k, i].reshape(s * r, -1) for x in (state.cell, state.hidden)) for i in (0, 1)]
      for k in range(self.num_layers)
    ]
    layers, after = self._run(tokens, None, carried)
    cell, hidden = (
      jnp.stack([jnp.stack([pair[leaf] for pair in layer], axis=1) for layer in after], axis=1)
      for leaf in (0, 1)
    )
    unmerged = lambda x: x.reshape(s, r, *x.shape[1:])
    return jnp.stack(layers), State(unmerged(cell), unmerged(hidden))

  def zero_state(self, s: int, r: int) -> State:
    """The state of a biLM that has read nothing."""
    shape = (s, r, self.num_layers, 2)
    return State(
      jnp.zeros((*shape, self.cell_size), jnp.float32),
      jnp.zeros((*shape, self.projection_dim), jnp.float32),
    )

  @staticmethod
  def embedding_table(params: Any) -> Any:
    """Character embeddings [num_characters - 1, character_dim]; there is none of words."""
    return params["characters"]["embedding"]

  def _run(self, tokens: Tokens, offset: Array | None, carried: list | None):
    """Layers [s r l d]; where states are carried (a pair a layer, leaves [s·r, ...]), new ones."""
    s, r, l = tokens.segment.shape
    rows = lambda x: jnp.reshape(x, (s * r, *x.shape[2:]))
    words = [self._embed(tokens).reshape(s * r, l, -1)] * 2
    if offset is not None:
      halves = jnp.split(rows(offset).astype(jnp.float32), 2, axis=-1)
      words = [x + half for x, half in zip(words, halves, strict=True)]
    marks = self.characters(jnp.asarray(sentence_boundaries(self.max_characters)))
    n = 1 if carried is None else s * r  # without a state, all units begin alike
    opening = [jnp.broadcast_to(mark, (n, self.projection_dim)) for mark in jnp.split(marks, 2)]
    closing = None if carried is None else opening[::-1]
    if carried is None:
      zero = tuple(jnp.zeros((1, width)) for width in (self.cell_size, self.projection_dim))
      carried = [[zero, zero]] * self.num_layers
    layers, after = [jnp.concatenate(words, axis=-1)], []
    for layer, before in zip(self.layers, carried, strict=True):
      words, opening, closing, states = layer(
        words, opening, closing, before, rows(tokens.position), rows(tokens.segment)
      )
      layers.append(jnp.concatenate(words, axis=-1))
      after.append(states)
    return [x.reshape(s, r, l, -1) for x in layers], after

  def _embed(self, tokens: Tokens) -> Float[Array, "n p"]:
    if Characters.name not in tokens.inputs:
      raise InputError(
        f"ELMo reads characters, and these tokens have none: `tokens.inputs[{Characters.name!r}]`"
      )
    words = tokens.inputs[Characters.name]
    if words.shape[-1] != self.max_characters:
      raise InputError(
        f"ELMo: words come as {words.shape[-1]} characters, the options ask for "
        f"max_characters_per_token = {self.max_characters}"
      )
    return self.characters(words.reshape(-1, self.max_characters))

  def _layer(self) -> int | None:
    """The layer that is read alone, which a config names by a number or its text; else None."""
    if self.mix == "top":
      return self.num_layers
    return int(self.mix) if str(self.mix).isdecimal() else None

  def _check(self):
    if self.activation not in ACTIVATIONS:
      raise InputError(
        f"encoder.activation: {self.activation!r} is none of {', '.join(ACTIVATIONS)}"
      )
    if self.mix not in MIXES and self._layer() not in range(self.num_layers + 1):
      raise InputError(
        f"encoder.mix: {self.mix!r} is none of {', '.join(MIXES)} and no layer from 0 to "
        f"{self.num_layers}"
      )
    if self.projection_dim > self.cell_size:
      raise InputError(
        f"encoder.projection_dim: {self.projection_dim} is more than cell_size {self.cell_size}"
      )
    widest = max(width for width, _ in self.filters)
    if widest > self.max_characters:
      raise InputError(
        f"encoder.filters: one is {widest} characters wide, max_characters is {self.max_characters}"
      )
    if self.unroll < 1:
      raise InputError(f"encoder.unroll: {self.unroll} is less than 1")
