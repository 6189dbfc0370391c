"""Rows of configs/papers/results: one small file each, of the run that its row states."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from as2jax.data import trec_files
from as2jax.evaluation import results, run_scores
from as2jax.experiments.papers import collected, measured
from as2jax.experiments.papers.rows import Peer, Run
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

BM25 = Run("configs/wikiqa_baseline.py:bm25,sample", name="x")
FILES = {"config.json", "results.json", results.LEDGER, "per_question.tsv"}


def unpacked(path):
  with collected.unpacked(path.parent, path.name.removesuffix(collected.PACKED)) as rows:
    copy = path.parent / "unpacked" / path.name
    shutil.rmtree(copy, ignore_errors=True)
    return pathlib.Path(shutil.copytree(next(rows.iterdir()), copy))


@pytest.fixture
def run(finished_run, tmp_path):
  """A finished run that may be changed, and how its results are."""
  source = tmp_path / "run"
  shutil.copytree(finished_run("bm25"), source)
  return source


def change(path, **values):
  bound.write(path.parent, path.name, json.dumps(json.loads(path.read_text()) | values))


def test_every_row_is_small_has_no_path_and_gives_its_results(kept_rows):
  runs = measured.kept_runs()
  for folder in sorted(kept_rows.iterdir()):
    files = [path for path in folder.rglob("*") if path.is_file()]
    packed = collected.folder() / f"{folder.name}{collected.PACKED}"
    assert packed.stat().st_size <= 150_000
    if isinstance(runs[folder.name], Peer):
      known = (collected.SEEDS, results.LEDGER)
      assert all(path.name in known or path.name[:5] == "seed-" for path in files)
      continue
    assert {path.name for path in files} <= FILES
    for path in files:
      if path.suffix == ".json":
        assert not collected._PATH.search(path.read_text(encoding="utf-8")), path
    collected.check_config(folder, runs[folder.name])
    for split in results.splits_of(results.read(folder)):
      run_scores.load([str(folder)], split=split)  # refuses tables that do not give the results


def test_a_row_is_compared_like_its_run_and_packed_to_the_same_bytes(run, tmp_path):
  path = collected.collect(run, BM25, tmp_path / "kept")
  packed = path.read_bytes()
  (ours,), (theirs,) = (run_scores.load([str(f)]) for f in (unpacked(path), run))
  assert ours.ids == theirs.ids and ours.deterministic
  assert ours.metric("map") == pytest.approx(theirs.metric("map"), abs=1e-9)
  assert collected.collect(run, BM25, tmp_path / "kept").read_bytes() == packed
  path.write_bytes(packed[:-20])
  with pytest.raises(InputError, match="is not a whole row"):
    unpacked(path)


def test_a_run_of_another_config_is_refused(run, tmp_path):
  config = json.loads((run / "config.json").read_text())
  patience = config.pop("patience")  # as of a key that came after the run
  change(run / "config.json", select="mrr")
  with pytest.raises(InputError, match="no run of the row x:\n.*select: 'mrr' there"):
    collected.collect(run, BM25, tmp_path / "kept")
  bound.write(run, "config.json", json.dumps(config))
  assert collected.collect(run, BM25, tmp_path / "kept").name == "x.tar.xz"
  with pytest.raises(InputError, match=f"patience: {patience} there, 99 now"):
    collected.collect(run, BM25._replace(settings={"patience": 99}), tmp_path)


def test_what_else_is_not_collected(run, tmp_path):
  with pytest.raises(InputError, match="is not finished"):
    collected.collect(tmp_path, BM25, tmp_path / "kept")
  with pytest.raises(InputError, match="holds no seeds.jsonl"):
    collected.collect(run, Peer("", "x"), tmp_path / "kept")
  text = '"/home/me/runs/x.txt" map[x/test] https://a/b ~/y/z'
  assert collected._PATH.sub("", text) == '"x.txt" map[x/test] https://a/b z'


def test_evaluations_of_a_replaced_run_stay_in_the_ledger(run, tmp_path):
  def times():
    path = collected.collect(run, BM25, tmp_path / "kept")
    return results.times_evaluated(unpacked(path), "test", "sample").most

  assert times() == times() == 1  # the same run again
  ledger = run / results.LEDGER
  bound.write(run, ledger.name, ledger.read_text().replace('"time": "20', '"time": "30'))
  assert times() == times() == 2
  ledger.unlink()
  assert times() == 2


def test_a_run_adds_its_seeds_to_a_row_of_its_recipe(run, finished_run, tmp_path):
  other, here = tmp_path / "other", tmp_path / "kept"
  shutil.copytree(finished_run("idf_overlap"), other)
  bound.write(other, "config.json", (run / "config.json").read_text())

  def collect(seed, **values):
    (outcome,) = json.loads((other / "results.json").read_text())["seeds"]
    began = {"seeds": [{"seed": seed, "sha256": "b"}]}
    change(other / "results.json", seeds=[outcome | {"seed": seed}], warm_start=began, **values)
    ledger = (other / results.LEDGER).read_text()
    bound.write(other, results.LEDGER, re.sub(r'"seeds": \[.\]', f'"seeds": [{seed}]', ledger))
    row = unpacked(collected.collect(other, BM25, here))
    return row, results.read(row), *run_scores.load([str(row)])

  change(run / "results.json", warm_start={"seeds": [{"seed": 0, "sha256": "a"}]})
  collected.collect(run, BM25, here)
  ours, theirs = (run_scores.load([str(folder)])[0].metric("map")[0] for folder in (run, other))
  row, content, scores = collect(3)
  assert [outcome["seed"] for outcome in content["seeds"]] == [0, 3]
  assert json.loads((row / "config.json").read_text())["seeds"] == [0, 3]
  values = scores.metric("map")
  assert values == pytest.approx(np.stack([ours, theirs]), abs=1e-9)
  assert content["metrics"]["map[sample-clean/test]"]["mean"] == pytest.approx(values.mean())
  assert results.times_evaluated(row, "test", "sample") == (1, 1) and scores.origins == ("a", "b")
  assert not collected.changed_code(row)
  row, content, scores = collect(0, identity=content["identity"] | {"code": "1"})
  assert scores.metric("map") == pytest.approx(np.stack([theirs, theirs]), abs=1e-9)
  assert results.times_evaluated(row, "test", "sample") == (1, 2) and collected.changed_code(row)
  splits = dict.fromkeys(content["data"]["splits"], {"fingerprint": "0"})
  began = [("identity", of, "0") for of in ("weights", "tokenizer", "inputs")]
  for part, of, value in (("data", "splits", splits), *began):
    with pytest.raises(InputError, match=f"other data|bm25: .* not begin with the same {of}"):
      collect(5, **{part: content[part] | {of: value}})


def test_a_row_says_what_trained_it_and_how_long(run, tmp_path):
  outcome = json.loads((run / "results.json").read_text())["seeds"][0]
  outcome |= {"steps": 20, "diagnostics": {"kl": 1.5, "generated": ["a text"]}}
  lines = ({"seed": 0, "step": 10 * i, "seconds_per_step": 3.0 - i} for i in (1, 2))
  (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
  change(run / "results.json", seeds=[outcome])
  row = unpacked(collected.collect(run, BM25, tmp_path / "kept"))
  assert collected.training(row) == (30.0, 1, "")
  assert "diagnostics" not in results.read(row)["seeds"][0]  # they may hold texts of the data
  change(run / "results.json", execution={"backend": "gpu", "device": "A 7"})
  row = unpacked(collected.collect(run, BM25, tmp_path / "kept"))
  assert collected.training(row).device == "A 7"


def test_a_peer_is_kept_by_its_tables(run, tmp_path):
  source = tmp_path / "peer"
  source.mkdir()
  table = run / "eval/test/per_question.tsv"
  for seed in range(2):
    shutil.copy(table, source / f"seed-{seed}.test.tsv")
  (source / collected.SEEDS).write_text('{"seconds": 30.0}\n{"seconds": 50.0}\n')
  row = unpacked(collected.collect(source, Peer("", "peer"), tmp_path / "kept"))
  assert collected.training(row) == (80.0, 2, "")
  first, _ = collected.peer_tables(row, "test").split(",")
  ours, theirs = (trec_files.read_per_question(file)[1]["map"] for file in (first, table))
  assert ours == pytest.approx(theirs, abs=1e-9)
  assert collected.peer_tables(row, "dev") == ""
