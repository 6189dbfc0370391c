"""What is measured: batches, sentences and weights of a system, with its FLOPs."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

SHAPES = {
  "bert-base": "bert-base-uncased",
  "minilm": "nreimers/MiniLM-L6-H384-uncased",
  "modernbert-base": "answerdotai/ModernBERT-base",
  "ettin-17m": "jhu-clsp/ettin-encoder-17m",
}
TRAINED = ("triplet", "crossencoder")  # the other systems, encode and score, predict
JOBS = {
  "triplet": "configs/wikiqa_triplet.py:minilm,grouped",
  "crossencoder": "configs/wikiqa_crossencoder.py:minilm",
  "encode": "configs/wikiqa_baseline.py:mean,minilm,grouped",
}


def forward_flops(encoder: Mapping[str, Any], lengths: Any) -> float:
  """Return the FLOPs of an encoder's matrix products over sequences of given lengths.

  n tokens cost, a layer, n·(8d² + 4·d·f) for the dense products and 4·n²·d for the two of attention (d wide,
  f the feed-forward's width; 6·d·f where it is gated). Embeddings, norms, pooling and heads are left out
  (below 1 % at these sizes). A training step costs three times as much.
  """
  n = np.asarray(lengths, np.float64)
  d, f = encoder["hidden_size"], encoder["intermediate_size"]
  products = 6 if encoder.get("name") == "modernbert" else 4
  return encoder["num_layers"] * float(np.sum(n * (8 * d * d + products * d * f) + 4 * d * n * n))


@dataclasses.dataclass(frozen=True)
class Load:
  """An amount of work; loads add up.

  Attributes:
    examples: triplets or pairs; units: sequences encoded for them.
    tokens: real tokens of the units; positions: those computed, padding included.
    flops: of the tokens, backward pass included where there is one.

  """

  examples: int = 0
  units: int = 0
  tokens: int = 0
  positions: int = 0
  flops: float = 0.0

  def __add__(self, other: "Load") -> "Load":
    return Load(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


def load_of(settings: Mapping[str, Any], examples: int, lengths: np.ndarray, positions: int):
  """Return the load of `examples` whose units have `lengths`, computed in so many positions."""
  passes = 3 if settings["system"] in TRAINED else 1
  flops = passes * forward_flops(settings["encoder"], lengths)
  return Load(int(examples), len(lengths), int(lengths.sum()), int(positions), flops)


def batch_load(settings: Mapping[str, Any], batch: Any) -> Load:
  """Return the load of one of our batches, from its own masks."""
  lengths = batch.units.length[batch.units.length > 0]
  return load_of(settings, batch.examples.mask.sum(), lengths, batch.tokens.ids.size)


@dataclasses.dataclass(frozen=True)
class Workload:
  """One system's data, sizes and weights.

  Attributes:
    settings: the system, and the sections that build model, loss and optimizer.
    weights: pretrained arrays by parameter path; empty for random ones.
    ids, type, offsets: tokens of all units, as in `UnitTable`.
    members: units of each example, `[examples, k]`; labels: `[examples]`.
    epoch: number of an epoch -> (batches in it, batch by number as numpy arrays).
    whole: our load of a whole epoch.

  """

  settings: dict[str, Any]
  weights: Mapping[str, np.ndarray]
  ids: np.ndarray
  type: np.ndarray
  offsets: np.ndarray
  members: np.ndarray
  labels: np.ndarray
  epoch: Callable[[int], tuple[int, Callable[[int], Any]]]
  whole: Load

  @property
  def trained(self) -> bool:
    """Whether steps train; else they encode or score."""
    return self.settings["system"] in TRAINED

  def shapes(self) -> list[Any]:
    """Return the first batch of each shape that the first epoch has."""
    count, make = self.epoch(0)
    batches: dict[tuple, Any] = {}
    for i in range(count):
      batch = make(i)
      batches.setdefault(batch.tokens.ids.shape, batch)
    return list(batches.values())


def of_batcher(settings: dict[str, Any], weights: Mapping[str, Any], batcher: Any) -> Workload:
  """Return the workload of all batches of a batcher."""
  blocks = batcher.sampler.blocks()

  def epoch(number: int):
    plan = batcher.plan(blocks, 0, number)
    return len(plan), lambda i: batcher.batch(plan, i)

  count, make = epoch(0)
  whole = sum((batch_load(settings, make(i)) for i in range(count)), Load())
  units, examples = batcher.units, batcher.examples
  tokens = [np.asarray(array) for array in (units.ids, units.type, units.offsets)]
  return Workload(settings, weights, *tokens, examples.members, examples.labels[:, 0], epoch, whole)


def encoder_of(shape: str, **fields: Any) -> dict[str, Any]:
  """Return the section `encoder` of a published shape; `fields` take the place of its own."""
  from as2jax.encoders import transformer_folder

  family, sizes = transformer_folder.published(SHAPES[shape])
  return {"name": family.name, **sizes, **fields}


def from_job(
  system: str,
  *,
  words: str = "",
  encoder: str = "",
  shape: str = "",
  dtype: str = "float32",
  dropout: float = 0.1,
) -> Workload:
  """Return the workload of one of `JOBS`: `encode` takes the test split's sentences, others train.

  Args:
    words: further words of the job, such as `sample`; encoder: as `encoder.pretrained`.
    shape: one of `SHAPES`, whose sizes with random weights take the place of the encoder's.

  Raises:
    InputError: data or weights are absent.

  """
  from as2jax.config import jobs
  from as2jax.training import build

  config = jobs.load(",".join(filter(None, (JOBS[system], words))))
  config.data.download = False  # absent data is a message, not a wait
  config.encoder.pretrained = encoder or config.encoder.pretrained
  config.encoder.dtype = dtype
  config.encoder.hidden_dropout = config.encoder.attention_dropout = dropout
  if "dropout" in config.model:
    config.model.dropout = dropout
  run = build.load(config)
  if system == "encode":
    batcher = run.predict_batcher(run.dataset.splits["test"], "sentences")
  else:
    batcher = run.train_batcher()
  settings = {
    "system": system,
    "batch_size": config.batch.examples if batcher.sampler.name == "paper" else None,
    "encoder": {"name": run.provenance["family"], **_fields(run.model.encoder)},
    "model": {"name": config.model.name, **_fields(run.model)},
    "loss": {"name": config.loss.name, **_fields(run.loss)},
    "optimizer": config.optimizer.to_dict(),
  }
  weights = run.pretrained
  if shape:
    kept = ("dtype", "attention", "hidden_dropout", "attention_dropout")
    settings["encoder"] = encoder_of(shape, **{name: settings["encoder"][name] for name in kept})
    weights = {}
  return of_batcher(settings, weights, batcher)


def _fields(part: Any) -> dict[str, Any]:
  """Return the plain fields of a module or a loss: what `registry.build` takes."""
  return {
    f.name: getattr(part, f.name)
    for f in dataclasses.fields(part)
    if f.init and f.name not in ("parent", "name", "encoder")
  }
