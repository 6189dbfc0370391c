"""Print where 500 texts are broken into sentences."""

import itertools
import random

try:
  from as2jax.data.text.sentences import sentence_spans
except ImportError:
  from as2jax.data.text import sentence_spans

PARTS = (
  "Dr. Smith went to Washington, D.C. in 1995.", "He said: \"No!\" and left.", "Prices rose 3.5% (see Fig. 2).",
  "What now?", "e.g. apples, i.e. fruit.", "The U.S. Army is large.", "It ended... or did it?", "- a list item",
  "Mr. J. R. Tolkien wrote it.", "See http://a.b/c.d?e=f.", "“Quoted,” she said.", "No. 5 is alive!", "A\nline break.",
  "Really?! Yes.", "The end of St. Louis vs. Chicago.", "日本語の文。次の文。", "p. 34, pp. 5-6.", "Etc. etc.",
)  # fmt: skip


def broken() -> str:
  """Return the boundaries of the sentences of each text, a line each."""
  rng, lines = random.Random(0), []
  for number in range(500):
    text = " ".join(rng.choices(PARTS, k=1 + number % 7))
    lines.append(f"{list(itertools.chain(*sentence_spans(text)))}\n")
  return "".join(lines)


if __name__ == "__main__":
  print(broken(), end="")
