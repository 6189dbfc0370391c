"""python -m launch.benchmarks KIND [ROW…]: our steps beside PyTorch or sentence-transformers, in turn.

Both sides have the same texts, sizes, dropout, loss and cores. A ratio says how many times as fast ours is: the median
of the blocks' ratios. With --record, a record of each row is added to history/, and the table of launch/README.md
is made anew, of the newest records of an idle machine and a commit without changes.

  python -m launch.benchmarks rank rank10 --record
  python -m launch.benchmarks gpu bert-base:triplet
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from as2jax.runtime import devices
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "launch" / "benchmarks" / "history"
README = ROOT / "launch" / "README.md"
OTHERS = 0.1  # share of the cores beyond which other processes disturb a comparison
BEGIN, END = "<!-- benchmarks -->", "<!-- end of benchmarks -->"
PACKAGES = ("jax", "jaxlib", "torch", "transformers", "sentence-transformers", "openvino")
# Of each row: its kind, what the table says of it, the unit of its speed (of `ms` and `s` less is better).
ROWS = {
  "triplet": ("train", "training, triplets, `grouped`", "triplets/s"),
  "triplet-bfloat16": ("train", "the same, both in bfloat16", "triplets/s"),
  "crossencoder": ("train", "training, cross-encoder, batch 16", "pairs/s"),
  "encode": ("encode", "encoding WikiQA's test sentences", "sentences/s"),
  "encode-modernbert": ("encode", "the same, ModernBERT of ettin-17m's shape", "sentences/s"),
  "rank-split": ("rank", "ranking WikiQA's first 300 test questions", "sentences/s"),
  "rank-split-cross": ("score", "the same by a cross-encoder", "pairs/s"),
  "rank10": ("rank", "`rank` of ten candidates, warm", "ms"),
  "select": ("rank", "`select` in a document of WikiQA, a question at a time", "ms"),
  "openvino": ("rank", "the 300 questions by OpenVINO, float32", "sentences/s"),
  "openvino-bfloat16": ("rank", "the same, bfloat16", "sentences/s"),
  "openvino-int8": ("rank", "the same, 8 bits", "sentences/s"),
  "serve": ("serve", "the service, 32 clients, ten candidates", "requests/s"),
  "ready-rank": ("ready", "`rank` of two candidates, as a process", "s"),
  "ready-load": ("ready", "`load` and a first `rank`, imports included", "s"),
  "ready-warm-up": ("ready", "`warm_up` of MiniLM", "s"),
  "ready-serve": ("ready", "`serve`, to its first answer", "s"),
  "ready-train": ("ready", "training on WikiQA, to the end of the first step", "s"),
  "start": ("start", "second start of `train` on a large file, to its first step", "s"),
}
# The systems of an accelerator by SHAPE:SYSTEM; the first ones matter most.
GPU = """bert-base:triplet modernbert-base:score ettin-17m:score bert-base:crossencoder
  minilm:triplet minilm:encode modernbert-base:triplet bert-base:encode"""
ROWS["breakdown"] = ("gpu", "a triplet step of BERT-base, and where its time goes", "ms")
ROWS |= {case: ("gpu", f"{case}, bfloat16", "examples/s") for case in GPU.split()}
TRAINER = ("sentence_transformers", "datasets", "accelerate")  # the packages that it needs
PHASES = ("load", "first rank", "all programs", "first epoch begins")  # of `ready`, in seconds
KINDS = tuple(dict.fromkeys(kind for kind, *_ in ROWS.values()))


def measure(
  sides: Mapping[str, Any], run: Callable[[Any, int], Mapping[str, float]], blocks: int, unit: str
) -> dict[str, dict[str, Any]]:
  """Run the sides in turn; return each side's medians, and the ratios of all but the first.

  `run` takes a side and the number of a block, and returns figures, the `speed` among them.
  """
  figures: dict[str, list] = {name: [] for name in sides}
  for number in range(blocks):
    for name, side in sides.items():
      figures[name].append(run(side, number))
      print(f"block {number + 1}, {name}: {figures[name][-1]['speed']:,.4g} {unit}", flush=True)
  medians: dict[str, dict[str, Any]] = {}
  for name, own in figures.items():
    medians[name] = {key: statistics.median(row[key] for row in own) for key in own[0]}
  ours, *others = figures
  for name in others:
    ratios = []
    for first, other in zip(figures[ours], figures[name], strict=True):
      ratio = first["speed"] / other["speed"]
      ratios.append(1 / ratio if unit in ("ms", "s") else ratio)
    medians[name] |= {"ratio": statistics.median(ratios), "blocks": [round(r, 3) for r in ratios]}
  return medians


def compare_steps(row: str, flags: argparse.Namespace) -> dict[str, dict[str, Any]]:
  """Measure a row of the kinds `train`, `encode` and `gpu`."""
  import jax

  from as2jax.config import jobs
  from launch.benchmarks import steps

  kind, _, unit = ROWS[row]
  half = kind == "gpu" or row.endswith("bfloat16")
  dtype = "bfloat16" if half else "float32"
  if kind == "gpu":
    work = steps.made(row)
  else:
    shape = "ettin-17m" if row.endswith("modernbert") else ""
    system = row.partition("-")[0]
    config = jobs.load(steps.JOBS[system])
    config.data.download = False  # absent data is a message, not a wait
    config.encoder.dtype = dtype
    work = steps.from_config(system, config, shape=shape)
  sides: dict[str, Any] = {"as2jax": steps.JaxSide(work)}
  if kind == "gpu" and not work.trained and jax.default_backend() == "gpu":
    sides["as2jax, cuDNN's attention"] = steps.JaxSide(steps.made(row, "cudnn"))
  if all(map(importlib.util.find_spec, ("torch", "transformers"))):
    from launch.benchmarks import torch_side

    sides["torch"] = torch_side.TorchSide(work, half)
    if work.system == "triplet" and all(map(importlib.util.find_spec, TRAINER)):
      sides["sentence-transformers' trainer"] = torch_side.TrainerSide(work, half)
  for side in sides.values():
    side.warm_up()
  peak = steps.matmul_peak(dtype)

  def block(side: Any, _: int) -> dict[str, float]:
    load, spent = side.block(flags.seconds)
    epoch = spent * side.whole.positions / load.positions  # a block is a part of an epoch
    return {"speed": side.whole.examples / epoch, "share_of_peak": load.flops / spent / peak}

  return measure(sides, block, flags.blocks, unit)


def record(row: str, sides: Mapping[str, Any], busy: bool) -> dict[str, Any]:
  """Return the record of a row on this machine."""
  installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
  git = lambda *words: subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()
  kept = [f":(exclude){path.relative_to(ROOT)}" for path in (FOLDER, README)]
  return {
    "processor": devices.processor(),
    "cores": devices.cores(),
    "versions": {p: importlib.metadata.version(p) for p in PACKAGES if p in installed},
    "commit": git("rev-parse", "--short", "HEAD"),
    "changed": bool(git("status", "--porcelain", "--", ".", *kept)),
    "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    "row": row,
    "sides": sides,
    "busy": busy,
  }


def add(content: Mapping[str, Any]) -> pathlib.Path:
  """Append a record to the file of its kind of machine."""
  kind = f"{content['processor']} {content['cores']}"
  file = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', kind.lower()).strip('-')}.jsonl"
  file.parent.mkdir(exist_ok=True)
  with file.open("a", encoding="utf-8") as lines:
    lines.write(json.dumps(content, ensure_ascii=False) + "\n")
  return file


def table() -> str:
  """Return the newest record of each row and machine that was idle and had no changes, in Markdown."""
  newest: dict[tuple[str, str], Mapping[str, Any]] = {}
  for file in sorted(FOLDER.glob("*.jsonl")):
    for line in file.read_text(encoding="utf-8").splitlines():
      content = json.loads(line)
      if not content["busy"] and not content["changed"]:
        newest[content["row"], f"{content['processor']}, {content['cores']} cores"] = content
  lines = [
    "| step | processor | ours | other side | ratio (each block) | share of the matrix peak | commit |",
    "| --- | --- | ---: | ---: | --- | ---: | --- |",
  ]
  for name, (_, what, unit) in ROWS.items():
    for (of, place), content in newest.items():
      if of != name:
        continue
      (_, first), *others = content["sides"].items()
      share = f"{first['share_of_peak']:.0%}" if "share_of_peak" in first else ""
      ours = f"{first['speed']:,.4g} {unit}"
      if "map_change" in first:
        ours += f", ΔMAP {first['map_change']:+.4f}"
      for phase in PHASES:
        if phase in first:
          ours += f", {phase} {first[phase]:.1f}"
      known = f"{share} | {content['commit']}, {content['date']}"
      if not others:
        lines.append(f"| {what} | {place} | {ours} |  |  | {known} |")
      for side, other in others:
        blocks = ", ".join(f"{one:.2f}" for one in other["blocks"])
        theirs = f"{other['speed']:,.4g} ({side}) | {other['ratio']:.2f} ({blocks})"
        lines.append(f"| {what} | {place} | {ours} | {theirs} | {known} |")
  return "\n".join(lines)


def write() -> None:
  """Put the table between its marks in launch/README.md."""
  before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
  after = rest.partition(END)[2]
  README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


def used() -> tuple[float, float, float]:
  """Return seconds until now: of all cores that were not idle, of this process's, and of a clock."""
  ticks = [0] * 8
  with contextlib.suppress(OSError):  # Linux alone has the file
    ticks = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
  busy = sum(ticks) - ticks[3] - ticks[4]  # all but idle and waiting for disks
  own = sum(os.times()[:4])  # processes that it started and that have ended are its own
  return busy / os.sysconf("SC_CLK_TCK"), own, time.monotonic()


