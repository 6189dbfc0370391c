"""Totals of one kind of fault, and the cases that should not have been."""

import collections
import dataclasses


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

  def add(self, outcome: str, *, wrong: str = "") -> None:
    """Counts one case."""
    self.outcomes[outcome] += 1
    if wrong:
      self.wrong.append(f"{self.name}: {wrong}")

  def __str__(self) -> str:
    parts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items()))
    return f"{self.name}: {self.outcomes.total()} cases: {parts}; {len(self.wrong)} wrong"
