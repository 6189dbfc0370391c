"""The one door to questions: `dataset(name, path or frame)`; data sets by name, users' files and frames."""

import dataclasses
import difflib
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from as2jax.data import tables, user_files
from as2jax.data.record import UNKNOWN, Pool, Question, fingerprint
from as2jax.data.source import Counts, PoolCounts, Spec, find
from as2jax.data.statistics import KEEPS, gathered
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import CACHE, OFF, cache_folder, data_folder
from as2jax.runtime.shown import Shown

# Modules with SPECS, in the order in which the data sets are listed.
READERS = ("wikiqa", "trecqa", "semeval", "yahoo", "squad", "asnq", "controlled")
FILTERS = ("official", "clean", *KEEPS)  # which questions; the first two as a data set says


SPECS: dict[str, Spec] = {}
for reader in READERS:
  for spec in importlib.import_module(f"as2jax.data.readers.{reader}").SPECS:
    SPECS[spec.name] = spec


class Splits(Mapping[str, Any]):
  """Split -> its content, decoded at the first access and then held.

  Under `a+b` there are the questions of both (CASSIE reports `dev+test`); iteration yields only the
  single splits.
  """

  def __init__(self, names: Iterable[str], read: Callable[[str], Any]):
    self._names, self._read = tuple(names), read
    self._held: dict[str, Any] = {}

  def __getitem__(self, name: str) -> Any:
    if name not in self:
      raise KeyError(name)
    if name in self._names and name not in self._held:
      self._held[name] = self._read(name)
    elif name not in self._held:
      parts = [self[part] for part in name.split("+")]
      where = f"evaluation.splits: {name!r}"
      if isinstance(parts[0], Pool):
        raise InputError(f"{where} would be two pools; report the splits one by one")
      questions = tuple(question for part in parts for question in part)
      check_ids(questions, where, "report the splits one by one")
      self._held[name] = questions
    return self._held[name]

  def __contains__(self, name: Any) -> bool:
    return set(name.split("+")) <= set(self._names)  # the mixin's own would decode the content

  def __iter__(self) -> Iterator[str]:
    return iter(self._names)

  def __len__(self) -> int:
    return len(self._names)


def check_ids(questions: Iterable[Question], where: str, advice: str) -> None:
  """Raise InputError where two questions have one id, such as those of files that number theirs."""
  seen: set[str] = set()
  for question in questions:
    if question.id in seen:
      raise InputError(
        f"{where} cannot be one list of questions, as two of them have the id {question.id!r}; {advice}"
      )
    seen.add(question.id)


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset(Shown):
  """The questions of a data set; of one for retrieval, its pools.

  Attributes:
    name: of the data set.
    splits: split -> questions (or a `Pool`), in the order of the source; read when first asked for.
    clean: what the question filter `clean` keeps: `answerable` (a positive) or `both` (a negative
      too); `pool` of pools.
    source: the folder that it was read from.
    fingerprints: split -> SHA-256 of its content (`record.fingerprint`).
    statistics: split -> the statistics of its dataset card; None where it was not prepared.
    overlap: pair of splits -> number of question texts in both; None where it was not prepared.
    official: what the question filter `official` keeps, "" where the data set has none.
    average_recall: whether AvgRec is one of its official metrics.
    contents: split -> what its files' content was found to be (`source.Source.contents`).
    missing: split -> the names of its files, of the splits whose files are not all there.
    filter: which questions `questions` and what follows from it give; `splits` hold all.
    split: the split, or the union of splits, that was asked for; "" for all of them.
    forms: of a user's files, split -> `user_files.LABELLED`, `PAIRS` or `WITH_NEGATIVES`.

  """

  name: str
  splits: Mapping[str, Any]
  clean: str
  source: str
  fingerprints: Mapping[str, str]
  statistics: Mapping[str, Mapping[str, Any]] | None = None
  overlap: Mapping[str, int] | None = None
  official: str = ""
  average_recall: bool = False
  contents: Mapping[str, str] = dataclasses.field(default_factory=dict)
  missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  filter: str = "all"
  split: str = ""
  forms: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def about(self) -> dict[str, Any]:
    """Return where the data are from, and the counts of each split under `filter`."""
    shown = {"Dataset": f"{self.name}, {self.filter} questions", "from": self.source}
    for split, its in self.facts()[0].items():
      counts = its["question_filters"]
      counts = counts.get("pool") or counts[self._rule]
      shown[split] = ", ".join(f"{number:,} {name}" for name, number in counts.items())
    return shown

  def __len__(self) -> int:
    return len(self.questions)

  def facts(self) -> tuple[Mapping[str, Mapping[str, Any]], Mapping[str, int]]:
    """Return `statistics` and `overlap`, computed where the data set was not prepared."""
    if self.statistics is None or self.overlap is None:
      return gathered(self.splits)
    return self.statistics, self.overlap

  @property
  def reported(self) -> tuple[str, ...]:
    """Return the splits, or the union, that an evaluation of this data set reports."""
    return (self.split,) if self.split else tuple(self.splits)

  @property
  def questions(self) -> tuple[Question, ...]:
    """Return the questions of all splits that `filter` keeps, in the order of the source."""
    whole = (question for questions in self.splits.values() for question in questions)
    return tuple(filter(self.keeps, whole))

  @property
  def qrels(self) -> dict[str, dict[str, int]]:
    """Return {question id: {candidate id: label}} of the judged candidates of `questions`.

    Raises InputError: two questions, such as those of two splits, have one id.
    """
    questions = self.questions
    where = f"{self.name}: {'+'.join(self.reported)}"
    check_ids(questions, where, "open one split, as2jax.dataset(NAME, SPLIT)")
    labels = {}
    for question in questions:
      labels[question.id] = {c.id: c.label for c in question.candidates if c.label != UNKNOWN}
    return labels

  def pairs(self) -> list[tuple[str, str, int]]:
    """Return (question, candidate, label) of every candidate of `questions`."""
    return [(q.text, c.text, c.label) for q in self.questions for c in q.candidates]

  def keeps(self, question: Question) -> bool:
    """Tell whether `filter` keeps a question."""
    return KEEPS[self._rule](question)

  @property
  def _rule(self) -> str:
    return {"clean": self.clean, "official": self.official or "all"}.get(self.filter, self.filter)


