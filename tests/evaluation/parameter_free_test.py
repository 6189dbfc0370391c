"""Rankers without parameters take the path of every system: train, evaluate, predict, refusals."""

import json

import numpy as np
import pytest
import tiny

from as2jax.data import load
from as2jax.evaluation import run_scores
from as2jax.inference import modes
from as2jax.models import lexical
from as2jax.runtime.errors import InputError


def config(name, **overrides):
  job_config = tiny.config("triplet", **overrides)
  with job_config.unlocked():
    job_config.model, job_config.loss = {"name": name}, {"name": "none"}
  return job_config.lock()


def test_seeds_of_a_ranker_without_randomness_are_one(tmp_path):
  run = str(tmp_path / "run")
  for seeds in ((0,), (0, 1, 2)):
    modes.run(config("bm25", seeds=seeds), run)
    assert run_scores.load([run])[0].metric("map").shape[0] == 1


def test_a_ranker_is_trained_evaluated_and_predicts(tmp_path):
  run, asked = tmp_path / "run", tmp_path / "asked.tsv"
  said = modes.run(config("idf_overlap"), str(run))
  assert "note: test was evaluated once with each seed" in said
  results = json.loads((run / "results.json").read_text())
  said = modes.run(config("idf_overlap", mode="evaluate"), str(run))
  assert "note: test was evaluated 2 times with each seed" in said and "one seed" not in said
  again = json.loads((run / "evaluation.json").read_text())
  tests = [name for name in results["metrics"] if name.endswith("/test]")]
  assert again["deterministic"] is True
  assert tests and all(again["metrics"][name] == results["metrics"][name] for name in tests)
  best = results["seeds"][0]["best_value"]
  assert best == results["metrics"]["map[sample-clean/dev]"]["mean"] > 0.3
  assert (run / "eval/test/run.trec").exists() and not (run / "checkpoints").exists()

  data = load.load(config("bm25").data)
  questions = [q for q in data.splits["test"] if q.candidates][:3]
  rows = [f"{q.id}\t{q.text}\t{c.id}\t{c.text}" for q in questions for c in q.candidates]
  asked.write_text("\n".join(["question_id\tquestion\tcandidate_id\tcandidate", *rows]) + "\n")
  modes.run(config("idf_overlap", mode="predict", predict__input=str(asked)), str(run))
  expected = lexical.IDFOverlap().fit(data.splits["train"]).score(questions)
  lines = [line.split("\t") for line in (run / "predictions.tsv").read_text().splitlines()[1:]]
  for question, scores in zip(questions, expected, strict=True):
    ranked = [float(score) for id, _, _, score, _, _ in lines if id == question.id]
    np.testing.assert_allclose(ranked, np.sort(scores)[::-1], rtol=1e-6)


def test_a_ranker_has_nothing_to_begin_with(tmp_path):
  with pytest.raises(InputError, match="bm25 has no parameters to begin with; set it to ''"):
    modes.run(config("bm25", warm_start__run="x", warm_start__scope="all"), str(tmp_path / "run"))


def test_a_score_that_is_not_finite_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(lexical, "inverse_frequency", lambda train: lambda word: float("nan"))
  with pytest.raises(InputError, match="the score 'idf_overlap' of candidate .* is nan"):
    modes.run(config("idf_overlap"), str(tmp_path / "run"))


HEADER = ("question", "candidate", "label")
OWN = [(f"q{i} word", f"answer {i} word {j}", int(j == 0)) for i in range(30) for j in range(3)]


def own(tmp_path, system, *, split, **overrides):
  """Ranks a person's own file, which is all the data there are; the names of the metrics."""
  path = tmp_path / "own.tsv"
  path.write_text("\n".join("\t".join(map(str, row)) for row in [HEADER, *OWN]) + "\n")
  paths = {f"data__{split}": str(path), "data__name": "files", "data__rules": ()}
  modes.run(config(system, **paths, **overrides), str(tmp_path / "run"))
  return json.loads((tmp_path / "run/results.json").read_text())["metrics"]


@pytest.mark.parametrize("system", ["word_overlap", "bm25"])
def test_a_test_file_alone_is_evaluated(tmp_path, system):
  metrics = own(tmp_path, system, split="test")
  assert metrics and {name.rpartition("/")[2] for name in metrics} == {"test]"}


def test_dev_without_an_answer_keeps_test_from_nothing(tmp_path):
  """Nothing is selected by it, where nothing is trained."""
  (tmp_path / "dev.tsv").write_text("question\tcandidate\tlabel\nwho\tnobody\t0\n")
  metrics = own(tmp_path, "word_overlap", split="test", data__dev=str(tmp_path / "dev.tsv"))
  assert metrics["map[files-clean/test]"]["questions"] == 30
  assert metrics["map[files-all/dev]"]["mean"] == 0


def test_a_ranker_that_counts_asks_for_train(tmp_path):
  with pytest.raises(InputError, match="files has no split 'train'"):
    own(tmp_path, "idf_overlap", split="test")


def test_training_questions_alone_are_parted(tmp_path):
  metrics = own(tmp_path, "idf_overlap", split="train", data__holdout=0.2)
  assert metrics["map[files-all/heldout]"]["questions"] == 6
  assert {name.rpartition("/")[2] for name in metrics} == {"heldout]"}
  (tmp_path / "again").mkdir()
  with pytest.raises(InputError, match=r"no split 'dev' .*hold training questions out"):
    own(tmp_path / "again", "idf_overlap", split="train")
