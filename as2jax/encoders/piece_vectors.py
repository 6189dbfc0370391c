"""Vectors of whole words from the input table of a BERT (Cross-VAEs, section 4.3)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import hub, transformer_folder
from as2jax.encoders.family import Family, Request, Source, build, register
from as2jax.encoders.static import (
  WORDS,
  StaticEncoder,  # noqa: F401 (`words` in the registry)
  WordEncoding,
  check_word,
  kept_encoding,
  word_encoding,
)
from as2jax.runtime.errors import InputError


def prepare(
  texts: Iterable[str],
  folder: epath.PathLike,
  *,
  size: int,
  marks: Sequence[str],
  scale: float = 1.0,
  others: Iterable[str] = (),
) -> WordEncoding:
  """Makes the vocabulary of `texts`, with vectors from the BERT in `folder`.

  Texts are cleaned, lower-cased (where the BERT is) and split at spaces and punctuation as its own
  tokeniser does it before it looks for pieces. A word that the BERT has takes its row, any other
  the mean of its pieces' rows. Ids: `[PAD]` (a zero row), `[UNK]` (the BERT's), the marks, the
  words of `texts` by frequency, then those words of `others` that are not among them. `output_size`
  in the statistics is the number of rows before these last ones: what a decoder may generate.

  Raises InputError: a folder without a BERT, marks that it lacks.

  Args:
    size: the most frequent so many words of `texts` (0: all); the rest is read if `others` hold it.
    marks: two pieces of the BERT that are put before and after each text.
    scale: factor of all vectors. As a BERT has them (s.d. 0.05) its texts differ by little at the
      output of a GRU, and matching takes long to begin.

  """
  tokenizer = transformer_folder.check_vocabulary(load_tokenizer(str(folder)), folder)
  backend, table = tokenizer.backend, transformer_folder.load_table(folder)
  if type(backend.model).__name__ != "WordPiece" or backend.pre_tokenizer is None:
    raise InputError(
      f"{folder}: its tokeniser is no BERT's (WordPiece), so it does not say where words begin; name "
      "a BERT in encoder.pretrained"
    )
  known = backend.get_vocab()
  if len(marks) != 2 or not known.keys() >= {word_tokenizer.UNKNOWN, *marks}:
    raise InputError(
      f"encoder.marks = {tuple(marks)}: give two entries of the vocabulary in {folder}, such as "
      f"('[CLS]', '[SEP]'); it must have {word_tokenizer.UNKNOWN}, too"
    )
  counts = word_tokenizer.count(texts, backend)
  words = word_tokenizer.by_frequency(counts)
  generated = words[: size or len(words)]
  # Not generated: words of the other texts and, where they are read, those that `size` leaves out.
  more = word_tokenizer.count(others, backend)
  for word in generated:
    more.pop(word, None)
  read = word_tokenizer.by_frequency(more)
  new_tokenizer = word_tokenizer.build([*marks, *generated, *read], backend, markers=marks)
  rows = np.zeros((new_tokenizer.vocab_size, table.shape[1]), np.float32)
  for i, word in enumerate(word_tokenizer.entries(new_tokenizer)):
    ids = [known.get(word)]
    if word not in known:
      ids = [piece.id for piece in backend.model.tokenize(word)]
    rows[i] = scale * table[ids].mean(axis=0, dtype=np.float64)
  rows[word_tokenizer.PAD_ID] = 0
  return word_encoding(
    new_tokenizer,
    rows,
    size=len(rows),
    output_size=len(rows) - len(read),
    types=len(counts),
    tokens=counts.total(),
    read_types=len(read),
    marks=list(marks),
    scale=scale,
  )


class Words(Family):
  """Whole words with vectors from a BERT's input table (Cross-VAEs)."""

  name = "words"

  def open(self, section: Mapping[str, Any], request: Request) -> Source:
    """Opens the run's words; `encoder.vocabulary` says whether other splits' words are read."""

    def make() -> WordEncoding:
      check_word(section["vocabulary"], ("data", "train"), "vocabulary")
      return prepare(
        request.texts("train"),
        hub.resolve(section["pretrained"]),
        size=section["size"],
        marks=section["marks"],
        scale=section["scale"],
        others=request.texts() if section["vocabulary"] == "data" else (),
      )

    encoding = kept_encoding(request.workdir, make)
    statistics, vocabulary = encoding.statistics, encoding.tokenizer.backend
    rows, width = encoding.table.shape
    marks = tuple(vocabulary.token_to_id(mark) for mark in statistics["marks"])
    return Source(
      module=self._module(section, rows, width),
      params={"embeddings/word": encoding.table},
      tokenizer=encoding.tokenizer,
      max_length=None,
      model_fields={"marks": marks, "output_size": statistics["output_size"]},
      provenance={"pretrained": section["pretrained"], "family": self.name, "words": statistics},
    )

  def describe(self, section: Mapping[str, Any]) -> Source:
    """Builds the table of as many words as a data set may have."""
    generated = section["size"] or WORDS
    rows = WORDS if section["vocabulary"] == "data" else generated
    spec = section["pretrained"]
    known = transformer_folder.published(spec) or transformer_folder.read_family(hub.resolve(spec))
    width = known[1].get("embedding_size", known[1]["hidden_size"])
    fields = {"marks": (2, 3), "output_size": generated}
    module = self._module(section, rows, width)
    return Source(module, {}, None, None, {"family": self.name}, model_fields=fields)

  def check_there(self, section: Mapping[str, Any], root: str) -> None:
    """Raises InputError where the BERT is neither here nor on the hub."""
    if reason := hub.absent(section["pretrained"]):
      raise InputError(
        f"{section['pretrained']} is not here ({reason}); name a BERT that is in encoder.pretrained"
      )

  def _module(self, section: Mapping[str, Any], rows: int, width: int) -> Any:
    left_out = ("pretrained", "vocabulary", "size", "scale", "marks")
    return build(section, left_out, vocab_size=rows, hidden_size=width)


register(Words())
