"""Holding out training questions: a split of their own on which runs are selected.

Where dev is part of what is reported (CASSIE, section 4.2), selection needs other questions.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.data.dataset import Dataset, Splits
from as2jax.data.record import Question, fingerprint
from as2jax.data.statistics import gathered
from as2jax.runtime.errors import InputError

NAME = "heldout"  # of the split


def selection_split(section: Mapping[str, Any]) -> str:
  """Return the split by which a run of the config's section `data` is selected."""
  return NAME if section["holdout"] else "dev"


def hold_out(dataset: Dataset, fraction: float) -> Dataset:
  """Move a part of the training questions into the split `heldout`.

  Statistics fitted to `train` afterwards (word frequencies, rarity) therefore never see them.
  Counts, fingerprint and statistics of `train` stay those of the source.

  Raises InputError: no training split, or too few questions with an answer in it.
  """
  if "train" not in dataset.splits:
    raise InputError(f"data.holdout = {fraction}: {dataset.name} has no split 'train'; set it to 0")
  train = dataset.splits["train"]
  rest, held = divided(train, fraction)
  answerable = sum(bool(question.positives) for question in held)
  if not rest or not answerable:
    raise InputError(
      f"data.holdout = {fraction}: of the {len(train)} training questions of {dataset.name}, "
      f"{len(held)} would be held out, {answerable} of them with an answer, and {len(rest)} left; "
      "give another part, label the right candidates 1, or select on dev: data.holdout=0, and for "
      "your own files data.dev=FILE"
    )
  statistics, overlap = dataset.facts()
  parts = {"train": rest, NAME: held}
  return dataclasses.replace(
    dataset,
    splits=Splits((*dataset.splits, NAME), lambda name: parts.get(name) or dataset.splits[name]),
    fingerprints={**dataset.fingerprints, NAME: fingerprint(held)},
    statistics={**statistics, **gathered({NAME: held})[0]},
    overlap=overlap,
  )


def divided(
  questions: Sequence[Question], fraction: float
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
  """Divide `questions` into (those kept, those held out), each in the order of `questions`.

  The fraction is taken of the questions with an answer and of those without, so that it holds under
  `train_filter` all and answerable, with the same questions under both. Questions are chosen by a
  hash of their text, so that no seed, machine or file order changes the choice. Questions with the
  same text stay together.
  """
  order = lambda text: hashlib.sha256(b"holdout\0" + text.encode()).digest()
  answerable = {question.text for question in questions if question.positives}
  others = {question.text for question in questions} - answerable
  held: set[str] = set()
  for texts in (answerable, others):
    held.update(sorted(texts, key=order)[: round(len(texts) * fraction)])
  kept = tuple(question for question in questions if question.text not in held)
  return kept, tuple(question for question in questions if question.text in held)
