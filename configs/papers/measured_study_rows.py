"""Our own tables of training studies on WikiQA: where negatives come from, and whose scores are learnt."""

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import SEEDS

DEV = Column("dev MAP", (), "map", split="dev")
# `fast` and `accurate` before dev chose their rates.
SLOW = {"optimizer__rate": 2e-5, "optimizer__warmup": 0.1}
TEST = tuple(Column(heading, (), metric) for heading, metric in (("MAP", "map"), ("MRR", "mrr")))
UNTRAINED = Measured(
  "MiniLM, mean-pooled, untrained, cosine", "wikiqa-mean", Run.of("wikiqa_baseline.py:mean,minilm")
)
LABELLED = Measured(
  "6 layers, labels, 1 epoch",
  "wikiqa-fast",
  Run.of("recommended.py:fast,minilm", epochs=1, **SLOW, **SEEDS),
)
IN_BATCH = Run.of(
  "recommended.py:fast,in_batch,minilm", epochs=1, data__labelled_negatives=False, **SEEDS
)


def _with(**values):
  return Run(IN_BATCH.config, {**IN_BATCH.settings, **Run.of("", **values).settings})


NEGATIVES = MeasuredTable(
  "negatives",
  (DEV, *TEST),
  (
    UNTRAINED,
    *(
      Measured(system, f"negatives-{name}", _with(**values))
      for system, name, values in (
        ("answers of other questions alone", "in-batch", {"data__train_filter": "answerable"}),
        ("and eight drawn sentences a question", "random", {"data__mined": ("runs/random",)}),
        ("and eight mined sentences a question", "mined", {"data__mined": ("runs/mined",)}),
      )
    ),
    LABELLED._replace(system="the labelled candidates of the question"),
  ),
  base="negatives-in-batch",
  main=1,
)
DISTILLATION = MeasuredTable(
  "distillation",
  (DEV, *TEST),
  (
    LABELLED,
    Measured(
      "the cross-encoder itself, labels, 3 epochs",
      "wikiqa-accurate-slow",
      Run.of("recommended.py:accurate,minilm", **SLOW, **SEEDS),
    ),
    Measured(
      "6 layers, scores of the cross-encoder, 1 epoch",
      "student-6-scores",
      Run.of(
        "recommended.py:fast,distil,minilm",
        epochs=1,
        data__teachers=("runs/soft-cross",),
        data__train_filter="both",
        **SEEDS,
      ),
    ),
  ),
  base="wikiqa-fast",
  main=1,
)
STUDIES = (NEGATIVES, DISTILLATION)
