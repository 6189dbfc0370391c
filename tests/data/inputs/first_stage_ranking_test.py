"""Another ranker's order and teachers' scores: read from run files, or one clear error."""

import types

import numpy as np
import pytest

from as2jax.data import trec_files
from as2jax.data.batches import examples as layouts
from as2jax.data.inputs import rankings
from as2jax.data.inputs.protocol import Tables
from as2jax.data.inputs.rankings import TeacherScores, check_unused
from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.runtime.errors import InputError


def question(name, count, text="what"):
  return Question(
    name, text, tuple(Candidate(f"D{i}", f"sentence {name} {i}", i % 2) for i in range(count))
  )


def write(path, questions, scores):
  path.parent.mkdir(parents=True, exist_ok=True)
  trec_files.write_run(
    path,
    [q.id for q in questions],
    [[c.id for c in q.candidates] for q in questions],
    [np.asarray(s) for s in scores],
    "test",
  )


SPLITS = {"train": (question("Q1", 3), question("empty", 0)), "test": (question("Q1", 2, "other"),)}


@pytest.fixture
def run(tmp_path):
  folder = tmp_path / "run"
  write(folder / "eval" / "train" / "run.trec", SPLITS["train"][:1], [[0.5, 2.0, 1.0]])
  write(folder / "eval" / "test" / "run.trec", SPLITS["test"], [[1.0, 1.0]])
  return folder


@pytest.mark.parametrize("form", ["{run}", "{run}/eval/{{split}}/run.trec"])
def test_orders_are_those_of_the_files(run, form):
  actual = rankings.load(form.format(run=run), SPLITS, ("train", "test", "test"))
  assert actual.order(SPLITS["train"][0]).tolist() == [1, 2, 0]
  assert actual.order(SPLITS["test"][0]).tolist() == [1, 0]  # a tie: by id, descending
  assert actual.order(SPLITS["train"][1]).tolist() == []


def test_held_out_questions_are_in_the_file_of_train(run):
  splits = {"heldout": SPLITS["train"]}
  first = lambda source: rankings.load(source, splits, ("heldout",)).order(splits["heldout"][0])[0]
  sources = str(run), f"{run}/eval/{{split}}/run.trec"
  assert [first(source) for source in sources] == [1, 1]
  write(run / "eval" / "heldout" / "run.trec", SPLITS["train"][:1], [[9.0, 2.0, 1.0]])
  assert [first(source) for source in sources] == [0, 0]


def test_training_questions_may_have_another_order(run, tmp_path):
  long = tuple(question(f"Q{i}", 9) for i in range(20))
  splits = {"train": long, "heldout": (question("held", 3),)}
  write(run / "eval/train/run.trec", (*long, *splits["heldout"]), [range(9)] * 20 + [range(3)])
  own = lambda: rankings.load(str(run), splits, ("train", "heldout"))
  ranking, again = own(), own()
  for one in (ranking, again):
    rankings.trained_on(one, "shuffled", long, 4)
  orders = [ranking.order(q).tolist() for q in long]
  assert orders == [again.order(q).tolist() for q in long]
  assert all(order[4:] == [4, 3, 2, 1, 0] for order in orders)
  assert len({tuple(order) for order in orders}) > 8  # of 24 orders of the best four
  assert {tuple(sorted(order[:4])) for order in orders} == {(5, 6, 7, 8)}
  assert ranking.order(splits["heldout"][0]).tolist() == [2, 1, 0]
  write(tmp_path / "soft/eval/train/run.trec", long, [range(9, 0, -1)] * 20)
  rankings.trained_on(ranking, str(tmp_path / "soft"), long, 4)
  assert ranking.order(long[0]).tolist() == list(range(9))
  with pytest.raises(InputError, match="data.ranking_train = 'nowhere' .*: there is no nowhere"):
    rankings.trained_on(ranking, "nowhere", long, 4)


