"""Attacks by a run's folder: no verb imports the code that it names, or uses the caches that it names."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import as2jax
from as2jax.commands import app
from as2jax.main import main
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).parents[2]
EVIL = "import pathlib\npathlib.Path(__file__).with_name('marker').touch()\n"
VERBS = """rank run q.csv; evaluate run; evaluate run --data=q.csv; report run; report run --explain=0
  explain run --text-question=a --text-candidate=b; export run out; serve run --port=0
  index run q.csv -o out --columns=text=candidate; search index cats; search good cats --rerank=run
  serve words --port=0 --index=index; train run; train rerun:run/config.json -o out
  data near-duplicates run; data near-duplicates whole --encoder=run; lab mine run q.csv -o out
  lab distill q.csv -o out --teacher=run; lab compile rerun:run/config.json
  lab distill q.csv -o out --cross-fit=rerun:run/config.json
  lab sweep --base=configs/rerun.py:run/config.json --grid=epochs=1,2 -o out"""
DOORS = {
  "load": lambda: as2jax.load("run"),
  "open_run": lambda: as2jax.open_run("run"),
  "evaluate": lambda: as2jax.evaluate("run", "q.csv"),
  "Index.open": lambda: as2jax.Index.open("index"),
  "train": lambda: as2jax.train("rerun:run/config.json", "out"),
  "main": lambda: main(
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
  shutil.copytree(finished_run("bm25"), place / "words")
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


@pytest.mark.parametrize("verb", re.split(r"; |\n\s*", VERBS))
def test_no_verb_imports_what_a_run_names(verb, capsys):
  assert app.run(verb.split()) == 2
  error = capsys.readouterr().err
  assert "'evil:Evil' is code of the module 'evil'" in error and "--allow-code" in error


def test_an_index_beside_the_model_that_made_it_opens_no_other():
  ranker = as2jax.load("whole")  # of the parameters of the hostile run
  assert as2jax.Index.open("index", beside=ranker).ranker is ranker


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


def test_the_caches_that_a_run_names_are_not_used(finished_run, place, tmp_path):
  """Neither as a folder of programs nor as that of caches; the last verb in a process without any."""
  hostile = [str(tmp_path / name) for name in HOSTILE]
  for system in ("triplet", "word_overlap"):
    run = shutil.copytree(finished_run(system), tmp_path / system)
    change(run, compilation_cache=hostile[0], data__cache=hostile[1])
  for verb in (f"rank {tmp_path}/triplet q.csv", f"evaluate {tmp_path}/triplet --data=q.csv"):
    assert app.run(verb.split()) == 0
  environment = {**os.environ, "AS2JAX_CACHE": str(tmp_path / "mine"), "JAX_PLATFORMS": "cpu"}
  command = [sys.executable, "-m", "as2jax", "rank", str(run), str(place / "q.csv")]
  assert not subprocess.call(command, env=environment, cwd=ROOT, timeout=300)
  assert (tmp_path / "mine/programs").exists() and not any(map(os.path.exists, hostile))
