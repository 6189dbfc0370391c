"""What the shell's completion offers for arguments."""

import contextlib
import io
import os
from collections.abc import Iterator, MutableMapping


@contextlib.contextmanager
def colons_in_bash(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
  """Completes `wikiqa_triplet:mi` in bash, which cuts a line at colons and completes the last piece.

  Within the block the line that is completed has its words whole, and what is offered is printed
  without what stands before the last colon. Elsewhere nothing happens.
  """
  words = environment.get("COMP_WORDS", "").split()
  number = int(environment.get("COMP_CWORD") or 0)
  if environment.get("_AS2JAX_COMPLETE") != "complete_bash" or ":" not in words[: number + 1]:
    yield
    return
  line = " ".join(words[: number + 1] + [""] * (number == len(words)))
  whole = line.replace(" : ", ":").replace(" :", ":")
  environment.update(COMP_WORDS=whole, COMP_CWORD=str(len(whole.split(" ")) - 1))
  before = whole.rpartition(" ")[2].rpartition(":")
  with contextlib.redirect_stdout(io.StringIO()) as offered:
    try:
      yield
    finally:
      lines = offered.getvalue().splitlines()
      os.write(1, "".join(f"{x.removeprefix(''.join(before[:2]))}\n" for x in lines).encode())


def jobs(incomplete: str) -> list[str]:
  """Jobs by name, with the words that may follow a colon; and runs' folders."""
  from as2jax.config import jobs as job_files

  name, colon, words = incomplete.partition(":")
  if not colon:
    return [job for job in job_files.names() if job.startswith(name)] + runs(incomplete)
  from as2jax.config import presets

  before, comma, _ = words.rpartition(",")
  return [f"{name}:{before}{comma}{word}" for word in presets.ARGUMENTS]


def recipes(incomplete: str) -> list[str]:
  """Recipes by name."""
  from as2jax.config import recipes as config_recipes

  return [name for name in config_recipes.NAMES if name.startswith(incomplete)]


def runs(incomplete: str) -> list[str]:
  """Folders that hold a run, and folders on the way to one."""
  parent, start = os.path.split(incomplete)
  try:
    entries = [entry for entry in os.scandir(parent or ".") if entry.is_dir()]
  except OSError:
    return []
  folders = []
  for entry in entries:
    if entry.name.startswith(start) and not entry.name.startswith("."):
      path = os.path.join(parent, entry.name)
      is_run = os.path.isfile(os.path.join(path, "config.json"))
      folders.append(path if is_run else path + os.sep)
  return sorted(folders)
