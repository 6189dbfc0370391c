"""launch/: job.sh and test.sh with a stand-in for Python, install.sh, the tasks for SkyPilot, the container."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from as2jax.commands import app
from as2jax.config import jobs as job_files
from as2jax.config import overrides
from as2jax.experiments import sweep

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Says what it was given, ends with 75 at SIGTERM, and holds the host until it ends.
PYTHON = """#!/bin/bash
trap 'echo saved; exit 75' TERM
echo "$AS2JAX_DATA $*"
for ((i = 0; i < 200; i++)); do [ -e "$HOME/go" ] && exit 3; sleep 0.05; done
"""


def finished(command, **options):
  """A finished process, with what it wrote."""
  return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.fixture
def start(tmp_path):
  """Starts job.sh in a home of its own, with the words given."""
  python = tmp_path / ".venv" / "bin" / "python"
  python.parent.mkdir(parents=True)
  python.write_text(PYTHON)
  python.chmod(0o755)
  (tmp_path / "launch").mkdir()
  shutil.copy(ROOT / "launch" / "job.sh", tmp_path / "launch")
  environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
  command = ["bash", str(tmp_path / "launch" / "job.sh")]
  with contextlib.ExitStack() as stack:
    yield lambda *words: stack.enter_context(
      subprocess.Popen([*command, *words], env=environment, stdout=subprocess.PIPE, text=True)
    )


def log_of(home, name, words):
  """The text of a log once it has the words."""
  file = home / "logs" / f"{name}.log"
  for _ in range(600):
    if file.exists() and words in file.read_text():
      return file.read_text()
    time.sleep(0.05)
  raise AssertionError(f"{file}: no {words}")


def test_a_run_outlives_its_connection_and_the_next_one_waits(start, tmp_path):
  first = start("config.py", "gs://bucket/runs/x", "--config.epochs=2")
  words = "-m as2jax.main --config=config.py --workdir=gs://bucket/runs/x --config.epochs=2\n"
  assert log_of(tmp_path, "x", words) == f"{tmp_path}/data {words}"
  second = start("config.py", "gs://bucket/runs/y")
  first.stdout.close()
  first.send_signal(signal.SIGHUP)
  time.sleep(0.5)
  assert first.poll() is None and not (tmp_path / "logs" / "y.log").read_text()
  (tmp_path / "go").touch()
  assert first.wait(10) == 3 and second.wait(10) == 3
  assert "--workdir=gs://bucket/runs/y" in log_of(tmp_path, "y", "workdir")


def test_a_run_that_is_told_to_end_saves(start, tmp_path):
  job = start("config.py", "gs://bucket/runs/x")
  log_of(tmp_path, "x", "workdir")
  job.terminate()
  assert job.wait(10) == 75
  assert log_of(tmp_path, "x", "saved") == job.stdout.read()


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
  jobs = sweep.plan(*sweep.load(file))
  command = ["lab", "sweep", file, "-o", str(tmp_path)]
  assert app.run([*command, "--prepare=1"]) == 0
  (said,) = capsys.readouterr().out.splitlines()
  assert said == str(tmp_path / jobs[1].id)
  assert job_files.load(f"rerun:{said}/config.json").to_json(indent=2) == jobs[1].text
  assert app.run([*command, f"--prepare={len(jobs)}"]) == 2
  assert f"the sweep has {len(jobs)} runs" in capsys.readouterr().err


RECIPE = ROOT / "launch" / "Dockerfile"


def instructions():
  """(instruction, rest) of the recipe's lines."""
  lines = [line for line in RECIPE.read_text().splitlines() if line and not line.startswith("#")]
  return [tuple(line.split(None, 1)) for line in lines]


def test_what_the_recipe_copies_is_there_and_has_what_it_runs():
  copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY"]
  names = [name for sources in copied for name in sources]
  assert all((ROOT / name).exists() for name in names)
  assert {"requirements.txt", "as2jax", "configs"} <= set(names)
  (run,) = [rest for word, rest in instructions() if word == "RUN"]
  script = next(word for word in shlex.split(run) if word.endswith(".sh"))
  sourced = [
    line.split()[1] for line in (ROOT / script).read_text().splitlines() if line[:2] == ". "
  ]
  assert {script, *sourced} <= set(names)


