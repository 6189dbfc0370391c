"""Puts the config files into the wheel, as `as2jax/jobs` (pyproject.toml names this class)."""

import pathlib
import shutil

from setuptools.command.build_py import build_py


class BuildWithJobs(build_py):
  """Copies the package's modules, and `configs`, which is no package of its own in a wheel."""

  def run(self) -> None:
    """Build into `build_lib`."""
    super().run()
    if self.editable_mode:
      return  # as2jax/config/jobs.py then reads `configs` itself
    target = pathlib.Path(self.build_lib) / "as2jax" / "jobs"
    shutil.rmtree(target, ignore_errors=True)
    for path in pathlib.Path("configs").rglob("*"):
      if path.suffix in (".py", ".toml"):
        copy = target / path.relative_to("configs")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