def dataset(
  name_or_path: Any,
  split: str | None = None,
  *,
  filter: str = "official",
  columns: Mapping[str, str] | str | None = None,
  drop: bool = False,
) -> Dataset:
  """Open a data set by its name, or the questions of a user's own file or frame.

  >>> data = dataset("sample", "dev")
  >>> len(data.questions), data.questions[0].text
  (39, 'what makes the tide rise and fall')

  Args:
    name_or_path: a name that `as2jax data list` shows, the path of a file (TSV, CSV, JSON-lines,
      Parquet), a pandas frame, or `hub:NAME[:CONFIG][:SPLIT]` of the Hugging Face hub.
    split: of a named data set: the only one that is wanted, or a union such as `dev+test`; all that
      are there where None. Of a file: what its questions are called (`test` where None).
    filter: which questions `questions`, `qrels` and `pairs` give: `official` (those of
      the benchmark's own evaluation; all where it has none), `clean`, `all`, `answerable` or `both`.
    columns: of a user's own file: {field: column}, such as {"question": "query"}, where its columns
      have none of the common names; see `user_files.read`.
    drop: of a user's own file: whether rows without text and repeated ones are left out.

  Raises InputError: no such data set, split, filter or file, or a file that is wrong.

  """
  if filter not in FILTERS:
    raise InputError(f"filter = {filter!r}: use one of {', '.join(FILTERS)}")
  if isinstance(name_or_path, str) and name_or_path in SPECS:
    refuse(name_or_path, columns, drop)
    opened = load(name_or_path)
  elif tables.is_hub(name_or_path):
    opened = _of_hub(os.fspath(name_or_path), split or "", columns or "", drop)
  else:
    opened = _of_file(name_or_path, split or "test", columns or "", drop)
  return dataclasses.replace(_only(opened, split) if split else opened, filter=filter)


def by_address(
  address: str, *, columns: Mapping[str, str] | str | None = None, drop: bool = False
) -> Dataset:
  """Open `NAME:SPLIT`, such as semeval2016:test (`test` where no split is named), `hub:NAME:SPLIT` or a path.

  `columns` and `drop` are of a file or the hub, and refused for a named data set; see `dataset`.
  """
  name, split = address, None
  if is_named(address):
    name, _, split = address.partition(":")
    split = split or "test"
  elif tables.is_hub(address):
    split = tables.hub_parts(address)[2] or "test"
  return dataset(name, split, columns=columns, drop=drop)


def is_named(address: str) -> bool:
  """Tell whether `by_address` would open a data set by its name."""
  return address.partition(":")[0] in SPECS


def refuse(name: str, columns: Mapping[str, str] | str | None, drop: bool) -> None:
  """Raise InputError where what own files are read with is given for the data set `name`."""
  if columns or drop:
    given = f"columns = {columns!r} are" if columns else "drop = True is"
    raise InputError(f"{given} for your own files; leave it out for the data set {name}")


def of_questions(
  name: str,
  splits: Mapping[str, tuple[Question, ...]],
  source: str,
  forms: Mapping[str, str] = {},  # noqa: B006 (never changed)
) -> Dataset:
  """Return a data set of a user's questions, which have no official filter; `forms` as `Dataset.forms`."""
  prints = {split: fingerprint(questions) for split, questions in splits.items()}
  return Dataset(name, splits, "answerable", source, prints, forms=forms)


