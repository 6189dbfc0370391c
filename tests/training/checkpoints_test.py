"""Checkpoints: whole or not at all, on another number of devices; no damage passes unnoticed."""

import logging
import os
import random
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import checkpoints
from as2jax.training.checkpoints import Checkpoints, read_best, read_progress

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


def files(folder):
  return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def damage(path, kind, rng):
  data = bytearray(path.read_bytes())
  if kind == "missing":
    path.unlink()
    return
  if kind == "flip":
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
  elif kind == "half":
    data = data[: len(data) // 2]
  else:
    at = rng.randrange(len(data))
    data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    if bytes(data) == path.read_bytes():
      data[at] = 1
  path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_every_damaged_file_is_named(copied, kind):
  rng = random.Random(KINDS.index(kind))
  for name, step in (("latest", 3), ("best", 2)):
    folder = copied / name / str(step)
    checkpoints._verify(folder, together=False)
    for path in files(folder):
      whole = path.read_bytes()
      damage(path, kind, rng)
      with pytest.raises(InputError, match=path.name):
        checkpoints._verify(folder, together=True)
      if name == "best":
        with pytest.raises(InputError, match="config=rerun"):
          read_best(copied, step)
      path.write_bytes(whole)
    checkpoints._verify(folder, together=True)


def test_a_manifest_that_is_a_pipe_is_not_opened(copied):
  manifest = copied / "latest/3" / checkpoints.MANIFEST
  manifest.unlink()
  os.mkfifo(manifest)
  with pytest.raises(InputError, match="manifest.json is a named pipe"):
    checkpoints._verify(manifest.parent, together=False)


@pytest.mark.parametrize("damaged", ["latest/3", "best/2"])
def test_a_run_goes_back_to_the_newest_whole_state_and_says_so(copied, damaged, caplog):
  """The state of step 2 names the same best, so that only that of step 1 would be left."""
  path = max(files(copied / damaged), key=lambda file: file.stat().st_size)
  damage(path, "flip", random.Random(0))
  if damaged == "best/2":
    with pytest.raises(InputError, match="no whole checkpoint left"):
      Checkpoints(copied)
    return
  with caplog.at_level(logging.WARNING):
    actual = Checkpoints(copied)
  assert f"{path} was damaged" in caplog.text
  assert "going back to the checkpoint of step 2" in caplog.text
  state, progress = actual.restore(ABSTRACT)
  assert progress == {"at": 2, "best": 2}
  np.testing.assert_array_equal(state["kernel"], tree(2)["kernel"])
  actual.save(3, tree(3), {"at": 3, "best": 2})  # the same step again
  actual.close()
  assert read_progress(copied) == {"at": 3, "best": 2}
  checkpoints._verify(copied / "latest" / "3", together=False)


def test_a_best_that_was_cut_off_goes_back_with_the_state_that_names_it(tmp_path):
  saving = Checkpoints(tmp_path)
  for step in (1, 2):
    saving.save_best(step, tree(10 + step))
    saving.save(step, tree(step), {"at": step, "best": step})
  saving.close()
  (tmp_path / "best/2" / checkpoints.MANIFEST).unlink()
  again = Checkpoints(tmp_path)
  assert again.latest_step == 1 and read_progress(tmp_path) == {"at": 1, "best": 1}
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


def test_nothing_begins_anew_where_states_are_damaged(copied):
  for step in (2, 3):
    damage(copied / f"latest/{step}" / checkpoints.MANIFEST, "flip", random.Random(step))
  with pytest.raises(InputError, match="(?s)latest/3.*latest/2.*no whole checkpoint left"):
    Checkpoints(copied)
  assert (copied / "latest/3").exists()


def test_an_older_state_that_is_damaged_changes_nothing(copied):
  for path in files(copied / "latest/2"):
    damage(path, "half", random.Random(0))
  again = Checkpoints(copied)
  assert again.restore(ABSTRACT)[1] == {"at": 3, "best": 2}
  again.save(4, tree(4), {"at": 4, "best": 2})
  again.close()
  assert read_progress(copied)["at"] == 4


def test_a_later_position_at_a_saved_step_replaces_the_one_before(copied):
  saving = Checkpoints(copied)
  before = checkpoints._read_manifest(copied / "latest/3")
  saving.save_best(3, tree(13))
  saving.save(3, tree(3), {"at": 3, "best": 3})
  saving.close()
  after = checkpoints._verify(copied / "latest/3", together=False)
  assert after == {**before, "progress": {"at": 3, "best": 3}}


def placed(devices, spec, value=1.0):
  mesh = sharding.make_mesh(fsdp=len(devices), devices=devices)
  kernel = jnp.arange(32.0).reshape(1, 8, 4) * value
  return {
    "kernel": jax.device_put(kernel, NamedSharding(mesh, spec)),
    "step": jax.device_put(jnp.ones((1,), jnp.int32), NamedSharding(mesh, PartitionSpec())),
  }


def shapes(x):
  return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), x)


