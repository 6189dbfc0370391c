"""The rows of the Cross-VAEs' tables 2 and 3 (Yu et al. 2020), each over SQuAD's whole pool."""

from collections.abc import Mapping, Sequence

from as2jax.experiments.papers.rows import Row, Run

BM25 = Run("configs/squad_baseline.py:bm25")
RUNS = {
  "InferSent": Run("configs/squad_baseline.py:infersent"),
  "SenBERT": Run("configs/squad_baseline.py:sbert"),
  # A cross-encoder cannot read the whole pool for each question: it ranks BM25's best 100 again.
  "BERT_QA": Run("configs/squad_crossencoder.py", after={"data.ranking": BM25}),
  "Dual-GRUs": Run("configs/squad_dual_gru.py"),
  "Dual-VAEs": Run("configs/squad_dual_vae.py"),
  "Cross-VAEs": Run("configs/squad_cross_vae.py"),
  "BM25": BM25,  # not in the paper
}
LACKS = {
  "QA-Lite": "its weights are in no format that is read; rank by its vectors elsewhere",
  "USE-QA": "its weights are in no format that is read; rank by its vectors elsewhere",
}


def rows(published: Mapping[str, Sequence[float | None]]) -> tuple[Row, ...]:
  """The rows in the order of `published`, name -> figures."""
  return tuple(
    Row(name, tuple(figures), {"squad": RUNS[name]} if name in RUNS else {}, LACKS.get(name, ""))
    for name, figures in published.items()
  )
