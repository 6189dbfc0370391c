"""Range checks of config values, made before anything is read, compiled or written.

Names of data sets are checked where they are looked up. Ranges of the keys of a model, an encoder or
a loss stand beside the fields of its class (`as2jax.runtime.ranges`).
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from as2jax.config.flat import flatten
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

# A string names where the values are defined, above this folder (`registry.resolve`).
CHOICES = {
  "mode": ("train", "evaluate", "predict"),
  "select": "as2jax.evaluation.metrics:METRICS",
  "warm_start.scope": ("", "all", "encoder", "matching"),
  "data.train_filter": "as2jax.evaluation.metrics:RULES",
  "evaluation.ties": "as2jax.evaluation.metrics:TIES",
  "evaluation.task": ("rerank", "retrieve"),
  "data.negatives": ("none", "paragraph"),
  "batch.sampler": "as2jax.data.batches.samplers:TRAINING",
  "optimizer.name": "as2jax.training.optimizers:RULES",
  "optimizer.schedule": "as2jax.training.optimizers:SCHEDULES",
  "encoder.name": ("auto", "sentence_bert", "reranker", *registry.ENCODERS),
  "encoder.vocabulary": ("train", "data", "file"),
  "encoder.unknown_words": ("skip", "zero", "mean", "uniform"),
}
AT_LEAST = {
  "epochs": 0,
  "patience": 1,
  "warm_start.seed": 0,
  "data.ranking_size": 1,
  "batch.examples": 1,
  "batch.rows": 1,
  "batch.shards": 1,
  "batch.accumulate": 1,
  "batch.num_row_buckets": 1,
  "batch.triplet_tile": 1,
  "batch.predict_rows": 1,
  "encoder.size": 0,
  "optimizer.rate": 0,
  "optimizer.warmup": 0,
  "optimizer.eps": 0,
  "optimizer.clip_norm": 0,
  "optimizer.weight_decay": 0,
  "optimizer.layer_decay": 0,
  "sharding.fsdp": 1,
  "sharding.tensor": 1,
  "checkpoint.steps": 1,
  "evaluation.depth": 5,
  "evaluation.min_questions_per_answer": 1,
  "log.steps": 1,
  "log.seconds": 0,
}
# Fractions in [0, 1): dropout rates, decay rates of running averages, the share of questions held
# out.
FRACTIONS = ("optimizer.b1", "optimizer.b2", "optimizer.average", "data.holdout")
SPLITS = ("train", "dev", "test", "heldout")


def check(config: Any) -> None:
  """Raises InputError for the first key with a value out of range; the message names the range."""
  for key, value in flatten(config).items():
    if value is None:
      continue  # as the weights or the class say
    problem = _problem(key, value)
    if problem:
      shown = tuple(value) if isinstance(value, list) else value
      raise InputError(f"{key} = {shown!r}: {problem}")
  if config.log.get("gradient_norms") and config.batch.accumulate > 1:
    raise InputError(
      f"log.gradient_norms: of batches of batch.accumulate = {config.batch.accumulate} parts they are "
      "not computed; set that to 1"
    )
  for table, key in ((registry.MODELS, "model"), (registry.LOSSES, "loss")):
    cls = registry.find(table, config[key]["name"], f"{key}.name")
    registry.check_ranges(cls, config[key], key)
  _check_score(config.model)
  if not registry.has_parameters(config.model["name"]):
    return
  if config.mode == "train" and config.epochs and config.loss["name"] == "none":
    raise InputError(
      f"epochs = {config.epochs}: with loss.name = 'none' nothing is trained; set epochs to 0, or "
      "loss.name to a loss, such as list_softmax"
    )
  # What the files decide is a transformer, whose keys are those of BERT's.
  name = config.encoder["name"]
  known = name if name in registry.ENCODERS or ":" in name else "bert"
  cls = registry.find(registry.ENCODERS, known, "encoder.name")
  registry.check_ranges(cls, config.encoder, "encoder")


def _check_score(section: Any) -> None:
  """Raises InputError where `model.score` is none of the scores that the system gives."""
  model: Any = registry.find(registry.MODELS, section["name"], "model.name")
  score = section.get("score")
  if score and score not in model.score_names:
    raise InputError(f"model.score = {score!r}: use one of {', '.join(model.score_names)}")


def _problem(key: str, value: Any) -> str | None:
  own = key == "encoder.name" and ":" in value  # a class of the user's: see `registry.find`
  if key in CHOICES and not own and value not in (choices := _choices(key)):
    return f"use one of {', '.join(choices)}"
  if isinstance(value, float) and not math.isfinite(value):
    return "give a finite number"
  if key in AT_LEAST and value < AT_LEAST[key]:
    return f"give {AT_LEAST[key]} or more"
  if key in FRACTIONS and not 0 <= value < 1:
    return "give a number from 0 to below 1"
  special = {
    "seeds": _seeds,
    "batch.row_lengths": _row_lengths,
    "optimizer.lr_multipliers": _lr_multipliers,
    "evaluation.splits": _splits,
    "data.train_fraction": _part,
    "data.max_length": _max_length,
    "data.prompts": _prompts,
    "data.mined": _paths,
    "data.teachers": _paths,
  }.get(key)
  return special(value) if special else None


def _choices(key: str) -> tuple[str, ...]:
  """The values that a key may have, from where they are defined."""
  choices = CHOICES[key]
  return tuple(registry.resolve(choices) if isinstance(choices, str) else choices)


def _seeds(seeds: Sequence) -> str | None:
  whole = all(_whole(seed) and 0 <= seed < 2**31 for seed in seeds)
  if not seeds or not whole or len(set(seeds)) < len(seeds):
    return "give different whole numbers from 0, such as (0, 1, 2)"
  return None


def _prompts(texts: Sequence) -> str | None:
  if not isinstance(texts, (tuple, list)) or len(texts) not in (0, 2):
    return "give what stands before questions and before candidates, such as ('query: ', '')"
  return None if all(isinstance(text, str) for text in texts) else "give two texts"


def _paths(names: Sequence) -> str | None:
  if all(isinstance(name, str) and name for name in names):
    return None
  return "give paths as texts, such as ('negatives',)"


def _row_lengths(lengths: Sequence) -> str | None:
  if not lengths or not all(_whole(n) and n > 0 for n in lengths) or sorted(lengths) != lengths:
    return "give whole numbers of tokens, the shortest first, such as (64, 128)"
  return None


def _lr_multipliers(pairs: Sequence) -> str | None:
  """The problem with (pattern, factor) pairs, None where there is none."""
  for pair in pairs:
    if not (
      isinstance(pair, Sequence)
      and len(pair) == 2
      and isinstance(pair[0], str)
      and isinstance(pair[1], (int, float))
      and math.isfinite(pair[1])
      and pair[1] >= 0
    ):
      return f"{pair!r} is no (regular expression, factor) pair; give such as (('^head', 10.0),)"
    try:
      re.compile(pair[0])
    except re.error as error:
      return f"{pair[0]!r} is no regular expression ({error}); give such as '^encoder/'"
  return None


def _splits(splits: Sequence) -> str | None:
  parts = [str(split).split("+") for split in splits]
  known = all(set(part) <= set(SPLITS) and len(set(part)) == len(part) for part in parts)
  if not splits or not known or len(set(splits)) < len(splits):
    return (
      f"give some of {', '.join(SPLITS)}, such as ('dev', 'test'); dev+test stands for the "
      "questions of both"
    )
  return None


def _max_length(length: int) -> str | None:
  return "give 4 or more, or 0 for the encoder's own limit" if length < 4 and length else None


def _part(part: float) -> str | None:
  return None if 0 < part <= 1 else "give a number above 0, up to 1"


def _whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)
