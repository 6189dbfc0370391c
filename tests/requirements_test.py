"""Every requirement is imported by the package, or its line says why; what the built wheel holds."""

import ast
import importlib.metadata
import itertools
import pathlib
import sys
import tomllib
import zipfile

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


def pins(file, python):
  """{name: version} of a file of pins, for one version of Python."""
  lines = [line.partition("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
  found = {}
  for one in map(requirements.Requirement, filter(None, lines)):
    if one.marker is None or one.marker.evaluate({"python_version": python}):
      assert found.setdefault(utils.canonicalize_name(one.name), one) is one
  return {name: str(one.specifier).removeprefix("==") for name, one in found.items()}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("file", ["requirements.txt", "requirements-test.txt"])
def test_the_lock_is_within_the_ranges_of_the_metadata(file, python):
  lacking = ["vectors"] if python == "3.14" else []  # no wheel of gensim
  apart = [*TESTED, "tpu", "gcs", "pickles", "irds", "hub", "openvino", *lacking]
  base = file == "requirements.txt"
  known = ranges(*[name for name in EXTRAS if name not in apart] if base else TESTED)
  locked = pins(file, python)
  for name, version in locked.items():
    assert known[name].specifier.contains(version, prereleases=True), f"{name}=={version}"
  elsewhere = {} if base else ranges()
  assert known.keys() - elsewhere.keys() - {"as2jax"} <= set(locked)


def test_what_computes_wrongly_or_has_an_advisory_is_within_no_range():
  wrong = {name: ("0.10.2", "0.11.0", "0.11.1") for name in ("jax", "jaxlib")}
  wrong["protobuf"] = ("6.33.4",)  # CVE-2026-0994
  lines = [*PROJECT["dependencies"], *itertools.chain(*EXTRAS.values())]
  checked = [one for one in map(requirements.Requirement, lines) if one.name in wrong]
  assert len(checked) == 6
  for one in checked:
    assert not any(map(one.specifier.contains, wrong[one.name])), one


def test_a_missing_extra_is_one_sentence_that_names_it(monkeypatch, capsys):
  for module, extra in process.EXTRAS.items():
    for owner in importlib.metadata.packages_distributions().get(module, ()):
      assert utils.canonicalize_name(owner) in ranges(extra)
  monkeypatch.setitem(sys.modules, "gensim", None)
  module = "as2jax.experiments.train_vectors"  # of another test, with gensim
  monkeypatch.delitem(sys.modules, module, raising=False)
  monkeypatch.delattr(module, raising=False)
  arguments = ["--data=sample", "--output=x.txt"]
  assert app.run(["lab", "vectors", *arguments]) == 2
  assert capsys.readouterr().err == (
    "as2jax: this needs gensim, which is not installed: pip install 'as2jax[vectors]'\n"
  )


def test_the_wheel_holds_each_job_once(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  files = [*(ROOT / "configs").rglob("*.py"), *(ROOT / "configs").rglob("*.toml")]
  expected = {path.relative_to(ROOT / "configs").as_posix() for path in files}
  assert {n.removeprefix("as2jax/jobs/") for n in names if n.startswith("as2jax/jobs/")} == expected
  tops = {name.split("/")[0] for name in names}
  assert {top for top in tops if not top.endswith(".dist-info")} == {"as2jax"}
  modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.py")}
  assert modules <= set(names)
  assert {
    f"as2jax/report/templates/{name}" for name in ("page.css", "page.js", "runs.html.j2")
  } <= set(names)
  assert {n for n in names if n.endswith(".tsv")} == {
    p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.tsv")
  }
