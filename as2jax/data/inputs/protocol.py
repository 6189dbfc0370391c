"""What a model may read beside token ids: the base class of all inputs.

A model (or an encoder) declares `inputs`, a tuple of them. `as2jax.training.build` binds them to
the run, fits them to the training questions, and has their columns cut into batches with the
tokens: the model finds each array in `Batch.inputs`, by name.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from etils import epath

from as2jax.data.batches.batcher import Column, Level
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.record import Question, fingerprint
from as2jax.data.text.tokenise import UnitTable
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, write_whole

if TYPE_CHECKING:  # models import this module: nothing that only a run needs
  from as2jax.data.dataset import Dataset
  from as2jax.data.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Resources:
  """Holds what a run offers to the inputs of its model.
  `source` is the encoder with its weights and tokeniser (`as2jax.encoders.family.Source`), `digest`
  the SHA-256 of the weights; `dataset` is None where no data are loaded.
  """

  config: Any
  source: Any
  digest: str
  dataset: "Dataset | None"


class Tables(NamedTuple):
  """Holds tokenised questions: the distinct units, and the tuples of them that are scored.

  `tokenizer` is that of the units; ELMo's and other open vocabularies are those of these units
  alone.
  """

  units: UnitTable
  examples: ExampleTable
  tokenizer: "Tokenizer"


class Input:
  """Makes what a model reads; a subclass is a frozen dataclass.

  `name` is the key in `Batch.inputs` and the file that keeps what was fitted; `level` what each row
  of `columns` belongs to: a token, a word or a unit of the table of units, an example of the table
  of examples, or an id of the vocabulary, whose row each token with that id gets. `needs_words`:
  the table of units must have word spans; `training_only`: only the loss reads it.
  """

  name: ClassVar[str]
  level: ClassVar[Level] = "example"
  needs_words: bool = False
  training_only: ClassVar[bool] = False

  def bind(self, resources: Resources) -> "Input":
    """Return the input with what it needs of a run; called once, before `columns`."""
    del resources
    return self

  def fit(self, questions: Sequence[Question]) -> Any:
    """Return what is counted in the training questions, as JSON data; None where nothing is.
    A run keeps it in its folder, and gives it to `columns` in training and in ranking. `questions`
    are the training split, less those held out; `data.train_filter` and `data.train_fraction` do
    not reduce it.
    """
    del questions

  def for_layout(self, questions: Sequence[Question]) -> Any:
    """Return what a layout function that has a parameter of this input's name is given."""
    raise NotImplementedError(f"no layout can read the input {self.name!r}")

  def retokenise(self, units: UnitTable) -> UnitTable:
    """Return the table that batches are cut from, where its tokens are not the tokeniser's."""
    return units

  def columns(
    self, fitted: Any, questions: Sequence[Question], tables: Tables
  ) -> np.ndarray | None:
    """Return values `[rows, …]`, one row for each token, word, unit, example or vocabulary id.
    None where a layout reads it. On several hosts the first one computes them before all others, so
    that a cache on disk is filled once. `tables` are as they were tokenised; rows of level `token`
    are those of `retokenise`.
    """
    raise NotImplementedError(
      f"{type(self).__name__} defines no columns(fitted, questions, tables)"
    )

  def spec(self) -> tuple[tuple[int, ...], Any] | None:
    """Return the shape of a row of `columns` and its dtype, one float32; None where `columns` is None."""
    return (), np.float32

  def statistics(self, column: Column | None, units: UnitTable) -> dict[str, Any]:
    """Return what `results.json` says of this input in the training data, ready for JSON."""
    del column, units
    return {}


def declared(*modules: Any) -> tuple[Input, ...]:
  """Return the inputs of modules, in order; InputError where two have the same name."""
  inputs = tuple(entry for module in modules for entry in getattr(module, "inputs", ()))
  names = [entry.name for entry in inputs]
  if len(set(names)) < len(names):
    raise InputError(f"inputs {names}: give each a name of its own")
  return inputs


FOLDER = "inputs"  # in a run's folder
VERSION = 2  # of the files
MAX_BYTES = 2 << 30  # of one of them: tens of millions of words with their counts


def recall(
  entry: Input, workdir: epath.PathLike, questions: Callable[[], Sequence[Question] | None]
) -> Any:
  """Return what the run in `workdir` ("" for none) has fitted for an input, or fit and write it.
  `questions` gives the training questions, or None where the data are not loaded. Raises InputError
  where the file is broken, or there is neither a file nor training data.
  """
  if type(entry).fit is Input.fit:
    return None
  path = epath.Path(workdir) / FOLDER / f"{entry.name}.json" if workdir else None
  if path is not None and path.exists():
    return load(path)
  train = questions()
  if train is None:
    raise InputError(
      f"{workdir} does not hold what {entry.name!r} counts in the training data "
      f"({FOLDER}/{entry.name}.json): train first"
    )
  # Through JSON, so that the run that fits and those that read have equal values.
  values = json.loads(json.dumps(entry.fit(train)))
  if path is not None:
    save(values, fingerprint(train), path)
  return values


def forget(workdir: epath.PathLike) -> None:
  """Remove the files of a run that never began."""
  (epath.Path(workdir) / FOLDER).rmtree(missing_ok=True)


def save(values: Any, source: str, path: epath.PathLike) -> None:
  """Write a file for `load`, whole or not at all; `source` is the fingerprint of the questions."""
  content = {"version": VERSION, "sha256": digest(values), "source": source, "values": values}
  write_whole(epath.Path(path), json.dumps(content, ensure_ascii=True))


def load(path: epath.PathLike) -> Any:
  """Return the values that `save` wrote; InputError where they cannot be read, or were changed."""
  again = "train again, into another folder"
  try:
    content = read_json(path, MAX_BYTES)
    if content["version"] == VERSION and content["sha256"] == digest(content["values"]):
      return content["values"]
  except InputError as error:
    raise InputError(f"{error}; {again}") from None
  except (KeyError, TypeError):
    pass
  raise InputError(f"{path} is of another version or was changed by hand; {again}")


def digest(values: Any) -> str:
  """Return the SHA-256 (hex) of what an input has fitted."""
  return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
