"""Our side of steps: batches, model and weights of a system, its FLOPs, and the project's own steps.

On an accelerator the texts are made, of WikiQA's lengths: this needs no data and no weights.
"""

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import optax

from as2jax.config import base
from as2jax.data.batches import examples
from as2jax.data.batches.batcher import fit_batcher, prefetch
from as2jax.data.record import Candidate, Question
from as2jax.data.text.tokenise import UnitTable
from as2jax.encoders import transformer_folder
from as2jax.evaluation import predict
from as2jax.runtime import registry, sharding
from as2jax.training import build, optimizers
from as2jax.training import state as states
from as2jax.training.step import make_train_step

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
TRIPLETS = {"name": "triplet", "pooling": "mean", "score": "euclidean"}
HINGES = {"name": "triplet", "margin": 5.0, "selection": "all", "reduction": "sum"}
MEANS = {"name": "biencoder", "pooling": "mean", "score": "cosine"}
# Of made texts: sampler, examples and rows of 128 tokens a batch, model, loss.
SYSTEMS: dict[str, tuple[str, int, int, dict[str, Any], dict[str, Any]]] = {
  "triplet": ("grouped", 4096, 256, TRIPLETS, HINGES),
  "crossencoder": ("grouped", 1024, 256, PAIRS, {"name": "cross_entropy"}),
  "encode": ("ordered", 4096, 512, MEANS, {"name": "none"}),
  "score": ("ordered", 4096, 512, PAIRS, {"name": "none"}),
}


