"""The passages that negatives are taken from, each distinct text once, and what must not be taken."""

from collections.abc import Iterable, Sequence

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.data.text.words import plain_form
from as2jax.runtime.errors import InputError


class Pool:
  """Distinct passages: the candidates of the training questions, and further texts.

  Two texts with the same letters and digits in any case are one passage (the first of them), so that
  no question gets a negative that differs from its answer in punctuation alone.

  Args:
    questions: training questions, whose candidates are passages.
    passages: further texts.
    kept_out: texts that no question may get (questions of dev and test).

  Attributes:
    texts: of the passages.
    minable: `[n]` bool, whether a passage may become a negative.

  """

  def __init__(
    self, questions: Iterable[Question], passages: Iterable[str], kept_out: Iterable[str]
  ):
    self.texts: list[str] = []
    self._numbers: dict[str, int] = {}
    self._context: dict[int, Candidate] = {}
    for question in questions:
      for candidate in question.candidates:
        number = self._take(candidate.text)
        if candidate.previous or candidate.next or candidate.title:
          self._context.setdefault(number, candidate)
    for text in passages:
      if not text.strip():
        raise InputError("a passage is empty; give a text a line")
      self._take(text)
    self.minable = np.ones(len(self.texts), bool)
    for text in kept_out:
      if (number := self._numbers.get(plain_form(text))) is not None:
        self.minable[number] = False

  def __len__(self) -> int:
    return len(self.texts)

  def numbers(self, texts: Sequence[str]) -> list[int]:
    """The passages that some texts are; texts of no passage are left out."""
    numbers = (self._numbers.get(plain_form(text)) for text in texts)
    return [number for number in numbers if number is not None]

  def candidate(self, number: int) -> Candidate:
    """A passage as a candidate, with its context where its source has one."""
    its = self._context.get(number)
    context = (its.previous, its.next) if its else ("", "")
    title = its.title if its else ""
    return Candidate(str(number), self.texts[number], 0, *context, title=title)

  def _take(self, text: str) -> int:
    number = self._numbers.setdefault(plain_form(text), len(self.texts))
    if number == len(self.texts):
      self.texts.append(text)
    return number
