"""kill -9 at any moment, the same command again: the same parameters to the bit, the same results."""

import json
import os
import pathlib
import random
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import tiny

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", sys.argv[2] or None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
import time, tiny
from as2jax.training import loop
add = loop.StepLog.add
loop.StepLog.add = lambda *args: (time.sleep(0.05), add(*args))  # slow enough to be killed between
config = tiny.config("crossencoder", epochs=3, checkpoint__steps=2, log__steps=2,
                     data__train_fraction=0.15, optimizer__rate=1e-3)
loop.train_and_evaluate(config, sys.argv[1])
"""


def start(folder):
  env = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "AS2JAX_TINY_ENCODER": tiny.encoder_folder(),
  }
  return subprocess.Popen(
    [sys.executable, "-c", PROGRAM, str(folder), jax.config.jax_compilation_cache_dir or ""],
    env=env,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )


def finish(folder):
  process = start(folder)
  _, errors = process.communicate(timeout=300)
  assert process.returncode == 0, errors[-2000:]


def steps(folder):
  """Number of rows in the log, 0 before there is one."""
  path = folder / "metrics.jsonl"
  return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.parametrize(
  "kills", [pytest.param(4, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.long)]
)
def test_kill_nine(tmp_path, kills):
  plain, killed = tmp_path / "plain", tmp_path / "killed"
  finish(plain)
  total, rng, deaths = steps(plain), random.Random(0), 0
  for target in np.linspace(1, total - 1, kills).astype(int):  # from start-up to the very end
    process = start(killed)
    while process.poll() is None and steps(killed) < target:
      time.sleep(0.01)
    time.sleep(rng.random() * 0.2)
    if process.poll() is None:
      process.kill()
      deaths += 1
    _, errors = process.communicate()
    assert process.returncode in (0, -9), errors[-2000:]
  assert deaths >= 0.75 * kills
  finish(killed)
  read = lambda folder: {
    k: v for k, v in json.loads((folder / "results.json").read_text()).items() if k != "execution"
  }
  assert read(killed) == read(plain)
  one, other = tiny.best_parameters(plain), tiny.best_parameters(killed)
  for path, a in one.items():
    np.testing.assert_array_equal(a, other[path], path)
  for name in ("eval/test/run.trec", "eval/test/per_question.tsv", "eval/dev/run.trec"):
    assert (plain / name).read_bytes() == (killed / name).read_bytes()
