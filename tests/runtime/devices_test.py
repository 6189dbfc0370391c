"""How many devices a process has on a CPU."""

import os
import subprocess
import sys

import jax

from as2jax.runtime import devices

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
