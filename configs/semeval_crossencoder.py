"""A fine-tuned cross-encoder on SemEval CQA, subtask A (CETE section 4).

A word names the year: semeval2015 (the default), semeval2016, semeval2017.
"""

from as2jax.config import recipes

get_config = recipes.semeval_of_cete("crossencoder")
