"""Imports go one way between the folders of the package, and no modules import one another."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A folder may import itself and those before it.
ORDER = (
  "runtime",
  "config",
  "data",
  "layers",
  "encoders",
  "models",
  "evaluation",
  "training",
  "inference",
  "report",
  "experiments",
  "commands",
)
# Within `data`, likewise.
DATA = ("text", "datasets", "batches", "inputs")


def modules():
  """{dotted name: path} of every module of the package."""
  paths = {}
  for path in sorted((ROOT / "as2jax").rglob("*.py")):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    paths[name] = path
  return paths


MODULES = modules()


def imports(name):
  """The package's modules that a module imports, at its top or inside of functions."""
  imported = set()
  for node in ast.walk(ast.parse(MODULES[name].read_text())):
    if isinstance(node, ast.ImportFrom):
      assert node.level == 0, f"{name}: relative import"
      for alias in node.names:
        full = f"{node.module}.{alias.name}"
        imported.add(full if full in MODULES else node.module)
    elif isinstance(node, ast.Import):
      imported.update(alias.name for alias in node.names)
  return sorted(module for module in imported if module in MODULES)


GRAPH = {name: imports(name) for name in MODULES}


def folder(name):
  """The folder below the package that a module lies in, "" for the package's root."""
  parts = name.split(".")
  if len(parts) > 2 or name in MODULES and MODULES[name].name == "__init__.py" and len(parts) == 2:
    return parts[1]
  return ""


def test_every_folder_has_its_place():
  folders = {folder(name) for name in MODULES} - {""}
  assert folders <= set(ORDER)


@pytest.mark.parametrize("name", GRAPH)
def test_no_import_goes_up(name):
  own = folder(name)
  if own == "":
    return  # the commands at the package's root may import every folder
  for other in GRAPH[name]:
    theirs = folder(other)
    assert theirs, f"{name} imports {other}, which lies above every folder"
    assert ORDER.index(theirs) <= ORDER.index(own), f"{name} imports {other}"
    if own == theirs == "data":
      here, there = name.split(".")[2], other.split(".")[2]
      if here in DATA and there in DATA:
        assert DATA.index(there) <= DATA.index(here), f"{name} imports {other}"
      assert here not in ("record",) or there == "record", f"{name} imports {other}"


def circles():
  """Lists of modules that import one another, by Tarjan's algorithm."""
  index, low, stack, components = {}, {}, [], []

  def visit(name):
    index[name] = low[name] = len(index)
    stack.append(name)
    for other in GRAPH[name]:
      if other not in index:
        visit(other)
        low[name] = min(low[name], low[other])
      elif other in stack:
        low[name] = min(low[name], index[other])
    if low[name] == index[name]:
      at = stack.index(name)
      component = stack[at:]
      del stack[at:]
      if len(component) > 1:
        components.append(sorted(component))

  for name in GRAPH:
    if name not in index:
      visit(name)
  return components


def test_no_modules_import_one_another():
  assert circles() == []


def test_the_root_holds_only_what_a_person_starts():
  names = {path.name for path in (ROOT / "as2jax").glob("*.py")}
  assert names <= {"__init__.py", "__main__.py", "main.py"}
