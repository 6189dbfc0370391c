"""A tiny config of CETE's feature-based ranker: what the tests of it and of its features share."""

import tiny

from as2jax.config import recipes
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
  job_config = tiny.config("crossencoder").unlock()
  recipes.feature_based(job_config)
  job_config.epochs = 1
  if "no_encoder" in words:
    recipes.no_encoder(job_config)
  job_config.model.num_heads = 2
  job_config.data.max_length, job_config.data.train_fraction = 64, 0.2
  job_config.data.cache = str(cache)
  if callable(encoder):
    encoder(job_config)
  elif encoder:
    job_config.encoder.pretrained = str(encoder)
  job_config.update(overrides)
  return job_config.lock()
