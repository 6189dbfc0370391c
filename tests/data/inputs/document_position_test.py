"""Places of candidates in their document: by hand, and where they are not known."""

import numpy as np
import pytest
import tiny

from as2jax.data import dataset
from as2jax.data.inputs.document_position import DocumentPosition, places
from as2jax.data.inputs.protocol import Resources
from as2jax.data.record import Candidate, Question
from as2jax.runtime.errors import InputError


def question(*pairs):
  """A question whose candidates have a text and a previous sentence each."""
  return Question("Q", "", tuple(Candidate(t, t, previous=previous) for t, previous in pairs))


def test_places_by_hand_and_of_whole_articles():
  assert places(question(("a", ""))) == [0]
  assert places(question(("a", ""), ("b", "a"), ("b", "b"), ("c", ""), ("d", "c"))) == [
    0,
    1,
    2,
    0,
    1,
  ]
  for one in dataset.load("sample").splits["train"]:
    np.testing.assert_array_equal(places(one), np.arange(len(one.candidates)))


@pytest.mark.parametrize(
  "pairs, message",
  [
    ((("a", ""), ("b", "")), "'Q': no candidate has a previous sentence"),
    ((("b", "a"), ("a", "")), "of candidate 'b' is not before it"),
    (
      (("a", ""), ("c", "b")),
      "of candidate 'c' is not before it.* give all its sentences in order",
    ),
  ],
)
def test_candidates_without_places_are_refused(pairs, message):
  with pytest.raises(InputError, match=message):
    places(question(*pairs))


@pytest.mark.parametrize(
  "key, value", [("data__neighbours", "drawn"), ("evaluation__task", "retrieve")]
)
def test_a_run_whose_candidates_have_no_places_is_refused(key, value):
  config = tiny.config("crossencoder", "position", **{key: value})
  with pytest.raises(InputError, match=f"model.position = True with .*'{value}'"):
    DocumentPosition().bind(Resources(config, None, "", None))
