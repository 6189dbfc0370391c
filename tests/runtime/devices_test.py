"""The devices of a machine: how many, which are unused or asked for in vain; huge pages of memory."""

import os
import pathlib
import platform
import re
import subprocess
import sys

import jax
import pytest

from as2jax.runtime import devices
from as2jax.runtime.devices import TUNABLE, huge_pages_advice, huge_pages_environment
from as2jax.runtime.errors import InputError

COUNT = (
  "from as2jax.runtime import devices; devices.use_cores(); import jax; print(jax.device_count())"
)


def _count(**environment):
  clean = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
  said = subprocess.run(
    [sys.executable, "-c", COUNT],
    env={**clean, "JAX_PLATFORMS": "cpu", **environment},
    capture_output=True,
    text=True,
    check=True,
  )
  return int(said.stdout)


def test_each_core_is_a_device_unless_the_user_chose():
  assert _count() == min(len(os.sched_getaffinity(0)), devices.MOST_CORES)
  assert _count(JAX_NUM_CPU_DEVICES="3") == 3
  assert _count(XLA_FLAGS="--xla_force_host_platform_device_count=5") == 5


def test_devices_in_use_stay(monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", "")
  before = jax.device_count()
  devices.use_cores()
  assert jax.device_count() == before


@pytest.fixture
def no_devices(monkeypatch, tmp_path):
  """A folder in place of /dev."""
  gpu, tpu = str(tmp_path / "nvidia[0-9]*"), str(tmp_path / "accel*")
  monkeypatch.setitem(devices.DRIVERS, "NVIDIA GPU", ((gpu,), "cuda12"))
  monkeypatch.setitem(devices.DRIVERS, "TPU", ((tpu,), "tpu"))
  monkeypatch.delenv("JAX_PLATFORMS", raising=False)
  return tmp_path


def test_a_platform_that_is_not_here_is_one_line(monkeypatch, no_devices):
  def absent():
    raise RuntimeError(
      "Unable to initialize backend 'rocm':\n not known (set JAX_PLATFORMS='' to automatically)"
    )

  monkeypatch.setattr("jax.default_backend", absent)
  monkeypatch.setenv("JAX_PLATFORMS", "rocm")
  with pytest.raises(InputError) as caught:
    devices.backend()
  text = str(caught.value)
  assert text.startswith("JAX_PLATFORMS=rocm: ") and "\n" not in text and "as2jax[cuda12]" in text
  assert "backend 'rocm': not known);" in text and "check the driver" in text


def test_an_unused_accelerator_is_a_warning(monkeypatch, no_devices):
  monkeypatch.setattr(devices, "backend", lambda: "cpu")
  assert devices.unused() == ""
  (no_devices / "nvidia0").write_text("")
  assert "has a NVIDIA GPU" in devices.unused() and "as2jax[cuda12]" in devices.unused()
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  assert "JAX_PLATFORMS=cpu asks for that" in devices.unused()
  monkeypatch.setattr(devices, "backend", lambda: "gpu")
  assert devices.unused() == ""


def test_the_peak_of_memory_is_in_bytes():
  assert 5e7 < devices.peak_memory() <= devices.memory()


def test_the_device_is_named_with_its_kind():
  assert re.match(r"(\d+ × )?CPU \(.+, \d+ cores\)$", devices.description())


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


@pytest.mark.parametrize("name,value", [("HOME", "x"), *SETTINGS])
def test_the_users_settings_win_in_the_launch_scripts_too(glibc, name, value):
  script = 'source launch/environment.sh; printf %s "${GLIBC_TUNABLES:-}"'
  environment = {"PATH": os.environ["PATH"], name: value}
  done = subprocess.run(
    ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
  )
  chosen = huge_pages_environment(environment)
  assert done.stdout == chosen.get("GLIBC_TUNABLES", "")
  assert (chosen == environment) == (huge_pages_advice(environment) == "") == (name != "HOME")
