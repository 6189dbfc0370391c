"""The version of the package, and the source that a machine was given."""

import functools
import hashlib
import importlib
import inspect
import json
import pathlib

__version__ = "0.1.0"


def source() -> dict[str, str]:
  """The commit, and the hash of the patch on it, that this package was sent to a machine from.

  {} where nobody sent it: a clone, or a wheel. An archive has the file, see launch/tpu_vm.md.
  """
  path = pathlib.Path(__file__).resolve().parents[1] / "source.json"
  return json.loads(path.read_text()) if path.exists() else {}


@functools.cache
def source_digest(modules: tuple[str, ...] = (), folders: tuple[str, ...] = ()) -> str:
  """SHA-256 of the source of the package, and of the modules of the user's own classes.

  `folders`: of the package these alone; () for all of it.
  """
  root = pathlib.Path(__file__).resolve().parents[1]
  files = {
    str(path.relative_to(root)): path
    for path in root.rglob("*.py")
    # `jobs` are configs, which a run's folder holds.
    if (top := path.relative_to(root).parts[0]) != "jobs" and (not folders or top in folders)
  }
  for name in modules:
    files[name] = pathlib.Path(inspect.getfile(importlib.import_module(name)))
  digest = hashlib.sha256()
  for name in sorted(files):
    digest.update(f"{name}\0{hashlib.sha256(files[name].read_bytes()).hexdigest()}\n".encode())
  return digest.hexdigest()
