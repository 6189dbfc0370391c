"""What CASSIE's tables share (Nguyen et al. 2023): the transferred encoder and its peers."""

from collections.abc import Mapping
from typing import Any

from as2jax.experiments.papers.rows import Run

# The general ranker from which every row "ASNQ-finetuned" begins, one for each seed.
TRANSFER = Run("configs/asnq_tanda.py")
HELD = {"seeds": (0, 1, 2), "data.holdout": 0.1, "evaluation.splits": ("heldout", "dev+test")}


def transferred(config: str, settings: Mapping[str, Any], scope: str) -> Run:
  """A run that begins with the ranker made on ASNQ: all of it (`all`), or its encoder (`encoder`)."""
  begin = {"warm_start.scope": scope}  # each seed begins with its own
  return Run(config, {**settings, **begin}, {"warm_start.run": TRANSFER})
