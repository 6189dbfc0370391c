"""M²S-Net, table 3: TREC-QA, TRAIN-ALL to the clean test questions."""

from as2jax.experiments.papers.rows import Column, Row, Run

TITLE = "M²S-Net (Meng and Li 2016), table 3: TREC-QA"
SCALE = 1
COLUMNS = (Column("MAP", ("trecqa",), "map"), Column("MRR", ("trecqa",), "mrr"))
ROWS = tuple(
  Row(f"M²S-Net-{name}", published, {"trecqa": Run(f"configs/trecqa_m2snet.py:{words}")})
  for name, words, published in (
    ("Euc", "euc", (0.7265, 0.8218)),
    ("Cos", "cos", (0.7413, 0.8322)),
    ("Shallow", "shallow", (0.7476, 0.8375)),  # of how many modes is not said: 4 here
    ("2", "2", (0.7698, 0.8640)),
    ("4", "4", (0.7793, 0.8487)),
  )
)
CLAIMS = (("M²S-Net-Shallow", "M²S-Net-4"), ("M²S-Net-Euc", "M²S-Net-4"))
