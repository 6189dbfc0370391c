"""The training split of a prepared data set as arrays: a second run starts without its questions.

Twenty million candidates as Python objects take gigabytes and minutes. What a run needs of them is in
arrays: the tokenised units (`tokenise.table_of`, in a cache of their own), the examples, and the digest that
the run's identity records. Both are kept in the cache under a hash of all that they depend on.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from as2jax.data import mined
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.dataset import SPECS
from as2jax.data.text.tokenise import UnitTable, table_of
from as2jax.runtime import cache
from as2jax.runtime.files import cache_folder, checksum_of
from as2jax.runtime.version import source_digest

# `parts` below are the `Components` of a run.
ELSEWHERE = ("root", "cache", "download", "dev", "test", "columns", "drop")  # of `config.data`


def folder(parts: Any) -> pathlib.Path | None:
  """Returns where the training split of a run is kept; None where it is not.

  It is not for user's own files, which are read anyway, for pools, and where an input of the model
  reads the questions themselves.
  """
  config, dataset, source = parts.config, parts.dataset, parts.source
  prepared = dataset is not None and config.data.name in SPECS and "train" in dataset.fingerprints
  root = cache_folder(config.data.cache)
  if not prepared or parts.inputs or hasattr(dataset, "pools") or "://" in str(root):
    return None
  if source is None or source.tokenizer is None or source.open_vocabulary:
    return None
  import tokenizers

  data = json.loads(config.data.to_json())
  for name in ELSEWHERE:
    del data[name]
  key = {
    "data": data,
    "fingerprint": dataset.fingerprints["train"],
    "mined": [checksum_of(mined.file(folder)) for folder in config.data.mined],
    "task": config.evaluation.task,
    "layout": parts.model.layout,
    "template": parts.model.template,
    "tile": config.batch.triplet_tile,
    "unlabelled": parts.loss is not None and parts.loss.reads_unlabelled,
    "prompts": dataclasses.astuple(parts.prompts),
    "tokenizer": [source.tokenizer.fingerprint, tokenizers.__version__],
    "source": source_digest(folders=("data",)),
  }
  return cache.place(root, "splits", key)


def read(parts: Any) -> tuple[UnitTable, ExampleTable] | None:
  """Returns the units and examples of the training split, memory-mapped; None where none are kept."""
  place = folder(parts)
  stored = cache.read(place) if place else None
  if place is None or stored is None:
    return None
  # A relative path, so that a cache may be copied to another place.
  units = table_of(cache.read(pathlib.Path(os.path.normpath(place / stored.fields["units"]))))
  # `candidates` may be absent.
  return None if units is None else (units, ExampleTable(**stored.arrays))


def keep(parts: Any, units: UnitTable, examples: ExampleTable) -> None:
  """Keeps the units and examples of the training split for the next run."""
  place = folder(parts)
  if place is None or not units.folder:
    return

  def build(writer: cache.Writer) -> dict[str, Any]:
    for field in dataclasses.fields(ExampleTable):
      values = getattr(examples, field.name)
      if values is not None:
        writer.create(field.name, values.shape, values.dtype)
        writer.write(field.name, values)
    return {"units": os.path.relpath(units.folder, place)}

  cache.cached(place, build)


def digest(parts: Any, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
  """Returns the digest of the training questions (see `record.of_questions`), computed once."""
  place = folder(parts)
  if place is None:
    return compute()
  return cache.cached(place.with_name(f"{place.name}-digest"), lambda _: compute()).fields
