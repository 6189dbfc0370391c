"""Checkpoints: whole or not at all, on another number of devices, no damage unnoticed; a run keeps its split."""

import dataclasses
import logging
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from file_damage import files
from jax.sharding import NamedSharding, PartitionSpec

from as2jax.data import mined
from as2jax.data.dataset import Splits
from as2jax.data.record import Candidate
from as2jax.experiments.compile import describe
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import build, checkpoints, record, stored_split
from as2jax.training.checkpoints import Checkpoints, read_best

KINDS = ("flip", "half", "zero", "missing")
HERE = NamedSharding(sharding.make_mesh(devices=jax.devices()[:1]), PartitionSpec())


def tree(value):
  array = np.random.default_rng(value).normal(size=(1, 60, 50)).astype(np.float32)
  return {"kernel": jax.device_put(array, HERE), "step": jax.device_put(np.int32([value]), HERE)}


ABSTRACT = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=HERE), tree(0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """Checkpoints of three steps; the best is that of step 2 in the last two, 1 in the first."""
  folder = tmp_path_factory.mktemp("saved")
  saving = Checkpoints(folder)
  for step, best in ((1, 1), (2, 2), (3, 2)):
    if step == best:
      saving.save_best(step, tree(10 + step))
    saving.save(step, tree(step), {"at": step, "best": best})
  saving.close()
  return folder


@pytest.fixture
def copied(saved, tmp_path):
  return shutil.copytree(saved, tmp_path / "x")


def position(folder):
  """The position of the loop in the latest state."""
  step = max(int(path.name) for path in (folder / "latest").iterdir())
  return checkpoints.read_manifest(folder / "latest" / str(step))["progress"]


def damage(path, kind="flip"):
  data = path.read_bytes()
  half = len(data) // 2
  path.unlink()
  if kind == "flip":
    path.write_bytes(data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :])
  elif kind == "half":
    path.write_bytes(data[:half])
  elif kind == "zero":
    path.write_bytes(bytes(len(data)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_damaged_file_is_named(copied, kind):
  for name, step in (("latest", 3), ("best", 2)):
    folder = copied / name / str(step)
    checkpoints.read_manifest(folder)
    for path in files(folder):
      whole = path.read_bytes()
      damage(path, kind)
      with pytest.raises(InputError, match=path.name):
        checkpoints.read_manifest(folder)
      if name == "best":
        with pytest.raises(InputError, match="rerun:FOLDER"):
          read_best(copied, step)
      path.write_bytes(whole)
    checkpoints.read_manifest(folder)


def test_a_run_goes_back_to_the_newest_whole_state_and_says_so(copied, caplog):
  path = max(files(copied / "latest/3"), key=lambda file: file.stat().st_size)
  damage(path)
  with caplog.at_level(logging.WARNING):
    actual = Checkpoints(copied)
  assert f"{path} was damaged" in caplog.text
  assert "going back to the checkpoint of step 2" in caplog.text
  state, progress = actual.restore(ABSTRACT)
  assert progress == {"at": 2, "best": 2}
  np.testing.assert_array_equal(state["kernel"], tree(2)["kernel"])
  actual.save(3, tree(3), {"at": 3, "best": 2})  # the same step again
  actual.close()
  assert position(copied) == {"at": 3, "best": 2}
  checkpoints.read_manifest(copied / "latest" / "3")


@pytest.mark.parametrize("damaged", [("best/2",), ("latest/2", "latest/3")])
def test_nothing_begins_anew_where_no_whole_state_is_left(copied, damaged):
  """Both states that are left name the best of step 2."""
  for name in damaged:
    damage(copied / name / checkpoints.MANIFEST)
  with pytest.raises(InputError, match=f"(?s){damaged[-1]}.*no whole checkpoint left"):
    Checkpoints(copied)
  assert (copied / "latest/3").exists()


def test_a_best_that_was_cut_off_goes_back_with_the_state_that_names_it(tmp_path):
  saving = Checkpoints(tmp_path)
  for step in (1, 2):
    saving.save_best(step, tree(10 + step))
    saving.save(step, tree(step), {"at": step, "best": step})
  saving.close()
  (tmp_path / "best/2" / checkpoints.MANIFEST).unlink()
  again = Checkpoints(tmp_path)
  assert again.latest_step == 1 and position(tmp_path) == {"at": 1, "best": 1}
  assert not (tmp_path / "best/2").exists()
  again.save_best(2, tree(12))
  np.testing.assert_array_equal(again.restore_best(2, ABSTRACT)["kernel"], tree(12)["kernel"])
  again.close()


def test_a_first_save_that_was_cut_off_begins_anew(tmp_path, caplog):
  saving = Checkpoints(tmp_path)
  saving.save_best(0, tree(10))
  saving.save(0, tree(0), {"best": 0})
  saving.close()
  (tmp_path / "latest/0" / checkpoints.MANIFEST).unlink()
  again = Checkpoints(tmp_path)
  assert again.latest_step is None and "going back to the start" in caplog.text
  assert not (tmp_path / "best/0").exists()
  again.close()


def test_a_later_position_at_a_saved_step_replaces_the_one_before(copied):
  saving = Checkpoints(copied)
  before = checkpoints.read_manifest(copied / "latest/3")
  saving.save_best(3, tree(13))
  saving.save(3, tree(3), {"at": 3, "best": 3})
  saving.close()
  after = checkpoints.read_manifest(copied / "latest/3")
  assert after == {**before, "progress": {"at": 3, "best": 3}}


def test_a_state_moves_to_another_number_of_devices(tmp_path):
  saved, (one, two) = Checkpoints(tmp_path), jax.devices()[:2]
  mesh = sharding.make_mesh(fsdp=2, devices=[one, two])
  spread = NamedSharding(mesh, PartitionSpec(None, "fsdp"))
  saved.save(7, {"kernel": jax.device_put(jnp.arange(32.0).reshape(1, 8, 4), spread)}, {"at": 1})
  saved.close()
  wanted = {"kernel": jax.ShapeDtypeStruct((1, 8, 4), jnp.float32, sharding=HERE)}
  actual, progress = Checkpoints(tmp_path).restore(wanted)
  np.testing.assert_array_equal(actual["kernel"], np.arange(32).reshape(1, 8, 4))
  assert actual["kernel"].sharding.device_set == {one} and progress == {"at": 1}
  wrong = {"kernel": jax.ShapeDtypeStruct((1, 8, 5), jnp.float32, sharding=HERE)}
  for other in (wrong, {"bias": wanted["kernel"]}):  # of another model
    with pytest.raises(InputError, match="cannot be restored"):
      Checkpoints(tmp_path).restore(other)


def test_two_latest_states_and_three_bests_are_kept(tmp_path):
  saved = Checkpoints(tmp_path)
  for step in (1, 2, 3, 4):
    saved.save_best(step, tree(step))
    saved.save(step, tree(step), {"best": step})
  saved.close()
  kept = lambda name: sorted(int(p.name) for p in (tmp_path / name).iterdir() if p.name.isdigit())
  assert kept("latest") == [3, 4] and kept("best") == [2, 3, 4]
  again = Checkpoints(tmp_path)
  np.testing.assert_array_equal(again.restore_best(2, ABSTRACT)["kernel"], tree(2)["kernel"])
  with pytest.raises(InputError, match="best/1 was deleted"):
    again.restore_best(1, ABSTRACT)


def test_a_save_that_cannot_be_written_leaves_the_last_whole_state(copied, monkeypatch):
  def full(*_, **__):
    raise OSError(28, "No space left on device")

  saving = Checkpoints(copied)
  monkeypatch.setattr(checkpoints._Manager, "save", full)
  with pytest.raises(InputError, match="could not be written.*No space left.* Free some space"):
    saving.save(4, tree(4), {"best": 2})
  saving.close()
  assert position(copied) == {"at": 3, "best": 2}


def test_weights_that_are_not_finite_are_not_read(tmp_path):
  saved = Checkpoints(tmp_path)
  saved.save_best(1, tree(1))
  saved.save_best(2, {**tree(1), "kernel": tree(1)["kernel"] * jnp.inf})
  saved.close()
  assert read_best(tmp_path, 1)["kernel"].shape == (1, 60, 50)
  with pytest.raises(InputError, match="best/2: the tensor 'kernel' holds 3000 of 3000"):
    read_best(tmp_path, 2)


@pytest.fixture
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path))
  return tmp_path / "splits"


