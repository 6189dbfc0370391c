"""Loads the data set that a config's section `data` describes, with its text rules."""

import dataclasses
import logging
from collections.abc import Iterable
from typing import Any

from etils import epath

from as2jax.data import user_files
from as2jax.data.datasets import asnq, holdout, mined
from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets.dataset import Dataset, Splits, Unions
from as2jax.data.datasets.pool import PoolSpec
from as2jax.data.datasets.retrieval import pooled, retrieval
from as2jax.data.record import Question, fingerprint
from as2jax.data.text import normalise
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
# Names of what a user gives by path: in any of our forms, or in ASNQ's, whose labels are classes.
FILES, ASNQ_FILES = "files", "asnq_files"
SPLITS = ("train", "dev", "test")


def load(section: Any, task: str = "rerank") -> Dataset:
  """The data set `name`, or for `files` the paths `train`, `dev` and `test`, under its text rules.

  With `holdout` it has the split `heldout`, taken from `train`. For the task `retrieve`
  (`evaluation.task`) it is a `Retrieval`, with one pool per split; a re-ranking data set's pool is
  all of its candidates (`retrieval.pooled`). Fingerprints and counts are those of the source: the
  rules are stated beside them.

  Raises:
    InputError: see `dataset.load`, `user_files.load`, `holdout.hold_out` and `normalise.check`; or
      paths, columns or drop with the name of a known data set, or the latter two with ASNQ's form.

  """
  normalise.check(tuple(section.rules))
  if task == "retrieve" and section.name in pools():
    if section.mined and section.rules:
      raise InputError(
        f"data.mined: negatives for the pool {section.name} are mined in its own texts; leave "
        "data.rules empty"
      )
    if not section.labelled_negatives:
      raise InputError(
        f"data.labelled_negatives = False: {section.name} is a pool, whose training questions have "
        "positives alone unless data.negatives says otherwise; leave it True"
      )
    if section.holdout:
      raise InputError(
        f"data.holdout = {section.holdout}: {section.name} is parted by article, "
        "whose split dev selects; set it to 0"
      )
    pool_dataset = datasets.load_pool(
      section.name, root=section.root, cache=section.cache, download=section.download
    )
    retrieved = retrieval(pool_dataset, negatives=section.negatives, text_rules=section.rules)
    if not section.mined:
      return retrieved
    return dataclasses.replace(retrieved, splits=_with_negatives(retrieved.splits, section.mined))
  dataset = _rerank(section)
  return pooled(dataset, negatives=section.negatives) if task == "retrieve" else dataset


def pools() -> tuple[str, ...]:
  """The names of the retrieval data sets."""
  return tuple(spec.name for spec in datasets.SPECS.values() if isinstance(spec, PoolSpec))


