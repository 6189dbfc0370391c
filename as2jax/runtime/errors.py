"""The one error that a user's input can raise."""


class InputError(ValueError):
  """Something a user gave is wrong; the message says where, what, and what to do.

  `main` prints the message alone, without a traceback, and exits with status 2.
  """
