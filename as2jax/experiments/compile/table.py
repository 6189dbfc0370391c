"""What a training step takes of a chip as a slice grows, as Markdown (`as2jax lab compile-table`).

The work of a chip is fixed: a slice of n chips takes batches n times as large. Memory should stay
what it is, and the chips should exchange what data parallelism needs: the gradient, once, and a few
scalars. Rows that are measured are kept in a file, so that the same command goes on after a kill.
"""

import argparse
import json
import pathlib
from typing import Any

from as2jax.config import flags
from as2jax.experiments.compile import aot, chips
from as2jax.experiments.compile.chips import GIB
from as2jax.experiments.compile.program import Collective

TOPOLOGIES = ("v5e:1x1", "v5e:2x2", "v5e:4x4", "v5e:8x8", "v5e:16x16")
ROWS = {
  "triplet, RoBERTa-base": ("configs/wikiqa_triplet.py:roberta", {}),
  "triplet, RoBERTa-large": ("configs/wikiqa_triplet.py:roberta,large", {}),
  "CASSIE, RoBERTa-base": ("configs/wikiqa_cassie.py", {}),
}
SMALL = 2**16  # bytes: what is less is a scalar, or a few
# The layers as a loop: compiles several times as fast, and needs the same memory of a chip. XLA counts
# the bytes of a loop's body once; `--set encoder.unroll=0` counts every layer's.
LOOP = {"encoder.unroll": 1}


def cell(name: str, topology: str, overrides: dict[str, Any]) -> dict[str, Any]:
  """The measured figures of one row of the table, JSON-able.

  Raises:
    InputError: see `aot.measure`.

  """
  path, own = ROWS[name]
  config = flags.load(path)
  with config.unlocked():
    config.update_from_flattened_dict({**LOOP, **own, **overrides})
  chip, _, steps = aot.measure(config, topology, ("train", "predict"))
  found = {"name": name, "topology": topology, "overrides": overrides}
  for step in steps:
    found[step.name] = {"bytes": step.needs, "fits": aot.fits(chip, step)}
    if step.program is None:
      continue
    large, small = split(step.program.collectives)
    found[step.name] |= {
      "flops": step.flops,
      "large": large,
      "small": small,
      "seconds": step.seconds(chip),
    }
  return found


def split(collectives: list[Collective]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
  """Calls and bytes a step by kind: of arrays, and of what is no larger than a few scalars."""
  parts: tuple[dict, dict] = {}, {}
  for one in collectives:
    calls, size = parts[one.bytes <= SMALL].get(one.kind, (0, 0.0))
    parts[one.bytes <= SMALL][one.kind] = [calls + one.times, size + one.times * one.bytes]
  return parts


def line(found: dict[str, Any]) -> str:
  """A row of the table."""
  train, predict = found["train"], found["predict"]
  cells = [
    found["name"],
    str(chips.count(found["topology"])),
    f"{train['bytes'] / GIB:.2f}",
    f"{predict['bytes'] / GIB:.2f}",
  ]
  if "flops" not in train:
    return f"| {' | '.join([*cells, '', 'does not fit', ''])} |"
  arrays = ", ".join(
    f"{calls} × {kind}: {size / 2**20:,.0f} MiB" for kind, (calls, size) in train["large"].items()
  )
  rest = sum(calls for calls, _ in train["small"].values())
  size = sum(size for _, size in train["small"].values())
  between = f"{arrays or 'none'}" + (f"; {rest} small: {size / 1024:.1f} KiB" if rest else "")
  seconds = train["seconds"]
  parts = " / ".join(f"{1000 * seconds[part]:.1f}" for part in ("arithmetic", "memory", "links"))
  cells += [f"{train['flops'] / 1e12:.2f}", between, parts]
  return f"| {' | '.join(cells)} |"


HEADER = (
  "| training step | chips | GiB a chip | GiB, prediction | TFLOP a chip "
  "| collectives of a step | ms: arithmetic / HBM, a loop once / links |\n" + "| --- " * 7 + "|"
)


def main(argv: list[str]) -> int:
  """Prints the table, row by row as they are measured; returns the exit status."""
  parser = argparse.ArgumentParser(
    prog="as2jax lab compile-table",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--keep", type=pathlib.Path, help="JSON-lines of the rows that are measured")
  parser.add_argument(
    "--rows",
    default=",".join(map(str, range(len(ROWS)))),
    help=f"numbers of rows: {', '.join(f'{i} {n}' for i, n in enumerate(ROWS))}",
  )
  parser.add_argument("--topologies", default=",".join(TOPOLOGIES))
  parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="KEY=JSON",
    help="an override for all rows, such as encoder.dtype='\"bfloat16\"'",
  )
  options = parser.parse_args(argv)
  overrides = {key: json.loads(value) for key, value in (o.split("=", 1) for o in options.set)}
  known = []
  if options.keep and options.keep.exists():
    known = [json.loads(text) for text in options.keep.read_text().splitlines()]
  print(HEADER, flush=True)
  fine = True
  for name in (list(ROWS)[int(i)] for i in options.rows.split(",")):
    for topology in options.topologies.split(","):
      wanted = {"name": name, "topology": topology, "overrides": overrides}
      found = next((k for k in known if wanted.items() <= k.items()), None)
      if found is None:
        found = cell(name, topology, overrides)
        if options.keep:
          with options.keep.open("a") as file:
            file.write(json.dumps(found) + "\n")
      print(line(found), flush=True)
      fine &= all(found[step]["fits"] for step in ("train", "predict"))
  return int(not fine)
