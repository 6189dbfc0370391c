"""The place of each candidate in its document, which the sentence given as its previous one tells."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float32

from as2jax.data.inputs.protocol import Input, Resources, Tables
from as2jax.data.record import Question
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class DocumentPosition(Input):
  """Gives ln(1 + i), float32, of the candidate that is sentence i of its document, from 0."""

  name: ClassVar[str] = "document_position"

  def bind(self, resources: Resources) -> "DocumentPosition":
    """Refuse data whose candidates are no sentences in order, or whose neighbours are changed."""
    data, task = resources.config.data, resources.config.evaluation.task
    if task != "rerank" or data.neighbours != "given":
      raise InputError(
        f"model.position = True with evaluation.task = {task!r} and data.neighbours = {data.neighbours!r}: "
        "places follow from the neighbours of a question's own candidates; set rerank and given"
      )
    return self

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "e"]:
    """Return ln(1 + place) of each example's candidate; InputError where places are not known."""
    examples, known = tables.examples, [places(question) for question in questions]
    of_examples = zip(examples.question.tolist(), examples.candidate.tolist(), strict=True)
    return np.log1p(np.asarray([known[q][c] for q, c in of_examples], np.float32))


def places(question: Question) -> list[int]:
  """Return the place of each candidate in its document: 0 without a previous sentence, else one more
  than that of the candidate before it, which must be this sentence.

  InputError: another one stands before it, or none of several candidates has a previous sentence.
  """
  found: list[int] = []
  for number, candidate in enumerate(question.candidates):
    if not candidate.previous:
      found.append(0)
    elif number and candidate.previous == question.candidates[number - 1].text:
      found.append(found[-1] + 1)
    else:
      raise _unknown(
        question, f"the previous sentence of candidate {candidate.id!r} is not before it"
      )
  if len(found) > 1 and not any(found):
    raise _unknown(question, "no candidate has a previous sentence")
  return found


def _unknown(question: Question, what: str) -> InputError:
  return InputError(
    f"question {question.id!r}: {what}, and model.position ranks by places in a document: give all its "
    "sentences in order, each with the previous one, or take a ranker without model.position"
  )
