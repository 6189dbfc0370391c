"""Short texts in short rows: each example once, the same scores, nothing compiled after a warm-up."""

import numpy as np
import pytest
import tiny
from predict_test import predictor_of, questions

from as2jax.data.record import Candidate, Question
from as2jax.evaluation import predict

LONG = Candidate("long", " ".join(["the dog sat on the mat"] * 7), 0)  # more than 32 tokens


def asked():
  """Those of the other test, of which two have a candidate too long for a short row."""
  first, second, *others = questions()
  longer = lambda q: Question(q.id, q.text, (*q.candidates, LONG))
  return (longer(first), longer(second), *others)


@pytest.fixture(scope="module", params=["triplet", "crossencoder"])
def predictor(request):
  """Of a model whose batches have two shards of one row of 64 tokens, and its variables."""
  actual, variables = predictor_of(tiny.config(request.param, batch__predict_rows=2))
  model = actual.model
  return actual, variables, "sentences" if model.encodes else model.layout


@pytest.mark.parametrize("request_", [False, True], ids=["split", "request"])
def test_short_rows_change_no_score(predictor, monkeypatch, request_):
  actual, variables, layout = predictor
  expected = actual(variables, asked(), request=request_)[0]
  monkeypatch.setattr(predict, "SHORT", 32)
  monkeypatch.setattr(predict, "BATCHES", 1)
  batcher = actual.batcher(asked(), layout, request=request_)
  its = predict.plans(batcher, apart=True, request=request_)
  assert [part.row_lengths[-1] for part, _ in its] == [32, 64]
  examples = [s.examples for _, plan in its for step in plan.steps for s in step[0] if s]
  assert sorted(np.concatenate(examples).tolist()) == list(range(len(batcher.examples)))
  for name, scores in actual(variables, asked(), request=request_)[0].items():
    for one, other in zip(expected[name], scores, strict=True):
      np.testing.assert_allclose(other, one, atol=1e-5)


def test_nothing_compiles_after_a_warm_up(predictor, monkeypatch):
  actual, variables, _ = predictor
  monkeypatch.setattr(predict, "SHORT", 32)
  actual.warm_up(variables, questions()[:1])
  before = actual.compilations
  actual(variables, asked(), request=True)
  actual(variables, questions(), request=True)  # all of them short
  assert actual.compilations == before


def test_few_short_texts_stay_with_the_long_ones(predictor, monkeypatch):
  actual, _, layout = predictor
  monkeypatch.setattr(predict, "SHORT", 32)
  monkeypatch.setattr(predict, "BATCHES", 100)
  few = predict.plans(actual.batcher(asked(), layout), apart=True, request=False)
  elsewhere = predict.plans(actual.batcher(asked(), layout), apart=False, request=True)
  assert [[part.row_lengths for part, _ in its] for its in (few, elsewhere)] == [[(64,)]] * 2


def test_rows_of_a_text_each_are_as_long_as_it_anyway(predictor, monkeypatch):
  actual, _, layout = predictor
  batcher = actual.batcher(asked(), layout)
  monkeypatch.setattr(predict, "SHORT", 64)
  assert predict.short_rows(batcher) is None
  monkeypatch.setattr(predict, "SHORT", 48)  # not a part of 64
  assert predict.short_rows(batcher) is None
