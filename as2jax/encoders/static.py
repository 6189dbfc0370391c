"""Word vectors as an encoder: each token its row of a table, whatever stands beside it."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath
from flax import linen as nn
from jaxtyping import Array, Float, Float32

from as2jax.data.batches.batch import Tokens
from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenizer import Tokenizer, load_tokenizer
from as2jax.encoders import hub, word_vectors
from as2jax.encoders.family import ENCODER_FOLDER, Family, Request, Source, build, register
from as2jax.layers.transformer import Dropout, Embeddings
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object
from as2jax.runtime.registry import Rate

WORDS = 50_000  # rows of a vocabulary that only the data would tell
# Keys of a config's section that say how the vocabulary is made, no fields of the encoder.
SETTINGS = ("vocabulary", "lower", "treebank", "unknown_words", "markers")
_TABLE, _STATISTICS = "vectors.safetensors", "vectors.json"  # the second is written last
_NAME = "embeddings/word"


class StaticEncoder(nn.Module):
  """Word vectors behind the encoder contract: mean pooling of it is the mean of GloVe or fastText.

  Its one parameter, `embeddings/word` [vocab_size, hidden_size], comes from `prepare`; it is frozen or
  trained as `optimizer.lr_multipliers` says.
  """

  vocab_size: int
  hidden_size: int
  hidden_dropout: Rate

  max_length: ClassVar[None] = None  # units may have any length

  @nn.compact
  def __call__(
    self,
    tokens: Tokens,
    *,
    input_offset: Float[Array, "s r l d"] | None = None,
    all_layers: bool = False,
    train: bool,
  ) -> Float[Array, "s r l d"] | Float[Array, "1 s r l d"]:
    """The vectors of the tokens, `input_offset` added; there is one layer (`all_layers`)."""
    x = Embeddings(self.vocab_size, self.hidden_size, name="embeddings")(
      tokens, input_offset, train=train
    )
    x = Dropout(self.hidden_dropout)(x, train=train)
    return x[None] if all_layers else x

  @staticmethod
  def embedding_table(params: Any) -> Any:
    """The table [vocab_size, d] of this encoder's parameters (`embeddings/word`)."""
    return params["embeddings"]["word"]


@dataclasses.dataclass(frozen=True)
class WordEncoding:
  """A vocabulary, the vectors of its ids, and what results say of them: what a run must remember."""

  tokenizer: Tokenizer
  table: Float32[np.ndarray, "v d"]
  statistics: dict[str, Any]


def prepare(
  texts: Iterable[str],
  path: epath.PathLike,
  *,
  vocabulary: str,
  lower: bool,
  treebank: bool,
  unknown_words: str,
  markers: Sequence[str],
) -> WordEncoding:
  """Makes the vocabulary of `texts`, and takes the vectors of its words from the file `path`.

  A word takes its own row, else that of its lower-cased form, else what `unknown_words` says
  (`word_vectors.lookup`).

  Raises InputError: a setting that is not known, or see `word_vectors.read` and
  `word_tokenizer.build`.

  Args:
    vocabulary: `data`, the words of `texts`, or `file`, all rows of the file, with those words of
      `texts` that have a row by their lower-cased form alone.
    lower, treebank: see `word_tokenizer.splitter`; markers: see `word_tokenizer.build`.

  """
  check_word(vocabulary, ("data", "file"), "vocabulary")  # before minutes of reading
  check_word(unknown_words, word_vectors.UNKNOWN_WORDS, "unknown_words")
  splitter = word_tokenizer.splitter(lower=lower, treebank=treebank)
  counts = word_tokenizer.count(texts, splitter)
  wanted = {*counts, *markers}
  vectors = word_vectors.read(path, None if vocabulary == "file" else wanted)
  there = set(vectors.words)
  ordered = word_tokenizer.by_frequency(counts)
  known = [word for word in ordered if word in there or word.lower() in there]
  words = known if unknown_words == "skip" else ordered
  if vocabulary == "file":
    words = [*vectors.words, *known]
  tokenizer = word_tokenizer.build(
    [*(marker for marker in markers if marker in there), *words],
    splitter,
    skip_unknown=unknown_words == "skip",
    markers=markers,
  )
  entries = word_tokenizer.entries(tokenizer)
  table = word_vectors.lookup(vectors, entries, unknown_words=unknown_words)
  table[word_tokenizer.PAD_ID] = 0
  unknown = set(ordered) - set(known)
  return word_encoding(
    tokenizer,
    table,
    vectors=vectors.statistics,
    vocabulary=vocabulary,
    lower=lower,
    treebank=treebank,
    unknown_words=unknown_words,
    markers=list(markers),
    size=len(entries),
    types=len(counts),
    oov_types=len(unknown),
    tokens=counts.total(),
    oov_tokens=sum(counts[word] for word in unknown),
    frequent_oov=[word for word in ordered if word in unknown][:20],
  )


