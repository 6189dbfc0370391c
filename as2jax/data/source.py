"""What describes a data set, and where its source files are: in a folder, in the package, online."""

import dataclasses
import hashlib
import http.client
import logging
import lzma
import struct
import tarfile
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from as2jax.data.lines import opened
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import PIECE, make_durable, writable

log = logging.getLogger(__name__)

SILENCE = 8  # seconds after which a server that sends nothing is taken for absent
# What a download raises, and the readers of archives where one is damaged, encrypted or unknown.
FAILED = (
  OSError, EOFError, http.client.HTTPException, zipfile.BadZipFile, tarfile.TarError, zlib.error,
  lzma.LZMAError, struct.error, RuntimeError, ValueError, LookupError, OverflowError,
)  # fmt: skip


class _Numbers:
  """Numbers of a split, each None where none is published."""

  def __str__(self) -> str:
    return "/".join("–" if number is None else str(number) for number in vars(self).values())

  def asdict(self) -> dict[str, int | None]:
    """Return the numbers by name."""
    return dict(vars(self))

  def agrees(self, actual: "_Numbers") -> bool:
    """Tell whether `actual` has each of the published numbers."""
    return all(number in (None, vars(actual)[name]) for name, number in vars(self).items())


@dataclasses.dataclass(frozen=True)
class Counts(_Numbers):
  """Numbers of questions, (question, candidate) pairs and positives."""

  questions: int | None = None
  pairs: int | None = None
  positives: int | None = None


@dataclasses.dataclass(frozen=True)
class PoolCounts(_Numbers):
  """Numbers of a pool: passages, distinct texts of them, ReQA's queries, questions, their texts."""

  entries: int | None = None
  sentences: int | None = None
  queries: int | None = None
  questions: int | None = None
  texts: int | None = None


@dataclasses.dataclass(frozen=True)
class Spec:
  """The description of a data set.

  Attributes:
    name: of the data set.
    reader: reads the records of one source file, `reader(path)`; where splits share files
      `reader(path, split)`, and of a pool `reader(path, table, split)`. An iterator where it is large.
    version: the reader's version; increase it when the reader's result changes.
    files: split -> the names of its files.
    folders: the folders under the root that may hold the files.
    clean: the benchmark's own question filter (SPEC.md 1): `answerable` (a positive), `both` (a
      negative too), or `pool` of a data set for retrieval.
    published: split -> question filter (`all`, `answerable`, `both`, `pool`) -> published counts.
    other_names: file -> the names under which it is distributed as well.
    anywhere: whether the files may lie at any depth below `folders`, as archives unpack them.
    official: the filter of the benchmark's own evaluation (its reference files or its scorer), "" for none.
    average_recall: whether the organisers' scorer reports AvgRec.
    by_split: whether the reader is told the split.
    url, addresses: of the public archive, or name -> public address of each file.
    sha256: name -> SHA-256 (hex) of the official file's content, where it is known.
    max_bytes: of a download, and of what is unpacked from it.
    embedded: the files are part of this package (then `folders` are its own).
    citation, licence: the source of the data, and what its distributors state, "" for nothing.
    documented: split -> question filter -> counts that differ from the published ones for a reason
      that `why` explains; any other counts are an error.

  """

  name: str
  reader: Callable[..., Iterable[Any]]
  version: str
  files: Mapping[str, tuple[str, ...]]
  folders: tuple[str, ...]
  clean: str
  published: Mapping[str, Mapping[str, Counts | PoolCounts]]
  other_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  anywhere: bool = False
  official: str = ""
  average_recall: bool = False
  by_split: bool = False
  url: str = ""
  addresses: Mapping[str, str] = dataclasses.field(default_factory=dict)
  sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)
  max_bytes: int = 512 << 20
  embedded: bool = False
  citation: str = ""
  licence: str = ""
  documented: Mapping[str, Mapping[str, Counts | PoolCounts]] = dataclasses.field(
    default_factory=dict
  )
  why: str = ""

  @property
  def is_pool(self) -> bool:
    """Tell whether it is for retrieval: passages and queries."""
    return self.clean == "pool"

  @property
  def tables(self) -> tuple[str, ...]:
    """Return the kinds of its records."""
    return ("pool", "queries") if self.is_pool else ("questions",)

  @property
  def names(self) -> tuple[str, ...]:
    """Return the names of all files."""
    return tuple(dict.fromkeys(name for names in self.files.values() for name in names))

  def records(self, table: str, split: str, paths: Iterable[epath.Path]) -> Iterator[Any]:
    """Yield the records of one table of a split, file after file."""
    more = (split,) if self.by_split else ()
    for path in paths:
      yield from self.reader(path, *((table, split) if self.is_pool else more))

  def verdict(self, split: str, question_filter: str, actual: Counts | PoolCounts) -> str:
    """Compare counts with the published ones: `match`, `documented`, `differs`; "" without any."""
    for stated, verdict in ((self.published, "match"), (self.documented, "documented")):
      counts = stated.get(split, {}).get(question_filter)
      if counts is not None and counts.agrees(actual):
        return verdict
    return "differs" if question_filter in self.published.get(split, {}) else ""


