"""Generated data: the same for the same seed, and nothing in it answers but what should."""

import collections

import numpy as np
import pytest

from as2jax.data.readers import controlled
from as2jax.data.statistics import KEEPS
from as2jax.evaluation import metrics

RANDOM = np.mean([1 / rank for rank in range(1, 5)])  # MAP of a random order, one of four right
TASKS = sorted(controlled.TASKS)


def questions(task, split="test", count=200, seed=0):
  return list(controlled.generate(task, split, count, seed))


def mean_reciprocal_rank(scores, asked):
  """With ties in expectation; scores: of each question's candidates."""
  labels = [np.asarray([c.label for c in question.candidates]) for question in asked]
  return metrics.per_question(list(map(np.asarray, scores)), labels)["mrr"].mean()


def bags(asked, parts):
  """Counts of words, [candidates, words], one block a part."""
  place = {word: i for i, word in enumerate(controlled.vocabulary())}
  rows = []
  for question in asked:
    for candidate in question.candidates:
      row = np.zeros((len(parts), len(place)), np.float32)
      for n, part in enumerate(parts):
        of = question.text if part == "question" else getattr(candidate, part)
        for word in of.split():
          row[n, place[word]] += 1
      rows.append(row.ravel())
  return np.stack(rows)


def regression(task, parts, joined=False):
  """Test MRR of a ridge regression on the words of some parts of a unit, `joined` into one bag."""
  train, test = questions(task, "train", 600), questions(task, "test", 200)
  x, z = bags(train, parts), bags(test, parts)
  if joined:
    x, z = (rows.reshape(len(rows), len(parts), -1).sum(1) for rows in (x, z))
  y = np.concatenate([[c.label for c in q.candidates] for q in train])
  weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
  ends = np.cumsum([len(q.candidates) for q in test])[:-1]
  return mean_reciprocal_rank(np.split(z @ weights, ends), test)


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_gives_the_same_questions_and_none_twice(task):
  assert questions(task, count=30) == questions(task, count=30) != questions(task, count=30, seed=1)
  assert questions(task, "dev", 30) != questions(task, count=30)
  assert len({question.text for question in questions(task)}) == 200
  for question in questions(task, count=30):
    assert len(question.positives) == 1 and KEEPS["both"](question)
    assert len({c.text for c in question.candidates}) > 1


@pytest.mark.parametrize("task", TASKS)
def test_shared_words_say_nothing(task):
  asked = questions(task)
  shared = [[len(set(q.text.split()) & set(c.text.split())) for c in q.candidates] for q in asked]
  assert mean_reciprocal_rank(shared, asked) == pytest.approx(RANDOM, abs=0.03)


@pytest.mark.parametrize("task", TASKS)
def test_a_bag_of_words_is_at_chance(task):
  assert regression(task, ("question", "text")) == pytest.approx(RANDOM, abs=0.06)


def test_only_the_place_of_the_context_tells():
  parts = ("text", "previous", "next", "question")
  assert regression("controlled_context", parts, joined=True) == pytest.approx(RANDOM, abs=0.06)
  for question in questions("controlled_context"):
    topic = question.text.split()[0]
    assert [topic in c.previous.split() for c in question.candidates] == [
      bool(c.label) for c in question.candidates
    ]
    assert all(topic in f"{c.previous} {c.next}".split() for c in question.candidates)


def test_partners_are_as_many_in_every_candidate():
  table = dict(zip(controlled.words("said"), controlled.words("asked"), strict=True))
  for question in questions("controlled_paraphrase"):
    for candidate in question.candidates:
      words = candidate.text.split()
      partners = [table[word] for word in words if table[word] in question.text.split()]
      assert len(partners) == 3 and len(set(partners)) == (3 if candidate.label else 1)
      assert sorted(collections.Counter(words).values()) == [1, 1, 1, 3]


def test_neighbours_in_common_are_as_many_in_every_candidate():
  pairs = lambda text: set(zip(text.split(), text.split()[1:]))
  for question in questions("controlled_scales"):
    counts = [len(pairs(question.text) & pairs(c.text)) for c in question.candidates]
    assert len(set(counts)) == 1, question


def test_answers_of_test_are_new_and_their_questions_name_one_alone():
  asked = {split: questions("controlled_questions", split) for split in ("train", "test")}
  answers = {split: {c.text for q in its for c in q.candidates} for split, its in asked.items()}
  assert not answers["train"] & answers["test"]
  synonyms = np.reshape(controlled.words("synonym"), (-1, controlled.SYNONYMS))
  value = dict(zip(synonyms.ravel(), np.repeat(controlled.words("value"), controlled.SYNONYMS)))
  for question in asked["test"]:
    named = {value[word] for word in question.text.split() if word in value}
    right = [text for text in answers["test"] if named <= set(text.split())]
    assert right == [question.candidates[0].text]
  assert len({q.candidates[0].text for q in asked["test"]}) <= len(asked["test"]) / controlled.ASKED
