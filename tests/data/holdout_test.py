"""Questions held out of training: which, and that nothing of them is left."""

import random

import pytest
from ml_collections import ConfigDict

from as2jax.data import dataset, holdout, load
from as2jax.data.card import data_card
from as2jax.data.dataset import Dataset
from as2jax.data.readers.asnq import Row, write_asnq
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.runtime.errors import InputError


def question(i, label, text=None):
  return Question(f"Q{i}", text or f"question {i}", (Candidate(f"D{i}", f"answer {i}", label),))


QUESTIONS = tuple(question(i, int(i % 4 == 0)) for i in range(200))  # 50 with an answer


def section(**changes):
  from as2jax.config import base

  job_config = base.get_config().data
  job_config.update({"name": "sample", **changes})
  return job_config


def test_the_part_is_that_of_the_answerable_and_of_the_others():
  rest, held = holdout.divided(QUESTIONS, 0.1)
  assert (len(held), sum(bool(q.positives) for q in held)) == (20, 5)
  assert sorted((*rest, *held), key=QUESTIONS.index) == list(QUESTIONS)
  assert held == tuple(sorted(held, key=QUESTIONS.index))
  assert held != QUESTIONS[:20] and held != QUESTIONS[-20:]


def test_the_choice_does_not_depend_on_the_order_and_grows_with_the_part():
  chosen = lambda questions, part: {q.id for q in holdout.divided(questions, part)[1]}
  mixed = random.Random(0).sample(QUESTIONS, len(QUESTIONS))
  assert chosen(mixed, 0.1) == chosen(QUESTIONS, 0.1) < chosen(QUESTIONS, 0.3)


def test_questions_of_one_text_stay_together():
  twins = tuple(question(1000 + i, 0, q.text) for i, q in enumerate(QUESTIONS))
  rest, held = holdout.divided(QUESTIONS + twins, 0.25)
  assert not {q.text for q in rest} & {q.text for q in held} and len(held) == 100
  assert sum(bool(q.positives) for q in held) == 12  # of 50; a text with an answer has one


def test_the_split_of_a_data_set_is_taken_from_train():
  whole = dataset.load("sample")
  actual = load.load(section(holdout=0.2, rules=("lowercase",)))
  train, held = actual.splits["train"], actual.splits["heldout"]
  assert len(train) + len(held) == len(whole.splits["train"]) and len(held) > 30
  assert not {q.text for q in train} & {q.text for q in held}
  assert all(q.text == q.text.lower() for q in held)  # the rules apply to it, too
  assert actual.splits["test"] == load.load(section(rules=("lowercase",))).splits["test"]
  bare = load.load(section(holdout=0.2))
  assert {q.id for q in bare.splits["heldout"]} == {q.id for q in held}
  assert actual.fingerprints == {
    **whole.fingerprints,
    "heldout": fingerprint(bare.splits["heldout"]),
  }
  card = data_card(actual)
  assert card["splits"]["train"] == data_card(whole)["splits"]["train"]
  assert card["splits"]["heldout"]["question_filters"]["all"]["questions"] == len(held)


@pytest.mark.parametrize(
  "questions, part, message",
  [
    (
      QUESTIONS[1:4],
      0.5,
      "2 would be held out, 0 of them with an answer.* label the right candidates 1",
    ),
    (QUESTIONS[:4], 0.4, "1 would be held out, 0 of them with an answer, and 3 left"),
    (QUESTIONS, 0.001, "0 would be held out"),
    (QUESTIONS[:1], 0.9, "and 0 left; give another part, .* or select on dev: .* data.dev=FILE"),
  ],
)
def test_too_few_questions_are_refused(questions, part, message):
  data = Dataset("made", {"train": questions}, "answerable", "here", {"train": "aa"})
  with pytest.raises(InputError, match=f"data.holdout = {part}: of the .*{message}"):
    holdout.hold_out(data, part)


def test_a_data_set_without_the_split_says_how_to_have_it():
  data = Dataset("made", {"test": QUESTIONS}, "answerable", "here", {"test": "aa"})
  with pytest.raises(InputError, match="has no split 'train'; set it to 0"):
    holdout.hold_out(data, 0.1)
  with pytest.raises(InputError, match="nothing is held out: set data.holdout"):
    load.require(data, ("test", "heldout"))
  assert holdout.selection_split(ConfigDict({"holdout": 0.0})) == "dev"
  assert holdout.selection_split({"holdout": 0.1}) == "heldout"


def test_a_users_file_in_asnqs_form_is_read_by_its_classes(tmp_path):
  rows = [Row("who?", f"Sentence {label}.", label) for label in (1, 4, 2, 3)]
  path = tmp_path / "train.tsv"
  write_asnq(path, rows)
  actual = load.load(section(name="asnq_files", train=str(path)))
  (only,) = actual.splits["train"]
  assert actual.name == "asnq_files" and [c.label for c in only.candidates] == [0, 1, 0, 0]
  with pytest.raises(InputError, match="data.name = 'asnq_files' needs the paths"):
    load.load(section(name="asnq_files"))
  with pytest.raises(InputError, match="data.columns and data.drop are for data.name=files"):
    load.load(section(name="asnq_files", train=str(path), columns="question=ask", drop=True))
