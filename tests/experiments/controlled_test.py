"""Each system learns on generated data what its own ablation cannot."""

import jax
import numpy as np
import pytest
import tiny

from as2jax.commands import app
from as2jax.config import check, jobs, overrides
from as2jax.data.readers import controlled as data
from as2jax.encoders import transformer_folder
from as2jax.evaluation import run_scores
from as2jax.experiments import compile as compiled
from as2jax.experiments import controlled


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
  folder = tmp_path_factory.mktemp("encoders")
  controlled.write_encoders(folder)
  return folder


def test_every_task_has_its_data_and_every_system_its_parts(encoders):
  assert {f"controlled_{name}" for name in controlled.TASKS} == set(data.TASKS)
  for name in controlled.TASKS:
    for system, (job, settings) in controlled.jobs(name, encoders).items():
      config = overrides.apply(jobs.load(job), settings)
      assert config.data.name == f"controlled_{name}", system
      check.check(config)
      if system != "bm25":
        compiled.describe(config)


@pytest.mark.parametrize("name", ["mixing", "separate"])
def test_only_one_of_the_encoders_mixes_tokens(encoders, name):
  encoder = tiny.encoder_module(encoders / name)
  params = {"params": transformer_folder.load_params(encoders / name, encoder)}
  tokens = tiny.tokens(rows=1)
  changed = tokens.replace(ids=tokens.ids.at[0, 0, 3].set(9))
  before, after = (
    np.asarray(encoder.apply(params, part, train=False)) for part in (tokens, changed)
  )
  moved = np.abs(before - after).max(-1)[0, 0] > 1e-5
  assert moved[3] and moved.all() == (name == "mixing") and moved.sum() in (1, len(moved))


def test_encoders_are_the_same_each_time(encoders, tmp_path):
  controlled.write_encoders(tmp_path)
  for name in ("words.32d.txt", "mixing/model.safetensors", "separate/vocab.txt"):
    assert (tmp_path / name).read_bytes() == (encoders / name).read_bytes()


def test_tasks_are_listed_and_another_name_is_refused(capsys):
  assert app.run(["lab", "controlled"]) == 0
  told = capsys.readouterr().out
  assert all(name in told for name in controlled.TASKS)
  assert app.run(["lab", "controlled", "context", "zebra"]) == 2
  assert "name one of context" in capsys.readouterr().err


@pytest.fixture
def optimised():
  """Programs as a user's are: these tests train for minutes, more than twice as long without."""
  before = jax.config.values["jax_disable_most_optimizations"]
  jax.config.update("jax_disable_most_optimizations", False)
  yield
  jax.config.update("jax_disable_most_optimizations", before)


def means(name, folder):
  """Trains a task with one seed; the test mean of each of its systems."""
  text = controlled.run(name, folder, seeds=(0,), settings={"batch.shards": 2})  # on two devices
  task = controlled.TASKS[name]
  assert all(system in text for system in (*task.systems, "bm25"))
  rule = "gold" if task.metric == "mrr" else "clean"
  folders = {system: str(folder / name / system) for system in (*task.systems, "bm25")}
  runs = run_scores.load(list(folders.values()), split="test", question_filter=rule)
  return {s: run.metric(task.metric).mean() for s, run in zip(folders, runs, strict=True)}


CHANCE = 0.521  # of a random order of four candidates


@pytest.mark.long
@pytest.mark.parametrize(
  "name, able, least, ablation, near",
  [
    ("context", ("loct", "cassie"), 0.9, "plain", 0.08),  # the previous sentence is read
    ("paraphrase", ("cassie",), 0.9, "no-transport", 0.08),  # transport uses a table of paraphrases
    ("scales", ("4",), 0.75, "shallow", 0.12),  # two convolutions see what one does not
  ],
)
def test_a_system_learns_what_its_ablation_cannot(
  name, able, least, ablation, near, tmp_path, optimised
):
  actual = means(name, tmp_path)
  assert min(actual[system] for system in able) >= least
  assert abs(actual[ablation] - CHANCE) < near
  assert abs(actual["bm25"] - CHANCE) < (0.05 if name == "context" else 0.01)


@pytest.mark.long
def test_cross_vaes_and_dual_grus_find_answers_by_their_questions(tmp_path, optimised):
  actual = means("questions", tmp_path)
  assert actual["bm25"] < 0.05 < 0.55 < min(actual["dual-gru"], actual["cross-vae"])
