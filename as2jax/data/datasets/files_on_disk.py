"""Locating the source files of a dataset: in a folder, in the package, or by download."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets import download as downloading
from as2jax.data.lines import opened, unpacked
from as2jax.data.record import Question
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Counts:
  """Questions, (question, candidate) pairs and positives; None where nothing is published."""

  questions: int | None = None
  pairs: int | None = None
  positives: int | None = None

  def __str__(self) -> str:
    numbers = dataclasses.astuple(self)
    return "/".join("–" if number is None else str(number) for number in numbers)

  def asdict(self) -> dict[str, int | None]:
    """The three numbers by name."""
    return dataclasses.asdict(self)

  def agrees(self, actual: "Counts") -> bool:
    """Whether `actual` has each of the published numbers."""
    pairs = zip(dataclasses.astuple(self), dataclasses.astuple(actual))
    return all(number in (None, other) for number, other in pairs)


class Tally:
  """Iterates over questions, once, and counts them."""

  def __init__(self, questions: Iterable[Question]):
    self.counts = Counts(0, 0, 0)
    self._questions = questions

  def __iter__(self) -> Iterator[Question]:
    questions = pairs = positives = 0
    for question in self._questions:
      questions += 1
      pairs += len(question.candidates)
      positives += len(question.positives)
      yield question
    self.counts = Counts(questions, pairs, positives)


@dataclasses.dataclass(frozen=True)
class Spec:
  """The description of a dataset for the shared TFDS builder.

  Attributes:
    name: of the dataset.
    reader: reads the questions of one source file; an iterator where the file is large.
    version: the reader's version; increase it when the reader's result changes.
    files: split -> the names of its files.
    folders: the folders under the root that may hold the files.
    other_names: file -> the names under which it is distributed as well.
    anywhere: whether the files may lie at any depth below `folders`, as archives unpack them.
    clean: the benchmark's own question filter (SPEC.md 1): `answerable`, or `both` for questions with a
      positive and a negative.
    official: the filter of the benchmark's own evaluation (its reference files or its scorer), ""
      where it has none; it may be that of `clean`.
    average_recall: whether the organisers' scorer reports AvgRec.
    published: split -> question_filter (`all`, `answerable`, `both`) -> published counts.
    url: of the public archive, "" where there is none.
    embedded: the files are part of this package (then `folders` are its own).
    citation: the source of the data.
    note: what whoever loads it is told, "" for nothing.
    licence: as its distributors state it, with where they do; "" where they state none.
    addresses: name -> public address of the file itself, where it is not in an archive.
    documented: split -> question_filter -> counts that differ from the published ones for a reason
      that `why` explains; any other counts are an error.
    sha256: name -> SHA-256 (hex) of the official file's content, where it is known.
    max_bytes: of a download, and of what is unpacked from it.

  """

  name: str
  reader: Callable[[epath.PathLike], Iterable[Question]]
  version: str
  files: Mapping[str, tuple[str, ...]]
  folders: tuple[str, ...]
  clean: str
  published: Mapping[str, Mapping[str, Counts]]
  url: str = ""
  embedded: bool = False
  citation: str = ""
  licence: str = ""
  addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
  documented: Mapping[str, Mapping[str, Counts]] = dataclasses.field(default_factory=dict)
  why: str = ""
  official: str = ""
  average_recall: bool = False
  sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)
  max_bytes: int = 512 << 20
  other_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  anywhere: bool = False
  note: str = ""

  @property
  def names(self) -> tuple[str, ...]:
    """The names of all files."""
    return tuple(dict.fromkeys(name for names in self.files.values() for name in names))

  @property
  def tables(self) -> tuple[str, ...]:
    """The kinds of records: `questions`, or `pool` and `queries` (see `pool.PoolSpec`)."""
    return ("questions",)

  def records(self, table: str, split: str, paths: Iterable[epath.Path]) -> Iterator[Any]:
    """The records of one table of a split, read from its files."""
    del table, split
    for path in paths:
      yield from self.reader(path)

  def verdict(self, split: str, question_filter: str, actual: Counts) -> str:
    """`match`, `documented` or `differs`; "" where nothing is published."""
    published = self.published.get(split, {}).get(question_filter)
    documented = self.documented.get(split, {}).get(question_filter)
    if published is None:
      return ""
    if published.agrees(actual):
      return "match"
    return "documented" if documented is not None and documented.agrees(actual) else "differs"


@dataclasses.dataclass(frozen=True)
class Source:
  """The source files of a dataset.

  Attributes:
    folder: that holds them.
    files: split -> its files, of the splits of which all files are there.
    missing: split -> the names of its files that are not there, of the other splits.

  """

  folder: epath.Path
  files: Mapping[str, tuple[epath.Path, ...]]
  missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

  def digest(self) -> str:
    """SHA-256 (hex) of the bytes of all files, by split."""
    total = hashlib.sha256()
    for split, paths in self.files.items():
      for path in paths:
        with opened(path) as file:
          total.update(f"{split} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()

  def contents(self, spec: Spec) -> dict[str, str]:
    """Split -> `official`, `other` (than the official bytes), or `unknown` (no SHA-256 is known).

    What gzip compressed is judged by its content.
    """
    return {
      split: _worst(map(_content, paths, map(spec.sha256.get, spec.files[split])))
      for split, paths in self.files.items()
    }


def _content(path: epath.Path, sha256: str | None) -> str:
  if sha256 is None:
    return "unknown"
  with unpacked(path) as file:
    return "official" if hashlib.file_digest(file, "sha256").hexdigest() == sha256 else "other"


def _worst(contents: Iterable[str]) -> str:
  kinds = set(contents)
  return next(name for name in ("other", "unknown", "official") if name in kinds)


def find(spec: Spec, root: epath.Path, downloads: epath.Path, *, download: bool) -> Source:
  """Locates the source files of `spec` under `root`, among downloads, or (if allowed) online.

  The first folder under `root` that holds all files of some split is the source, and has these
  splits alone; of downloads, all files are taken or none.

  Raises:
    InputError: no folder holds a split; the message says where it looked and what to do.

  """
  if source := located(spec, root, downloads):
    return source
  places = [*_places(spec, root), downloads]
  if spec.embedded:
    raise InputError(f"{spec.name}: {places[0]} lacks its files; install the package again")
  reason = "downloading is switched off"
  if download:
    reason = downloading.fetch(
      downloads,
      spec.names,
      archive=spec.url,
      addresses=spec.addresses,
      sha256=spec.sha256,
      max_bytes=spec.max_bytes,
    )
    if not reason:
      return _source(spec, downloads)
  raise InputError(_absent(spec, places, reason))


def located(spec: Spec, root: epath.Path, downloads: epath.Path) -> Source | None:
  """What `find` finds on this machine, None where there is no split at all.

  Raises:
    InputError: a folder holds some files, but of no split all.

  """
  for place in _places(spec, root):
    source = _source(spec, place)
    if source.files:
      return source
    if any(len(names) < len(spec.files[split]) for split, names in source.missing.items()):
      raise InputError(f"{spec.name}: {_lacks(source)}")
  source = _source(spec, downloads)
  return None if source.missing else source


def _places(spec: Spec, root: epath.Path) -> list[epath.Path]:
  root = epath.resource_path("as2jax") if spec.embedded else root
  return list(dict.fromkeys(root / folder for folder in spec.folders))


def _lacks(source: Source) -> str:
  each = "; ".join(f"{', '.join(names)} ({split})" for split, names in source.missing.items())
  return f"{source.folder} lacks {each}; put these files there"


def lacking(spec: Spec, root: epath.Path, downloads: epath.Path) -> list[str]:
  """The files that are missing in the most complete of the folders where `find` looks."""
  if spec.embedded:
    return []
  places = [*(root / folder for folder in spec.folders), downloads]
  missing = [_source(spec, place).missing.values() for place in places]
  return min((list(dict.fromkeys(itertools.chain(*names))) for names in missing), key=len)


def splits_here(spec: Spec, root: epath.Path, downloads: epath.Path) -> list[str]:
  """The splits that `find` reads without a download; [] also where it refuses what is there."""
  try:
    source = located(spec, root, downloads)
  except InputError:
    return []
  return list(source.files) if source else []


def _source(spec: Spec, folder: epath.Path) -> Source:
  try:
    present = _present(spec, folder)
  except OSError as error:
    raise InputError(
      f"{spec.name}: {folder} cannot be read: {error.strerror or error}; check its permissions"
    ) from error
  missing = {
    split: tuple(name for name in names if name not in present)
    for split, names in spec.files.items()
  }
  files = {
    split: tuple(present[name] for name in names)
    for split, names in spec.files.items()
    if not missing[split]
  }
  return Source(folder, files, {split: names for split, names in missing.items() if names})


def _present(spec: Spec, folder: epath.Path) -> dict[str, epath.Path]:
  """Name -> file, of those that are there: under one of its names, plain or compressed (`.gz`)."""
  below: dict[str, list[epath.Path]] = {}
  if spec.anywhere and folder.is_dir():
    for path in _walk(folder):
      below.setdefault(path.name, []).append(path)
  present = {}
  for name in spec.names:
    known = (name, *spec.other_names.get(name, ()))
    for file in (f"{known_name}{end}" for known_name in known for end in ("", ".gz")):
      paths = below.get(file, []) if spec.anywhere else [folder / file]
      paths = [path for path in paths if path.exists()]
      if paths:
        present[name] = _only(paths)
        break
  return present


def _walk(folder: epath.Path) -> Iterator[epath.Path]:
  for path in sorted(folder.iterdir()):
    if path.is_dir():
      yield from _walk(path)
    else:
      yield path


def _only(paths: Sequence[epath.Path]) -> epath.Path:
  """The first of some files with one name, which must be copies of each other."""
  digest = lambda path: Source(path.parent, {"": (path,)}).digest()
  if len(paths) > 1 and len(set(map(digest, paths))) > 1:
    raise InputError(
      f"{' and '.join(map(str, paths))} have one name and differ; keep the one that is meant"
    )
  return paths[0]


def _absent(spec: Spec, places: Iterable[epath.Path], reason: str) -> str:
  how = f"get {spec.url}, unpack it" if spec.url else f"get the files ({spec.citation})"
  if spec.addresses:
    how = f"get {', '.join(spec.addresses.values())}"
  return (
    f"{spec.name}: no {', '.join(spec.names)}. Looked in {', '.join(map(str, places))}; {reason}. "
    f"To get the data: {how}, and name the folder in AS2JAX_DATA or --config.data.root. To run "
    "the same command on the embedded sample instead, add `:sample` after the config file's name, "
    "e.g. --config=configs/wikiqa_triplet.py:sample"
  )
