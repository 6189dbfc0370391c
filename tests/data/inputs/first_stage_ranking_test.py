"""Another ranker's order: read from its run files, or one clear error."""

import numpy as np
import pytest

from as2jax.data import trec_files
from as2jax.data.batches import examples as layouts
from as2jax.data.inputs import rankings
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
