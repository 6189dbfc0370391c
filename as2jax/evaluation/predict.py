"""Predict scores: forward passes over packed batches, regrouped by question.

A bi-encoder encodes each distinct sentence once and compares vectors; any other system scores each
candidate's example. Each host makes its part of a batch; every host gets the output of all of it.
"""

import collections
import dataclasses
import functools
import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import struct
from jax.sharding import Mesh

from as2jax.data.batches.batcher import Batcher, Plan, prefetch
from as2jax.data.batches.examples import ExampleTable, sentence_pairs
from as2jax.data.record import Question, fingerprint
from as2jax.models.system import ParameterFreeSystem, Scorer
from as2jax.runtime import preemption, sharding
from as2jax.runtime.errors import InputError

Scores = dict[str, list[np.ndarray]]  # by score name, one array a question
PAIRS = 4096  # pairs of vectors compared at once
FEW_PAIRS = 64  # in a request that has no more
LATE = 2  # batches that the device may have before outputs are read
JOINS = ("gpu", "tpu")  # platforms to which a batch travels in few arrays
KEPT = 8  # batchers; three splits of a pool, queries and passages, take six
SHORT = 128  # tokens of a short row
BATCHES = 4  # batches of short texts from which a second program and last batch pay
FINE = 4096  # tokens a shard below which requests have more sizes to choose from
COMMON = 512  # tokens of a common request: a question with ten candidates
SHORTEST = 32  # tokens of the shortest row
DIVERGED = (
  "the weights are damaged, or training has diverged; lower optimizer.rate, or take "
  "another checkpoint"
)


