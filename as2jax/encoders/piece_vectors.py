"""Vectors of whole words from the input table of a BERT (Cross-VAEs, section 4.3)."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32

from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenizer import Tokenizer, load_tokenizer
from as2jax.encoders.checkpoints import pretrained
from as2jax.encoders.checkpoints.folders import config_file
from as2jax.encoders.checkpoints.weights import read_tensors
from as2jax.encoders.static import WordEncoding, digest
from as2jax.runtime.errors import InputError

_NAME = "embeddings/word"


def prepare(
  texts: Iterable[str],
  folder: epath.PathLike,
  *,
  size: int,
  marks: Sequence[str],
  scale: float = 1.0,
  others: Iterable[str] = (),
) -> WordEncoding:
  """The vocabulary of `texts`, with vectors from the BERT in `folder`.

  Texts are cleaned, lower-cased (where the BERT is) and split at spaces and punctuation as its own
  tokeniser does it before it looks for pieces. A word that the BERT has takes its row, any other
  the mean of its pieces' rows. Ids: `[PAD]` (a zero row), `[UNK]` (the BERT's), the marks, the
  words of `texts` by frequency, then those words of `others` that are not among them. `output_size`
  in the statistics is the number of rows before these last ones: what a decoder may generate.

  Args:
    size: the most frequent so many words of `texts` come first; 0: all. The rest is unknown, unless
      `others` hold it.
    scale: factor of all vectors. As a BERT has them (s.d. 0.05) its texts differ by little at the
      output of a GRU, and matching takes long to begin.
    others: further texts, whose words are read but never generated.
    marks: two pieces of the BERT that are put before and after each text.

  Raises:
    InputError: a folder without a BERT, marks that it lacks, texts without words.

  """
  tokenizer = pretrained.check_vocabulary(load_tokenizer(str(folder)), folder)
  backend, table = tokenizer.backend, _table(folder)
  known = backend.get_vocab()
  _check(backend, known, marks, folder)
  counts = _count(backend, texts)
  if not counts:
    raise InputError("encoder.vocabulary: the texts hold no word, so there is no vocabulary")
  words = word_tokenizer.by_frequency(counts)
  kept = words[:size] if size else words
  left_out = set(words[len(kept) :])
  more = _count(backend, others)
  # Not generated: words of the other texts and, where they are read, those that `size` leaves out.
  read = word_tokenizer.by_frequency(
    Counter({word: n for word, n in more.items() if word in left_out or word not in counts})
  )
  new_tokenizer = _tokenizer(backend, [*kept, *read], marks)
  rows, whole = np.zeros((new_tokenizer.vocab_size, table.shape[1]), np.float32), 0
  for i, word in enumerate(word_tokenizer.entries(new_tokenizer)):
    if word == word_tokenizer.PAD:
      continue
    whole += word in known
    ids = [known[word]] if word in known else [p.id for p in backend.model.tokenize(word)]
    rows[i] = scale * table[ids].mean(axis=0, dtype=np.float64)
  statistics = {
    "size": len(rows), "output_size": len(rows) - len(read), "types": len(counts),
    "left_out_types": len(left_out), "tokens": counts.total(),
    "left_out_tokens": sum(counts[word] for word in left_out), "read_types": len(read),
    "words_of_the_bert": whole, "marks": list(marks),
    "scale": scale,
  }  # fmt: skip
  return WordEncoding(new_tokenizer, rows, {**statistics, "sha256": digest(new_tokenizer, rows)})


def _check(backend: Any, known: Collection[str], marks: Sequence[str], folder: Any) -> None:
  """Refuses a tokeniser that is no BERT's, and marks that its vocabulary lacks."""
  if type(backend.model).__name__ != "WordPiece" or backend.pre_tokenizer is None:
    raise InputError(
      f"{folder}: its tokeniser is no BERT's (WordPiece), so it does not say where "
      "words begin; name a BERT in encoder.pretrained"
    )
  missing = [mark for mark in (word_tokenizer.UNKNOWN, *marks) if mark not in known]
  if missing or len(marks) != 2:
    raise InputError(
      f"encoder.marks = {tuple(marks)}: give two entries of the vocabulary in "
      f"{folder}, such as ('[CLS]', '[SEP]')" + (f"; {missing[0]!r} is none" if missing else "")
    )


def _count(backend: Any, texts: Iterable[str]) -> Counter[str]:
  """How often each word occurs, split as the BERT's tokeniser splits before it looks for pieces."""
  counts: Counter[str] = Counter()
  normalised = backend.normalizer.normalize_str if backend.normalizer else str
  for text in texts:
    pieces = backend.pre_tokenizer.pre_tokenize_str(normalised(text))
    counts.update(word for word, _ in pieces)
  return counts


def _tokenizer(backend: Any, words: Sequence[str], marks: Sequence[str]) -> Tokenizer:
  from tokenizers import Tokenizer as Backend
  from tokenizers import models, processors

  entries = dict.fromkeys((word_tokenizer.PAD, word_tokenizer.UNKNOWN, *marks, *words))
  vocabulary = {word: i for i, word in enumerate(entries)}
  word_level = Backend(models.WordLevel(vocabulary, unk_token=word_tokenizer.UNKNOWN))
  word_level.pre_tokenizer = backend.pre_tokenizer
  if backend.normalizer:
    word_level.normalizer = backend.normalizer
  before, after = marks
  word_level.post_processor = processors.TemplateProcessing(
    single=f"{before} $A {after}",
    pair=f"{before} $A {after} $B:1",  # only read, never used: words are not joined
    special_tokens=[(mark, vocabulary[mark]) for mark in marks],
  )
  return Tokenizer(word_level, f"a vocabulary of {len(vocabulary):,} words")


def _table(folder: epath.PathLike) -> Float32[np.ndarray, "v d"]:
  """The rows of the input table alone."""
  family, fields = pretrained.read_family(folder)
  name = family.names[_NAME]
  tensors, source = read_tensors(folder, family.today, keep=(name,))
  if name not in tensors:
    raise InputError(f"{source}: the tensor {name!r}, the table of word vectors, is missing")
  table = np.asarray(family.ours(_NAME, tensors[name]), np.float32)
  wanted = (fields["vocab_size"], fields["hidden_size"])
  if table.shape != wanted:
    raise InputError(
      f"{source}: the tensor {name!r} has shape {list(table.shape)}, but "
      f"{config_file(folder)} asks for {list(wanted)}"
    )
  return table
