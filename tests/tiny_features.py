"""A tiny config of CETE's feature-based ranker: what the tests of it and of its features share."""

import tiny

from as2jax.config import cete
from as2jax.data.record import Candidate, Question

QUESTION = Question(
  "Q",
  "how are glacier caves formed",
  tuple(
    Candidate(f"C{i}", text, i % 2)
    for i, text in enumerate(
      (
        "A partly submerged glacier cave on Perito Moreno Glacier .",
        "ice",
        "Isn't it 60.5 m high?",
        "\u200b",
        "very long " + "glaciers move slowly , " * 6,
      )
    )
  ),
)


def config(encoder, cache, *words, **overrides):
  """A tiny config of the ranker; `encoder` is a folder of a transformer or changes the config."""
  made = tiny.config("crossencoder").unlock()
  cete.feature_based(made)
  made.epochs = 1
  if "no_encoder" in words:
    cete.no_encoder(made)
  made.model.num_heads = 2
  made.data.max_length, made.data.train_fraction = 64, 0.2
  made.data.cache = str(cache)
  if callable(encoder):
    encoder(made)
  elif encoder:
    made.encoder.pretrained = str(encoder)
  made.update(overrides)
  return made.lock()
