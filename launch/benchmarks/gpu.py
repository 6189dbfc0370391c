"""python -m launch.benchmarks.gpu: training, encoding and scoring on the accelerator that is here.

Ours beside PyTorch's, in bfloat16, over made texts whose lengths are distributed as WikiQA's, with
random weights of published shapes. It needs jax, flax, optax, numpy and this package's encoders,
models and batches; torch and transformers where PyTorch is to be compared. Cases are run in the
order of `CASES` until `--minutes` are over; those that are left out are named.

  python -m launch.benchmarks.gpu --json=gpu.json
  python -m launch.benchmarks.gpu --cases=bert-base:triplet --no-torch

MFU is FLOP/s of real tokens over those of a large matrix product measured here. `busy` is the speed
with host work over that of the same batches when they lie on the device already. GiB is the most that
the side's library had in use; of ours nothing is said where an earlier side of this process had more.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from launch.benchmarks.benchmark import allow_absent_jaxtyping
from launch.benchmarks.workload import SHAPES, encoder_of

# Tokens of WikiQA's training sentences, and of question and sentence together, at 0, 5 … 100 %.
SENTENCE = (3, 8, 10, 13, 15, 17, 19, 21, 23, 25, 26, 28, 30, 32, 34, 37, 40, 43, 48, 56, 128)
PAIR = (8, 18, 21, 23, 24, 26, 27, 29, 30, 31, 33, 34, 36, 38, 40, 42, 44, 47, 51, 58, 128)
QUESTIONS, CANDIDATES, POSITIVES = 400, 10, 1
LONGEST = 128
# Sampler, examples and rows of 128 tokens a batch, and the sections that build the rest.
SYSTEMS: dict[str, tuple[str, int, int, dict[str, Any], dict[str, Any]]] = {
  "triplet": (
    "grouped",
    4096,
    256,
    {"name": "triplet", "pooling": "mean", "score": "euclidean"},
    {"name": "triplet", "margin": 5.0, "selection": "all", "reduction": "sum"},
  ),
  "crossencoder": (
    "grouped",
    1024,
    256,
    {"name": "crossencoder", "token": "cls", "pooler": True, "dropout": 0.1},
    {"name": "cross_entropy"},
  ),
  "encode": (
    "ordered",
    4096,
    512,
    {"name": "biencoder", "pooling": "mean", "score": "cosine"},
    {"name": "none"},
  ),
  "score": (
    "ordered",
    4096,
    512,
    {"name": "crossencoder", "token": "cls", "pooler": True, "dropout": 0.1},
    {"name": "none"},
  ),
}
CASES = (
  "bert-base:triplet",
  "modernbert-base:score",
  "ettin-17m:score",
  "bert-base:crossencoder",
  "minilm:triplet",
  "minilm:encode",
  "modernbert-base:triplet",
  "bert-base:encode",
)
DROPOUT = ("hidden_dropout", "attention_dropout")
OPTIMIZER = {
  "name": "adam",
  "rate": 2e-5,
  "b1": 0.9,
  "b2": 0.999,
  "eps": 1e-8,
  "clip_norm": 1.0,
  "weight_decay": 0.0,
  "layer_decay": 1.0,
  "average": 0.0,
  "schedule": "constant",
  "warmup": 0.1,
  "lr_multipliers": [],
}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
  """The flags."""
  parser = argparse.ArgumentParser(
    prog="launch.benchmarks.gpu",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add("--cases", default=",".join(CASES), help="SHAPE:SYSTEM, joined by commas")
  add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="on both sides")
  add("--seconds", type=float, default=4.0, help="of a block")
  add("--blocks", type=int, default=3, help="of each side, alternating")
  add("--minutes", type=float, default=8.0, help="after which no case begins")
  add("--questions", type=int, default=QUESTIONS, help=f"of {CANDIDATES} candidates each")
  add("--rows", type=int, default=0, help="a batch; 0: as each system has")
  add("--no-torch", action="store_true", help="our side alone")
  add("--json", metavar="FILE", help="write the results")
  flags = parser.parse_args(argv)
  flags.cases = [tuple(case.split(":", 1)) for case in flags.cases.split(",")]
  for case in flags.cases:
    if len(case) != 2 or case[0] not in SHAPES or case[1] not in SYSTEMS:
      known = f"SHAPE is one of {', '.join(SHAPES)}, SYSTEM of {', '.join(SYSTEMS)}"
      parser.error(f"--cases: {':'.join(case)} is no SHAPE:SYSTEM; {known}")
  return flags


def workload(shape: str, system: str, flags: argparse.Namespace, attention: str, **encoder: Any):
  """Made texts, in the batches that a run would have, under an encoder of a published shape."""
  from as2jax.data.batches import examples
  from as2jax.data.batches.batcher import fit_batcher
  from as2jax.data.record import Candidate, Question
  from launch.benchmarks.workload import Load, Workload, batch_load

  sampler, size, rows, model, loss = SYSTEMS[system]
  rows = flags.rows or rows
  trained = system in ("triplet", "crossencoder")
  rate = dict.fromkeys(DROPOUT, 0.1 if trained else 0.0)
  sizes = encoder_of(shape, **{**rate, "dtype": flags.dtype, "attention": attention, **encoder})
  questions = [
    Question(
      str(q),
      f"question {q}",
      tuple(Candidate(str(c), f"{q} {c}", label=int(c < POSITIVES)) for c in range(CANDIDATES)),
    )
    for q in range(flags.questions)
  ]
  layout = {"triplet": examples.triplets, "encode": examples.sentences}.get(system)
  units, table = layout(questions) if layout else examples.single(questions, template="pair")
  unit_table = _units(len(units), SENTENCE if layout else PAIR, sizes["vocab_size"])
  batcher = fit_batcher(
    unit_table,
    table,
    sampler=sampler,
    examples_per_batch=size,
    rows=rows,
    row_lengths=(LONGEST,),
    packed=True,
    shards=1,
    accumulate=1,
    buckets=1,
  )
  blocks = batcher.sampler.blocks()

  def epoch(number: int, seed: int = 0):
    plan = batcher.plan(blocks, seed, number)
    return len(plan), lambda i: batcher.batch(plan, i)

  settings = {
    "system": system,
    "batch_size": None,
    "encoder": sizes,
    "model": model,
    "loss": loss,
    "optimizer": OPTIMIZER,
  }
  count, make = epoch(0)
  whole = sum((batch_load(settings, make(i)) for i in range(count)), Load())
  arrays = (np.asarray(unit_table.ids), np.asarray(unit_table.type), np.asarray(unit_table.offsets))
  members, labels = table.members, table.labels[:, 0]
  return Workload(settings, {}, *arrays, members, labels, None, epoch, whole)


def _units(count: int, quantiles: Sequence[int], vocabulary: int):
  """Random ids; the lengths are drawn from a distribution, the same ones each time."""
  from as2jax.data.text.token_table import UnitTable

  random = np.random.default_rng(0)
  places = np.linspace(0, 1, len(quantiles))
  lengths = np.interp(random.random(count), places, quantiles).astype(np.int64)
  ids = random.integers(0, vocabulary, lengths.sum()).astype(np.int32)
  return UnitTable.of_lengths(lengths, ids)


def on_device(side: Any, seconds: float) -> float:
  """Token positions a second of batches that lie on the device already."""
  import jax

  from launch.benchmarks.workload import Load, batch_load

  placed = [side.place(batch) for batch in side.batches]
  loads = [batch_load(side.work.settings, batch) for batch in side.batches]
  done, began, output = Load(), time.perf_counter(), None
  while time.perf_counter() - began < seconds:
    for batch, load in zip(placed, loads):
      before, output = output, side.step(batch)
      jax.block_until_ready(before)
      done += load
  jax.block_until_ready(output)
  return done.positions / (time.perf_counter() - began)


def case(shape: str, system: str, flags: argparse.Namespace) -> list[dict[str, Any]]:
  """Both sides in turn; a row a side, medians over the blocks."""
  import jax

  from launch.benchmarks import jax_side

  accelerated = jax.default_backend() == "gpu" and flags.dtype == "bfloat16"
  dropping = system in ("triplet", "crossencoder")
  kinds = ("plain", "cudnn") if accelerated and not dropping else ("plain",)
  sides = {}
  for kind in kinds:
    work = workload(shape, system, flags, kind)
    sides[f"as2jax, {kind} attention"] = jax_side.side(work)
  if not flags.no_torch and all(map(importlib.util.find_spec, ("torch", "transformers"))):
    from launch.benchmarks import torch_side

    work = workload(shape, system, flags, "plain")
    cores = len(os.sched_getaffinity(0))
    sides["PyTorch"] = torch_side.side(work, None, cores, half=flags.dtype == "bfloat16")
  peaks = {}
  for name, side in sides.items():
    print(f"{shape}:{system}: warming up {name}", file=sys.stderr, flush=True)
    peaks[name] = _warmed_up(side)
  peak = jax_side.matmul_peak(flags.dtype)
  loads: dict[str, list] = {name: [] for name in sides}
  for _ in range(flags.blocks):
    for name, side in sides.items():
      loads[name].append(side.block(flags.seconds))
  rows = []
  for name, side in sides.items():
    rate = lambda what: float(np.median([getattr(x, what) / t for x, t in loads[name]]))
    ours = name != "PyTorch"
    device = on_device(side, flags.seconds) if ours else None
    peak_bytes = peaks[name] if ours else side.peak_memory()
    rows.append(
      {
        "case": f"{shape}:{system}",
        "side": name if ours else f"{name} ({side.choice})",
        "examples_per_second": rate("examples"),
        "units_per_second": rate("units"),
        "tokens_per_second": rate("tokens"),
        "mfu": rate("flops") / peak,
        "peak_flops": peak,
        "gib": peak_bytes / 2**30 if peak_bytes else None,
        "busy": min(rate("positions") / device, 1.0) if device else None,
        "blocks": [x.tokens / t for x, t in loads[name]],
      }
    )
  return rows


def _warmed_up(side: Any) -> int:
  """Warms a side up; the most bytes that jax then had in use, 0 where it had as many before."""
  before = _peak()
  side.warm_up()
  after = _peak()
  return after if after > before else 0


def _peak() -> int:
  """The most bytes of the device that jax had in use in this process; 0 where it does not say."""
  import jax

  return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


def text(rows: Sequence[Mapping[str, Any]], device: str, left_out: Sequence[str]) -> str:
  """What a person reads."""
  lines = [
    device,
    f"{'case':28}{'side':44}{'units/s':>10}{'tokens/s':>12}{'MFU':>8}{'GiB':>8}{'busy':>8}",
  ]
  for row in rows:
    busy = "" if row["busy"] is None else f"{row['busy']:.0%}"
    gib = "" if row["gib"] is None else f"{row['gib']:.1f}"
    lines.append(
      f"{row['case']:28}{row['side']:44}{row['units_per_second']:>10,.0f}"
      f"{row['tokens_per_second']:>12,.0f}{row['mfu']:>8.1%}{gib:>8}{busy:>8}"
    )
  if left_out:
    lines.append(f"left out for want of time (--minutes): {', '.join(left_out)}")
  return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the cases and prints a row a side."""
  flags = parse(argv)
  os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch wants memory, too
  allow_absent_jaxtyping()
  import jax

  chip = jax.devices()[0]
  device = (
    f"{chip.device_kind} ({chip.platform}), {flags.dtype}, jax {jax.__version__}, "
    f"{time.strftime('%Y-%m-%d')}"
  )
  began, rows, left_out = time.monotonic(), [], []
  for shape, system in flags.cases:
    if time.monotonic() - began > 60 * flags.minutes:
      left_out.append(f"{shape}:{system}")
      continue
    rows += case(shape, system, flags)
  print(text(rows, device, left_out))
  if flags.json:
    with open(flags.json, "w", encoding="utf-8") as file:
      json.dump({"device": device, "flags": {**vars(flags)}, "rows": rows}, file)
  return 0


if __name__ == "__main__":
  sys.exit(main())
