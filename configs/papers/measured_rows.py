"""Our own tables: rows, and the runs behind them.

`as2jax lab measured` makes the READMEs' tables from these and from
`results/`, where each run that was collected lies under its row's name.
"""

from as2jax.experiments.papers.measured import Measured, MeasuredTable, Summary
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import (
  CASSIE,
  CASSIE_JOINT,
  CASSIE_LONGER,
  CASSIE_PARTS,
  SEEDS,
  SQUAD_FILES,
)
from .measured_closing_rows import CLOSING as CLOSING
from .measured_closing_rows import CLOSING_DATA as CLOSING_DATA
from .measured_cross_vae_rows import CROSS_VAES
from .measured_m2snet_rows import M2SNET, OVERLAP
from .measured_study_rows import SLOW, STUDIES, TEST
from .measured_tuned_rows import TUNED

MEAN = "MiniLM, mean-pooled, untrained, cosine"
FIVE = {"seeds": (0, 1, 2, 3, 4)}
P1 = Column("P@1", (), "p@1")
PARAGRAPHS = Measured(
  "first stage",
  "fast-transfers",
  Run.of(
    "recommended.py:fast,in_batch,shared,minilm",
    **SQUAD_FILES,
    epochs=1,
    evaluation__splits=("dev",),
    **SEEDS,
  ),
)
BEGUN = {  # each seed with that seed of the first stage
  "warm_start__run": "runs/fast-transfers",
  "warm_start__scope": "encoder",
  **SLOW,
  **SEEDS,
}
ALONE = {"epochs": 0, **BEGUN}
RANKER = {"warm_start__run": "runs/accurate-transfers", "warm_start__scope": "all", **SLOW, **SEEDS}
PARAGRAPHS_READ = Measured(
  "first stage",
  "accurate-transfers",
  Run.of(
    "recommended.py:accurate,minilm",
    **SQUAD_FILES,
    data__train_fraction=0.1,
    epochs=1,
    evaluation__splits=("dev",),
    **SLOW,
    **SEEDS,
  ),
)

