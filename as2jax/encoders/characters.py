"""Words as ELMo's character ids: the bytes of their UTF-8 form between two marks.

Ids are one more than in the biLM's vocabulary of characters, so that 0 can mean no word at all:
byte v is v + 1, then come the marks below.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int32

from as2jax.data.inputs.protocol import Input, Tables
from as2jax.data.record import Question
from as2jax.data.text import word_tokenizer

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
  """Character ids [n, max_characters] of words: begin of word, bytes, end of word, padding.

  Of a longer word the first `max_characters` - 2 bytes count, even where that cuts a character.
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
