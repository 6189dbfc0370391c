"""What is measured: batches, sentences and weights of a system, with its FLOPs.

On an accelerator the texts are made, of WikiQA's lengths: this needs no data and no weights.
"""

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
# Tokens of WikiQA's training sentences, and of question and sentence together, at 0, 5 … 100 %.
SENTENCE = (3, 8, 10, 13, 15, 17, 19, 21, 23, 25, 26, 28, 30, 32, 34, 37, 40, 43, 48, 56, 128)
PAIR = (8, 18, 21, 23, 24, 26, 27, 29, 30, 31, 33, 34, 36, 38, 40, 42, 44, 47, 51, 58, 128)
CANDIDATES, LONGEST = 10, 128
PAIRS = {"name": "crossencoder", "token": "cls", "pooler": True, "dropout": 0.1}
# Of made texts: sampler, examples and rows of 128 tokens a batch, model, loss.
SYSTEMS: dict[str, tuple[str, int, int, dict[str, Any], dict[str, Any]]] = {
  "triplet": (
    "grouped",
    4096,
    256,
    {"name": "triplet", "pooling": "mean", "score": "euclidean"},
    {"name": "triplet", "margin": 5.0, "selection": "all", "reduction": "sum"},
  ),
  "crossencoder": ("grouped", 1024, 256, PAIRS, {"name": "cross_entropy"}),
  "encode": (
    "ordered",
    4096,
    512,
    {"name": "biencoder", "pooling": "mean", "score": "cosine"},
    {"name": "none"},
  ),
  "score": ("ordered", 4096, 512, PAIRS, {"name": "none"}),
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


@dataclasses.dataclass(frozen=True)
class Workload:
  """One system's data, sizes and weights.

  Attributes:
    settings: the system, and the sections that build model, loss and optimizer.
    weights: pretrained arrays by parameter path; empty for random ones.
    batcher: of an epoch's batches, with their units and examples.

  """

  settings: dict[str, Any]
  weights: Mapping[str, np.ndarray]
  batcher: Any

  @property
  def trained(self) -> bool:
    """Whether steps train; else they encode or score."""
    return self.settings["system"] in TRAINED

  def epoch(self, number: int) -> tuple[int, Callable[[int], Any]]:
    """Return how many batches an epoch has, and what makes one by its number."""
    plan = self.batcher.plan(self.batcher.sampler.blocks(), 0, number)
    return len(plan), lambda i: self.batcher.batch(plan, i)

  def load(self, batch: Any) -> Load:
    """Return the load of one of our batches, from its own masks."""
    lengths = batch.units.length[batch.units.length > 0]
    return load_of(self.settings, batch.examples.mask.sum(), lengths, batch.tokens.ids.size)

  def first(self) -> tuple[list[Any], Load]:
    """Return the first batch of each shape that the first epoch has, and its load in all."""
    count, make = self.epoch(0)
    batches: dict[tuple, Any] = {}
    whole = Load()
    for i in range(count):
      batch = make(i)
      batches.setdefault(batch.tokens.ids.shape, batch)
      whole += self.load(batch)
    return list(batches.values()), whole


def encoder_of(shape: str, **fields: Any) -> dict[str, Any]:
  """Return the section `encoder` of a published shape; `fields` take the place of its own."""
  from as2jax.encoders import transformer_folder

  family, sizes = transformer_folder.published(SHAPES[shape])
  return {"name": family.name, **sizes, **fields}


def from_config(system: str, config: Any, *, shape: str = "") -> Workload:
  """Return the workload of a job: `encode` takes the test split's sentences, others train.

  Args:
    shape: one of `SHAPES`, whose sizes with random weights take the place of the encoder's.

  Raises:
    InputError: data or weights are absent.

  """
  from as2jax.training import build

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
  if not shape:
    return Workload(settings, run.pretrained, batcher)
  kept = ("dtype", "attention", "hidden_dropout", "attention_dropout")
  settings["encoder"] = encoder_of(shape, **{name: settings["encoder"][name] for name in kept})
  return Workload(settings, {}, batcher)


def _fields(part: Any) -> dict[str, Any]:
  """Return the plain fields of a module or a loss: what `registry.build` takes."""
  found = {}
  for f in dataclasses.fields(part):
    if f.init and f.name not in ("parent", "name", "encoder"):
      found[f.name] = getattr(part, f.name)
  return found


def made(case: str, attention: str = "plain", *, questions: int = 400, rows: int = 0) -> Workload:
  """Return the workload of SHAPE:SYSTEM over made texts, in bfloat16, in batches of so many rows."""
  from as2jax.config import base
  from as2jax.data.batches import examples
  from as2jax.data.batches.batcher import fit_batcher
  from as2jax.data.record import Candidate, Question
  from as2jax.data.text.tokenise import UnitTable

  shape, _, system = case.partition(":")
  sampler, size, batch_rows, model, loss = SYSTEMS[system]
  rate = 0.1 if system in TRAINED else 0.0
  fields: dict[str, Any] = {"hidden_dropout": rate, "attention_dropout": rate}
  encoder = encoder_of(shape, dtype="bfloat16", attention=attention, **fields)
  asked = []
  for q in range(questions):
    candidates = [Candidate(str(c), f"{q} {c}", label=int(c == 0)) for c in range(CANDIDATES)]
    asked.append(Question(str(q), f"question {q}", tuple(candidates)))
  layout = {"triplet": examples.triplets, "encode": examples.sentences}.get(system)
  units, table = layout(asked) if layout else examples.single(asked, template="pair")
  quantiles, random = SENTENCE if layout else PAIR, np.random.default_rng(0)
  lengths = np.interp(random.random(len(units)), np.linspace(0, 1, len(quantiles)), quantiles)
  lengths = lengths.astype(np.int64)
  ids = random.integers(0, encoder["vocab_size"], lengths.sum()).astype(np.int32)
  batcher = fit_batcher(
    UnitTable.of_lengths(lengths, ids),
    table,
    sampler=sampler,
    examples_per_batch=size,
    rows=rows or batch_rows,
    row_lengths=(LONGEST,),
    packed=True,
    shards=1,
    accumulate=1,
    buckets=1,
  )
  optimizer = base.get_config().optimizer.to_dict()
  settings = {"system": system, "batch_size": None, "encoder": encoder, "model": model}
  return Workload({**settings, "loss": loss, "optimizer": optimizer}, {}, batcher)