@dataclasses.dataclass(frozen=True)
class Source:
  """The source files of a data set.

  Attributes:
    folder: that holds them.
    files: split -> its files, of the splits of which all files are there.
    missing: split -> the names of its files that are not there, of the other splits.

  """

  folder: epath.Path
  files: Mapping[str, tuple[epath.Path, ...]]
  missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

  @property
  def lacks(self) -> list[str]:
    """Return the names of all files that are not there."""
    return list(dict.fromkeys(name for names in self.missing.values() for name in names))

  def digest(self) -> str:
    """Return the SHA-256 (hex) of the bytes of all files, by split."""
    total = hashlib.sha256()
    for split, paths in self.files.items():
      for path in paths:
        total.update(f"{split} {_sha256(path)}\n".encode())
    return total.hexdigest()

  def contents(self, spec: Spec) -> dict[str, str]:
    """Compare the unpacked content of each split's files with the official one.

    Returns:
      Split -> `official`, `other`, or `unknown` (no SHA-256 is known).

    """
    contents = {}
    for split, paths in self.files.items():
      contents[split] = "official"
      for name, path in zip(spec.files[split], paths, strict=True):
        if name not in spec.sha256:
          contents[split] = "unknown"
        elif _sha256(path, packed=True) != spec.sha256[name]:
          contents[split] = "other"
          break
    return contents


def _sha256(path: epath.Path, *, packed: bool = False) -> str:
  with opened(path, packed=packed) as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def find(spec: Spec, root: epath.Path, downloads: epath.Path, *, download: bool) -> Source:
  """Locate the source files of `spec` as `located` does, or fetch them online if allowed.

  Raises InputError where no folder holds a split; it says where it looked and what to do.
  """
  source = located(spec, root, downloads)
  if source.files:
    return source
  lacks = f"{spec.name}: {source.folder} lacks {', '.join(source.lacks)}"
  if spec.embedded:
    raise InputError(f"{lacks}; install the package again")
  reason = "downloading is switched off"
  if download:
    cache = downloads.parents[1]
    if spec.url or spec.addresses:
      downloads = writable(cache, str(downloads.relative_to(cache)))
    reason = fetch(spec, downloads)
    if not reason:
      return _source(spec, downloads)
  how = f"get {spec.url}, unpack it" if spec.url else f"get the files ({spec.citation})"
  if spec.addresses:
    how = f"get {', '.join(spec.addresses.values())}"
  places = ", ".join(str(place) for place in (*_places(spec, root), downloads))
  raise InputError(
    f"{lacks}. Looked in {places}; {reason}. "
    f"To get the data: {how}, and name the folder in AS2JAX_DATA. A job trains on the embedded "
    "sample instead with `:sample` after its name: as2jax train wikiqa_triplet:sample -o RUN"
  )


def located(spec: Spec, root: epath.Path, downloads: epath.Path) -> Source:
  """Look for the source files of `spec` on this machine.

  The first folder under `root` that holds all files of some split is the source, and has these
  splits alone; of downloads, all files are taken or none. Else it is the folder that lacks fewest
  files, and has no splits.
  """
  try:
    found = [_source(spec, place) for place in (*_places(spec, root), downloads)]
  except OSError as error:
    raise InputError(f"{spec.name} cannot be read: {error}; check the permissions") from error
  if found[-1].missing:
    found[-1] = dataclasses.replace(found[-1], files={})
  for source in found:
    if source.files:
      return source
  return min(found, key=lambda source: len(source.lacks))


