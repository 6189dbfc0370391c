"""Our own tables of training studies on WikiQA: where negatives come from, and whose scores are learnt."""

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import SEEDS, SQUAD_FILES

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
SMALL = {"encoder__pretrained": "runs/small", "epochs": 3}
TEXTS = Measured(
  "first stage",
  "student-2-texts",
  Run.of(
    "recommended.py:fast,distil,shared,minilm",
    **SMALL,
    data__name="files",
    data__train="squad-texts.tsv",
    data__dev="wikiqa/WikiQA-dev.tsv",
    data__teachers=("runs/soft-squad",),
    loss__temperature=0.05,
    evaluation__splits=("dev",),
  ),
)
SQUAD_LABELS = Measured(  # the control: the same texts with their labels, no teacher
  "first stage",
  "student-2-squad",
  Run.of(
    "recommended.py:fast,in_batch,shared,minilm",
    **SMALL,
    **SQUAD_FILES,
    evaluation__splits=("dev",),
  ),
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
    *(
      Measured(
        system, f"student-{name}", Run.of(f"recommended.py:fast,{words}minilm", **values, **SEEDS)
      )
      for system, name, words, values in (
        (
          "6 layers, scores of the cross-encoder, 1 epoch",
          "6-scores",
          "distil,",
          {"epochs": 1, "data__teachers": ("runs/soft-cross",), "data__train_filter": "both"},
        ),
        ("2 of 6 layers, labels, 3 epochs", "2-labels", "", {**SMALL, **SLOW}),
        (
          "2 of 6 layers that first learnt SQuAD's texts from 6, labels, 3 epochs",
          "2-texts-labels",
          "",
          {
            **SMALL,
            **SLOW,
            "warm_start__run": "runs/student-2-texts",
            "warm_start__scope": "encoder",
            "warm_start__seed": 0,
          },
        ),
        (
          "2 of 6 layers that first learnt SQuAD's labels, labels, 3 epochs",
          "2-squad-labels",
          "",
          {
            **SMALL,
            **SLOW,
            "warm_start__run": "runs/student-2-squad",
            "warm_start__scope": "encoder",
            "warm_start__seed": 0,
          },
        ),
        (
          "2 of 6 layers, scores of 6 layers, 3 epochs",
          "2-scores",
          "distil,",
          {
            **SMALL,
            "data__teachers": ("runs/soft-fast",),
            "data__train_filter": "both",
            "loss__temperature": 0.05,
          },
        ),
      )
    ),
  ),
  base="wikiqa-fast",
  main=1,
  first=(TEXTS, SQUAD_LABELS),
)
STUDIES = (NEGATIVES, DISTILLATION)
