"""Units of the template `joint`: one question with 1 … K candidates, cut to one level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenise_test import letters

from as2jax.data.text.input_templates import truncate
from as2jax.data.text.tokenise import build_units


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlnet"])
def test_joint_units_are_as_long_as_they_have_candidates(kind):
  """Each unit equals the one that a table of units of its length alone has."""
  units = [("ab", "c", "de", "f"), ("ab", "ef"), ("c", "d", "ab")]
  options = {"template": "joint", "max_length": 40, "words": True}
  content = lambda table, u: (
    [x.tolist() for x in table.unit(u)[:-1]]
    + [[table.forms[form] for form in table.unit(u).word_form]]
  )
  mixed = build_units(units, letters(kind), **options)
  for number, unit in enumerate(units):
    table = build_units([unit], letters(kind), **options)
    assert content(table, 0) == content(mixed, number)
    alone = table.unit(0)
    assert sorted(set(alone.word_role.tolist())) == list(range(len(unit)))
    assert alone.word_role.tolist() == sorted(alone.word_role.tolist())
  pair = build_units([units[1]], letters(kind), template="pair", max_length=40, words=True)
  assert content(pair, 0) == content(mixed, 1)
  assert (mixed.truncated_units, mixed.blank_units) == (0, 0)


def test_joint_by_hand():
  """[CLS] a b [SEP] c [SEP] d e [SEP]: special tokens close the part before them."""
  unit = build_units(
    [("ab", "c", "de"), ("a", "b", "c", "d")], letters(), template="joint", max_length=20
  ).unit(0)
  assert unit.role.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]
  assert unit.type.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]


@given(
  lengths=st.lists(st.tuples(*[st.integers(0, 12)] * 4), min_size=1, max_size=5),
  room=st.integers(4, 40),
)
def test_joint_parts_are_cut_to_one_level(lengths, room):
  lengths = np.array(lengths)
  kept = truncate(lengths, "joint", room)
  assert (kept <= lengths).all() and (kept[lengths > 0] > 0).all()
  np.testing.assert_array_equal(kept.sum(1), np.minimum(lengths.sum(1), room))
  for whole, cut in zip(lengths, kept, strict=True):
    short = cut[cut < whole]
    if len(short):  # those that lost are equal but for the rest of a division, and none is longer
      assert short.max() - short.min() <= 1 and cut.max() <= short.min() + 1
