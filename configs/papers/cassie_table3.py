"""CASSIE, table 3: WikiQA, clean dev and test together, plain and ASNQ-finetuned RoBERTa-base."""

from as2jax.experiments.papers.rows import Column, Row, Run

from . import cassie_rows

TITLE = "CASSIE (Nguyen et al. 2023), table 3: WikiQA, dev and test together"
SCALE = 100
COLUMNS = tuple(
  Column(f"{name} {metric.upper()}", (name,), metric, split="dev+test")
  for name in ("plain", "ASNQ")
  for metric in ("p@1", "map")
)
# The published figures of TANDA and LOCT are those of LOCT's paper, as CASSIE's table says.
PLAIN_TANDA = {**cassie_rows.HELD, "data.rules": ()}  # without CETE's text rules
ROWS = (
  Row(
    "TANDA",
    (63.24, 75.00, 78.67, 86.74),
    {
      "plain": Run("configs/wikiqa_crossencoder.py:roberta", PLAIN_TANDA),
      "ASNQ": cassie_rows.transferred("configs/wikiqa_tanda.py", cassie_rows.HELD, "all"),
    },
  ),
  Row(
    "LOCT",
    (68.09, 79.00, 81.31, 88.00),
    {
      "plain": Run("configs/wikiqa_loct.py"),
      "ASNQ": cassie_rows.transferred("configs/wikiqa_loct.py", {}, "encoder"),
    },
  ),
  Row(
    "CASSIE",
    (74.16, 83.29, 83.77, 89.28),
    {
      "plain": Run("configs/wikiqa_cassie.py"),
      "ASNQ": cassie_rows.transferred("configs/wikiqa_cassie.py", {}, "encoder"),
    },
  ),
)
CLAIMS = (("TANDA", "CASSIE"), ("LOCT", "CASSIE"))
