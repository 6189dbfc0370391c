"""Evaluation: every distinct sentence encoded once, scores back at their candidates, notes on ties."""

import concurrent.futures
import dataclasses
import types

import jax
import numpy as np
import optax
import pytest
import tiny
from flax import traverse_util

from as2jax.data import trec_files
from as2jax.data.dataset import Dataset
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.evaluation import predict, significance, tasks
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import state as states
from as2jax.training.build import load


def questions():
  """Twelve questions whose candidates repeat one another's sentences; one has no candidates."""
  shared = Candidate("shared", "the cat sat on the mat", 0)
  generated = [
    Question(
      f"Q{i}",
      f"who sat on mat {i % 5}",
      (shared, Candidate("a", f"dog number {i % 3} sat", 1), Candidate("b", f"nobody {i} came", 0)),
    )
    for i in range(11)
  ]
  return (*generated, Question("Q11", "who is alone", ()))


def predictor_of(config):
  """A predictor of an untrained model, and its variables."""
  experiment = load(config)
  mesh = sharding.make_mesh()
  actual = predict.Predictor(experiment, mesh, 1)
  batcher = actual.batcher(questions(), actual.layout)
  example = batcher.batch(batcher.plan(batcher.sampler.blocks(), 0, 0), 0)
  state = experiment.fresh_state(
    jax.tree.map(lambda x: x[0], example), (0,), optax.identity(), mesh
  )
  return actual, states.ranking_variables(state)


@pytest.fixture(scope="module", params=["triplet", "crossencoder"])
def predictor(request):
  return predictor_of(tiny.config(request.param))


def test_each_distinct_text_is_encoded_once(predictor, monkeypatch):
  actual, variables = predictor
  asked, seen, step = questions(), [], actual.step
  monkeypatch.setattr(
    actual,
    "step",
    lambda its, batch: (seen.append(np.asarray(batch.units.id)), step(its, batch))[1],
  )
  actual(variables, asked)
  ids = np.concatenate([x.ravel() for x in seen])
  encoded = sorted(ids[ids >= 0].tolist())
  if actual.components.model.encodes:
    texts = {q.text for q in asked} | {c.text for q in asked for c in q.candidates}
  else:
    texts = {(q.text, c.text) for q in asked for c in q.candidates}
  assert encoded == list(range(len(texts)))


def test_scores_belong_to_their_candidates(predictor):
  """Scores do not depend on what else is in the split, nor on its order."""
  actual, variables = predictor
  asked = questions()
  scores = next(iter(actual(variables, asked)[0].values()))
  before = tiny.compilations()
  assert [len(s) for s in scores] == [3] * 11 + [0]
  turned = tuple(Question(q.id, q.text, q.candidates[::-1]) for q in asked[::-1])
  again = next(iter(actual(variables, turned)[0].values()))[::-1]
  for one, other in zip(scores, again):
    np.testing.assert_allclose(one, other[::-1], atol=2e-6)
  actual(variables, asked[:4])
  assert tiny.compilations() == before


def damaged(variables, number):
  """Variables with one number of their last weights that is not finite."""
  flat = traverse_util.flatten_dict(variables, sep="/")
  path = max(path for path in flat if path.endswith("output_norm/bias"))
  flat[path] = flat[path].at[(0,) * flat[path].ndim].set(number)
  return traverse_util.unflatten_dict(flat, sep="/")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_not_ranked(predictor, number):
  actual, variables = predictor
  encodes = actual.components.model.encodes
  match = (
    "vectors of 21 of 21 sentences are not finite, the first that of 'who sat on mat 0'"
    if (encodes)
    else "question 'Q0': the score '.*' of candidate 'shared' is nan"
  )
  with pytest.raises(InputError, match=match):
    actual(damaged(variables, number), questions())


def test_batches_are_kept_for_equal_questions_and_not_for_ever(predictor):
  actual, _ = predictor
  first = actual.batcher(questions()[:1], actual.layout)
  for i in range(1, predict.KEPT):
    actual.batcher(questions()[i : i + 1], actual.layout)
  assert (
    actual.batcher(list(questions()[:1]), actual.layout) is first
  )  # and now it is the last used
  second = actual.batcher(questions()[1:2], actual.layout)
  actual.batcher(questions()[9:10], actual.layout)
  assert len(actual._batchers) == predict.KEPT
  assert actual.batcher(questions()[1:2], actual.layout) is second
  relabelled = Question("Q1", questions()[1].text, questions()[1].candidates[::-1])
  assert actual.batcher((relabelled,), actual.layout) is not second