WIKIQA = MeasuredTable(
  "wikiqa",
  (Column("dev MAP", (), "map", split="dev"), *TEST, P1),
  (
    Measured("word overlap", "wikiqa-word-overlap", Run.of("wikiqa_baseline.py:word_overlap")),
    Measured("IDF overlap", "wikiqa-idf-overlap", Run.of("wikiqa_baseline.py:idf_overlap")),
    Measured("BM25", "wikiqa-bm25", Run.of("wikiqa_baseline.py:bm25")),
    Measured(MEAN, "wikiqa-mean", Run.of("wikiqa_baseline.py:mean,minilm")),
    Measured(
      "triplet, paper's batches, 1 epoch",
      "wikiqa-triplet",
      Run.of("wikiqa_triplet.py:minilm", epochs=1, **SEEDS),
    ),
    Measured(
      "triplet, grouped, 3 epochs",
      "wikiqa-triplet-grouped",
      Run.of("wikiqa_triplet.py:grouped,minilm", epochs=3, **FIVE),
    ),
    Measured(
      "siamese, grouped, head × 100, 3 epochs",
      "wikiqa-siamese",
      Run.of(
        "wikiqa_siamese.py:grouped,minilm",
        epochs=3,
        optimizer__lr_multipliers=(("^(?!encoder/)", 100.0),),
        **SEEDS,
      ),
    ),
    Measured(
      "recommended `fast`, 3 epochs",
      "wikiqa-recommended-fast",
      Run.of("recommended.py:fast,minilm", **FIVE),
    ),
    Measured(
      "`fast`, 3 epochs, rate 2e-5",
      "wikiqa-fast-slow",
      Run.of("recommended.py:fast,minilm", **SLOW, **FIVE),
    ),
    Measured(
      "`fast` of SQuAD's paragraphs alone",
      "wikiqa-fast-squad-alone",
      Run.of("recommended.py:fast,minilm", **ALONE),
    ),
    Measured(
      "`fast` begun from these, 3 epochs",
      "wikiqa-fast-transferred",
      Run.of("recommended.py:fast,minilm", **BEGUN),
    ),
    Measured(
      "recommended `accurate`, 3 epochs",
      "wikiqa-accurate",
      Run.of("recommended.py:accurate,minilm", **FIVE),
    ),
    Measured(
      "`accurate`, 3 epochs, rate 2e-5",
      "wikiqa-accurate-slow",
      Run.of("recommended.py:accurate,minilm", **SLOW, **SEEDS),
    ),
    Measured(
      "`accurate` begun from `fast`, 2e-5",
      "wikiqa-accurate-from-fast",
      Run.of(
        "recommended.py:accurate,minilm",
        warm_start__run="runs/wikiqa-fast-slow",
        warm_start__scope="encoder",
        **SLOW,
        **SEEDS,
      ),
    ),
    Measured(
      "`accurate` begun as one of a tenth of SQuAD's questions, 2e-5",
      "wikiqa-accurate-transferred",
      Run.of("recommended.py:accurate,minilm", **RANKER),
    ),
    Measured(
      "cross-encoder, 1 epoch, answerable questions",
      "wikiqa-crossencoder",
      Run.of(
        "wikiqa_crossencoder.py:minilm",
        epochs=1,
        data__train_filter="answerable",
        data__rules=(),
        **FIVE,
      ),
    ),
    Measured(
      "*ASBERT's paper, Triplet-BERT (BERT-base)*", published=("*.830*", "*.795*", "*.804*", "")
    ),
  ),
  base="wikiqa-mean",
  main=1,
  first=(PARAGRAPHS, PARAGRAPHS_READ),
)
TRECQA = MeasuredTable(
  "trecqa",
  (*TEST, P1),
  (
    Measured("BM25", "trecqa-bm25", Run.of("trecqa_baseline.py:bm25")),
    Measured(MEAN, "trecqa-mean", Run.of("trecqa_baseline.py:mean,minilm")),
    Measured(
      "triplet, grouped, 1 epoch",
      "trecqa-triplet",
      Run.of("trecqa_triplet.py:minilm,grouped", epochs=1, **FIVE),
    ),
    Measured(
      "recommended `fast`, 3 epochs",
      "trecqa-recommended-fast",
      Run.of("recommended.py:fast,minilm", data__name="trecqa", data__rules=("ptb",), **FIVE),
    ),
    Measured(
      "`fast`, 3 epochs, rate 2e-5",
      "trecqa-fast-slow",
      Run.of(
        "recommended.py:fast,minilm", data__name="trecqa", data__rules=("ptb",), **SLOW, **FIVE
      ),
    ),
    Measured(
      "`fast` of SQuAD's paragraphs alone",
      "trecqa-fast-squad-alone",
      Run.of("recommended.py:fast,minilm", data__name="trecqa", data__rules=("ptb",), **ALONE),
    ),
    Measured(
      "`fast` begun from these, 3 epochs",
      "trecqa-fast-transferred",
      Run.of("recommended.py:fast,minilm", data__name="trecqa", data__rules=("ptb",), **BEGUN),
    ),
    Measured(
      "recommended `accurate`, 3 epochs",
      "trecqa-accurate",
      Run.of("recommended.py:accurate,minilm", data__name="trecqa", data__rules=("ptb",), **FIVE),
    ),
    Measured(
      "`accurate`, 3 epochs, rate 2e-5",
      "trecqa-accurate-slow",
      Run.of(
        "recommended.py:accurate,minilm", data__name="trecqa", data__rules=("ptb",), **SLOW, **SEEDS
      ),
    ),
    Measured(
      "`accurate` begun as one of a tenth of SQuAD's questions, 2e-5",
      "trecqa-accurate-transferred",
      Run.of("recommended.py:accurate,minilm", data__name="trecqa", data__rules=("ptb",), **RANKER),
    ),
    Measured(
      "cross-encoder, 3 epochs",
      "trecqa-crossencoder",
      Run.of("trecqa_crossencoder.py:minilm", data__name="trecqa", **FIVE),
    ),
  ),
  base="trecqa-mean",
  first=(PARAGRAPHS, PARAGRAPHS_READ),
)
DEVEL = {"data__name": "semeval2015_devel"}
SEMEVAL = MeasuredTable(
  "semeval2015",
  (*TEST, P1),
  (
    Measured("BM25", "semeval-bm25", Run.of("semeval_baseline.py:bm25", **DEVEL)),
    Measured(MEAN, "semeval-mean", Run.of("semeval_baseline.py:mean,minilm", **DEVEL)),
    Measured(
      "triplet, grouped, 1 epoch",
      "semeval-triplet",
      Run.of("semeval_triplet.py:minilm,grouped", **DEVEL, epochs=1, **FIVE),
    ),
    Measured(
      "recommended `fast`, 3 epochs",
      "semeval-recommended-fast",
      Run.of("recommended.py:fast,minilm", **DEVEL, **FIVE),
    ),
    Measured(
      "`fast`, 3 epochs, rate 2e-5",
      "semeval-fast-slow",
      Run.of("recommended.py:fast,minilm", **DEVEL, **SLOW, **FIVE),
    ),
    Measured(
      "`fast` of SQuAD's paragraphs alone",
      "semeval-fast-squad-alone",
      Run.of("recommended.py:fast,minilm", **DEVEL, **ALONE),
    ),
    Measured(
      "`fast` begun from these, 3 epochs",
      "semeval-fast-transferred",
      Run.of("recommended.py:fast,minilm", **DEVEL, **BEGUN),
    ),
    Measured(
      "recommended `accurate`, 3 epochs",
      "semeval-accurate",
      Run.of("recommended.py:accurate,minilm", **DEVEL, **FIVE),
    ),
    Measured(
      "`accurate`, 3 epochs, rate 2e-5",
      "semeval-accurate-slow",
      Run.of("recommended.py:accurate,minilm", **DEVEL, **SLOW, **SEEDS),
    ),
    Measured(
      "`accurate` begun as one of a tenth of SQuAD's questions, 2e-5",
      "semeval-accurate-transferred",
      Run.of("recommended.py:accurate,minilm", **DEVEL, **RANKER),
    ),
    Measured(
      "cross-encoder, 3 epochs",
      "semeval-crossencoder",
      Run.of("semeval_crossencoder.py:minilm", **DEVEL, **FIVE),
    ),
  ),
  base="semeval-mean",
  first=(PARAGRAPHS, PARAGRAPHS_READ),
)


