"""Mesh, parameter rules and placement of batches (pjit style: `jax.jit` with `NamedSharding`)."""

import logging
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from as2jax.errors import InputError

AXES = ("data", "fsdp", "tensor")
log = logging.getLogger(__name__)

# Ordered: the first pattern that matches a path names specs in order of preference; the first spec
# whose axes divide the shape wins; replication is last. Specs count from the last dimension, so
# that the leading seed and layer axes need no mention.
P = PartitionSpec
RULES: tuple[tuple[str, tuple[PartitionSpec, ...]], ...] = (
    (r"embeddings/word$", (P("tensor", "fsdp"), P("fsdp", None), P(None, "fsdp"))),
    (r"(query|key|value|relative|intermediate)/kernel$", (P("fsdp", "tensor"), P("fsdp", None))),
    (r"output/kernel$", (P("tensor", "fsdp"), P(None, "fsdp"))),
    (r"kernel$", (P("fsdp", None),)),
    (r".*", ()),
)


def make_mesh(*, fsdp: int = 1, tensor: int = 1, devices: Sequence | None = None) -> Mesh:
  """A mesh (`data`, `fsdp`, `tensor`) over all devices; `data` takes what the others leave.

  Raises:
    InputError: sizes that do not divide the number of devices.
  """
  devices = list(jax.devices() if devices is None else devices)
  if len(devices) % (fsdp * tensor):
    raise InputError(f"sharding.fsdp × sharding.tensor = {fsdp * tensor} does not divide "
                     f"{len(devices)} devices")
  shape = (len(devices) // (fsdp * tensor), fsdp, tensor)
  return Mesh(np.asarray(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * 3)


def check_shards(mesh: Mesh, shards: int) -> None:
  """Raises InputError where a batch's shards cannot be spread evenly over the mesh."""
  parts = mesh.shape["data"] * mesh.shape["fsdp"]
  if shards % parts:
    raise InputError(f"batch.shards = {shards} is not a multiple of the {parts} devices that share "
                     f"the data; set --config.batch.shards={parts} (a device may hold several)")


def replicated(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Of batch arrays `[seed, accumulate, shard, …]`: shards over `data` and `fsdp`."""
  return NamedSharding(mesh, P(None, None, ("data", "fsdp")))


def predict_sharding(mesh: Mesh) -> NamedSharding:
  """Of batch arrays `[1, shard, …]`, which all seeds share."""
  return NamedSharding(mesh, P(None, ("data", "fsdp")))


def spec_for(path: str, shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
  """The spec of one parameter, by the first rule that matches and the first spec that divides."""
  specs = next((specs for pattern, specs in RULES if re.search(pattern, path)), None)
  if specs is None:
    raise InputError(f"no sharding rule matches the parameter {path!r}")
  for spec in specs:
    if len(spec) > len(shape):
      continue
    tail = shape[len(shape) - len(spec):]
    if all(axis is None or size % mesh.shape[axis] == 0 for axis, size in zip(spec, tail)):
      return P(*(None,) * (len(shape) - len(spec)), *spec)
  if specs and any(mesh.shape[axis] > 1 for axis in ("fsdp", "tensor")):
    log.info("sharding: %s %s is replicated (no rule divides it)", path, tuple(shape))
  return P()


def tree_shardings(tree: Any, mesh: Mesh) -> Any:
  """The shardings of a state: optimiser moments follow the parameter whose path they end in."""
  def one(path, leaf):
    name = "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
    return NamedSharding(mesh, spec_for(name, leaf.shape, mesh))
  return jax.tree_util.tree_map_with_path(one, tree)


def place(batch: Any, mesh: Mesh) -> Any:
  """Puts a host batch on the devices of the mesh."""
  return jax.device_put(batch, batch_sharding(mesh))
