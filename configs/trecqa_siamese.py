"""ASBERT's siamese network on TrecQA, the small TRAIN (Shonibare 2021, tables 2 and 4)."""

from as2jax.config import recipes

get_config = recipes.job("siamese", "trecqa", ("ptb",))