def _of_file(source: Any, split: str, columns: Mapping[str, str] | str, drop: bool) -> Dataset:
  name, where = "frame", "a frame"
  if isinstance(source, (str, os.PathLike)):
    path, where = epath.Path(source).expanduser(), str(source)
    if not path.exists() and path.name == str(path) and not path.suffix:
      spec_of(path.name)  # which names the data set that may be meant
    name = path.name.partition(".")[0]
    if name in SPECS:  # wikiqa.csv is not the data set wikiqa
      name = "files"
  elif not hasattr(source, "columns"):
    raise InputError(
      f"name_or_path = {source!r:.100}: give a data set's name, a file's path or a pandas frame"
    )
  own = user_files.read(source, labelled=True, columns=columns, drop=drop)
  return of_questions(name, {split: own.questions}, where, {split: own.form})


def _of_hub(address: str, split: str, columns: Mapping[str, str] | str, drop: bool) -> Dataset:
  """Read the splits of a data set of the hub that are named, or those that it has."""
  name, config, named = tables.hub_parts(address)
  wanted = (named or split).split("+")
  if not wanted[0]:
    wanted = tables.hub_splits(address)
  read, forms = {}, {}
  for part in wanted:
    one = tables.hub_address(address.removesuffix(f":{named}"), part)
    own = user_files.read(one, labelled=True, columns=columns, drop=drop)
    read[part], forms[part] = own.questions, own.form
  title = "-".join(filter(None, ("hub", epath.Path(name).name, config)))
  return of_questions(title, read, address, forms)


def _only(data: Dataset, split: str) -> Dataset:
  parts = split.split("+")
  missing = [part for part in parts if part not in data.splits]
  if missing:
    raise InputError(f"{data.name} has no split {missing[0]!r}; it has {', '.join(data.splits)}")
  if len(set(parts)) < len(parts):
    raise InputError(f"split = {split!r} would count questions twice; name each split once")
  overlap = {p: n for p, n in (data.overlap or {}).items() if set(p.split("+")) <= set(parts)}
  return dataclasses.replace(
    data,
    splits=Splits(parts, data.splits.__getitem__),
    fingerprints={part: data.fingerprints[part] for part in parts},
    statistics=data.statistics and {part: data.statistics[part] for part in parts},
    overlap=data.overlap and overlap,
    split=split,
  )


def load(
  name: str,
  *,
  pool: bool | None = False,
  root: str = "",
  cache: str = "",
  download: bool = True,
  check: bool = True,
) -> Dataset:
  """Load a data set from its source files, through a prepared copy in the cache.

  Args:
    name: one of `SPECS`.
    pool: whether it is one for retrieval, whose splits are pools; None for either.
    root: the folder of the data; default $AS2JAX_DATA, then `data` in the default cache.
    cache: the folder of prepared copies and downloads; default `runtime.files.cache_folder`.
    download: whether the public archive may be fetched where the files are absent.
    check: whether counts other than the published (or documented) ones are an error.

  Raises InputError: an unknown name, absent or broken source files, other counts than published,
  or a data set of the other kind.

  """
  spec, stored = spec_of(name), cache_folder(cache)
  if pool is False and spec.is_pool:
    raise InputError(
      f"data.name = {name!r} is a retrieval dataset (a pool and queries), which "
      "this config cannot rank; choose one whose questions have candidates"
    )
  if pool and not spec.is_pool:
    pools = ", ".join(spec.name for spec in SPECS.values() if spec.is_pool)
    raise InputError(f"data.name = {name!r} has no pool to retrieve from; use one of {pools}")
  try:
    from as2jax.data.prepared import prepared  # imports tensorflow_datasets
  except ImportError as error:
    raise InputError(
      f"the data set {name} needs {error.name}, which is not installed: pip install 'as2jax[train]'; "
      "your own files need nothing more"
    ) from error
  source = find(spec, data_folder(root), stored / "downloads" / name, download=download)
  try:
    copy = prepared(spec, source, stored)
  except OSError as error:
    raise InputError(
      f"{stored} cannot hold a copy of {name} ({error}); name another folder, or {OFF}, in {CACHE}"
    ) from error
  question_filter, kind = ("pool", PoolCounts) if spec.is_pool else ("all", Counts)
  for split, statistics in copy.statistics.items():
    actual = kind(**statistics["question_filters"][question_filter])
    if check and spec.verdict(split, question_filter, actual) == "differs":
      raise InputError(
        f"{', '.join(map(str, source.files[split]))}: {actual} {'/'.join(actual.asdict())}; the "
        f"official {name} {split} split has {spec.published[split][question_filter]}. The file is "
        "damaged or another edition; get it again"
      )

  def read(split: str) -> Any:
    tables = [tuple(copy.read(split, table)) for table in spec.tables]
    return Pool(*tables) if spec.is_pool else tables[0]

  return Dataset(
    name,
    Splits(source.files, read),
    spec.clean,
    str(source.folder),
    copy.fingerprints,
    copy.statistics,
    copy.overlap,
    spec.official,
    spec.average_recall,
    source.contents(spec),
    source.missing,
  )


def spec_of(name: str) -> Spec:
  """Look up the description of a data set; InputError for an unknown name."""
  if name in SPECS:
    return SPECS[name]
  near = difflib.get_close_matches(name, SPECS, 1)
  hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(SPECS)}"
  raise InputError(f"data.name = {name!r} is no dataset; {hint}")
