"""python -m launch.benchmarks.m2snet: M²S-Net's training step beside PyTorch's, in one process.

Both sides have the same pairs, sizes, batch, loss, optimiser and cores, and run in turn, `--blocks`
times `--seconds` each; ours builds its batches while it computes, as in a run. Word vectors are
random: no time depends on their values. With `--seeds=N` also N seeds in one step against one seed.

  python -m launch.benchmarks.m2snet --row=4
  python -m launch.benchmarks.m2snet --row=2 --seeds=8 --no-torch
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from as2jax.runtime import huge_pages

ROWS = ("euc", "cos", "shallow", "2", "4")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
  """The flags."""
  parser = argparse.ArgumentParser(
    prog="launch.benchmarks.m2snet", description=__doc__.partition("\n\n")[0]
  )
  add = parser.add_argument
  add("--row", choices=ROWS, default="4", help="of the paper's table 3")
  add("--data", default="trecqa_all", help="name of a dataset, of which the training split")
  add("--seconds", type=float, default=20.0, help="of a block")
  add("--blocks", type=int, default=3, help="of each side, alternating")
  add("--seeds", type=int, default=1, help="also so many seeds in one step")
  add("--no-torch", action="store_true", help="our side alone")
  return parser.parse_args(argv)


def workload(row: str, name: str) -> tuple[Any, Any, np.ndarray]:
  """The project's config of a row, batches of the training split, and random word vectors."""
  from as2jax.data.batches import examples as layouts
  from as2jax.data.batches.batcher import Column, fit_batcher
  from as2jax.data.datasets import dataset
  from as2jax.data.inputs.protocol import Tables
  from as2jax.data.inputs.word_overlap import WordOverlap
  from as2jax.data.text import normalise, word_tokenizer
  from as2jax.data.text.tokenise import build_units
  from configs import trecqa_m2snet

  config = trecqa_m2snet.get_config(row)
  batch, how = config.batch, {"lower": config.encoder.lower, "treebank": config.encoder.treebank}
  questions = normalise.apply(dataset.load(name, download=False).splits["train"], config.data.rules)
  texts, table = layouts.pairs(questions)
  counts = word_tokenizer.count((text for (text,) in texts), **how)
  tokenizer = word_tokenizer.build(
    word_tokenizer.by_frequency(counts), skip_unknown=False, markers=(), **how
  )
  units = build_units(texts, tokenizer, template="single", max_length=config.data.max_length)
  overlap = WordOverlap()
  values = overlap.columns(overlap.fit(questions), questions, Tables(units, table, tokenizer))
  vectors = np.random.default_rng(0).normal(0, 0.4, (tokenizer.vocab_size, 50)).astype(np.float32)
  return (
    config,
    fit_batcher(
      units,
      table,
      sampler=batch.sampler,
      examples_per_batch=batch.examples,
      rows=0,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      accumulate=batch.accumulate,
      buckets=batch.num_row_buckets,
      inputs={overlap.name: Column(overlap.level, values)},
    ),
    vectors,
  )


class Ours:
  """The project's train step for `seeds` seeds at once, fed as `train.Trainer` feeds it."""

  def __init__(self, config: Any, batcher: Any, vectors: np.ndarray, seeds: int):
    import jax

    from as2jax.encoders.static import StaticEncoder
    from as2jax.models.m2snet import M2SNet, M2SNetLoss
    from as2jax.runtime import sharding
    from as2jax.training import optimizers
    from as2jax.training import state as states
    from as2jax.training.step import make_train_step

    self.name, self.seeds, self.batcher = f"as2jax, {seeds} in a step", tuple(range(seeds)), batcher
    fields = {key: value for key, value in config.model.items() if key != "name"}
    model = M2SNet(StaticEncoder(*vectors.shape, config.encoder.hidden_dropout), **fields)
    self.mesh, o = sharding.make_mesh(devices=jax.devices()[:1]), config.optimizer
    optimizer = optimizers.from_config(o)
    plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
    self.state = states.create(
      model,
      jax.tree.map(lambda x: x[0], batcher.batch(plan, 0)),
      seeds=self.seeds,
      pretrained={"encoder/embeddings/word": vectors},
      lr_multipliers=(),
      optimizer=optimizer,
      mesh=self.mesh,
    )
    rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=1.0)
    self.function = make_train_step(
      model,
      M2SNetLoss(config.loss.weight),
      optimizer,
      rate,
      mesh=self.mesh,
      state=self.state,
      seeds=seeds,
    )
    self._stream = self._items()

  def _items(self) -> Iterator[tuple[Any, int]]:
    from as2jax.data.batches.batcher import stack
    from as2jax.data.batches.prefetch import prefetch
    from as2jax.runtime import sharding

    for epoch in itertools.count():
      plans = [self.batcher.plan(self.batcher.sampler.blocks(), s, epoch) for s in self.seeds]

      def item(i, plans=plans):
        made = stack([self.batcher.batch(plan, i) for plan in plans])
        return sharding.place(made, self.mesh), int(made.examples.mask.sum())

      yield from prefetch(item, range(len(plans[0])))

  def step(self) -> tuple[Any, int]:
    """One step of every seed: its loss, not waited for, and the pairs of all seeds."""
    placed, pairs = next(self._stream)
    n = len(self.seeds)
    self.state, scalars = self.function(
      self.state,
      placed,
      np.asarray(self.seeds, np.uint32),
      np.zeros(n, np.float32),
      np.ones(n, bool),
    )
    return scalars["loss"], pairs

  def warm_up(self) -> float:
    """Compiles; gives the seconds of the first step."""
    import jax

    began = time.perf_counter()
    jax.block_until_ready(self.step()[0])
    return time.perf_counter() - began

  def block(self, seconds: float) -> tuple[int, float]:
    """Trains for about `seconds`: pairs of all seeds, and the time they took."""
    import jax

    began, done, before = time.perf_counter(), 0, None
    while before is None or time.perf_counter() - began < seconds:
      loss, pairs = self.step()
      jax.block_until_ready(before)  # one step ahead of the device, no more
      done, before = done + pairs, loss
    jax.block_until_ready(before)
    return done, time.perf_counter() - began


