"""The built wheel, without the repository: jobs by name, a finished run opened from any folder."""

import json
import pathlib
import zipfile

import pytest
import tiny

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_it_holds_each_job_once(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  files = [*(ROOT / "configs").rglob("*.py"), *(ROOT / "configs").rglob("*.toml")]
  expected = {path.relative_to(ROOT / "configs").as_posix() for path in files}
  assert {n.removeprefix("as2jax/jobs/") for n in names if n.startswith("as2jax/jobs/")} == expected
  tops = {name.split("/")[0] for name in names}
  assert {top for top in tops if not top.endswith(".dist-info")} == {"as2jax"}
  modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.py")}
  assert modules <= set(names)
  assert {
    f"as2jax/report/templates/{name}" for name in ("page.css", "page.js", "runs.html.j2")
  } <= set(names)
  assert {n for n in names if n.endswith(".tsv")} == {
    p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.tsv")
  }


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
  assert "cete_table3" in installed("-m", "as2jax", "lab", "paper")
  code = "from as2jax.experiments.papers import rows; print(len(rows.load('cete_table3').rows))"
  assert int(installed("-c", code)) > 3
