"""Cross-VAEs, table 2: answer retrieval on SQuAD."""

from as2jax.experiments.papers.rows import Column

from . import cross_vaes_rows

TITLE = "Cross-VAEs (Yu et al. 2020), table 2: SQuAD, one pool of sentences"
SCALE = 100
COLUMNS = tuple(
  Column(metric.upper(), ("squad",), metric, "gold") for metric in ("mrr", "r@1", "r@5")
)
ROWS = cross_vaes_rows.rows(
  {
    "InferSent": (36.90, 27.91, 46.92),
    "SenBERT": (38.01, 27.34, 49.59),
    "BERT_QA": (48.07, 40.63, 57.45),
    "QA-Lite": (50.29, 40.69, 61.38),
    "USE-QA": (61.23, 53.16, 69.93),
    "Dual-GRUs": (61.06, 54.70, 68.25),
    "Dual-VAEs": (61.48, 55.01, 68.49),
    "Cross-VAEs": (62.29, 55.60, 70.05),
    "BM25": (None, None, None),
  }
)
CLAIMS = (("USE-QA", "Cross-VAEs"), ("Dual-GRUs", "Cross-VAEs"), ("Dual-VAEs", "Cross-VAEs"))
