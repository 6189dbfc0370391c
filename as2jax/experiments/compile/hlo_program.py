"""What a compiled program does, from its HLO text: collectives, loops, calls to the host, traffic.

XLA's own cost analysis counts the body of a loop once. Here everything counts as often as the loops
around it turn.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator

from as2jax.experiments.compile import hlo

COLLECTIVES = (
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
  "collective-broadcast",
  "ragged-all-to-all",
)
_CONTROL = ("while", "conditional", "call")  # what they call runs as if written in their place
_FREE = (
  *_CONTROL,
  "parameter",
  "constant",
  "get-tuple-element",
  "tuple",
  "bitcast",
  "after-all",
  "partition-id",
  "replica-id",
  "opt-barrier",
  "iota",
)
_SLICES = ("dynamic-slice", "slice", "gather")


@dataclasses.dataclass(frozen=True)
class Collective:
  """Calls of one collective: bytes of the array on one chip, chips a group, calls a step."""

  kind: str
  bytes: float
  group: int
  times: int

  @property
  def traffic(self) -> float:
    """Bytes that a chip sends in a step where the chips of a group form a ring."""
    passes = 2 if self.kind == "all-reduce" else 1
    share = 1.0 if self.kind == "collective-permute" else (self.group - 1) / self.group
    return passes * share * self.bytes * self.times


class Program:
  """A compiled program.

  Args:
    text: `compiled.as_text()`.
    chips: how many it runs on: the group of a collective that names none.

  Attributes:
    loops: how often each loop turns, by name, None where data decide about it.
    collectives: those of a step.
    host_calls: what makes the host take part: callbacks, feeds, transfers.
    hbm_bytes: bytes that a step reads from and writes to the HBM. Of an operand of which a fusion
      takes a slice, and of one into which it writes a part, that part counts.

  """

  def __init__(self, text: str, chips: int = 1):
    self._computations, entry = hlo.parse(text)
    self.loops: dict[str, int | None] = {}
    self.collectives: list[Collective] = []
    self.host_calls: list[str] = []
    self.hbm_bytes = 0.0
    for times, fused, computation, instruction in self._walk(
      hlo.Frame(self._computations[entry]), 1, False
    ):
      if not fused:
        self.hbm_bytes += times * self._moved(computation, instruction)
      kind = instruction.opcode.removesuffix("-start")
      if kind in COLLECTIVES:
        size = max(_bytes(computation, instruction), *(s.bytes for s in instruction.shapes))
        group = _group(instruction.attributes, chips)
        self.collectives.append(Collective(kind, size, group, times))
      if call := _host_call(instruction):
        self.host_calls.append(call)

  def _walk(
    self, frame: hlo.Frame, times: int, fused: bool
  ) -> Iterator[tuple[int, bool, hlo.Computation, hlo.Instruction]]:
    """Every instruction with how often it runs, and whether it is part of a fusion."""
    for instruction in frame.computation.instructions.values():
      yield times, fused, frame.computation, instruction
      inner, loop = times, instruction.opcode == "while"
      if loop:
        turns = hlo.turns(self._computations, frame, instruction)
        self.loops[instruction.name] = turns
        inner *= 1 if turns is None else turns
      for callee in instruction.called.values():
        if callee in self._computations:
          made = self._computations[callee]
          called = hlo.Frame(made) if loop else hlo.Frame(made, frame, instruction.operands)
          yield from self._walk(called, inner, fused or instruction.opcode not in _CONTROL)

  def _moved(self, computation: hlo.Computation, instruction: hlo.Instruction) -> float:
    """Bytes between the HBM and the core."""
    opcode, known = instruction.opcode, computation.instructions
    if opcode in _FREE or opcode.endswith("-done"):
      return 0.0
    shapes = instruction.shapes[:1] if opcode.endswith("-start") else instruction.shapes
    read = [_hbm(known[operand].shapes) for operand in instruction.operands]
    written = _hbm(shapes)
    if opcode in _SLICES:
      return min(read[0], _total(shapes)) + written
    if opcode == "dynamic-update-slice":
      return 2 * _total(known[instruction.operands[1]].shapes) * (written > 0)
    if opcode == "fusion":
      inner = self._computations[instruction.called["calls"]]
      read = [
        size and min(size, _part_read(self._computations, inner, i)) for i, size in enumerate(read)
      ]
      written = min(written, _part_written(self._computations, inner))
    return sum(read) + written


def summary(collectives: list[Collective]) -> dict[str, tuple[int, float]]:
  """Calls and bytes a step, by kind."""
  calls, size = collections.Counter(), collections.Counter()
  for one in collectives:
    calls[one.kind] += one.times
    size[one.kind] += one.times * one.bytes
  return {kind: (calls[kind], size[kind]) for kind in calls}


def _total(shapes) -> float:
  return sum(shape.bytes for shape in shapes)


def _hbm(shapes) -> float:
  return sum(shape.bytes for shape in shapes if shape.hbm)


def _bytes(computation: hlo.Computation, instruction: hlo.Instruction) -> float:
  """Of all operands together."""
  known = computation.instructions
  return sum(_total(known[operand].shapes) for operand in instruction.operands)


def _part_read(computations, fused: hlo.Computation, number: int) -> float:
  """Bytes of a fusion's operand that it reads: slices of it, where it takes nothing else."""
  name = next(
    (i.name for i in fused.instructions.values() if i.opcode == "parameter" and i.index == number),
    None,
  )
  return 0.0 if name is None else _read(computations, fused, name)


def _read(computations, fused: hlo.Computation, name: str) -> float:
  total = 0.0
  for use in fused.instructions.values():
    for place, operand in enumerate(use.operands):
      if operand != name:
        continue
      if use.opcode in _SLICES and place == 0:
        total += _total(use.shapes)
      elif use.opcode == "bitcast":
        total += _read(computations, fused, use.name)
      elif use.opcode == "fusion":
        total += _part_read(computations, computations[use.called["calls"]], place)
      elif use.opcode != "dynamic-update-slice" or place:
        return math.inf
  return total


def _part_written(computations, fused: hlo.Computation) -> float:
  """Bytes that a fusion writes: where its results are operands with a part replaced, that part."""
  frame = hlo.Frame(fused)
  root = hlo.origin(computations, frame, fused.root)
  made = [root]
  if root.instruction.opcode == "tuple":
    made = [hlo.origin(computations, root.frame, o) for o in root.instruction.operands]
  total = 0.0
  for one in made:
    shapes = one.instruction.shapes
    if one.instruction.opcode == "dynamic-update-slice":
      shapes = one.frame.computation.instructions[one.instruction.operands[1]].shapes
    total += _total(shapes)
  return total


def _host_call(instruction: hlo.Instruction) -> str | None:
  target = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
  if target and re.search("callback|host", target[1], re.IGNORECASE):
    return target[1]
  if instruction.opcode in ("infeed", "outfeed"):
    return instruction.opcode
  transfer = "is_host_transfer=true" in instruction.attributes
  return instruction.opcode if transfer and instruction.opcode in ("send", "recv") else None


def _group(attributes: str, chips: int) -> int:
  """Chips that exchange with one another, from the three ways in which XLA writes groups."""
  if found := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
    return len(found[1].split(","))
  if found := re.search(r"replica_groups=\[\d+,(\d+)\]", attributes):
    return int(found[1])
  if found := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", attributes):
    sizes = dict(re.findall(r"'([^']+)'=(\d+)", found[1]))
    return math.prod(int(sizes[axis]) for axis in re.findall(r"'([^']+)'", found[2]))
  return chips
