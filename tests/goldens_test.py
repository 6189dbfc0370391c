"""Values recorded at commit b25fa98 that later trees must give again.

Those of training steps are in `training/golden`; `goldens/compare_trees.py` compares two trees to the bit.
"""

import hashlib

from goldens import break_texts

SENTENCES = "1e284d0cfac8ded4f5d4f74d98f0acff0e90079b10dbb54ff1b717f32d9baf5d"


def test_500_texts_are_broken_where_they_were():
  assert hashlib.sha256(break_texts.broken().encode()).hexdigest() == SENTENCES