def config(model="crossencoder", **changes):
  return tiny.config(model, data__cache="", **changes)


def batch_of(parts):
  batcher = parts.train_batcher()
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  return plan, [batcher.batch(plan, i) for i in range(3)]


@pytest.mark.parametrize("model", ["crossencoder", "triplet"])
def test_a_second_run_makes_the_same_batches_without_the_questions(cache, monkeypatch, model):
  parts = build.load(config(model))
  plan, batches = batch_of(parts)
  digest = record._of_data(parts, (record.TRAINING,))
  assert len([path for path in cache.iterdir() if path.is_dir()]) == 2  # examples and digest
  read = Splits.__getitem__

  def refused(self, name):
    assert name != "train", "the training questions are decoded"
    return read(self, name)

  monkeypatch.setattr(Splits, "__getitem__", refused)
  again = build.load(config(model))
  other_plan, others = batch_of(again)
  assert len(plan) == len(other_plan) and np.array_equal(plan.seen, other_plan.seen)
  assert jax.tree.all(jax.tree.map(np.array_equal, batches, others))
  assert record._of_data(again, (record.TRAINING,)) == digest
  with pytest.raises(AssertionError, match="decoded"):
    again.train_questions()


@pytest.mark.parametrize(
  "changes",
  [
    {"data__train_fraction": 0.2},
    {"data__train_filter": "both"},
    {"data__rules": ("lowercase",)},
    {"data__holdout": 0.5},
    {"data__max_length": 32},
    {"data__prompts": ("query: ", "")},
  ],
)
def test_other_data_or_texts_are_another_split(cache, changes):
  first, other = build.load(config()), build.load(config(**changes))
  assert stored_split.folder(first) != stored_split.folder(other)
  first.train_batcher()
  assert stored_split.read(other) is None and stored_split.read(first) is not None


