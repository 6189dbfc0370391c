"""Made texts for an accelerator: WikiQA's lengths, random weights of published shapes, bfloat16.

They need jax, flax, optax, numpy and this package's encoders, models and batches, and no data.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from launch.benchmarks.workload import TRAINED, Workload, encoder_of, of_batcher

# Tokens of WikiQA's training sentences, and of question and sentence together, at 0, 5 … 100 %.
SENTENCE = (3, 8, 10, 13, 15, 17, 19, 21, 23, 25, 26, 28, 30, 32, 34, 37, 40, 43, 48, 56, 128)
PAIR = (8, 18, 21, 23, 24, 26, 27, 29, 30, 31, 33, 34, 36, 38, 40, 42, 44, 47, 51, 58, 128)
QUESTIONS, CANDIDATES, LONGEST = 400, 10, 128
TRIPLETS = {"name": "triplet", "pooling": "mean", "score": "euclidean"}
VECTORS = {"name": "biencoder", "pooling": "mean", "score": "cosine"}
PAIRS = {"name": "crossencoder", "token": "cls", "pooler": True, "dropout": 0.1}
HINGE = {"name": "triplet", "margin": 5.0, "selection": "all", "reduction": "sum"}
# Sampler, examples and rows of 128 tokens a batch, model, loss.
SYSTEMS: dict[str, tuple[str, int, int, dict[str, Any], dict[str, Any]]] = {
  "triplet": ("grouped", 4096, 256, TRIPLETS, HINGE),
  "crossencoder": ("grouped", 1024, 256, PAIRS, {"name": "cross_entropy"}),
  "encode": ("ordered", 4096, 512, VECTORS, {"name": "none"}),
  "score": ("ordered", 4096, 512, PAIRS, {"name": "none"}),
}
OPTIMIZER = {"name": "adam", "rate": 2e-5, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "clip_norm": 1.0}
OPTIMIZER |= {"weight_decay": 0.0, "layer_decay": 1.0, "average": 0.0, "schedule": "constant"}
OPTIMIZER |= {"warmup": 0.1, "lr_multipliers": []}


def workload(
  case: str, attention: str = "plain", *, questions: int = QUESTIONS, rows: int = 0
) -> Workload:
  """Return the workload of SHAPE:SYSTEM, in the batches that a run would have (or of so many rows)."""
  from as2jax.data.batches import examples
  from as2jax.data.batches.batcher import fit_batcher
  from as2jax.data.record import Candidate, Question
  from as2jax.data.text.token_table import UnitTable

  shape, _, system = case.partition(":")
  sampler, size, batch_rows, model, loss = SYSTEMS[system]
  rate = 0.1 if system in TRAINED else 0.0
  fields: Mapping[str, Any] = {"dtype": "bfloat16", "attention": attention}
  encoder = encoder_of(shape, hidden_dropout=rate, attention_dropout=rate, **fields)
  asked = []
  for q in range(questions):
    candidates = [Candidate(str(c), f"{q} {c}", label=int(c == 0)) for c in range(CANDIDATES)]
    asked.append(Question(str(q), f"question {q}", tuple(candidates)))
  layout = {"triplet": examples.triplets, "encode": examples.sentences}.get(system)
  units, table = layout(asked) if layout else examples.single(asked, template="pair")
  quantiles = SENTENCE if layout else PAIR
  random = np.random.default_rng(0)
  places = np.linspace(0, 1, len(quantiles))
  lengths = np.interp(random.random(len(units)), places, quantiles).astype(np.int64)
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
  settings = {"system": system, "batch_size": None, "encoder": encoder, "model": model}
  return of_batcher({**settings, "loss": loss, "optimizer": OPTIMIZER}, {}, batcher)
