"""The loop: files, resume to the bit, early stopping, seeds, refusals."""

import json
import math
import random
import shutil

import file_damage
import numpy as np
import pytest
import tiny

from as2jax.data import dataset as datasets
from as2jax.evaluation import results
from as2jax.inference import reevaluate
from as2jax.runtime.errors import InputError
from as2jax.training import loop
from as2jax.training.loop import train_and_evaluate
from as2jax.training.state import Tracker

RATE = dict(optimizer__rate=3e-3, optimizer__warmup=0.0)


def small(model="triplet", *words, **changes):
  words = words or ("grouped",)
  settings = {**RATE, "checkpoint__steps": 3, "log__steps": 3, "data__train_fraction": 0.1}
  return tiny.config(model, *words, **{**settings, **changes})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
  folder = tmp_path_factory.mktemp("run") / "x"
  config = small(epochs=2)
  return folder, config, train_and_evaluate(config, folder)


def test_what_a_run_leaves(undisturbed):
  folder, config, content = undisturbed
  files = "run.trec", "qrels.trec", "per_question.tsv", "cosine/run.trec"
  for name in ("config.json", "metrics.jsonl", "eval/dev/run.trec"):
    assert (folder / name).exists(), name
  assert all((folder / "eval/test" / name).exists() for name in files)
  assert content["metrics"]["map[sample-clean/test]"]["questions"] > 30
  assert content["seeds"][0]["best_value"] > 0 and content["sampler"] == "grouped"
  data = datasets.load("sample")
  assert content["data"]["splits"]["train"]["fingerprint"] == data.fingerprints["train"]
  assert json.loads((folder / "results.json").read_text()) == content
  rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
  assert [r["epoch"] for r in rows if "epoch" in r] == [0, 1, 2]
  losses = {r["step"]: r["loss"] for r in rows if "loss" in r}
  assert np.isfinite(list(losses.values())).all() and max(losses) == content["seeds"][0]["steps"]
  evaluated = [r for r in rows if "epoch" in r]
  best = max(r["map[sample-clean/dev]"] for r in evaluated)
  assert content["seeds"][0]["best_value"] == best
  for row in evaluated:  # of the score that does not rank, too
    assert 0 < row["map[sample-clean/dev] by cosine"] < 1
    assert "map[sample-clean/dev] by euclidean" not in row
  assert content["metrics"]["map[sample-clean/dev]"]["mean"] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("damaged", ["latest", "best"])
def test_a_damaged_checkpoint_is_made_again_to_the_bit(undisturbed, tmp_path, damaged, caplog):
  done, config, _ = undisturbed
  folder = shutil.copytree(done, tmp_path / "x")
  newest = max((folder / "checkpoints" / damaged).iterdir(), key=lambda path: int(path.name))
  path = max(file_damage.files(newest), key=lambda file: file.stat().st_size)
  file_damage.flip_bit(path, random.Random(0))
  if damaged == "best":
    with pytest.raises(InputError, match=f"{path.name} was damaged.*delete results.json"):
      reevaluate.reevaluate(small(epochs=2, mode="evaluate"), folder)
  (folder / "results.json").unlink()
  train_and_evaluate(config, folder)
  assert f"{path} was damaged" in caplog.text and "going back to the checkpoint" in caplog.text
  assert tiny.differences(folder, done) == []


def test_a_finished_run_gives_its_results_without_training(undisturbed, monkeypatch):
  folder, config, content = undisturbed
  monkeypatch.setattr(loop, "Trainer", None)
  assert train_and_evaluate(config, folder) == content


def test_seeds_that_train_together_stop_each_by_itself(tmp_path, monkeypatch):
  """Seed 5 stops after an epoch, seed 0 goes on: its steps and its rows are those it has taken."""
  update = loop.Tracker.update

  def better(tracker, values, step, epoch):
    return update(tracker, [float(epoch), float(not epoch)], step, epoch)

  monkeypatch.setattr(loop.Tracker, "update", better)
  config = small(epochs=2, patience=1, seeds=(0, 5), seeds_parallel=True, log__steps=1)
  whole, stopped = train_and_evaluate(config, tmp_path / "x")["seeds"]
  rows = [json.loads(x) for x in (tmp_path / "x/metrics.jsonl").read_text().splitlines()]
  losses = {seed: [r["loss"] for r in rows if r["seed"] == seed and "loss" in r] for seed in (0, 5)}
  assert (whole["best_epoch"], stopped["best_epoch"]) == (2, 0)
  assert len(losses[0]) == whole["steps"] > stopped["steps"] == len(losses[5])
  assert 0.0 not in losses[0] + losses[5]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [False, True])
