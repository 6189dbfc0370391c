"""The installed jaxlib computes correctly on a CPU; judge another by this before it is pinned."""

import os
import pathlib
import subprocess
import sys

import jaxlib
import pytest
import tiny

from as2jax.inference import modes
from as2jax.runtime import cpu_compiler, sharding
from as2jax.runtime.errors import InputError

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "wheel_program.py"


def judge(*cases, flags):
  """Status and output of the program with the optimizations and settings that a user has."""
  kept = {k: v for k, v in os.environ.items() if not k.startswith(("XLA", "JAX"))}
  process = subprocess.run(
    [sys.executable, str(PROGRAM), *cases],
    env={**kept, "XLA_FLAGS": flags},
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    timeout=120,
  )
  return process.returncode, process.stdout


def test_published_programs_are_computed_correctly_whatever_is_fused():
  cases = ("product_then_reduction", "eight_axes", "seven_axes_one_of_size_1")
  assert judge(*cases, flags="") == (0, "\n")


def test_products_with_reductions_are_computed_correctly_in_a_run():
  environment = {}
  cpu_compiler.leave_out_wrong_fusions(environment)
  assert judge("sweep", flags=environment["XLA_FLAGS"]) == (0, "\n")


def test_the_fusions_are_wrong_with_jaxlib_0_10_alone():
  """Where this fails there is a jaxlib without the fault, or one that has it again."""
  status, text = judge("sweep", flags="")
  assert (status, "sweep: matrix @ rows, sum, k = 3" in text) == (
    (1, True) if jaxlib.__version__ < "0.11" else (0, False)
  )


@pytest.mark.parametrize(
  "before, after",
  [
    (None, "--xla_cpu_experimental_ynn_fusion_type="),
    ("--xla_a=1", "--xla_a=1 --xla_cpu_experimental_ynn_fusion_type="),
    ("--xla_cpu_experimental_ynn_fusion_type=dot", "--xla_cpu_experimental_ynn_fusion_type=dot"),
  ],
)
def test_what_a_user_says_of_fusions_stays(before, after):
  environment = {} if before is None else {"XLA_FLAGS": before}
  cpu_compiler.leave_out_wrong_fusions(environment)
  assert environment == {"XLA_FLAGS": after}


def test_importing_the_package_leaves_them_out():
  assert cpu_compiler.OPTION in os.environ["XLA_FLAGS"]
  assert "TF_CPP_MIN_LOG_LEVEL" in os.environ


def test_a_jaxlib_that_is_known_to_be_wrong_is_refused_on_a_cpu(monkeypatch, tmp_path):
  monkeypatch.setattr(jaxlib, "__version__", "0.10.2")
  with pytest.raises(InputError, match=r"jaxlib 0\.10\.2 computes wrong .*install -r requirements"):
    modes.run(tiny.config(), str(tmp_path / "x"))
  assert not (tmp_path / "x").exists()
  with pytest.raises(InputError, match="wrong numbers"):
    sharding.make_mesh()
  cpu_compiler.check("tpu")
