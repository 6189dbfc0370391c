"""The shared TFDS builder: writes a prepared copy (array_record) of source files, and reads it.

Imports tensorflow_datasets (0.3 s): import this module lazily.
"""

import contextlib
import dataclasses
import hashlib
import io
import sys
import uuid
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import tensorflow_datasets as tfds
from absl import logging
from etils import epath
from tensorflow_datasets.core import example_serializer, naming

from as2jax.data.datasets.files_on_disk import Counts, Source, Spec
from as2jax.data.datasets.pool import PoolCounts
from as2jax.data.datasets.shards import Progress, write_shards
from as2jax.data.datasets.statistics import PoolStatistics, SplitStatistics
from as2jax.data.datasets.tfds_schema import TABLES
from as2jax.data.record import fingerprint
from as2jax.runtime import checksums
from as2jax.runtime.errors import InputError

LAYOUT = "4"  # of the prepared copy: raise it when the features or the pointer's fields change
POINTER = "prepared.json"


class RecordBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """One example a record, in the order of the source; `for_spec` makes a dataset's own class."""

  VERSION = tfds.core.Version("1.0.0")
  spec: Spec
  source: Source
  table: str

  @classmethod
  def for_spec(cls, spec: Spec, source: Source, table: str) -> type["RecordBuilder"]:
    """The builder class of one table of the dataset that `spec` describes, read from `source`."""
    name = spec.name if table == "questions" else f"{spec.name}_{table}"
    fields = {
      "name": name,
      "spec": spec,
      "source": source,
      "table": table,
      "VERSION": tfds.core.Version(spec.version),
      "__module__": __name__,
    }
    return type(name, (cls,), fields, skip_registration=True)

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(TABLES[self.table].features),
      citation=self.spec.citation,
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    del dl_manager  # the files are there: see source.find
    return {split: self._generate_examples(split) for split in self.source.files}

  def _generate_examples(self, split):
    records = self.spec.records(self.table, split, self.source.files[split])
    progress = Progress(f"preparing {self.name} {split}", unit=TABLES[self.table].unit)
    for number, record in enumerate(progress.passing(records)):
      yield number, TABLES[self.table].encoded(record)

  def _download_and_prepare(self, dl_manager, download_config):
    """Writes the splits one record at a time (TFDS's own way holds an unshuffled split)."""
    del download_config
    shapes = self.info.features.get_serialized_info()
    serializer = example_serializer.ExampleSerializer(shapes)
    splits = []
    for split, examples in self._split_generators(dl_manager).items():
      template = naming.ShardedFileTemplate(
        data_dir=self.data_path, dataset_name=self.name, split=split, filetype_suffix="array_record"
      )
      written = write_shards(
        self.data_path,
        f"{self.name}-{split}.array_record",
        (serializer.serialize_example(example) for _, example in examples),
      )
      if not written.shard_lengths:
        files = ", ".join(map(str, self.source.files[split]))
        raise InputError(f"{files}: nothing to read for the split {split} of {self.name}")
      splits.append(
        tfds.core.SplitInfo(
          name=split,
          shard_lengths=list(written.shard_lengths),
          num_bytes=written.bytes,
          filename_template=template,
        )
      )
    self.info.set_splits(tfds.core.splits.SplitDict(splits))


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A whole prepared copy.

  Attributes:
    folders: table -> TFDS files; `tfds.builder_from_directory(folder)` reads them too.
    counts, fingerprints: split -> its counts, its fingerprint.
    statistics: split -> the statistics of its dataset card (`statistics.SplitStatistics.asdict`).
    overlap: pair of splits -> number of question texts in both.

  """

  folders: Mapping[str, epath.Path]
  counts: Mapping[str, Counts | PoolCounts]
  fingerprints: Mapping[str, str]
  statistics: Mapping[str, Mapping[str, Any]]
  overlap: Mapping[str, int]

  def read(self, split: str, table: str = "questions") -> Iterator[Any]:
    """The records of `split`, decoded one at a time."""
    return _read(self.folders[table], split, table)


def _read(folder: epath.Path, split: str, table: str) -> Iterator[Any]:
  with _quiet():
    examples = tfds.builder_from_directory(folder).as_data_source(split)
  try:
    for example in examples:
      yield TABLES[table].decoded(example)
  except (ValueError, RuntimeError, IndexError, TypeError, OSError) as error:
    raise InputError(
      f"{folder}: the prepared copy was changed while it was in use ({error}); run again, and it "
      "is prepared anew"
    ) from error


def prepared(spec: Spec, source: Source, cache: epath.Path) -> Prepared:
  """Returns the prepared copy of `source` under `cache`, and prepares it where there is none.

  A copy lies under a hash of the source's bytes and the reader's version, in a folder of its own
  process; it is valid only once the pointer beside it, written last, names it. So a changed source
  is read again, a killed preparation leaves no valid copy, and concurrent ones do not interfere. The
  pointer holds checksums, which are verified, of each file once a process: a damaged copy is
  prepared anew, and the log says so.

  Raises:
    InputError: a source file is wrong (from the reader).
    OSError: `cache` cannot be written.

  """
  key = hashlib.sha256(f"{LAYOUT} {spec.version} {source.digest()}".encode()).hexdigest()
  home = cache / spec.name / key[:16]
  return _pointed(home) or _prepare(spec, source, home)


def _pointed(home: epath.Path, *, quiet: bool = False) -> Prepared | None:
  """The copy that the pointer names, None where there is none or it is incomplete or damaged."""
  tell = logging.debug if quiet else logging.warning
  try:
    pointer = checksums.unsealed((home / POINTER).read_text())
    for name, (size, checksum) in pointer["files"].items():
      if (home / name).stat().length != size or checksums.of_file(home / name) != checksum:
        raise ValueError(f"{name} is not what was written")
    folders = {table: home / folder for table, folder in pointer["folders"].items()}
    kind = Counts if "questions" in folders else PoolCounts
    counts = {split: kind(*numbers) for split, numbers in pointer["counts"].items()}
    return Prepared(folders, counts, pointer["fingerprints"], pointer["facts"], pointer["overlap"])
  except FileNotFoundError as error:
    if (home / POINTER).exists():
      tell("%s: a file of the prepared copy is gone (%s); preparing anew", home, error)
  except (ValueError, KeyError, TypeError) as error:
    tell("%s: the prepared copy is damaged (%s); preparing anew", home, error)
  return None


def _prepare(spec: Spec, source: Source, home: epath.Path) -> Prepared:
  own = home / uuid.uuid4().hex
  logging.info("preparing %s from %s in %s", spec.name, source.folder, home)
  try:
    folders = {}
    for table in spec.tables:
      with _quiet():
        builder = RecordBuilder.for_spec(spec, source, table)(
          data_dir=own, file_format="array_record"
        )
        builder.download_and_prepare()
      folders[table] = epath.Path(builder.data_dir)
    copy = _checked(spec, source, folders)
    other = _pointed(home, quiet=True)
    if other is not None:  # another process was faster
      own.rmtree()
      return other
    relative = {table: str(folder.relative_to(home)) for table, folder in folders.items()}
    files = {}
    for table, folder in folders.items():
      for path in folder.iterdir():
        checksums.make_durable(path)
        files[f"{relative[table]}/{path.name}"] = path.stat().length, checksums.of_file(path)
      checksums.make_durable(folder)
    pointer = {
      "folders": relative,
      "files": files,
      "counts": {split: dataclasses.astuple(numbers) for split, numbers in copy.counts.items()},
      "fingerprints": copy.fingerprints,
      "facts": copy.statistics,
      "overlap": copy.overlap,
    }
    (own / POINTER).write_text(checksums.sealed(pointer))
    checksums.make_durable(own / POINTER)
    (own / POINTER).replace(home / POINTER)
    checksums.make_durable(home)
  except BaseException:
    own.rmtree(missing_ok=True)
    raise
  return copy


def _checked(spec: Spec, source: Source, folders: Mapping[str, epath.Path]) -> Prepared:
  """Reads the written records back, one at a time, and computes their statistics."""
  gathered = {}
  counts, fingerprints = {}, {}
  for split in source.files:
    its = gathered[split] = SplitStatistics() if "questions" in folders else PoolStatistics()
    parts = []
    for table, folder in folders.items():
      progress = Progress(f"reading back {spec.name} {split}", unit=TABLES[table].unit)
      parts.append(fingerprint(its.passing(progress.passing(_read(folder, split, table)))))
    counts[split] = its.counts["all" if "questions" in folders else "pool"]
    fingerprints[split] = (
      parts[0] if len(parts) == 1 else hashlib.sha256(" ".join(parts).encode()).hexdigest()
    )
  return Prepared(
    folders,
    counts,
    fingerprints,
    statistics={split: its.asdict() for split, its in gathered.items()},
    overlap={
      f"{a}+{b}": gathered[a].questions.shared(gathered[b].questions)
      for a, b in combinations(gathered, 2)
    },
  )


@contextlib.contextmanager
def _quiet():
  """Silences the messages of TFDS, and its progress bars where output goes to a file."""
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  level = logging.get_verbosity()
  logging.set_verbosity(min(level, logging.WARNING))
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    logging.set_verbosity(level)
