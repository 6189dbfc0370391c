"""The container's recipe, by its own commands in an empty folder: no container is built here."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
      done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True
      )
      if "could not install" in done.stderr or "uv cannot be fetched" in done.stderr:
        pytest.skip(f"no packages here: {done.stderr.strip().splitlines()[0]}")
      assert done.returncode == 0, done.stderr[-2000:]
    elif word == "ENTRYPOINT":
      ranks = ["train", "wikiqa_baseline:bm25,sample", "-o", str(tmp_path / "run")]
      subprocess.run([*json.loads(rest), *ranks], cwd=place, env=environment, check=True)
  assert (tmp_path / "run" / "results.json").exists()
