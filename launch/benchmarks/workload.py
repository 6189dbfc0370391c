"""What `launch/benchmarks/benchmark.py` measures: batches, sentences and weights of a system, and its FLOPs.

A workload is built from a config (`from_config`) or read from a file (`load`), which needs no data,
no tokeniser and no config library.
"""

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from as2jax.runtime.errors import InputError

VERSION = 2  # of the file
SHAPES = {
  "bert-base": "bert-base-uncased",
  "minilm": "nreimers/MiniLM-L6-H384-uncased",
  "modernbert-base": "answerdotai/ModernBERT-base",
  "ettin-17m": "jhu-clsp/ettin-encoder-17m",
}
WEIGHTS = ("float32", "float16", "none")


def forward_flops(encoder: Mapping[str, Any], lengths: Any) -> float:
  """Floating-point operations of an encoder's matrix products over sequences of given lengths.

  n tokens cost, a layer, n·(8d² + 4·d·f) for the dense products and 4·n²·d for the two of attention
  (d wide, f the feed-forward's width; 6·d·f where it is gated); a multiply-add counts two. Embeddings, norms, pooling and
  heads are left out (below 1 % at these sizes). A training step costs three times as much.
  """
  n = np.asarray(lengths, np.float64)
  d, f = encoder["hidden_size"], encoder["intermediate_size"]
  products = 6 if encoder.get("name") == "modernbert" else 4
  return encoder["num_layers"] * float(np.sum(n * (8 * d * d + products * d * f) + 4 * d * n * n))


def encoder_of(shape: str, **fields: Any) -> dict[str, Any]:
  """The section `encoder` of a published shape; `fields` take the place of its own."""
  from as2jax.encoders.checkpoints import published_shapes

  family, sizes = published_shapes.family(SHAPES[shape])
  return {"name": family.name, **sizes, **fields}


def with_shape(work: "Workload", shape: str) -> "Workload":
  """The same texts, by the same tokeniser, under an encoder of another shape with random weights."""
  kept = ("dtype", "attention", "hidden_dropout", "attention_dropout")
  encoder = encoder_of(shape, **{name: work.settings["encoder"][name] for name in kept})
  settings = {**work.settings, "encoder": encoder, "pretrained": f"random weights, {shape}"}
  count, make = work.epoch(0)
  whole = sum((batch_load(settings, make(i)) for i in range(count)), Load())
  return dataclasses.replace(work, settings=settings, weights={}, whole=whole)


def word_flops(settings: Mapping[str, Any]) -> float:
  """Floating-point operations of a Cross-VAE's matrix products for each word, forward.

  The encoder's GRU in both directions and its attention, the decoder's GRU and its softmax, which
  is counted at padding, too, though neither side computes it there.
  """
  model, d = settings["model"], settings["encoder"]["hidden_size"]
  h, k, z = (model[key] for key in ("hidden_size", "decoder_size", "latent_size"))
  kernel, mapped = (d, k * d if k != d else 0) if model["tied"] else (k, 0)
  return 2.0 * (
    2 * 3 * h * (d + h)
    + 2 * h * model["attention_size"]
    + 3 * k * (d + z + k)
    + mapped
    + kernel * model["output_size"]
  )


