"""What an evaluation predicts: no question of a split whose metrics its scores cannot change."""

import dataclasses
import types

import numpy as np
import tiny

from as2jax.data import trec_files
from as2jax.data.dataset import Dataset
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.evaluation import significance, tasks


class Recorder:
  """In place of a predictor: scores drawn by question, and what was asked."""

  model = types.SimpleNamespace(score_names=("score",))

  def __init__(self):
    self.asked = []

  def __call__(self, variables, questions):
    self.asked.append([q.id for q in questions])
    drawn = lambda q: np.random.default_rng(int(q.id[1:])).normal(size=len(q.candidates))
    return [{"score": [drawn(q).astype(np.float32) for q in questions]}]


def rerank(labels_of_each):
  questions = tuple(
    Question(
      f"Q{i}", f"question {i}", tuple(Candidate(f"{i}-{j}", "a", l) for j, l in enumerate(labels))
    )
    for i, labels in enumerate(labels_of_each)
  )
  splits = {"train": questions[:1], "dev": questions}
  prints = {name: fingerprint(its) for name, its in splits.items()}
  data = Dataset("made", splits, "answerable", "", prints, official="all", average_recall=True)
  recorder = Recorder()
  return tasks.Rerank(tiny.config("triplet"), data, recorder), recorder, data


def test_questions_without_an_answer_are_not_predicted_and_change_no_figure():
  task, recorder, data = rerank([(0, 1, 0), (0, 0), (), (1, 0, 1, 0), (0,), (1,)])
  (measured,) = task.measure(None, "dev")
  assert recorder.asked == [["Q0", "Q3", "Q5"]]
  (every,) = recorder(None, data.splits["dev"])
  whole = tasks.evaluate(every["score"], data, "dev", ties="expected")
  assert measured.metrics == whole.metrics and measured.scalars == whole.scalars
  assert {name.partition("/")[0] for name in whole.metrics} >= {
    "map[made-clean",
    "mrr[made-official",
  }


def test_groups_of_questions_widen_intervals_and_stand_in_the_table(tmp_path):
  _, recorder, data = rerank([(0, 1, 0), (1, 0), (0, 1), (1, 0, 1, 0), (0, 0)])
  grouped = []
  for question, group in zip(data.splits["dev"], ("ice", "", "ice", "snow", "snow"), strict=True):
    grouped.append(dataclasses.replace(question, group=group))
  ((scores,),) = ([found["score"]] for found in recorder(None, grouped))
  found = tasks.evaluate(scores, data, "dev", ties="expected", questions=grouped)
  entry = found.metrics["map[made-clean/dev]"]
  values, _ = found.values["map[made-clean/dev]"]
  assert (entry["questions"], entry["groups"]) == (4, 3)
  assert entry["half_width"] == significance.half_width(values, ["ice", "", "ice", "snow"])
  assert entry["half_width"] != significance.half_width(values)
  assert any("made-clean/dev: 4 questions from 3 groups" in note for note in found.notes)
  tasks.write(tmp_path, found, scores, grouped, tag="x")
  _, table = trec_files.read_per_question(tmp_path / "per_question.tsv")
  assert table["group"].tolist() == [0, 1, 0, 2, 2]


def test_splits_of_which_all_rankings_are_equal_are_named(caplog):
  said = "no question has both a right and a wrong candidate"
  for labels, alike in (
    ([(1,), (1, 1), (0,), ()], True),
    ([(1,), (1, 0)], False),
    ([(0, 0), (0,)], False),
  ):
    caplog.clear()
    task, _, data = rerank(labels)
    assert [record.getMessage().startswith(f"made, dev: {said}") for record in caplog.records] == [
      True
    ] * alike
    (measured,) = task.measure(None, "dev")
    assert any(f"made-clean/dev: {said}" in note for note in measured.notes) == alike
