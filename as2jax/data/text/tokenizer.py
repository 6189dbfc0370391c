"""Fast tokenisers from a folder: text to vocabulary ids, and the special tokens around parts.

A `tokenizer.json` is read by `tokenizers` alone, which starts in 0.03 s. Older vocabulary files are
converted by transformers (`as2jax.data.text.vocabulary`), which takes seconds to import; `kept`
stores the result in a run's folder, so that ranking never imports it.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsInt

import numpy as np
from etils import epath
from jaxtyping import Int32, Int64

from as2jax.data.text import vocabulary
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import refuse_others, write_whole

Special = tuple[int, int]  # vocabulary id, token type

# What a word-level tokeniser calls its unknown word where unknown words are left out of the text.
SKIPPED = "[SKIP]"


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
  """Holds the special tokens before, between and after the parts of a sequence, as (id, type).
  BERT: `[CLS] a [SEP] b [SEP]`; RoBERTa: `<s> a </s></s> b </s>`; XLNet: `a <sep> b <sep> <cls>`.
  `types` are those of the text of the first part and of the later ones.
  """

  before: tuple[Special, ...]
  middle: tuple[Special, ...]
  after: tuple[Special, ...]
  single_before: tuple[Special, ...]
  single_after: tuple[Special, ...]
  types: tuple[int, int]

  @property
  def largest_type(self) -> int:
    """Return the largest token type that a sequence can have."""
    gaps = (self.before, self.middle, self.after, self.single_before, self.single_after)
    return max(*self.types, *(type_ for gap in gaps for _, type_ in gap))

  def around(self, parts: int) -> list[tuple[Special, ...]]:
    """Return the special tokens before a sequence of `parts` parts, between them and after it.
    From the second on, a separator that had the type of the part before it has the later type.
    Raises InputError for several parts of a tokeniser of words, which has no separator.
    """
    if parts == 1:
      return [self.single_before, self.single_after]
    if not self.middle:
      raise InputError(
        "a word-level tokeniser puts no separator between two texts, so it cannot "
        "join a question and a sentence; use a model that encodes them one by one "
        "(a bi-encoder), or the encoder BERT, RoBERTa or XLNet"
      )
    first, later = self.types
    middle = tuple((id_, later if type_ == first else type_) for id_, type_ in self.middle)
    return [self.before, self.middle, *[middle] * (parts - 2), self.after]


@dataclasses.dataclass(frozen=True)
class Encoded:
  """Holds the tokens of several texts, one after the other, without special tokens.
  `starts` and `ends` are the spans in the characters of a text; empty unless asked for.
  """

  ids: Int32[np.ndarray, "t"]
  lengths: Int64[np.ndarray, "n"]
  starts: Int32[np.ndarray, "s"]
  ends: Int32[np.ndarray, "s"]


class Tokenizer:
  """Makes tokens by a `tokenizers.Tokenizer` without truncation and padding.

  A word-level one whose unknown word is `SKIPPED` leaves unknown words out; of a text that has no
  other words one is kept, so that a text that holds something gives a token. `source` is for
  messages.
  """

  def __init__(self, backend: Any, source: str):
    from tokenizers import models

    backend.no_truncation()
    backend.no_padding()
    self.backend, self._skipped = backend, None
    words = isinstance(backend.model, models.WordLevel)
    self.special = _probe(backend, source, words)
    if words and backend.model.unk_token == SKIPPED:
      self._skipped = backend.token_to_id(SKIPPED)

  @property
  def vocab_size(self) -> int:
    """Return the number of vocabulary ids, added tokens included."""
    return self.backend.get_vocab_size(with_added_tokens=True)

  def ids(self) -> set[int]:
    """Return all ids that a text can give, special tokens around it included."""
    ids = set(self.backend.get_vocab(with_added_tokens=True).values())
    for gap in dataclasses.astuple(self.special)[:5]:
      ids.update(dict(gap))
    return ids

  @functools.cached_property
  def fingerprint(self) -> str:
    """Return the SHA-256 (hex) of the serialised tokeniser: equal ones tokenise equally."""
    return hashlib.sha256(self.backend.to_str().encode()).hexdigest()

  def tokens(self, ids: Iterable[SupportsInt]) -> list[str]:
    """Return the vocabulary entries of `ids`."""
    return [self.backend.id_to_token(int(i)) for i in ids]

  def encode(self, texts: Sequence[str], *, spans: bool = False) -> Encoded:
    """Tokenise each text, in parallel, without special tokens; with character spans if `spans`.
    Raises InputError for a text that is not valid Unicode (half of a surrogate pair).
    """
    encode = self.backend.encode_batch if spans else self.backend.encode_batch_fast
    try:
      encodings = encode(list(texts), add_special_tokens=False)
    except (TypeError, UnicodeEncodeError) as error:
      broken = next((text for text in texts if re.search("[\ud800-\udfff]", text)), None)
      if broken is None:
        raise
      raise InputError(
        f"the text {ascii(broken):.200} is not valid Unicode: it holds half of a "
        "surrogate pair; correct it or leave it out"
      ) from error
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    flat = itertools.chain.from_iterable
    ids = np.fromiter(flat(e.ids for e in encodings), np.int32, int(lengths.sum()))
    pairs = np.zeros((0, 2), np.int32)
    if spans:
      pairs = np.fromiter(flat(flat(e.offsets for e in encodings)), np.int32).reshape(-1, 2)
    encoded = Encoded(ids, lengths, pairs[:, 0], pairs[:, 1])
    return encoded if self._skipped is None else _without(encoded, self._skipped)


def kept(memory: epath.PathLike, convert: Callable[[], Tokenizer]) -> Tokenizer:
  """Return the tokeniser that the run in `memory` keeps; convert and write it where there is none.

  It is read from the file at once: `tokenizers` reads the scores of pieces with another last digit.
  `memory` "" keeps nothing. Raises InputError where the file cannot be read as a tokeniser.
  """
  if not memory:
    return convert()
  file = epath.Path(memory) / "tokenizer.json"
  if not file.exists():
    write_whole(file, convert().backend.to_str())
  from tokenizers import Tokenizer as Backend

  refuse_others(file)
  try:
    return Tokenizer(Backend.from_str(file.read_text(encoding="utf-8")), str(memory))
  except Exception as error:  # the library raises errors of many kinds on what it cannot parse
    raise InputError(f"{file} is not a tokeniser ({error}): put it back as it was") from error


def load_tokenizer(folder: str) -> Tokenizer:
  """Load a tokeniser from the folder of a pretrained encoder, local or remote.
  Read is, in this order: `tokenizer.json`; `vocab.txt` (BERT); `vocab.json` with `merges.txt`
  (RoBERTa); `spiece.model` (XLNet); `spm.model` (DeBERTa). Raises InputError where none can be read.
  """
  path = epath.Path(folder)
  if not path.is_dir():
    raise InputError(
      f"{folder}: no such folder; give that of a pretrained encoder, which holds {vocabulary.FILES}"
    )
  return Tokenizer(vocabulary.load_backend(path), str(path))


def _without(encoded: Encoded, skipped: int) -> Encoded:
  """Return `encoded` without the tokens `skipped`, save the first of a text that has no others."""
  text = np.repeat(np.arange(len(encoded.lengths)), encoded.lengths)
  kept = encoded.ids != skipped
  bare = (np.bincount(text[kept], minlength=len(encoded.lengths)) == 0) & (encoded.lengths > 0)
  kept[(np.cumsum(encoded.lengths) - encoded.lengths)[bare]] = True
  spans = kept if len(encoded.starts) else slice(0)
  return Encoded(
    encoded.ids[kept],
    np.bincount(text[kept], minlength=len(encoded.lengths)),
    encoded.starts[spans],
    encoded.ends[spans],
  )


def _probe(backend: Any, source: str, words: bool) -> SpecialTokens:
  """Find the special tokens in what the tokeniser makes of one text and of two.
  That a tokeniser of words has no separator is its nature; that one of pieces has none is a file
  without its template.
  """
  try:
    encodings = backend.encode("a", "b"), backend.encode("a")
  except BaseException as error:  # the library raises nothing more exact; its panics are such
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
      raise
    raise InputError(
      f"{source}: its tokenizer.json or vocabulary is damaged ({error}); get the files again"
    ) from error
  gaps, types = [], []  # before, between and after the texts; of the texts
  for encoding, parts in zip(encodings, (2, 1)):
    sequence = encoding.sequence_ids
    edges = [-1]
    for part in range(parts):
      if part not in sequence:
        raise InputError(
          f"{source}: the tokeniser makes no token of 'a' or 'b'; its vocabulary is not "
          "whole; get the file again"
        )
      edges += [sequence.index(part), len(sequence) - 1 - sequence[::-1].index(part)]
      types.append(encoding.type_ids[edges[-2]])
    edges.append(len(sequence))
    specials = list(zip(encoding.ids, encoding.type_ids, strict=True))
    gaps += [tuple(specials[a + 1 : b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]
  if not gaps[1] and not words:
    raise InputError(
      f"{source}: the tokeniser puts no separator between two texts, so it cannot "
      "join a question and a sentence; give that of BERT, RoBERTa or XLNet"
    )
  return SpecialTokens(*gaps, types=tuple(types[:2]))
