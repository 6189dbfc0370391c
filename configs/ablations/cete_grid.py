"""CETE's search for the fine-tuning's batch size and rate (section 4.3), chosen by MAP on dev."""

from as2jax.config import jobs

BASE = "configs/wikiqa_crossencoder.py"  # any other with --base, such as …_crossencoder.py:minilm
get_config = jobs.module(
  "wikiqa_crossencoder"
).get_config  # named as a config, this is its own base


def points():
  for examples in (8, 16, 24):
    for rate in (1e-5, 2e-5):
      yield {"batch.examples": examples, "optimizer.rate": rate}
