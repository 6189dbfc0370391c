"""Every requirement is imported by the package, or its line says why it is there."""

import ast
import importlib.metadata
import pathlib

import pytest
from packaging import requirements, utils

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINES = [
  line.partition("#")[::2]
  for line in (ROOT / "requirements.txt").read_text().splitlines()
  if line and not line.startswith("#")
]


@pytest.fixture(scope="module")
def imported():
  """The distributions that some module of the package imports, normalised names."""
  modules = set()
  for path in (ROOT / "as2jax").rglob("*.py"):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Import):
        modules.update(alias.name for alias in node.names)
      elif isinstance(node, ast.ImportFrom):
        modules.add(node.module)
  owners = importlib.metadata.packages_distributions()
  return {
    utils.canonicalize_name(name)
    for module in modules
    for name in owners.get(module.partition(".")[0], ())
  }


@pytest.mark.parametrize("pin, reason", LINES, ids=[pin.partition("==")[0] for pin, _ in LINES])
def test_a_requirement_is_imported_or_says_why(imported, pin, reason):
  name = utils.canonicalize_name(requirements.Requirement(pin).name)
  assert (name in imported) != bool(reason.strip()), f"{pin}: nothing in as2jax imports it"
