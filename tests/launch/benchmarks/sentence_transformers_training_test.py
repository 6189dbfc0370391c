"""What sentence-transformers is trained on, and which epoch is kept."""

import argparse
import collections
import types

import numpy as np
import pytest

from as2jax.data.record import Candidate, Question
from as2jax.data.trec_files import read_per_question, read_run
from as2jax.evaluation import results
from as2jax.runtime.errors import InputError
from launch.benchmarks import sentence_transformers_training as training


def question(number: int, labels: str) -> Question:
  candidates = [
    Candidate(f"q{number}-{i}", f"text {number} {i}", int(label)) for i, label in enumerate(labels)
  ]
  return Question(f"q{number}", f"question {number}", tuple(candidates))


def test_each_answer_has_a_row_and_each_negative_is_drawn_before_any_is_drawn_again():
  rows = training.answer_rows([question(0, "1001"), question(1, "100000000")], 5, seed=0)
  assert rows["anchor"] == ["question 0", "question 0", "question 1"]
  assert rows["positive"] == ["text 0 0", "text 0 3", "text 1 0"]
  drawn = [[rows[f"negative_{k + 1}"][i] for k in range(5)] for i in range(3)]
  for row in drawn[:2]:  # two negatives, five drawn
    assert sorted(collections.Counter(row).values()) == [2, 3]
    assert set(row) == {"text 0 1", "text 0 2"}
  assert len(set(drawn[2])) == 5
  assert rows != training.answer_rows([question(0, "1001"), question(1, "100000000")], 5, seed=1)


def test_each_question_has_a_row_of_its_candidates():
  rows = training.list_rows([question(0, "10"), question(1, "0")])
  assert rows == {
    "question": ["question 0", "question 1"],
    "candidates": [["text 0 0", "text 0 1"], ["text 1 0"]],
    "labels": [[1.0, 0.0], [0.0]],
  }


def test_the_epoch_that_is_best_on_dev_is_kept(tmp_path, monkeypatch):
  pytest.importorskip("torch")
  data = types.SimpleNamespace(
    splits={"dev": (question(0, "01"), question(1, "00")), "test": (question(2, "10"),)}
  )
  # Before training, then three epochs: the second alone ranks dev's answer first.
  epochs, scored = iter(([0, 1], [1, 0], [0, 1], [1, 0])), []

  class Model:
    def state_dict(self):
      return {"scores": self.scores}

    def load_state_dict(self, state):
      self.scores = state["scores"]

    def train(self):
      pass

    eval = train

  class Trainer:
    model = Model()

    def add_callback(self, callback):
      self.callback = callback

    def train(self):
      for _ in range(3):
        self.model.scores[:] = next(epochs)
        self.callback.on_epoch_end(None, None, None)

  def score(asked):
    scored.append(asked)
    return [np.asarray(Trainer.model.scores, np.float32) for _ in asked]

  Trainer.model.scores = next(epochs)
  monkeypatch.setitem(training.KINDS, "bi", lambda *_: (Trainer(), score))
  flags = argparse.Namespace(kind="bi", data="made", output=tmp_path, warmup=0.1)
  record, _ = training.train(flags, data, [], "a loss", 1e-4, 3)
  assert record["dev_map"] == [1.0, 0.5, 1.0, 0.5]
  assert record["epoch"] == 2 and record["seconds"] >= 0
  assert record["warmup"] == 0.1 and record["loss"] == "a loss"  # every flag, as it was
  assert data.splits["test"] not in scored
  Trainer.model.scores = [0, 0]
  again, _ = training.train(flags, data, [], "a loss", 1e-4, 3)
  assert again == record and Trainer.model.scores == [0, 1]  # not trained again
  assert results.times_evaluated(tmp_path, "dev", "made") == (1, 1)
  flags.warmup = 0.2
  with pytest.raises(InputError, match="was trained with another warmup"):
    training.train(flags, data, [], "a loss", 1e-4, 3)
  training.write(tmp_path, 0, {split: score(data.splits[split]) for split in data.splits}, data)
  assert set(read_run(tmp_path / "seed-0.test.run")) == {"q2"}
  assert set(read_run(tmp_path / "seed-0.dev.run")) == {"q0", "q1"}
  ids, table = read_per_question(tmp_path / "seed-0.dev.tsv")
  assert ids == ["q0", "q1"] and table["map"].tolist() == [1.0, 0.0]
