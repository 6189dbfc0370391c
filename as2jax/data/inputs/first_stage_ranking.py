"""Another ranker's order of the candidates, from its run files: what a joint model starts from."""

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from etils import epath

from as2jax.data import holdout, trec_files
from as2jax.data.holdout import NAME as HELD_OUT
from as2jax.data.inputs.protocol import Input, Resources, Tables
from as2jax.data.record import Question
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
  level: ClassVar[str] = "example"

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
      if question.candidates:
        self.put(question, _order(path, question, run.get(question.id, {})))

  def put(self, question: Question, order: np.ndarray) -> None:
    """Take in the order of a question."""
    self._orders[question] = order

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


def _order(path: epath.PathLike, question: Question, scores: Mapping[str, float]) -> np.ndarray:
  missing = [c.id for c in question.candidates if c.id not in scores]
  if missing:
    raise InputError(
      f"{path}: question {question.id!r} has no line of candidate {missing[0]!r} ({len(missing)} of "
      f"{len(question.candidates)} are missing); rank all questions and candidates of the split"
    )
  with np.errstate(over="ignore"):  # beyond float32 means infinite, as to trec_eval
    values = np.asarray([scores[c.id] for c in question.candidates]).astype(np.float32)
  keys = [(value, c.id) for value, c in zip(values.tolist(), question.candidates)]
  return np.asarray(sorted(range(len(keys)), key=keys.__getitem__, reverse=True), np.int64)


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
  is none, or one a seed.
  """
  if not source:
    raise InputError(
      f"{key} is missing: this model ranks the best candidates of another ranker again; name the "
      "--workdir of its run, or its run file (with {split} in place of the split's name)"
    )
  folder, is_run = epath.Path(source) / "eval" / split, epath.Path(source).is_dir()
  path = folder / FILE if is_run else epath.Path(source.replace("{split}", split))
  if path.exists():
    return path
  if seeds := sorted(path.parent.name for path in folder.glob(f"seed-*/{FILE}")):
    raise InputError(
      f"{key} = {source!r} holds a ranking for each of {', '.join(seeds)}; "
      f"name one: {source}/eval/{{split}}/{seeds[0]}/{FILE}"
    )
  if split == HELD_OUT:
    return run_file(source, "train", key=key)
  advice = "name a run's folder, or a run file with {split} in place of the split's name"
  if is_run:
    advice = (
      f"make it with --config=rerun:{source}/config.json --workdir={source} --config.mode=evaluate "
      f"--config.evaluation.splits={split},"
    )
  raise InputError(f"{key} = {source!r} has no ranking of {split}: there is no {path}; {advice}")


def check_unused(config: Any, encodes: bool) -> None:
  """Raise InputError where a config names a ranking, but its model has no `FirstStageRanking`.
  A model that does not embed sentences (`encodes`) ranks again what `data.ranking` retrieved.
  """
  if not encodes and config.evaluation.task == "retrieve":
    return
  for key in ("ranking_train", "ranking"):
    if config.data[key]:
      raise InputError(
        f"data.{key} = {config.data[key]!r} is for models that rank the best candidates of another "
        "ranker again (model.template = 'joint', or a cross-encoder with evaluation.task = "
        "'retrieve'); leave it empty"
      )
