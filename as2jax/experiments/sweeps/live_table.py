"""A table of a sweep's runs on a terminal, kept up to date while they run."""

import pathlib
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from as2jax.experiments.sweeps.local_executor import FAILED, FINISHED, RUNNING, WAITING, Status

ROWS = 20  # at most; what is under way and what failed comes first
TAIL = 2000  # bytes of a log in which its last line is looked for
COLOURS = {RUNNING: "cyan", FAILED: "red", FINISHED: "green", WAITING: "dim"}


class LiveTable:
  """Context in which `say` prints above the table and `watch` draws it anew.

  Args:
    output: folder of the runs, whose logs tell how far they are.

  """

  def __init__(self, output: pathlib.Path, console: Console | None = None):
    self._output = output
    self._live = Live(console=console, refresh_per_second=4, transient=True)

  def __enter__(self) -> "LiveTable":
    self._live.start()
    return self

  def __exit__(self, *_) -> None:
    self._live.stop()

  def say(self, line: str) -> None:
    """Prints a line that stays."""
    self._live.console.print(Text(line))

  def watch(self, statuses: Sequence[Status]) -> None:
    """Shows where the runs are."""
    self._live.update(table(statuses, self._output))


def table(statuses: Sequence[Status], output: pathlib.Path) -> Table:
  """Counts, then a row a run: what it is, its state, its time, the last line of its log."""
  counts = {state: sum(s.state == state for s in statuses) for state in COLOURS}
  made = Table(title=", ".join(f"{n} {state}" for state, n in counts.items()), expand=True)
  for heading, options in (
    ("run", {}),
    ("", {"ratio": 2}),
    ("state", {}),
    ("time", {}),
    ("last line of its log", {"ratio": 3}),
  ):
    made.add_column(heading, overflow="ellipsis", no_wrap=True, **options)
  order = list(COLOURS)
  for status in sorted(statuses, key=lambda s: order.index(s.state))[:ROWS]:
    last = last_line(output / status.id / "log.txt") if status.state in (RUNNING, FAILED) else ""
    made.add_row(
      status.id,
      Text(status.title),
      Text(status.state, COLOURS[status.state]),
      _clock(status.seconds),
      Text(last),
    )
  if len(statuses) > ROWS:
    made.caption = f"and {len(statuses) - ROWS} more"
  return made


def last_line(path: pathlib.Path) -> str:
  """The last line of a log that is being written, "" where there is none yet."""
  try:
    with open(path, "rb") as file:
      file.seek(0, 2)
      file.seek(max(file.tell() - TAIL, 0))
      lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
  except FileNotFoundError:
    return ""
  return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _clock(seconds: float) -> str:
  return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds else ""
