"""What each leaf of a state must be split by, said once more, by the names of layers."""

import jax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from as2jax.runtime import sharding

P = PartitionSpec
MESH = AbstractMesh((2, 2, 2, 1), sharding.AXES, axis_types=(AxisType.Auto,) * 4)
READ = ("query", "key", "value", "relative", "intermediate")  # read the hidden vectors


def wanted(path: str, transformer: bool) -> tuple:
  """The axes of the last two dimensions of a leaf whose sizes are even."""
  *_, above, name = ("", *path.split("/"))
  if not transformer:
    return ()
  if path.endswith("encoder/embeddings/word"):
    return ("tensor", "fsdp")
  if "encoder/layers/" in path and name == "kernel":
    assert above in (*READ, "output"), path
    return ("fsdp", "tensor") if above in READ else ("tensor", "fsdp")
  if path.endswith("pooler/kernel"):
    return ("fsdp", None)
  return ()


def assert_rules(state, *, transformer: bool) -> int:
  """Checks every leaf, moments like their parameters; returns how many are split."""
  shapes = jax.eval_shape(lambda: state)
  actual = jax.tree_util.tree_flatten_with_path(sharding.tree_shardings(shapes, MESH))[0]
  leaves, specs = dict(jax.tree_util.tree_flatten_with_path(shapes)[0]), {}
  for path, leaf in actual:
    name = "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
    axes = wanted(name, transformer)
    assert all(size % 2 == 0 for size in leaves[path].shape[-len(axes) :] if axes), name
    lead = (None,) * (len(leaves[path].shape) - len(axes)) if axes else ()
    assert leaf.spec == P(*lead, *axes), (name, leaf.spec)
    specs[name] = leaf.spec
  parameters = {
    name.partition("/")[2]: spec for name, spec in specs.items() if name.startswith("trainable/")
  }
  moments = {name: spec for name, spec in specs.items() if "/mu/" in name or "/nu/" in name}
  for name, spec in moments.items():
    assert spec == parameters[name.partition("u/")[2]], name
  assert len(moments) in (0, 2 * len(parameters))
  return sum(spec != P() for spec in specs.values())
