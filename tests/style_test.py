"""Every Python file is formatted and passes the linter, as pyproject.toml says."""

import importlib.util
import pathlib
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
