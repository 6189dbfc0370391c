"""ELMo (Peters et al. 2018) in Flax Linen, over packed rows, and its published folders.

Words are read as the bytes of their UTF-8 form between two marks. Ids are one more than in the biLM's
vocabulary of characters, so that 0 can mean no word at all: byte v is v + 1, then come the marks.
A folder holds `options.json` and an HDF5 file of weights.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn
from flax import traverse_util
from jaxtyping import Array, Float, Int, Int32

from as2jax.data.batches.batch import Tokens
from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text import word_tokenizer
from as2jax.encoders import hub, weights
from as2jax.encoders.family import Family, Key, Request, Source, build, register
from as2jax.layers.cpu import Direction, Product, affine, scan_units
from as2jax.layers.recurrent import DIRECTIONS
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object
from as2jax.runtime.registry import AtLeast, OneOf, Precision, check_ranges

MIXES = ("uniform", "learned", "top")
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


def word_characters(words: Sequence[str], max_characters: int) -> Int32[np.ndarray, "n c"]:
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


def sentence_boundaries(max_characters: int) -> Int32[np.ndarray, "2 c"]:
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
  projection/{kernel, bias}
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
    return nn.Dense(self.projection_dim, precision=self.precision, name="projection")(x)


def lstm_step(
  product: Product,
  state: LstmState,
  gates: Float[Array, "b g"],
  *,
  cell_clip: float,
  projection_clip: float,
) -> tuple[LstmState, Array]:
  """One step of an LSTM with a projected output (Sak et al. 2014, without peepholes), clipped.

  The gates are i, j, f, o in this order: c' = clip(σ(f + 1) c + σ(i) tanh j), and the output is
  clip(P σ(o) tanh c').
  """
  cell, hidden = state
  enter, new, forget, leave = jnp.split(gates + product("recurrent", hidden), 4, axis=-1)
  cell = jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
  cell = jnp.clip(cell, -cell_clip, cell_clip)
  hidden = product("projection", jax.nn.sigmoid(leave) * jnp.tanh(cell))
  hidden = jnp.clip(hidden, -projection_clip, projection_clip)
  return (cell, hidden), hidden


class ProjectedLstm(nn.Module):
  """One direction of one layer, with what `scan_units` needs of it.

  input_kernel and recurrent_kernel [p, 4c], bias [4c], projection_kernel [c, p]
  """

  cell_size: int
  projection_dim: int
  cell_clip: float
  projection_clip: float
  precision: Any

  @nn.compact
  def __call__(
    self, words: Float[Array, "b l p"], mark: Float[Array, "1 p"], backward: bool
  ) -> tuple[Direction, Float[Array, "1 p"]]:
    """Returns the direction over `words`, which begins behind `mark`, and the output at the mark."""
    p, c = self.projection_dim, self.cell_size
    kernel = lambda name, shape: self.param(name, INITIALIZER, shape, jnp.float32)
    input_kernel = kernel("input_kernel", (p, 4 * c))
    products: dict[str, Any] = {"recurrent": (kernel("recurrent_kernel", (p, 4 * c)), None)}
    bias = self.param("bias", nn.initializers.zeros, (4 * c,), jnp.float32)
    products["projection"] = (kernel("projection_kernel", (c, p)), None)
    step = partial(lstm_step, cell_clip=self.cell_clip, projection_clip=self.projection_clip)
    gates = lambda x: affine(x, input_kernel, bias, self.precision)
    zero = jnp.zeros((1, c)), jnp.zeros((1, p))
    product = lambda name, x: affine(x, *products[name], self.precision)
    state, output = step(product, zero, gates(mark))
    initial = tuple(jnp.broadcast_to(leaf, (len(words), leaf.shape[-1])) for leaf in state)
    return Direction(step, products, gates(words), initial, backward), output


class BidirectionalLayer(nn.Module):
  """One layer of the biLM: `forward` and `backward`, each a `ProjectedLstm` of its own.

  `skip` adds the inputs of each direction to its outputs; states stay those of the LSTM.
  """

  cell_size: int
  projection_dim: int
  cell_clip: float
  projection_clip: float
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
    """Returns the outputs at the words and at the opening marks, one entry a direction."""
    sizes = (self.cell_size, self.projection_dim, self.cell_clip, self.projection_clip)
    directions, opened = [], []
    for name, x, mark in zip(DIRECTIONS, words, opening, strict=True):
      cell = ProjectedLstm(*sizes, self.precision, name=name)
      direction, output = cell(x, mark, name == "backward")
      directions.append(direction)
      opened.append(output)
    outputs = scan_units(
      directions, position, segment, unroll=self.unroll, precision=self.precision
    )
    if self.skip:
      outputs = [x + output for x, output in zip(words, outputs, strict=True)]
      opened = [x + output for x, output in zip(opening, opened, strict=True)]
    return outputs, opened


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

  Tokens hold words alone; the encoder itself puts `<S>` before and `</S>` behind each unit. Units of a
  row are blind to one another, and no state is carried from unit to unit. There is no dropout.
  Parameters are `characters` (see `CharacterCnn`), `layers_{k}/{forward, backward}` (see
  `ProjectedLstm`) and with a learned mix `layer_mix/{weights, gamma}`.

  Attributes:
    filters: (width in characters, number) of each convolution over a word's `max_characters`.
    cell_size, projection_dim: widths of the LSTMs' memory and of their output.
    cell_clip, projection_clip: bounds of the memory and of the projected output.
    skip_connections: each LSTM but the first adds its input to its output.
    mix: `uniform` (the mean of the layers), `learned`, `top`, or a layer's number (0: token layer).
    unroll: time steps that one turn of the compiled loop holds.

  """

  num_characters: int
  character_dim: int
  filters: Sequence[tuple[int, int]]
  max_characters: int
  activation: Annotated[str, OneOf(tuple(ACTIVATIONS))]
  num_highways: int
  num_layers: int
  cell_size: int
  projection_dim: int
  cell_clip: float
  projection_clip: float
  skip_connections: bool
  mix: str | int
  unroll: Annotated[int, AtLeast(1)]
  precision: Precision = None

  @property
  def inputs(self) -> tuple[Input, ...]:
    """Returns the characters of words."""
    return (Characters(self.max_characters),)

  def setup(self):
    """Checks the fields and creates the layers."""
    check_ranges(type(self), vars(self), "encoder")
    if str(self.mix) not in (*MIXES, *map(str, range(self.num_layers + 1))):
      raise InputError(
        f"encoder.mix: {self.mix!r} is none of {', '.join(MIXES)} and no layer from 0 to "
        f"{self.num_layers}"
      )
    self.characters = CharacterCnn(
      self.num_characters,
      self.character_dim,
      self.filters,
      self.activation,
      self.num_highways,
      self.projection_dim,
      self.precision,
    )
    sizes = (self.cell_size, self.projection_dim, self.cell_clip, self.projection_clip)
    layers = []
    for k in range(self.num_layers):
      skip = self.skip_connections and k > 0
      layers.append(BidirectionalLayer(*sizes, skip, self.unroll, self.precision))
    self.layers = layers
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
    """Returns word vectors of width 2p, or (`all_layers`) the token layer, twice, and each biLSTM.

    `input_offset` is added to the token layer: its first half for the forward direction, its second
    for the backward one. Vectors at padding are finite and mean nothing.
    """
    s, r, l = tokens.segment.shape
    rows = lambda x: jnp.reshape(x, (s * r, *x.shape[2:]))
    characters = tokens.inputs[Characters.name].reshape(-1, self.max_characters)
    words = [self.characters(characters).reshape(s * r, l, -1)] * 2
    if input_offset is not None:
      halves = jnp.split(rows(input_offset).astype(jnp.float32), 2, axis=-1)
      words = [x + half for x, half in zip(words, halves, strict=True)]
    marks = self.characters(jnp.asarray(sentence_boundaries(self.max_characters)))
    opening = jnp.split(marks, 2)
    layers = [jnp.concatenate(words, axis=-1)]
    for layer in self.layers:
      words, opening = layer(words, opening, rows(tokens.position), rows(tokens.segment))
      layers.append(jnp.concatenate(words, axis=-1))
    layers = [x.reshape(s, r, l, -1) for x in layers]
    if all_layers:
      return jnp.stack(layers)
    if self.mix == "uniform":
      return sum(layers[1:], layers[0]) / len(layers)
    if self.mix == "learned":
      return self.layer_mix(jnp.stack(layers))
    return layers[self.num_layers if self.mix == "top" else int(self.mix)]

  @staticmethod
  def embedding_table(params: Any) -> Any:
    """Character embeddings [num_characters - 1, character_dim]; there is none of words."""
    return params["characters"]["embedding"]


FILES = "options.json and *weights.hdf5"
_CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/"
_SIZE = 1 << 16  # several times what any published biLM has
OPTIONS = (
  Key("char_cnn.n_characters", "num_characters", least=NUM_CHARACTERS, largest=NUM_CHARACTERS),
  Key("char_cnn.embedding.dim", "character_dim", largest=_SIZE),
  Key("char_cnn.max_characters_per_token", "max_characters", least=3, largest=_SIZE),
  Key("char_cnn.activation", "activation", words=tuple(ACTIVATIONS)),
  Key("char_cnn.n_highway", "num_highways", 0, least=0, largest=_SIZE),
  Key("lstm.n_layers", "num_layers", largest=_SIZE),
  Key("lstm.dim", "cell_size", largest=_SIZE),
  Key("lstm.projection_dim", "projection_dim", largest=_SIZE),
  Key("lstm.cell_clip", "cell_clip", below=1e9),
  Key("lstm.proj_clip", "projection_clip", below=1e9),
)


def read_options(folder: epath.PathLike) -> dict[str, Any]:
  """Reads the fields of `ElmoEncoder` from the one `*options.json`, but mix, unroll, precision."""
  file = _only(folder, "*options.json")
  stated = traverse_util.flatten_dict(read_object(file, "is it of an ELMo?"), sep=".")
  try:
    fields = {key.field: key.read(stated) for key in OPTIONS}
    fields["filters"] = tuple((int(w), int(n)) for w, n in stated["char_cnn.filters"])
  except (KeyError, TypeError, ValueError) as error:
    raise InputError(f"{file}: {error}; is it of an ELMo?") from None
  fields["skip_connections"] = bool(stated.get("lstm.use_skip_connections"))
  return fields


def load(folder: epath.PathLike) -> tuple[dict[str, Any], dict[str, Any]]:
  """Loads the fields of `ElmoEncoder` that a folder's options state, and the biLM's parameters.

  They come from the one `*weights.hdf5`; what has no place in the biLM is ignored. InputError names what
  is missing, misshapen or not finite.
  """
  import h5py

  fields, params = read_options(folder), {}
  file = _only(folder, "*weights.hdf5")
  try:
    with file.open("rb") as stream, h5py.File(stream, "r") as content:
      for path, name, shape in _places(fields):
        dataset = content.get(name)
        if getattr(dataset, "shape", None) != shape:
          raise InputError(
            f"{file}: the dataset {name!r} is {dataset}; the options ask for {list(shape)}"
          )
        value = np.asarray(dataset, np.float32)
        weights.check_finite({name: value}, file)
        if path.endswith("/kernels"):  # one product of [input; output] there
          stem, p = path.removesuffix("kernels"), fields["projection_dim"]
          params[stem + "input_kernel"], params[stem + "recurrent_kernel"] = value[:p], value[p:]
        else:
          params[path] = value.reshape(value.shape[-3:])  # of a convolution over one row
  except InputError:
    raise
  except (OSError, RuntimeError, KeyError, ValueError) as error:  # h5py raises all of these
    raise InputError(f"{file}: not a whole HDF5 file ({error}); fetch or copy it again") from None
  return fields, traverse_util.unflatten_dict(params, sep="/")


def _places(fields: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
  """Yields (our path, dataset, its shape); `kernels` of an LSTM are both of its kernels."""
  dim, p, c = fields["character_dim"], fields["projection_dim"], fields["cell_size"]
  yield "characters/embedding", "char_embed", (fields["num_characters"] - 1, dim)
  for i, (width, number) in enumerate(fields["filters"]):
    ours = f"characters/convolution_{i}/"
    yield ours + "kernel", f"CNN/W_cnn_{i}", (1, width, dim, number)
    yield ours + "bias", f"CNN/b_cnn_{i}", (number,)
  total = sum(number for _, number in fields["filters"])
  for i in range(fields["num_highways"]):
    for part in ("carry", "transform"):
      ours = f"characters/highway_{i}/{part}/"
      yield ours + "kernel", f"CNN_high_{i}/W_{part}", (total, total)
      yield ours + "bias", f"CNN_high_{i}/b_{part}", (total,)
  yield "characters/projection/kernel", "CNN_proj/W_proj", (total, p)
  yield "characters/projection/bias", "CNN_proj/b_proj", (p,)
  for k in range(fields["num_layers"]):
    for number, direction in enumerate(("forward", "backward")):
      ours, theirs = f"layers_{k}/{direction}/", _CELL.format(number, k)
      yield ours + "kernels", theirs + "W_0", (2 * p, 4 * c)
      yield ours + "bias", theirs + "B", (4 * c,)
      yield ours + "projection_kernel", theirs + "W_P_0", (c, p)


def _only(folder: epath.PathLike, pattern: str) -> epath.Path:
  files = sorted(epath.Path(folder).glob(pattern))
  if len(files) != 1:
    names = ", ".join(file.name for file in files) or "none"
    raise InputError(
      f"{folder}: of {pattern} there must be one, found {names}; an ELMo folder holds one "
      "options.json and one *weights.hdf5"
    )
  return files[0]


# ELMo "original", 93.6 million parameters, as its options state it:
# https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/
PUBLISHED = {
  "num_characters": 262,
  "character_dim": 16,
  "filters": ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
  "max_characters": 50,
  "activation": "relu",
  "num_highways": 2,
  "num_layers": 2,
  "cell_size": 4096,
  "projection_dim": 512,
  "cell_clip": 3,
  "projection_clip": 3,
  "skip_connections": True,
}


class Elmo(Family):
  """ELMo reads any word by its characters: each table of texts has a vocabulary of its own."""

  name = "elmo"
  of_words = True

  def open(self, section: Mapping[str, Any], request: Request) -> Source:
    """Opens the folder `pretrained` with the section's mix."""
    fields, params = load(hub.given_folder(section["pretrained"], request.root, FILES))
    splitter = word_tokenizer.splitter(lower=False, treebank=section["treebank"])

    def open_vocabulary(texts: Iterable[str]) -> Any:
      return word_tokenizer.build(sorted(word_tokenizer.count(texts, splitter)), splitter)

    return Source(
      module=build(section, ("pretrained", "treebank"), **fields),
      params=weights.flat(params),
      tokenizer=None,
      max_length=None,
      provenance={"pretrained": section["pretrained"], "family": self.name},
      open_vocabulary=open_vocabulary,
    )

  def describe(self, section: Mapping[str, Any]) -> Source:
    """Builds the published ELMo."""
    module = build(section, ("pretrained", "treebank"), **PUBLISHED)
    return Source(module, {}, None, None, {"family": self.name})

  def check_there(self, section: Mapping[str, Any], root: str) -> None:
    """Raises InputError where the folder is not here."""
    hub.given_folder(section["pretrained"], root, FILES)

  def is_published(self, section: Mapping[str, Any], root: str) -> bool:
    """Tells whether the options are those of the original; InputError where there are none."""
    return read_options(hub.given_folder(section["pretrained"], root, FILES)) == PUBLISHED


register(Elmo())
