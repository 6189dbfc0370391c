"""Names in a config → classes: tables of `module:Class`, imported when they are looked up."""

import dataclasses
import importlib
from typing import Any

from as2jax.runtime.errors import InputError

MODELS = {
  "biencoder": "as2jax.models.biencoder:BiEncoder",
  "triplet": "as2jax.models.asbert:Triplet",
  "siamese": "as2jax.models.asbert:Siamese",
  "sentence_bert": "as2jax.models.sentence_bert:SentenceBert",
  "crossencoder": "as2jax.models.crossencoder:CrossEncoder",
  "loct": "as2jax.models.loct:LocalContextCrossEncoder",
  "m2snet": "as2jax.models.m2snet:M2SNet",
  "cassie": "as2jax.models.cassie:Cassie",
  "feature_based": "as2jax.models.cete:FeatureBased",
  "cross_vae": "as2jax.models.cross_vae:CrossVAE",
  "probe": "as2jax.models.testing:Probe",  # proves the loop
}
ENCODERS = {
  "bert": "as2jax.encoders.bert:BertEncoder",
  "roberta": "as2jax.encoders.bert:BertEncoder",
  "xlnet": "as2jax.encoders.xlnet:XLNetEncoder",
  "elmo": "as2jax.encoders.elmo:ElmoEncoder",
  "static": "as2jax.encoders.static:StaticEncoder",
  "recurrent": "as2jax.encoders.infersent:RecurrentEncoder",
  "words": "as2jax.encoders.static:StaticEncoder",
}
LOSSES = {
  "none": "as2jax.models.losses:Loss",
  "triplet": "as2jax.models.losses:TripletLoss",
  "bce": "as2jax.models.losses:BinaryCrossEntropy",
  "cross_entropy": "as2jax.models.losses:SoftmaxCrossEntropy",
  "m2snet": "as2jax.models.m2snet:M2SNetLoss",
  "cassie": "as2jax.models.cassie:CassieLoss",
  "cross_vae": "as2jax.models.cross_vae_loss:CrossVAELoss",
  "squared_error": "as2jax.models.losses:MeanSquaredError",
  "probe": "as2jax.models.testing:ProbeLoss",
}
# Diagnostics of a model at each evaluation (as2jax.evaluation.diagnostics); other models have none.
WATCHERS = {"cross_vae": "as2jax.evaluation.cross_vae_diagnostics:LatentWatch"}
# Rankers without parameters, from as2jax.models.lexical.
LEXICAL = ("word_overlap", "idf_overlap", "bm25")


def find(table: dict[str, str], name: str, key: str) -> type:
  """Looks up the class that the value `name` of config key `key` stands for.

  Raises:
    InputError: a name that is not in the table.

  """
  if name not in table:
    raise InputError(f"{key} = {name!r} is not known; use one of {', '.join(sorted(table))}")
  return resolve(table[name])


def resolve(reference: str) -> Any:
  """Imports the module of `module:attribute` and returns the attribute."""
  module, _, attribute = reference.partition(":")
  return getattr(importlib.import_module(module), attribute)


def build(table: dict[str, str], section: Any, key: str, **extra) -> Any:
  """Builds an object from a config section: `name` chooses the class, the rest are its fields.

  A key that is None is left out, so that classes with different fields can share a preset. `extra`
  are fields that do not come from the config.

  Raises:
    InputError: an unknown name, a key that is no field, or a field without a value.

  """
  cls = find(table, section["name"], f"{key}.name")
  fields = {f.name: f for f in dataclasses.fields(cls) if f.init and f.name not in ("parent",)}
  values = {k: v for k, v in dict(section).items() if k != "name" and v is not None}
  for k in values:
    if k not in fields:
      allowed = sorted(set(fields) - set(extra) - {"name"})
      raise InputError(f"{key}.{k} is not a field of {cls.__name__}; its fields are {allowed}")
  missing = [
    f
    for f, field in fields.items()
    if f not in values
    and f not in extra
    and field.default is dataclasses.MISSING
    and field.default_factory is dataclasses.MISSING
  ]
  if missing:
    raise InputError(f"{key}: {cls.__name__} wants values for {missing}")
  return cls(**values, **extra)
