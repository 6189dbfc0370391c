"""ASBERT, table 5: two questions searched by both networks, side by side.

The figures are those that the table's head states for the two runs; the searches stand under them.
"""

from as2jax.experiments.papers.rows import Column

from . import asbert_rows

TITLE = "ASBERT (Shonibare 2021), table 5: two searches among WikiQA's test sentences"
SCALE = 1
COLUMNS = (Column("MAP test", ("wikiqa",), "map"),)
ROWS = asbert_rows.rows("wikiqa", {"Siamese-BERT": (0.704,), "Triplet-BERT": (0.795,)})
SEARCHES = ("who is the founder of twitter", "how does interlibrary loan work")
