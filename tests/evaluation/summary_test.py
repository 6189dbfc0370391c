"""What a run says at its end."""

import json

import pytest

from as2jax.evaluation import results


def test_the_files_that_are_told_are_there(tmp_path):
  entry = {"seed": 0, "steps": 0, "best_epoch": 0, "notes": []}
  content = {"metrics": {}, "task": "rerank", "data": {"name": "x"}, "seeds": [entry]}
  told = lambda: results.summary(content, str(tmp_path)).splitlines()[0]
  for name in ("results.json", "eval/test/run.trec"):  # what a ranker of words leaves
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
  assert told() == f"files: {tmp_path}: results.json, eval/*/run.trec"
  (tmp_path / "eval/test/seed-1").mkdir()
  (tmp_path / "eval/test/run.trec").rename(tmp_path / "eval/test/seed-1/run.trec")
  for name in ("checkpoints/seed-1/best", "tensorboard"):
    (tmp_path / name).mkdir(parents=True)
  assert told().endswith(
    ": results.json, checkpoints/seed-*/best, eval/*/seed-*/run.trec, tensorboard"
  )
  (tmp_path / "checkpoints/seed-1/best").rename(tmp_path / "checkpoints/best")
  assert told().endswith(": results.json, checkpoints/best, eval/*/seed-*/run.trec, tensorboard")


@pytest.mark.parametrize("system, lines", [("bm25", 8), ("triplet", 10)])
def test_the_end_is_at_most_ten_lines(finished_run, system, lines):
  folder = finished_run(system)
  content = json.loads((folder / "results.json").read_text())
  told = results.summary(content, "runs/x").splitlines()
  assert len(told) <= lines
  split = told[0].partition(" ")[0]
  counts = {"dev": "30 questions, 264 candidates, 33", "test": "54 questions, 477 candidates, 63"}
  assert told[1] == f"  {counts[split]} of them right"
  assert any(line.startswith("best epoch ") for line in told) == (system == "triplet")
  export = ["       as2jax export runs/x FOLDER"] * (system == "triplet")  # bm25 has no parameters
  split = "" if "test (" in "".join(told) else f" --split={told[0].partition(' ')[0]}"
  expected = ["next:  as2jax rank runs/x FILE", f"       as2jax compare OTHER_RUN runs/x{split}"]
  assert told[-len(expected + export) :] == expected + export
