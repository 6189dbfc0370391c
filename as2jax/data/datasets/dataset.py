"""The datasets by name, and `load`: from a name to the questions of its splits."""

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from as2jax.data.datasets.files_on_disk import Counts, Source, Spec, find
from as2jax.data.datasets.pool import Pool, PoolCounts, PoolSpec
from as2jax.data.datasets.statistics import KEEPS
from as2jax.data.record import UNKNOWN, Question
from as2jax.runtime.errors import InputError
from as2jax.runtime.folders import cache_folder, data_folder

# Modules with SPECS, in the order in which the datasets are listed.
READERS = (
  "wikiqa",
  "trecqa",
  "semeval",
  "yahoo",
  "squad",
  "squad_parts",
  "squad_rerank",
  "asnq",
  "wdrass",
  "controlled",
)


def _gathered() -> dict[str, Spec]:
  specs: dict[str, Spec] = {}
  for name in READERS:
    for spec in importlib.import_module(f"as2jax.data.datasets.{name}").SPECS:
      specs[spec.name] = spec
  return specs


SPECS: dict[str, Spec] = _gathered()
FILTERS = ("official", "clean", *KEEPS)  # which questions; the first two as a data set says
Split = TypeVar("Split")


class Splits(Mapping[str, Split], Generic[Split]):
  """Split -> its content, decoded at the first access and then kept."""

  def __init__(self, names: tuple[str, ...], read: Callable[[str], Split]):
    self._names, self._read = names, read
    self._held: dict[str, Split] = {}

  def __getitem__(self, name: str) -> Split:
    if name not in self._names:
      raise KeyError(name)
    if name not in self._held:
      self._held[name] = self._read(name)
    return self._held[name]

  def __contains__(self, name: object) -> bool:
    return name in self._names  # the mixin's own asks for the content, which would be decoded

  def __iter__(self) -> Iterator[str]:
    return iter(self._names)

  def __len__(self) -> int:
    return len(self._names)


class Unions(Mapping[str, tuple[Question, ...]]):
  """The splits of a data set, and under `a+b` the questions of both (CASSIE reports `dev+test`).

  Iteration yields only the single splits.
  """

  def __init__(self, splits: Mapping[str, tuple[Question, ...]]):
    self._splits = splits
    self._held: dict[str, tuple[Question, ...]] = {}

  def __contains__(self, name: object) -> bool:
    return isinstance(name, str) and all(part in self._splits for part in name.split("+"))

  def __getitem__(self, name: str) -> tuple[Question, ...]:
    if name not in self:
      raise KeyError(name)
    if "+" not in name:
      return self._splits[name]
    if name not in self._held:
      self._held[name] = _union(name, [self._splits[part] for part in name.split("+")])
    return self._held[name]

  def __iter__(self) -> Iterator[str]:
    return iter(self._splits)

  def __len__(self) -> int:
    return len(self._splits)


def _union(name: str, parts: Sequence[Sequence[Question]]) -> tuple[Question, ...]:
  questions = tuple(question for part in parts for question in part)
  check_ids(questions, f"evaluation.splits: {name!r}", "report the splits one by one")
  return questions


def check_ids(questions: Iterable[Question], where: str, advice: str) -> None:
  """Raises InputError where two questions have one id, such as those of files that number theirs."""
  seen: set[str] = set()
  for question in questions:
    if question.id in seen:
      raise InputError(
        f"{where} cannot be one list of questions, as two of them have the id {question.id!r}; {advice}"
      )
    seen.add(question.id)


@dataclasses.dataclass(frozen=True)
class Dataset:
  """The questions of a dataset.

  Attributes:
    name: of the dataset.
    splits: split -> questions, in the order of the source; from `load`, read when first asked for.
    clean: what the question filter `clean` keeps: `answerable` (a positive) or `both` (a negative too).
    source: the folder that it was read from.
    fingerprints: split -> SHA-256 of its content (`record.fingerprint`).
    official: what the question filter `official` keeps, "" where the data set has none.
    average_recall: whether AvgRec is one of its official metrics.
    statistics: split -> the statistics of its dataset card; None where it was not prepared.
    overlap: pair of splits -> number of question texts in both; None where it was not prepared.
    missing: split -> the names of its files, of the splits whose files are not all there.
    filter: which questions `questions` and what follows from it give; `splits` hold all.
    split: the split, or the union of splits, that was asked for; "" for all of them.

  """

  name: str
  splits: Mapping[str, tuple[Question, ...]]
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

  @property
  def reported(self) -> tuple[str, ...]:
    """The splits, or the union, that an evaluation of this data set reports."""
    return (self.split,) if self.split else tuple(self.splits)

  @property
  def questions(self) -> tuple[Question, ...]:
    """The questions of all splits that `filter` keeps, in the order of the source."""
    return tuple(question for _, question in self._kept())

  @property
  def qrels(self) -> dict[str, dict[str, int]]:
    """{question id: {candidate id: label}} of the judged candidates of `questions`.

    Raises:
      InputError: two questions, such as those of two splits, have one id.

    """
    questions = self.questions
    where = f"{self.name}: {'+'.join(self.reported)}"
    check_ids(questions, where, "open one split, as2jax.dataset(NAME, SPLIT)")
    return {
      question.id: {c.id: c.label for c in question.candidates if c.label != UNKNOWN}
      for question in questions
    }

  def pairs(self) -> list[tuple[str, str, int]]:
    """(question, candidate, label) of every candidate of `questions`."""
    return [(q.text, c.text, c.label) for q in self.questions for c in q.candidates]

  def to_pandas(self) -> Any:
    """A pandas frame, one row a candidate of `questions`: split, ids, texts, label, context.

    Raises:
      InputError: pandas is not installed.

    """
    try:
      import pandas
    except ImportError as error:
      raise InputError("a frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(
      [
        {
          "split": split,
          "question_id": question.id,
          "question": question.text,
          "candidate_id": candidate.id,
          "candidate": candidate.text,
          **{name: getattr(candidate, name) for name in ("label", "previous", "next", "title")},
        }
        for split, question in self._kept()
        for candidate in question.candidates
      ]
    )

  def keeps(self, question: Question) -> bool:
    """Whether `filter` keeps a question."""
    rule = {"clean": self.clean, "official": self.official or "all"}.get(self.filter, self.filter)
    return KEEPS[rule](question)

  def _kept(self) -> Iterator[tuple[str, Question]]:
    for split, questions in self.splits.items():
      for question in questions:
        if self.keeps(question):
          yield split, question


