"""A git-LFS pointer where the weights should be: what a clone without `git lfs pull` leaves."""

from etils import epath

from as2jax.runtime.errors import InputError

POINTER = b"version https://git-lfs"


def refuse_pointer(file: epath.Path) -> None:
  """Raises `InputError` where `file` is a pointer. Errors of reading it pass through."""
  with file.open("rb") as stream:
    if stream.read(len(POINTER)) == POINTER:
      raise InputError(f"{file}: a git-LFS pointer, not the weights; run `git lfs pull` there")
