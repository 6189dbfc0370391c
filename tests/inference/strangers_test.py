"""Attacks by a run's folder: no verb imports the code that it names, or uses the caches that it names."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import as2jax
from as2jax.commands import app
from as2jax.config import jobs
from as2jax.experiments import distil, mine, near_duplicates
from as2jax.inference import explain, export
from as2jax.main import main
from as2jax.report import make
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
EVIL = "import pathlib\npathlib.Path(__file__).with_name('marker').touch()\n"
TEXTS = ["--text-question=who sat", "--text-candidate=the cat sat"]
VERBS = [
  "rank run q.csv",
  "evaluate run",
  "evaluate run --data=q.csv",
  "report run",
  "report run --explain=0",
  "export run out",
  "explain run",
  "index run q.csv -o out --columns=text=candidate",
  "search index cats",
  "search good cats --rerank=run",
  "serve run --port=0",
  "serve whole --port=0 --index=index",
  "train run",
  "train rerun:run/config.json -o out",
  "train configs/rerun.py:run/config.json -o out",
  "data near-duplicates run",
  "data near-duplicates whole --encoder=run",
  "lab mine run q.csv -o out",
  "lab distill q.csv -o out --teacher=run",
  "lab distill q.csv -o out --cross-fit=rerun:run/config.json",
  "lab sweep --base=rerun:run/config.json --grid=epochs=1,2 -o out",
  "lab compile rerun:run/config.json",
]
DOORS = {
  "load": lambda: as2jax.load("run"),
  "open_run": lambda: as2jax.open_run("run"),
  "evaluate": lambda: as2jax.evaluate("run", "q.csv"),
  "Index.open": lambda: as2jax.Index.open("index"),
  "train": lambda: as2jax.train("rerun:run/config.json", "out"),
  "of_run": lambda: jobs.of_run("run/config.json"),
  "export": lambda: export.export("run", "out"),
  "explain": lambda: explain.make("run", "x.png", question="a", candidates=["b"]),
  "report": lambda: make.make(["run"], "x.html"),
  "mine": lambda: mine.mine("run", as2jax.dataset("sample").questions, "out"),
  "distil": lambda: distil.distil(as2jax.dataset("sample").questions, "out", ["run"]),
  "embedder": lambda: near_duplicates.embedder("run"),
  "main": lambda: main(["--config=rerun:run/config.json", "--workdir=out"]),
  "main, predict": lambda: main(
    ["--config=rerun:run/config.json", "--workdir=run", "--config.mode=predict"]
  ),
}


HOSTILE = ("programs-of-evil", "caches-of-evil")  # folders, which must not even be made


def change(run, **values):
  """Change keys of a run's config, and its digest in the run's record, as a stranger may."""
  stored = json.loads((run / "config.json").read_text())
  for key, value in values.items():
    section, _, name = key.rpartition("__")
    (stored[section] if section else stored)[name] = value
  bound.write(run, "config.json", json.dumps(stored))


@pytest.fixture(scope="module")
def place(finished_run, tmp_path_factory):
  """A folder with evil.py, a run, `whole`, a hostile one of it, an index of each, and questions."""
  place = tmp_path_factory.mktemp("strangers")
  rows = "what is ice,Ice is frozen water.,1\nwhat is ice,A stone.,0\n"
  (place / "q.csv").write_text("question,candidate,label\n" + rows)
  for name, index in (("whole", "good"), ("run", "index")):
    shutil.copytree(finished_run("triplet"), place / name)
    as2jax.load(place / name).index(["Ice is frozen.", "A cat."], path=str(place / index))
  (place / "evil.py").write_text(EVIL)
  programs, caches = (str(place / name) for name in HOSTILE)
  change(place / "run", model__name="evil:Evil", compilation_cache=programs, data__cache=caches)
  return place


@pytest.fixture(autouse=True)
def _nothing_of_the_stranger_happens(place, monkeypatch):
  monkeypatch.chdir(place)
  before = sorted(os.listdir(place))
  yield
  shutil.rmtree("out", ignore_errors=True)  # an empty folder of what could not begin
  assert sorted(os.listdir(place)) == before and "evil" not in sys.modules


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_imports_what_a_run_names(verb, capsys):
  assert app.run([*verb.split(), *TEXTS] if verb == "explain run" else verb.split()) == 2
  error = capsys.readouterr().err
  assert "'evil:Evil' is code of the module 'evil'" in error and "--allow-code" in error


@pytest.mark.parametrize("door", DOORS)
def test_no_door_of_python_imports_what_a_run_names(door):
  with pytest.raises(InputError, match="model.name = 'evil:Evil' is code.*allow_code=True"):
    DOORS[door]()


@pytest.mark.parametrize("section", ["loss", "encoder"])
def test_no_section_of_a_config_is_imported(section, tmp_path):
  shutil.copytree("whole", tmp_path / "run")
  change(tmp_path / "run", **{f"{section}__name": "evil:Evil"})
  with pytest.raises(InputError, match=f"{section}.name = 'evil:Evil' is code"):
    as2jax.load(tmp_path / "run")


@pytest.mark.parametrize("system", ["triplet", "word_overlap"])
def test_the_caches_that_a_run_names_are_not_used(system, finished_run, place, tmp_path):
  """Neither as a folder of programs nor as that of caches; also by a process that has no other."""
  run = shutil.copytree(finished_run(system), tmp_path / "run")
  hostile = [str(tmp_path / name) for name in HOSTILE]
  change(run, compilation_cache=hostile[0], data__cache=hostile[1])
  verbs = f"rank {run} q.csv; evaluate {run} --data=q.csv; index {run} q.csv --columns=text=candidate -o {tmp_path}/i"
  for verb in verbs.split("; ") if system == "triplet" else ():
    assert app.run(verb.split()) == 0
    assert not any(map(os.path.exists, hostile))
  if system == "word_overlap":  # which compiles nothing
    environment = {**os.environ, "AS2JAX_CACHE": str(tmp_path / "mine"), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "as2jax", "rank", str(run), str(place / "q.csv")]
    assert not subprocess.call(command, env=environment, cwd=ROOT, timeout=300)
    assert (tmp_path / "mine/programs").exists() and not any(map(os.path.exists, hostile))
