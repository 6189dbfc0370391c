"""A run that begins with another's parameters: what it takes and refuses, that it continues."""

import json
import shutil

import numpy as np
import pytest
import tiny
import tiny_systems

from as2jax.data.text.input_templates import Prompts
from as2jax.encoders.open_encoder import ENCODER_FOLDER
from as2jax.inference import export
from as2jax.models.crossencoder import CrossEncoder
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError
from as2jax.training import checkpoints, record
from as2jax.training.loop import train_and_evaluate
from as2jax.training.record import begun


def small(model="crossencoder", run="", scope="", **changes):
  settings = {
    "data__train_fraction": 0.1,
    "optimizer__rate": 3e-3,
    "optimizer__warmup": 0.0,
    "optimizer__schedule": "constant",
    "checkpoint__steps": 2,
    "log__steps": 2,
    "warm_start__run": str(run),
    "warm_start__scope": scope,
  }
  return tiny.config(model, "grouped", **{**settings, **changes})


@pytest.fixture(scope="module")
def first(tmp_path_factory):
  """A finished cross-encoder of two seeds, whose best parameters are not those it began with."""
  folder = tmp_path_factory.mktemp("first") / "x"
  content = train_and_evaluate(
    small(
      seeds=(0, 5),
      data__holdout=0.2,
      optimizer__rate=1e-2,
      optimizer__schedule="linear",
      optimizer__warmup=0.1,
    ),
    folder,
  )
  assert all(outcome["best_step"] > 0 for outcome in content["seeds"])
  return folder, content


def parameters(folder, seed=None):
  """All parameters of a run's best checkpoint, by path."""
  folder = folder / "checkpoints" / ("" if seed is None else f"seed-{seed}")
  actual = checkpoints.read_best(folder)
  return {k: v[0] for part in ("trainable", "frozen") for k, v in actual[part].items()}


def test_all_parameters_are_taken(first, tmp_path):
  folder, before = first
  config = small(
    run=folder,
    scope="all",
    seeds=(5,),
    epochs=0,
    optimizer__lr_multipliers=(("encoder/embeddings", 0.0),),
  )
  content = train_and_evaluate(config, tmp_path / "x")
  was = before["seeds"][1]
  for name, entry in was["metrics"].items():
    assert content["metrics"][name]["mean"] == entry["value"], name
  there, here = parameters(folder, 5), parameters(tmp_path / "x")
  assert there.keys() == here.keys()
  for path, value in there.items():
    np.testing.assert_array_equal(value, here[path], path)
  (began,) = content["warm_start"]["seeds"]
  assert content["warm_start"] == {
    **content["warm_start"],
    "run": str(folder),
    "scope": "all",
    "model": "crossencoder",
    "data": "sample",
    "selected_on": "map, heldout, clean",
  }
  assert {**began, "sha256": ""} == {
    "seed": 5,
    "from_seed": 5,
    "step": was["best_step"],
    "value": was["best_value"],
    "sha256": "",
  }
  assert record.read(tmp_path / "x")["warm_start"] == content["warm_start"]
  model = CrossEncoder(tiny.encoder_module(), "cls", True, 0.0)
  described = {"form": model.published_form(), "model": model, "prompts": Prompts()}
  card = export.render_card(content, config, 5, **described)
  assert f"all parameters of `crossencoder` trained on `sample` (step {was['best_step']};" in card
  third = train_and_evaluate(
    small(run=tmp_path / "x", scope="all", epochs=0, warm_start__seed=5), tmp_path / "y"
  )
  assert third["warm_start"]["warm_start"] == content["warm_start"]  # the whole chain
  assert third["warm_start"]["seeds"][0]["sha256"] == began["sha256"]


def test_new_heads_are_those_of_a_fresh_run(first, tmp_path):
  same = dict(epochs=0, seeds=(0, 5), seeds_parallel=True)
  train_and_evaluate(small("triplet", first[0], "encoder", **same), tmp_path / "x")
  train_and_evaluate(small("triplet", **same), tmp_path / "y")
  here, alone = (
    checkpoints.read_best(tmp_path / run / "checkpoints/seed-0-5", 0)["trainable"] for run in "xy"
  )
  assert any(path.startswith("encoder/") for path in here)
  for i, seed in enumerate((0, 5)):
    there = parameters(first[0], seed)
    for path, value in here.items():
      wanted = there[path] if path.startswith("encoder/") else alone[path][i]
      np.testing.assert_array_equal(value[i], wanted, path)


