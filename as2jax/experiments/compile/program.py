"""What a compiled program does between chips and with the host, from its HLO text.

Memory and the HBM's traffic are XLA's own counts (`memory_analysis`, `cost_analysis`), of which the
second takes the body of a loop once. Here a collective counts as
often as the loops around it turn. A loop's turns are those that XLA states, or the constant that its
counter is compared with: every `scan` of jax counts from 0 by 1.
"""

import math
import re
from collections.abc import Iterator

COLLECTIVES = """all-reduce all-gather reduce-scatter all-to-all collective-permute
  collective-broadcast ragged-all-to-all""".split()
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|\w+_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch|called)_computations=\{([^}]*)\}")
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,<=]*)\]")
_COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(")
_LOOP = re.compile(r" while\(.*\bcondition=%?([\w.\-]+)")


class Program:
  """A compiled program (`compiled.as_text()`).

  Attributes:
    loops: how often each loop turns, in the order of the program; None where data decide.
    collectives: calls a step, and bytes of their results on one chip, by kind.
    host_calls: what makes the host take part: callbacks, feeds, transfers.

  """

  def __init__(self, text: str):
    self._computations, name, entry = {}, "", ""
    for line in text.splitlines():
      if header := _HEADER.match(line):
        name = header[2]
        entry = name if header[1] else entry
        self._computations[name] = []
      elif name:
        self._computations[name].append(line)
    if not entry:
      raise ValueError("no HLO module: there is no ENTRY computation")
    self.loops: list[int | None] = []
    self.collectives: dict[str, tuple[int, float]] = {}
    self.host_calls: list[str] = []
    for times, line in self._walk(entry, 1):
      if match := _COLLECTIVE.search(line):
        kind = match[2]
        calls, size = self.collectives.get(kind, (0, 0.0))
        size += times * _bytes(match[1], kind, bool(match[3]))
        self.collectives[kind] = calls + times, size
      self.host_calls += _host_calls(line)

  def _walk(self, name: str, times: int) -> Iterator[tuple[int, str]]:
    """Every line of a computation and of those that it calls, with how often it runs."""
    for line in self._computations[name]:
      yield times, line
      inner = times
      if loop := _LOOP.search(line):
        turns = self._turns(line, loop[1])
        self.loops.append(turns)
        inner *= 1 if turns is None else turns
      called = _CALLED.findall(line)
      for several in _BRANCHES.findall(line):
        called += [one.strip().removeprefix("%") for one in several.split(",")]
      for callee in called:
        if callee in self._computations:
          yield from self._walk(callee, inner)

  def _turns(self, line: str, condition: str) -> int | None:
    if stated := re.search(r'known_trip_count":\{"n":"(\d+)"', line):
      return int(stated[1])
    text = "\n".join(line for _, line in self._walk(condition, 1))
    ends = set(re.findall(r"\b[su]\d+\[\]\S* constant\((\d+)\)", text))
    counted = re.search(r"\bdirection=L[TE]|compare", text)
    return int(ends.pop()) if counted and len(ends) == 1 else None


def _bytes(shapes: str, kind: str, start: bool) -> float:
  """Bytes of a collective's result; one that only starts gives its operands and its results."""
  sizes = []
  for name, bits, axes in _SHAPE.findall(shapes):
    count = math.prod(int(re.sub(r"\D", "", n)) for n in axes.split(",") if n)
    sizes.append(count * (1.0 if name == "pred" else int(bits) / 8))
  if start and kind != "all-reduce":
    return sum(sizes[len(sizes) // 2 :]) if kind == "all-gather" else max(sizes)
  return sum(sizes)


def _host_calls(line: str) -> list[str]:
  target = re.search(r'custom_call_target="([^"]*(?:callback|host)[^"]*)"', line, re.IGNORECASE)
  feed = re.search(r" (infeed|outfeed)\(", line)
  transfer = re.search(r" (send|recv)\(.*is_host_transfer=true", line)
  return [match[1] for match in (target, feed, transfer) if match]
