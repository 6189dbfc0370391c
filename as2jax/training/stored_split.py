"""The training split of a prepared data set as arrays: a second run starts without its questions.

Twenty million candidates as Python objects take gigabytes and minutes. What a run needs of them is in
arrays: the tokenised units (`token_table`, in a cache of their own), the examples, and the digest that
the run's identity records. Both are kept in the cache under a hash of all that they depend on: the
data's fingerprint, `config.data`, mined negatives, layout, template, tokeniser, and the source of `as2jax.data`.
"""

import dataclasses
import hashlib
import json
import logging
import os
import pathlib
from typing import Any

import numpy as np

from as2jax.data.batches.examples import ExampleTable
from as2jax.data.datasets import mined
from as2jax.data.datasets.dataset import SPECS
from as2jax.data.text.token_table import UnitTable, open_table
from as2jax.runtime import array_folder, checksums, folders
from as2jax.runtime.files import write_whole
from as2jax.runtime.version import source_digest

# `parts` below are the `Components` of a run.
ELSEWHERE = ("root", "cache", "download", "dev", "test", "columns", "drop")  # of `config.data`
DIGEST = "digest.json"
log = logging.getLogger(__name__)
ARRAYS = tuple(field.name for field in dataclasses.fields(ExampleTable))


def folder(parts: Any) -> pathlib.Path | None:
  """Where the training split of a run is kept; None where it is not.

  It is not for user's own files, which are read anyway, for pools, and where an input of the model
  reads the questions themselves.
  """
  config, dataset = parts.config, parts.dataset
  prepared = dataset is not None and config.data.name in SPECS and "train" in dataset.fingerprints
  if not prepared or parts.inputs or hasattr(dataset, "pools") or not parts.model.has_parameters:
    return None
  if parts.source is None or parts.source.tokenizer is None or parts.source.open_vocabulary:
    return None
  import tokenizers

  data = json.loads(config.data.to_json())
  key = {
    "data": {name: value for name, value in data.items() if name not in ELSEWHERE},
    "fingerprint": dataset.fingerprints["train"],
    "mined": [checksums.of_file(mined.file(folder)) for folder in config.data.mined],
    "task": config.evaluation.task,
    "layout": parts.model.layout,
    "template": parts.model.template,
    "tile": config.batch.triplet_tile,
    "unlabelled": parts.loss is not None and parts.loss.reads_unlabelled,
    "prompts": dataclasses.astuple(parts.prompts),
    "tokenizer": [parts.source.tokenizer.fingerprint, tokenizers.__version__],
    "source": source_digest(folders=("data",)),
  }
  name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
  cache = folders.cache_folder(config.data.cache)
  return None if "://" in str(cache) else pathlib.Path(cache) / "splits" / name


def read(parts: Any) -> tuple[UnitTable, ExampleTable] | None:
  """The units and examples of the training split, memory-mapped; None where they are not kept."""
  place = folder(parts)
  stored = array_folder.open_arrays(place / "examples") if place else None
  if stored is None:
    return None
  arrays, fields = stored
  units = open_table(pathlib.Path(os.path.normpath(place / fields["units"])))
  if units is None:
    return None
  return units, ExampleTable(**arrays)  # `candidates` may be absent


def keep(parts: Any, units: UnitTable, examples: ExampleTable) -> None:
  """Keeps the units and examples of the training split for the next run."""
  place = folder(parts)
  if place is None or not units.folder or read(parts) is not None:
    return
  arrays = {name: getattr(examples, name) for name in ARRAYS}
  arrays = {name: values for name, values in arrays.items() if values is not None}
  with array_folder.new_folder(place / "examples") as unfinished:
    shapes = {name: (values.shape, values.dtype) for name, values in arrays.items()}
    with array_folder.Writer(unfinished, shapes) as writer:
      for name, values in arrays.items():
        writer.write(name, np.asarray(values))
      # From here, so that a cache may be copied to another place.
      writer.finish(units=os.path.relpath(units.folder, place))


def read_digest(parts: Any) -> dict[str, Any] | None:
  """The digest of the training questions, see `identity.of_questions`; None where it is not kept."""
  place = folder(parts)
  if place is None or not (place / DIGEST).exists():
    return None
  try:
    return checksums.unsealed((place / DIGEST).read_text())
  except ValueError as error:
    log.warning("%s: the digest is damaged (%s); it is made anew", place / DIGEST, error)
    return None


def keep_digest(parts: Any, digest: dict[str, Any]) -> None:
  """Keeps the digest of the training questions for the next run."""
  if (place := folder(parts)) is not None:
    write_whole(place / DIGEST, checksums.sealed(digest))
