"""Totals of one kind of fault, and the cases that should not have been."""

import collections
import dataclasses
import sys
import time


@dataclasses.dataclass
class Totals:
  """Outcomes of the cases of one kind.

  Attributes:
    name: of the kind.
    outcomes: what was said or done -> number of cases.
    wrong: one line for each case that was silent, raw, hung or not the same to the bit.
    told: when standard error was told last how far it is.

  """

  name: str
  outcomes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
  wrong: list[str] = dataclasses.field(default_factory=list)
  told: float = dataclasses.field(default_factory=time.monotonic)

  def add(self, outcome: str, *, wrong: str = "") -> None:
    """Counts one case; tells standard error what is wrong at once, and all 10 seconds how far it is."""
    self.outcomes[outcome] += 1
    if wrong:
      self.wrong.append(f"{self.name}: {wrong}")
      print(self.wrong[-1], file=sys.stderr)
    if time.monotonic() > self.told + 10:
      self.told = time.monotonic()
      print(self, file=sys.stderr, flush=True)

  def __str__(self) -> str:
    parts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items()))
    return f"{self.name}: {self.outcomes.total()} cases: {parts}; {len(self.wrong)} wrong"
