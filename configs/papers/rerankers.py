"""Published rerankers and bi-encoders, and ours, for answer sentence selection: zero-shot and trained.

Rows whose weights are not here are skipped with the reason. Folders of your own become rows by
AS2JAX_RERANKERS and AS2JAX_EMBEDDERS (paths joined by colons); the run file of any other system by
--fill "your run file:wikiqa=FILE".
"""

import os

from as2jax.config import presets
from as2jax.experiments.papers.rows import Column, Row, Run

TITLE = "Rerankers of today on answer sentence selection, official protocols"
SCALE = 1
DATA = {"wikiqa": (), "trecqa": ("ptb",), "semeval2015": ()}  # with the text rules of each
COLUMNS = tuple(
  Column(f"{name} {metric.upper()}", (name,), metric) for name in DATA for metric in ("map", "mrr")
)
# By its name in the table: the recipe, and the folder or hub name.
PUBLISHED = {
  "all-MiniLM-L6-v2": ("embedder", presets.MINILM),
  "modernbert-embed-base": ("embedder", "nomic-ai/modernbert-embed-base"),
  "granite-embedding-english-r2": ("embedder", "ibm-granite/granite-embedding-english-r2"),
  "ms-marco-MiniLM-L6-v2": ("reranker", "cross-encoder/ms-marco-MiniLM-L6-v2"),
  "ms-marco-MiniLM-L12-v2": ("reranker", "cross-encoder/ms-marco-MiniLM-L12-v2"),
  "ettin-reranker-17m": ("reranker", "cross-encoder/ettin-reranker-17m-v1"),
  "gte-reranker-modernbert-base": ("reranker", "Alibaba-NLP/gte-reranker-modernbert-base"),
}
# Of this project: words of configs/recommended.py.
OURS = {
  "fast, MiniLM": "fast,minilm",
  "accurate, MiniLM": "accurate,minilm",
  "fast, ettin-17m": "fast,ettin17m",
  "accurate, ettin-17m": "accurate,ettin17m",
}
SEEDS = (0, 1, 2)
NONE = (None,) * len(COLUMNS)


def folders_of_environment() -> dict[str, tuple[str, str]]:
  """The folders that the environment names."""
  folders = {}
  for recipe in ("reranker", "embedder"):
    for folder in filter(None, os.environ.get(f"AS2JAX_{recipe.upper()}S", "").split(":")):
      folders[os.path.basename(os.path.normpath(folder))] = recipe, os.path.abspath(folder)
  return folders


def runs(words: str, **settings) -> dict[str, Run]:
  """The same job on each data set."""
  return {
    name: Run(
      f"configs/recommended.py:{words}", {"data.name": name, "data.rules": rules, **settings}
    )
    for name, rules in DATA.items()
  }


def rows() -> tuple[Row, ...]:
  """BM25, published ones zero-shot and trained, ours, and places for others."""
  lexical = {
    name: Run(
      f"configs/{'semeval' if name == 'semeval2015' else name}_baseline.py:bm25",
      {"data.name": name},
    )
    for name in DATA
  }
  table_rows = [Row("BM25", NONE, lexical)]
  for name, (recipe, folder) in {**PUBLISHED, **folders_of_environment()}.items():
    where = {"encoder.pretrained": folder}
    table_rows.append(Row(f"{name}, zero-shot", NONE, runs(recipe, epochs=0, **where)))
    table_rows.append(Row(f"{name}, trained", NONE, runs(recipe, seeds=SEEDS, **where)))
  for name, words in OURS.items():
    table_rows.append(Row(name, NONE, runs(words, seeds=SEEDS)))
  paper = (0.795, 0.804, *NONE[2:])
  table_rows.append(
    Row("Triplet-BERT (ASBERT's paper)", paper, {}, "run by the table asbert_table3")
  )
  table_rows.append(Row("your run file", NONE, {}, "give it by --fill"))
  return tuple(table_rows)


ROWS = rows()
CLAIMS = (("BM25", "all-MiniLM-L6-v2, zero-shot"),)