@dataclasses.dataclass(frozen=True)
class PoolDataset:
  """As `Dataset` for retrieval: split -> its pool and queries; the question filter is `pool`."""

  name: str
  splits: Mapping[str, Pool]
  source: str
  fingerprints: Mapping[str, str]
  statistics: Mapping[str, Mapping[str, Any]]
  overlap: Mapping[str, int]
  clean: str = "pool"
  official: str = ""
  contents: Mapping[str, str] = dataclasses.field(default_factory=dict)
  missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def load(
  name: str, *, root: str = "", cache: str = "", download: bool = True, check: bool = True
) -> Dataset:
  """Loads a dataset from its source files, through a prepared copy in the cache.

  Args:
    name: one of `SPECS`.
    root: the folder of the data; default $AS2JAX_DATA, then ~/.cache/as2jax/data.
    cache: the folder of prepared copies and downloads; default $AS2JAX_CACHE, then ~/.cache/as2jax.
    download: whether the public archive may be fetched where the files are absent.
    check: whether counts other than the published (or documented) ones are an error.

  Raises:
    InputError: an unknown name, absent or broken source files, or other counts than published.

  """
  spec = spec_of(name)
  if isinstance(spec, PoolSpec):
    raise InputError(
      f"data.name = {name!r} is a retrieval dataset (a pool and queries), which "
      "this config cannot rank; choose one whose questions have candidates"
    )
  copy, source = _prepared(spec, root, cache, download, check)
  splits = Splits(tuple(source.files), lambda split: tuple(copy.read(split)))
  return Dataset(
    name,
    splits,
    spec.clean,
    str(source.folder),
    copy.fingerprints,
    copy.statistics,
    copy.overlap,
    official=spec.official,
    average_recall=spec.average_recall,
    contents=source.contents(spec),
    missing=source.missing,
  )


def load_pool(
  name: str, *, root: str = "", cache: str = "", download: bool = True, check: bool = True
) -> PoolDataset:
  """As `load`, for a retrieval dataset.

  Raises:
    InputError: as `load`, or a dataset that is not for retrieval.

  """
  spec = spec_of(name)
  if not isinstance(spec, PoolSpec):
    pools = ", ".join(other.name for other in SPECS.values() if isinstance(other, PoolSpec))
    raise InputError(f"data.name = {name!r} has no pool to retrieve from; use one of {pools}")
  copy, source = _prepared(spec, root, cache, download, check)
  splits = Splits(
    tuple(source.files),
    lambda split: Pool(tuple(copy.read(split, "pool")), tuple(copy.read(split, "queries"))),
  )
  return PoolDataset(
    name,
    splits,
    str(source.folder),
    copy.fingerprints,
    copy.statistics,
    copy.overlap,
    contents=source.contents(spec),
    missing=source.missing,
  )


def load_any(name: str, **options: Any) -> Dataset | PoolDataset:
  """Calls `load` or `load_pool`, depending on the kind of the dataset."""
  return (load_pool if isinstance(spec_of(name), PoolSpec) else load)(name, **options)


def spec_of(name: str) -> Spec:
  """Looks up the spec of a dataset.

  Raises:
    InputError: an unknown name.

  """
  if name in SPECS:
    return SPECS[name]
  near = difflib.get_close_matches(name, SPECS, 1)
  hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(SPECS)}"
  raise InputError(f"data.name = {name!r} is no dataset; {hint}")


def _prepared(spec: Spec, root: str, cache: str, download: bool, check: bool) -> tuple[Any, Source]:
  """The prepared copy (`builder.Prepared`) and the source."""
  stored = cache_folder(cache)
  source = find(spec, data_folder(root), stored / "downloads" / spec.name, download=download)
  from as2jax.data.datasets.builder import prepared  # imports tensorflow_datasets

  try:
    copy = prepared(spec, source, stored)
  except OSError as error:
    raise InputError(
      f"{stored} cannot hold a prepared copy of {spec.name} ({error}); name another folder in "
      "AS2JAX_CACHE or --config.data.cache"
    ) from error
  if check:
    _check_counts(spec, source, copy.counts)
  return copy, source


def _check_counts(spec: Spec, source: Source, counts: Mapping[str, Counts | PoolCounts]) -> None:
  question_filter = "pool" if isinstance(spec, PoolSpec) else "all"
  for split, actual in counts.items():
    if spec.verdict(split, question_filter, actual) == "differs":
      files = ", ".join(map(str, source.files[split]))
      names = "/".join(field.name for field in dataclasses.fields(actual))
      raise InputError(
        f"{files}: {actual} {names}; the official {spec.name} {split} "
        f"split has {spec.published[split][question_filter]}. The file is damaged or another edition; "
        "get it again"
      )
