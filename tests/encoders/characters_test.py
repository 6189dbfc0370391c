"""Words as ELMo's character ids."""

import numpy as np

from as2jax.encoders.elmo import sentence_boundaries, word_characters


def test_a_word_is_its_bytes_between_two_marks():
  # In the biLM's vocabulary 258 and 259 mark a word's ends and 260 pads; ids are one more.
  actual = word_characters(["cat", ""])
  assert actual.shape == (2, 50) and actual.dtype == np.int32
  np.testing.assert_array_equal(actual[0, :6], [259, 100, 98, 117, 260, 261])
  np.testing.assert_array_equal(actual[1, :3], [259, 260, 261])
  assert (actual[0, 5:] == 261).all() and (actual[1, 2:] == 261).all()


def test_characters_beyond_ascii_are_utf8_bytes():
  actual = word_characters(["é€"], 10)[0]
  np.testing.assert_array_equal(
    actual, [259, 0xC3 + 1, 0xA9 + 1, 0xE2 + 1, 0x82 + 1, 0xAC + 1, 260, 261, 261, 261]
  )
  np.testing.assert_array_equal(word_characters(["a\ud800b"], 6), word_characters(["ab"], 6))


def test_long_words_are_cut_by_bytes():
  for word in ("x" * 48, "x" * 49, "x" * 500):
    actual = word_characters([word])[0]
    np.testing.assert_array_equal(actual, [259] + 48 * [ord("x") + 1] + [260])
  # Eight bytes of nine: the last character is cut in the middle.
  np.testing.assert_array_equal(
    word_characters(["€€€"], 10)[0, 1:], word_characters(["€€€"], 50)[0, 1:9].tolist() + [260]
  )


def test_sentence_marks():
  actual = sentence_boundaries(6)
  np.testing.assert_array_equal(actual, [[259, 257, 260] + 3 * [261], [259, 258, 260] + 3 * [261]])
  assert actual.dtype == np.int32
