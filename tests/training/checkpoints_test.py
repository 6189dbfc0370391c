"""Checkpoints: whole or not at all, on another number of devices, with clear errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training.checkpoints import Checkpoints, read_best


def tree(devices, spec, value=1.0):
  mesh = sharding.make_mesh(fsdp=len(devices), devices=devices)
  kernel = jnp.arange(32.0).reshape(1, 8, 4) * value
  return {
    "kernel": jax.device_put(kernel, NamedSharding(mesh, spec)),
    "step": jax.device_put(jnp.ones((1,), jnp.int32), NamedSharding(mesh, PartitionSpec())),
  }


def abstract(x):
  return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), x)


def test_a_state_moves_to_another_number_of_devices(tmp_path):
  two, one = jax.devices()[:2], jax.devices()[:1]
  saved = Checkpoints(tmp_path)
  state = tree(two, PartitionSpec(None, "fsdp"))
  saved.save(7, state, {"epoch": 1, "tracker": {"best": [None, 0.5]}})
  saved.wait()
  saved.close()
  actual, progress = Checkpoints(tmp_path).restore(abstract(tree(one, PartitionSpec(), 0.0)))
  np.testing.assert_array_equal(actual["kernel"], np.arange(32).reshape(1, 8, 4))
  assert actual["kernel"].sharding.device_set == set(one)
  assert progress == {"epoch": 1, "tracker": {"best": [None, 0.5]}}


def test_two_latest_states_and_three_bests_are_kept(tmp_path):
  saved = Checkpoints(tmp_path)
  for step in (1, 2, 3, 4):
    saved.save_best(step, tree(jax.devices()[:1], PartitionSpec(), step))
    saved.save(step, tree(jax.devices()[:1], PartitionSpec()), {"step": step, "best": step})
  saved.wait()
  saved.close()
  kept = lambda name: sorted(int(p.name) for p in (tmp_path / name).iterdir() if p.name.isdigit())
  assert kept("latest") == [3, 4] and kept("best") == [2, 3, 4]
  again = Checkpoints(tmp_path)
  assert again.latest_step == 4 and again.progress() == {"step": 4, "best": 4}
  best = again.restore_best(2, abstract(tree(jax.devices()[:1], PartitionSpec())))
  assert best["kernel"].max() == 62
  with pytest.raises(InputError, match=r"no checkpoint of step 1, only \[2, 3, 4\]"):
    again.restore_best(1, abstract(tree(jax.devices()[:1], PartitionSpec())))


def test_another_model_is_refused(tmp_path):
  saved = Checkpoints(tmp_path)
  saved.save(1, tree(jax.devices()[:1], PartitionSpec()), {})
  saved.wait()
  wrong = abstract(tree(jax.devices()[:1], PartitionSpec()))
  wrong["kernel"] = jax.ShapeDtypeStruct((1, 8, 5), jnp.float32, sharding=wrong["kernel"].sharding)
  with pytest.raises(InputError, match="cannot be restored"):
    saved.restore(wrong)
  with pytest.raises(InputError, match="cannot be restored"):
    saved.restore({"bias": wrong["kernel"]})


def test_a_save_that_was_cut_off_is_not_taken_for_a_checkpoint(tmp_path):
  saved = Checkpoints(tmp_path)
  saved.save(1, tree(jax.devices()[:1], PartitionSpec()), {"step": 1})
  saved.wait()
  saved.close()
  # What a kill in the middle of a save leaves: a folder under orbax's name for unfinished ones.
  (tmp_path / "latest" / "2.orbax-checkpoint-tmp").mkdir()
  assert Checkpoints(tmp_path).latest_step == 1


def test_weights_that_are_not_finite_are_not_read(tmp_path):
  saved = Checkpoints(tmp_path)
  for step, value in ((1, 1.0), (2, np.inf)):
    saved.save_best(step, tree(jax.devices()[:1], PartitionSpec(), value))
  saved.wait()
  saved.close()
  assert read_best(tmp_path, 1)["kernel"].shape == (1, 8, 4)
  with pytest.raises(InputError, match="best/2: the tensor 'kernel' holds 32 of 32"):
    read_best(tmp_path, 2)  # 0 · inf is NaN
