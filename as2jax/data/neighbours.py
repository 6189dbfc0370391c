"""Change the sentences around candidates: is the empty place before the first one read as its position?

`data.neighbours` names a change that a run is trained with; `as2jax lab order` makes further ones at prediction. What is
drawn is a pure function of the question, so that every epoch, seed and machine reads the same.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence

from as2jax.data.record import UNKNOWN, Candidate, Question
from as2jax.runtime.errors import InputError

DROPPED = 0.3  # the share of the neighbours that `dropped` empties
Questions = Sequence[Question]
Change = Callable[[Questions], tuple[Question, ...]]


def dropped(questions: Questions) -> tuple[Question, ...]:
  """Empty each neighbour with probability `DROPPED`: an empty place no longer names the first."""
  changed = []
  for question in questions:
    rng, candidates = seeded("dropped", question), []
    for one in question.candidates:
      if rng.random() < DROPPED:
        one = with_previous(one, "")
      if rng.random() < DROPPED:
        one = dataclasses.replace(one, next="", next_label=UNKNOWN)
      candidates.append(one)
    changed.append(dataclasses.replace(question, candidates=tuple(candidates)))
  return tuple(changed)


def drawn(questions: Questions) -> tuple[Question, ...]:
  """Draw both neighbours of every candidate from other articles: no place is empty."""
  draw, changed = Draw(questions), []
  for question in questions:
    rng, candidates = seeded("drawn", question), []
    for one in question.candidates:
      one = with_previous(one, draw(rng, question))
      candidates.append(dataclasses.replace(one, next=draw(rng, question), next_label=UNKNOWN))
    changed.append(dataclasses.replace(question, candidates=tuple(candidates)))
  return tuple(changed)


def permuted(questions: Questions) -> tuple[Question, ...]:
  """Derive neighbours from a random order of the candidates, which themselves stay where they are."""
  changed = []
  for question in questions:
    rng, candidates = seeded("permuted", question), list(question.candidates)
    order = rng.sample(range(len(candidates)), len(candidates))
    nothing = Candidate("", "")
    around = [nothing, *(question.candidates[place] for place in order), nothing]
    for before, place, after in zip(around, order, around[2:]):
      changes = {"previous": before.text, "previous_label": before.label}
      changes |= {"next": after.text, "next_label": after.label}
      candidates[place] = dataclasses.replace(candidates[place], **changes)
    changed.append(dataclasses.replace(question, candidates=tuple(candidates)))
  return tuple(changed)


CHANGES: dict[str, Change] = {"given": tuple, "dropped": dropped, "drawn": drawn}  # of a config


class Draw:
  """Draws a sentence of another article than a question's."""

  def __init__(self, questions: Questions):
    self.sentences = [(article(q), c.text) for q in questions for c in q.candidates]
    if len({of for of, _ in self.sentences}) < 2:
      raise InputError(
        "neighbours are drawn from other articles, and these questions have one: give questions on several"
      )

  def __call__(self, rng: random.Random, question: Question) -> str:
    """Return the text, each candidate of another article being as probable."""
    own = article(question)
    while True:
      of, text = rng.choice(self.sentences)
      if of != own:
        return text


def article(question: Question) -> str:
  """Return what names a question's article: its group, else its title, else its id."""
  title = question.candidates[0].title if question.candidates else ""
  return question.group or title or question.id


def with_previous(candidate: Candidate, text: str) -> Candidate:
  """Return a candidate behind another sentence, whose label is not known."""
  return dataclasses.replace(candidate, previous=text, previous_label=UNKNOWN)


def seeded(what: str, question: Question) -> random.Random:
  """Return the randomness of one kind for one question."""
  return random.Random(f"{what}\0{question.id}\0{question.text}")