@dataclasses.dataclass(frozen=True)
class Load:
  """An amount of work; loads add up.

  Attributes:
    examples: triplets or pairs; units: sequences encoded for them.
    tokens: real tokens of the units; positions: those computed, padding included.
    flops, padded_flops: of tokens and of positions, backward pass included where there is one.

  """

  examples: int = 0
  units: int = 0
  tokens: int = 0
  positions: int = 0
  flops: float = 0.0
  padded_flops: float = 0.0

  def __add__(self, other: "Load") -> "Load":
    return Load(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

  @property
  def padding(self) -> float:
    """Share of the positions that hold padding."""
    return 1 - self.tokens / max(self.positions, 1)


def load_of(
  settings: Mapping[str, Any], examples: int, lengths: np.ndarray, rows: np.ndarray
) -> Load:
  """The load of `examples` whose units have `lengths`, computed in rows of the lengths `rows`."""
  passes = 1 if settings["system"] in ("encode", "score") else 3
  flops = lambda of: passes * forward_flops(settings["encoder"], of)
  if settings["system"] == "crossvae":
    flops = lambda of: passes * word_flops(settings) * float(np.sum(of))
  if settings["system"] == "m2snet":
    flops = lambda of: 0.0  # not counted: its convolutions skip windows of padding
  return Load(
    int(examples), len(lengths), int(lengths.sum()), int(rows.sum()), flops(lengths), flops(rows)
  )


def batch_load(settings: Mapping[str, Any], batch: Any) -> Load:
  """The load of one of our batches, from its own masks."""
  lengths = batch.units.length[batch.units.length > 0]
  *rows, row_length = batch.tokens.ids.shape
  return load_of(
    settings, batch.examples.mask.sum(), lengths, np.full(int(np.prod(rows)), row_length)
  )


@dataclasses.dataclass(frozen=True)
class Workload:
  """One system's data, sizes and weights.

  Attributes:
    settings: JSON-able: system, data, sampler, and the sections that build model, loss, optimiser.
    weights: pretrained arrays by parameter path; empty for random ones.
    ids, type, offsets: tokens of all units, as in `UnitTable`.
    members: units of each example, `[examples, k]`; labels: `[examples]`.
    features: of each example, where the model reads some.
    epoch: number of an epoch, seed -> (batches in it, batch by number as numpy arrays).
    whole: our load of a whole epoch.

  """

  settings: dict[str, Any]
  weights: Mapping[str, np.ndarray]
  ids: np.ndarray
  type: np.ndarray
  offsets: np.ndarray
  members: np.ndarray
  labels: np.ndarray
  features: np.ndarray | None
  epoch: Callable[..., tuple[int, Callable[[int], Any]]]
  whole: Load

  def shapes(self) -> list[Any]:
    """The first batch of each shape that the first epoch has."""
    count, make = self.epoch(0)
    batches: dict[tuple, Any] = {}
    for i in range(count):
      batch = make(i)
      batches.setdefault(batch.tokens.ids.shape, batch)
    return list(batches.values())


def from_config(config: Any, system: str) -> Workload:
  """The workload of a resolved config: `encode` takes the test split's sentences, others train.

  Raises:
    InputError: data, weights or config are absent or wrong (see `as2jax.training.build.load`).

  """
  from as2jax.training import build

  experiment = build.load(config)
  if system == "encode":
    batcher = experiment.predict_batcher(experiment.dataset.splits["test"], "sentences")
  else:
    batcher = experiment.train_batcher()
  blocks = batcher.sampler.blocks()

  def epoch(number: int, seed: int = 0):
    plan = batcher.plan(blocks, seed, number)
    return len(plan), lambda i: batcher.batch(plan, i)

  model = experiment.model
  settings = {
    "system": system,
    "data": config.data.name,
    "sampler": batcher.sampler.name,
    "pretrained": config.encoder.get("pretrained", "random word vectors"),
    "batch_size": config.batch.examples if batcher.sampler.name == "paper" else None,
    "encoder": {"name": experiment.provenance["family"], **_fields(model.encoder)},
    "model": {"name": config.model.name, **_fields(model)},
    "loss": {"name": config.loss.name, **_fields(experiment.loss)},
    "optimizer": {
      **config.optimizer.to_dict(),
      "lr_multipliers": list(config.optimizer.lr_multipliers),
    },
  }
  count, make = epoch(0)
  whole = sum((batch_load(settings, make(i)) for i in range(count)), Load())
  table, examples = batcher.units, batcher.examples
  return Workload(
    settings,
    experiment.pretrained,
    np.asarray(table.ids),
    np.asarray(table.type),
    np.asarray(table.offsets),
    examples.members,
    examples.labels[:, 0],
    batcher.inputs["word_overlap"].values if "word_overlap" in batcher.inputs else None,
    epoch,
    whole,
  )


def _fields(part: Any) -> dict[str, Any]:
  """The plain fields of a module or a loss: what `registry.build` takes."""
  return {
    f.name: getattr(part, f.name)
    for f in dataclasses.fields(part)
    if f.init and f.name not in ("parent", "name", "encoder")
  }


def save(path: str, work: Workload, *, batches: int, weights: str) -> None:
  """Writes `batches` real batches (at least one of each shape), tables and weights, pickled.

  Args:
    weights: `float32`, `float16` (half the size, rounded) or `none` (drawn where it runs).

  Raises:
    InputError: the file cannot be written, or another word for the weights.

  """
  if weights not in WEIGHTS:
    raise InputError(f"--weights={weights}: use one of {', '.join(WEIGHTS)}")
  count, make = work.epoch(0)
  chosen = work.shapes()
  chosen += [make(i) for i in range(min(count, max(batches - len(chosen), 0)))]
  kept = {} if weights == "none" else {n: np.asarray(w, weights) for n, w in work.weights.items()}
  try:
    with open(path, "wb") as file:
      pickle.dump((VERSION, dataclasses.replace(work, weights=kept, epoch=None), chosen), file)
  except OSError as error:
    raise InputError(f"--prepare={path} cannot be written: {error}") from error


def load(path: str) -> Workload:
  """Reads a workload that `save` wrote (a pickle: only files of one's own); its batches repeat.

  Raises:
    InputError: no such file, or not one that this version of `save` wrote.

  """
  try:
    with open(path, "rb") as file:
      version, work, batches = pickle.load(file)
    if version != VERSION:
      raise ValueError(f"version {version}, this program reads {VERSION}")
  except Exception as error:  # a damaged pickle raises errors of any kind
    raise InputError(
      f"--prepared={path}: not a file that --prepare wrote ({error}); write it again"
    ) from error
  weights = {name: array.astype(np.float32) for name, array in work.weights.items()}
  epoch = lambda number, seed=0: (len(batches), lambda i: batches[i])
  return dataclasses.replace(work, weights=weights, epoch=epoch)
