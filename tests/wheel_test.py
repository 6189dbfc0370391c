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

from as2jax.commands import process

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
  """run(arguments of Python…) in an empty folder, with the wheel's package alone.

  With `base=True` nothing can be imported that the extras add.
  """
  target, empty = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("empty")
  options = ["--no-deps", "--no-index", f"--target={target}"]
  subprocess.run([*PIP, "install", *options, str(wheel)], check=True, timeout=300)

  bare = tmp_path_factory.mktemp("bare")
  (bare / "sitecustomize.py").write_text(
    f"import sys\nfor name in {sorted(process.EXTRAS)!r}:\n  sys.modules[name] = None\n"
  )

  def run(*arguments, base=False):
    path = os.pathsep.join([str(target), *[str(bare)] * base])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
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

  run.folder, run.script = empty, target / "bin" / "as2jax"
  return run


def test_it_holds_each_job_once(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  expected = {p.relative_to(ROOT / "configs").as_posix() for p in (ROOT / "configs").rglob("*.py")}
  assert {n.removeprefix("as2jax/jobs/") for n in names if n.startswith("as2jax/jobs/")} == expected
  tops = {name.split("/")[0] for name in names}
  assert {top for top in tops if not top.endswith(".dist-info")} == {"as2jax"}
  modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.py")}
  assert modules <= set(names)
  assert {"as2jax/report/page.css", "as2jax/report/page.js"} <= set(names)
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
  assert "cete_table3" in installed("-m", "as2jax", "lab", "paper")
  code = "from as2jax.experiments.papers import plan; print(len(plan.load('cete_table3').rows))"
  assert int(installed("-c", code)) > 3


FAQ = [
  ("how do I reset my password", "Open the settings, choose security, and reset the password.", 1),
  ("how do I reset my password", "We ship within three days.", 0),
  ("when will my parcel arrive", "We ship within three days.", 1),
  ("when will my parcel arrive", "You may pay by card.", 0),
  ("can I pay by card", "You may pay by card.", 1),
  ("can I pay by card", "Open the settings, choose security, and reset the password.", 0),
]


@pytest.mark.slow
def test_an_engineers_faq_from_an_empty_folder(installed):
  """Train, rank and search with the base install alone, compare, export, by the installed command."""
  folder, command = installed.folder, str(installed.script)
  lines = ["question\tcandidate\tlabel", *("\t".join(map(str, row)) for row in FAQ)]
  (folder / "faq.tsv").write_text("\n".join(lines) + "\n")
  files = ["--train=faq.tsv", "--dev=faq.tsv", "--format=json"]
  tiny_encoder = f"encoder.pretrained={tiny.encoder_folder()}"
  given = ["-o", "runs/faq", "--set", "epochs=1", "--set", tiny_encoder]
  metrics = installed(command, "train", "--recipe=triplet", *files, *given)
  assert json.loads(metrics.splitlines()[0])["metric"] == "map[files-clean/dev]"
  installed(command, "train", "--recipe=bm25", *files, "-o", "runs/bm25", base=True)
  rows = installed(command, "compare", "runs/bm25", "runs/faq", "--split=dev", "--samples=100")
  assert {json.loads(row)["system"] for row in rows.splitlines()} == {"runs/bm25", "runs/faq"}
  ranked = installed(command, "rank", "runs/faq", "faq.tsv", "--top=1", base=True)
  best = [json.loads(row) for row in ranked.splitlines()]
  assert len(best) == 3 and {row["rank"] for row in best} == {1}
  answers = dict.fromkeys(candidate for _, candidate, _ in FAQ)
  (folder / "answers.txt").write_text("\n".join(answers) + "\n")
  installed(command, "index", "runs/faq", "answers.txt", "-o", "faq.index", base=True)
  found = installed(command, "search", "faq.index", FAQ[0][0], "--top=2", base=True)
  hits = [json.loads(row) for row in found.splitlines()]
  assert len(hits) == 2 and {hit["text"] for hit in hits} <= set(answers)
  (score,) = (row["score"] for row in best if row["question"] == FAQ[0][0])
  assert hits[0]["score"] >= score - 1e-5  # the best of all answers, not of the question's own
  installed(command, "export", "runs/faq", "exported")
  transformers = pytest.importorskip("sentence_transformers")
  model = transformers.SentenceTransformer(str(folder / "exported"), device="cpu")
  for row in best:
    question, candidate = model.encode([row["question"], row["candidate"]])
    assert row["score"] == pytest.approx(
      -float(((question - candidate) ** 2).sum() ** 0.5), abs=1e-5
    )
