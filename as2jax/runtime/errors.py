"""The exception for every mistake in a user's input."""

import re

# A flag that a message names -> what it is in Python. A whole command line stays as it is.
_COMMAND = re.compile(r"((?:as2jax|pip|hf|xprof) [a-z][^;,()`\n]*)")
_IN_PYTHON = (
  (
    r"--config=rerun:(\S+)/config\.json --workdir=(\S+)",
    r'as2jax.train("rerun:\1/config.json", "\2")',
  ),
  (r"--config=rerun:(\S+)/config\.json", r'as2jax.train("rerun:\1/config.json", "ANOTHER")'),
  (r"--(?:config\.|set )([a-z_.]+)=([^\s;,()]+)", r'overrides={"\1": "\2"}'),
  (r'": "(\d[\d.]*)"}', r'": \1}'),
  (r"--columns (\w+)=(\w*)", r'columns={"\1": "\2"}'),
  (r"--config\.([a-z_.]+)", r"\1"),
  (r"--allow-code \(allow_code=True in Python\)|--allow-code\b", "allow_code=True"),
  (r"--drop\b", "drop=True"),
  (r"--(?:workdir|output)\b", "output"),
)


class InputError(ValueError):
  """A user's input is wrong; the message says where, what, and what to do.

  A command prints the message alone, without a traceback, and exits with status 2. In Python the message
  names arguments in place of flags.
  """

  in_python = True  # a command sets it to False while it runs

  def __str__(self) -> str:
    text = super().__str__()
    return as_in_python(text) if InputError.in_python else text


def as_in_python(text: str) -> str:
  """Return a message with the arguments of Python's functions in place of a command's flags."""
  parts = _COMMAND.split(text)
  for number in range(0, len(parts), 2):
    for flag, argument in _IN_PYTHON:
      parts[number] = re.sub(flag, argument, parts[number])
  return "".join(parts)
