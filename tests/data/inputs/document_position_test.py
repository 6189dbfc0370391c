"""Places of candidates in their document: by hand, and where they are not known."""

import numpy as np
import pytest
import tiny

from as2jax.data import dataset
from as2jax.data.inputs.document_position import DocumentPosition, places
from as2jax.data.inputs.protocol import Resources
from as2jax.data.record import Candidate, Question
from as2jax.runtime.errors import InputError


def of(*pairs):
  """Places of candidates, of which each has a text and a previous sentence."""
  return places(Question("Q", "", tuple(Candidate(t, t, previous=before) for t, before in pairs)))


def bind(**changes):
  config = tiny.config("crossencoder", "position", **changes)
  return DocumentPosition().bind(Resources(config, None, "", None))


def test_places_by_hand_and_of_whole_articles():
  assert of(("a", "")) == [0]
  assert of(("a", ""), ("b", "a"), ("b", "b"), ("c", ""), ("d", "c")) == [0, 1, 2, 0, 1]
  for one in dataset.load("sample").splits["train"]:
    np.testing.assert_array_equal(places(one), np.arange(len(one.candidates)))


REFUSED = {
  "'Q': no candidate has a previous sentence": lambda: of(("a", ""), ("b", "")),
  "of candidate 'b' is not before it": lambda: of(("b", "a"), ("a", "")),
  "'c' is not before it.* all its sentences in order": lambda: of(("a", ""), ("c", "b")),
  "model.position = True with .*'drawn'": lambda: bind(data__neighbours="drawn"),
  "model.position = True with .*'retrieve'": lambda: bind(evaluation__task="retrieve"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_places_that_are_not_known_are_refused(message):
  with pytest.raises(InputError, match=message):
    REFUSED[message]()
