"""The tasks for SkyPilot: scripts and configs that they name; a run that a sweep's task prepares."""

import json
import pathlib
import re
import subprocess

import yaml

from as2jax.commands import app
from as2jax.config import jobs as job_files
from as2jax.config import overrides
from as2jax.experiments.sweeps import points

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASK = yaml.safe_load((ROOT / "launch" / "sky.yaml").read_text())


def test_the_task_names_what_there_is():
  shell = TASK["setup"] + "\n" + TASK["run"]
  assert subprocess.run(["bash", "-n", "-c", shell]).returncode == 0
  for script in re.findall(r"launch/\w+\.sh", shell):
    assert subprocess.run(["bash", "-n", str(ROOT / script)]).returncode == 0
  assert {"launch/install.sh", "launch/job.sh"} <= set(re.findall(r"launch/\w+\.sh", shell))
  used = set(re.findall(r"\$\{?([A-Z]+)", shell + json.dumps(TASK["file_mounts"])))
  assert used == set(TASK["envs"])
  assert TASK["resources"]["job_recovery"]["recover_on_exit_codes"] == [75]


def test_the_job_resolves(monkeypatch):
  monkeypatch.chdir(ROOT)
  config = job_files.load(TASK["envs"]["CONFIG"])
  for option in TASK["envs"]["OPTIONS"].split():
    overrides.check_key(config, re.match(r"--config\.([\w.]+)=\d+$", option)[1])


def test_a_run_of_a_sweep_is_prepared_by_its_number(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(ROOT)
  file = "configs/ablations/cete_grid.py"
  jobs = points.plan(*points.load(file))
  command = ["lab", "sweep", file, "-o", str(tmp_path)]
  assert app.run([*command, "--prepare=1"]) == 0
  (said,) = capsys.readouterr().out.splitlines()
  assert said == str(tmp_path / jobs[1].id)
  assert job_files.load(f"rerun:{said}/config.json").to_json(indent=2) == jobs[1].text
  assert app.run([*command, f"--prepare={len(jobs)}"]) == 2
  assert f"the sweep has {len(jobs)} runs" in capsys.readouterr().err
