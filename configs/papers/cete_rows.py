"""What CETE's tables share (Laskar et al. 2020): its rankers on any of its data sets."""

from collections.abc import Sequence

from as2jax.experiments.papers.rows import Row, Run

FEATURES = {
  "Transformer Encoder + GloVe": "glove",
  "CETE (ELMo Embeddings)": "elmo",
  "CETE (BERT Base Embeddings)": "bert",
  "CETE (BERT Large Embeddings)": "bert_large",
}
# The paper chooses batch size and rate by dev from its grid (configs/ablations/cete_grid.py); here
# they are the config's.
FINE_TUNED = {
  "XLNet Base Fine Tuning": "xlnet",
  "XLNet Large Fine Tuning": "xlnet,large",
  "CETE (BERT Base Fine Tuning)": "",
  "CETE (BERT Large Fine Tuning)": "large",
  "CETE (RoBERTa Base Fine Tuning)": "roberta",
  "CETE (RoBERTa Large Fine Tuning)": "roberta,large",
}
SETS = ("trecqa", "wikiqa", "yahoo", "semeval2015", "semeval2016", "semeval2017")


def run(data: str, kind: str, words: str) -> Run:
  """A ranker of `kind`, `cete` (feature-based) or `crossencoder`, on one of SETS."""
  file = f"configs/{'semeval' if data.startswith('semeval') else data}_{kind}.py"
  if data.startswith("semeval"):
    words = ",".join(filter(None, (data, words)))
  return Run(f"{file}:{words}" if words else file)


def rows(sets: Sequence[str], published: dict[str, Sequence[float]]) -> tuple[Row, ...]:
  """The rows of table 3 or 4: feature-based, then fine-tuned."""
  table_rows = []
  for name, words in {**FEATURES, **FINE_TUNED}.items():
    kind = "cete" if name in FEATURES else "crossencoder"
    table_rows.append(
      Row(name, tuple(published[name]), {data: run(data, kind, words) for data in sets})
    )
  return tuple(table_rows)