LONG = Candidate("long", " ".join(["the dog sat on the mat"] * 7), 0)  # more than 32 tokens


def with_long():
  """Those of the other test, of which two have a candidate too long for a short row."""
  first, second, *others = questions()
  longer = lambda q: Question(q.id, q.text, (*q.candidates, LONG))
  return (longer(first), longer(second), *others)


@pytest.fixture(scope="module", params=["triplet", "crossencoder"])
def two_shards(request):
  """Of a model whose batches have two shards of one row of 64 tokens, and its variables."""
  return predictor_of(tiny.config(request.param, batch__predict_rows=2))


@pytest.mark.parametrize("request_", [False, True], ids=["split", "request"])
def test_short_rows_change_no_score(two_shards, monkeypatch, request_):
  actual, variables = two_shards
  expected = actual(variables, with_long(), request=request_)[0]
  monkeypatch.setattr(predict, "SHORT", 32)
  monkeypatch.setattr(predict, "BATCHES", 1)
  batcher = actual.batcher(with_long(), actual.layout, request=request_)
  its = predict.plans(batcher, apart=True, request=request_)
  assert [part.row_lengths[-1] for part, _ in its] == [32, 64]
  examples = [s.examples for _, plan in its for step in plan.steps for s in step[0] if s]
  assert sorted(np.concatenate(examples).tolist()) == list(range(len(batcher.examples)))
  for name, scores in actual(variables, with_long(), request=request_)[0].items():
    for one, other in zip(expected[name], scores, strict=True):
      np.testing.assert_allclose(other, one, atol=1e-5)


def test_nothing_compiles_after_a_warm_up(two_shards, monkeypatch):
  actual, variables = two_shards
  monkeypatch.setattr(predict, "SHORT", 32)
  list(actual.programs(variables, questions()[:1]))
  before = tiny.compilations()
  actual(variables, with_long(), request=True)
  actual(variables, questions(), request=True)  # all of them short
  assert tiny.compilations() == before


def test_a_batch_travels_in_one_array_a_type(two_shards, monkeypatch):
  actual, variables = two_shards
  expected = actual(variables, with_long())[0]
  placed, put = [], sharding.place
  monkeypatch.setattr(predict, "JOINS", ("cpu",))
  monkeypatch.setattr(
    sharding, "place", lambda batch, *a, **k: placed.append(batch) or put(batch, *a, **k)
  )
  for name, scores in actual(variables, with_long())[0].items():
    np.testing.assert_array_equal(np.concatenate(scores), np.concatenate(expected[name]))
  for batch in placed:
    assert {buffer.dtype.name for buffer in batch.buffers} == {"int32", "float32"}
    assert len(batch.buffers) == 2 and len(jax.tree.leaves(batch.split())) > 10


CUT, STEP, READ, BATCH = 5, 0.3, 1, 10  # milliseconds of a thread, of the host (two), of the device


class Clock:
  """Virtual milliseconds: of the host, of the thread that cuts batches, and when the device is done."""

  host = thread = device = 0.0
  batches = 0

  def submit(self, make, number):
    """Is an executor's, whose thread takes `CUT` for each batch."""
    item = make(number)
    self.thread = ready = max(self.thread, self.host) + CUT
    return types.SimpleNamespace(result=lambda: (self.wait(ready), item)[1])

  def wait(self, until, then=0.0):
    self.host = max(self.host, until) + then

  def step(self, output):
    """Gives the device a batch; the host waits for what it reads of the output."""
    self.batches += 1
    self.host += STEP
    self.device = done = max(self.device, self.host) + BATCH
    late = {name: Late(x, lambda: self.wait(done, READ)) for name, x in vars(output).items()}
    return types.SimpleNamespace(**late)

  __enter__ = lambda self: self
  shutdown = __exit__ = lambda self, *args, **kwargs: None


class Late:
  """An output that notes when the host reads it."""

  def __init__(self, values, note):
    self.values, self.note = values, note

  def __array__(self, dtype=None, copy=None):
    self.note()
    return np.asarray(self.values, dtype)


