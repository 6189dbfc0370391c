"""The version of the package, and the source that a machine was given."""

import json
import pathlib

__version__ = "0.1.0"


def source() -> dict[str, str]:
  """The commit, and the hash of the patch on it, that this package was sent to a machine from.

  {} where nobody sent it: a clone, or a wheel. `pack` of launch/tpu_vm.sh writes the file; the patch
  ("" for none) lies beside the runs, in the sweep's store, under the name of its archive.
  """
  path = pathlib.Path(__file__).resolve().parents[1] / "source.json"
  return json.loads(path.read_text()) if path.exists() else {}
