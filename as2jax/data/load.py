"""The data set that a config's section `data` describes, with its text rules."""

import dataclasses
import logging
from collections.abc import Iterable
from typing import Any

from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import holdout, mined, neighbours, tables, user_files
from as2jax.data.dataset import Dataset, Splits
from as2jax.data.readers import asnq
from as2jax.data.record import Question
from as2jax.data.retrieval import pooled, retrieval
from as2jax.data.text import normalise
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
# Names of what a user gives by path: in any of our forms, or in ASNQ's, whose labels are classes.
FILES, ASNQ_FILES = "files", "asnq_files"
SPLITS = ("train", "dev", "test")


def load(section: Any, task: str = "rerank") -> Dataset:
  """Load the data set `name`, or for `files` the paths `train`, `dev` and `test`, under its text rules.

  With `holdout` it has the split `heldout`, taken from `train`. For the task `retrieve`
  (`evaluation.task`) it is a `Retrieval`, with one pool per split; a re-ranking data set's pool is
  all of its candidates (`retrieval.pooled`). Fingerprints and counts are those of the source.
  Raises InputError as `dataset.load`, `user_files.read`, `holdout.hold_out` and `normalise.check`; or
  for paths, columns or drop with the name of a known data set.
  """
  normalise.check(tuple(section.rules))
  if task == "retrieve" and section.neighbours != "given":
    raise InputError(
      "data.neighbours is for candidates of a question (evaluation.task=rerank): set it to given"
    )
  spec = datasets.SPECS.get(section.name)
  if task == "retrieve" and spec and spec.is_pool:
    return _retrieval(section)
  dataset = _own(section) if section.name in (FILES, ASNQ_FILES) else _known(section)
  if section.holdout:
    dataset = holdout.hold_out(dataset, section.holdout)
  dataset = dataclasses.replace(dataset, splits=_changed(dataset, section))
  if task != "retrieve":
    return dataset
  # A question that is held out is asked of all answers of its file.
  return pooled(dataset, negatives=section.negatives, beside={holdout.NAME: "train"})


def _changed(dataset: Dataset, section: Any, *, rules: bool = True) -> Splits:
  """Return the splits with text rules applied, and with other negatives in the split train."""
  plain = dataset.splits
  if section.mined and "train" not in plain:
    raise InputError("data.mined is for training questions, and there is no split train")

  def read(split: str) -> tuple[Question, ...]:
    questions, trained = plain[split], split == "train"
    if trained and not section.labelled_negatives:
      questions = tuple(
        dataclasses.replace(one, candidates=tuple(map(one.candidates.__getitem__, one.positives)))
        for one in questions
      )
    if trained and section.mined:
      held_out = plain[holdout.NAME] if holdout.NAME in plain else ()
      questions = mined.added(questions, section.mined, held_out=held_out)
    if rules and section.rules:
      questions = normalise.apply(questions, section.rules)
      questions = mined.distinct(questions) if trained else questions
    if trained or section.neighbours == "drawn":
      questions = neighbours.CHANGES[section.neighbours](questions)
    return questions

  return Splits(plain, read)


def _retrieval(section: Any) -> Dataset:
  """Load a data set for retrieval."""
  if section.holdout or not section.labelled_negatives or (section.mined and section.rules):
    raise InputError(
      f"{section.name} is for retrieval: its articles are parted, so that data.holdout is 0; its "
      "training questions have positives alone unless data.negatives says otherwise, so that "
      "data.labelled_negatives is True; and data.mined goes without data.rules"
    )
  where = {"root": section.root, "cache": section.cache, "download": section.download}
  data = datasets.load(section.name, pool=True, **where)
  data = retrieval(data, negatives=section.negatives, text_rules=section.rules)
  return dataclasses.replace(data, splits=_changed(data, section, rules=False))


def _own(section: Any) -> Dataset:
  """Read the user's files of a section."""
  paths = {split: section[split] for split in SPLITS}
  how = {"columns": section.columns, "drop": section.drop}
  if section.name == ASNQ_FILES and (section.columns or section.drop):
    raise InputError(f"data.columns and data.drop are for data.name={FILES}, not for {ASNQ_FILES}")
  if not any(paths.values()):
    raise InputError(
      f"data.name = {section.name!r} needs the paths of your files: give data."
      + ", data.".join(paths)
    )
  splits, forms = {}, {}
  for split, path in paths.items():
    if path and section.name == ASNQ_FILES:
      splits[split] = tuple(asnq.iterate_asnq(epath.Path(path).expanduser()))
    elif path:  # of training questions a teacher's scores will do
      needed = None if split == "train" and section.teachers else True
      own = user_files.read(tables.hub_address(path, split), labelled=needed, **how)
      splits[split], forms[split] = own.questions, own.form
  return datasets.of_questions(section.name, splits, ", ".join(filter(None, paths.values())), forms)


def _known(section: Any) -> Dataset:
  """Load the named data set of a section, also of the Hugging Face hub."""
  of_hub = tables.is_hub(section.name)
  for key in (*SPLITS, "columns", "drop"):
    if section[key] and (key in SPLITS or not of_hub):
      raise InputError(f"data.{key} is for your own files: set --config.data.name={FILES}")
  if of_hub:
    return datasets.dataset(section.name, columns=section.columns, drop=section.drop)
  where = {"root": section.root, "cache": section.cache, "download": section.download}
  return datasets.load(section.name, **where)


def require(dataset: Dataset, splits: Iterable[str]) -> None:
  """Raise InputError where the data set lacks one of the splits that a run needs."""
  missing = [split for split in splits if split not in dataset.splits]
  if not missing:
    return
  name = missing[0]
  hint = "leave it out of evaluation.splits, or give another data.name"
  if name == holdout.NAME:
    hint = "nothing is held out: set data.holdout, such as --config.data.holdout=0.1"
  elif name in dataset.missing:
    hint = f"{dataset.source} lacks {', '.join(dataset.missing[name])}; put it there"
  elif name == "dev":
    hint += ", or hold training questions out: --config.data.holdout=0.1"
  raise InputError(
    f"{dataset.name} has no split {name!r} (it has {', '.join(dataset.splits)}): {hint}"
  )


def reported(config: Any, dataset: Dataset) -> Any:
  """Return the config with those of `evaluation.splits` that the data set has; the others are logged.

  A run that trains on data without any of them reports the split that selects.

  Raises InputError: no split is left, or the split `heldout` is named where nothing is held out.
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
