"""Every Python file is formatted and passes the linter; the core passes the type checker."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
@pytest.mark.parametrize("command", [["format", "--check"], ["check"]], ids=" ".join)
def test_ruff_finds_nothing(command):
  report = subprocess.run(
    [sys.executable, "-m", "ruff", *command, "--no-cache", "--output-format=concise", "."],
    cwd=ROOT,
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )
  assert report.returncode == 0, report.stdout


# Beside the interpreter, or on the path.
TY = shutil.which("ty", path=pathlib.Path(sys.executable).parent) or shutil.which("ty")


@pytest.mark.skipif(TY is None, reason="ty is not installed")
def test_the_type_checker_finds_nothing():
  """In the folders that pyproject.toml names under `tool.ty.src`."""
  report = subprocess.run(
    [TY, "check", "--python", sys.prefix, "--error-on-warning", "--output-format=concise"],
    cwd=ROOT,
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )
  assert report.returncode == 0, report.stdout
