"""CETE, table 4: YahooCQA and SemEval-2015, 2016 and 2017."""

from as2jax.experiments.papers.rows import Column

from . import cete_rows

TITLE = "CETE (Laskar et al. 2020), table 4: YahooCQA and SemEval CQA"
SCALE = 1
SETS = {
  "yahoo": "Yahoo",
  "semeval2015": "SemEval15",
  "semeval2016": "SemEval16",
  "semeval2017": "SemEval17",
}
COLUMNS = tuple(
  Column(f"{heading} {metric.upper()}", (data,), metric)
  for data, heading in SETS.items()
  for metric in ("map", "mrr")
)
ROWS = cete_rows.rows(
  tuple(SETS),
  {
    "Transformer Encoder + GloVe": (0.667, 0.667, 0.843, 0.864, 0.741, 0.810, 0.824, 0.881),
    "CETE (ELMo Embeddings)": (0.762, 0.762, 0.875, 0.909, 0.767, 0.824, 0.860, 0.914),
    "CETE (BERT Base Embeddings)": (0.776, 0.776, 0.890, 0.924, 0.773, 0.835, 0.875, 0.922),
    "CETE (BERT Large Embeddings)": (0.778, 0.778, 0.883, 0.923, 0.765, 0.831, 0.867, 0.922),
    "XLNet Base Fine Tuning": (0.939, 0.939, 0.929, 0.960, 0.849, 0.912, 0.902, 0.934),
    "XLNet Large Fine Tuning": (0.945, 0.945, 0.945, 0.969, 0.860, 0.912, 0.930, 0.962),
    "CETE (BERT Base Fine Tuning)": (0.948, 0.948, 0.923, 0.949, 0.843, 0.906, 0.904, 0.942),
    "CETE (BERT Large Fine Tuning)": (0.951, 0.951, 0.935, 0.961, 0.866, 0.927, 0.921, 0.963),
    "CETE (RoBERTa Base Fine Tuning)": (0.951, 0.951, 0.933, 0.956, 0.851, 0.900, 0.909, 0.944),
    "CETE (RoBERTa Large Fine Tuning)": (0.955, 0.955, 0.947, 0.970, 0.888, 0.938, 0.943, 0.974),
  },
)
CLAIMS = (
  ("CETE (BERT Base Embeddings)", "CETE (BERT Base Fine Tuning)"),
  ("CETE (BERT Large Fine Tuning)", "CETE (RoBERTa Large Fine Tuning)"),
)
