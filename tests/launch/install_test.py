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


@pytest.mark.parametrize("program", [". launch/environment.sh; make_venv", "bash launch/mpnet.sh"])
def test_a_python_that_is_named_and_does_not_do_is_refused(tmp_path, program):
  shutil.copytree(ROOT / "launch", tmp_path / "launch", ignore=shutil.ignore_patterns("benchmarks"))
  for python in ("/no/such/python", "false"):
    done = subprocess.run(
      ["bash", "-euc", program],
      cwd=tmp_path,
      env={"PATH": "/usr/bin:/bin", "PYTHON": python, "AS2JAX_DATA": str(tmp_path / "data")},
      capture_output=True,
      text=True,
    )
    assert done.returncode == 1 and f"PYTHON={python} is no Python 3.11 or later" in done.stderr
  assert [path.name for path in tmp_path.iterdir()] == ["launch"]


PYTHON = """#!/bin/sh
case "$*" in
  *"%d.%d"*) echo 3.13 ;;
  *base_prefix*) echo /none ;;
  "-m venv"*) mkdir -p $3/bin && cp "$0" $3/bin/python ;;
  *"-r requirements"*) case $0 in *-3.13*) exit {pip} ;; esac ;;
  "-m pip index"*) exit {index} ;;
  "-m pytest"*) echo "$0 $*" >> ran; case $0 in *-3.13*) exit {further} ;; *) exit {status} ;; esac ;;
esac
"""


@pytest.mark.parametrize(
  "found, pip, index, further, status, ends, says",
  [
    ("python3.13", 0, 0, 0, 0, 0, "under"),
    ("python3.13", 0, 0, 1, 0, 1, "under"),
    ("python3.13", 0, 0, 0, 5, 5, "under"),
    ("python3.13", 1, 1, 0, 0, 0, "could not install the above"),
    ("python3.13", 1, 0, 0, 0, 1, "could not install the above"),
    ("python3.10", 0, 0, 0, 0, 0, "no other Python of 3.11 to 3.14 is here"),
  ],
)
def test_ci_runs_under_a_further_python_or_says_that_it_does_not(
  tmp_path, found, pip, index, further, status, ends, says
):
  for name in (".ci/run", "launch/test.sh", "launch/environment.sh"):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / name, tmp_path / name)
  own = tmp_path / ".venv/bin/python"
  for python in (own, tmp_path / "path" / found):
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(pip=pip, index=index, further=further, status=status))
    python.chmod(0o755)
  for name in ("bash", "basename", "cp", "dirname", "mkdir", "sh"):
    (tmp_path / "path" / name).symlink_to(shutil.which(name))
  path = {"PATH": str(tmp_path / "path")}
  done = subprocess.run(["bash", tmp_path / ".ci/run"], env=path, capture_output=True, text=True)
  assert done.returncode == ends, done.stderr
  assert says in done.stdout + done.stderr
  ran = (tmp_path / "ran").read_text().splitlines()
  assert "/.venv/bin/python -m pytest" in ran[0] and "not long" in ran[0]
  assert ("NOT CHECKED" in done.stdout) == (says != "under" and ends == 0)
  assert (len(ran) == 1) == (says != "under")
  assert all("/.venv-3.13/bin/python -m pytest" in run for run in ran[1:])
