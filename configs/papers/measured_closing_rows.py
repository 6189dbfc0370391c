"""Our table over three data sets: untrained, lexical, the papers' systems, our recipes, sentence-transformers."""

from as2jax.experiments.papers.measured import Closing

CLOSING_DATA = {"WikiQA": "wikiqa", "TrecQA": "trecqa", "SemEval-2015": "semeval2015_devel"}
CLOSING = (
  Closing("MiniLM, mean-pooled, untrained", ("wikiqa-mean", "trecqa-mean", "semeval-mean")),
  Closing("BM25", ("wikiqa-bm25", "trecqa-bm25", "semeval-bm25")),
  Closing(
    "ASBERT's triplet network (3, 1 and 1 epochs)",
    ("wikiqa-triplet-grouped", "trecqa-triplet", "semeval-triplet"),
  ),
  Closing(
    "CETE's cross-encoder (1, 3 and 3 epochs)",
    ("wikiqa-crossencoder", "trecqa-crossencoder", "semeval-crossencoder"),
  ),
  Closing(
    "recommended `fast`",
    ("wikiqa-recommended-fast", "trecqa-recommended-fast", "semeval-recommended-fast"),
  ),
  Closing(
    "`fast` of SQuAD's paragraphs alone",
    ("wikiqa-fast-squad-alone", "trecqa-fast-squad-alone", "semeval-fast-squad-alone"),
  ),
  Closing(
    "`fast` begun from it",
    ("wikiqa-fast-transferred", "trecqa-fast-transferred", "semeval-fast-transferred"),
  ),
  Closing("recommended `accurate`", ("wikiqa-accurate", "trecqa-accurate", "semeval-accurate")),
  Closing(
    "`accurate` begun as one of SQuAD",
    ("wikiqa-accurate-transferred", "trecqa-accurate-transferred", "semeval-accurate-transferred"),
  ),
  Closing(
    "sentence-transformers' trainer, bi-encoder",
    ("peer-bi-wikiqa", "peer-bi-trecqa", "peer-bi-semeval2015_devel"),
    "python -m launch.benchmarks.sentence_transformers_training bi {data} -o {output} --negatives=3",
  ),
  Closing(
    "sentence-transformers' trainer, bi-encoder, the rate of `fast`",
    ("peer-bi-rate-wikiqa", "peer-bi-rate-trecqa", "peer-bi-rate-semeval2015_devel"),
    "python -m launch.benchmarks.sentence_transformers_training bi {data} -o {output} --negatives=3 "
    "--rate=1e-4 --warmup=0.1667",
  ),
  Closing(
    "sentence-transformers' trainer, cross-encoder",
    ("peer-cross-wikiqa", "peer-cross-trecqa", "peer-cross-semeval2015_devel"),
    "python -m launch.benchmarks.sentence_transformers_training cross {data} -o {output}",
  ),
)
