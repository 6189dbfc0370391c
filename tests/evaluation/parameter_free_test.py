"""Rankers without parameters take the path of every system: train, evaluate, predict, refusals."""

import json

import pytest
import tiny

from as2jax.evaluation import run_scores
from as2jax.inference import modes
from as2jax.runtime.errors import InputError


def config(name, **overrides):
  job_config = tiny.config("triplet", **overrides)
  with job_config.unlocked():
    job_config.model, job_config.loss = {"name": name}, {"name": "none"}
  return job_config.lock()


HEADER = ("question", "candidate", "label")
OWN = [(f"q{i} word", f"answer {i} word {j}", int(j == 0)) for i in range(30) for j in range(3)]


def own(tmp_path, system, *, split, **overrides):
  """Ranks a person's own file, which is all the data there are; the names of the metrics."""
  path = tmp_path / "own.tsv"
  path.write_text("\n".join("\t".join(map(str, row)) for row in [HEADER, *OWN]) + "\n")
  paths = {f"data__{split}": str(path), "data__name": "files", "data__rules": ()}
  modes.run(config(system, **paths, **overrides), str(tmp_path / "run"))
  return json.loads((tmp_path / "run/results.json").read_text())["metrics"]


def test_a_test_file_alone_is_evaluated(tmp_path):
  metrics = own(tmp_path, "bm25", split="test")
  assert metrics and {name.rpartition("/")[2] for name in metrics} == {"test]"}
  with pytest.raises(InputError, match="files has no split 'train'"):
    (tmp_path / "counts").mkdir()
    own(tmp_path / "counts", "idf_overlap", split="test")


def test_training_questions_alone_are_parted(tmp_path):
  metrics = own(tmp_path, "idf_overlap", split="train", data__holdout=0.2)
  assert metrics["map[files-all/heldout]"]["questions"] == 6
  assert {name.rpartition("/")[2] for name in metrics} == {"heldout]"}
  (tmp_path / "again").mkdir()
  with pytest.raises(InputError, match=r"no split 'dev' .*hold training questions out"):
    own(tmp_path / "again", "idf_overlap", split="train")


def test_a_ranker_has_one_seed_and_gives_the_same_figures_again(tmp_path):
  run = tmp_path / "run"
  modes.run(config("idf_overlap", seeds=(0, 1, 2)), str(run))
  results = json.loads((run / "results.json").read_text())
  assert run_scores.load([str(run)])[0].metric("map").shape[0] == 1
  said = modes.run(config("idf_overlap", mode="evaluate"), str(run))
  assert "note: test was evaluated 2 times with each seed" in said and "one seed" not in said
  again = json.loads((run / "evaluation.json").read_text())
  tests = [name for name in results["metrics"] if name.endswith("/test]")]
  assert again["deterministic"] is True
  assert tests and all(again["metrics"][name] == results["metrics"][name] for name in tests)
  best = results["seeds"][0]["best_value"]
  assert best == results["metrics"]["map[sample-clean/dev]"]["mean"] > 0.3
