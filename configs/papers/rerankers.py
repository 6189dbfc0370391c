"""Published rerankers and bi-encoders, and ours, for answer sentence selection: zero-shot and trained."""

from as2jax.config import words as config_words
from as2jax.experiments.papers.rows import Column, Row, Table, run_of

DATA = {
  "wikiqa": "data.name=wikiqa data.rules=()",
  "trecqa": "data.name=trecqa data.rules=('ptb',)",
  "semeval2015": "data.name=semeval2015_devel data.rules=()",  # trained is on its development file
}
# `clean` is what papers report; WikiQA's organisers count fewer questions.
FILTERS = "wikiqa clean", "wikiqa official", "trecqa clean", "semeval2015 clean"
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
SEEDS = "seeds=(0,1,2)"
OURS = {
  "fast, MiniLM": f"fast,minilm {SEEDS}",
  "accurate, MiniLM": "accurate,minilm encoder.dtype=bfloat16 seeds=(5,6,7,8,9)",  # fresh, after its choice
  "fast, ettin-17m": f"fast,ettin17m {SEEDS}",
  "accurate, ettin-17m": f"accurate,ettin17m {SEEDS}",
}
UNTRAINED, TRIPLET = "MiniLM's mean, untrained", "ASBERT's triplet network, MiniLM"
SYSTEMS = {
  UNTRAINED: (
    "wikiqa_baseline.py:mean,minilm",
    "trecqa_baseline.py:mean,minilm",
    "semeval_baseline.py:mean,minilm data.name=semeval2015_devel",
  ),
  TRIPLET: (
    f"wikiqa_triplet.py:grouped,minilm epochs=3 {SEEDS}",
    f"trecqa_triplet.py:minilm,grouped epochs=1 {SEEDS}",
    f"semeval_triplet.py:minilm,grouped data.name=semeval2015_devel epochs=1 {SEEDS}",
  ),
  "CETE's cross-encoder, MiniLM": (
    f"wikiqa_crossencoder.py:minilm encoder.dtype=bfloat16 {SEEDS}",
    f"trecqa_crossencoder.py:minilm encoder.dtype=bfloat16 {SEEDS}",
    f"semeval_crossencoder.py:minilm data.name=semeval2015_devel {SEEDS}",
  ),
}


def table() -> Table:
  """Return BM25, published ones zero-shot and trained, ours, and the papers' systems."""
  columns = []
  for name, kind in map(str.split, FILTERS):
    for metric in ("map", "mrr"):
      columns.append(Column(f"{name} {kind} {metric.upper()}", (name,), metric, kind))
  jobs = {"BM25": ("wikiqa_baseline.py:bm25", {})}
  for name, (recipe, folder) in PUBLISHED.items():
    job, where = f"recommended.py:{recipe}", {"encoder.pretrained": folder}
    jobs[f"{name}, zero-shot"] = f"{job} epochs=0", where
    # Trained, MiniLM is the row `fast, MiniLM`: same weights, pooling and loss, a rate of its own.
    if folder != config_words.MINILM:
      jobs[f"{name}, trained"] = f"{job} {SEEDS}", where
  for name, words in OURS.items():
    jobs[name] = f"recommended.py:{words}", {}
  none = (None,) * len(columns)
  order = run_of("wikiqa_baseline.py:document_order data.rules=()")
  rows = [Row("document order", none, {"wikiqa": order})]
  for name, (job, where) in jobs.items():
    runs = {}
    for key, its in DATA.items():
      run = run_of(f"{job} {its}")
      runs[key] = run._replace(settings={**run.settings, **where})
    rows.append(Row(name, none, runs))
  for name, runs in SYSTEMS.items():
    rows.append(Row(name, none, dict(zip(DATA, map(run_of, runs), strict=True))))
  paper = (0.795, 0.804, *none[2:])
  lacks = "run by the table asbert_table3"
  rows.append(Row("Triplet-BERT (ASBERT's paper)", paper, lacks=lacks))
  title = "Rerankers of today on answer sentence selection, official protocols"
  claims = (("BM25", UNTRAINED), (UNTRAINED, TRIPLET))
  return Table("rerankers", tuple(columns), tuple(rows), title, claims=claims)


TABLE = table()
