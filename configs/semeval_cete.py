"""CETE's feature-based ranker on SemEval CQA, subtask A; words as in `recipes.cete`.

A word names the year: semeval2015 (the default), semeval2016, semeval2017.
"""

from as2jax.config import recipes

get_config = recipes.semeval_of_cete(recipes.cete)
