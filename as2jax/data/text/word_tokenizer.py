"""Tokenisers of whole words, for word vectors: text to rows of a table of vectors.

They are files of the `tokenizers` library (`tokenizer.json`) like those of pretrained encoders, so
that a run keeps its vocabulary and everything behind `as2jax.data.text.tokenizer` serves them too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from as2jax.data.text.tokenizer import SKIPPED, Tokenizer
from as2jax.runtime.errors import InputError

PAD, UNKNOWN = "[PAD]", "[UNK]"
PAD_ID, UNKNOWN_ID = range(2)  # the ids before those of words

# `as2jax.data.text.words.WORD` in Oniguruma's terms. Its \w has marks and other connectors, and lacks
# numbers that are no digits; its \s lacks four control characters. What is left are characters that
# one of the two Unicode versions does not know (a test goes through all of them).
_RUN = r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*"
_WORD = rf"{_RUN}(?:['\x{{2019}}]{_RUN})*|[^\s\x{{1c}}-\x{{1f}}]"
# What the Penn Treebank has as one word beside these, and what it cuts off.
_ENDING = "'(?:s|re|ve|ll|d|m)"
_WHOLE = rf"\d+(?:[.,:]\d+)+|(?:\p{{L}}\.){{2,}}|(?<!\S)(?i:{_ENDING})(?!\S)"


def splitter(*, lower: bool, treebank: bool) -> Any:
  """Return a `tokenizers.Tokenizer` that only normalises and splits, without a vocabulary.

  `lower` lower-cases character by character (so that a Greek final sigma becomes an inner one). A
  typographic apostrophe becomes a plain one always. Without `treebank` texts split exactly as by
  `as2jax.data.text.words.WORD`; with it English endings, numbers and abbreviations are as the Penn
  Treebank, and so GloVe's vocabulary, has them: do n't, John 's, 1,000.5, 10:30, u.s.
  """
  from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

  backend = Tokenizer(models.WordLevel({PAD: 0, UNKNOWN: 1}, unk_token=UNKNOWN))
  steps = [normalizers.Replace("\u2019", "'")] + [normalizers.Lowercase()] * lower
  backend.normalizer = normalizers.Sequence(steps)
  split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
  if treebank:
    backend.pre_tokenizer = pre_tokenizers.Sequence(
      [split(f"{_WHOLE}|{_WORD}"), pre_tokenizers.Split(Regex(rf"(?i:n't|{_ENDING})$"), "isolated")]
    )
  else:
    backend.pre_tokenizer = split(_WORD)
  return backend


def split(texts: Iterable[str], backend: Any) -> Iterator[list[str]]:
  """Yield the words of each text, normalised and split as by `backend`, such as `splitter`'s."""
  for text in texts:
    if backend.normalizer:
      text = backend.normalizer.normalize_str(text)
    yield [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def count(texts: Iterable[str], backend: Any) -> Counter[str]:
  """Count how often each word of `split` occurs in `texts`."""
  counts: Counter[str] = Counter()
  for words in split(texts, backend):
    counts.update(words)
  return counts


def build(
  words: Iterable[str], backend: Any, *, skip_unknown: bool = False, markers: Sequence[str] = ()
) -> Tokenizer:
  """Return a tokeniser with `[PAD]` (id 0), the unknown word (id 1), then `words`, split as in `split`.

  `skip_unknown` leaves unknown words (`[SKIP]` then, else `[UNK]`) out. `markers` are () or two
  words around each text, such as `<s>`, `</s>` (InferSent); InputError for one that is not in
  `words`.
  """
  from tokenizers import Tokenizer as Backend
  from tokenizers import models, processors

  unknown = SKIPPED if skip_unknown else UNKNOWN
  vocabulary = {PAD: 0, unknown: 1}
  for word in words:
    vocabulary.setdefault(word, len(vocabulary))
  word_level = Backend(models.WordLevel(vocabulary, unk_token=unknown))
  word_level.pre_tokenizer = backend.pre_tokenizer
  if backend.normalizer:
    word_level.normalizer = backend.normalizer
  if markers:
    if len(markers) != 2:
      raise InputError(f"markers {tuple(markers)!r}: give none, or one before and one after a text")
    for marker in markers:
      if marker not in vocabulary:
        raise InputError(
          f"the marker {marker!r} is no word of the vocabulary, so it has no vector; use vectors "
          "that have it, or no markers"
        )
    before, after = markers
    word_level.post_processor = processors.TemplateProcessing(
      single=f"{before} $A {after}",
      pair=f"{before} $A {after} $B:1",  # only read, never used: words are not joined
      special_tokens=[(marker, vocabulary[marker]) for marker in dict.fromkeys(markers)],
    )
  return Tokenizer(word_level, f"a vocabulary of {len(vocabulary):,} words")


def by_frequency(counts: Counter[str]) -> list[str]:
  """Return the words of `counts`, frequent ones first, equally frequent ones by alphabet."""
  return sorted(counts, key=lambda word: (-counts[word], word))


def entries(tokenizer: Tokenizer) -> list[str]:
  """Return the vocabulary of `tokenizer` in the order of its ids."""
  return tokenizer.tokens(range(tokenizer.vocab_size))


def save(tokenizer: Tokenizer, folder: epath.PathLike) -> None:
  """Write `tokenizer.json`, from which `load_tokenizer` makes an equal tokeniser."""
  (epath.Path(folder) / "tokenizer.json").write_text(tokenizer.backend.to_str(), encoding="utf-8")
