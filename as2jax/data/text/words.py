"""Words of a text, and the table of distinct texts: their tokens and the words that own them."""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int32, Int64

from as2jax.data.text.tokenizer import Encoded, Tokenizer

# Runs of letters, digits and their marks, inner apostrophes included ("don't" is in every stop list);
# any other character is a word of its own, so that each character but space is in a word. {} stands for
# the marks (accents, the vowel signs of Devanagari …) that a text has.
WORD = "\\w[\\w{0}]*(?:['\u2019]\\w[\\w{0}]*)*|\\S"
# Scripts without spaces between words (Unicode's blocks, without their digits): Han; Hiragana and
# Katakana; Thai; Lao; Burmese; Khmer.
_UNSPACED = (
  "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
  "\U00020000-\U0003ffff"
  "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
  "\u0e01-\u0e4f"
  "\u0e81-\u0ecf\u0edc-\u0edf"
  "\u1000-\u103f\u104a-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"
  "\u1780-\u17dd"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
LETTERS = 3  # of other scripts, which one character of these outweighs: more, and it is quoted
RULES = (WORD, _UNSPACED, LETTERS)  # what words a text has
_CHUNK = 4096  # texts tokenised at once: what the library returns is far larger than the ids


def words(text: str) -> list[tuple[str, int, int]]:
  """Return the words and punctuation marks of `text`: lower-cased form, first character, end.

  No two share a character: in a text of a script without spaces each of its characters is a word.
  """
  found = []
  unspaced = not text.isascii() and _is_unspaced("".join(_runs(text)))
  for match in word_pattern(marks(text)).finditer(text):
    start = match.start()
    for part in _characters(match.group()) if unspaced else (match.group(),):
      found.append((part.lower().replace("\u2019", "'"), start, start + len(part)))
      start += len(part)
  return found


@functools.lru_cache(maxsize=256)
def word_pattern(those: str) -> re.Pattern[str]:
  """Return `WORD` for texts whose marks are those."""
  return re.compile(WORD.format(those))


def marks(text: str) -> str:
  """Return the distinct combining marks of a text, which belong to the letter before them."""
  if text.isascii():
    return ""
  return "".join(sorted(c for c in set(text) if unicodedata.category(c).startswith("M")))


def plain_words(text: str) -> list[str]:
  """Return the words of the lower-cased text, in order: runs of letters, digits and underscores.
  The lexical rankers and the overlap features count them. A letter and its accent are one letter, in
  whichever of Unicode's forms they are written (NFC); other marks stay in their word. In a text of a
  script without spaces each two neighbouring characters are a word, or the one that stands alone; a
  name in such a script that is quoted in a text of another stays one.
  """
  runs = _runs(text)
  if not _is_unspaced("".join(runs)):
    return runs
  return [word for run in runs for word in _pairs(run)]


def _is_unspaced(letters: str) -> bool:
  """Tell whether a text with these letters is in a script without spaces, and does not only quote one."""
  unspaced = 0 if letters.isascii() else len(UNSPACED.findall(letters))
  return unspaced > 0 and (1 + LETTERS) * unspaced >= len(letters)


def _characters(run: str) -> list[str]:
  """Return the characters of scripts without spaces in a run, with their marks, and what lies between."""
  own = marks(run)
  following = f"[{own}]*" if own else ""
  return re.findall(f"[{_UNSPACED}]{following}|[^{_UNSPACED}]+", run)


def _pairs(run: str) -> list[str]:
  """Return each two neighbouring characters of scripts without spaces, and what lies between."""
  found = []
  for _, group in itertools.groupby(_characters(run), lambda part: bool(UNSPACED.match(part))):
    parts = list(group)
    found += list(map("".join, itertools.pairwise(parts))) or parts
  return found


def plain_form(text: str) -> str:
  """Return a text's runs of letters, or the text where it has none: equal for near-equal texts."""
  return " ".join(_runs(text)) or text


def _runs(text: str) -> list[str]:
  text = unicodedata.normalize("NFC", text).lower()
  return re.findall(rf"\w[\w{marks(text)}]*", text)


@dataclasses.dataclass(frozen=True)
class TextTable:
  """Holds tokens (and words) of distinct texts, one after the other, without special tokens.
  Tokens of text n are `ids[offsets[n]:offsets[n + 1]]`. A word's span is in tokens from its text's
  first, its form a number of `forms` (in order of first appearance), its text by `word_offsets`
  (all 0 without words).
  """

  ids: Int32[np.ndarray, "t"]
  offsets: Int64[np.ndarray, "offsets"]
  word_start: Int32[np.ndarray, "w"]
  word_length: Int32[np.ndarray, "w"]
  word_form: Int32[np.ndarray, "w"]
  word_offsets: Int64[np.ndarray, "offsets"]
  forms: tuple[str, ...]


def tokenize(texts: Sequence[str], tokenizer: Tokenizer, *, find_words: bool) -> TextTable:
  """Tokenise `texts` chunk by chunk, and find their words if `find_words`.
  A token belongs to the word that holds its first character other than space; a word that owns no
  token is left out.
  """
  ids, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
  spans, counts = [np.empty((3, 0), np.int32)], [np.empty(0, np.int64)]
  forms: dict[str, int] = {}
  for start in range(0, len(texts), _CHUNK):
    chunk = texts[start : start + _CHUNK]
    encoded = tokenizer.encode(chunk, spans=find_words)
    ids.append(encoded.ids)
    lengths.append(encoded.lengths)
    words_of = np.zeros(len(chunk), np.int64)
    if find_words:
      chunk_spans, words_of = _word_spans(chunk, encoded, forms)
      spans.append(chunk_spans)
    counts.append(words_of)
  return TextTable(
    np.concatenate(ids),
    cumulative(np.concatenate(lengths)),
    *np.concatenate(spans, axis=1),
    cumulative(np.concatenate(counts)),
    tuple(forms),
  )


def _word_spans(
  texts: Sequence[str], encoded: Encoded, forms: dict[str, int]
) -> tuple[Int32[np.ndarray, "3 w"], Int64[np.ndarray, "n"]]:
  """Return start, length and form of each word that owns a token, and their number a text.
  New forms are added to `forms`.
  """
  text_words = [words(text) for text in texts]
  flat = [word for text in text_words for word in text]
  text_of_word = np.repeat(np.arange(len(texts)), [len(text) for text in text_words])
  # Characters are numbered through all texts, with a gap between two that keeps them apart.
  base = cumulative(np.array([len(text) + 1 for text in texts]))[:-1]
  starts = np.array([word[1] for word in flat], np.int64) + base[text_of_word]
  ends = np.array([word[2] for word in flat], np.int64) + base[text_of_word]
  token_base = np.repeat(base, encoded.lengths)
  token_starts, token_ends = encoded.starts + token_base, encoded.ends + token_base

  owner = np.searchsorted(ends, token_starts, side="right")  # the first word that ends behind it
  token = np.flatnonzero(owner < len(flat))
  token = token[starts[owner[token]] < token_ends[token]]  # else nothing but space
  owner = np.maximum.accumulate(owner[token])  # spans never step back; if one did, words stay whole
  first = np.flatnonzero(np.diff(owner, prepend=-1))
  last = np.append(first, len(owner))[1:] - 1
  kept = owner[first]
  text = text_of_word[kept]
  form = [forms.setdefault(flat[word][0], len(forms)) for word in kept.tolist()]
  start, length = token[first] - cumulative(encoded.lengths)[text], token[last] - token[first] + 1
  span = np.stack([start, length, np.array(form, np.int64)])
  return span.astype(np.int32), np.bincount(text, minlength=len(texts))


def cumulative(counts: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n+1"]:
  """Return the offsets of runs of `counts` elements, 0 first."""
  return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


# Pronouns, what points and asks, articles, quantities, auxiliaries, prepositions, conjunctions,
# adverbs; last the pieces that splitting at apostrophes leaves behind.
_PLAIN = """
  i me my mine myself we our ours ourselves you your yours yourself yourselves he him his himself
  she her hers herself it its itself they them their theirs themselves oneself
  this that these those here there
  what which who whom whose when where why how whether
  a an the
  all any both each either neither every few more most much many other others another some such no
  none same own several enough
  am is are was were be been being have has had having do does did doing done can could will would
  shall should might must ought
  of at by for with without about against between among amongst into onto upon through throughout
  during before after above below to from up down in out on off over under within toward towards
  along across around behind beside besides beyond near since until till per via
  and but if or nor because as while than though although unless whereas so yet
  again further then once not only too very just now also even ever still rather quite thus hence
  therefore however
  s t d ll m o re ve y n't ain ma cannot
"""
_NEGATED = """is are was were have has had do does did could would should might must need ought
  may dare"""  # and irregular: can't, won't, shan't, ain't
_SHORTENED = {
  "'s": "he she it that this there here what which who when where why how one let",
  "'re": "we you they there these those what who how",
  "'ll": "i we you he she it they that this there what who how",
  "'d": "i we you he she it they that there what who how",
  "'ve": "i we you they there who could would should might must may",
}


_FORMS = {*_PLAIN.split(), "i'm", "y'all", "o'clock", "can't", "ain't"}
for _word in ("wo", "sha", *_NEGATED.split()):
  _FORMS |= {f"{_word}n", f"{_word}n't"}
for _end, _before in _SHORTENED.items():
  _FORMS |= {_word + _end for _word in _before.split()}
STOP_WORDS = frozenset(_FORMS)


def is_kept(form: str) -> bool:
  """Tell whether a word is neither a stop word nor punctuation (no letter and no digit)."""
  return form not in STOP_WORDS and any(character.isalnum() for character in form)
