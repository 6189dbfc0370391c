"""Our own table of M²S-Net: its rows on TrecQA, beside the regression on its features and lexical ones."""

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import HELD, SEEDS
from .measured_study_rows import TEST

BY_LENGTH = {"model__overlap": "by_length", "model__standardise_overlap": False}
TENTH = {"data__train_fraction": 0.1}
SHARES = {"model__overlap": "shares"}
M2SNET = MeasuredTable(
  "m2snet",
  (Column("dev MAP", (), "map", split="dev"), *TEST),
  (
    *(
      Measured(
        f"`{name}`, overlap by length, unscaled",
        f"m2snet-{name}",
        Run.of(
          f"trecqa_m2snet.py:{name}", encoder__vectors="trec50.txt", **TENTH, **BY_LENGTH, **SEEDS
        ),
      )
      for name in ("euc", "cos", "shallow", "2", "4")
    ),
    *(
      Measured(
        f"`{row}`{what}",
        f"m2snet-{row}-{name}",
        Run.of(f"trecqa_m2snet.py:{row}", encoder__vectors="trec50.txt", **part, **SEEDS),
      )
      for what, name, part, rows in (
        ("", "tenth", TENTH, ("cos", "shallow", "2", "4")),
        (", all of TRAIN-ALL", "all", {}, ("euc", "cos", "shallow", "2", "4")),
        (", overlap as shares", "shares-tenth", {**SHARES, **TENTH}, ("4",)),
        (", overlap as shares, all of TRAIN-ALL", "shares-all", SHARES, ("euc", "4")),
      )
      for row in rows
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
HELD_OUT = {
  "data__holdout": 0.2,
  "evaluation__splits": ("heldout",),
  "encoder__vectors": "trec50.txt",
  **TENTH,
}
OVERLAP = MeasuredTable(
  "m2snet-overlap",
  (HELD,),
  tuple(
    Measured(
      system, f"m2snet-held-{name}", Run.of("trecqa_m2snet.py:4", **HELD_OUT, **form, **SEEDS)
    )
    for system, name, form in (
      ("counts, standardised (the default)", "counts", {}),
      ("shares of the question, standardised", "shares", SHARES),
      ("by length, standardised", "by-length", {"model__overlap": "by_length"}),
      (
        "shares of the question, unscaled",
        "shares-unscaled",
        {**SHARES, "model__standardise_overlap": False},
      ),
    )
  ),
  base="m2snet-held-counts",
)
