"""Prepared copies of data sets, written and read by tensorflow_datasets (array_record).

A copy lies in a folder of the cache under a hash of the source's bytes and the reader's version, and
appears there whole: TFDS' files of each table (`tfds.builder_from_directory` reads them, too) and
the cache's manifest, with counts and statistics. Imports tensorflow_datasets (0.3 s).
"""

import dataclasses
import functools
import hashlib
import logging
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging as absl
from etils import epath

from as2jax.data.record import Candidate, Passage, Query, Question
from as2jax.data.source import Source, Spec
from as2jax.data.statistics import PoolStatistics, SplitStatistics, overlap
from as2jax.runtime import cache as caches
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import writable

log = logging.getLogger(__name__)

LAYOUT = "8"  # of the prepared copy: raise it when the features or the manifest's fields change
SHARD = 1 << 16  # examples
TEXT = tfds.features.Text()
QUESTION = {"id": TEXT, "text": TEXT}
GROUP = {"group": TEXT}
PASSAGE = {field.name: TEXT for field in dataclasses.fields(Passage)}
CANDIDATE = {f.name: np.int32 if "label" in f.name else TEXT for f in dataclasses.fields(Candidate)}
LISTS = {"answers": TEXT, "votes": np.int32}
FEATURES = {
  "questions": QUESTION | {"candidates": tfds.features.Sequence(CANDIDATE)} | GROUP,
  "pool": PASSAGE,
  "queries": QUESTION
  | {name: tfds.features.Sequence(kind) for name, kind in LISTS.items()}
  | GROUP,
}

RECORDS = {"questions": Question, "pool": Passage, "queries": Query}
# What TFDS says of each copy that it opens is nothing to a user.
absl.get_absl_logger().addFilter(lambda record: "tensorflow_datasets" not in record.pathname)


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A whole prepared copy.

  Attributes:
    folder: with TFDS' files of each table.
    fingerprints: split -> its fingerprint.
    statistics: split -> the statistics of its dataset card (`SplitStatistics.asdict`).
    overlap: pair of splits -> number of question texts in both.

  """

  folder: epath.Path
  fingerprints: Mapping[str, str]
  statistics: Mapping[str, Mapping[str, Any]]
  overlap: Mapping[str, int]

  def read(self, split: str, table: str = "questions") -> Iterator[Any]:
    """Yield the records of `split`, decoded one at a time."""
    try:
      examples = tfds.builder_from_directory(self.folder / table).as_data_source(split)
      for example in examples:
        yield _decode(table, example)
    except (ValueError, RuntimeError, IndexError, TypeError, OSError) as error:
      raise InputError(
        f"{self.folder}: the prepared copy was changed while it was in use ({error}); run again, and "
        "it is prepared anew"
      ) from error


def prepared(spec: Spec, source: Source, cache: epath.Path) -> Prepared:
  """Return the prepared copy of `source` under `cache`, and prepare it where there is none.

  A changed source is prepared again; for damage, killed and second processes see `runtime.cache`.
  Where `cache` cannot be written, the copy is of this process alone. Raises InputError where a
  source file is wrong, OSError where no folder has room.
  """
  key = hashlib.sha256(f"{LAYOUT} {spec.version} {source.digest()}".encode()).hexdigest()
  home = cache / spec.name / key[:16]
  if "://" in str(home):
    raise OSError("it is not a local folder")
  entry = caches.read(pathlib.Path(home))
  if entry is None:
    home = writable(cache, spec.name) / home.name
    entry = caches.locked(pathlib.Path(home), functools.partial(_build, spec, source))
  return Prepared(home, **entry.fields)


def _build(spec: Spec, source: Source, writer: caches.Writer) -> dict[str, Any]:
  """Write the tables of a copy; return the other fields of `Prepared`."""
  log.info("preparing %s from %s", spec.name, source.folder)
  statistics = {
    split: PoolStatistics() if spec.is_pool else SplitStatistics() for split in source.files
  }
  for table in spec.tables:
    _write(spec, source, table, epath.Path(writer.folder) / table, statistics)
  fields: dict[str, Any] = {"fingerprints": {}, "statistics": {}}
  for split, its in statistics.items():
    fields["fingerprints"][split] = its.fingerprint()
    fields["statistics"][split] = its.asdict()
  return fields | {"overlap": overlap(statistics)}


def _write(
  spec: Spec, source: Source, table: str, folder: epath.Path, statistics: Mapping[str, Any]
) -> None:
  """Write one table's records, one at a time, in the order of the source, and take their statistics."""
  folder.mkdir(parents=True)
  name = spec.name if table == "questions" else f"{spec.name}_{table}"
  info = tfds.core.DatasetInfo(
    builder=tfds.core.dataset_info.DatasetIdentity(
      name=name, version=tfds.core.Version(spec.version), data_dir=str(folder), module_name=""
    ),
    features=tfds.features.FeaturesDict(FEATURES[table]),
    citation=spec.citation,
    disable_shuffling=True,
  )
  # Records come as TFDS stores them; its own look at every value would take most of the time.
  info.features.encode_example = lambda example: example
  writer = tfds.core.SequentialWriter(info, SHARD, file_format="array_record")
  writer.initialize_splits(list(source.files))
  for split, paths in source.files.items():

    def encoded(split=split, paths=paths) -> Iterator[dict]:
      count = 0
      for record in spec.records(table, split, paths):
        statistics[split].take(record)
        count += 1
        yield _encode(table, record)
      if not count:
        names = ", ".join(map(str, paths))
        raise InputError(f"{names}: nothing to read for the split {split} of {name}")

    writer.add_examples({split: encoded()})
  writer.close_all()


def _encode(table: str, record: Any) -> dict:
  """Return a record as TFDS stores it: texts as bytes, lists as arrays."""
  example: dict[str, Any] = {}
  for name, feature in FEATURES[table].items():
    value = getattr(record, name)
    if name == "candidates":
      example[name] = {}
      for field, kind in CANDIDATE.items():
        example[name][field] = _array([getattr(candidate, field) for candidate in value], kind)
    else:
      example[name] = value.encode() if feature is TEXT else _array(value, LISTS[name])
  return example


def _array(values: Sequence[Any], kind: Any) -> np.ndarray:
  if kind is TEXT:
    return np.array(list(map(str.encode, values)), object)
  return np.array(values, np.int32)


def _decode(table: str, example: Mapping) -> Any:
  """Return the record that `_encode` was given; fields are in the record's own order."""
  values: list[Any] = []
  for name, feature in FEATURES[table].items():
    value = example[name]
    if name == "candidates":
      columns = [_plain(value[field], kind) for field, kind in CANDIDATE.items()]
      values.append(tuple(Candidate(*row) for row in zip(*columns, strict=True)))
    else:
      values.append(value.decode() if feature is TEXT else tuple(_plain(value, LISTS[name])))
  return RECORDS[table](*values)


def _plain(values: Iterable[Any], kind: Any) -> Iterator[Any]:
  return map(bytes.decode if kind is TEXT else int, values)