class Torch:
  """The plain PyTorch loop over the same pairs in the same sizes."""

  name = "torch"

  def __init__(self, config: Any, batcher: Any, vectors: np.ndarray, threads: int):
    import torch

    from launch.benchmarks import m2snet_torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    self.torch, self.weight, self.size = torch, config.loss.weight, config.batch.examples
    self.model = m2snet_torch.M2SNet(config.model, vectors).train()
    o = config.optimizer
    self.optimizer = torch.optim.Adadelta(self.model.parameters(), lr=o.rate, rho=o.b2, eps=o.eps)
    units, table = batcher.units, batcher.examples
    longest = config.model.candidate_length
    inside = np.arange(longest) < units.lengths[:, None]
    padded = np.zeros(inside.shape, np.int64)
    padded[inside] = units.ids
    self.sides = config.model.question_length, longest
    self.ids, self.lengths = torch.tensor(padded), torch.tensor(units.lengths)
    self.members = torch.tensor(np.array(table.members, np.int64))
    self.labels = torch.tensor(table.labels[:, 0].astype(np.float32))
    self.features = torch.tensor(batcher.inputs["word_overlap"].values)
    self._stream = self._items()

  def _items(self) -> Iterator[Any]:
    while True:
      yield from self.torch.randperm(len(self.members)).split(self.size)

  def step(self) -> int:
    """One update; gives the number of its pairs."""
    examples = next(self._stream)
    members, inside = self.members[examples].T, []
    for member, size in zip(members, self.sides):
      inside.append(self.torch.arange(size) < self.lengths[member][:, None])
    mask = (inside[0][:, :, None] & inside[1][:, None]).float()
    questions, candidates = (self.ids[m, :size] for m, size in zip(members, self.sides))
    loss = self.model.loss(
      self.labels[examples], self.weight, questions, candidates, mask, self.features[examples]
    )
    self.optimizer.zero_grad()
    loss.backward()
    self.optimizer.step()
    return len(examples)

  def warm_up(self) -> float:
    began = time.perf_counter()
    self.step()
    return time.perf_counter() - began

  def block(self, seconds: float) -> tuple[int, float]:
    """Trains for about `seconds`: pairs, and the time they took."""
    began, done = time.perf_counter(), 0
    while not done or time.perf_counter() - began < seconds:
      done += self.step()
    return done, time.perf_counter() - began


def main(argv: Sequence[str] | None = None) -> int:
  """Measures; prints one line of JSON a side, ratios last."""
  flags = parse(argv)
  from launch.benchmarks.benchmark import cores

  made = workload(flags.row, flags.data)
  sides: list[Any] = [Ours(*made, 1)]
  sides += [Ours(*made, flags.seeds)] if flags.seeds > 1 else []
  sides += [] if flags.no_torch else [Torch(*made, cores())]
  first = [side.warm_up() for side in sides]
  rates: list[list[float]] = [[] for _ in sides]
  costs: list[list[float]] = [[] for _ in sides]
  for number in range(flags.blocks):
    for side, found, cost in zip(sides, rates, costs):
      before = time.process_time()
      pairs, seconds = side.block(flags.seconds)
      found.append(pairs / seconds)
      cost.append(1e3 * (time.process_time() - before) / pairs)
      print(
        f"block {number + 1} of {flags.blocks}, {side.name}: {found[-1]:.0f} pairs/s",
        file=sys.stderr,
        flush=True,
      )
  pairs = len(made[1].examples)
  for side, seconds, found, cost in zip(sides, first, rates, costs):
    print(
      json.dumps(
        {
          "side": side.name,
          "row": flags.row,
          "data": flags.data,
          "pairs": pairs,
          "vectors": len(made[2]),
          "first_step_seconds": round(seconds, 2),
          "pairs_per_second": [round(rate, 1) for rate in found],
          "cpu_ms_per_pair": [round(ms, 2) for ms in cost],  # what another process's load leaves be
          "epoch_seconds": round(pairs / float(np.median(found)), 1),
        }
      )
    )
  for side, found in zip(sides[1:], rates[1:]):
    ratio = np.asarray(rates[0]) / np.asarray(found)
    print(
      json.dumps(
        {
          "ratio": f"{sides[0].name} / {side.name}",
          "median": round(float(np.median(ratio)), 3),
          "blocks": [round(float(r), 3) for r in ratio],
        }
      )
    )
  return 0


if __name__ == "__main__":
  print(huge_pages.advice(os.environ), file=sys.stderr)  # it holds for both sides
  sys.exit(main())