def test_several_seeds_have_results_of_their_own(tmp_path, parallel, undisturbed):
  folder = tmp_path / "x"
  content = train_and_evaluate(small(epochs=1, seeds=(0, 5), seeds_parallel=parallel), folder)
  assert [o["seed"] for o in content["seeds"]] == [0, 5]
  values = [o["metrics"]["map[sample-clean/test]"]["value"] for o in content["seeds"]]
  entry = content["metrics"]["map[sample-clean/test]"]
  assert entry["mean"] == pytest.approx(np.mean(values))
  assert entry["sd"] == pytest.approx(np.std(values, ddof=1))
  assert {p.name for p in (folder / "eval/test").iterdir()} == {"seed-0", "seed-5"}
  rows = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
  last = {seed: [r["loss"] for r in rows if r["seed"] == seed and "loss" in r] for seed in (0, 5)}
  assert len(last[0]) >= 3 and last[0] != last[5]
  if not parallel:  # a third one is added
    again = train_and_evaluate(small(epochs=1, seeds=(0, 5, 7)), folder)
    assert again["seeds"][:2] == content["seeds"] and again["seeds"][2]["seed"] == 7
    assert results.times_evaluated(folder, "test", "sample") == (1, 2)


def test_a_state_that_is_not_finite_is_neither_evaluated_nor_saved(tmp_path, monkeypatch):
  """The loss of the last step is finite; its update is not."""
  make = loop.make_train_step

  def make_diverging(*args, **kwargs):
    step = make(*args, **kwargs)

    def diverge(state, *rest):
      state, scalars = step(state, *rest)
      name = sorted(state.trainable)[0]
      bad = {**state.trainable, name: state.trainable[name] * np.float32(np.inf)}
      return state.replace(trainable=bad), scalars

    diverge._cache_size, diverge.lower = step._cache_size, step.lower
    return diverge

  monkeypatch.setattr(loop, "make_train_step", make_diverging)
  with pytest.raises(InputError, match=r"step 1: trainable/.* not finite.* diverged"):
    train_and_evaluate(small(checkpoint__steps=1), tmp_path / "x")
  kept = [path.name for path in (tmp_path / "x/checkpoints/latest").iterdir()]
  assert kept == ["0"]


def test_a_split_without_an_answer_selects_nothing(tmp_path):
  files = {}
  for split, right in (("train", 1), ("dev", 0)):
    rows = [f"{split} {i}\tanswer {j}\t{right * j}" for i in range(4) for j in (0, 1)]
    path = tmp_path / f"{split}.tsv"
    path.write_text("\n".join(["question\tcandidate\tlabel", *rows]) + "\n")
    files[f"data__{split}"] = str(path)
  config = tiny.config("triplet", data__name="files", data__train_fraction=1.0, **files)
  with pytest.raises(InputError, match="no question of the split dev counts .*data.holdout"):
    train_and_evaluate(config, tmp_path / "run")


def test_tracker_stops_each_seed_by_its_own_patience():
  tracker = Tracker.start(2, patience=2)
  assert tracker.update([0.5, 0.5], 0, 0) == [True, True]
  assert tracker.update([0.6, 0.5], 10, 1) == [True, False]  # a tie is no gain
  assert tracker.update([0.5, 0.4], 20, 2) == [False, False]
  assert tracker.active == [True, False]
  assert tracker.update([0.7, math.nan], 30, 3) == [True, False]  # a stopped seed stays as it was
  assert tracker.best == [0.7, 0.5] and tracker.best_step == [30, 0]
  assert Tracker(**json.loads(json.dumps(vars(tracker)))) == tracker