def test_negatives_that_were_mined_anew_are_another_split(cache, tmp_path):
  folder = tmp_path / "mined"
  folder.mkdir()
  (folder / mined.CARD).write_text("{}")
  question = build.load(config()).train_questions()[0]
  folders = []
  for texts in (["one"], ["one", "two"]):
    lines = [mined.line(question, Candidate(mined.candidate_id(text), text, 0)) for text in texts]
    (folder / mined.FILE).write_text("".join(lines))
    parts = build.load(config(data__mined=(str(folder),)))
    assert stored_split.read(parts) is None
    parts.train_batcher()
    folders.append(stored_split.folder(parts))
  assert folders[0] != folders[1]
  with pytest.raises(InputError, match="data.mined: .*none holds no negatives.jsonl"):
    stored_split.folder(build.load(config(data__mined=(str(tmp_path / "none"),))))


def test_what_reads_questions_has_none(cache):
  """Models whose inputs read texts, own files, rankers without parameters, described runs."""
  assert stored_split.folder(build.load(config("cassie"))) is None
  assert stored_split.folder(describe(config())) is None
  own = config(data__name="files", data__train=str(cache / "x.tsv"))
  parts = build.load(config())
  assert stored_split.folder(parts) is not None
  assert stored_split.folder(dataclasses.replace(parts, config=own)) is None


def test_a_copied_cache_is_used(cache, tmp_path, monkeypatch):
  parts = build.load(config())
  _, batches = batch_of(parts)
  copy = tmp_path.with_name(tmp_path.name + "-copied")
  tmp_path.rename(copy)  # what was in the first place is gone
  monkeypatch.setenv("AS2JAX_CACHE", str(copy))
  again = build.load(config())
  units, _ = stored_split.read(again)
  assert pathlib.Path(units.folder).parent == copy / "units"
  _, others = batch_of(again)
  np.testing.assert_array_equal(batches[0].tokens.ids, others[0].tokens.ids)
