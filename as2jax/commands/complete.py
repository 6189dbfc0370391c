"""What the shell's completion offers for arguments."""

import os


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
  found = []
  for entry in entries:
    if entry.name.startswith(start) and not entry.name.startswith("."):
      path = os.path.join(parent, entry.name)
      is_run = os.path.isfile(os.path.join(path, "config.json"))
      found.append(path if is_run else path + os.sep)
  return sorted(found)
