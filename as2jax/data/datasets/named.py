"""`dataset(name or path)`: a built-in data set, or a person's own file, ready to be looked at."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from as2jax.data import user_files
from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets.dataset import FILTERS, Dataset, Splits, Unions
from as2jax.data.record import fingerprint
from as2jax.data.user_files import OwnFile
from as2jax.runtime.errors import InputError


def dataset(
  name_or_path: Any,
  split: str | None = None,
  *,
  filter: str = "official",
  columns: Mapping[str, str] | str | None = None,
  drop: bool = False,
) -> Dataset:
  """Opens a data set by its name, or the questions of a person's own file or frame.

  Args:
    name_or_path: a name that `as2jax data list` shows, the path of a file (TSV, CSV, JSON-lines,
      Parquet), or a pandas frame.
    split: of a named data set: the only one that is wanted, or a union such as `dev+test`; all that
      are there where None. Of a file: what its questions are called (`test` where None).
    filter: which questions `questions`, `qrels`, `pairs` and `to_pandas` give: `official` (those of
      the benchmark's own evaluation; all where it has none), `clean`, `all`, `answerable` or `both`.
    columns: of a person's own file: {field: column}, such as {"question": "query"}, where its columns
      have none of the common names; see `user_files.read`.
    drop: of a person's own file: whether rows without text and repeated ones are left out.

  Raises:
    InputError: no such data set, split, filter or file, or a file that is wrong.

  """
  if filter not in FILTERS:
    raise InputError(f"filter = {filter!r}: use one of {', '.join(FILTERS)}")
  if isinstance(name_or_path, str) and name_or_path in datasets.SPECS:
    refuse(name_or_path, columns, drop)
    opened = datasets.load(name_or_path)
  else:
    opened = _of_file(name_or_path, split or "test", columns or "", drop)
  return dataclasses.replace(_only(opened, split) if split else opened, filter=filter)


def by_address(
  address: str, *, columns: Mapping[str, str] | str | None = None, drop: bool = False
) -> Dataset:
  """Opens `NAME:SPLIT`, such as semeval2016:test (`test` where no split is named), or a path.

  Args:
    address: of a data set or a file.
    columns, drop: of a file, and refused for a named data set; see `dataset`.

  Raises:
    InputError: as `dataset`.

  """
  if is_named(address):
    name, _, split = address.partition(":")
    return dataset(name, split or "test", columns=columns, drop=drop)
  return dataset(address, columns=columns, drop=drop)


def is_named(address: str) -> bool:
  """Whether `by_address` would open a data set by its name."""
  return address.partition(":")[0] in datasets.SPECS


def refuse(name: str, columns: Mapping[str, str] | str | None, drop: bool) -> None:
  """Raises InputError where what own files are read with is given for the data set `name`."""
  if columns or drop:
    given = f"columns = {columns!r} are" if columns else "drop = True is"
    raise InputError(f"{given} for your own files; leave it out for the data set {name}")


def own_files(
  sources: Mapping[str, Any], *, columns: Mapping[str, str] | str = "", drop: bool = False
) -> tuple[Dataset, dict[str, OwnFile]]:
  """A data set of a person's own files, as far as they can be read, with what was read.

  Args:
    sources: what a split is called -> its file or frame; labels are read where there are any.
    columns, drop: see `user_files.read`; rows without text are left out in any case, and counted.

  """
  read = {
    split: user_files.read(source, labelled=None, columns=columns, drop=drop, lenient=True)
    for split, source in sources.items()
  }
  splits = {split: own.questions for split, own in read.items()}
  source = ", ".join(map(_called, sources.values()))
  prints = {split: fingerprint(questions) for split, questions in splits.items()}
  return Dataset("files", splits, "answerable", source, prints), read


def _called(source: Any) -> str:
  return str(source) if isinstance(source, (str, os.PathLike)) else "a frame"


def _of_file(source: Any, split: str, columns: Mapping[str, str] | str, drop: bool) -> Dataset:
  name = "frame"
  if isinstance(source, (str, os.PathLike)):
    path = epath.Path(source).expanduser()
    if not path.exists() and path.name == str(path) and not path.suffix:
      datasets.spec_of(path.name)  # which names the data set that may be meant
    name = path.name.partition(".")[0]
    if name in datasets.SPECS:  # wikiqa.csv is not the data set wikiqa
      name = path.name if path.name not in datasets.SPECS else "files"
  questions = user_files.read_labelled(source, columns=columns, drop=drop)
  prints = {split: fingerprint(questions)}
  return Dataset(name, {split: questions}, "answerable", _called(source), prints)


def _only(data: Dataset, split: str) -> Dataset:
  parts = split.split("+")
  missing = [part for part in parts if part not in data.splits]
  if missing:
    raise InputError(f"{data.name} has no split {missing[0]!r}; it has {', '.join(data.splits)}")
  statistics = None if data.statistics is None else {part: data.statistics[part] for part in parts}
  overlap = data.overlap and {
    pair: number for pair, number in data.overlap.items() if set(pair.split("+")) <= set(parts)
  }
  return dataclasses.replace(
    data,
    splits=Unions(Splits(tuple(parts), data.splits.__getitem__)),
    fingerprints={part: data.fingerprints[part] for part in parts},
    statistics=statistics,
    overlap=overlap,
    split=split,
  )
