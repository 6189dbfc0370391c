"""Mesh, parameter rules and placement of batches (pjit style: `jax.jit` with `NamedSharding`)."""

import dataclasses
import logging
import operator
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from as2jax.runtime import cpu_compiler
from as2jax.runtime.errors import InputError

AXES = ("data", "fsdp", "tensor", "rows")
POSITIONS_A_CORE = 1024  # see `cores_worth`
log = logging.getLogger(__name__)

# Sharding rules for models over a transformer. The first pattern that matches a path gives specs in
# order of preference; the first whose axes divide the shape is used, else replication. Specs count
# from the last dimension, behind the seed and layer axes. Kernels that read the hidden vectors are
# split by `tensor` along their outputs, kernels that write them along their inputs: nothing is
# exchanged between the two. Biases and the parts above the encoder are small and replicated.
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
BATCH = P(None, None, ("data", "fsdp"))  # of batch arrays `[seed, accumulate, shard, …]`
PREDICTED = P(None, ("data", "fsdp"))  # of batch arrays `[1, shard, …]`, which all seeds share


def make_mesh(
  *, fsdp: int = 1, tensor: int = 1, rows: int = 1, devices: Sequence | None = None
) -> Mesh:
  """Makes a mesh of `AXES` over all devices, those of one process neighbours; `data` follows.

  InputError for sizes that do not divide the number of devices, and for a refused jaxlib.
  """
  devices = jax.devices() if devices is None else devices
  cpu_compiler.check(devices[0].platform)
  devices = sorted(devices, key=operator.attrgetter("process_index"))
  if len(devices) % (fsdp * tensor * rows):
    raise InputError(
      f"sharding.fsdp × sharding.tensor = {fsdp * tensor} does not divide {len(devices)} devices"
    )
  shape = (len(devices) // (fsdp * tensor * rows), fsdp, tensor, rows)
  return Mesh(np.asarray(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def are_cores(config: Any, devices: Sequence) -> bool:
  """Returns whether the devices are one process's cores, which a mesh may leave out."""
  split = config.sharding.fsdp * config.sharding.tensor > 1
  return devices[0].platform == "cpu" and jax.process_count() == 1 and not split


def cores_worth(positions: int) -> int:
  """Returns how many cores gain by sharing the rows of a shard of so many token positions.

  With 1,536 positions each, two cores took .85 of the time of one device with two threads; with 448,
  1.5 times as long.
  """
  return max(positions // POSITIONS_A_CORE, 1)


def mesh_for_batches(config: Any, *, most_cores: int, devices: Sequence | None = None) -> Mesh:
  """Makes the mesh over all devices for a run's batches, by its `sharding` and `batch.shards`.

  Cores of a CPU that the shards do not fit share the rows of every shard, up to `most_cores`: another
  rounding, no more. InputError for other devices.
  """
  fsdp, tensor, shards = config.sharding.fsdp, config.sharding.tensor, config.batch.shards
  devices = jax.devices() if devices is None else devices
  if are_cores(config, devices) and shards % len(devices):
    rows = min(most_cores, len(devices))
    return make_mesh(rows=rows, devices=devices[:rows])
  mesh = make_mesh(fsdp=fsdp, tensor=tensor, devices=devices)
  check_shards(mesh, shards)
  return mesh


def check_shards(mesh: Mesh, shards: int) -> None:
  """Raises InputError where a batch's shards cannot be spread evenly over the mesh."""
  parts = mesh.shape["data"] * mesh.shape["fsdp"]
  if shards % parts:
    raise InputError(
      f"batch.shards = {shards} is not a multiple of the {parts} devices that share "
      f"the data; set --config.batch.shards={parts} (a device may hold several)"
    )


def replicated(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of an array that every device holds whole."""
  return NamedSharding(mesh, P())


def spec_for(path: str, shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
  """Returns the spec of one parameter of a model over a transformer, by `RULES`."""
  sizes = {**mesh.shape, None: 1}
  for pattern, specs in RULES:
    if not re.search(pattern, path):
      continue
    for spec in specs:
      before = len(shape) - len(spec)
      if before >= 0 and not any(n % sizes[axis] for n, axis in zip(shape[before:], spec)):
        return P(*(None,) * before, *spec)
    if mesh.shape["fsdp"] * mesh.shape["tensor"] > 1:
      log.info("sharding: %s %s is replicated (no rule divides it)", path, tuple(shape))
    break
  return P()


def tree_shardings(tree: Any, mesh: Mesh) -> Any:
  """Returns the shardings of a state: optimizer moments are sharded like their parameter.

  A model over a transformer is sharded by `RULES`; any other is small and replicated.
  """
  leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
  names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
  shardings = [replicated(mesh)] * len(leaves)
  if any(TRANSFORMER in name for name in names):
    for i, (name, (_, leaf)) in enumerate(zip(names, leaves)):
      shardings[i] = NamedSharding(mesh, spec_for(name, leaf.shape, mesh))
  return jax.tree.unflatten(structure, shardings)


def local_shards(mesh: Mesh, shards: int) -> tuple[int, ...]:
  """Returns the numbers of the batch's shards that this process holds, ascending."""
  parts = NamedSharding(mesh, P(("data", "fsdp"))).addressable_devices_indices_map((shards,))
  mine = set()
  for (part,) in parts.values():
    mine.update(range(*part.indices(shards)))
  return tuple(sorted(mine))


def place(batch: Any, mesh: Mesh, *, shards: int | None = None, spec: PartitionSpec = BATCH) -> Any:
  """Puts a host batch, to be trained on (`BATCH`) or predicted (`PREDICTED`), on the mesh's devices.

  `batch` holds the `local_shards` of so many `shards`; where that is None, it holds all.
  """
  sharding, axis = NamedSharding(mesh, spec), len(spec) - 1
  if mesh.shape["rows"] > 1:
    return _over_rows(batch, sharding, axis + 1)
  if sharding.is_fully_addressable or shards is None:
    return put(batch, sharding)
  mine = local_shards(mesh, shards)

  def one(leaf):
    shape = (*leaf.shape[:axis], shards, *leaf.shape[axis + 1 :])

    def part(index):
      start, stop, _ = index[axis].indices(shards)
      own = slice(mine.index(start), mine.index(stop - 1) + 1)
      return leaf[(*index[:axis], own, *index[axis + 1 :])]

    return jax.make_array_from_callback(shape, sharding, part)

  return jax.tree.map(one, batch)


def _over_rows(batch: Any, sharding: NamedSharding, axis: int) -> Any:
  """Puts the batch on all devices, each with its part of the rows of tokens (along `axis`).

  Rows of padding, which come last (dropout is the same without them), make their number a multiple.
  """
  parts = sharding.mesh.shape["rows"]

  def padded(x):
    missing = [(0, 0)] * x.ndim
    missing[axis] = (0, -x.shape[axis] % parts)
    return np.pad(x, missing)

  split = NamedSharding(sharding.mesh, P(*sharding.spec, "rows"))
  tokens = jax.device_put(jax.tree.map(padded, batch.tokens), split)
  return dataclasses.replace(
    jax.device_put(dataclasses.replace(batch, tokens=None), sharding), tokens=tokens
  )


def put(tree: Any, sharding: Sharding) -> Any:
  """Puts host arrays, which every process holds whole, on the devices without communication."""
  if sharding.is_fully_addressable:
    return jax.device_put(tree, sharding)
  one = lambda x: jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
  return jax.tree.map(lambda x: one(np.asarray(x)), tree)
