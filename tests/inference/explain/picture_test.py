"""Pictures as SVG and PDF: cells are shapes, labels are text, and the bytes can be repeated."""

import json

import numpy as np
import pytest

from as2jax.inference.explain import alignment_picture, heatmap, picture
from as2jax.inference.explain.alignment_view import Sentence, View
from as2jax.inference.explain.token_similarity import Similarity
from as2jax.runtime.errors import InputError

pytest.importorskip("matplotlib")


def similarity():
  cosine = np.array([[0.1, 0.9, -0.2], [0.5, 0.0, 1.0]])
  return Similarity(("who", "sat"), ("the", "$cat$", "sat"), cosine, 0.7, "cosine")


def view():
  plan = np.array([[0.1, 0.4, 0.0], [0.0, 0.1, 0.4]])
  words = ("the", "$cat$", "sat")
  relevant = np.array([False, True, True])
  one = Sentence("candidate", "the $cat$ sat", words, plan, 1 - plan, relevant, 0.3, 0.1)
  return View("who sat", ("who", "sat"), (one,), np.array([[1.0]]), True)


DRAWN = {
  "heatmap": lambda form: heatmap.draw([("a title", similarity())], form),
  "alignment": lambda form: alignment_picture.draw(view(), "a title", form),
}


@pytest.mark.parametrize("name", DRAWN)
def test_they_are_drawn_as_shapes_and_text(name):
  svg, pdf, png = (DRAWN[name](form) for form in (".svg", ".pdf", ".png"))
  assert png.startswith(b"\x89PNG")
  assert b"<image" not in svg and b"$cat$</text>" in svg
  assert pdf.startswith(b"%PDF") and b"/Subtype /Image" not in pdf and b"/Font" in pdf
  assert DRAWN[name](".svg") == svg and DRAWN[name](".pdf") == pdf


def test_a_word_that_occurs_twice_keeps_each_of_its_choices():
  plan = np.array([[0.5, 0.0], [0.0, 0.5]])
  words, relevant = ("the", "cat"), np.array([True, True])
  one = Sentence("candidate", "the cat", words, plan, 1 - plan, relevant, 0.3, 0.1)
  (row,) = alignment_picture.rows(View("who who", ("who", "who"), (one,), None, True))
  assert json.loads(json.dumps(row["chosen"])) == [["who", "the"], ["who", "cat"]]


def test_other_forms_are_refused():
  assert picture.check("a/b.PDF") == ".pdf"
  with pytest.raises(InputError, match="ends in .png, .svg, .pdf"):
    picture.check("x.jpg")