def _places(spec: Spec, root: epath.Path) -> list[epath.Path]:
  root = epath.resource_path("as2jax") if spec.embedded else root
  return list(dict.fromkeys(root / folder for folder in spec.folders))


def _source(spec: Spec, folder: epath.Path) -> Source:
  """Find the files of `spec` under one of their names, plain or compressed (`.gz`)."""
  below = list(_walk(folder)) if spec.anywhere and folder.is_dir() else []
  present: dict[str, epath.Path] = {}
  for name in spec.names:
    for known in (name, *spec.other_names.get(name, ())):
      for file in (known, f"{known}.gz"):
        paths = [path for path in below or [folder / file] if path.name == file and path.exists()]
        if len(paths) > 1 and len({_sha256(path) for path in paths}) > 1:
          shown = " and ".join(map(str, paths))
          raise InputError(f"{shown} have one name and differ; keep the one that is meant")
        if paths:
          present.setdefault(name, paths[0])
  files, missing = {}, {}
  for split, names in spec.files.items():
    absent = tuple(name for name in names if name not in present)
    if absent:
      missing[split] = absent
    else:
      files[split] = tuple(present[name] for name in names)
  return Source(folder, files, missing)


def _walk(folder: epath.Path) -> Iterator[epath.Path]:
  for path in sorted(folder.iterdir()):
    if path.is_dir():
      yield from _walk(path)
    else:
      yield path


def fetch(spec: Spec, folder: epath.Path) -> str:
  """Download the files of `spec`, within its limit of size, into `folder`, where they appear only once all are whole.

  Returns:
    The reason of a failure, or "".

  """
  if not spec.url and not spec.addresses:
    return "there is no public address to download it from"
  # Unique names, because two processes may download at once; the later one changes nothing.
  scratch = folder / f"{uuid.uuid4().hex}.partial"
  try:
    scratch.mkdir(parents=True)
    for name, url in (spec.addresses or {"archive": spec.url}).items():
      log.info("downloading %s", url)
      with urllib.request.urlopen(url, timeout=SILENCE) as response:
        _copy(response, scratch / name, url, spec.max_bytes)
    if not spec.addresses:
      unpack(scratch / "archive", spec.names, scratch, spec.max_bytes)
    for name in spec.names:
      with (scratch / name).open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
      if actual != spec.sha256.get(name, actual):
        raise InputError(f"{name} is not the official file: its SHA-256 is {actual}")
      make_durable(scratch / name)
    for name in spec.names:
      (scratch / name).replace(folder / name)
    make_durable(folder)
  except FAILED as error:
    return f"the download failed ({error})"
  finally:
    scratch.rmtree(missing_ok=True)
  return ""


def _copy(source: Any, target: epath.Path, name: str, max_bytes: int) -> None:
  size = 0
  with target.open("wb") as file:
    while part := source.read(PIECE):
      size += len(part)
      if size > max_bytes:
        raise InputError(f"{name}: more than the {max_bytes} bytes that are expected at most")
      file.write(part)


def unpack(archive: epath.Path, names: Iterable[str], folder: epath.Path, max_bytes: int) -> None:
  """Unpack the members called `names`, in whatever folder of the zip or tar they lie."""
  lacking = set(names)
  for path, member in _members(archive):
    name = epath.Path(path).name
    if name in lacking:
      _copy(member, folder / name, f"the archive's {name}", max_bytes)
      lacking.remove(name)
  if lacking:
    raise InputError(f"the archive holds no {min(lacking)}")


def _members(archive: epath.Path) -> Iterator[tuple[str, Any]]:
  """Yield (path, open file) of each member of a zip, or of a tar that is packed or not."""
  if zipfile.is_zipfile(archive):
    with zipfile.ZipFile(archive) as packed:
      for name in packed.namelist():
        with packed.open(name) as content:
          yield name, content
    return
  with tarfile.open(archive, mode="r|*") as packed:  # a stream: it reads in small pieces
    for member in packed:
      if member.isreg():
        yield member.name, packed.extractfile(member)
