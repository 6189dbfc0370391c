"""Teachers' scores: which file is read, averages, pairs that a teacher lacks."""

import types

import numpy as np
import pytest

from as2jax.data import trec_files
from as2jax.data.batches import examples as layouts
from as2jax.data.inputs.protocol import Tables
from as2jax.data.inputs.rankings import TeacherScores, check_unused
from as2jax.data.record import Candidate, Question
from as2jax.runtime.errors import InputError

TRAIN = (
  Question("Q1", "who", (Candidate("a", "x", 1), Candidate("b", "y", 0), Candidate("c", "z", -1))),
  Question("Q2", "what", (Candidate("a", "x", 0),)),
)


def run(path, scores):
  ids, texts = [q.id for q in TRAIN], [[c.id for c in q.candidates] for q in TRAIN]
  path.parent.mkdir(parents=True, exist_ok=True)
  trec_files.write_run(path, ids, texts, [np.asarray(x) for x in scores], "t")
  return str(path)


def bound(*teachers):
  config = types.SimpleNamespace(data=types.SimpleNamespace(teachers=teachers))
  return TeacherScores().bind(types.SimpleNamespace(config=config, dataset=object()))


def columns(entry):
  return entry.columns(None, TRAIN, Tables(None, layouts.pairs(TRAIN)[1], None))


def test_scores_of_one_teacher_are_taken_as_they_are(tmp_path):
  run(tmp_path / "one" / "eval" / "train" / "run.trec", [[3.5, -1, 9], [0.25]])
  actual = columns(bound(str(tmp_path / "one")))
  assert actual.dtype == np.float32 and actual.tolist() == [3.5, -1, 0.25]


def test_several_are_standardised_and_averaged(tmp_path):
  first = run(tmp_path / "a-train.trec", [[3, 0, 7], [0]])
  second = run(tmp_path / "b.trec", [[100, 300, 0], [200]])
  standard = lambda x: (np.asarray(x) - np.mean(x)) / np.std(x)
  expected = (standard([3, 0, 0]) + standard([100, 300, 200])) / 2
  actual = columns(bound(first.replace("train", "{split}"), second))
  np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_pair_without_a_score_is_named(tmp_path):
  path = tmp_path / "run.trec"
  run(path, [[3, 0, 7], [0]])
  kept = [line for line in path.read_text().splitlines() if not line.startswith("Q1 Q0 b")]
  path.write_text("\n".join(kept) + "\n")
  with pytest.raises(InputError, match="run.trec: candidate 'b' of the training question 'Q1'.*no"):
    columns(bound(str(path)))
  path.write_text(path.read_text() + "Q1 Q0 b 1 inf t\n")
  with pytest.raises(InputError, match="has the score inf"):
    columns(bound(str(path)))


def test_teachers_that_no_loss_reads_are_refused():
  named = types.SimpleNamespace
  config = named(
    mode="train", data=named(teachers=("runs/t",)), loss=named(name="x"), evaluation=named(task="")
  )
  with pytest.raises(InputError, match="'runs/t'.*loss.name = 'x' learns from no teacher"):
    check_unused(config, (), True)


def test_a_teacher_that_is_not_there_is_named(tmp_path):
  with pytest.raises(InputError, match="data.teachers is empty"):
    bound()
  with pytest.raises(InputError, match="data.teachers = .*there is no .*no.trec"):
    bound(str(tmp_path / "no.trec"))
  assert TeacherScores().bind(types.SimpleNamespace(config=None, dataset=None)) == TeacherScores()
