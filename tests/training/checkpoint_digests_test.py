"""No damage to a checkpoint passes unnoticed, and a run goes back to the newest whole state."""

import logging
import os
import random
import shutil

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import checkpoint_digests
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
  checkpoints = Checkpoints(folder)
  for step, best in ((1, 1), (2, 2), (3, 2)):
    if step == best:
      checkpoints.save_best(step, tree(10 + step))
    checkpoints.save(step, tree(step), {"at": step, "best": best})
  checkpoints.close()
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
    checkpoint_digests.check(folder, together=False)
    for path in files(folder):
      whole = path.read_bytes()
      damage(path, kind, rng)
      with pytest.raises(InputError, match=path.name):
        checkpoint_digests.check(folder, together=True)
      if name == "best":
        with pytest.raises(InputError, match="config=rerun"):
          read_best(copied, step)
      path.write_bytes(whole)
    checkpoint_digests.check(folder, together=True)


def test_a_manifest_that_is_a_pipe_is_not_opened(copied):
  manifest = copied / "latest/3" / checkpoint_digests.NAME
  manifest.unlink()
  os.mkfifo(manifest)
  with pytest.raises(InputError, match="manifest.json is a named pipe"):
    checkpoint_digests.check(manifest.parent, together=False)


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
  checkpoint_digests.check(copied / "latest" / "3", together=False)


def test_a_best_that_was_cut_off_goes_back_with_the_state_that_names_it(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  for step in (1, 2):
    checkpoints.save_best(step, tree(10 + step))
    checkpoints.save(step, tree(step), {"at": step, "best": step})
  checkpoints.close()
  (tmp_path / "best/2" / checkpoint_digests.NAME).unlink()
  again = Checkpoints(tmp_path)
  assert again.latest_step == 1 and again.progress() == {"at": 1, "best": 1}
  assert not (tmp_path / "best/2").exists()
  again.save_best(2, tree(12))
  np.testing.assert_array_equal(again.restore_best(2, ABSTRACT)["kernel"], tree(12)["kernel"])
  again.close()


def test_a_first_save_that_was_cut_off_begins_anew(tmp_path, caplog):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save_best(0, tree(10))
  checkpoints.save(0, tree(0), {"best": 0})
  checkpoints.close()
  (tmp_path / "latest/0" / checkpoint_digests.NAME).unlink()
  again = Checkpoints(tmp_path)
  assert again.latest_step is None and "going back to the start" in caplog.text
  assert not (tmp_path / "best/0").exists()
  again.close()


def test_nothing_begins_anew_where_states_are_damaged(copied):
  for step in (2, 3):
    damage(copied / f"latest/{step}" / checkpoint_digests.NAME, "flip", random.Random(step))
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
  checkpoints = Checkpoints(copied)
  before = checkpoint_digests.read(copied / "latest/3")
  checkpoints.save_best(3, tree(13))
  checkpoints.save(3, tree(3), {"at": 3, "best": 3})
  checkpoints.close()
  after = checkpoint_digests.check(copied / "latest/3", together=False)
  assert after == {**before, "progress": {"at": 3, "best": 3}}


@pytest.mark.slow  # every byte of the small files, a sample of the others
def test_no_flipped_bit_is_restored_silently(saved, tmp_path):
  """Each flip is refused, or gone back from: what is restored is what was saved."""
  rng, flips = random.Random(0), 0
  whole = {path: path.read_bytes() for path in files(saved)}
  for name in ("latest/3", "latest/2", "best/2"):
    for path in files(saved / name):
      for _ in range(6):
        copy = tmp_path / "x"
        shutil.copytree(saved, copy)
        damage(copy / path.relative_to(saved), "flip", rng)
        flips += 1
        if name == "best/2":
          with pytest.raises(InputError, match="was damaged"):
            read_best(copy, 2)
        try:
          opened = Checkpoints(copy)
        except InputError as error:
          assert name == "best/2" and "no whole checkpoint left" in str(error)
        else:
          state, progress = opened.restore(ABSTRACT)
          assert progress["at"] == (2 if name == "latest/3" else 3)
          np.testing.assert_array_equal(state["kernel"], tree(progress["at"])["kernel"])
          opened.close()
        shutil.rmtree(copy)
  assert flips > 60 and whole == {path: path.read_bytes() for path in files(saved)}
