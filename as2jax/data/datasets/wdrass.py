"""WDRASS (Zhang et al. 2022): answer sentence selection over Web documents.

Its files were not available when this was written, so the format is an assumption: JSON-lines with
one labelled sentence per line, as in `labelled_lines.py`. No counts are claimed.
"""

from as2jax.data.datasets.files_on_disk import Spec
from as2jax.data.datasets.labelled_lines import iterate_judged

WDRASS = Spec(
  name="wdrass",
  reader=iterate_judged,
  version="1.0.0",
  files={split: (f"{split}.jsonl",) for split in ("train", "dev", "test")},
  folders=("wdrass", "WDRASS"),
  clean="answerable",
  published={},
  citation="Zhang, Vu, Gandhi, Chadha and Moschitti: WDRASS: A Web-scale Dataset for Document "
  "Retrieval and Answer Sentence Selection (CIKM 2022)",
)

SPECS = (WDRASS,)
