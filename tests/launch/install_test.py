"""launch/install.sh where nothing can be fetched, launch/mpnet.sh where other weights lie."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_without_a_network_it_says_what_to_do(tmp_path):
  for name in ("install.sh", "environment.sh"):
    (tmp_path / "launch").mkdir(exist_ok=True)
    shutil.copy(ROOT / "launch" / name, tmp_path / "launch")
  shutil.copy(ROOT / "requirements.txt", tmp_path)
  programs = tmp_path / "programs"  # no uv among them
  programs.mkdir()
  for name in ("bash", "basename", "dirname", "env", "head", "sed", "sh"):
    (programs / name).symlink_to(shutil.which(name))
  for name in ("python3", "curl"):
    (programs / name).write_text("#!/bin/sh\nexit 6\n")
    (programs / name).chmod(0o755)
  done = subprocess.run(
    [programs / "bash", tmp_path / "launch" / "install.sh", "cpu"],
    env={"PATH": str(programs)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 1
  assert "install.sh: uv cannot be fetched: check the network" in done.stderr


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path):
  weights = tmp_path / "sentence-transformers/all-mpnet-base-v2/model.safetensors"
  weights.parent.mkdir(parents=True)
  weights.write_bytes(b"others")
  done = subprocess.run(
    ["bash", ROOT / "launch" / "mpnet.sh"],
    env={"PATH": os.environ["PATH"], "AS2JAX_DATA": str(tmp_path)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 1
  assert f"{weights} is not the published file: delete its folder" in done.stderr


@pytest.mark.parametrize(
  "says, kind",
  [("580.1\n590.2", "cuda13"), ("590.1\n535.2", "cuda12"), ("NVIDIA-SMI has failed.", "cpu")],
)
def test_the_driver_says_which_cuda_and_without_one_none_is_installed(tmp_path, says, kind):
  smi = tmp_path / "nvidia-smi"
  smi.write_text(f"#!/bin/sh\necho '{says}'\n")
  smi.chmod(0o755)
  program = (
    f"eval \"$(sed -n '/^accelerator()/,/^}}/p' {ROOT}/launch/install.sh)\"\n"
    f"compgen() {{ false; }}; PATH={tmp_path}:$PATH accelerator"
  )
  done = subprocess.run(["bash", "-euc", program], capture_output=True, text=True, check=True)
  assert done.stdout == f"{kind}\n"
  assert ("nvidia-smi names no driver" in done.stderr) == (kind == "cpu")


def test_a_python_that_is_named_and_does_not_do_is_refused(tmp_path):
  program = f"cd {tmp_path}; . {ROOT}/launch/environment.sh; make_venv"
  for python in ("/no/such/python", "false"):
    done = subprocess.run(
      ["bash", "-euc", program],
      env={"PATH": "/usr/bin:/bin", "PYTHON": python},
      capture_output=True,
      text=True,
    )
    assert done.returncode == 1 and f"PYTHON={python} is no Python 3.11 or 3.12" in done.stderr
  assert not list(tmp_path.iterdir())
