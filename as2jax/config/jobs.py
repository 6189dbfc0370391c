"""The config files of the jobs, by name: `wikiqa_triplet` is `configs/wikiqa_triplet.py`.

A repository has them in `configs`; an installed package has a copy of them, `as2jax/jobs`, which is
made when the wheel is built (`as2jax.config.build_wheel`).
"""

import importlib
import importlib.util
import os
import pathlib
import sys
from types import ModuleType

PACKAGE = "as2jax.jobs"
FOLDERS = ("jobs", "../configs")  # beside the package's folders: installed, or in a repository


def folder() -> pathlib.Path:
  """Where the config files lie; FileNotFoundError where the package has none."""
  root = pathlib.Path(__file__).resolve().parent.parent
  for name in FOLDERS:
    if (root / name / "__init__.py").is_file():
      return (root / name).resolve()
  raise FileNotFoundError(f"{root} has no folder of jobs: install as2jax again")


def names() -> list[str]:
  """The jobs that there are, sorted."""
  return sorted(path.stem for path in folder().glob("*.py") if not path.stem.startswith("_"))


def path(job: str) -> str:
  """The file of a job that is given as a file, by name, or as `configs/NAME.py` from anywhere.

  What is none of them is returned as it is.
  """
  if not os.path.isfile(job):
    name = job.removeprefix("configs/").removesuffix(".py")
    known = folder() / f"{name}.py"
    if (job == name or job.startswith("configs/")) and known.is_file():
      return str(known)
  return job


def module(name: str) -> ModuleType:
  """The module of a job or a table, by its dotted name below `configs` (`papers.cete_table3`)."""
  if PACKAGE not in sys.modules:
    place = folder()
    spec = importlib.util.spec_from_file_location(
      PACKAGE, place / "__init__.py", submodule_search_locations=[str(place)]
    )
    assert spec is not None and spec.loader is not None, f"{place} is no package"
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACKAGE])
  return importlib.import_module(f"{PACKAGE}.{name}")
