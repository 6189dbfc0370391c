"""CASSIE, table 4: WDRASS, ASNQ-finetuned RoBERTa-base."""

from as2jax.experiments.papers.rows import Column, Row

from . import cassie_rows

TITLE = "CASSIE (Nguyen et al. 2023), table 4: WDRASS"
SCALE = 100
COLUMNS = tuple(Column(metric.upper(), ("wdrass",), metric) for metric in ("p@1", "map", "mrr"))
WDRASS = {
  "data.name": "wdrass",
  "seeds": (0, 1, 2),
  "data.holdout": 0.0,
  "evaluation.splits": ("dev", "test"),
}
TANDA = cassie_rows.transferred("configs/wikiqa_tanda.py", WDRASS, "all")
CASSIE = cassie_rows.transferred("configs/wikiqa_cassie.py", WDRASS, "encoder")
# TANDA with one seed, which ranks the training questions, too; its top candidates are ranked again.
RANKER = TANDA._replace(
  settings={**TANDA.settings, "seeds": (0,), "evaluation.splits": ("train", "dev", "test")}
)
JOINT = cassie_rows.transferred("configs/wikiqa_cassie.py:joint", WDRASS, "encoder")
ROWS = (
  Row("TANDA", (54.6, 63.5, 64.3), {"wdrass": TANDA}),
  Row("CASSIE", (55.9, 61.8, 69.7), {"wdrass": CASSIE}),
  Row(
    "CASSIE (joint)",
    (55.9, 64.2, 65.0),
    {"wdrass": JOINT._replace(after={**JOINT.after, "data.ranking": RANKER})},
  ),
)
CLAIMS = (("TANDA", "CASSIE"), ("TANDA", "CASSIE (joint)"))
