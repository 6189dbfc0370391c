"""`dataset(name or path)`: a built-in data set, or a person's own file, ready to be looked at."""

import dataclasses
import os
from typing import Any

from etils import epath

from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets import user_files
from as2jax.data.datasets.dataset import FILTERS, Dataset, Splits, Unions
from as2jax.data.record import fingerprint
from as2jax.runtime.errors import InputError


def dataset(name_or_path: Any, split: str | None = None, *, filter: str = "official") -> Dataset:
  """Opens a data set by its name, or the questions of a person's own file.

  Args:
    name_or_path: a name that `as2jax data list` shows, or the path of a file.
    split: of a named data set: the only one that is wanted, or a union such as `dev+test`; all that
      are there where None. Of a file: what its questions are called (`test` where None).
    filter: which questions `questions`, `qrels`, `pairs` and `to_pandas` give: `official` (those of
      the benchmark's own evaluation; all where it has none), `clean`, `all`, `answerable` or `both`.

  Raises:
    InputError: no such data set, split, filter or file, or a file that is wrong.

  """
  if filter not in FILTERS:
    raise InputError(f"filter = {filter!r}: use one of {', '.join(FILTERS)}")
  if isinstance(name_or_path, str) and name_or_path in datasets.SPECS:
    found = datasets.load(name_or_path)
  else:
    found = _of_file(name_or_path, split or "test")
  return dataclasses.replace(_only(found, split) if split else found, filter=filter)


def by_address(address: str) -> Dataset:
  """Opens `NAME:SPLIT`, such as semeval2016:test (`test` where no split is named), or a path.

  Raises:
    InputError: as `dataset`.

  """
  name, _, split = address.partition(":")
  if name in datasets.SPECS:
    return dataset(name, split or "test")
  return dataset(address)


def _of_file(path: str | os.PathLike, split: str) -> Dataset:
  path = epath.Path(path).expanduser()
  if not path.exists() and path.name == str(path) and not path.suffix:
    datasets.spec_of(path.name)  # which names the data set that may be meant
  questions = user_files.read_labelled(path)
  name = path.name.partition(".")[0]
  return Dataset(name, {split: questions}, "answerable", str(path), {split: fingerprint(questions)})


def _only(data: Dataset, split: str) -> Dataset:
  parts = split.split("+")
  missing = [part for part in parts if part not in data.splits]
  if missing:
    raise InputError(f"{data.name} has no split {missing[0]!r}; it has {', '.join(data.splits)}")
  facts = None if data.facts is None else {part: data.facts[part] for part in parts}
  overlap = data.overlap and {
    pair: number for pair, number in data.overlap.items() if set(pair.split("+")) <= set(parts)
  }
  return dataclasses.replace(
    data,
    splits=Unions(Splits(tuple(parts), data.splits.__getitem__)),
    fingerprints={part: data.fingerprints[part] for part in parts},
    facts=facts,
    overlap=overlap,
    split=split,
  )
