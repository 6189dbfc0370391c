"""CETE, table 3: TREC-QA, trained on TRAIN-ALL, and WikiQA."""

from as2jax.experiments.papers.rows import Column

from . import cete_rows

TITLE = "CETE (Laskar et al. 2020), table 3: TREC-QA and WikiQA"
SCALE = 1
COLUMNS = (
  # RAW is what its scorer keeps of the whole test split: the questions with a positive.
  Column("TREC RAW MAP", ("trecqa",), "map", "answerable"),
  Column("TREC RAW MRR", ("trecqa",), "mrr", "answerable"),
  Column("TREC clean MAP", ("trecqa",), "map"),
  Column("TREC clean MRR", ("trecqa",), "mrr"),
  Column("WikiQA MAP", ("wikiqa",), "map"),
  Column("WikiQA MRR", ("wikiqa",), "mrr"),
)
ROWS = cete_rows.rows(
  ("trecqa", "wikiqa"),
  {
    "Transformer Encoder + GloVe": (0.708, 0.764, 0.728, 0.812, 0.671, 0.686),
    "CETE (ELMo Embeddings)": (0.798, 0.869, 0.791, 0.858, 0.762, 0.774),
    "CETE (BERT Base Embeddings)": (0.799, 0.855, 0.791, 0.857, 0.727, 0.741),
    "CETE (BERT Large Embeddings)": (0.806, 0.897, 0.789, 0.887, 0.714, 0.731),
    "XLNet Base Fine Tuning": (0.903, 0.939, 0.900, 0.938, 0.808, 0.820),
    "XLNet Large Fine Tuning": (0.939, 0.979, 0.920, 0.973, 0.836, 0.847),
    "CETE (BERT Base Fine Tuning)": (0.891, 0.925, 0.888, 0.953, 0.829, 0.843),
    "CETE (BERT Large Fine Tuning)": (0.917, 0.947, 0.905, 0.967, 0.843, 0.857),
    "CETE (RoBERTa Base Fine Tuning)": (0.927, 0.962, 0.905, 0.950, 0.847, 0.860),
    "CETE (RoBERTa Large Fine Tuning)": (0.950, 0.980, 0.936, 0.978, 0.900, 0.915),
  },
)
CLAIMS = (
  ("CETE (BERT Base Embeddings)", "CETE (BERT Base Fine Tuning)"),
  ("CETE (BERT Large Fine Tuning)", "CETE (RoBERTa Large Fine Tuning)"),
)
