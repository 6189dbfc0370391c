"""The exception for every mistake in a user's input."""


class InputError(ValueError):
  """A user's input is wrong; the message says where, what, and what to do.

  `main` prints the message alone, without a traceback, and exits with status 2.
  """
