"""launch/install.sh where nothing can be fetched."""

import pathlib
import shutil
import subprocess

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