@struct.dataclass
class Joined:
  """Holds a batch in one array a type, `[1, s, n]`: few transfers to an accelerator.

  `layout` is the batch's structure and, of each array, its type's number and its shape behind `[1, s]`.
  """

  buffers: tuple[Any, ...]
  layout: Any = struct.field(pytree_node=False)

  @classmethod
  def of(cls, batch: Any) -> "Joined":
    """Join the host arrays of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    parts: dict[Any, list[np.ndarray]] = {leaf.dtype: [] for leaf in leaves}
    kinds, places = list(parts), []
    for leaf in leaves:
      parts[leaf.dtype].append(leaf.reshape(*leaf.shape[:2], -1))
      places.append((kinds.index(leaf.dtype), leaf.shape[2:]))
    buffers = tuple(np.concatenate(of_kind, axis=2) for of_kind in parts.values())
    return cls(buffers, (structure, tuple(places)))

  def split(self) -> Any:
    """Return the batch; within a jitted function, which reads its arrays where they lie."""
    structure, places = self.layout
    leaves, starts = [], [0] * len(self.buffers)
    for kind, shape in places:
      buffer, start = self.buffers[kind], starts[kind]
      starts[kind] = end = start + math.prod(shape)
      leaves.append(buffer[:, :, start:end].reshape(*buffer.shape[:2], *shape))
    return jax.tree.unflatten(structure, leaves)


def place(batch: Any, mesh: Mesh, shards: int | None = None) -> Any:
  """Put a batch on the devices, to an accelerator as `Joined`; see `sharding.place`."""
  if mesh.devices.flat[0].platform in JOINS:
    batch = Joined.of(batch)
  return sharding.place(batch, mesh, shards=shards, spec=sharding.PREDICTED)


def make_predict_step(model: nn.Module, method: str, *, mesh: Mesh, seeds: int) -> Any:
  """Return the jitted forward pass `(variables, batch) → output`, without dropout.

  Args:
    model: the system; method: of it, such as `encode` or `__call__`.
    seeds: the leading axis of `variables` (`{"params": …}` and others). The batch is `[1, shard, …]`,
      the same sentences for every seed; of `compare` it is (questions, candidates), vectors `[seed,
      pairs, d]`. The output is replicated, so that every host can read it.

  """
  forward = functools.partial(model.apply, train=False, method=method)

  def predict(variables, batch):
    if isinstance(batch, Joined):
      batch = batch.split()
    if seeds == 1:
      output = forward(*jax.tree.map(operator.itemgetter(0), (variables, batch)))
      return jax.tree.map(operator.itemgetter(None), output)
    if method == "compare":
      return jax.vmap(forward)(variables, batch)
    batch = jax.tree.map(operator.itemgetter(0), batch)
    return jax.vmap(forward, in_axes=(0, None))(variables, batch)

  return jax.jit(predict, out_shardings=sharding.replicated(mesh))


def gather(
  step: Any, mesh: Mesh, variables: Any, parts: Sequence, size: int, rows: str, pick: Callable
) -> Any:
  """Return what `pick` takes of a step's outputs, `[seed, size, …]`; None where there is no batch.

  Args:
    parts: (batcher, plan), which together hold each of the `size` rows once.
    rows: `units` or `examples`, whose numbers are the places of a shard's outputs.

  """
  whole: Any = None
  steps = []
  for batcher, plan in parts:
    here = sharding.local_shards(mesh, batcher.shards)
    steps += [(batcher, plan, number, here) for number in range(len(plan.steps))]

  def placed(i: int) -> Any:
    batcher, plan, number, here = steps[i]
    return place(batcher.batch(plan, number, only=here), mesh, batcher.shards)

  # While the device works on a batch the next are cut and placed by a thread, and outputs are read late.
  numbers = range(len(steps))
  batches = prefetch(placed, numbers) if len(steps) > 1 else map(placed, numbers)
  late: collections.deque = collections.deque()
  for i in range(len(steps) + LATE):
    if i < len(steps):
      preemption.check()
      late.append(pick(step(variables, next(batches))))
    if i < LATE:
      continue
    outputs, tree = jax.tree.flatten(jax.tree.map(np.asarray, late.popleft()))
    if whole is None:
      whole = [np.zeros((len(x), size, *x.shape[3:]), x.dtype) for x in outputs]
    _, plan, number, _ = steps[i - LATE]
    for s, shard in enumerate(plan.steps[number][0]):
      if shard is not None:
        places = getattr(shard, rows)
        for all_rows, part in zip(whole, outputs, strict=True):
          all_rows[:, places] = part[:, s, : len(places)]
  return None if whole is None else jax.tree.unflatten(tree, whole)


class Predictor:
  """Score questions with a run's system, for each seed of its variables (their leading axis).

  A second split, or a later epoch, compiles nothing. Threads may share a predictor.
  """

  def __init__(self, components: Any, mesh: Mesh, seeds: int):
    self.components, self.mesh, self.seeds = components, mesh, seeds
    model = self.model = components.model
    self.layout = "sentences" if model.encodes else model.layout
    method = "encode" if model.encodes else "__call__"
    self.step = make_predict_step(model, method, mesh=mesh, seeds=seeds)
    self.compare = make_predict_step(model, "compare", mesh=mesh, seeds=seeds)
    self._on_cpu = mesh.devices.flat[0].platform == "cpu"  # where attention over long rows costs
    self._lock = threading.RLock()
    # Least recently used first. Keys are compared by content: the `id` of a list is given to
    # another one once it is freed.
    self._batchers: list[tuple[Any, Batcher]] = []

  def __call__(
    self, variables: Any, questions: Sequence[Question], *, request: bool = False
  ) -> list[Scores]:
    """Score every candidate: one entry a seed; the first score name is the one that ranks.

    Args:
      request: whether batches shrink to what they hold, to one of a few sizes, uncached on disk.

    """
    score = self._by_vectors if self.model.encodes else self._by_examples
    with self._lock:
      by_name = score(variables, questions, request)
    ends = np.cumsum([len(q.candidates) for q in questions])[:-1]
    by_seed: list[Scores] = []
    for seed in range(self.seeds):
      by_seed.append({})
      for name, values in by_name.items():
        by_seed[-1][name] = np.split(values[seed], ends)
        check_finite(by_seed[-1][name], questions, name)
    return by_seed

  def batcher(
    self, questions: Sequence[Question], layout: str, *, request: bool = False
  ) -> Batcher:
    """Return the batches of `questions`; the `KEPT` that were used last are not made again."""
    key = tuple(questions), layout, request
    for place, (known, batcher) in enumerate(self._batchers):
      if known == key:
        self._batchers.append(self._batchers.pop(place))
        return batcher
    batcher = self.components.predict_batcher(key[0], layout, cache=not request)
    if request:
      batcher = smallest(batcher)
    self._batchers = [*self._batchers, (key, batcher)][-KEPT:]
    return batcher

  def programs(self, variables: Any, questions: Sequence[Question]) -> Iterator[bool]:
    """Compile the programs of every size that a request's batches may have, by any `questions`.

    Yield True after each, those first that requests of about `COMMON` tokens need. Nothing is computed.
    """
    whole = self.components.predict_batcher(questions, self.layout, cache=False)
    batchers, here = sizes(whole), sharding.local_shards(self.mesh, whole.shards)
    short = short_rows(whole) if self._on_cpu else None
    if short is not None:
      batchers.append(short)
    compared = not self.model.encodes

    def far(batcher: Batcher) -> float:
      limits = batcher.sampler.limits
      return abs(math.log(limits.rows * limits.row_length / COMMON))

    for batcher in sorted(batchers, key=far):
      plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
      packed = batcher.sampler.limits.packed
      for length in batcher.row_lengths[-1:] if packed else batcher.row_lengths:
        batch = batcher.batch(plan, len(plan), (batcher.rows[-1], length), only=here)
        lowered = self.step.lower(variables, place(batch, self.mesh, batcher.shards))
        lowered.compile()  # which a call of the step finds
        if not compared:
          compared, width = True, lowered.out_info.units.shape[-1]
          for count in (FEW_PAIRS, PAIRS):
            vectors = np.ones((self.seeds, count, width), np.float32)
            self.compare.lower(variables, (vectors, vectors)).compile()
        yield True

  def embed(
    self, variables: Any, questions: Sequence[Question], *, request: bool = False
  ) -> np.ndarray:
    """Return the vector of each distinct sentence, `[seed, sentence, d]`, by its number in the table."""
    with self._lock:
      batcher = self.batcher(questions, "sentences", request=request)
      parts = plans(batcher, apart=self._on_cpu, request=request)
      size, pick = len(batcher.units.lengths), operator.attrgetter("units")
      vectors = gather(self.step, self.mesh, variables, parts, size, "units", pick)
    vectors = vectors.astype(np.float32)
    finite = np.isfinite(vectors).all(axis=(0, 2))
    if not finite.all():
      texts = [text for _, text in sentence_pairs(questions)[0]]
      raise InputError(
        f"the model's vectors of {np.count_nonzero(~finite)} of {len(texts)} sentences are not finite, "
        f"the first that of {texts[np.argmin(finite)]!r:.200}: {DIVERGED}"
      )
    return vectors

  def _by_vectors(self, variables, questions, request) -> dict[str, np.ndarray]:
    vectors = self.embed(variables, questions, request=request)
    _, pairs = sentence_pairs(questions)
    count = FEW_PAIRS if request and len(pairs) <= FEW_PAIRS else PAIRS
    chunks: dict[str, list[np.ndarray]] = {self.model.ranking_score: []}
    for at in range(0, len(pairs), count):
      part = pairs[at : at + count]
      padded = np.concatenate([part, np.zeros((count - len(part), 2), part.dtype)])
      scores = self.compare(variables, (vectors[:, padded[:, 0]], vectors[:, padded[:, 1]]))
      for name, values in scores.items():
        chunks.setdefault(name, []).append(np.asarray(values, np.float32)[:, : len(part)])
    return {name: np.concatenate(values, axis=1) for name, values in chunks.items()}

  def _by_examples(self, variables, questions, request) -> dict[str, np.ndarray]:
    batcher = self.batcher(questions, self.layout, request=request)
    table, pick = batcher.examples, operator.attrgetter("scores")
    parts = plans(batcher, apart=self._on_cpu, request=request)
    scores = gather(self.step, self.mesh, variables, parts, len(table), "examples", pick)
    scores = np.zeros((self.seeds, 0)) if scores is None else scores
    scores = scores.astype(np.float32)
    if table.candidates is not None:
      scores = above_the_rest(scores, table, self.components.orders(questions))
    return {self.model.score_names[0]: scores}


def above_the_rest(
  scores: np.ndarray, table: ExampleTable, orders: Sequence[np.ndarray]
) -> np.ndarray:
  """Return scores `[seed, all candidates]`: those of a joint model, the rest below them.

  The rest keeps the first ranker's order, a step of 1 below the lowest score and one another.

  Args:
    scores: `[seed, e, K]` of the examples of `table`; orders: positions of candidates, best first.

  """
  candidates: Any = table.candidates
  sizes = list(map(len, orders))
  starts = np.cumsum([0, *sizes])
  all_scores = np.zeros((len(scores), starts[-1]), np.float32)
  for e, question in enumerate(table.question.tolist()):
    top = candidates[e][candidates[e] >= 0]
    values = scores[:, e, : len(top)]
    rest = orders[question][len(top) :]
    all_scores[:, starts[question] + top] = values
    below = values.min(axis=1, keepdims=True) - np.arange(1, len(rest) + 1, dtype=np.float32)
    all_scores[:, starts[question] + rest] = below
  return all_scores


def check_finite(scores: Sequence[np.ndarray], questions: Sequence[Question], name: str) -> None:
  """Raise InputError where one of the arrays of scores, one a question, is not finite."""
  for question, values in zip(questions, scores, strict=True):
    if not np.isfinite(values).all():
      at = int(np.argmin(np.isfinite(values)))
      candidate = question.candidates[at].id
      raise InputError(
        f"question {question.id!r}: the score {name!r} of candidate {candidate!r} is {values[at]}, "
        f"which cannot be ranked: {DIVERGED}"
      )


def short_rows(batcher: Batcher) -> Batcher | None:
  """Return batches of as many tokens in rows of `SHORT` tokens; None where rows are not longer.

  In a packed row each token attends over the whole row: in rows of 512 a pair of 40 tokens costs half
  as much again on a CPU as in rows of 128.
  """
  limits = batcher.sampler.limits
  times, left = divmod(limits.row_length, SHORT)
  if not limits.packed or times < 2 or left:
    return None
  shorter = dataclasses.replace(limits, rows=limits.rows * times, row_length=SHORT)
  return dataclasses.replace(
    batcher,
    sampler=dataclasses.replace(batcher.sampler, limits=shorter),
    rows=(shorter.rows,),
    row_lengths=(SHORT,),
  )


def plans(batcher: Batcher, *, apart: bool, request: bool) -> list[tuple[Batcher, Plan]]:
  """Return batchers with their plans, which together hold each example once.

  Args:
    apart: whether short texts may have rows of their own; of a `request`, whose programs are all
      compiled beforehand, one batch of short texts is enough, and the others' batch shrinks.

  """
  blocks = batcher.sampler.blocks()
  plan, least = batcher.plan(blocks, 0, 0), 1 if request else BATCHES
  whole = [(batcher, plan)]
  few_batches = len(plan) <= 1 if request else len(plan) < BATCHES
  short = short_rows(batcher) if apart and not few_batches else None
  if short is None:
    return whole
  alone: Any = np.concatenate(blocks)  # prediction's blocks are of one example
  members, lengths = batcher.examples.members[alone], batcher.sampler.lengths
  is_short = lengths[members].max(axis=1) <= SHORT
  units = np.unique(members[is_short])
  limits = batcher.sampler.limits
  batch = limits.rows * limits.row_length * batcher.shards
  if lengths[units].sum() < batch * least:
    return whole
  few, many = alone[~is_short, None], alone[is_short, None]
  parts = [(short, many)]
  if len(few):
    parts.append((smallest(batcher, few) if request else batcher, few))
  return [(part, part.plan(examples, 0, 0)) for part, examples in parts]


def sizes(batcher: Batcher) -> list[Batcher]:
  """Return batchers of the same tables whose batches have all the tokens, half, a quarter …

  Below `FINE` tokens a shard there are three quarters of each, too. Below one row, rows are shorter:
  such a batcher takes only texts that fit. The smallest still holds one example.
  """
  batchers, limits = [batcher], batcher.sampler.limits
  least = batcher.examples.members.shape[1]
  whole = limits.rows * limits.row_length
  tokens = whole // 2
  while tokens >= SHORTEST:
    for size in (tokens * 3 // 2, tokens) if tokens * 3 // 2 < FINE else (tokens,):
      length = limits.row_length
      while limits.packed and size % length and length % 2 == 0 and length > SHORTEST:
        length //= 2
      counts = {"rows": size, "units": limits.units * size, "examples": limits.examples * size}
      over = {"rows": length, "units": whole, "examples": whole}
      if any(counts[k] % over[k] or counts[k] // over[k] < least for k in counts):
        continue
      counts = {k: counts[k] // over[k] for k in counts}
      smaller = dataclasses.replace(
        batcher,
        sampler=dataclasses.replace(
          batcher.sampler, limits=dataclasses.replace(limits, row_length=length, **counts)
        ),
        rows=(counts["rows"],),
        words=batcher.words * size // whole,
      )
      if limits.packed:
        smaller = dataclasses.replace(smaller, row_lengths=(length,))
      batchers.append(smaller)
    tokens //= 2
  return batchers


def smallest(batcher: Batcher, blocks: Sequence[np.ndarray] | None = None) -> Batcher:
  """Return the smallest of `sizes` that holds all, or `blocks`, in one batch; `batcher` where none."""
  if blocks is None:
    blocks = batcher.sampler.blocks()
  units = np.unique(batcher.examples.members[np.concatenate([np.zeros(0, int), *blocks])])
  lengths = batcher.sampler.lengths[units]
  for smaller in reversed(sizes(batcher)):
    limits = smaller.sampler.limits
    tokens = limits.rows * limits.row_length * smaller.shards
    fits = lengths.max(initial=0) <= limits.row_length
    if limits.packed and lengths.sum() > tokens:
      fits = False
    if fits and len(smaller.plan(blocks, 0, 0)) <= 1:
      return smaller
  return batcher


class FittedRanker:
  """Score by a ranker without parameters, fitted on `train`; it takes the place of a `Predictor`."""

  def __init__(self, model: ParameterFreeSystem, train: Sequence[Question]):
    self.model = model
    self.scorer: Scorer = model.fit(train)
    self.train = fingerprint(train)

  def __call__(
    self, variables: Any, questions: Sequence[Question], *, request: bool = False
  ) -> list[Scores]:
    """Score every candidate, as of one seed; InputError where a score is not finite."""
    name, scores = self.model.ranking_score, self.scorer.score(questions)
    check_finite(scores, questions, name)
    return [{name: scores}]
