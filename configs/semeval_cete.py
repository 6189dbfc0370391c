"""CETE's feature-based ranker on SemEval CQA, subtask A; words as in `recipes.cete`.

A word names the year: semeval2015 (the default), semeval2016, semeval2017.
"""

from as2jax.config import recipes


def get_config(argument=None):
  argument, data, rules = recipes.semeval_of_cete(argument)
  return recipes.job(recipes.cete, data, rules)(argument)
