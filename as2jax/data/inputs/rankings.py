"""What other rankers made of the candidates: the order that a joint model starts from, soft labels."""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath
from jaxtyping import Float32

from as2jax.data import holdout, tables, trec_files
from as2jax.data.holdout import NAME as HELD_OUT
from as2jax.data.inputs.protocol import Input, Resources, Tables
from as2jax.data.lines import Lines
from as2jax.data.record import Question
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

FILE = "run.trec"
SHUFFLED = "shuffled"


@dataclasses.dataclass(frozen=True)
class FirstStageRanking(Input):
  """Gives the order in which another ranker has the candidates of each question.

  The layout `joint` takes the best K candidates from it, and evaluation puts the others below them.
  No array of the batch holds it. `ranking` is None before `bind`, and where nothing was read.
  """

  ranking: "Ranking | None" = None

  name: ClassVar[str] = "first_stage_ranking"

  def bind(self, resources: Resources) -> "FirstStageRanking":
    """Read the run files of all splits that the config's mode needs.

    Raises InputError for a data set that is ranked as a pool, or as `load`.
    """
    config, dataset = resources.config, resources.dataset
    if config.evaluation.task == "retrieve":
      raise InputError(
        "model.template = 'joint' ranks a question's own candidates: set evaluation.task to 'rerank'"
      )
    if dataset is None:
      return self
    names = [part for split in config.evaluation.splits for part in split.split("+")]
    if config.mode == "train":
      names += ["train", holdout.selection_split(config.data)]
    section = config.data
    ranking = load(section.ranking, dataset.splits, names)
    if config.mode == "train" and section.ranking_train:
      trained_on(ranking, section.ranking_train, dataset.splits["train"], section.ranking_size)
    return FirstStageRanking(ranking)

  def for_layout(self, questions: Sequence[Question]) -> list[np.ndarray]:
    """Return the positions of each question's candidates, best first; InputError without a ranking."""
    if self.ranking is None:
      raise InputError(
        "this model ranks the best candidates of another ranker again, and there is no ranking of "
        "these questions: name its run file in predict.ranking"
      )
    return [self.ranking.order(question) for question in questions]

  def columns(self, fitted: None, questions: Sequence[Question], tables: Tables) -> None:
    """Return None: the layout has read it."""

  def spec(self) -> None:
    """Return None: no array of the batch holds it."""


class Ranking:
  """Holds the positions of each question's candidates, best first, as another ranker has them.

  Questions are known by their whole content: files of several splits may repeat an id.
  """

  def __init__(self):
    self._orders: dict[Question, np.ndarray] = {}

  def add(self, path: epath.PathLike, questions: Iterable[Question]) -> None:
    """Take in the order of `questions` from a TREC run: by score, ties by id descending.

    Raises InputError for another file, or one that lacks a question or a candidate.
    """
    run = trec_files.read_run(path)
    for question in questions:
      scores = run.get(question.id, {})
      missing = [c.id for c in question.candidates if c.id not in scores]
      if missing:
        raise InputError(
          f"{path}: question {question.id!r} has no line of candidate {missing[0]!r} "
          f"({len(missing)} of {len(question.candidates)} are missing); rank all questions and "
          "candidates of the split"
        )
      values = trec_files.float32([scores[c.id] for c in question.candidates])
      keys = [(value, c.id) for value, c in zip(values.tolist(), question.candidates)]
      self.put(question, sorted(range(len(keys)), key=keys.__getitem__, reverse=True))

  def put(self, question: Question, order: Sequence[int] | np.ndarray) -> None:
    """Take in the order of a question."""
    self._orders[question] = np.asarray(order, np.int64)

  def order(self, question: Question) -> np.ndarray:
    """Return the order of a question."""
    if not question.candidates:
      return np.empty(0, np.int64)
    if question not in self._orders:
      raise InputError(
        f"question {question.id!r} ({question.text!r:.100}) is in none of the run files that were "
        "read; name those of its split in data.ranking"
      )
    return self._orders[question]


