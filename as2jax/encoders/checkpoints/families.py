"""The families of published transformers: by `model_type`, what reads and writes their weights."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from as2jax.encoders.checkpoints import (
  bert_weights,
  modernbert_weights,
  mpnet_weights,
  xlnet_weights,
)


@dataclasses.dataclass(frozen=True)
class Family:
  """One architecture as it is published.

  Attributes:
    name: Hugging Face's `model_type`, and its name in `registry.ENCODERS`.
    tokens: whose vector stands for a unit: `cls` (first) or `cls_last`.
    fields: a parsed config -> the encoder's fields (ValueError where it does not fit).
    names: parameter path -> Hugging Face tensor, `{}` the layer.
    ours, theirs: turn one tensor (see `bert_weights`).
    today: a name in a file -> the name in `names`.
    ignored: names (as of `today`) of what files hold beside the encoder.
    prefix: of the encoder's names in a file of a model with a head.
    pooler: parameter -> tensor of a pretrained layer on the unit's token; {} where there is none.
    head: of a sequence classifier, "pooler" and "head" -> the stem of their tensors; {} where ours
      has no such form.
    first_stacked: number of the layer that is the first of a stack.

  """

  name: str
  tokens: str
  fields: Callable[[Mapping[str, Any]], dict[str, Any]]
  names: Mapping[str, str]
  ours: Callable[[str, np.ndarray], np.ndarray]
  theirs: Callable[[str, np.ndarray, int], np.ndarray]
  today: Callable[[str], str]
  ignored: re.Pattern
  prefix: str
  pooler: Mapping[str, str]
  head: Mapping[str, str]
  first_stacked: int = 0


def _family(module: ModuleType, name: str, tokens: str, prefix: str, **fields: Any) -> Family:
  """A family whose weights `module` reads and writes; it has no pooler where `fields` names none."""
  fields.setdefault("today", lambda stored: stored.removeprefix(prefix))
  return Family(
    name=name,
    tokens=tokens,
    prefix=prefix,
    fields=module.fields,
    names=module.NAMES,
    ours=module.ours,
    theirs=module.theirs,
    ignored=module.IGNORED,
    **{"pooler": {}, **fields},
  )


BERT = _family(
  bert_weights,
  "bert",
  "cls",
  "bert.",
  today=bert_weights.today,
  pooler=bert_weights.POOLER_NAMES,
  head={"pooler": "bert.pooler.dense", "head": "classifier"},
)

ROBERTA = dataclasses.replace(
  BERT,
  name="roberta",
  prefix="roberta.",
  pooler={},  # RoBERTa has none; the one in some files was never trained
  head={"pooler": "classifier.dense", "head": "classifier.out_proj"},
)

MPNET = _family(
  mpnet_weights,
  "mpnet",
  "cls",
  mpnet_weights.PREFIX,
  head={"pooler": "classifier.dense", "head": "classifier.out_proj"},
)

XLNET = _family(
  xlnet_weights,
  "xlnet",
  "cls_last",
  xlnet_weights.PREFIX,
  head={"pooler": "sequence_summary.summary", "head": "logits_proj"},
)

MODERNBERT = _family(
  modernbert_weights,
  "modernbert",
  "cls",
  modernbert_weights.PREFIX,
  today=modernbert_weights.today,
  head={},
  first_stacked=modernbert_weights.FIRST_STACKED,
)

FAMILIES = {family.name: family for family in (BERT, ROBERTA, MPNET, XLNET, MODERNBERT)}


def of(encoder: Any) -> Family:
  """The family whose weights `encoder` (a module) takes; RoBERTa is known by its positions.

  A subclass takes the weights of its base.
  """
  kinds = [cls.__name__ for cls in type(encoder).__mro__]
  if "MPNetEncoder" in kinds:
    return MPNET
  if "BertEncoder" in kinds:
    return ROBERTA if encoder.position_offset else BERT
  if "XLNetEncoder" in kinds:
    return XLNET
  if "ModernBertEncoder" in kinds:
    return MODERNBERT
  raise TypeError(f"{kinds[0]} is no transformer with published weights")
