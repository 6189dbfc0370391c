"""The datasets by name, and `load`: from a name to the questions of its splits."""

import dataclasses
import difflib
import os
from collections.abc import Mapping

from etils import epath

from as2jax.data.record import Question
from as2jax.data.source import Counts, Spec, find
from as2jax.data.wikiqa import iterate_wikiqa
from as2jax.errors import InputError

WIKIQA = Spec(
  name="wikiqa",
  reader=iterate_wikiqa,
  version="1.0.0",
  files={split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("wikiqa", "", "WikiQACorpus", "wikiqa/WikiQACorpus"),
  clean="answerable",
  published={
    "train": {
      "all": Counts(2118, 20360, 1040),
      "answerable": Counts(873, 8672),
      "both": Counts(857, 8651),
    },
    "dev": {
      "all": Counts(296, 2733, 140),
      "answerable": Counts(126, 1130),
      "both": Counts(122, 1126),
    },
    "test": {
      "all": Counts(633, 6165, 293),
      "answerable": Counts(243, 2351),
      "both": Counts(237, 2341),
    },
  },
  url=(
    "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/"
    "WikiQACorpus.zip"
  ),
  citation="Yang, Yih and Meek: WikiQA: A Challenge Dataset for Open-Domain Question Answering "
  "(EMNLP 2015)",
)

SAMPLE = Spec(
  name="sample",
  reader=iterate_wikiqa,
  version="1.0.0",
  files={split: (f"sample-{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("data/sample",),
  clean="answerable",
  published={},
  embedded=True,
  citation="written by this project",
)

SPECS: dict[str, Spec] = {spec.name: spec for spec in (WIKIQA, SAMPLE)}


@dataclasses.dataclass(frozen=True)
class Dataset:
  """The questions of a dataset, in memory.

  Attributes:
    name: of the dataset.
    splits: split -> questions, in the order of the source.
    clean: what the protocol `clean` keeps: `answerable` (a positive) or `both` (a negative too).
    source: the folder that it was read from.
    fingerprints: split -> SHA-256 of its content (`record.fingerprint`).
  """

  name: str
  splits: Mapping[str, tuple[Question, ...]]
  clean: str
  source: str
  fingerprints: Mapping[str, str]


def load(
  name: str, *, root: str = "", cache: str = "", download: bool = True, check: bool = True
) -> Dataset:
  """Loads a dataset from its source files, through a prepared copy in the cache.

  Args:
    name: one of `SPECS`.
    root: the folder of the data; default $AS2JAX_DATA, then ~/.cache/as2jax/data.
    cache: the folder of prepared copies and downloads; default $AS2JAX_CACHE, then ~/.cache/as2jax.
    download: whether the public archive may be fetched where the files are absent.
    check: whether counts other than the published ones are an error.

  Raises:
    InputError: an unknown name, absent or broken source files, or other counts than published.
  """
  if name not in SPECS:
    near = difflib.get_close_matches(name, SPECS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(SPECS)}"
    raise InputError(f"data.name = {name!r} is no dataset; {hint}")
  spec = SPECS[name]
  home = epath.Path("~/.cache/as2jax").expanduser()
  stored = cache_folder(cache)
  source = find(
    spec,
    _folder(root, "AS2JAX_DATA", home / "data"),
    stored / "downloads" / name,
    download=download,
  )
  from as2jax.data.builder import prepared  # imports tensorflow_datasets

  try:
    copy = prepared(spec, source, stored)
  except OSError as error:
    raise InputError(
      f"{stored} cannot hold a prepared copy of {name} ({error}); name another folder in "
      "AS2JAX_CACHE or --config.data.cache"
    ) from error
  if check:
    _check_counts(spec, source.folder, copy.counts)
  splits = {split: tuple(copy.read(split)) for split in spec.files}
  return Dataset(name, splits, spec.clean, str(source.folder), copy.fingerprints)


def cache_folder(given: str = "") -> epath.Path:
  """The folder of everything that can be made again: `given`, $AS2JAX_CACHE or ~/.cache/as2jax."""
  return _folder(given, "AS2JAX_CACHE", epath.Path("~/.cache/as2jax"))


def _folder(given: str, variable: str, default: epath.Path) -> epath.Path:
  return epath.Path(given or os.environ.get(variable) or default).expanduser()


def _check_counts(spec: Spec, folder: epath.Path, counts: Mapping[str, Counts]) -> None:
  for split, published in spec.published.items():
    if "all" in published and not published["all"].agrees(counts[split]):
      files = ", ".join(str(folder / name) for name in spec.files[split])
      raise InputError(
        f"{files}: {counts[split]} questions/pairs/positives; the official {spec.name} {split} "
        f"split has {published['all']}. The file is damaged or another edition; get it again"
      )
