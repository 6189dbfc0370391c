"""CETE, figure 4: embeddings alone and under the new encoder, averaged over the six data sets.

The text states the gains (section 5.3); the bars' own heights are not in it. Of TREC-QA the clean
questions are counted here, as the paper does not say which.
"""

from as2jax.experiments.papers.rows import Column, Row

from . import cete_rows

TITLE = "CETE (Laskar et al. 2020), figure 4: averages over six data sets"
SCALE = 1
COLUMNS = (Column("MAP", cete_rows.SETS, "map"), Column("MRR", cete_rows.SETS, "mrr"))
GAINS = {
  "ELMo": ("elmo", 43.73, 41.32),
  "BERT Base": ("bert", 25.23, 21.27),
  "BERT Large": ("bert_large", 26.34, 24.08),
  "MiniLM (ours)": ("minilm", None, None),  # for who has small weights alone
}


def _rows():
  for name, (words, *gains) in GAINS.items():
    runs = lambda more: {data: cete_rows.run(data, "cete", words + more) for data in cete_rows.SETS}
    yield Row(f"{name} Embeddings", (None, None), runs(",no_encoder"))
    yield Row(f"CETE ({name} Embeddings)", (None, None), runs(""))
    yield Row(
      f"gain of CETE ({name}), %",
      tuple(gains),
      gain_over=(f"{name} Embeddings", f"CETE ({name} Embeddings)"),
    )


ROWS = tuple(_rows())
# Each gain by the paired t-test over the six data sets (section 5.3).
CLAIMS = tuple((f"{name} Embeddings", f"CETE ({name} Embeddings)") for name in GAINS)