def others_share(before: tuple[float, ...], after: tuple[float, ...]) -> float:
  """Return the share of all cores that other processes took between two values of `used`."""
  busy, own, clock = (late - early for early, late in zip(before, after, strict=True))
  return (busy - own) / (max(clock, 1e-9) * (os.cpu_count() or 1))


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
  """Read the flags."""
  parser = argparse.ArgumentParser(
    prog="python -m launch.benchmarks",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add("kind", choices=KINDS)
  add("rows", nargs="*", metavar="ROW", help=f"of the kind, all by default: {', '.join(ROWS)}")
  add("--blocks", type=int, default=3, help="of each side")
  add("--seconds", type=float, default=20.0, help="of a block of steps")
  add("--record", action="store_true", help="keep the records, and make the table anew")
  add("--pairs", type=int, default=200_000, help="of start: rows of the file")
  flags = parser.parse_args(argv)
  known = [name for name, (kind, *_) in ROWS.items() if kind == flags.kind]
  for name in flags.rows:
    if name not in known:
      parser.error(f"{name}: the rows of {flags.kind} are {', '.join(known)}")
  flags.rows = flags.rows or known
  return flags


def main(argv: Sequence[str] | None = None) -> int:
  """Measure, print and keep the rows of a kind."""
  flags = parse(argv)
  os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch wants memory, too
  if flags.kind in ("train", "encode"):
    devices.use_cores()  # as a training does, before a device is looked at
  try:
    for row in flags.rows:
      print(f"== {row} on {devices.processor()}", flush=True)
      before = used()
      if flags.kind in ("start", "ready"):
        from launch.benchmarks import ready

        if row == "start":
          sides = {"as2jax": ready.start(flags.pairs)}
        else:
          sides = ready.run(row, flags.blocks, measure, ROWS[row][2])
      elif row == "breakdown":
        from launch.benchmarks import breakdown

        sides = {"as2jax": breakdown.run(min(flags.seconds, 1.0))}
      elif flags.kind in ("rank", "score", "serve"):
        from launch.benchmarks import ranking

        sides = ranking.run(row, flags, measure, ROWS[row][2])
      else:
        sides = compare_steps(row, flags)
      busy = others_share(before, used()) > OTHERS
      warning = "\nBUSY: take no ratio from this run" if busy else ""
      print(json.dumps(sides, indent=2) + warning, flush=True)
      if flags.record:
        print(f"kept in {add(record(row, sides, busy))}")
        write()
  except InputError as error:
    print(f"benchmarks: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
