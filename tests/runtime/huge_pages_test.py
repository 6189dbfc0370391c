"""Huge pages: set for child processes, never against the user's own settings."""

import os
import pathlib
import platform
import subprocess

import pytest

from as2jax.runtime.devices import TUNABLE, huge_pages_advice, huge_pages_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = [
  ("GLIBC_TUNABLES", "glibc.malloc.check=1"),
  ("MALLOC_ARENA_MAX", "2"),
  ("AS2JAX_ALLOCATOR", "off"),
]


@pytest.fixture
def glibc(monkeypatch):
  monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))


def test_a_child_gets_the_tunable(glibc):
  chosen = huge_pages_environment({"HOME": "x"})
  assert chosen == {"HOME": "x", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
  assert huge_pages_environment(chosen) == chosen
  assert f"start with GLIBC_TUNABLES={TUNABLE}" in huge_pages_advice({"HOME": "x"})
  assert huge_pages_advice(chosen) == ""


@pytest.mark.parametrize("name,value", SETTINGS)
def test_the_users_settings_win(glibc, name, value):
  assert huge_pages_environment({name: value}) == {name: value}
  assert huge_pages_advice({name: value}) == ""


@pytest.mark.parametrize("name,value", [("HOME", "x"), *SETTINGS])
def test_the_launch_scripts_do_the_same(glibc, name, value):
  script = 'source launch/environment.sh; printf %s "${GLIBC_TUNABLES:-}"'
  environment = {"PATH": os.environ["PATH"], name: value}
  done = subprocess.run(
    ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
  )
  assert done.stdout == huge_pages_environment(environment).get("GLIBC_TUNABLES", "")
