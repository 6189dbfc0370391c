"""Prompts: texts that an encoder was trained to see before each question and each candidate."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from as2jax.data.text.input_templates import ROLES
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Prompts:
  """What stands before texts, without anything between prompt and text.

  Attributes:
    question: before each question, also where question and candidate form one unit.
    candidate: before each candidate that is a unit of its own.

  """

  question: str = ""
  candidate: str = ""

  def before(
    self, units: Sequence[tuple[str, ...]], roles: Sequence[int] | None
  ) -> Sequence[tuple[str, ...]]:
    """The texts of units with their prompts.

    Args:
      units: the texts of each unit.
      roles: of units of one text, whether each is a question (`ROLES`); None of joined units, whose
        first text is the question.

    """
    if not self.question and not self.candidate:
      return units
    if roles is None:
      return [(self.question + question, *others) for question, *others in units]
    by_role = {ROLES["question"]: self.question, ROLES["candidate"]: self.candidate}
    return [(by_role[role] + text,) for (text,), role in zip(units, roles, strict=True)]

  def check(self, tokenizer: Any, max_length: int, inputs: Sequence[Any]) -> None:
    """Compares the prompts with the length of a unit and with what else reads its words.

    Args:
      tokenizer: that reads the units; None where each table has its own.
      max_length: tokens of a unit, special tokens included.
      inputs: what the model reads beside token ids.

    Raises:
      InputError: a prompt leaves no room for a text, or an input would count its words.

    """
    for prompt in filter(None, (self.question, self.candidate)):
      readers = [entry.name for entry in inputs if entry.needs_words]
      if readers:
        raise InputError(
          f"data.prompts: the prompt {prompt!r:.80} would be counted among the words of the input "
          f"{readers[0]!r}; set data.prompts to ('', '')"
        )
      if tokenizer is None:
        continue
      special = tokenizer.special
      around = len(special.single_before) + len(special.single_after)
      tokens = int(tokenizer.encode([prompt]).lengths[0])
      if tokens + around >= max_length:
        raise InputError(
          f"data.prompts: the prompt {prompt!r:.80} has {tokens} tokens, which leaves no room for a "
          f"text in data.max_length = {max_length}; shorten the prompt or allow longer units"
        )
