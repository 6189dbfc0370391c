"""Rules by hand; which host makes which shards.

The rule of every leaf of a state is in configs_test.py, that the number of devices and processes changes no
number in processes_test.py.
"""

import jax
import numpy as np
import pytest
import tiny_cassie
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from as2jax.config import base
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError

MESH = AbstractMesh((2, 4, 2, 1), sharding.AXES, axis_types=(AxisType.Auto,) * 4)
P = PartitionSpec


def test_the_first_spec_that_divides_wins():
  """30,521 rows divide by nothing: the next spec shards the width instead."""
  spec = lambda rows: sharding.spec_for("encoder/embeddings/word", (1, rows, 384), MESH)
  assert (spec(30522), spec(30521)) == (P(None, "tensor", "fsdp"), P(None, None, "fsdp"))


def test_each_host_makes_the_shards_that_its_devices_hold(monkeypatch):
  mesh = sharding.make_mesh(devices=jax.devices()[:2])
  assert sharding.local_shards(mesh, 6) == (0, 1, 2, 3, 4, 5)
  second = {jax.devices()[1]}
  whole = NamedSharding.addressable_devices_indices_map
  monkeypatch.setattr(
    NamedSharding,
    "addressable_devices_indices_map",
    lambda self, shape: {
      device: index for device, index in whole(self, shape).items() if device in second
    },
  )
  assert sharding.local_shards(mesh, 6) == (3, 4, 5)
  monkeypatch.undo()
  batch = np.arange(2 * 6 * 3).reshape(1, 2, 6, 3)
  for placed in (sharding.place(batch, mesh), sharding.place(batch, mesh, shards=6)):
    np.testing.assert_array_equal(placed, batch)
    assert placed.sharding == NamedSharding(mesh, sharding.BATCH)


def _config(shards, **sharding_section):
  config = base.get_config()
  config.batch.shards = shards
  config.sharding.update(sharding_section)
  return config


def test_cores_share_the_rows_of_shards_that_do_not_spread():
  shape = lambda *args, most_cores=8: dict(
    sharding.mesh_for_batches(_config(*args), most_cores=most_cores).shape
  )
  alone = {"data": 1, "fsdp": 1, "tensor": 1, "rows": 1}
  assert shape(1) == shape(3) == {**alone, "rows": 2}
  assert shape(1, most_cores=1) == alone
  assert shape(2) == shape(4) == {**alone, "data": 2}


def test_shards_that_do_not_fit_the_devices_are_refused(monkeypatch):
  mesh = sharding.make_mesh(devices=jax.devices()[:2])
  sharding.check_shards(mesh, 4)
  with pytest.raises(InputError, match="does not divide 2 devices"):
    sharding.make_mesh(tensor=3, devices=jax.devices()[:2])
  refused = lambda count: f"batch.shards = {count} is not a multiple of the 2 devices"
  with pytest.raises(InputError, match=refused(3)):
    sharding.check_shards(mesh, 3)
  with pytest.raises(InputError, match=refused(1)):
    sharding.mesh_for_batches(_config(1, fsdp=2), most_cores=8)
  monkeypatch.setattr(jax, "process_count", lambda: 2)  # CPUs of several hosts are no cores, too
  with pytest.raises(InputError, match=refused(3)):
    sharding.mesh_for_batches(_config(3), most_cores=8)


def test_rows_of_padding_make_their_number_a_multiple():
  example_batch = tiny_cassie.batch([[tiny_cassie.case(0, (2,) * 4, (1,) * 3)]])
  tokens = jax.tree.map(lambda x: np.asarray(x)[:, :1], example_batch.tokens)  # one row
  host = jax.tree.map(lambda x: np.asarray(x)[None, None], example_batch.replace(tokens=tokens))
  mesh = sharding.make_mesh(rows=2, devices=jax.devices()[:2])
  placed = sharding.place(host, mesh)
  assert placed.tokens.ids.shape[3] == 2 and not placed.tokens.segment[..., 1, :].any()
  np.testing.assert_array_equal(placed.tokens.ids[..., :1, :], host.tokens.ids)
  assert placed.tokens.ids.sharding.spec == P(None, None, ("data", "fsdp"), "rows")
  assert placed.units.row.sharding.is_fully_replicated
  assert jax.tree.structure(placed) == jax.tree.structure(host)