def _rerank(section: Any) -> Dataset:
  paths = {split: section[split] for split in SPLITS}
  if section.name in (FILES, ASNQ_FILES):
    how = {"columns": section.columns, "drop": section.drop}
    if section.name == ASNQ_FILES and (given := [f"data.{name}" for name in how if how[name]]):
      raise InputError(
        f"{', '.join(given)} is for data.name={FILES}: files in ASNQ's form ({ASNQ_FILES}) have "
        "fixed columns, and all of their rows are read; leave it out"
      )
    if not any(paths.values()):
      raise InputError(
        f"data.name = {section.name!r} needs the paths of your files: give --config.data."
        + ", --config.data.".join(paths)
      )
    splits = {}
    for split, path in paths.items():
      if path and section.name == ASNQ_FILES:
        splits[split] = asnq.read_asnq(epath.Path(path).expanduser())
      elif path:  # of training questions a teacher's scores will do
        needed = None if split == "train" and section.teachers else True
        splits[split] = user_files.read(path, labelled=needed, **how).questions
    dataset = Dataset(
      section.name,
      splits,
      "answerable",
      ", ".join(filter(None, paths.values())),
      {split: fingerprint(questions) for split, questions in splits.items()},
    )
  else:
    paths_set = [f"data.{split}" for split, path in paths.items() if path]
    paths_set += [f"data.{name}" for name in ("columns", "drop") if section[name]]
    if paths_set:
      raise InputError(
        f"{', '.join(paths_set)} is for your own files: set --config.data.name={FILES}"
      )
    dataset = datasets.load(
      section.name, root=section.root, cache=section.cache, download=section.download
    )
    if note := getattr(datasets.SPECS.get(section.name), "note", ""):
      log.info("%s: %s", section.name, note)
  if section.holdout:
    dataset = holdout.hold_out(dataset, section.holdout)
  splits = dataset.splits
  if not section.labelled_negatives:
    splits = _positives_alone(splits)
  if section.mined:
    splits = _with_negatives(splits, section.mined)
  if section.rules:
    plain = splits

    def ruled(split: str) -> tuple[Question, ...]:
      questions = normalise.apply(plain[split], section.rules)
      return mined.distinct(questions) if split == "train" else questions

    splits = Splits(tuple(plain), ruled)
  return dataclasses.replace(dataset, splits=Unions(splits))


def _positives_alone(splits: Any) -> Splits:
  """The splits with the labelled negatives of the training questions left out."""

  def read(split: str) -> tuple[Question, ...]:
    if split != "train":
      return splits[split]
    return tuple(
      dataclasses.replace(q, candidates=tuple(q.candidates[i] for i in q.positives))
      for q in splits[split]
    )

  return Splits(tuple(splits), read)


def _with_negatives(splits: Any, folders: Iterable[str]) -> Splits:
  """The splits with mined negatives among the training questions' candidates."""
  if "train" not in splits:
    raise InputError("data.mined is for training questions, and there is no split train")

  def read(split: str) -> tuple[Question, ...]:
    if split != "train":
      return splits[split]
    held_out = splits[holdout.NAME] if holdout.NAME in splits else ()
    return mined.added(splits[split], folders, held_out=held_out)

  return Splits(tuple(splits), read)


def require(dataset: Dataset, splits: Iterable[str]) -> None:
  """Raises InputError where the data set lacks one of the splits that a run needs."""
  missing = [split for split in splits if split not in dataset.splits]
  if missing == [holdout.NAME]:
    raise InputError(
      f"evaluation.splits names {holdout.NAME!r}, but nothing is held out: set "
      "data.holdout, such as --config.data.holdout=0.1"
    )
  if not missing:
    return
  files = dataset.missing.get(missing[0])
  problem = f"{dataset.name} has no split {missing[0]!r} (it has {', '.join(dataset.splits)}"
  if files:
    raise InputError(f"{problem}): {dataset.source} lacks {', '.join(files)}; put it there")
  hint = ", or hold training questions out: --config.data.holdout=0.1" * (missing[0] == "dev")
  raise InputError(
    f"{problem}); leave it out of evaluation.splits, or give another data.name{hint}"
  )


def reported(config: Any, dataset: Dataset) -> Any:
  """The config with those of `evaluation.splits` that the data set has; the others are logged.

  A run that trains on data without any of them reports the split that selects.

  Raises:
    InputError: no split is left, or the split `heldout` is named where nothing is held out.

  """
  named = config.evaluation.splits
  kept = tuple(split for split in named if split in dataset.splits)
  absent = [split for split in named if split not in dataset.splits]
  if not absent:
    return config
  selection = holdout.selection_split(config.data)
  if not kept and config.mode == "train" and selection in dataset.splits:
    kept = (selection,)
  if not kept or holdout.NAME in absent:
    require(dataset, absent)
  log.warning(
    "%s has no split %s: reported is %s", dataset.name, ", ".join(absent), ", ".join(kept)
  )
  config = config.copy_and_resolve_references().unlock()
  config.evaluation.splits = kept
  return config.lock()
