"""What a command is compared with before the results of a finished run are its answer.

`run_folder.claim` has compared the config. Compared here are the splits that are asked for, and the
data where that is quick: the fingerprints that results.json has of the source files' questions. Weights
and tokeniser, which only a use of the run needs, are compared by `identity.check`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets import files_on_disk
from as2jax.data.datasets.load import ASNQ_FILES, FILES
from as2jax.data.datasets.load import SPLITS as FILE_SPLITS
from as2jax.data.datasets.load import load as load_dataset
from as2jax.evaluation import results
from as2jax.runtime import folders, regular_files
from as2jax.runtime.errors import InputError

# Bytes of source files that are read within a second: a user's own are parsed, those of which there is a
# prepared copy are hashed.
OWN, PREPARED = 8 << 20, 64 << 20
SHOWN = 12  # hexadecimal digits of a fingerprint in a message
log = logging.getLogger(__name__)


def check(workdir: epath.PathLike, config: Any, content: dict[str, Any]) -> None:
  """Compares a config, and the data that it names, with the results of the finished run in `workdir`.

  Data that are not on this machine, or too large, are not compared, which the log says.

  Raises:
    InputError: a split is asked for that the results lack, or the data have changed.

  """
  _check_splits(workdir, config.evaluation.splits, content)
  _check_data(workdir, config.data, content["data"])


def _check_splits(workdir: epath.PathLike, asked: Sequence[str], content: dict[str, Any]) -> None:
  there = results.splits_of(content)
  path = epath.Path(workdir) / "config.json"
  advice = "it was changed by hand; give another --workdir"
  first = regular_files.read_object(path, advice)["evaluation"]["splits"]
  # The data may lack a split that the run itself was asked for, as its log has said.
  absent = [s for s in first if not set(s.split("+")) <= content["data"]["splits"].keys()]
  if lacking := [split for split in asked if split not in (*there, *absent)]:
    raise InputError(
      f"evaluation.splits: {workdir} is finished, and its results are of {', '.join(there)}, not of "
      f"{', '.join(lacking)}; as2jax evaluate {workdir} --splits={','.join(lacking)} evaluates it on them"
    )


def _check_data(workdir: epath.PathLike, section: Any, record: Mapping[str, Any]) -> None:
  own = section.name in (FILES, ASNQ_FILES)
  spec = datasets.SPECS.get(section.name)
  if not own and (spec is None or spec.embedded):
    return  # part of the package, whose code may change
  try:
    files = _own_files(section) if spec is None else _source_files(section, spec)
    size = sum(path.stat().length for its in files.values() for path in its)
    if not files or size > (OWN if own else PREPARED):
      why = f"have {size >> 20} MiB" if files else "are not here"
      log.info("%s: its data %s, and were not compared with those it was trained on", workdir, why)
      return
    now = _fingerprints(section, files) if own else _named(section)
  except (InputError, OSError) as error:
    if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
      log.info("%s: its data cannot be read, and were not compared: %s", workdir, error)
      return
    raise InputError(f"{workdir} is finished, and its data have changed since: {error}") from error
  then = {split: its.get("fingerprint") for split, its in record["splits"].items()}
  changed = [
    f"  the questions of {split!r}: {then[split][:SHOWN]} then, {now[split][:SHOWN]} now"
    for split in files
    if then.get(split) and then[split] != now[split]
  ]
  if changed:
    raise InputError(
      f"{workdir} is finished, and its data have changed since:\n"
      + "\n".join(changed)
      + f"\nPut the files back as they were, or give another --workdir; as2jax evaluate {workdir} "
      "--data=FILE evaluates the run on other data"
    )


def _own_files(section: Any) -> dict[str, Iterable[epath.Path]]:
  """Split -> its file, of a user's own data, as far as they are here."""
  paths = {
    split: epath.Path(section[split]).expanduser() for split in FILE_SPLITS if section[split]
  }
  return {split: (path,) for split, path in paths.items() if path.exists()}


def _source_files(section: Any, spec: datasets.Spec) -> Mapping[str, Iterable[epath.Path]]:
  """Split -> its source files, of a data set by its name, as far as they are here."""
  downloads = folders.cache_folder(section.cache) / "downloads" / section.name
  try:
    source = files_on_disk.located(spec, folders.data_folder(section.root), downloads)
  except InputError:  # some files, but of no split all
    return {}
  return source.files if source else {}


def _fingerprints(section: Any, files: Iterable[str]) -> Mapping[str, str]:
  """Split -> fingerprint of a user's own files, before anything is held out, added or changed."""
  source = section.copy_and_resolve_references()
  with source.unlocked():
    source.holdout, source.mined, source.rules, source.labelled_negatives = 0.0, (), (), True
    for split in FILE_SPLITS:
      source[split] = section[split] if split in files else ""
  return load_dataset(source).fingerprints


def _named(section: Any) -> Mapping[str, str]:
  """Split -> fingerprint of a data set by its name, whatever its counts."""
  return datasets.load_any(
    section.name, root=section.root, cache=section.cache, download=False, check=False
  ).fingerprints