class OrderGiven(Ranking):
  """Has every question's candidates in the order of the data."""

  def order(self, question: Question) -> np.ndarray:
    """Return all positions, ascending."""
    return np.arange(len(question.candidates))


def load(source: str, splits: Mapping[str, Sequence[Question]], names: Iterable[str]) -> Ranking:
  """Return the ranking of the splits `names`; InputError as `run_file` and `Ranking.add`."""
  ranking = Ranking()
  for name in dict.fromkeys(names):
    ranking.add(run_file(source, name), splits[name])
  return ranking


def trained_on(ranking: Ranking, source: str, questions: Iterable[Question], size: int) -> None:
  """Replace the order of training questions, which a ranker that has seen them knows too well.

  `source` is `shuffled`, the `size` best candidates of each question in random order (the same in
  every run and for every seed); or as of `run_file`, such as the scores of `as2jax lab distill`.
  """
  if source != SHUFFLED:
    ranking.add(run_file(source, "train", key="data.ranking_train"), questions)
    return
  for question in questions:
    order = ranking.order(question)
    rng = np.random.default_rng(zlib.crc32(f"{question.id} {question.text}".encode()))
    ranking.put(question, np.concatenate([rng.permutation(order[:size]), order[size:]]))


def run_file(source: str, split: str, *, key: str = "data.ranking") -> epath.Path:
  """Return the run file of a split; a ranker that held out nothing has ranked `heldout` in train.

  `source` is a run's folder, whose `eval/<split>/run.trec` is taken, or the path of such a file with
  {split} in place of the split's name; `key` of the config names it. Raises InputError where there
  is none.
  """
  if not source:
    raise InputError(
      f"{key} is missing: this model ranks the best candidates of another ranker again; name the "
      "folder of its run, or its run file (with {split} in place of the split's name)"
    )
  path = epath.Path(source.replace("{split}", split))
  if epath.Path(source).is_dir():
    path = bound.file(source, f"eval/{split}/{FILE}")
  if path.exists():
    return path
  if split == HELD_OUT:
    return run_file(source, "train", key=key)
  raise InputError(
    f"{key} = {source!r} has no ranking of {split}: there is no {path}; name a run's folder that has "
    f"one (`as2jax evaluate RUN --splits={split}` makes it), or a run file with {{split}} in place of "
    "the split's name (of several seeds RUN/eval/{split}/seed-0/run.trec)"
  )


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
        "data.teachers is empty, and this loss learns from a teacher: name the folder of runs that "
        "have ranked train (as2jax evaluate RUN --splits=train), folders of "
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
  if tables.suffix_of(file) not in tables.JSON:
    return trec_files.read_run(file)
  scores: dict[str, dict[str, float]] = {}
  lines = Lines(file)
  for row in lines.objects():
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
    try:
      scores[question][candidate] = float(score)
    except OverflowError as error:
      raise lines.error(f"score is {score!r:.40}; expected a number that a float holds") from error
  return scores


def score_of(file: str, scores: Scores, question: Question, position: int) -> float:
  """Return a teacher's score of one candidate, by ids or by texts; InputError without one."""
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


def check_unused(config: Any, inputs: Sequence[Input], encodes: bool) -> None:
  """Raise InputError where a config names rankings or teachers that nothing reads.

  A model that does not embed sentences (`encodes`) ranks again what `data.ranking` retrieved.
  """
  names = {entry.name for entry in inputs}
  if config.mode == "train" and config.data.teachers and TeacherScores.name not in names:
    raise InputError(
      f"data.teachers = {tuple(config.data.teachers)!r}: loss.name = {config.loss.name!r} learns from "
      "no teacher; use distillation, or leave data.teachers empty"
    )
  retrieved = not encodes and config.evaluation.task == "retrieve"
  if FirstStageRanking.name in names or retrieved:
    return
  for key in ("ranking_train", "ranking"):
    if config.data[key]:
      raise InputError(
        f"data.{key} = {config.data[key]!r} is for models that rank the best candidates of another "
        "ranker again (model.template = 'joint', or a cross-encoder with evaluation.task = "
        "'retrieve'); leave it empty"
      )
