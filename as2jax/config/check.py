"""Checks of config values before anything is read, compiled or written.

The keys of a model, an encoder or a loss have their ranges beside the fields of their class
(`as2jax.runtime.registry`); names of data sets are checked where they are looked up.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from as2jax.config.overrides import flatten
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, OneOf, Share

SPLITS = ("train", "dev", "test", "heldout")
# Names that are defined above this folder (`registry.resolve`).
NAMES = {
  "select": "as2jax.evaluation.metrics:METRICS",
  "data.train_filter": "as2jax.evaluation.metrics:RULES",
  "data.neighbours": "as2jax.data.neighbours:CHANGES",
  "evaluation.ties": "as2jax.evaluation.metrics:TIES",
  "batch.sampler": "as2jax.data.batches.samplers:TRAINING",
  "optimizer.name": "as2jax.training.optimizers:RULES",
  "optimizer.schedule": "as2jax.training.optimizers:SCHEDULES",
}
COUNTS = """patience data.ranking_size batch.examples batch.rows batch.shards batch.accumulate
  batch.num_row_buckets batch.triplet_tile batch.predict_rows sharding.fsdp sharding.tensor
  checkpoint.steps evaluation.min_questions_per_answer log.steps"""
NOT_NEGATIVE = """epochs warm_start.seed encoder.size optimizer.rate optimizer.warmup optimizer.eps
  optimizer.clip_norm optimizer.weight_decay optimizer.layer_decay log.seconds"""


def _whole(values: Any, least: int) -> bool:
  """Return whether there are values, all of them different whole numbers from `least`."""
  whole = bool(values) and all(type(value) is int and value >= least for value in values)
  return whole and len(set(values)) == len(values)


def _are_splits(splits: Any) -> bool:
  for split in splits:
    parts = str(split).split("+")
    if not set(parts) <= set(SPLITS) or len(set(parts)) < len(parts):
      return False
  return 0 < len(splits) == len(set(splits))


def _are_texts(values: Any) -> bool:
  return isinstance(values, (tuple, list)) and all(isinstance(value, str) for value in values)


def _are_multipliers(pairs: Any) -> bool:
  try:
    for pattern, factor in pairs:
      re.compile(pattern)
      if not 0 <= factor < math.inf:
        return False
  except (re.error, TypeError, ValueError):
    return False
  return True


def _are_paths(values: Any) -> bool:
  return _are_texts(values) and "" not in values


PATHS = "give paths as texts, such as ('negatives',)"
RANGES: dict[str, OneOf | AtLeast] = {
  **dict.fromkeys(COUNTS.split(), AtLeast(1)),
  **dict.fromkeys(NOT_NEGATIVE.split(), AtLeast(0)),
  **dict.fromkeys(("optimizer.b1", "optimizer.b2", "data.holdout"), Share()),
  "mode": OneOf(("train", "evaluate", "predict")),
  "warm_start.scope": OneOf(("", "all", "encoder", "matching")),
  "evaluation.task": OneOf(("rerank", "retrieve")),
  "data.negatives": OneOf(("none", "paragraph")),
  "encoder.vocabulary": OneOf(("train", "data", "file")),
  "encoder.unknown_words": OneOf(("skip", "zero", "mean", "uniform")),
  "evaluation.depth": AtLeast(5),
}
# Of other keys: what must hold, and what to give.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
  "seeds": (
    lambda seeds: _whole(seeds, 0) and max(seeds) < 2**31,
    "give different whole numbers from 0, such as (0, 1, 2)",
  ),
  "batch.row_lengths": (
    lambda lengths: _whole(lengths, 1) and sorted(lengths) == list(lengths),
    "give whole numbers of tokens, the shortest first, such as (64, 128)",
  ),
  "evaluation.splits": (
    _are_splits,
    f"give some of {', '.join(SPLITS)}, such as ('dev', 'test'); dev+test stands for the questions of "
    "both",
  ),
  "data.train_fraction": (lambda part: 0 < part <= 1, "give a number above 0, up to 1"),
  "data.max_length": (
    lambda length: length == 0 or length >= 4,
    "give 4 or more, or 0 for the encoder's own limit",
  ),
  "data.prompts": (
    lambda texts: _are_texts(texts) and len(texts) in (0, 2),
    "give the texts that stand before questions and before candidates, such as ('query: ', '')",
  ),
  "data.mined": (_are_paths, PATHS),
  "data.teachers": (_are_paths, PATHS),
  "optimizer.lr_multipliers": (
    _are_multipliers,
    "give (regular expression, factor) pairs, such as (('^head', 10.0),)",
  ),
}


def check(config: Any) -> None:
  """Raise InputError for the first key with a value out of range; the message names the range."""
  for key, value in flatten(config).items():
    if value is None:
      continue  # as the weights or the class say
    allowed = RANGES.get(key)
    if key in NAMES:
      allowed = OneOf(tuple(registry.resolve(NAMES[key])))
    problem = allowed.problem(value) if allowed else ""
    if key in RULES and not RULES[key][0](value):
      problem = RULES[key][1]
    if isinstance(value, float) and not math.isfinite(value):
      problem = "give a finite number"
    if problem:
      shown = tuple(value) if isinstance(value, list) else value
      raise InputError(f"{key} = {shown!r}: {problem}")
  if config.log.gradient_norms and config.batch.accumulate > 1:
    raise InputError("log.gradient_norms: not computed over parts; set batch.accumulate = 1")
  registry.allow_code(config)  # what this process was given, not what a run's folder says
  model: Any = registry.find(registry.MODELS, config.model["name"], "model.name")
  model.check_fields(config.model)
  loss: Any = registry.find(registry.LOSSES, config.loss["name"], "loss.name")
  loss.check_fields(config.loss)
  if not model.has_parameters:
    return
  if config.mode == "train" and config.epochs and config.loss["name"] == "none":
    raise InputError(
      f"epochs = {config.epochs}: with loss.name = 'none' nothing is trained; set epochs to 0, or "
      "loss.name to a loss, such as list_softmax"
    )
  name = config.encoder["name"]
  if name in ("auto", "sentence_bert", "reranker"):
    name = "bert"  # what the files decide is a transformer, whose keys are those of BERT's
  encoder = registry.find(registry.ENCODERS, name, "encoder.name")
  registry.check_ranges(encoder, config.encoder, "encoder")
