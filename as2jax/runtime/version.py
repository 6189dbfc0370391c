"""The version of the package, and the source that a machine was given."""

import functools
import hashlib
import importlib
import inspect
import json
import pathlib

__version__ = "0.1.0"
ROOT = pathlib.Path(__file__).resolve().parents[1]


def source() -> dict[str, str]:
  """Returns the commit, and the hash of the patch on it, that a machine was sent; {} elsewhere.

  An archive has the file, see launch/tpu_vm.md.
  """
  path = ROOT / "source.json"
  return json.loads(path.read_text()) if path.exists() else {}


@functools.cache
def source_digest(modules: tuple[str, ...] = (), folders: tuple[str, ...] = ()) -> str:
  """Returns the SHA-256 of the package's source, or of some `folders`, and of the user's `modules`."""
  files = {}
  for path in ROOT.rglob("*.py"):
    top = path.relative_to(ROOT).parts[0]
    if top != "jobs" and (not folders or top in folders):  # jobs: configs, which a run holds
      files[str(path.relative_to(ROOT))] = path
  for name in modules:
    files[name] = pathlib.Path(inspect.getfile(importlib.import_module(name)))
  digest = hashlib.sha256()
  for name in sorted(files):
    digest.update(f"{name}\0{hashlib.sha256(files[name].read_bytes()).hexdigest()}\n".encode())
  return digest.hexdigest()
