"""What holds of every system, on its tiny config.

That a training step is PyTorch's autograd is in `training/step_parity_test.py`, that eight devices and
two processes give the same numbers in `runtime/processes_test.py`; both over these systems.
"""

import json

import pytest
import tiny
import tiny_systems
from interrupted import interrupted

import as2jax
from as2jax.data import dataset, trec_files
from as2jax.training import loop

SYSTEMS = pytest.mark.parametrize("system", tiny_systems.SYSTEMS)


# Cross-VAEs rank a pool: evaluation/retrieve_test.py.
@pytest.mark.parametrize("system", [name for name in tiny_systems.SYSTEMS if name != "cross_vae"])
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
  interrupted(monkeypatch, config, stopped, 2)
  content = loop.train_and_evaluate(config, stopped)
  assert content["metrics"] == json.loads((straight / "results.json").read_text())["metrics"]
  run = "eval/test/run.trec"
  assert (straight / run).read_bytes() == (stopped / run).read_bytes()
  tiny.assert_same_parameters(stopped, straight)
