"""Every requirement is imported by the package, or its line says why it is there."""

import ast
import importlib.metadata
import pathlib
import sys
import tomllib

import pytest
from packaging import requirements, utils

from as2jax.commands import app, process

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


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
TESTED = ["test", "serve", "parquet"]  # installed for tests alone


def ranges(*extras):
  """{name: requirement} of the metadata: the base and some extras."""
  lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
  wanted = [requirements.Requirement(line) for line in lines]
  return {utils.canonicalize_name(one.name): one for one in wanted}


def pins(file):
  """{name: version} of a file of pins."""
  lines = [line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
  pairs = [line.split("==") for line in lines if line]
  return {utils.canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize(
  "file, extras",
  [
    (
      "requirements.txt",
      [name for name in EXTRAS if name not in (*TESTED, "tpu", "gcs", "pickles", "irds")],
    ),
    ("requirements-test.txt", TESTED),
  ],
)
def test_the_lock_is_within_the_ranges_of_the_metadata(file, extras):
  known, locked = ranges(*extras), pins(file)
  for name, version in locked.items():
    assert known[name].specifier.contains(version, prereleases=True), f"{name}=={version}"
  elsewhere = ranges() if file == "requirements-test.txt" else {}
  assert known.keys() - elsewhere.keys() - {"as2jax"} <= set(locked)


def test_a_missing_extra_is_one_sentence_that_names_it(monkeypatch, capsys):
  for module, extra in process.EXTRAS.items():
    for owner in importlib.metadata.packages_distributions().get(module, ()):
      assert utils.canonicalize_name(owner) in ranges(extra)
  monkeypatch.setitem(sys.modules, "gensim", None)
  arguments = ["--data=sample", "--output=x.txt"]
  assert app.run(["lab", "vectors", *arguments]) == 2
  assert capsys.readouterr().err == (
    "as2jax: this needs gensim, which is not installed: pip install 'as2jax[train]'\n"
  )
