"""CETE's search for the fine-tuning's batch size and rate (section 4.3), chosen by MAP on dev.

as2jax lab sweep configs/ablations/cete_grid.py --output=runs/cete-grid
"""

import itertools

from as2jax.config import jobs

BASE = "configs/wikiqa_crossencoder.py"  # any other with --base, such as …_crossencoder.py:minilm

# Named as a config, this file is its own base.
get_config = jobs.module("wikiqa_crossencoder").get_config


def points():
  for examples, rate in itertools.product((8, 16, 24), (1e-5, 2e-5)):
    yield {"batch.examples": examples, "optimizer.rate": rate}
