"""ASBERT, table 3: WikiQA."""

from . import asbert_rows

TITLE = "ASBERT (Shonibare 2021), table 3: WikiQA"
SCALE = 1
COLUMNS = asbert_rows.columns("wikiqa")
ROWS = asbert_rows.rows(
  "wikiqa",
  {
    "GloVe": (0.571, 0.598, 0.611),
    "fastText": (0.612, 0.626, 0.638),
    "InferSent": (0.447, 0.474, 0.479),  # the figures of CLS-BERT: one of them is a misprint
    "USE": (0.614, 0.648, 0.655),
    "CLS-BERT": (0.447, 0.474, 0.479),
    "MEAN-BERT": (0.343, 0.337, 0.341),
    "Sentence-BERT": (0.564, 0.586, 0.593),
    "Siamese-BERT": (0.767, 0.704, 0.719),
    "Siamese-RoBERTa": (0.739, 0.685, 0.697),
    "Siamese-XLNet": (0.736, 0.683, 0.697),
    "Triplet-BERT": (0.830, 0.795, 0.804),
    "Triplet-RoBERTa": (0.817, 0.787, 0.803),
    "Triplet-XLNet": (0.724, 0.665, 0.677),
  },
)
CLAIMS = (("Sentence-BERT", "Triplet-BERT"), ("Siamese-BERT", "Triplet-BERT"))
