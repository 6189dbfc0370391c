"""Standard streams: open from the start, able to take every text, without what a terminal obeys."""

import codecs
import json
import os
import re
import sys
from typing import Any, TextIO

# C0 but tab and line feed, DEL, C1, and what turns the direction of the text behind it.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def prepare() -> None:
  """Opens closed standard streams as /dev/null, before another file takes their number.

  What the encoding of standard output lacks is written as JSON's escapes.
  """
  for number, name in enumerate(("stdin", "stdout", "stderr")):
    if getattr(sys, name) is None:
      descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
      setattr(sys, name, open(descriptor, "w" if number else "r", encoding="utf-8"))
      if name == "stdout":
        print("as2jax: standard output is closed: what is printed is lost", file=sys.stderr)
  codecs.register_error("json", lambda e: (_escaped(e.object[e.start : e.end]), e.end))
  sys.stdout.reconfigure(errors="json")


def visible(text: str) -> str:
  """Escapes, as JSON does, what would move a cursor or turn text: JSON stays equal."""
  return _OBEYED.sub(lambda found: _escaped(found[0]), text)


def _escaped(text: str) -> str:
  return json.dumps(text)[1:-1]


class Visible:
  """Writes text to a stream as `visible` gives it; otherwise it is that stream."""

  def __init__(self, stream: TextIO):
    self._stream = stream

  def write(self, text: str) -> int:
    """Writes a text."""
    return self._stream.write(visible(text))

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)


def give_up() -> None:
  """Sends what standard output still holds to /dev/null: it failed, and would at the end again."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
