"""Figures of compiled steps, each computed once: a compile takes minutes, and many runs share one."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from as2jax.config.flat import flatten
from as2jax.evaluation import results
from as2jax.experiments.compile import aot, chips
from as2jax.experiments.compile.program import Collective
from as2jax.runtime import folders
from as2jax.runtime.files import write_whole
from as2jax.runtime.version import source_digest

# The layers as a loop: compiles several times as fast, and needs the same memory of a chip. XLA counts
# the bytes of a loop's body once; `--set encoder.unroll=0` counts every layer's.
LOOP = {"encoder.unroll": 1}
# Keys that enter no shape: runs that differ in these alone share the memory and work of their steps.
OUTSIDE = (
  *("mode", "seeds", "epochs", "patience", "select", "warm_start", "compilation_cache"),
  *("evaluation", "predict", "checkpoint", "log"),
  *(f"optimizer.{name}" for name in ("rate", "schedule", "warmup", "b1", "b2", "eps")),
  *(
    f"data.{name}"
    for name in ("name", "train", "dev", "test", "root", "cache", "download", "columns", "drop")
  ),
  *(f"data.{name}" for name in ("rules", "holdout", "train_filter", "train_fraction", "ranking")),
)
# Folders of the package of which the steps are made.
SOURCE = ("data", "layers", "encoders", "models", "evaluation", "training")
SMALL = 2**16  # bytes: what is less is a scalar, or a few


def shape_of(config: Any) -> dict[str, Any]:
  """The keys of a config that decide the shapes of its steps, with how many seeds step together."""
  kept = {
    key: value
    for key, value in flatten(json.loads(config.to_json())).items()
    if not any(key == name or key.startswith(f"{name}.") for name in OUTSIDE)
  }
  return {**kept, "seeds": len(config.seeds) if config.seeds_parallel else 1}


def figures(
  config: Any, topology: str, *, exact: bool, begins: Callable[[], None] = lambda: None
) -> dict[str, Any]:
  """Memory, work and collectives of a chip for the steps `train` and `predict`, JSON-able.

  They are kept in the cache's folder, under a hash of the shapes, the topology, the versions and the
  source of what the steps are made of.

  Args:
    exact: see `aot.measure`.
    begins: called before anything is compiled, where no figures are kept.

  Raises:
    InputError: see `aot.measure`.

  """
  versions = results.versions()
  key = {
    "shape": shape_of(config),
    "topology": topology,
    "exact": exact,
    "versions": [versions["jax"], versions["flax"], versions["optax"], chips.LIBTPU],
    "source": source_digest(folders=SOURCE),
  }
  name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
  path = folders.cache_folder(config.data.cache) / "tpu" / f"{name}.json"
  if path.exists():
    return json.loads(path.read_text())
  begins()
  chip, _, steps = aot.measure(config, topology, ("train", "predict"), exact=exact)
  content: dict[str, Any] = {"hbm": chip.hbm, "peak": chip.peak}
  for step in steps:
    content[step.name] = {"bytes": step.needs, "fits": aot.fits(chip, step), "flops": step.flops}
    if step.program is not None:
      large, small = split(step.program.collectives)
      content[step.name] |= {"large": large, "small": small, "seconds": step.seconds(chip)}
  write_whole(path, json.dumps(content) + "\n")
  return content


def split(collectives: list[Collective]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
  """Calls and bytes a step by kind: of arrays, and of what is no larger than a few scalars."""
  parts: tuple[dict, dict] = {}, {}
  for one in collectives:
    calls, size = parts[one.bytes <= SMALL].get(one.kind, (0, 0.0))
    parts[one.bytes <= SMALL][one.kind] = [calls + one.times, size + one.times * one.bytes]
  return parts
