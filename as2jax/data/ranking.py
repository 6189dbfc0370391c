"""Another ranker's order of the candidates, from its run files: what a joint model starts from."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from etils import epath

from as2jax import runs
from as2jax.data.holdout import NAME as HELD_OUT
from as2jax.data.record import Question
from as2jax.errors import InputError

FILE = "run.trec"


class Ranking:
  """The candidates of each question, best first, as another ranker has them.

  Questions are known by their whole content: files of several splits may repeat an id.
  """

  def __init__(self):
    self._orders: dict[Question, np.ndarray] = {}

  def add(self, path: epath.PathLike, questions: Iterable[Question]) -> None:
    """Takes in the order of `questions` from a TREC run: by score, ties by id descending.

    Raises:
      InputError: not such a file, or one that lacks a question or a candidate.
    """
    run = runs.read_run(path)
    for question in questions:
      if question.candidates:
        self.put(question, _order(path, question, run.get(question.id)))

  def put(self, question: Question, order: np.ndarray) -> None:
    """Takes in the positions of a question's candidates, best first."""
    self._orders[question] = order

  def order(self, question: Question) -> np.ndarray:
    """Positions of the question's candidates, best first."""
    if not question.candidates:
      return np.empty(0, np.int64)
    if question not in self._orders:
      raise InputError(f"question {question.id!r} ({question.text!r:.100}) is in none of the run "
                       "files that were read; name those of its split in data.ranking")
    return self._orders[question]


def _order(path: epath.PathLike, question: Question, scores: Mapping[str, float] | None
           ) -> np.ndarray:
  if scores is None:
    raise InputError(f"{path}: question {question.id!r} has no line; rank all questions of the "
                     "split, as --config.mode=evaluate does")
  missing = [c.id for c in question.candidates if c.id not in scores]
  if missing:
    raise InputError(f"{path}: question {question.id!r} has no line of candidate {missing[0]!r} "
                     f"({len(missing)} of {len(question.candidates)} are missing); rank the same "
                     "candidates")
  with np.errstate(over="ignore"):  # beyond float32 means infinite, as to trec_eval
    values = np.asarray([scores[c.id] for c in question.candidates]).astype(np.float32)
  keys = [(value, c.id) for value, c in zip(values.tolist(), question.candidates)]
  return np.asarray(sorted(range(len(keys)), key=keys.__getitem__, reverse=True), np.int64)


def load(given: str, splits: Mapping[str, Sequence[Question]], names: Iterable[str]) -> Ranking:
  """The ranking of some splits.

  Args:
    given: a run's folder, whose `eval/<split>/run.trec` is read, or the path of such a file, with
      {split} in place of the split's name.
    splits: of the data set.
    names: those that are wanted.

  Raises:
    InputError: a split without a file, or see `Ranking.add`.
  """
  found = Ranking()
  for name in dict.fromkeys(names):
    found.add(run_file(given, name), splits[name])
  return found


def run_file(given: str, split: str) -> epath.Path:
  """The run file of a split; InputError where there is none, or one a seed.

  Questions held out of train are in that of train, unless the ranker held out the same.
  """
  if not given:
    raise InputError("data.ranking is missing: this model ranks the best candidates of another "
                     "ranker again; name the --workdir of its run, or its run file (with {split} "
                     "in place of the split's name)")
  if not epath.Path(given).is_dir():
    path = epath.Path(given.replace("{split}", split))
    if split == HELD_OUT and not path.exists():
      return run_file(given, "train")
    if not path.exists():
      raise InputError(f"data.ranking = {given!r}: there is no {path}; name a run's folder, or a "
                       "run file with {split} in place of the split's name")
    return path
  folder = epath.Path(given) / "eval" / split
  if (folder / FILE).exists():
    return folder / FILE
  seeds = sorted(path.parent.name for path in folder.glob(f"seed-*/{FILE}"))
  if seeds:
    raise InputError(f"data.ranking = {given!r} holds a ranking for each of {', '.join(seeds)}; "
                     f"name one: {given}/eval/{{split}}/{seeds[0]}/{FILE}")
  if split == HELD_OUT:
    return run_file(given, "train")
  raise InputError(f"data.ranking = {given!r} has not ranked {split}: there is no {folder / FILE}; "
                   f"make it with --config=configs/rerun.py:{given}/config.json --workdir={given} "
                   f"--config.mode=evaluate --config.evaluation.splits={split},")
