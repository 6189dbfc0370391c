"""Sentences of documents: offsets in the text as it is, blocks of Markdown apart."""

import itertools
import re
import time

import numpy as np

from as2jax.data.text.sentences import document_spans

PAGE = """# How glaciers move
A glacier is ice. It flows
down a slope, e.g. of 3 deg. In 1986
1995. No item here.

- first item
- second item. It has two
  sentences.
1. one
2. two
| a | b |
|---|---|
| 1. x | y. Z |
> quoted text. More.
After quote.
```py
x = 1. Y = 2

z
```
東京は首都です。「そうです。」彼は言った！
***
Name | Age
--- | ---
Bob | 3
Title
===
end"""


def test_a_page_of_every_block():
  assert [PAGE[start:end] for start, end in document_spans(PAGE)] == [
    "How glaciers move",
    "A glacier is ice.",
    "It flows\ndown a slope, e.g. of 3 deg.",
    "In 1986\n1995.",
    "No item here.",
    "first item",
    "second item.",
    "It has two\n  sentences.",
    "one",
    "two",
    "| a | b |",
    "| 1. x | y. Z |",
    "quoted text.",
    "More.",
    "After quote.",
    "```py\nx = 1. Y = 2\n\nz\n```",
    "東京は首都です。",
    "「そうです。」",
    "彼は言った！",
    "Name | Age",
    "Bob | 3",
    "Title",
    "end",
  ]


PIECES = (
  *("The cat sat. ", "It ran!", " a\u0301 \U0001f642 b", "3. x", "\r\n", "\n", "\n", "\n\n", "\t"),
  *("- ", "* item", "| a | b |", "|--|--|", "```", "~~~~", "> q", "# h", "1) one", "東京。大阪？"),
  *("\u2028", "\xa0", "e.g. ", "===", "---"),
)
BEGINS = re.compile(r"\n[ \t]*(?:[-*] +\w|\||#{1,6} )")


def test_offsets_hold_in_ten_thousand_documents():
  """Spans are in order, hold all letters, and join no item, row or heading to what is before it."""
  rng = np.random.default_rng(0)
  for _ in range(10_000):
    text = "".join(rng.choice(PIECES, rng.integers(0, 12)))
    before, left = 0, ""
    for start, end in document_spans(text):
      sentence = text[start:end]
      assert (
        before <= start < end and sentence == sentence.strip() and re.search(r"\w", sentence)
      ), text
      assert sentence.startswith(("```", "~~~")) or not BEGINS.search(sentence), (text, sentence)
      left += text[before:start]
      before = end
    assert not re.search(r"[^\W\d_]", left + text[before:]), text


def test_no_text_takes_more_than_linear_time():
  """A second for all; where one were quadratic, many for it."""
  began = time.process_time()
  for begin, part in itertools.product(("x.", "a|b\n"), HARD):
    text = begin + part * (100_000 // len(part))
    spans = document_spans(text + "x")
    assert spans[-1][1] == len(text) + 1
  assert time.process_time() - began < 10


HARD = (
  *" \n.|-=#>[`。\x85",
  *("\n ", ". ", "A. ", " .", '"', " -|", "[1]", ":1", ".:1", ":1,", ":1 2", ":1, 2"),
  *("- a\n", "```\n````\n", "水。"),
)
