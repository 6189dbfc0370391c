"""What a training step takes of a chip as a slice grows, as Markdown (`as2jax lab compile-table`).

The work of a chip is fixed: a slice of n chips takes batches n times as large. Memory should stay
what it is, and the chips should exchange what data parallelism needs: the gradient, once, and a few
scalars. Figures are cached, so that the same command goes on after a kill.
"""

import argparse
import json
from typing import Any

from as2jax.config import flags
from as2jax.config.overrides import apply
from as2jax.experiments.compile import chips
from as2jax.experiments.compile.cached import LOOP, figures
from as2jax.experiments.compile.chips import GIB
from as2jax.runtime.errors import InputError

TOPOLOGIES = ("v5e:1x1", "v5e:2x2", "v5e:4x4", "v5e:8x8", "v5e:16x16")
ROWS = {
  "triplet, RoBERTa-base": ("configs/wikiqa_triplet.py:roberta", {}),
  "triplet, RoBERTa-large": ("configs/wikiqa_triplet.py:roberta,large", {}),
  "CASSIE, RoBERTa-base": ("configs/wikiqa_cassie.py", {}),
}


def cell(name: str, topology: str, overrides: dict[str, Any]) -> dict[str, Any]:
  """The measured figures of one row of the table, JSON-able.

  Raises:
    InputError: an override that the config does not take; see also `aot.measure`.

  """
  return {
    "name": name,
    "topology": topology,
    "overrides": overrides,
    **figures(_config(name, overrides), topology, exact=False),
  }


def _config(name: str, overrides: dict[str, Any]) -> Any:
  """The config of a row."""
  path, own = ROWS[name]
  return apply(flags.load(path), {**LOOP, **own, **overrides})


def line(row: dict[str, Any]) -> str:
  """A row of the table."""
  train, predict = row["train"], row["predict"]
  cells = [
    row["name"],
    str(chips.count(row["topology"])),
    f"{train['bytes'] / GIB:.2f}",
    f"{predict['bytes'] / GIB:.2f}",
  ]
  if "seconds" not in train:
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
  overrides, names = dict(map(_override, options.set)), list(map(_row, options.rows.split(",")))
  for name in names:
    _config(name, overrides)  # which refuses what it does not take
  print(HEADER, flush=True)
  fine = True
  for name in names:
    for topology in options.topologies.split(","):
      row = cell(name, topology, overrides)
      print(line(row), flush=True)
      fine &= all(row[step]["fits"] for step in ("train", "predict"))
  return int(not fine)


def _override(item: str) -> tuple[str, Any]:
  """KEY=JSON of --set; InputError where it is none."""
  key, equals, text = item.partition("=")
  if not key or not equals:
    raise InputError(f"--set {item}: give KEY=JSON, such as encoder.remat=true")
  try:
    return key, json.loads(text)
  except (ValueError, RecursionError) as error:
    raise InputError(
      f"--set {item}: {text!r:.60} is not JSON ({error}); texts have quotes, such as "
      "encoder.dtype='\"bfloat16\"'"
    ) from error


def _row(number: str) -> str:
  """The name of the row that an entry of --rows means; InputError where there is none."""
  if number.strip() not in map(str, range(len(ROWS))):
    known = ", ".join(f"{i} ({name})" for i, name in enumerate(ROWS))
    raise InputError(f"--rows: there is no row {number!r}; the rows are {known}")
  return list(ROWS)[int(number)]
