"""Huge pages: asked for once, never against the user's own settings."""

import platform

import pytest

from as2jax.runtime import huge_pages


@pytest.fixture
def glibc(monkeypatch):
  monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))


def test_a_plain_environment_gets_the_tunable_once(glibc):
  chosen = huge_pages.environment({"HOME": "x"})
  assert chosen == {"HOME": "x", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
  assert huge_pages.environment(chosen) is None  # the process that was started again goes on


@pytest.mark.parametrize(
  "name,value",
  [
    ("GLIBC_TUNABLES", "glibc.malloc.check=1"),
    ("MALLOC_ARENA_MAX", "2"),
    ("AS2JAX_ALLOCATOR", "off"),
  ],
)
def test_the_users_settings_win(glibc, name, value):
  assert huge_pages.environment({name: value}) is None


def test_other_libraries_are_left_alone(monkeypatch):
  monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
  assert huge_pages.environment({}) is None
