"""ELMo (Peters et al. 2018) in Flax Linen, over packed rows, and its published folders.

A folder holds `options.json` and an HDF5 file of weights.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from etils import epath
from flax import linen as nn
from flax import struct, traverse_util
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Tokens
from as2jax.data.inputs.protocol import Input
from as2jax.data.text import word_tokenizer
from as2jax.encoders import hub, weights
from as2jax.encoders.bilm import (
  ACTIVATIONS,
  NUM_CHARACTERS,
  BidirectionalLayer,
  CharacterCnn,
  Characters,
  sentence_boundaries,
)
from as2jax.encoders.family import Family, Request, Source, build, check_fields, register
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, refuse_others
from as2jax.runtime.registry import AtLeast, OneOf, Precision

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
  unless through `with_state`. `read_options` gives the fields that `options.json` states.

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
  activation: Annotated[str, OneOf(tuple(ACTIVATIONS))]
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
    check_fields(self)
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


GROUPS = ("CNN", "RNN_0", "char_embed")  # what tells weights from other HDF5 files of a folder
MAX_PACKING = 8  # bytes of weights for a byte of file: compression does not save so much
_CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/"
_EXPECTED = "an ELMo folder holds one options.json (or *_options.json) and one *.hdf5 of weights"


def load(folder: epath.PathLike) -> tuple[dict[str, Any], dict[str, Any]]:
  """Loads the fields of `ElmoEncoder` that a folder's options state, and the biLM's parameters.

  The fields `mix`, `unroll` and `precision`, and the parameters of a learned mix, are the user's.

  Raises:
    InputError: see `read_options` and `read_params`.

  """
  fields = read_options(folder)
  return fields, read_params(folder, fields)


def read_options(folder: epath.PathLike) -> dict[str, Any]:
  """Reads the fields of `ElmoEncoder` from `options.json`, or the one `*_options.json`.

  Raises:
    InputError: no or several such files, invalid JSON, a missing key, or a value that this encoder
      has no meaning for.

  """
  folder = epath.Path(folder)
  if not folder.is_dir():
    raise InputError(f"{folder}: no such folder; {_EXPECTED}")
  file = folder / "options.json"
  if not file.exists():
    file = _only(folder, sorted(folder.glob("*_options.json")), "options.json and *_options.json")
  return fields_of(read_json(file), file)


def _is_number(value: Any, least: float = 0) -> bool:
  return type(value) in (int, float) and value > least


def _is_positive(value: Any) -> bool:
  return type(value) is int and value > 0


def _are_filters(value: Any) -> bool:
  if not isinstance(value, list) or not value:
    return False
  return all(isinstance(p, list) and len(p) == 2 and all(map(_is_positive, p)) for p in value)


def _is_none_or(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
  """Absent clips are none, absent skip connections and highways too, as in the original code."""
  return lambda value: value is None or good(value)


_OPTIONS = (  # field, place in the options, what is good, how to say it
  ("num_characters", "char_cnn.n_characters", lambda v: v == NUM_CHARACTERS,
   f"{NUM_CHARACTERS} (261 is what training has)"),
  ("character_dim", "char_cnn.embedding.dim", _is_positive, "a positive integer"),
  ("filters", "char_cnn.filters", _are_filters, "pairs of positive integers"),
  ("max_characters", "char_cnn.max_characters_per_token",
   lambda v: _is_positive(v) and v > 2, "an integer above 2"),
  ("activation", "char_cnn.activation", lambda v: v in tuple(ACTIVATIONS),
   "one of " + ", ".join(ACTIVATIONS)),
  ("num_highways", "char_cnn.n_highway",
   _is_none_or(lambda v: type(v) is int and v >= 0), "an integer"),
  ("num_layers", "lstm.n_layers", _is_positive, "a positive integer"),
  ("cell_size", "lstm.dim", _is_positive, "a positive integer"),
  ("projection_dim", "lstm.projection_dim", _is_positive, "a positive integer"),
  ("cell_clip", "lstm.cell_clip", _is_none_or(_is_number), "a positive number"),
  ("projection_clip", "lstm.proj_clip", _is_none_or(_is_number), "a positive number"),
  ("skip_connections", "lstm.use_skip_connections",
   lambda v: v in (None, True, False), "true or false"),
)  # fmt: skip


def fields_of(options: Any, file: epath.PathLike) -> dict[str, Any]:
  """Returns the fields of `ElmoEncoder` that parsed options state; `file` is named in errors."""
  for section in ("lstm", "char_cnn"):
    if not isinstance(options, dict) or not isinstance(options.get(section), dict):
      raise InputError(f"{file}: the section {section!r} is missing; these are no ELMo options")
  fields = {}
  for field, place, good, what in _OPTIONS:
    value = options
    for part in place.split("."):
      value = value.get(part) if isinstance(value, dict) else None
    if value is None and not good(None):
      raise InputError(f"{file}: the key {place} is missing")
    if not good(value):
      raise InputError(f"{file}: {place} is {value!r}, expected {what}")
    fields[field] = value
  fields["num_highways"] = fields["num_highways"] or 0
  fields["skip_connections"] = bool(fields["skip_connections"])
  fields["filters"] = tuple((width, number) for width, number in fields["filters"])
  if fields["projection_dim"] > fields["cell_size"]:
    raise InputError(
      f"{file}: lstm.projection_dim {fields['projection_dim']} is more than lstm.dim "
      f"{fields['cell_size']}; a projection makes the output smaller"
    )
  widest = max(width for width, _ in fields["filters"])
  if widest > fields["max_characters"]:
    raise InputError(
      f"{file}: a filter of {widest} characters does not fit into the "
      f"{fields['max_characters']} of char_cnn.max_characters_per_token"
    )
  return fields


def read_params(folder: epath.PathLike, fields: dict[str, Any]) -> dict[str, Any]:
  """Reads the parameters of the biLM that `fields` describe, as float32 numpy arrays.

  They come from the one HDF5 file of the folder that has the groups of an ELMo's weights; others,
  such as recorded embeddings, are passed over. A softmax over words is ignored and logged.

  Raises:
    InputError: no or several such files, a file that is not whole, a missing, misshapen or unknown
      dataset, or a number that is not finite.

  """
  folder = epath.Path(folder)
  named = [f for f in sorted(folder.glob("*.hdf5")) if _opened(f, set).issuperset(GROUPS)]
  file = _only(folder, named, f"*.hdf5 with {', '.join(GROUPS)}")
  datasets = weights.check_finite(_read(file), file)
  flat = {}
  for path, name, shape in _places(fields):
    if name not in datasets:
      raise InputError(f"{file}: the dataset {name!r} {list(shape)} is missing")
    value = datasets.pop(name)
    if value.shape != shape:
      raise InputError(
        f"{file}: the dataset {name!r} has shape {list(value.shape)}, the options ask for "
        f"{list(shape)}"
      )
    if path.endswith("/kernels"):  # one product of [input; output] there
      stem, p = path.removesuffix("kernels"), fields["projection_dim"]
      flat[stem + "input_kernel"], flat[stem + "recurrent_kernel"] = value[:p], value[p:]
    else:
      flat[path] = value[0] if value.ndim == 4 else value
  ignored = sorted(name for name in datasets if name.startswith("softmax"))
  unknown = sorted(set(datasets) - set(ignored))
  if unknown:
    raise InputError(
      f"{file}: the dataset {unknown[0]!r} {list(datasets[unknown[0]].shape)} has no place in the "
      "biLM that the options describe"
    )
  if ignored:
    logging.info("%s: not part of the encoder, ignored: %s", file, ", ".join(ignored))
  return traverse_util.unflatten_dict(flat, sep="/")


def _places(fields: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
  """(our path, dataset, its shape); `kernels` of an LSTM are both of its kernels."""
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
  if total != p:
    yield "characters/projection/kernel", "CNN_proj/W_proj", (total, p)
    yield "characters/projection/bias", "CNN_proj/b_proj", (p,)
  for k in range(fields["num_layers"]):
    for number, direction in enumerate(("forward", "backward")):
      ours, theirs = f"layers_{k}/{direction}/", _CELL.format(number, k)
      yield ours + "kernels", theirs + "W_0", (2 * p, 4 * c)
      yield ours + "bias", theirs + "B", (4 * c,)
      if p < c:
        yield ours + "projection_kernel", theirs + "W_P_0", (c, p)


def _only(folder: epath.Path, files: list[epath.Path], what: str) -> epath.Path:
  if len(files) != 1:
    names = ", ".join(file.name for file in files) or "none"
    raise InputError(f"{folder}: of {what} there must be one, found {names}; {_EXPECTED}")
  return files[0]


def _read(file: epath.Path) -> dict[str, np.ndarray]:
  """All datasets by their full names; those of a softmax, as long as a vocabulary, empty.

  HDF5 gives zeros for what a file declares and does not hold, however much that is: refused.
  """
  import h5py

  arrays, total, length = {}, [], file.stat().length

  def visit(name, item):
    if not isinstance(item, h5py.Dataset):
      return
    if not isinstance(name, str):  # bytes, where they are no UTF-8
      raise InputError(f"{file}: the dataset {name!r} has no readable name; fetch or copy it again")
    if item.dtype.kind != "f":
      raise InputError(f"{file}: the dataset {name!r} holds no numbers but {item.dtype}")
    if name.startswith("softmax"):
      arrays[name] = np.empty(0)
      return
    if item.shape is None or item.is_virtual or item.external:
      raise InputError(f"{file}: the dataset {name!r} has no numbers in this file")
    stored = item.id.get_storage_size()
    total.append(item.nbytes)
    packed = item.id.get_create_plist().get_nfilters() > 0
    if sum(total) > MAX_PACKING * length or item.nbytes > stored and not packed:
      raise InputError(
        f"{file}: the dataset {name!r} {list(item.shape)} takes {item.nbytes:,} bytes, of which "
        f"the file holds {stored:,}; fetch or copy it again"
      )
    arrays[name] = np.asarray(item[...], np.float32)

  _opened(file, lambda content: content.visititems(visit))
  return arrays


def _opened(file: epath.Path, read: Callable[[Any], Any]) -> Any:
  import h5py

  try:
    refuse_others(file)
    with file.open("rb") as stream, h5py.File(stream, "r") as content:
      return read(content)
  except InputError:
    raise
  except (OSError, RuntimeError, KeyError, ValueError) as error:  # h5py raises all of these
    reason = str(error).splitlines() or [type(error).__name__]
    raise InputError(
      f"{file}: not a whole HDF5 file ({reason[0]}); fetch or copy it again"
    ) from None


# ELMo "original", 93.6 million parameters: its public options file, and what that states.
PUBLISHED = (
  "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
  "elmo_2x4096_512_2048cnn_2xhighway_options.json",
  {
    "lstm": {
      "use_skip_connections": True,
      "projection_dim": 512,
      "cell_clip": 3,
      "proj_clip": 3,
      "dim": 4096,
      "n_layers": 2,
    },
    "char_cnn": {
      "activation": "relu",
      "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
      "n_highway": 2,
      "embedding": {"dim": 16},
      "n_characters": 262,
      "max_characters_per_token": 50,
    },
  },
)


class Elmo(Family):
  """ELMo reads any word by its characters: each table of texts has a vocabulary of its own."""

  name = "elmo"
  of_words = True

  def open(self, section: Mapping[str, Any], request: Request) -> Source:
    """Opens the folder `pretrained` with the section's mix."""
    fields, params = load(self._folder(section, request.root))
    treebank = section["treebank"]

    def open_vocabulary(texts: Iterable[str]) -> Any:
      counts = word_tokenizer.count(texts, lower=False, treebank=treebank)
      return word_tokenizer.build(
        sorted(counts), lower=False, treebank=treebank, skip_unknown=False, markers=()
      )

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
    address, options = PUBLISHED
    module = build(section, ("pretrained", "treebank"), **fields_of(options, address))
    return Source(module, {}, None, None, {"family": self.name})

  def check_there(self, section: Mapping[str, Any], root: str) -> None:
    """Raises InputError where the folder is not here."""
    self._folder(section, root)

  def _folder(self, section: Mapping[str, Any], root: str) -> epath.Path:
    return hub.given_folder(section["pretrained"], root, "options.json and *.hdf5")


register(Elmo())
