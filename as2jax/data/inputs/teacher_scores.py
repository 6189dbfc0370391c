"""Scores that other rankers gave to the training pairs: soft labels for distillation."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32

from as2jax.data.datasets import trec_files
from as2jax.data.inputs.first_stage_ranking import run_file
from as2jax.data.inputs.protocol import Input, Resources, Tables
from as2jax.data.record import Question
from as2jax.runtime.errors import InputError

Scores = Mapping[str, Mapping[str, float]]  # by question and candidate


@dataclasses.dataclass(frozen=True)
class TeacherScores(Input):
  """The teachers' score of each (question, candidate), float32; for layouts of one candidate each.

  A single teacher's scores are taken as they are. Those of several are brought to mean 0 and standard
  deviation 1 over the training pairs, teacher by teacher, and averaged. A teacher that was trained on
  these very questions is too sure of them: take one that was cross-fitted, or pairs without labels.

  Attributes:
    teachers: (file, scores) of each teacher; empty before `bind`.

  """

  teachers: tuple[tuple[str, Scores], ...] = ()

  name: ClassVar[str] = "teacher_scores"
  level: ClassVar[str] = "example"
  training_only: ClassVar[bool] = True

  def bind(self, resources: Resources) -> "TeacherScores":
    """Reads the run files of the training questions that `data.teachers` names.

    Raises:
      InputError: none is named, or one is not there or no run file.

    """
    if resources.dataset is None:
      return self
    named = resources.config.data.teachers
    if not named:
      raise InputError(
        "data.teachers is empty, and this loss learns from a teacher: name the --workdir of runs that "
        "have ranked train (--config.mode=evaluate --config.evaluation.splits=train,), or run files"
      )
    files = [run_file(teacher, "train", key="data.teachers") for teacher in named]
    return TeacherScores(tuple((str(file), trec_files.read_run(file)) for file in files))

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "e"]:
    """The scores of the examples.

    Raises:
      InputError: a pair that a teacher has not scored, or not with a finite number; it names both.

    """
    examples, total = tables.examples, []
    pairs = list(zip(examples.question.tolist(), examples.candidate.tolist(), strict=True))
    for file, scores in self.teachers:
      values = np.asarray([_score(file, scores, questions[q], c) for q, c in pairs], np.float64)
      if len(self.teachers) > 1:
        values = (values - values.mean()) / (values.std() or 1.0)
      total.append(values)
    return np.mean(total, axis=0).astype(np.float32)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """One float32 an example."""
    return (), np.float32


def check_unused(config: Any, inputs: Sequence[Input]) -> None:
  """Raises InputError where a config names teachers, but its loss learns from none."""
  if config.data.teachers and all(entry.name != TeacherScores.name for entry in inputs):
    raise InputError(
      f"data.teachers = {tuple(config.data.teachers)!r}: loss.name = {config.loss.name!r} learns from "
      "no teacher; use margin_mse or distillation, or leave data.teachers empty"
    )


def _score(file: str, scores: Scores, question: Question, position: int) -> float:
  candidate = question.candidates[position].id
  value = scores.get(question.id, {}).get(candidate)
  if value is None or not np.isfinite(value):
    raise InputError(
      f"{file}: candidate {candidate!r} of the training question {question.id!r} "
      f"({question.text!r:.80}) has {'no score' if value is None else f'the score {value}'}: a "
      "teacher must score every pair that is trained on"
    )
  return value
