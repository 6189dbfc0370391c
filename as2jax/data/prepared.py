"""Prepared copies of data sets, written and read by tensorflow_datasets (array_record).

A copy lies in a folder of the cache under a hash of the source's bytes and the reader's version, and
appears there whole: TFDS' files of each table (`tfds.builder_from_directory` reads them, too) and
`prepared.json`, with checksums, counts and statistics. Imports tensorflow_datasets (0.3 s).
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import filelock
import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from etils import epath

from as2jax.data.record import Candidate, Passage, Query, Question
from as2jax.data.source import Source, Spec
from as2jax.data.statistics import PoolStatistics, SplitStatistics, overlap
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import checksum_of, seal, unseal, writable

LAYOUT = "7"  # of the prepared copy: raise it when the features or the manifest's fields change
MANIFEST = "prepared.json"
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
logging.get_absl_logger().addFilter(lambda record: "tensorflow_datasets" not in record.pathname)


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

  A changed source is prepared again; a killed preparation leaves no copy; a second process waits for
  the first. Each file's checksum is compared, once a process: a damaged copy is prepared anew, and
  the log says so. Where `cache` cannot be written, the copy is of this process alone. Raises InputError
  where a source file is wrong.
  """
  key = hashlib.sha256(f"{LAYOUT} {spec.version} {source.digest()}".encode()).hexdigest()
  home = cache / spec.name / key[:16]
  if copy := _read(home):
    return copy
  if "://" in str(home):
    raise OSError("it is not a local folder")
  home = writable(cache, spec.name) / home.name
  with filelock.FileLock(f"{home}.lock"):
    return _read(home, log=logging.debug) or _prepare(spec, source, home)


def _read(home: epath.Path, log: Callable = logging.warning) -> Prepared | None:
  """Return the copy in a folder, None where there is none or it is damaged."""
  if not home.exists():
    return None
  try:
    content = unseal((home / MANIFEST).read_text())
    for name, (size, checksum) in content["files"].items():
      if (home / name).stat().length != size or checksum_of(home / name) != checksum:
        raise ValueError(f"{name} is not what was written")
    return Prepared(home, *(content[key] for key in ("fingerprints", "facts", "overlap")))
  except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
    log("%s: the prepared copy is damaged (%s); preparing anew", home, error)
    return None


def _prepare(spec: Spec, source: Source, home: epath.Path) -> Prepared:
  """Write the copy beside its place, and then rename it; the caller holds the lock."""
  scratch = home.parent / f"{home.name}.unfinished"
  scratch.rmtree(missing_ok=True)  # of a process that was killed
  logging.info("preparing %s from %s in %s", spec.name, source.folder, home)
  statistics = {
    split: PoolStatistics() if spec.is_pool else SplitStatistics() for split in source.files
  }
  try:
    for table in spec.tables:
      _write(spec, source, table, scratch / table, statistics)
    files = {}
    for path in scratch.glob("*/*"):
      files[str(path.relative_to(scratch))] = path.stat().length, checksum_of(path)
    content: dict[str, Any] = {"files": files, "fingerprints": {}, "facts": {}}
    for split, its in statistics.items():
      content["fingerprints"][split] = its.fingerprint()
      content["facts"][split] = its.asdict()
    content["overlap"] = overlap(statistics)
    (scratch / MANIFEST).write_text(seal(content))
    home.rmtree(missing_ok=True)
    os.replace(scratch, home)
  finally:
    scratch.rmtree(missing_ok=True)
  copy = _read(home)
  if copy is None:
    raise OSError("what was written cannot be read back: check the disk")
  return copy


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
