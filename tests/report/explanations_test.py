"""Explanations in the page: what the model computes, by words, of the questions that are flagged."""

import numpy as np
import pytest

from as2jax.data.record import Question
from as2jax.inference.explain.token_similarity import Words
from as2jax.inference.run import Run
from as2jax.report import explanations, make, questions, runs
from as2jax.runtime.errors import InputError

SYSTEMS = ("triplet", *(pytest.param(s, marks=pytest.mark.slow) for s in ("m2snet", "cassie")))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_of_each_kind_is_explained(finished_run, system):
  read = runs.read([str(finished_run("bm25")), str(finished_run(system))])
  asked = explanations.chosen(questions.rows(read, "map"), 1, ())
  (one,) = explanations.explain(read, asked)
  assert one.pairs[0][0].label == 1
  for _, shown in one.pairs:
    (picture,) = shown  # of the run with parameters alone
    assert picture.system == system and picture.drawing is not None, picture.said
    assert "the strongest is" in picture.said
  assert bool(one.neighbours) == (system == "triplet")
  section, figures = explanations.section([one])
  assert len(figures) == len(one.pairs) and section.count("<svg") == len(figures)


def test_cells_are_the_cosines_of_words(finished_run):
  folder = finished_run("triplet")
  read = runs.read([str(folder)])
  rows = questions.rows(read, "map")
  asked = explanations.chosen(rows, 0, [rows[3].id])
  (one,) = explanations.explain(read, asked)
  candidate, (picture,) = one.pairs[0]
  run = Run(folder)
  pair = Question(one.question.id, one.question.text, (candidate,))
  found = Words(run, pair).similarity(run.ranker())
  best = [found.candidate[n] for n in found.cosine.argmax(1)]
  expected = "; ".join(f"{a}: {b}" for a, b in zip(found.question, best, strict=True))
  assert picture.drawing.description == expected
  tips = [shape.tip for shape in picture.drawing.shapes if shape.tip]
  i, j = np.unravel_index(found.cosine.argmax(), found.cosine.shape)
  assert f"{found.question[i]} – {found.candidate[j]}: {found.cosine[i, j]:.3f}" in tips


def test_those_that_differ_most_and_those_asked_for_are_chosen():
  rows = [questions.Row(f"Q{n}", "x", 1, 1, (0.0, 1 - n / 10)) for n in range(5)]
  rows.append(questions.Row("Q9", "x", 1, 0, ()))
  assert [n for n, _ in explanations.chosen(rows, 2, ["Q9", "Q1"])] == [0, 1, 5]
  with pytest.raises(InputError, match="--question=Q7"):
    explanations.chosen(rows, 0, ["Q7"])


def test_the_page_links_a_question_to_its_explanation(finished_run, tmp_path):
  target = make.make([str(finished_run("triplet"))], tmp_path / "x.html", explain=1)
  text = target.read_text()
  assert 'href="#explained-0"' in text and 'id="explained-0"' in text
  assert "Nearest questions by triplet" in text
