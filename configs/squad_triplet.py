"""A bi-encoder on SQuAD's pool: ASBERT's triplets, negatives from the right sentence's paragraph.

Arguments as in configs/wikiqa_triplet.py, and `squad_44` or `squad_parts` (other parts of SQuAD).
"""

from as2jax.config import base, presets


def get_config(argument=None):
  config = base.get_config()
  presets.triplet(config)
  presets.squad(config)
  config.data.negatives = "paragraph"
  config.epochs = 3
  return presets.apply_to_pool(config, argument)
