"""Names in a config → classes, imported only when asked for.

A name is one of a table, or `module:Class`: a class of the user's, which Python imports from its
path (the folder that a command is run in, and $PYTHONPATH) where it is allowed: by the config of one's
own that names it, or by `allow_code` for a run that is opened. Ranges of values stand beside the fields
of a class, which are checked before anything is read and by the class's constructor:

  norm: Annotated[str, OneOf(("pre", "post"))]
  num_heads: Annotated[int, AtLeast(1)]
"""

import dataclasses
import functools
import importlib.util
import inspect
import logging
import math
import os
import sys
import typing
from collections.abc import Sequence
from typing import Annotated, Any

from as2jax.runtime.errors import InputError


class Table(dict[str, str]):
  """{name: `module:Class`}; each class derives from `base`, `module:Class` too."""

  base: str


MODELS = Table(
  {
    "biencoder": "as2jax.models.biencoder:BiEncoder",
    "triplet": "as2jax.models.asbert:Triplet",
    "siamese": "as2jax.models.asbert:Siamese",
    "sentence_bert": "as2jax.models.biencoder:SentenceBert",
    "reranker": "as2jax.models.crossencoder:Reranker",
    "crossencoder": "as2jax.models.crossencoder:CrossEncoder",
    "loct": "as2jax.models.crossencoder:LocalContextCrossEncoder",
    "m2snet": "as2jax.models.m2snet:M2SNet",
    "cassie": "as2jax.models.cassie:Cassie",
    "feature_based": "as2jax.models.cete:FeatureBased",
    "cross_vae": "as2jax.models.cross_vae:CrossVAE",
    "word_overlap": "as2jax.models.lexical:WordOverlap",
    "overlap_regression": "as2jax.models.lexical:OverlapRegression",
    "idf_overlap": "as2jax.models.lexical:IDFOverlap",
    "bm25": "as2jax.models.lexical:BM25",
    "document_order": "as2jax.models.lexical:DocumentOrder",
  }
)
MODELS.base = "as2jax.models.system:System"
ENCODERS = Table(
  {
    "bert": "as2jax.encoders.bert:BertEncoder",
    "roberta": "as2jax.encoders.bert:BertEncoder",
    "mpnet": "as2jax.encoders.mpnet:MPNetEncoder",
    "xlnet": "as2jax.encoders.xlnet:XLNetEncoder",
    "modernbert": "as2jax.encoders.modernbert:ModernBertEncoder",
    "deberta-v2": "as2jax.encoders.deberta:DebertaEncoder",
    "electra": "as2jax.encoders.electra:ElectraEncoder",
    "distilbert": "as2jax.encoders.distilbert:DistilBertEncoder",
    "elmo": "as2jax.encoders.elmo:ElmoEncoder",
    "static": "as2jax.encoders.static:StaticEncoder",
    "recurrent": "as2jax.encoders.infersent:RecurrentEncoder",
    "words": "as2jax.encoders.piece_vectors:StaticEncoder",
  }
)
ENCODERS.base = "flax.linen:Module"
LOSSES = Table(
  {
    "none": "as2jax.models.losses:Loss",
    "triplet": "as2jax.models.losses:TripletLoss",
    "bce": "as2jax.models.losses:BinaryCrossEntropy",
    "cross_entropy": "as2jax.models.losses:SoftmaxCrossEntropy",
    "m2snet": "as2jax.models.m2snet:M2SNetLoss",
    "cassie": "as2jax.models.cassie:CassieLoss",
    "cross_vae": "as2jax.models.cross_vae:CrossVAELoss",
    "squared_error": "as2jax.models.losses:MeanSquaredError",
    "in_batch_softmax": "as2jax.models.ranking_losses:InBatchSoftmax",
    "list_softmax": "as2jax.models.ranking_losses:ListSoftmax",
    "ranknet": "as2jax.models.ranking_losses:RankNet",
    "distillation": "as2jax.models.ranking_losses:Distillation",
  }
)
LOSSES.base = "as2jax.models.losses:Loss"
_allowed: set[str] = set()  # the classes of one's own that this process may import
log = logging.getLogger(__name__)


def allow_code(config: Any, where: str = "", *, said: bool = True) -> None:
  """Allows this process to import the classes of one's own that a config names.

  InputError: it is not `said` that code may run of the config at `where`, and the config names some.
  """
  for key in ("model", "loss", "encoder"):
    name = config.get(key, {}).get("name")
    if isinstance(name, str) and ":" in name and name not in _allowed:
      if not said:
        raise _not_allowed(f"{key}.name", name, f"{where}: ")
      _allowed.add(name)


def _not_allowed(key: str, name: str, where: str = "") -> InputError:
  return InputError(
    f"{where}{key} = {name!r} is code of the module {name.partition(':')[0]!r}, which was not run: add "
    "--allow-code (allow_code=True in Python) if you trust it"
  )


