"""Our own table of M²S-Net: its rows on TrecQA, beside the regression on its features and lexical ones."""

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import SEEDS
from .measured_study_rows import TEST

BY_LENGTH = {"model__overlap": "by_length", "model__standardise_overlap": False}
M2SNET = MeasuredTable(
  "m2snet",
  (Column("dev MAP", (), "map", split="dev"), *TEST),
  (
    *(
      Measured(
        f"`{name}`, overlap by length, unscaled",
        f"m2snet-{name}",
        Run.of(
          f"trecqa_m2snet.py:{name}",
          encoder__vectors="trec50.txt",
          data__train_fraction=0.1,
          **BY_LENGTH,
          **SEEDS,
        ),
      )
      for name in ("euc", "cos", "shallow", "2", "4")
    ),
    *(
      Measured(
        f"`{row}`, `tuned`{what}",
        f"m2snet-{row}-tuned{name}",
        Run.of(f"trecqa_m2snet.py:{row},tuned", encoder__vectors="trec50.txt", **part, **SEEDS),
      )
      for row, what, name, part in (
        ("4", "", "-tenth", {"data__train_fraction": 0.1}),
        ("euc", ", all of TRAIN-ALL", "", {}),
        ("4", ", all of TRAIN-ALL", "", {}),
      )
    ),
    *(
      Measured(
        f"logistic regression on overlap {what}",
        f"trecqa-all-regression{name}",
        Run.of("trecqa_baseline.py:overlap_regression", data__name="trecqa_all", **form),
      )
      for what, name, form in (
        ("by length, the features of `4`", "", {}),
        ("counts", "-counts", {"model__overlap": "counts"}),
      )
    ),
    *(
      Measured(
        system, f"trecqa-all-{name}", Run.of(f"trecqa_baseline.py:{words}", data__name="trecqa_all")
      )
      for system, name, words in (
        ("word overlap", "word-overlap", "word_overlap"),
        ("IDF overlap", "idf-overlap", "idf_overlap"),
        ("BM25", "bm25", "bm25"),
      )
    ),
    *(
      Measured(f"*`{name}`, paper (all of TRAIN-ALL, GloVe)*", published=("", f"*{a}*", f"*{b}*"))
      for name, a, b in (
        ("euc", ".727", ".822"),
        ("cos", ".741", ".832"),
        ("shallow", ".748", ".838"),
        ("2", ".770", ".864"),
        ("4", ".779", ".849"),
      )
    ),
  ),
  base="trecqa-all-idf-overlap",
  main=1,
)
