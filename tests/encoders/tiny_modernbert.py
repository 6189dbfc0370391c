"""A small ModernBERT, whose window is shorter than its sequences, for the encoder tests."""

import numpy as np

from as2jax.encoders.modernbert import ModernBertEncoder

TINY = dict(
  vocab_size=61,
  hidden_size=16,
  num_layers=5,
  num_heads=4,
  intermediate_size=12,
  max_positions=40,
  window=4,
)
SEQUENCES = [np.random.default_rng(n).integers(1, 61, n).astype(np.int32) for n in (4, 11, 6, 2, 9)]
ALONE = [(n,) for n in range(5)]
PACKED = [(1, 0), (2, 3, 4)]


def tiny(**fields):
  return ModernBertEncoder(**{**TINY, **fields})


def config(**changes):
  """The small one as `config.json` has it."""
  return {
    "model_type": "modernbert",
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 12,
    "max_position_embeddings": 40,
    "local_attention": 4,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    **changes,
  }
