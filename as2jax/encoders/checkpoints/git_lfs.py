"""What may lie where the weights should be: a git-LFS pointer, or no file at all.

A clone without `git lfs pull` leaves pointers.
"""

from etils import epath

from as2jax.runtime import regular_files
from as2jax.runtime.errors import InputError

POINTER = b"version https://git-lfs"


def refuse_pointer(file: epath.Path) -> None:
  """Raises `InputError` where `file` is a pointer, a directory, a pipe or a device.

  Errors of reading it pass through.
  """
  regular_files.refuse_others(file)
  with file.open("rb") as stream:
    if stream.read(len(POINTER)) == POINTER:
      raise InputError(f"{file}: a git-LFS pointer, not the weights; run `git lfs pull` there")