@dataclasses.dataclass(frozen=True)
class Load:
  """An amount of work; loads add up.

  Attributes:
    examples: triplets or pairs.
    positions: token positions computed for them, padding included.
    flops: of their real tokens, backward pass included where there is one.

  """

  examples: int = 0
  positions: int = 0
  flops: float = 0.0

  def __add__(self, other: "Load") -> "Load":
    return Load(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


@dataclasses.dataclass(frozen=True)
class Workload:
  """One system's data, model and weights.

  Attributes:
    family: of the encoder.
    weights: pretrained arrays by parameter path; empty for random ones.
    batch_size: examples of a batch, of the sampler `paper` alone.

  """

  system: str
  family: str
  model: Any
  loss: Any
  optimizer: Mapping[str, Any]
  batcher: Any
  weights: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  batch_size: int | None = None

  @property
  def trained(self) -> bool:
    """Whether steps train; else they encode or score."""
    return self.system in TRAINED

  def epoch(self, number: int) -> tuple[int, Callable[[int], Any]]:
    """Return how many batches an epoch has, and what makes one by its number."""
    plan = self.batcher.plan(self.batcher.sampler.blocks(), 0, number)
    return len(plan), lambda i: self.batcher.batch(plan, i)

  def load(self, count: int, lengths: np.ndarray, positions: int) -> Load:
    """Return the load of so many examples whose units have `lengths`, in so many positions.

    n tokens cost, a layer, n·(8d² + 4·d·f) FLOPs for the dense products and 4·n²·d for the two of
    attention (d wide, f the feed-forward's width; 6·d·f where it is gated). Embeddings, norms, pooling
    and heads are left out (below 1 % at these sizes). A training step costs three times as much.
    """
    e, n = self.model.encoder, np.asarray(lengths, np.float64)
    d, products = e.hidden_size, 6 if self.family == "modernbert" else 4
    layer = np.sum(n * (8 * d * d + products * d * e.intermediate_size) + 4 * d * n * n)
    flops = (3 if self.trained else 1) * e.num_layers * float(layer)
    return Load(int(count), int(positions), flops)

  def load_of(self, batch: Any) -> Load:
    """Return the load of one of our batches, from its own masks."""
    lengths = batch.units.length[batch.units.length > 0]
    return self.load(batch.examples.mask.sum(), lengths, batch.tokens.ids.size)


def encoder_of(shape: str, **fields: Any) -> tuple[str, Any]:
  """Return family and module of a published shape; `fields` take the place of its own."""
  family, sizes = transformer_folder.published(SHAPES[shape])
  section = {"name": family.name, **sizes, **fields}
  return family.name, registry.build(registry.ENCODERS, section, "encoder")


def from_config(system: str, config: Any, *, shape: str = "") -> Workload:
  """Return the workload of a job: `encode` takes the test split's sentences, others train.

  The sizes of a `shape`, with random weights, take the place of the encoder's.
  InputError: data or weights are absent.
  """
  run = build.load(config)
  if system == "encode":
    batcher = run.predict_batcher(run.dataset.splits["test"], "sentences")
  else:
    batcher = run.train_batcher()
  size = config.batch.examples if batcher.sampler.name == "paper" else None
  rest = (run.loss, config.optimizer, batcher)
  if not shape:
    family = run.provenance["family"]
    return Workload(system, family, run.model, *rest, run.pretrained, size)
  kept = ("dtype", "attention", "hidden_dropout", "attention_dropout")
  fields = {name: getattr(run.model.encoder, name) for name in kept}
  family, encoder = encoder_of(shape, **fields)
  return Workload(system, family, run.model.clone(encoder=encoder), *rest, batch_size=size)


def made(case: str, attention: str = "plain", *, questions: int = 400, rows: int = 0) -> Workload:
  """Return the workload of SHAPE:SYSTEM over made texts, in bfloat16, in batches of so many rows."""
  shape, _, system = case.partition(":")
  sampler, size, batch_rows, model, loss = SYSTEMS[system]
  rate = 0.1 if system in TRAINED else 0.0
  fields: dict[str, Any] = {"hidden_dropout": rate, "attention_dropout": rate}
  family, encoder = encoder_of(shape, dtype="bfloat16", attention=attention, **fields)
  asked = []
  for q in range(questions):
    candidates = [Candidate(str(c), f"{q} {c}", label=int(c == 0)) for c in range(CANDIDATES)]
    asked.append(Question(str(q), f"question {q}", tuple(candidates)))
  layout = {"triplet": examples.triplets, "encode": examples.sentences}.get(system)
  units, table = layout(asked) if layout else examples.single(asked, template="pair")
  quantiles, random = SENTENCE if layout else PAIR, np.random.default_rng(0)
  lengths = np.interp(random.random(len(units)), np.linspace(0, 1, len(quantiles)), quantiles)
  lengths = lengths.astype(np.int64)
  ids = random.integers(0, encoder.vocab_size, lengths.sum()).astype(np.int32)
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
  return Workload(
    system,
    family,
    registry.build(registry.MODELS, model, "model", encoder=encoder),
    registry.build(registry.LOSSES, loss, "loss"),
    base.get_config().optimizer,
    batcher,
  )


def milliseconds(call: Callable[[], Any], seconds: float) -> float:
  """Return the least mean time of a call, three in a row, in about `seconds` and at least once."""
  jax.block_until_ready(call())  # compiles
  ends, means = time.perf_counter() + seconds, []
  while not means or time.perf_counter() < ends:
    began = time.perf_counter()
    for _ in range(3):
      output = call()  # frees the one before
    jax.block_until_ready(output)
    means.append((time.perf_counter() - began) / 3)
  return 1e3 * min(means)


def matmul_peak(dtype: str) -> float:
  """Return the FLOP/s of a large square product of random numbers (equal ones take less power, and time)."""
  size = 2048 if jax.default_backend() == "cpu" else 8192
  a = jax.random.normal(jax.random.key(0), (size, size), dtype)
  product = jax.jit(lambda x, y: x @ y)
  return 2e3 * size**3 / milliseconds(lambda: product(a, a), 1.5)


class JaxSide:
  """Steps through epochs, prefetched as in a run: training, encoding of sentences, or scoring of pairs."""

  def __init__(self, work: Workload):
    self.work, self.whole = work, Load()
    self._stream: Iterator | None = None
    count, make = work.epoch(0)
    first: dict[tuple, Any] = {}  # of each shape
    for i in range(count):
      batch = make(i)
      first.setdefault(batch.tokens.ids.shape, batch)
      self.whole += work.load_of(batch)
    self.batches = list(first.values())
    self.mesh = self._mesh()
    o = work.optimizer
    optimizer = optimizers.from_config(o) if work.trained else optax.identity()
    self.state = states.create(
      work.model,
      jax.tree.map(lambda x: x[0], self.batches[0]),  # one micro-batch, as the model sees it
      seeds=(0,),
      pretrained=work.weights,
      lr_multipliers=o["lr_multipliers"] if work.trained else (),
      optimizer=optimizer,
      mesh=self.mesh,
    )
    if work.trained:
      rate = optimizers.schedule(o["schedule"], rate=o["rate"], warmup=o["warmup"], epochs=1.0)
      self.function = make_train_step(
        work.model, work.loss, optimizer, rate, mesh=self.mesh, state=self.state, seeds=1
      )
    else:
      method = "encode" if work.system == "encode" else "__call__"
      self.function = predict.make_predict_step(work.model, method, mesh=self.mesh, seeds=1)

  def _mesh(self) -> jax.sharding.Mesh:
    """Return a run's mesh: a CPU's cores share the rows of its one shard."""
    here = jax.devices()
    if here[0].platform != "cpu":
      return sharding.make_mesh(devices=here[:1])
    positions = max(batch.tokens.ids.size for batch in self.batches)
    cores = sharding.cores_worth(positions) if self.work.trained else len(here)
    return sharding.make_mesh(rows=min(cores, len(here)), devices=here[:cores])

  def place(self, batch: Any) -> Any:
    """Put a batch on the device."""
    if self.work.trained:
      return sharding.place(jax.tree.map(lambda x: x[None], batch), self.mesh)
    return predict.place(batch, self.mesh)

  def arguments(self, placed: Any) -> tuple:
    """Return what the step's function takes; the rate is that of the middle of an epoch."""
    if not self.work.trained:
      return states.ranking_variables(self.state), placed
    progress = np.full(1, 0.5, np.float32)
    return self.state, placed, np.zeros(1, np.uint32), progress, np.ones(1, bool)

  def step(self, placed: Any) -> Any:
    """Take one step; return its loss, or vectors `[1, shard, unit, d]` or scores, on the device."""
    output = self.function(*self.arguments(placed))
    if not self.work.trained:
      return output.units if self.work.system == "encode" else output.scores
    self.state, scalars = output
    return scalars["loss"]

  def warm_up(self) -> None:
    """Compile every shape."""
    for batch in self.batches * 3:
      jax.block_until_ready(self.step(self.place(batch)))

  def _items(self) -> Iterator[tuple[Any, Load]]:
    for number in itertools.count(1):
      count, make = self.work.epoch(number)

      def item(i, make=make):
        batch = make(i)
        return self.place(batch), self.work.load_of(batch)

      yield from prefetch(item, range(count))

  def block(self, seconds: float) -> tuple[Load, float]:
    """Run for about `seconds`, at least one step; return the work done and the time it took."""
    self._stream = self._stream or self._items()
    done, late = Load(), collections.deque()
    ahead = 1 if self.work.trained else predict.LATE  # steps that the device may have to do
    began = time.perf_counter()
    while not done.examples or time.perf_counter() - began < seconds:
      placed, load = next(self._stream)
      late.append(self.step(placed))
      done += load
      if len(late) > ahead:
        np.asarray(late.popleft())
    for output in late:
      np.asarray(output)
    return done, time.perf_counter() - began
