"""Scores that other rankers gave to the training pairs: soft labels for distillation."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath
from jaxtyping import Float32

from as2jax.data import trec_files
from as2jax.data.inputs.first_stage_ranking import run_file
from as2jax.data.inputs.protocol import Input, Resources, Tables
from as2jax.data.lines import Lines, json_objects
from as2jax.data.record import Question
from as2jax.runtime.errors import InputError

JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
_NAMES = (("question_id", "candidate_id"), ("question", "candidate"))
Scores = Mapping[str, Mapping[str, float]]  # by question and candidate


@dataclasses.dataclass(frozen=True)
class TeacherScores(Input):
  """Gives the teachers' score of each (question, candidate), float32; for one candidate an example.

  A single teacher's scores are taken as they are. Those of several are brought to mean 0 and
  standard deviation 1 over the training pairs, teacher by teacher, and averaged. A teacher that was
  trained on these very questions is too sure of them: take one that was cross-fitted, or pairs
  without labels. `teachers` has (file, scores) of each; it is empty before `bind`.
  """

  teachers: tuple[tuple[str, Scores], ...] = ()

  name: ClassVar[str] = "teacher_scores"
  level: ClassVar[str] = "example"
  training_only: ClassVar[bool] = True

  def bind(self, resources: Resources) -> "TeacherScores":
    """Read the scores of the training questions that `data.teachers` names.
    Raises InputError where none is named, or one is not there or no file of scores.
    """
    if resources.dataset is None:
      return self
    named = resources.config.data.teachers
    if not named:
      raise InputError(
        "data.teachers is empty, and this loss learns from a teacher: name the --workdir of runs that "
        "have ranked train (--config.mode=evaluate --config.evaluation.splits=train,), folders of "
        "as2jax lab distill, run files, or JSON-lines"
      )
    files = [run_file(teacher, "train", key="data.teachers") for teacher in named]
    return TeacherScores(tuple((str(file), read_scores(file)) for file in files))

  def digest(self) -> str:
    """Return the SHA-256 (hex) of the scores; names and forms of their files do not count."""
    scores = json.dumps([its for _, its in self.teachers], sort_keys=True)
    return hashlib.sha256(scores.encode()).hexdigest()

  def columns(
    self, fitted: None, questions: Sequence[Question], tables: Tables
  ) -> Float32[np.ndarray, "e"]:
    """Return the scores of the examples; InputError as `score_of`."""
    examples, total = tables.examples, []
    pairs = list(zip(examples.question.tolist(), examples.candidate.tolist(), strict=True))
    for file, scores in self.teachers:
      total.append([score_of(file, scores, questions[q], c) for q, c in pairs])
    return averaged(total)

  def spec(self) -> tuple[tuple[int, ...], Any]:
    """Return one float32 an example."""
    return (), np.float32


def averaged(teachers: Sequence[Sequence[float]]) -> Float32[np.ndarray, "e"]:
  """Return one teacher's scores as they are; those of several standardised each, and averaged."""
  values = np.asarray(teachers, np.float64)
  if len(values) > 1:
    spread = values.std(axis=1, keepdims=True)
    values = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
  return values.mean(axis=0).astype(np.float32)


def read_scores(file: epath.PathLike) -> Scores:
  """Return the scores of a TREC run file, or of JSON-lines by question and candidate.
  An object a line has `score` and either `question_id` and `candidate_id`, or `question` and
  `candidate` (texts). Raises InputError with the line of another form, of a score that is no
  number, of a pair that occurs twice.
  """
  if epath.Path(file).suffix.lower() not in JSON_SUFFIXES:
    return trec_files.read_run(file)
  scores: dict[str, dict[str, float]] = {}
  lines = Lines(file)
  for row in json_objects(lines.filled("scored pair"), lines):
    named = next((names for names in _NAMES if all(name in row for name in names)), None)
    if named is None:
      raise lines.error(
        "a line names its pair by question_id and candidate_id, or by question and candidate"
      )
    question, candidate = (str(row[name]) for name in named)
    score = row.get("score")
    if type(score) not in (int, float):
      raise lines.error(f"score is {score!r:.40}; expected a number")
    if candidate in scores.setdefault(question, {}):
      raise lines.error(f"the pair of {question!r:.60} and {candidate!r:.60} occurs twice")
    scores[question][candidate] = float(score)
  return scores


def check_unused(config: Any, inputs: Sequence[Input]) -> None:
  """Raise InputError where a config names teachers, but its loss learns from none."""
  if config.data.teachers and all(entry.name != TeacherScores.name for entry in inputs):
    raise InputError(
      f"data.teachers = {tuple(config.data.teachers)!r}: loss.name = {config.loss.name!r} learns from "
      "no teacher; use distillation, or leave data.teachers empty"
    )


def score_of(file: str, scores: Scores, question: Question, position: int) -> float:
  """Return a teacher's score of one candidate, by ids or by texts; InputError where it is not
  finite.
  """
  its = question.candidates[position]
  candidate = its.id
  by_text = scores.get(question.text, {}).get(its.text)
  value = scores.get(question.id, {}).get(candidate, by_text)
  if value is None or not np.isfinite(value):
    raise InputError(
      f"{file}: candidate {candidate!r} of the training question {question.id!r} "
      f"({question.text!r:.80}) has {'no score' if value is None else f'the score {value}'}: a "
      "teacher must score every pair that is trained on"
    )
  return value
