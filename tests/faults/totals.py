"""Totals of one kind of fault, and the cases that should not have been."""

import collections
import dataclasses
import sys
import time

EVERY = 10.0  # seconds between two lines of progress, on standard error


@dataclasses.dataclass
class Totals:
  """Outcomes of the cases of one kind.

  Attributes:
    name: of the kind.
    outcomes: what was said or done -> number of cases.
    wrong: one line for each case that was silent, raw, hung or not the same to the bit.

  """

  name: str
  outcomes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
  wrong: list[str] = dataclasses.field(default_factory=list)
  _said: float = dataclasses.field(default_factory=time.monotonic)

  def add(self, outcome: str, *, wrong: str = "") -> None:
    """Counts one case."""
    self.outcomes[outcome] += 1
    if wrong:
      self.wrong.append(f"{self.name}: {wrong}")
      self._say(self.wrong[-1])
    elif time.monotonic() - self._said > EVERY:
      self._say(str(self))

  def _say(self, text: str) -> None:
    self._said = time.monotonic()
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)

  def __str__(self) -> str:
    parts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items()))
    return f"{self.name}: {self.outcomes.total()} cases: {parts}; {len(self.wrong)} wrong"