@pytest.mark.slow
def test_a_stopped_second_stage_continues_unless_the_first_changed(first, tmp_path, monkeypatch):
  whole, stopped, moved = tmp_path / "whole", tmp_path / "stopped", tmp_path / "first"
  shutil.copytree(first[0], moved)
  config = small(run=moved, scope="encoder", optimizer__schedule="linear", patience=1)
  content = train_and_evaluate(config, whole)
  tiny.interrupted(monkeypatch, config, stopped, 1)  # before any checkpoint but that of step 0
  tiny.interrupted(monkeypatch, config, stopped, 4)

  shutil.rmtree(moved)
  with pytest.raises(InputError, match="first holds no finished run"):
    train_and_evaluate(config, stopped)
  train_and_evaluate(small(epochs=0), moved)
  changed = r"first has changed .*\n  seed 0: seed 0, step \d+, \w{12} then, .* now\nPut it back"
  with pytest.raises(InputError, match=changed):
    train_and_evaluate(config, stopped)
  shutil.rmtree(moved)
  shutil.copytree(first[0], moved)
  again = train_and_evaluate(config, stopped)
  drop = lambda results: {k: v for k, v in results.items() if k != "execution"}
  assert drop(again) == drop(content) and content["seeds"][0]["steps"] > 5
  one, other = parameters(whole), parameters(stopped)
  for path, value in one.items():
    np.testing.assert_array_equal(value, other[path], path)


def test_seeds_that_the_first_stage_lacks_cost_a_finished_run_nothing(first, tmp_path):
  more = lambda *seeds: small(run=first[0], scope="encoder", epochs=0, seeds=seeds)
  content = train_and_evaluate(more(0, 5), tmp_path / "x")
  with pytest.raises(InputError, match="has no seed 7"):
    train_and_evaluate(more(0, 5, 7), tmp_path / "x")
  assert train_and_evaluate(more(0, 5), tmp_path / "x") == content


def test_a_first_stage_that_cannot_be_used_is_one_message(first, finished_run, tmp_path):
  folder, _ = first
  refused = lambda config, message: pytest.raises(InputError, match=message)
  unfinished, lexical = tmp_path / "unfinished", finished_run("bm25")
  unfinished.mkdir()
  shutil.copy(folder / "config.json", unfinished)
  empty = shutil.copytree(folder, tmp_path / "empty")
  shutil.rmtree(empty / "checkpoints")
  for config, message in [
    (small(scope="all"), "warm_start: name both the folder .* and the scope"),
    (small(warm_start__seed=1), "warm_start: name both"),
    (small(run=folder), "warm_start: name both .* or matching"),
    (small(run=tmp_path / "none", scope="encoder"), "none holds no finished run"),
    (small(run=unfinished, scope="encoder"), "unfinished holds no finished run"),
    (small(run=lexical, scope="encoder"), "bm25 has no parameters"),
    (small(run=empty, scope="encoder"), r"best/\d+ was deleted"),
    (small(run=folder, scope="encoder", seeds=(0, 3)), r"has no seed 3 \(it has 0, 5\).*seed\": 0"),
    (small(run=folder, scope="encoder", warm_start__seed=7), "has no seed 7"),
    (small(run=tmp_path / "x", scope="encoder"), "x holds no finished run: name another"),
  ]:
    with refused(config, message):
      train_and_evaluate(config, tmp_path / "x")
    assert not (tmp_path / "x" / bound.NAME).exists()


