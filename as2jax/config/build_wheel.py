"""Puts the config files into the wheel, as `as2jax/jobs` (pyproject.toml names this class)."""

import pathlib
import shutil

from setuptools.command.build_py import build_py


class BuildWithJobs(build_py):
  """Copies the package's modules, and `configs`, which is no package of its own in a wheel."""

  def run(self) -> None:
    """Builds into `build_lib`."""
    super().run()
    if self.editable_mode:
      return  # as2jax/config/jobs.py then reads `configs` itself
    target = pathlib.Path(self.build_lib) / "as2jax" / "jobs"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree("configs", target, ignore=_others)


def _others(folder: str, names: list[str]) -> list[str]:
  """What is neither a Python or TOML file nor a folder of some."""
  place = pathlib.Path(folder)
  return [
    name
    for name in names
    if not name.endswith((".py", ".toml"))
    and not ((place / name).is_dir() and any((place / name).glob("*.py")))
  ]
