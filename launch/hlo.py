"""HLO text of a compiled program as data: computations, instructions, shapes, loops' turns.

Only what `launch/hlo_program.py` asks for is read. A loop's number of turns can be told wherever a
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
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation"
                     r"|called_computation)=%?([\w.\-]+)")
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
      named |= {f"branch {i}": name.strip().removeprefix("%")
                for i, name in enumerate(several.split(","))}
    return named


@dataclasses.dataclass(frozen=True)
class Computation:
  """Instructions by name; `root` names the one that gives the result."""

  instructions: Mapping[str, Instruction]
  root: str

  def origin(self, name: str) -> Instruction:
    """What a value is a copy of."""
    found = self.instructions[name]
    while found.opcode in _SAME:
      found = self.instructions[found.operands[0]]
    return found

  def constant(self, name: str) -> int | None:
    """The whole number that a value is, None where it is none."""
    found = self.origin(name)
    number = re.fullmatch(r"-?\d+", found.inside.strip())
    return int(number[0]) if found.opcode == "constant" and number else None

  def carried(self, name: str) -> int | None:
    """The place in the computation's one parameter, a tuple, that a value is."""
    found = self.origin(name)
    if found.opcode != "get-tuple-element":
      return None
    return found.index if self.origin(found.operands[0]).opcode == "parameter" else None

  def item(self, name: str, place: int) -> str | None:
    """The name of one part of a tuple."""
    found = self.origin(name)
    return found.operands[place] if found.opcode == "tuple" else None


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
      instructions[start[2]] = _instruction(start[2], line[start.end():])
      root = start[2] if start[1] else root
  if not entry:
    raise ValueError("no HLO module: there is no ENTRY computation")
  return computations, entry


def _instruction(name: str, rest: str) -> Instruction:
  at = _closing(rest, " ")
  opcode, _, rest_ = rest[at + 1:].partition("(")
  end = _closing(rest_, ")")
  inside = rest_[:end]
  return Instruction(name, opcode.strip(), _shapes(rest[:at]),
                     tuple(re.findall(r"%([\w.\-]+)", inside)), inside, rest_[end + 1:])


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


def turns(computations: Mapping[str, Computation], where: Computation,
          loop: Instruction) -> int | None:
  """How often the `while` instruction `loop` of `where` turns, None where data decide about it."""
  if found := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes):
    return int(found[1])
  condition, body = (computations[loop.called[role]] for role in ("condition", "body"))
  compared = _comparison(computations, condition)
  if compared is None:
    return None
  (left, right), direction = compared

  def at_start(place: int) -> int | None:
    name = where.item(loop.operands[0], place)
    return None if name is None else where.constant(name)

  def fixed(name: str) -> int | None:
    """The constant that a side of the comparison is; it may be carried along unchanged."""
    place = condition.carried(name)
    if place is None:
      return condition.constant(name)
    kept = body.item(body.root, place)
    return at_start(place) if kept is not None and body.carried(kept) == place else None

  counter, end = condition.carried(left), fixed(right)
  if counter is None or end is None or direction not in ("LT", "LE", "GT", "GE"):
    return None
  start, step = at_start(counter), _step(computations, body, counter)
  if start is None or not step or (step > 0) != direction.startswith("L"):
    return None
  span = end - start + {"LE": 1, "GE": -1}.get(direction, 0)
  return max(math.ceil(span / step), 0)


def _comparison(computations, condition: Computation):
  """The two sides, as names in `condition`, and the direction of what decides about a next turn."""
  root = condition.origin(condition.root)
  names: tuple = root.operands
  if root.opcode == "fusion":
    inner = computations[root.called["calls"]]
    root = inner.origin(inner.root)
    sides = [inner.origin(operand).index for operand in root.operands]
    if root.opcode != "compare" or None in sides:
      return None
    names = tuple(names[side] for side in sides)
  direction = re.search(r"direction=(\w+)", root.attributes)
  return (names, direction[1]) if root.opcode == "compare" and direction else None


def _step(computations, body: Computation, counter: int) -> int | None:
  """By how much a turn moves the counter, None where that is no constant."""
  name = body.item(body.root, counter)
  if name is None:
    return None
  made, inner, operand = body.origin(name), body, lambda n: body.carried(n)
  if made.opcode == "fusion" and "calls" in made.called:
    outer, inner = made, computations[made.called["calls"]]
    made = inner.origin(inner.root)

    def operand(n):
      given = inner.origin(n)
      return body.carried(outer.operands[given.index]) if given.opcode == "parameter" else None

  sign = {"add": 1, "subtract": -1}.get(made.opcode)
  if sign is None or operand(made.operands[0]) != counter:
    return None
  size = inner.constant(made.operands[1])
  return None if size is None else sign * size