def find(table: Table, name: str, key: str) -> type:
  """Returns the class that `key` of the config names.

  InputError: a name that is not in the table; a `module:Class` that is not allowed (`allow_code`), or
  not there, or whose class does not derive from the table's base.
  """
  if name in table:
    return resolve(table[name])
  if ":" not in name:
    raise InputError(
      f"{key} = {name!r} is not known; use one of {', '.join(sorted(table))}, or name a class of "
      "your own as module:Class"
    )
  module, _, attribute = name.partition(":")
  if not all(part.isidentifier() for part in (*module.split("."), attribute)):
    raise InputError(f"{key} = {name!r}: write it as module:Class, such as my_systems.bag:Bag")
  if name not in _allowed:
    raise _not_allowed(key, name)
  if "" not in sys.path and os.getcwd() not in sys.path:  # as for an installed command
    sys.path.append(os.getcwd())
  try:
    if module not in sys.modules and (spec := importlib.util.find_spec(module)):
      log.warning("%s = %r: running code of the module %s (%s)", key, name, module, spec.origin)
    cls, base = getattr(importlib.import_module(module), attribute, None), resolve(table.base)
  except ModuleNotFoundError as error:
    if not f"{module}.".startswith(f"{error.name}."):
      raise  # the module is there, and imports one that is not
    raise InputError(
      f"{key} = {name!r}: there is no module {error.name!r}; start the command in the folder that "
      "holds it, or put that folder on $PYTHONPATH"
    ) from None
  if not (isinstance(cls, type) and issubclass(cls, base)):
    raise InputError(
      f"{key} = {name!r} is no {base.__name__}: derive the class from {table.base.replace(':', '.')}"
    )
  return cls


def has_parameters(model: str) -> bool:
  """Returns whether the system that `model.name` names has parameters; see `find` for errors."""
  return find(MODELS, model, "model.name").has_parameters


def resolve(reference: str) -> Any:
  """Imports the module of `module:attribute` and returns the attribute."""
  module, _, attribute = reference.partition(":")
  return getattr(importlib.import_module(module), attribute)


def build(table: Table, section: Any, key: str, **extra) -> Any:
  """Builds an object from a config section: `name` chooses the class, the rest are its fields.

  A key that is None is left out, so that classes with different fields can share a preset. `extra`
  are fields that do not come from the config.

  InputError: an unknown name, a key that is no field, a field without a value, or one out of range.
  """
  cls = find(table, section["name"], f"{key}.name")
  values = {k: v for k, v in section.items() if k != "name" and v is not None}
  fields = inspect.signature(cls).parameters
  for k in values:
    if k not in fields:
      names = sorted(set(fields) - {*extra, "name", "parent"})
      raise InputError(f"{key}.{k} is not a field of {cls.__name__}; its fields are {names}")
  given = {**values, **extra}
  missing = [k for k, field in fields.items() if field.default is field.empty and k not in given]
  if missing:
    raise InputError(f"{key}: {cls.__name__} wants values for {missing}")
  check_ranges(cls, values, key)
  return cls(**given)


def check_ranges(cls: Any, section: Any, key: str) -> None:
  """Raises InputError for a config section's first value outside the range beside its field."""
  for field in dataclasses.fields(cls):
    value = section.get(field.name)
    if value is not None and typing.get_origin(field.type) is Annotated:
      for bound in field.type.__metadata__:
        if problem := bound.problem(value):
          raise InputError(f"{key}.{field.name} = {value!r}: {problem}")


@dataclasses.dataclass(frozen=True)
class OneOf:
  """Allows one of some names."""

  names: Sequence[str]

  def problem(self, value: Any) -> str:
    """Returns what to give where a value is out of range, else ""."""
    return "" if value in self.names else f"use one of {', '.join(self.names)}"


@dataclasses.dataclass(frozen=True)
class AtLeast:
  """Allows a finite number, `least` or more, below `below`."""

  least: float
  below: float = math.inf

  def problem(self, value: Any) -> str:
    """Returns what to give where a value is out of range, else ""."""
    if isinstance(value, (int, float)) and self.least <= value < self.below:
      return ""
    if self.below < math.inf:
      return f"give a number from {self.least} to below {self.below}"
    return f"give {self.least} or more"


@dataclasses.dataclass(frozen=True)
class Above:
  """Allows a finite number greater than `limit`."""

  limit: float

  def problem(self, value: Any) -> str:
    """Returns what to give where a value is out of range, else ""."""
    return "" if self.limit < value < math.inf else f"give a number above {self.limit}"


@dataclasses.dataclass(frozen=True)
class Each:
  """Allows one or more values, each within `bound`."""

  bound: OneOf | AtLeast

  def problem(self, values: Any) -> str:
    """Returns what to give where a value is out of range, else ""."""
    for value in values:
      if problem := self.bound.problem(value):
        return f"for each: {problem}"
    return "" if values else "give one value or more"


Share = functools.partial(AtLeast, 0, 1)  # a part of a whole, such as a rate of dropout
Rate = Annotated[float, Share()]
Precision = Annotated[Any, OneOf(("default", "high", "highest"))]  # of float32 matrix products
Dtype = Annotated[str, OneOf(("float32", "bfloat16"))]  # of a computation
