"""ASBERT, table 4: TrecQA, whose counts (table 2) fit the small TRAIN."""

from . import asbert_rows

TITLE = "ASBERT (Shonibare 2021), table 4: TrecQA"
SCALE = 1
COLUMNS = asbert_rows.columns("trecqa")
ROWS = asbert_rows.rows(
  "trecqa",
  {
    "GloVe": (0.579, 0.511, 0.602),
    "fastText": (0.629, 0.559, 0.632),
    "InferSent": (0.534, 0.585, 0.671),  # the figures of CLS-BERT: one of them is a misprint
    "USE": (0.716, 0.707, 0.819),
    "CLS-BERT": (0.534, 0.585, 0.671),
    "MEAN-BERT": (0.391, 0.363, 0.429),
    "Sentence-BERT": (0.580, 0.589, 0.691),
    "Siamese-BERT": (0.627, 0.604, 0.650),
    "Siamese-RoBERTa": (0.634, 0.583, 0.635),
    "Siamese-XLNet": (0.620, 0.527, 0.559),
    "Triplet-BERT": (0.674, 0.752, 0.835),
    "Triplet-RoBERTa": (0.687, 0.736, 0.827),
    "Triplet-XLNet": (0.551, 0.567, 0.645),
  },
)
CLAIMS = (("Sentence-BERT", "Triplet-BERT"), ("Siamese-BERT", "Triplet-BERT"))
