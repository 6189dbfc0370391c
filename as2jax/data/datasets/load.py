"""Loads the data set that a config's section `data` describes, with its text rules."""

import dataclasses
from typing import Any

from as2jax.data.datasets import asnq, holdout, user_files
from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets.dataset import Dataset, Splits, Unions
from as2jax.data.datasets.pool import PoolSpec
from as2jax.data.datasets.retrieval import pooled, retrieval
from as2jax.data.record import fingerprint
from as2jax.data.text import normalise
from as2jax.runtime.errors import InputError

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
      paths with the name of a known data set.

  """
  normalise.check(tuple(section.rules))
  if task == "retrieve" and section.name in pools():
    if section.holdout:
      raise InputError(
        f"data.holdout = {section.holdout}: {section.name} is parted by article, "
        "whose split dev selects; set it to 0"
      )
    pool_dataset = datasets.load_pool(
      section.name, root=section.root, cache=section.cache, download=section.download
    )
    return retrieval(pool_dataset, negatives=section.negatives, text_rules=section.rules)
  dataset = _rerank(section)
  return pooled(dataset, negatives=section.negatives) if task == "retrieve" else dataset


def pools() -> tuple[str, ...]:
  """The names of the retrieval data sets."""
  return tuple(spec.name for spec in datasets.SPECS.values() if isinstance(spec, PoolSpec))


def _rerank(section: Any) -> Dataset:
  paths = {split: section[split] for split in SPLITS}
  if section.name in (FILES, ASNQ_FILES):
    read = user_files.read_labelled if section.name == FILES else asnq.read_asnq
    splits = user_files.load(paths, read, name=section.name)
    dataset = Dataset(
      section.name,
      splits,
      "answerable",
      ", ".join(filter(None, paths.values())),
      {split: fingerprint(questions) for split, questions in splits.items()},
    )
  else:
    paths_set = [f"data.{split}" for split, path in paths.items() if path]
    if paths_set:
      raise InputError(
        f"{', '.join(paths_set)} is for your own files: set --config.data.name={FILES}"
      )
    dataset = datasets.load(
      section.name, root=section.root, cache=section.cache, download=section.download
    )
  if section.holdout:
    dataset = holdout.hold_out(dataset, section.holdout)
  splits = dataset.splits
  if section.rules:
    ruled = lambda split: tuple(normalise.apply(dataset.splits[split], section.rules))
    splits = Splits(tuple(dataset.splits), ruled)
  return dataclasses.replace(dataset, splits=Unions(splits))


def require(dataset: Dataset, splits: Any) -> None:
  """Raises InputError where the data set lacks one of the splits that a run needs."""
  missing = [split for split in splits if split not in dataset.splits]
  if missing == [holdout.NAME]:
    raise InputError(
      f"evaluation.splits names {holdout.NAME!r}, but nothing is held out: set "
      "data.holdout, such as --config.data.holdout=0.1"
    )
  if missing:
    raise InputError(
      f"{dataset.name} has no split {missing[0]!r} (it has "
      f"{', '.join(dataset.splits)}); leave it out of evaluation.splits, or give "
      "another data.name"
    )