def test_another_encoder_or_other_parameters_are_one_message(first, tmp_path):
  folder, content = first
  other = shutil.copytree(folder, tmp_path / "other")
  weights = dict(content["weights"])
  weights["architecture"] = {**weights["architecture"], "num_heads": "4"}
  known = {**record.read(other), "tokenizer": "another"}
  bound.write_record(other, known)
  bound.write(other, "results.json", json.dumps({**content, "weights": weights}))
  encoder = r"(?s)not the encoder of .*num_heads: '4' there, '2' now\n  tokenizer: 'another' there"
  with pytest.raises(InputError, match=encoder):
    train_and_evaluate(small(run=other, scope="encoder"), tmp_path / "x")
  others = r"(?s)other parameters .*'all'.*head/bias: \(2,\) there, absent here.*scope=encoder"
  with pytest.raises(InputError, match=others):
    train_and_evaluate(small("triplet", folder, "all"), tmp_path / "x")
  with pytest.raises(InputError, match=r"head/kernel: \(16, 2\) there, \(48, 1\) here"):
    train_and_evaluate(small("siamese", folder, "all"), tmp_path / "x")
  assert not begun(tmp_path / "x")  # so that a right config may use the folder


def m2snet(run="", scope="", **changes):
  return tiny_systems.config("m2snet", warm_start__run=str(run), warm_start__scope=scope, **changes)


OVERLAP = "../inputs/word_overlap.json"


@pytest.mark.slow
def test_a_vocabulary_statistics_and_memory_come_along(tmp_path):
  first = tmp_path / "first"
  before = train_and_evaluate(m2snet(data__holdout=0.3), first)
  # Another train split: other words' frequencies, were they counted anew.
  same, new = tmp_path / "all", tmp_path / "encoder"
  content = train_and_evaluate(m2snet(first, "all", epochs=0), same)
  read = lambda run, name: (run / ENCODER_FOLDER / name).read_bytes()
  for name in ("tokenizer.json", "vectors.safetensors", "vectors.json", OVERLAP):
    assert read(same, name) == read(first, name)
  entry = before["metrics"]["map[sample-clean/test]"]
  assert content["metrics"]["map[sample-clean/test]"]["mean"] == entry["mean"]
  other_seed = {"seeds": (1,), "warm_start__seed": 0}
  train_and_evaluate(m2snet(first, "encoder", epochs=0, **other_seed), new)
  assert read(new, "tokenizer.json") == read(first, "tokenizer.json")
  assert read(new, OVERLAP) != read(first, OVERLAP)
  there, here = parameters(first), parameters(new)
  changed = {path for path in there if not np.array_equal(there[path], here[path])}
  assert "encoder/embeddings/word" not in changed and "grid/U" in changed
  with pytest.raises(InputError, match="(?s)has another encoder:\n  encoder.lower: .*as that run"):
    train_and_evaluate(m2snet(first, "encoder", encoder__lower=False), tmp_path / "x")
  with pytest.raises(InputError, match="(?s)has another encoder:.*encoder.vectors"):
    train_and_evaluate(small(run=first, scope="encoder"), tmp_path / "x")


@pytest.mark.slow
def test_with_matching_parameters_cassie_begins_with_a_rankers_scores(tmp_path):
  """Beside the encoder, head and roles are taken; the node's logit is 0 before the first step."""
  same = {"data__train_fraction": 0.1, "model__segments": "four", "optimizer__rate": 3e-3}
  ranker = tiny_systems.config("loct", epochs=1, model__template="context", **same)
  before = train_and_evaluate(ranker, tmp_path / "ranker")
  there = parameters(tmp_path / "ranker")

  def begun_with(scope, **changes):
    start = {"warm_start__run": str(tmp_path / "ranker"), "warm_start__scope": scope, "epochs": 0}
    config = tiny_systems.config("cassie", **{**same, **start, **changes})
    name = "-".join((scope, *map(str, changes.values())))
    return train_and_evaluate(config, tmp_path / name)

  after = begun_with("matching", model__ranker_head="pooled")
  for name, entry in before["metrics"].items():
    assert after["metrics"][name]["mean"] == pytest.approx(entry["mean"], abs=1e-6), name
  here = parameters(tmp_path / "matching-pooled")
  np.testing.assert_array_equal(here["ranker/head/kernel"], there["head/kernel"])
  roles = [path for path in there if path.startswith("segment_embeddings/")]
  assert roles and all(np.array_equal(here[path], there[path]) for path in roles)
  assert not here["head/output/kernel"].any() and here["head/hidden/kernel"].any()
  other = begun_with("encoder", model__ranker_head="pooled")
  assert other["metrics"] != before["metrics"]
  with pytest.raises(InputError, match="has none of the parameters .* set the scope to encoder"):
    begun_with("matching", model__segments="none")
