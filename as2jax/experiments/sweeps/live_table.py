"""A table of a sweep's runs for `rich.live.Live` to draw while they run."""

import pathlib
import time
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from as2jax.experiments.sweeps.local_executor import (
  FAILED,
  FINISHED,
  RUNNING,
  WAITING,
  Status,
  last_line,
)

ROWS = 20  # at most; what is under way and what failed comes first
COLOURS = {RUNNING: "cyan", FAILED: "red", FINISHED: "green", WAITING: "dim"}


def table(statuses: Sequence[Status], output: pathlib.Path) -> Table:
  """Counts, then a row a run: what it is, its state, its time, the last line of its log."""
  counts = {state: sum(s.state == state for s in statuses) for state in COLOURS}
  made = Table(title=", ".join(f"{n} {state}" for state, n in counts.items()), expand=True)
  for heading, ratio in (("run", 0), ("", 2), ("state", 0), ("time", 0), ("last line of log", 3)):
    made.add_column(heading, overflow="ellipsis", no_wrap=True, ratio=ratio or None)
  order = list(COLOURS)
  for status in sorted(statuses, key=lambda s: order.index(s.state))[:ROWS]:
    last = last_line(output / status.id / "log.txt") if status.state in (RUNNING, FAILED) else ""
    clock = time.strftime("%H:%M:%S", time.gmtime(status.seconds)) if status.seconds else ""
    state = Text(status.state, COLOURS[status.state])
    made.add_row(status.id, Text(status.title), state, clock, Text(last))
  if len(statuses) > ROWS:
    made.caption = f"and {len(statuses) - ROWS} more"
  return made
