"""Words as ELMo's character ids."""

import numpy as np
import pytest

from as2jax.encoders.elmo import sentence_boundaries, word_characters

BEGIN, END, PAD = 259, 260, 261  # in the biLM's vocabulary 258, 259 and 260; ids are one more


@pytest.mark.parametrize(
  "word, size, content",
  [
    ("cat", 50, b"cat"),
    ("", 50, b""),
    ("é€", 10, "é€".encode()),
    ("a\ud800b", 6, b"ab"),  # a lone surrogate has no bytes
    ("x" * 500, 50, b"x" * 48),
    ("€€€", 10, "€€€".encode()[:8]),  # the last character is cut in the middle
  ],
)
def test_a_word_is_its_bytes_between_two_marks(word, size, content):
  ids = [BEGIN, *(byte + 1 for byte in content), END]
  actual = word_characters([word], size)
  assert actual.dtype == np.int32
  assert actual[0].tolist() == ids + [PAD] * (size - len(ids))


def test_sentence_marks():
  expected = [[BEGIN, 257, END, PAD], [BEGIN, 258, END, PAD]]
  assert sentence_boundaries(4).tolist() == expected
