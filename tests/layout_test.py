"""Imports go one way between the folders of the package: the contracts in pyproject.toml hold."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECK = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"


@pytest.mark.skipif(
  importlib.util.find_spec("importlinter") is None, reason="import-linter is not installed"
)
def test_imports_go_one_way():
  report = subprocess.run(
    [sys.executable, "-c", CHECK],
    cwd=ROOT,  # from where the package is imported
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )
  assert report.returncode == 0 and "0 broken" in report.stdout, report.stdout


def test_the_root_holds_only_what_a_person_starts():
  names = {path.name for path in (ROOT / "as2jax").glob("*.py")}
  assert names <= {"__init__.py", "__main__.py", "main.py"}
