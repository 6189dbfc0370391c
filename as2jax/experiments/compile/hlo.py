"""HLO text of a compiled program as data: computations, instructions, shapes, loops' turns.

Only what `as2jax/experiments/compile/hlo_program.py` asks for is read. A loop's number of turns can be told wherever a
counter runs by a constant step from a constant to a constant, as in every `scan` of jax; the end of
a data-dependent `while_loop` has no such counter.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

_SIZES = {"pred": 1.0, "token": 0.0, "opaque": 0.0}  # of others the name says the bits
_SHAPE = re.compile(r"\b(pred|token|opaque|[a-z]+(\d+)\w*)\[([\d,<=]*)\](\{[^{}]*\})?")
_NAMED = re.compile(r"\s*(ROOT )?%?([\w.\-]+) = ")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")
_CALLED = re.compile(
  r"\b(calls|to_apply|body|condition|true_computation|false_computation"
  r"|called_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"(?:branch_computations|called_computations)=\{([^}]*)\}")
# What gives its operand on unchanged, as far as the value of a counter goes.
_SAME = ("copy", "bitcast", "convert", "copy-start", "copy-done", "reshape", "opt-barrier")


@dataclasses.dataclass(frozen=True)
class Shape:
  """One array: its bytes, and whether it lies in the HBM rather than in a core's own memory."""

  bytes: float
  hbm: bool


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line: `name = shapes opcode(inside), attributes`, with the names among `inside`."""

  name: str
  opcode: str
  shapes: tuple[Shape, ...]
  operands: tuple[str, ...]
  inside: str
  attributes: str

  @property
  def index(self) -> int | None:
    """The number of a parameter, or the place that `get-tuple-element` takes."""
    if self.opcode == "parameter":
      return int(self.inside)
    found = re.search(r"\bindex=(\d+)", self.attributes)
    return int(found[1]) if found else None

  @property
  def called(self) -> dict[str, str]:
    """The computations that it calls, by role (`body`, `calls` …)."""
    named = dict(_CALLED.findall(self.attributes))
    for several in _BRANCHES.findall(self.attributes):
      named |= {
        f"branch {i}": name.strip().removeprefix("%") for i, name in enumerate(several.split(","))
      }
    return named


@dataclasses.dataclass(frozen=True)
class Computation:
  """Instructions by name; `root` names the one that gives the result."""

  instructions: Mapping[str, Instruction]
  root: str


@dataclasses.dataclass(frozen=True)
class Frame:
  """A computation as it is called: what its parameters are, where the caller tells.

  Attributes:
    outer, given: the caller, and the names there of what it passes; None: a loop's own tuple.

  """

  computation: Computation
  outer: "Frame | None" = None
  given: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Value:
  """Where a value comes from: an instruction that is no copy, call, fusion or tuple's part."""

  frame: Frame
  instruction: Instruction

  @property
  def number(self) -> int | None:
    """The whole number that it always is, None where it is none."""
    found = re.fullmatch(r"-?\d+", self.instruction.inside.strip())
    return int(found[0]) if found and self.instruction.opcode == "constant" else None

  @property
  def place(self) -> int | None:
    """The place in the tuple that a loop carries, None where it is none of that."""
    return self.instruction.index if self.instruction.opcode == "get-tuple-element" else None


def parse(text: str) -> tuple[dict[str, Computation], str]:
  """The computations of `compiled.as_text()` by name, and the entry's name."""
  computations, entry, name = {}, "", ""
  instructions, root = {}, ""
  for line in text.splitlines():
    if line and not line[0].isspace() and (header := _HEADER.match(line)):
      name, instructions, root = header[2], {}, ""
      entry = name if header[1] else entry
    elif line.startswith("}") and name:
      computations[name] = Computation(instructions, root or next(reversed(instructions)))
      name = ""
    elif name and (start := _NAMED.match(line)):
      instructions[start[2]] = _instruction(start[2], line[start.end() :])
      root = start[2] if start[1] else root
  if not entry:
    raise ValueError("no HLO module: there is no ENTRY computation")
  return computations, entry