def test_what_is_missing_is_named(run, tmp_path):
  with pytest.raises(InputError, match="no ranking of dev.*evaluate RUN --splits=dev.*seed-0/run"):
    rankings.load(str(run), {"dev": ()}, ("dev",))
  with pytest.raises(InputError, match=r"there is no .*none.trec"):
    rankings.load(str(tmp_path / "none.trec"), SPLITS, ("train",))
  with pytest.raises(InputError, match="data.ranking is missing"):
    rankings.load("", SPLITS, ("train",))
  file = run / "eval" / "test" / "run.trec"
  with pytest.raises(InputError, match=rf"{file}: question 'Q9' has no line of candidate 'D0'"):
    rankings.load(str(file), {"test": (question("Q9", 1),)}, ("test",))
  with pytest.raises(InputError, match="no line of candidate 'D2' .2 of 4 are missing"):
    rankings.load(str(file), {"test": (question("Q1", 4),)}, ("test",))
  with pytest.raises(InputError, match="'Q2'.*in none of the run files"):
    rankings.load(str(run), SPLITS, ("train",)).order(question("Q2", 1))


def test_the_joint_layout_takes_the_best_in_their_order():
  questions = (question("Q1", 3), question("empty", 0), question("Q2", 1))
  orders = [np.array([1, 2, 0]), np.empty(0, int), np.array([0])]
  units, table = layouts.joint(questions, size=2, first_stage_ranking=orders)
  assert units == [("what", "sentence Q1 1", "sentence Q1 2"), ("what", "sentence Q2 0")]
  assert table.members.tolist() == [[0], [1]] and table.question.tolist() == [0, 2]
  assert table.candidates.tolist() == [[1, 2], [0, -1]]
  assert table.labels.tolist() == [[1, 0], [0, UNKNOWN]]
  nothing = Question("Q", "what", (Candidate("a", "x"),))
  for judged in (True, False):
    units, table = layouts.joint(
      [nothing], size=3, first_stage_ranking=[np.array([0])], judged=judged
    )
    assert len(table) == len(units) == (not judged)
    assert table.labels.shape == table.candidates.shape == (len(table), 3)


TRAIN = (
  Question("Q1", "who", (Candidate("a", "x", 1), Candidate("b", "y", 0), Candidate("c", "z", -1))),
  Question("Q2", "what", (Candidate("a", "x", 0),)),
)


def scored(path, scores):
  write(path, TRAIN, scores)
  return str(path)


def bound(*teachers):
  config = types.SimpleNamespace(data=types.SimpleNamespace(teachers=teachers))
  return TeacherScores().bind(types.SimpleNamespace(config=config, dataset=object()))


def columns(entry):
  return entry.columns(None, TRAIN, Tables(None, layouts.pairs(TRAIN)[1], None))


def test_scores_of_one_teacher_are_taken_as_they_are(tmp_path):
  scored(tmp_path / "one" / "eval" / "train" / "run.trec", [[3.5, -1, 9], [0.25]])
  actual = columns(bound(str(tmp_path / "one")))
  assert actual.dtype == np.float32 and actual.tolist() == [3.5, -1, 0.25]


def test_several_are_standardised_and_averaged(tmp_path):
  first = scored(tmp_path / "a-train.trec", [[3, 0, 7], [0]])
  second = scored(tmp_path / "b.trec", [[100, 300, 0], [200]])
  standard = lambda x: (np.asarray(x) - np.mean(x)) / np.std(x)
  expected = (standard([3, 0, 0]) + standard([100, 300, 200])) / 2
  actual = columns(bound(first.replace("train", "{split}"), second))
  np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_pair_without_a_score_is_named(tmp_path):
  path = tmp_path / "run.trec"
  scored(path, [[3, 0, 7], [0]])
  kept = [line for line in path.read_text().splitlines() if not line.startswith("Q1 Q0 b")]
  path.write_text("\n".join(kept) + "\n")
  with pytest.raises(InputError, match="run.trec: candidate 'b' of the training question 'Q1'.*no"):
    columns(bound(str(path)))
  path.write_text(path.read_text() + "Q1 Q0 b 1 inf t\n")
  with pytest.raises(InputError, match="has the score inf"):
    columns(bound(str(path)))
  path = tmp_path / "scores.jsonl"
  for score, problem in (("1" * 400, "that a float holds"), ('"3"', "expected a number$")):
    path.write_text(f'{{"question_id": "Q1", "candidate_id": "b", "score": {score}}}\n')
    with pytest.raises(InputError, match=f"scores.jsonl:1: score is .*{problem}"):
      bound(str(path))


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
