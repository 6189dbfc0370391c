"""Pickles as data: containers, text and numbers, and calls of a table of functions of our own.

Python's own unpickler can be told which globals to find, but not how much a damaged length, memo
index or hash may cost. Here the standard library only splits the bytes into operations; these are
carried out below, so that nothing else can run and memory stays proportional to the pickle.
"""

import pickletools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

PUSH = frozenset(
  "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
  "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8".split()
)
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MAX_BITS = 128  # of a number: more is damage, and slow to print


class PickleError(ValueError):
  """The pickle is damaged, or wants more than the caller's table gives."""


def load(
  stream: BinaryIO, known: Mapping[str, Any], persistent: Callable[[Any], Any] | None = None
) -> Any:
  """The object of the one pickle at the stream's position, which moves behind it.

  `known` maps a global ("torch.Size") to what stands for it here; the callables among these, and
  no others, can be called. `persistent` resolves persistent ids. State set on an object (BUILD) is
  dropped: only tensors count.

  Errors: `PickleError` for any other global (named), for an operation that plain data has no use
  for, and for damage of any kind.
  """
  machine = _Machine(known, persistent)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore", DeprecationWarning)  # of damaged escapes in old strings
      for operation, argument, _ in pickletools.genops(stream):
        if operation.name == "STOP":
          return machine.result()
        machine.run(operation.name, argument)
  except PickleError:
    raise
  # What the standard library and a broken stack raise; a message of theirs would not help a user.
  except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError):
    pass
  raise PickleError("its pickle is damaged; fetch or copy it again")


class _Machine:
  """The stack and the memo of a pickle under way."""

  def __init__(self, known, persistent):
    self.known, self.persistent = known, persistent
    self.stack: list[Any] = []
    self.marked: list[list[Any]] = []
    self.memo: dict[int, Any] = {}

  def result(self) -> Any:
    (value,) = self.stack
    return value

  def run(self, name: str, argument: Any) -> None:
    if name in PUSH:
      if isinstance(argument, int) and argument.bit_length() > MAX_BITS:
        raise PickleError(f"its pickle holds a number of {argument.bit_length()} bits")
      self.stack.append(argument)
    elif name in CONSTANTS:
      self.stack.append(CONSTANTS[name])
    elif name in TUPLES:
      size = TUPLES[name]
      if len(self.stack) < size:
        raise IndexError
      self.stack[-size:] = [tuple(self.stack[-size:])]
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
      self.memo[argument] = self.stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
      self.stack.append(self.memo[argument])
    elif name in ("GLOBAL", "INST"):
      self._find(*argument.split(" ", 1))
      if name == "INST":  # a class called in the manner of protocol 0, which torch never wrote
        raise TypeError
    else:
      carry_out = getattr(self, f"_{name.lower()}", None)
      if carry_out is None:
        raise PickleError(
          f"tensors only; its pickle uses {name}, for which a state dict has no use"
        )
      carry_out()

  def _find(self, module: str, name: str) -> None:
    full_name = f"{module}.{name}"
    if full_name not in self.known:
      raise PickleError(
        f"tensors only; this file wants to run {full_name[:200]}, and nothing in it was run. Save the "
        "state dict alone (torch.save(model.state_dict(), file)) or as safetensors, where you "
        "trust its source"
      )
    self.stack.append(self.known[full_name])

  def _since_mark(self) -> list[Any]:
    values, self.stack = self.stack, self.marked.pop()
    return values

  def _fill(self, entries: dict[Any, Any], keys: list[Any], values: list[Any]) -> None:
    if not isinstance(entries, dict):
      raise TypeError
    for key, value in zip(keys, values, strict=True):
      # A nest of tuples as a key would take exponential time to hash.
      if not isinstance(key, str | int):
        raise PickleError(f"tensors only; a key of type {type(key).__name__} is not read")
      entries[key] = value

  def _proto(self):
    pass

  def _frame(self):
    pass

  def _mark(self):
    self.marked.append(self.stack)
    self.stack = []

  def _pop(self):
    self.stack.pop()

  def _pop_mark(self):
    self._since_mark()

  def _dup(self):
    self.stack.append(self.stack[-1])

  def _memoize(self):
    self.memo[len(self.memo)] = self.stack[-1]

  def _empty_dict(self):
    self.stack.append({})

  def _empty_list(self):
    self.stack.append([])

  def _tuple(self):
    values = self._since_mark()
    self.stack.append(tuple(values))

  def _list(self):
    values = self._since_mark()
    self.stack.append(values)

  def _dict(self):
    values, entries = self._since_mark(), {}
    self._fill(entries, values[::2], values[1::2])
    self.stack.append(entries)

  def _setitem(self):
    value, key = self.stack.pop(), self.stack.pop()
    self._fill(self.stack[-1], [key], [value])

  def _setitems(self):
    values = self._since_mark()
    self._fill(self.stack[-1], values[::2], values[1::2])

  def _append(self):
    value = self.stack.pop()
    self._extend(self.stack[-1], [value])

  def _appends(self):
    values = self._since_mark()
    self._extend(self.stack[-1], values)

  def _extend(self, target, values):
    if not isinstance(target, list):
      raise TypeError
    target.extend(values)

  def _stack_global(self):
    name, module = self.stack.pop(), self.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
      raise TypeError
    self._find(module, name)

  def _reduce(self):
    arguments, function = self.stack.pop(), self.stack.pop()
    if not callable(function) or not isinstance(arguments, tuple):
      raise TypeError
    self.stack.append(function(*arguments))

  def _build(self):
    self.stack.pop()
    if not self.stack:
      raise IndexError

  def _binpersid(self):
    if self.persistent is None:
      raise TypeError
    self.stack.append(self.persistent(self.stack.pop()))