def _instruction(name: str, rest: str) -> Instruction:
  at = _closing(rest, " ")
  opcode, _, rest_ = rest[at + 1 :].partition("(")
  end = _closing(rest_, ")")
  inside = rest_[:end]
  return Instruction(
    name,
    opcode.strip(),
    _shapes(rest[:at]),
    tuple(re.findall(r"%([\w.\-]+)", inside)),
    inside,
    rest_[end + 1 :],
  )


def _closing(text: str, end: str) -> int:
  """Where `end` first stands outside of all brackets that open in `text`."""
  depth = 0
  for i, letter in enumerate(text):
    if letter == end and depth == 0:
      return i
    depth += (letter in "([{") - (letter in ")]}")
  return len(text)


def _shapes(text: str) -> tuple[Shape, ...]:
  found = []
  for kind, bits, sizes, layout in _SHAPE.findall(text):
    count = math.prod(int(re.sub(r"\D", "", n)) for n in sizes.split(",") if n)
    size = _SIZES[kind] if kind in _SIZES else int(bits) / 8
    space = re.search(r"S\((\d+)\)", layout)
    found.append(Shape(count * size, space is None or space[1] == "0"))
  return tuple(found)


def origin(computations: Mapping[str, Computation], frame: Frame, name: str) -> Value:
  """Follows a value back through copies, calls, fusions and tuples."""
  while True:
    made = frame.computation.instructions[name]
    if made.opcode in _SAME:
      name = made.operands[0]
    elif made.opcode == "parameter" and frame.outer is not None:
      frame, name = frame.outer, frame.given[made.index]
    elif made.opcode in ("fusion", "call"):
      inner = computations[made.called.get("calls") or made.called["to_apply"]]
      frame, name = Frame(inner, frame, made.operands), inner.root
    elif made.opcode == "get-tuple-element":
      source = origin(computations, frame, made.operands[0])
      if source.instruction.opcode != "tuple":
        whole = source.instruction.opcode == "parameter"  # else a part of a part
        return Value(source.frame, made if whole else source.instruction)
      frame, name = source.frame, source.instruction.operands[made.index]
    else:
      return Value(frame, made)


def turns(computations: Mapping[str, Computation], frame: Frame, loop: Instruction) -> int | None:
  """How often the `while` instruction `loop` turns, None where data decide about it."""
  if found := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
    return int(found[1])
  condition, body = (Frame(computations[loop.called[role]]) for role in ("condition", "body"))
  find = lambda frame, name: origin(computations, frame, name)

  def at_start(place: int) -> int | None:
    first = find(frame, loop.operands[0])
    if first.instruction.opcode != "tuple":
      return None
    return find(first.frame, first.instruction.operands[place]).number

  def after(place: int) -> Value | None:
    """What a turn makes of one part of the tuple."""
    last = find(body, body.computation.root)
    if last.instruction.opcode != "tuple":
      return None
    return find(last.frame, last.instruction.operands[place])

  def fixed(value: Value) -> int | None:
    """The number that a side of the comparison is; it may be carried along unchanged."""
    if value.place is None:
      return value.number
    kept = after(value.place)
    return at_start(value.place) if kept and kept.place == value.place else None

  compared = find(condition, condition.computation.root)
  direction = re.search(r"direction=(L|G)(T|E)", compared.instruction.attributes)
  if compared.instruction.opcode != "compare" or not direction:
    return None
  left, right = (find(compared.frame, side) for side in compared.instruction.operands)
  end, moved = fixed(right), None if left.place is None else after(left.place)
  if end is None or moved is None or moved.instruction.opcode not in ("add", "subtract"):
    return None
  before, by = (find(moved.frame, operand) for operand in moved.instruction.operands)
  start, step = at_start(left.place), fixed(by)
  if before.place != left.place or start is None or not step:
    return None
  step = -step if moved.instruction.opcode == "subtract" else step
  if (step > 0) != (direction[1] == "L"):
    return None
  more = {"LE": 1, "GE": -1}.get("".join(direction.groups()), 0)
  return max(math.ceil((end - start + more) / step), 0)
