"""Published rerankers and bi-encoders, and ours, for answer sentence selection: zero-shot and trained.

Rows whose weights are not here are skipped with the reason. Folders of your own become rows by
AS2JAX_RERANKERS and AS2JAX_EMBEDDERS (paths joined by colons); the run file of any other system by
--fill "your run file:wikiqa=FILE". Runs that are finished fill their rows by --runs=FOLDER, and --no-train
leaves the other rows that would be trained.
"""

import os

from as2jax.config import words as config_words
from as2jax.experiments.papers.rows import Column, Row, Run, Table

DATA = {"wikiqa": (), "trecqa": ("ptb",), "semeval2015": ()}  # with the text rules of each
# SemEval-2015's test questions; trained is on its development file.
NAMES = {"semeval2015": "semeval2015_devel"}
# `clean` is what papers report, and of TrecQA its official one; WikiQA's organisers count fewer questions,
# SemEval-2015's all that have an answer.
FILTERS = (
  ("wikiqa", "clean"),
  ("wikiqa", "official"),
  ("trecqa", "clean"),
  ("semeval2015", "clean"),
)
COLUMNS = tuple(
  Column(f"{name} {kind} {metric.upper()}", (name,), metric, kind)
  for name, kind in FILTERS
  for metric in ("map", "mrr")
)
# By its name in the table: the recipe, and the folder or hub name.
PUBLISHED = {
  "all-MiniLM-L6-v2": ("embedder", config_words.MINILM),
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
# Jobs of the papers' own systems, with the settings of our table of measured figures.
UNTRAINED = "MiniLM's mean, untrained"
SYSTEMS = {
  UNTRAINED: {
    "wikiqa": Run("configs/wikiqa_baseline.py:mean,minilm"),
    "trecqa": Run("configs/trecqa_baseline.py:mean,minilm"),
    "semeval2015": Run(
      "configs/semeval_baseline.py:mean,minilm", {"data.name": NAMES["semeval2015"]}
    ),
  },
  "ASBERT's triplet network, MiniLM": {
    "wikiqa": Run("configs/wikiqa_triplet.py:grouped,minilm", {"epochs": 3, "seeds": SEEDS}),
    "trecqa": Run("configs/trecqa_triplet.py:minilm,grouped", {"epochs": 1, "seeds": SEEDS}),
    "semeval2015": Run(
      "configs/semeval_triplet.py:minilm,grouped",
      {"data.name": NAMES["semeval2015"], "epochs": 1, "seeds": SEEDS},
    ),
  },
  "CETE's cross-encoder, MiniLM": {
    "wikiqa": Run(
      "configs/wikiqa_crossencoder.py:minilm",
      {"epochs": 1, "data.train_filter": "answerable", "data.rules": (), "seeds": SEEDS},
    ),
    "trecqa": Run("configs/trecqa_crossencoder.py:minilm", {"data.name": "trecqa", "seeds": SEEDS}),
    "semeval2015": Run(
      "configs/semeval_crossencoder.py:minilm", {"data.name": NAMES["semeval2015"], "seeds": SEEDS}
    ),
  },
}
# Systems from elsewhere, by their run files; launch/benchmarks/sentence_transformers_training.py makes the first two.
PEERS = (
  "sentence-transformers' trainer, bi-encoder",
  "sentence-transformers' trainer, cross-encoder",
  "your run file",
)
NONE = (None,) * len(COLUMNS)


def folders_of_environment() -> dict[str, tuple[str, str]]:
  """The folders that the environment names."""
  folders = {}
  for recipe in ("reranker", "embedder"):
    for folder in filter(None, os.environ.get(f"AS2JAX_{recipe.upper()}S", "").split(":")):
      path = os.path.abspath(folder)
      name = os.path.basename(path)
      folders[path if name in folders else name] = recipe, path
  return folders


def runs(words: str, **settings) -> dict[str, Run]:
  """The same job on each data set."""
  return {
    name: Run(
      f"configs/recommended.py:{words}",
      {"data.name": NAMES.get(name, name), "data.rules": rules, **settings},
    )
    for name, rules in DATA.items()
  }


def rows() -> tuple[Row, ...]:
  """BM25, published ones zero-shot and trained, ours, and places for others."""
  lexical = {
    name: Run(
      f"configs/{'semeval' if name == 'semeval2015' else name}_baseline.py:bm25",
      {"data.name": NAMES.get(name, name)},
    )
    for name in DATA
  }
  table_rows = [Row("BM25", NONE, lexical)]
  for name, (recipe, folder) in {**PUBLISHED, **folders_of_environment()}.items():
    where = {"encoder.pretrained": folder}
    table_rows.append(Row(f"{name}, zero-shot", NONE, runs(recipe, epochs=0, **where)))
    # Trained, MiniLM is the row `fast, MiniLM`: same weights, pooling and loss, a rate of its own.
    if folder != config_words.MINILM:
      table_rows.append(Row(f"{name}, trained", NONE, runs(recipe, seeds=SEEDS, **where)))
  for name, words in OURS.items():
    table_rows.append(Row(name, NONE, runs(words, seeds=SEEDS)))
  table_rows += [Row(name, NONE, its) for name, its in SYSTEMS.items()]
  paper = (0.795, 0.804, *NONE[2:])
  table_rows.append(
    Row("Triplet-BERT (ASBERT's paper)", paper, lacks="run by the table asbert_table3")
  )
  for name in PEERS:
    table_rows.append(Row(name, NONE, lacks="give the run files of its seeds by --fill"))
  return tuple(table_rows)


TABLE = Table(
  "rerankers",
  COLUMNS,
  rows(),
  "Rerankers of today on answer sentence selection, official protocols",
  claims=(("BM25", UNTRAINED), (UNTRAINED, "ASBERT's triplet network, MiniLM")),
)
