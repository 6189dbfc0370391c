"""Ranking a split beside sentence-transformers: like work, texts of each block alone, both speeds."""

import json
import sys

import numpy as np
import pytest

from as2jax.data import dataset as datasets
from as2jax.runtime.errors import InputError
from launch.benchmarks import rank_split


def side(seen, add=0.0):
  """Scores candidates by their lengths, and notes their texts."""

  def scores(questions):
    seen.append({c.text for q in questions for c in q.candidates})
    return [np.array([add + len(c.text) for c in q.candidates], float) for q in questions]

  return scores


def test_no_block_has_another_ones_texts():
  seen, questions = [], datasets.load("sample").splits["test"][:3]
  seconds = rank_split.timed({"as2jax": side(seen), "other": side([])}, questions, 2)
  assert {name: len(own) for name, own in seconds.items()} == {"as2jax": 2, "other": 2}
  assert len(seen) == 3 and not (seen[0] & seen[1] or seen[1] & seen[2] or seen[0] & seen[2])


@pytest.mark.parametrize("add", [0.01, float("nan")])
def test_unlike_scores_are_an_error(add):
  questions = datasets.load("sample").splits["test"][:3]
  with pytest.raises(InputError, match="apart: they do unlike work"):
    rank_split.timed({"as2jax": side([]), "other": side([], add)}, questions, 1)


def test_both_speeds_are_of_candidates(tmp_path, monkeypatch, capsys):
  seen = []
  monkeypatch.setattr(rank_split, "ours", lambda source: side(seen))
  monkeypatch.setattr(rank_split, "theirs", lambda source, kind: side([]))
  monkeypatch.setattr(
    rank_split, "timed", lambda *_: {"as2jax": [2.0, 4.0], "sentence-transformers": [4.0, 4.0]}
  )
  file = tmp_path / "result.json"
  options = ["rank_split", "--data=sample", "--questions=5", f"--json={file}"]
  monkeypatch.setattr(sys, "argv", options)
  rank_split.main()
  count = sum(len(q.candidates) for q in datasets.load("sample").splits["test"][:5])
  content = json.loads(file.read_text())
  assert content["as2jax"]["speed"] == count / 3
  assert content["sentence-transformers"] == {
    "speed": count / 4,
    "ratio": 1.5,
    "ratio_of_each_block": [2.0, 1.0],
  }
  assert f"{count} candidates of 5 questions" in capsys.readouterr().out
