"""What ASBERT's tables 3 and 4 share (Shonibare 2021): the same rows on two data sets."""

from collections.abc import Mapping, Sequence

from as2jax.experiments.papers.rows import Column, Row, Run

BASELINES = {
  "GloVe": "glove",
  "fastText": "fasttext",
  "InferSent": "infersent",
  "CLS-BERT": "cls",
  "MEAN-BERT": "mean",
  "Sentence-BERT": "sbert",
}
LACKS = {"USE": "USE's weights are in no format that is read; rank by its vectors elsewhere"}
ENCODERS = {"BERT": "", "RoBERTa": ":roberta", "XLNet": ":xlnet"}


def columns(data: str) -> tuple[Column, ...]:
  """MAP on dev and test, MRR on test."""
  return (
    Column("MAP dev", (data,), "map", split="dev"),
    Column("MAP test", (data,), "map"),
    Column("MRR test", (data,), "mrr"),
  )


def rows(data: str, published: Mapping[str, Sequence[float]]) -> tuple[Row, ...]:
  """The rows in the order of the paper.

  Args:
    published: name -> figures.

  """
  table_rows = []
  for name, figures in published.items():
    network, _, encoder = name.partition("-")
    runs = {}
    if name in BASELINES:
      runs = {data: Run(f"configs/{data}_baseline.py:{BASELINES[name]}")}
    elif name not in LACKS:
      runs = {data: Run(f"configs/{data}_{network.lower()}.py{ENCODERS[encoder]}")}
    table_rows.append(Row(name, tuple(figures), runs, LACKS.get(name, "")))
  return tuple(table_rows)