def _cete(data):
  added = {"model__positions": "sinusoids"}  # section 3.1; the default follows the authors' code
  return MeasuredTable(
    f"cete-{data}",
    (Column("dev MAP", (), "map", split="dev"), TEST[0]),
    (
      Measured(
        "the mean of the vectors",
        f"{data}-cete-mean",
        Run.of(f"{data}_cete.py:minilm,no_encoder", **added, **SEEDS),
      ),
      Measured(
        "CETE's encoder, sinusoids added",
        f"{data}-cete",
        Run.of(f"{data}_cete.py:minilm", **added, **SEEDS),
      ),
      Measured("CETE's encoder", f"{data}-cete-plain", Run.of(f"{data}_cete.py:minilm", **SEEDS)),
      Measured(
        "CETE's encoder, rate 5e-4",
        f"{data}-cete-rate",
        Run.of(f"{data}_cete.py:minilm", **SEEDS, optimizer__rate=5e-4),
      ),
    ),
    base=f"{data}-cete-mean",
    main=1,
  )


GOLD = tuple(Column(m.upper(), (), m, "gold") for m in ("mrr", "r@1", "r@5"))
SQUAD = MeasuredTable(
  "squad",
  GOLD,
  (
    Measured("BM25", "squad-bm25", Run.of("squad_baseline.py:bm25,squad_44")),
    Measured(
      "MiniLM, mean of its vectors", "squad-mean", Run.of("squad_baseline.py:mean,minilm,squad_44")
    ),
  ),
  base="squad-bm25",
)
TABLES = (
  WIKIQA,
  TRECQA,
  SEMEVAL,
  _cete("wikiqa"),
  _cete("trecqa"),
  CASSIE,
  *CASSIE_LONGER,
  CASSIE_PARTS,
  CASSIE_JOINT,
  M2SNET,
  OVERLAP,
  SQUAD,
  CROSS_VAES,
  *STUDIES,
  *TUNED,
)
SUMMARY = (
  Summary("WikiQA clean test, MAP", "wikiqa", 1, "wikiqa-bm25"),
  Summary("", "wikiqa", 1, "wikiqa-mean"),
  Summary("", "wikiqa", 1, "wikiqa-triplet-grouped", ".795 (ASBERT, BERT-base)"),
  Summary("", "wikiqa", 1, "wikiqa-recommended-fast"),
  Summary("", "wikiqa", 1, "wikiqa-accurate"),
  Summary(
    "WikiQA clean dev + test, MAP",
    "cassie-three-epochs",
    2,
    "cassie-tuned-3",
    ".833 (RoBERTa-base)",
    "CASSIE, `tuned`, 3 epochs",
  ),
  Summary(
    "",
    "cassie-three-epochs",
    2,
    "cassie-loct-3",
    ".790 (RoBERTa-base)",
    "LOCT, head and roles × 10, 3 epochs",
  ),
  Summary(
    "",
    "cassie-three-epochs",
    2,
    "cassie-plain-3",
    ".750 (RoBERTa-base)",
    "plain cross-encoder, head × 10, 3 epochs",
  ),
  Summary("TrecQA clean test, MAP", "trecqa", 0, "trecqa-recommended-fast"),
  Summary("", "m2snet", 1, "m2snet-4-all", ".779 (GloVe)", "M²S-Net `4`"),
  Summary("", "m2snet", 1, "trecqa-all-idf-overlap"),
  Summary("SQuAD sentence retrieval, MRR", "cross-vaes", 1, "squad-cross-vae-paper-size"),
  Summary("", "cross-vaes", 1, "squad-parts-bm25"),
)
