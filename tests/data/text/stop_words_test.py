"""Stop words: the forms that the word splitter makes, no word that carries content."""

import pytest

from as2jax.data.text.words import STOP_WORDS, is_kept, words


def test_they_are_forms_of_the_word_splitter():
  """A form with an apostrophe is one word of a text, whichever apostrophe that has."""
  for word in STOP_WORDS:
    for text in (word, word.upper(), word.replace("'", "\u2019")):
      assert [form for form, _, _ in words(text)] == [word]


@pytest.mark.parametrize(
  "text, kept",
  [
    ("Don\u2019t they know who won the 1998 cup?", ["know", "1998", "cup"]),
    ("did n't the dog 's owner -- `` Ms. O'Hara '' -- call ?", ["dog", "owner", "ms", "o'hara", "call"]),
    ("caf\u00e9 \u2014 \u65e5\u672c, it's $5", ["caf\u00e9", "\u65e5\u672c", "5"]),
  ],
)  # fmt: skip
def test_what_is_kept(text, kept):
  assert [form for form, _, _ in words(text) if is_kept(form)] == kept
