"""Mesh, parameter rules and placement of batches (pjit style: `jax.jit` with `NamedSharding`)."""

import logging
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from as2jax.runtime import cpu_compiler
from as2jax.runtime.errors import InputError

AXES = ("data", "fsdp", "tensor")
log = logging.getLogger(__name__)

# Of models over a transformer. Ordered: the first pattern that matches a path names specs in order
# of preference; the first spec whose axes divide the shape wins; replication is last. Specs count
# from the last dimension, so that the leading seed and layer axes need no mention. What reads the
# hidden vectors is split by `tensor` along its outputs, what writes them along its inputs: between
# the two nothing is exchanged. What no rule matches (biases, norms, all parts above the encoder) is
# small: every device holds it whole.
P = PartitionSpec
RULES: tuple[tuple[str, tuple[PartitionSpec, ...]], ...] = (
  (r"encoder/embeddings/word$", (P("tensor", "fsdp"), P("fsdp", None), P(None, "fsdp"))),
  (
    r"encoder/layers/.*\b(query|key|value|relative|intermediate)/kernel$",
    (P("fsdp", "tensor"), P("fsdp", None)),
  ),
  (r"encoder/layers/.*\boutput/kernel$", (P("tensor", "fsdp"), P(None, "fsdp"))),
  (r"\bpooler/kernel$", (P("fsdp", None),)),
)
TRANSFORMER = "encoder/layers/"  # in the paths of such models alone


def make_mesh(*, fsdp: int = 1, tensor: int = 1, devices: Sequence | None = None) -> Mesh:
  """A mesh (`data`, `fsdp`, `tensor`) over all devices; `data` takes what the others leave.

  Devices of one process lie next to one another, so that `fsdp` and `tensor` stay within it as far
  as they can.

  Raises:
    InputError: sizes that do not divide the number of devices, or a jaxlib that computes wrongly.

  """
  devices = jax.devices() if devices is None else devices
  cpu_compiler.check(devices[0].platform)
  devices = sorted(devices, key=lambda device: getattr(device, "process_index", 0))
  if len(devices) % (fsdp * tensor):
    raise InputError(
      f"sharding.fsdp × sharding.tensor = {fsdp * tensor} does not divide {len(devices)} devices"
    )
  shape = (len(devices) // (fsdp * tensor), fsdp, tensor)
  return Mesh(np.asarray(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * 3)


def check_shards(mesh: Mesh, shards: int) -> None:
  """Raises InputError where a batch's shards cannot be spread evenly over the mesh."""
  parts = mesh.shape["data"] * mesh.shape["fsdp"]
  if shards % parts:
    raise InputError(
      f"batch.shards = {shards} is not a multiple of the {parts} devices that share "
      f"the data; set --config.batch.shards={parts} (a device may hold several)"
    )


def replicated(mesh: Mesh) -> NamedSharding:
  """Of an array that every device holds whole."""
  return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Of batch arrays `[seed, accumulate, shard, …]`: shards over `data` and `fsdp`."""
  return NamedSharding(mesh, P(None, None, ("data", "fsdp")))


def predict_sharding(mesh: Mesh) -> NamedSharding:
  """Of batch arrays `[1, shard, …]`, which all seeds share."""
  return NamedSharding(mesh, P(None, ("data", "fsdp")))


def spec_for(path: str, shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
  """The spec of one parameter of a model over a transformer.

  That of the first rule that matches, the first of its specs that divides. A parameter that no
  rule matches is replicated: every device holds it whole.
  """
  specs = next((specs for pattern, specs in RULES if re.search(pattern, path)), ())
  for spec in specs:
    if len(spec) > len(shape):
      continue
    tail = shape[len(shape) - len(spec) :]
    if all(axis is None or size % mesh.shape[axis] == 0 for axis, size in zip(spec, tail)):
      return P(*(None,) * (len(shape) - len(spec)), *spec)
  if specs and any(mesh.shape[axis] > 1 for axis in ("fsdp", "tensor")):
    log.info("sharding: %s %s is replicated (no rule divides it)", path, tuple(shape))
  return P()


def tree_shardings(tree: Any, mesh: Mesh) -> Any:
  """The shardings of a state: optimiser moments follow the parameter whose path they end in.

  A model over a transformer is sharded by `RULES`; any other is small, and runs by `data` alone:
  every device holds all of it.
  """

  def name(path):
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)

  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  if not any(TRANSFORMER in name(path) for path, _ in leaves):
    return jax.tree.map(lambda _: replicated(mesh), tree)
  return jax.tree_util.tree_map_with_path(
    lambda path, leaf: NamedSharding(mesh, spec_for(name(path), leaf.shape, mesh)), tree
  )


def local_shards(mesh: Mesh, shards: int) -> tuple[int, ...]:
  """Numbers of the shards of a batch that the devices of this process hold, ascending."""
  parts = NamedSharding(mesh, P(("data", "fsdp"))).addressable_devices_indices_map((shards,))
  return tuple(
    sorted({number for (part,) in parts.values() for number in range(*part.indices(shards))})
  )


def place(batch: Any, mesh: Mesh, *, shards: int | None = None) -> Any:
  """Puts a host batch `[seed, accumulate, shard, …]` on the devices of the mesh.

  Args:
    shards: of the whole batch, of which `batch` holds `local_shards`; None: it holds them all.

  """
  return _assemble(batch, batch_sharding(mesh), 2, shards)


def place_predict(batch: Any, mesh: Mesh, *, shards: int | None = None) -> Any:
  """Puts a host batch `[1, shard, …]`, to be predicted, on the devices; `shards` as in `place`."""
  return _assemble(batch, predict_sharding(mesh), 1, shards)


def _assemble(batch: Any, sharding: NamedSharding, axis: int, shards: int | None) -> Any:
  if sharding.is_fully_addressable:
    return jax.device_put(batch, sharding)
  mine = local_shards(sharding.mesh, shards) if shards else None

  def one(leaf):
    if mine is None:
      return put(leaf, sharding)
    shape = (*leaf.shape[:axis], shards, *leaf.shape[axis + 1 :])

    def part(index):
      start, stop, _ = index[axis].indices(shards)
      own = slice(mine.index(start), mine.index(stop - 1) + 1)
      return leaf[(*index[:axis], own, *index[axis + 1 :])]

    return jax.make_array_from_callback(shape, sharding, part)

  return jax.tree.map(one, batch)


def put(tree: Any, sharding: NamedSharding) -> Any:
  """Puts host arrays that every process has whole on the devices; no process asks another."""
  if sharding.is_fully_addressable:
    return jax.device_put(tree, sharding)
  one = lambda x: jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
  return jax.tree.map(lambda x: one(np.asarray(x)), tree)