def test_a_device_is_busy_while_batches_are_cut_and_outputs_read(two_shards, monkeypatch):
  actual, variables = two_shards
  asked = []
  for n in range(8):
    asked += [Question(f"{n} {q.id}", f"{n} {q.text}", q.candidates) for q in with_long()]
  expected = actual(variables, asked)[0]
  clock, run = Clock(), actual.step
  monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", lambda *_: clock)
  monkeypatch.setattr(actual, "step", lambda its, batch: clock.step(run(its, batch)))
  for name, scores in actual(variables, asked)[0].items():
    np.testing.assert_array_equal(np.concatenate(scores), np.concatenate(expected[name]))
  assert clock.batches > 5 and clock.batches * BATCH / clock.host > 0.9


class Recorder:
  """In place of a predictor: scores drawn by question, and what was asked."""

  model = types.SimpleNamespace(score_names=("score",))

  def __init__(self):
    self.asked = []

  def __call__(self, variables, questions):
    self.asked.append([q.id for q in questions])
    drawn = lambda q: np.random.default_rng(int(q.id[1:])).normal(size=len(q.candidates))
    return [{"score": [drawn(q).astype(np.float32) for q in questions]}]


def rerank(labels_of_each):
  questions = tuple(
    Question(
      f"Q{i}", f"question {i}", tuple(Candidate(f"{i}-{j}", "a", l) for j, l in enumerate(labels))
    )
    for i, labels in enumerate(labels_of_each)
  )
  splits = {"train": questions[:1], "dev": questions}
  prints = {name: fingerprint(its) for name, its in splits.items()}
  data = Dataset("made", splits, "answerable", "", prints, official="all", average_recall=True)
  recorder = Recorder()
  return tasks.Rerank(tiny.config("triplet"), data, recorder), recorder, data


def test_questions_without_an_answer_are_not_predicted_and_change_no_figure():
  task, recorder, data = rerank([(0, 1, 0), (0, 0), (), (1, 0, 1, 0), (0,), (1,)])
  (measured,) = task.measure(None, "dev")
  assert recorder.asked == [["Q0", "Q3", "Q5"]]
  (every,) = recorder(None, data.splits["dev"])
  whole = tasks.evaluate(every["score"], data, "dev", ties="expected")
  assert measured.metrics == whole.metrics and measured.scalars == whole.scalars
  assert {name.partition("/")[0] for name in whole.metrics} >= {
    "map[made-clean",
    "mrr[made-official",
  }


def test_groups_of_questions_widen_intervals_and_stand_in_the_table(tmp_path):
  _, recorder, data = rerank([(0, 1, 0), (1, 0), (0, 1), (1, 0, 1, 0), (0, 0)])
  grouped = []
  for question, group in zip(data.splits["dev"], ("ice", "", "ice", "snow", "snow"), strict=True):
    grouped.append(dataclasses.replace(question, group=group))
  ((scores,),) = ([found["score"]] for found in recorder(None, grouped))
  found = tasks.evaluate(scores, data, "dev", ties="expected", questions=grouped)
  entry = found.metrics["map[made-clean/dev]"]
  values, _ = found.values["map[made-clean/dev]"]
  assert (entry["questions"], entry["groups"]) == (4, 3)
  assert entry["half_width"] == significance.half_width(values, ["ice", "", "ice", "snow"])
  assert entry["half_width"] != significance.half_width(values)
  assert any("made-clean/dev: 4 questions from 3 groups" in note for note in found.notes)
  tasks.write(tmp_path, found, scores, grouped, tag="x")
  _, table = trec_files.read_per_question(tmp_path / "per_question.tsv")
  assert table["group"].tolist() == [0, 1, 0, 2, 2]


def test_splits_of_which_all_rankings_are_equal_are_named(caplog):
  said = "no question has both a right and a wrong candidate"
  for labels, alike in (
    ([(1,), (1, 1), (0,), ()], True),
    ([(1,), (1, 0)], False),
    ([(0, 0), (0,)], False),
  ):
    caplog.clear()
    task, _, data = rerank(labels)
    assert [record.getMessage().startswith(f"made, dev: {said}") for record in caplog.records] == [
      True
    ] * alike
    (measured,) = task.measure(None, "dev")
    assert any(f"made-clean/dev: {said}" in note for note in measured.notes) == alike
