"""What holds of every system, on its tiny config.

That a training step is PyTorch's autograd is in `training/step_parity_test.py`, that eight devices and
two processes give the same numbers in `runtime/processes_test.py`; both over these systems.
"""

import jax
import numpy as np
import pytest
import tiny
import tiny_steps
import tiny_systems

import as2jax
from as2jax.data import dataset, trec_files
from as2jax.runtime import sharding
from as2jax.training import loop, optimizers

SYSTEMS = pytest.mark.parametrize("system", tiny_systems.SYSTEMS)
# The rate at which a system learns eight examples by heart, and the share of the loss that is left.
RATE = {"m2snet": 1.0, "cross_vae": 2e-2}
# CASSIE's mutual information stays above 0.
LEFT = {"cross_vae": 0.5, "siamese": 0.3, "cassie": 0.4}


def memorised(system):
  """Train 80 steps on one batch of a case; return parameters before and after, and the losses."""
  case = tiny_steps.case(system)
  o = case.config.optimizer.copy_and_resolve_references()
  with o.unlocked():
    o.rate, o.warmup = RATE.get(system, 1e-2), 0.0
    if "eps" in o and o.name == "adam":
      o.eps = 1e-8
  optimizer = optimizers.from_config(o)
  rate = optimizers.schedule("constant", rate=o.rate, warmup=0.0, epochs=1)
  mesh, state, step = tiny_steps.begin(case, optimizer, rate)
  placed, losses = sharding.place(jax.tree.map(lambda x: x[None], case.batches[0]), mesh), []
  for _ in range(80):
    arguments = np.zeros(1, np.uint32), np.full(1, 0.5, np.float32), np.ones(1, bool)
    state, scalars = step(state, placed, *arguments)
    losses.append(float(scalars["loss"][0]))
  after = {path: np.asarray(value)[0] for path, value in state.trainable.items()}
  assert step._cache_size() == 1
  return case.params, after, losses


@SYSTEMS
def test_a_handful_of_examples_is_memorised_by_every_parameter(system):
  before, after, losses = memorised(system)
  assert np.isfinite(losses).all()
  assert min(losses[-5:]) < LEFT.get(system, 0.1) * losses[0], losses[:: len(losses) // 8]
  assert before.keys() == after.keys()
  for path, value in before.items():
    if not path.endswith("key/bias"):  # a softmax ignores a shift of all keys
      assert np.any(value != after[path]), path


# Cross-VAEs rank a pool: evaluation/retrieve_test.py.
ALONE = ["idf_overlap", *(name for name in tiny_systems.SYSTEMS if name != "cross_vae")]


@pytest.mark.parametrize("system", ALONE)
def test_a_question_alone_has_the_scores_that_it_has_among_all(system, finished_run):
  """Opened from disk; other rows, other padding, other neighbours in a row than at evaluation."""
  folder = finished_run(system)
  evaluated = trec_files.read_run(folder / "eval" / "test" / "run.trec")
  ranker = as2jax.load(str(folder))
  questions = [q for q in dataset.load("sample").splits["test"] if q.id in evaluated]
  assert len(questions) > 30
  for question in (questions[0], questions[7], questions[-1]):
    (hits,) = ranker.rank_many([question])
    assert len(hits) == len(question.candidates)
    for hit in hits:
      wanted = evaluated[question.id][question.candidates[hit.index].id]
      assert hit.score == pytest.approx(wanted, rel=2e-5, abs=2e-5)


@pytest.mark.slow
@SYSTEMS
def test_a_killed_run_ends_like_a_straight_one(system, finished_run, tmp_path, monkeypatch):
  straight, stopped = finished_run(system), tmp_path / "stopped"
  config = tiny_systems.config(system, checkpoint__steps=1)
  tiny.interrupted(monkeypatch, config, stopped, 2)
  loop.train_and_evaluate(config, stopped)
  # The straight run's encoder may be that of another worker, in another folder.
  assert set(tiny.differences(stopped, straight)) <= {"weights"}
