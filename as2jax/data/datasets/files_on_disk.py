"""Locating the source files of a dataset: in a folder, in the package, or by download."""

import dataclasses
import hashlib
import http.client
import shutil
import tarfile
import threading
import urllib.error
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from absl import logging
from etils import epath

from as2jax.data.datasets.lines import opened
from as2jax.data.record import Question
from as2jax.runtime import checksums
from as2jax.runtime.errors import InputError

BROKEN_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, NotImplementedError)
SECONDS = 8  # a server that is silent for longer is taken for absent


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
    clean: the benchmark's own question filter (SPEC.md 1): `answerable`, or `both` for questions with a
      positive and a negative.
    official: the filter of the benchmark's own evaluation (its reference files or its scorer), ""
      where it has none; it may be that of `clean`.
    average_recall: whether the organisers' scorer reports AvgRec.
    published: split -> question_filter (`all`, `answerable`, `both`) -> published counts.
    url: of the public archive, "" where there is none.
    embedded: the files are part of this package (then `folders` are its own).
    citation: the source of the data.
    addresses: name -> public address of the file itself, where it is not in an archive.
    documented: split -> question_filter -> counts that differ from the published ones for a reason
      that `why` explains; any other counts are an error.

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
  addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
  documented: Mapping[str, Mapping[str, Counts]] = dataclasses.field(default_factory=dict)
  why: str = ""
  official: str = ""
  average_recall: bool = False

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
  """The located files of a dataset: split -> paths; `folder` holds them all."""

  folder: epath.Path
  files: Mapping[str, tuple[epath.Path, ...]]

  def digest(self) -> str:
    """SHA-256 (hex) of the bytes of all files, by split."""
    total = hashlib.sha256()
    for split, paths in self.files.items():
      for path in paths:
        with opened(path) as file:
          total.update(f"{split} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def find(spec: Spec, root: epath.Path, downloads: epath.Path, *, download: bool) -> Source:
  """Locates the source files of `spec` under `root`, among downloads, or (if allowed) online.

  Raises:
    InputError: no folder holds all files; the message says where it looked and what to do.

  """
  if spec.embedded:
    root = epath.resource_path("as2jax")
  places = list(dict.fromkeys(root / folder for folder in spec.folders))
  for place in places:
    missing = _missing(spec, place)
    if not missing:
      return _source(spec, place)
    if len(missing) < len(spec.names):
      raise InputError(
        f"{spec.name}: {place} lacks {', '.join(missing)}; put all of {', '.join(spec.names)} there"
      )
  if spec.embedded:
    raise InputError(f"{spec.name}: {places[0]} lacks its files; install the package again")
  if not _missing(spec, downloads):
    return _source(spec, downloads)
  reason = "downloading is switched off"
  if download:
    reason = _download(spec, downloads)
    if not reason:
      return _source(spec, downloads)
  raise InputError(_absent(spec, (*places, downloads), reason))


def lacking(spec: Spec, root: epath.Path, downloads: epath.Path) -> list[str]:
  """The files that are missing in the most complete of the folders where `find` looks."""
  if spec.embedded:
    return []
  places = [*(root / folder for folder in spec.folders), downloads]
  return min((_missing(spec, place) for place in places), key=len)


def _missing(spec: Spec, folder: epath.Path) -> list[str]:
  try:
    return [name for name in spec.names if _present(folder, name) is None]
  except OSError as error:
    raise InputError(
      f"{spec.name}: {folder} cannot be read: {error.strerror or error}; check its permissions"
    ) from error


def _source(spec: Spec, folder: epath.Path) -> Source:
  present = lambda name: _present(folder, name) or folder / name
  files = {split: tuple(map(present, names)) for split, names in spec.files.items()}
  return Source(folder, files)


def _present(folder: epath.Path, name: str) -> epath.Path | None:
  """The file `name` of a folder, or the same compressed (`name.gz`); None where there is neither."""
  files = (folder / name, folder / f"{name}.gz")
  return next((file for file in files if file.exists()), None)


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


def _download(spec: Spec, folder: epath.Path) -> str:
  """Downloads the public archive's files into `folder`; returns the reason of a failure, or ""."""
  if spec.addresses:
    return _download_files(spec, folder)
  if not spec.url:
    return "there is no public address to download it from"
  response = _answer(spec.url)
  if isinstance(response, Exception):
    return f"the download failed ({response})"
  logging.info("downloading %s to %s", spec.url, folder)
  folder.mkdir(parents=True, exist_ok=True)
  # Unique names, because two processes may download at once; the later one changes nothing.
  scratch = folder / f"{uuid.uuid4().hex}.partial"
  scratch.mkdir()
  try:
    with response, (scratch / "archive").open("wb") as archive:
      shutil.copyfileobj(response, archive)
    _unpack(scratch / "archive", spec.names, scratch)
    _put(scratch, folder, spec.names)
  except (OSError, EOFError, *BROKEN_ARCHIVE, http.client.HTTPException, InputError) as error:
    return f"the download failed ({error})"
  finally:
    scratch.rmtree()
  return ""


def _download_files(spec: Spec, folder: epath.Path) -> str:
  """As `_download` for files that are published one by one."""
  folder.mkdir(parents=True, exist_ok=True)
  scratch = folder / f"{uuid.uuid4().hex}.partial"
  scratch.mkdir()
  try:
    for name, url in spec.addresses.items():
      response = _answer(url)
      if isinstance(response, Exception):
        return f"the download of {url} failed ({response})"
      logging.info("downloading %s to %s", url, folder)
      with response, (scratch / name).open("wb") as file:
        shutil.copyfileobj(response, file)
    _put(scratch, folder, spec.addresses)
  except (OSError, EOFError, http.client.HTTPException) as error:
    return f"the download failed ({error})"
  finally:
    scratch.rmtree()
  return ""


def _put(scratch: epath.Path, folder: epath.Path, names: Iterable[str]) -> None:
  """Moves files from `scratch` to `folder`, each only once it is whole on the disk."""
  for name in names:
    checksums.make_durable(scratch / name)
    (scratch / name).replace(folder / name)
  checksums.make_durable(folder)


def _answer(url: str):
  """The open response, or the exception; in a thread, as name resolution has no time limit."""
  box = []

  def ask():
    try:
      box.append(urllib.request.urlopen(url, timeout=SECONDS))
    except (OSError, ValueError, http.client.HTTPException) as error:
      if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is an open response, too
      box.append(error)

  thread = threading.Thread(target=ask, daemon=True)
  thread.start()
  thread.join(SECONDS)
  return box[0] if box else TimeoutError(f"no answer within {SECONDS} seconds")


def _unpack(archive: epath.Path, names: Iterable[str], folder: epath.Path) -> None:
  """Unpacks the members called `names`, in whatever folder of the zip or tar they lie."""
  with opened(archive) as file:
    if zipfile.is_zipfile(file):
      packed = zipfile.ZipFile(file)
      members = {epath.Path(name).name: name for name in packed.namelist()}
      extract = packed.open
    else:
      file.seek(0)
      packed = tarfile.open(fileobj=file, mode="r:*")
      members = {epath.Path(name).name: name for name in packed.getnames()}
      extract = packed.extractfile
    for name in names:
      if name not in members:
        raise InputError(f"the archive holds no {name}")
      with extract(members[name]) as member, (folder / name).open("wb") as output:
        shutil.copyfileobj(member, output)