def test_a_state_moves_to_another_number_of_devices(tmp_path):
  two, one = jax.devices()[:2], jax.devices()[:1]
  saved = Checkpoints(tmp_path)
  state = placed(two, PartitionSpec(None, "fsdp"))
  saved.save(7, state, {"epoch": 1, "tracker": {"best": [None, 0.5]}})
  saved.wait()
  saved.close()
  actual, progress = Checkpoints(tmp_path).restore(shapes(placed(one, PartitionSpec(), 0.0)))
  np.testing.assert_array_equal(actual["kernel"], np.arange(32).reshape(1, 8, 4))
  assert actual["kernel"].sharding.device_set == set(one)
  assert progress == {"epoch": 1, "tracker": {"best": [None, 0.5]}}


def test_two_latest_states_and_three_bests_are_kept(tmp_path):
  saved = Checkpoints(tmp_path)
  for step in (1, 2, 3, 4):
    saved.save_best(step, placed(jax.devices()[:1], PartitionSpec(), step))
    saved.save(step, placed(jax.devices()[:1], PartitionSpec()), {"step": step, "best": step})
  saved.wait()
  saved.close()
  kept = lambda name: sorted(int(p.name) for p in (tmp_path / name).iterdir() if p.name.isdigit())
  assert kept("latest") == [3, 4] and kept("best") == [2, 3, 4]
  again = Checkpoints(tmp_path)
  assert again.latest_step == 4 and read_progress(tmp_path) == {"step": 4, "best": 4}
  best = again.restore_best(2, shapes(placed(jax.devices()[:1], PartitionSpec())))
  assert best["kernel"].max() == 62
  with pytest.raises(InputError, match=r"no checkpoint of step 1, only \[2, 3, 4\]"):
    again.restore_best(1, shapes(placed(jax.devices()[:1], PartitionSpec())))


def test_another_model_is_refused(tmp_path):
  saved = Checkpoints(tmp_path)
  saved.save(1, placed(jax.devices()[:1], PartitionSpec()), {})
  saved.wait()
  wrong = shapes(placed(jax.devices()[:1], PartitionSpec()))
  wrong["kernel"] = jax.ShapeDtypeStruct((1, 8, 5), jnp.float32, sharding=wrong["kernel"].sharding)
  with pytest.raises(InputError, match="cannot be restored"):
    saved.restore(wrong)
  with pytest.raises(InputError, match="cannot be restored"):
    saved.restore({"bias": wrong["kernel"]})


def test_weights_that_are_not_finite_are_not_read(tmp_path):
  saved = Checkpoints(tmp_path)
  for step, value in ((1, 1.0), (2, np.inf)):
    saved.save_best(step, placed(jax.devices()[:1], PartitionSpec(), value))
  saved.wait()
  saved.close()
  assert read_best(tmp_path, 1)["kernel"].shape == (1, 8, 4)
  with pytest.raises(InputError, match="best/2: the tensor 'kernel' holds 32 of 32"):
    read_best(tmp_path, 2)  # 0 · inf is NaN
