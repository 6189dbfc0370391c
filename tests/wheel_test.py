"""The built wheel, without the repository: jobs by name, a finished run opened from any folder."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import tiny

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  """The wheel, built from a copy of what it is made of."""
  folder = tmp_path_factory.mktemp("wheel")
  for name in ("as2jax", "configs"):
    shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
  for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, folder / name)
  options = ["--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={folder / 'dist'}"]
  subprocess.run([*PIP, "wheel", *options, str(folder)], check=True, timeout=300)
  (built,) = (folder / "dist").glob("as2jax-*.whl")
  return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
  """run(code or module arguments…) in an empty folder, with the wheel's package alone."""
  target, empty = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("empty")
  options = ["--no-deps", "--no-index", f"--target={target}"]
  subprocess.run([*PIP, "install", *options, str(wheel)], check=True, timeout=300)

  def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(target), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
      [sys.executable, *arguments],
      cwd=empty,
      env=environment,
      capture_output=True,
      text=True,
      timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  return run


def test_it_holds_each_job_once(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  expected = {p.relative_to(ROOT / "configs").as_posix() for p in (ROOT / "configs").rglob("*.py")}
  assert {n.removeprefix("as2jax/jobs/") for n in names if n.startswith("as2jax/jobs/")} == expected
  tops = {name.split("/")[0] for name in names}
  assert {top for top in tops if not top.endswith(".dist-info")} == {"as2jax"}
  modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.py")}
  assert modules <= set(names)
  assert {n for n in names if n.endswith(".tsv")} == {
    p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.tsv")
  }


def test_the_package_names_no_module_of_the_repository():
  for path in (ROOT / "as2jax").rglob("*.py"):
    for line in path.read_text().splitlines():
      assert not line.strip().startswith(("from configs", "import configs", "from launch")), path


def test_importing_it_is_light(installed):
  code = "import sys, as2jax; print('jax' in sys.modules, 'open_run' in dir(as2jax))"
  assert installed("-c", code).split() == ["False", "True"]


@pytest.mark.slow
def test_a_run_from_an_empty_folder(installed):
  installed(
    "-m",
    "as2jax.main",
    "--config=wikiqa_triplet:sample",
    "--workdir=run",
    "--config.epochs=0",
    f"--config.encoder.pretrained={tiny.encoder_folder()}",
  )
  code = """
import as2jax, json
run = as2jax.open_run("run")
hits = run.ranker().rank("who sat", ["the cat sat", "a dog came", "nobody"], top_k=2)
print(json.dumps([as2jax.__file__, run.config.model.name, [hit.text for hit in hits]]))
"""
  place, name, texts = json.loads(installed("-c", code).splitlines()[-1])
  assert not place.startswith(str(ROOT)) and name == "triplet" and len(texts) == 2
  again = installed("-m", "as2jax.main", "--config=rerun:run/config.json", "--workdir=run")
  assert "map[sample-clean/test]" in again
  tables = installed("-m", "as2jax.experiments.papers.tables", "--help")
  assert "usage" in tables
  code = "from as2jax.experiments.papers import plan; print(len(plan.load('cete_table3').rows))"
  assert int(installed("-c", code)) > 3