@pytest.mark.slow  # installs all packages, half a minute
def test_the_recipes_commands_install_what_ranks(tmp_path):
  place = tmp_path / "as2jax"
  place.mkdir()
  environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
  environment |= {"AS2JAX_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
  python = pathlib.Path(sys.executable).resolve()
  for word, rest in instructions():
    if word == "ARG":
      name, _, value = rest.partition("=")
      environment[name] = value
    elif word == "COPY":
      *sources, target = rest.split()
      for source in sources:
        to = place / target / (pathlib.Path(source).name if target.endswith("/") else "")
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
          shutil.copytree(ROOT / source, to)
        else:
          shutil.copy(ROOT / source, to)
    elif word == "RUN":
      command = rest.replace("/usr/local/bin/python3.11", str(python))
      assert str(python) in command
      done = finished(["bash", "-c", command], cwd=place, env=environment)
      if "could not install" in done.stderr or "uv cannot be fetched" in done.stderr:
        pytest.skip(f"no packages here: {done.stderr.strip().splitlines()[0]}")
      assert done.returncode == 0, done.stderr[-2000:]
    elif word == "ENTRYPOINT":
      ranks = ["train", "wikiqa_baseline:bm25,sample", "-o", str(tmp_path / "run")]
      subprocess.run([*json.loads(rest), *ranks], cwd=place, env=environment, check=True)
  assert (tmp_path / "run" / "results.json").exists()


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
  command = [programs / "bash", tmp_path / "launch" / "install.sh", "cpu"]
  done = finished(command, env={"PATH": str(programs)})
  assert done.returncode == 1
  assert "install.sh: uv cannot be fetched: check the network" in done.stderr


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path):
  weights = tmp_path / "sentence-transformers/all-mpnet-base-v2/model.safetensors"
  weights.parent.mkdir(parents=True)
  weights.write_bytes(b"others")
  environment = {"PATH": os.environ["PATH"], "AS2JAX_DATA": str(tmp_path)}
  done = finished(["bash", ROOT / "launch" / "mpnet.sh"], env=environment)
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
  done = finished(["bash", "-euc", program], check=True)
  assert done.stdout == f"{kind}\n"
  assert ("nvidia-smi names no driver" in done.stderr) == (kind == "cpu")


@pytest.mark.parametrize("program", [". launch/environment.sh; make_venv", "bash launch/mpnet.sh"])
def test_a_python_that_is_named_and_does_not_do_is_refused(tmp_path, program):
  shutil.copytree(ROOT / "launch", tmp_path / "launch", ignore=shutil.ignore_patterns("benchmarks"))
  for python in ("/no/such/python", "false"):
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": python, "AS2JAX_DATA": str(tmp_path / "data")}
    done = finished(["bash", "-euc", program], cwd=tmp_path, env=environment)
    assert done.returncode == 1 and f"PYTHON={python} is no Python 3.11 or later" in done.stderr
  assert [path.name for path in tmp_path.iterdir()] == ["launch"]


FURTHER = """#!/bin/sh
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
    python.write_text(FURTHER.format(pip=pip, index=index, further=further, status=status))
    python.chmod(0o755)
  for name in ("bash", "basename", "cp", "dirname", "mkdir", "sh"):
    (tmp_path / "path" / name).symlink_to(shutil.which(name))
  done = finished(["bash", tmp_path / ".ci/run"], env={"PATH": str(tmp_path / "path")})
  assert done.returncode == ends, done.stderr
  assert says in done.stdout + done.stderr
  ran = (tmp_path / "ran").read_text().splitlines()
  assert "/.venv/bin/python -m pytest" in ran[0] and "not long" in ran[0]
  assert ("NOT CHECKED" in done.stdout) == (says != "under" and ends == 0)
  assert (len(ran) == 1) == (says != "under")
  assert all("/.venv-3.13/bin/python -m pytest" in run for run in ran[1:])