def check_word(value: str, known: Sequence[str], key: str) -> None:
  """Raises InputError where the encoder's key has another value than those known."""
  if value not in known:
    raise InputError(f"encoder.{key} = {value!r}: use one of {', '.join(known)}")


def word_encoding(tokenizer: Tokenizer, table: np.ndarray, **statistics: Any) -> WordEncoding:
  """Returns a vocabulary with its vectors and their digest."""
  return WordEncoding(tokenizer, table, {**statistics, "sha256": _digest(tokenizer, table)})


def _digest(tokenizer: Tokenizer, table: np.ndarray) -> str:
  sha256 = hashlib.sha256(tokenizer.fingerprint.encode())
  sha256.update(memoryview(np.ascontiguousarray(table)).cast("B"))
  return sha256.hexdigest()


def save(encoding: WordEncoding, folder: epath.PathLike) -> None:
  """Writes `tokenizer.json`, `vectors.safetensors` and, last, `vectors.json`, for `load`."""
  from safetensors import numpy as safetensors

  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  word_tokenizer.save(encoding.tokenizer, folder)
  (folder / _TABLE).write_bytes(safetensors.save({_NAME: np.ascontiguousarray(encoding.table)}))
  (folder / _STATISTICS).write_text(json.dumps(encoding.statistics, indent=2))


def load(folder: epath.PathLike) -> WordEncoding:
  """Loads what `save` wrote; InputError where it is not whole."""
  from safetensors import SafetensorError
  from safetensors import numpy as safetensors

  folder = epath.Path(folder)
  again = "make it again, from the data and the file of vectors"
  statistics = read_object(folder / _STATISTICS, again)
  tokenizer = load_tokenizer(str(folder))
  try:
    table = safetensors.load((folder / _TABLE).read_bytes())[_NAME]
    whole = statistics.get("sha256") == _digest(tokenizer, table)
  except (OSError, ValueError, KeyError, SafetensorError):
    whole = False
  if not whole:
    raise InputError(
      f"{folder}: {_TABLE}, the tokeniser and {_STATISTICS} do not belong together; {again}"
    )
  return WordEncoding(tokenizer, table, statistics)


def kept_encoding(workdir: epath.PathLike, make: Callable[[], WordEncoding]) -> WordEncoding:
  """Loads the vocabulary with its vectors that the run in `workdir` has, or makes and keeps one."""
  if not workdir:
    return make()
  folder = epath.Path(workdir) / ENCODER_FOLDER
  if (folder / _STATISTICS).exists():
    return load(folder)
  encoding = make()
  folder.rmtree(missing_ok=True)  # a part that a killed process left
  save(encoding, folder)
  return encoding


class WordVectors(Family):
  """Encoders over a file of word vectors, whose width is the field `width`: the vocabulary is the run's.

  `read_weights` reads the other parameters, by path, from the file `encoder.weights`.
  """

  of_words = True

  def __init__(self, name: str, width: str, read_weights: Callable | None = None):
    self.name, self.width, self.read_weights = name, width, read_weights

  def open(self, section: Mapping[str, Any], request: Request) -> Source:
    """Opens the vectors of the run's words."""

    def make() -> WordEncoding:
      path = hub.found_file(section["vectors"], request.root, "vectors")
      return prepare(request.texts(), path, **{key: section[key] for key in SETTINGS})

    encoding = kept_encoding(request.workdir, make)
    rows, width = encoding.table.shape
    params, words = {_NAME: encoding.table}, encoding.statistics
    provenance = {"pretrained": section["vectors"], "family": self.name, "words": words}
    if self.read_weights and section["weights"]:
      path = hub.found_file(section["weights"], request.root, "weights")
      params |= self.read_weights(path)
      provenance["weights"] = section["weights"]
    module = self._module(section, rows, width)
    return Source(module, params, encoding.tokenizer, None, provenance)

  def describe(self, section: Mapping[str, Any]) -> Source:
    """Builds the encoder of as many words as a data set may have, as wide as the file's name says."""
    file = section["vectors"]
    widths = re.findall(r"(\d+)d\b", file)
    if not widths:
      raise InputError(
        f"encoder.vectors = {file!r} does not say how wide the vectors are; give such as "
        "glove.6B.300d.txt (the file is not read)"
      )
    module = self._module(section, WORDS, int(widths[-1]))  # folders come before
    return Source(module, {}, None, None, {"family": self.name})

  def check_there(self, section: Mapping[str, Any], root: str) -> None:
    """Raises InputError where the files of vectors or weights are not here."""
    for key in ("vectors", "weights"):
      if section.get(key):
        hub.found_file(section[key], root, key)

  def _module(self, section: Mapping[str, Any], rows: int, width: int) -> Any:
    left_out = ["vectors", *SETTINGS]
    if self.read_weights:
      left_out.append("weights")
    return build(section, left_out, **{"vocab_size": rows, self.width: width})


register(WordVectors("static", "hidden_size"))
