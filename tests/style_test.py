"""Files are formatted and pass the linter, the core passes the type checker, and imports go one way.

The folders' contracts are in pyproject.toml.
"""

import importlib.util
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def assert_silent(*command):
  """A program that finds faults finds none."""
  report = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
  assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
@pytest.mark.parametrize("command", [["format", "--check"], ["check"]], ids=" ".join)
def test_ruff_finds_nothing(command):
  options = ("--no-cache", "--output-format=concise", ".")
  assert_silent(sys.executable, "-m", "ruff", *command, *options)


# Beside the interpreter, or on the path.
TY = shutil.which("ty", path=pathlib.Path(sys.executable).parent) or shutil.which("ty")


@pytest.mark.skipif(TY is None, reason="ty is not installed")
def test_the_type_checker_finds_nothing():
  """In the folders that pyproject.toml names under `tool.ty.src`."""
  options = ("--python", sys.prefix, "--error-on-warning", "--output-format=concise")
  assert_silent(TY, "check", *options)


CONTRACTS = (
  "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
)


@pytest.mark.skipif(
  importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed"
)
def test_imports_go_one_way():
  assert_silent(sys.executable, "-c", CONTRACTS)


def test_the_root_holds_only_what_a_person_starts():
  names = {path.name for path in (ROOT / "as2jax").glob("*.py")}
  assert names <= {"__init__.py", "__main__.py", "main.py"}
