"""The parity table: every encoder, from every format of its weights, against its reference.

  AS2JAX_DATA=/data python -m launch.parity

The reference is the original library, live, where it is installed; elsewhere what it gave when
`--record` last ran (launch/parity.npz). Status 1 where a float32 row differs by more than its bound.
"""

import argparse
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np

RECORDED = pathlib.Path(__file__).with_name("parity.npz")
BOUND = 1e-5


class Absent(Exception):
  """What a row needs is not here; the message says what."""


@dataclasses.dataclass(frozen=True)
class Case:
  """One row.

  Attributes:
    encoder, source: the first two columns; `key`, the name of what is recorded.
    found: computes ours; reference: computes the library's (Absent where it is not installed).
    bound: of the largest absolute difference.
    recorded: whether the reference may come from the recording; otherwise it is in the data.

  """

  encoder: str
  source: str
  against: str
  found: Callable[[], np.ndarray]
  reference: Callable[[], np.ndarray]
  key: str = ""
  bound: float = BOUND


@dataclasses.dataclass(frozen=True)
class Row:
  """What a case came to; `difference` None where it could not run."""

  case: Case
  against: str
  difference: float | None

  @property
  def holds(self) -> bool:
    return self.difference is None or self.difference <= self.case.bound


def rows(cases: Sequence[Case]) -> Iterator[Row]:
  """Runs the cases, one after another."""
  recorded = dict(np.load(RECORDED)) if RECORDED.exists() else {}
  for case in cases:
    against = case.against
    try:
      expected = case.reference()
    except Absent as reason:
      expected = recorded.get(case.key)
      against += f", recorded ({reason})"
      if expected is None:
        yield Row(case, str(reason), None)
        continue
    try:
      found = case.found()
    except Absent as reason:
      yield Row(case, str(reason), None)
      continue
    if found.shape != expected.shape:
      raise ValueError(f"{case}: shapes {found.shape} and {expected.shape}")
    if not np.isfinite(found).all() or np.ptp(expected) < 1e-3:
      raise ValueError(f"{case}: not finite, or a reference that is constant")
    yield Row(case, against, float(np.abs(found - expected).max()))


def table(done: Sequence[Row]) -> str:
  """The rows as text for a terminal."""
  lines = [("encoder", "source format", "max |difference|", "bound", "", "against")]
  for row in done:
    shown = "–" if row.difference is None else f"{row.difference:.1e}"
    verdict = "not run" if row.difference is None else "ok" if row.holds else "DIFFERS"
    lines.append(
      (row.case.encoder, row.case.source, shown, f"{row.case.bound:.0e}", verdict, row.against)
    )
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return "\n".join(
    "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
  )


def record(cases: Sequence[Case]) -> None:
  """Writes the recording anew from the live references, in float32."""
  kept = {case.key: case.reference().astype(np.float32) for case in cases if case.key}
  np.savez_compressed(RECORDED, **kept)


def main(arguments: Sequence[str] | None = None) -> int:
  """Prints the table; the exit status is 1 where a row exceeds its bound."""
  parser = argparse.ArgumentParser(
    prog="python -m launch.parity",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--record", action="store_true", help="write launch/parity.npz anew first")
  flags = parser.parse_args(arguments)
  import jax

  jax.config.update("jax_default_matmul_precision", "highest")
  from launch import parity_cases

  with tempfile.TemporaryDirectory() as folder:
    cases = parity_cases.cases(pathlib.Path(folder))
    if flags.record:
      record(cases)
    done = list(rows(cases))
  print(table(done))
  return 0 if all(row.holds for row in done) else 1


if __name__ == "__main__":
  sys.exit(main())
