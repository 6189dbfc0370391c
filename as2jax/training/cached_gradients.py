"""Gradients of losses over a whole batch that is encoded in parts (GradCache, Gao et al. 2021).

An in-batch loss needs the vectors of all texts at once, but their activations need not be there at once.
The first pass encodes the micro-batches and keeps the vectors alone, then the loss gives the gradient
with respect to these, and the second pass encodes each micro-batch again, with the same dropout, and
pulls its vectors' gradient back to the parameters. The result is the gradient of one large batch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from as2jax.runtime.errors import InputError

Params = Mapping[str, jax.Array]


def check(config: Any, model: Any, loss: Any) -> None:
  """Raises InputError where a run would accumulate a loss over a whole batch without its vectors."""
  if config.batch.accumulate > 1 and loss.whole_batch and not model.scores_by_vectors:
    raise InputError(
      f"batch.accumulate = {config.batch.accumulate}: loss.name = {config.loss.name!r} compares all "
      f"texts of a batch, and the gradient of {config.model.name!r} is not one of vectors alone; set "
      "batch.accumulate to 1, or train a bi-encoder that is scored by its vectors (model.name = "
      "biencoder or sentence_bert)"
    )


def merged(batch: Any) -> Any:
  """Micro-batches `[accumulate, shard, …]` as one of accumulate · shard shards, `[shard, …]`.

  Micro-batches of one shard stand together, so that no array moves between devices.
  """
  return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), batch)


def gradient(
  encode: Callable[[Params, Any, jax.Array], jax.Array],
  value: Callable[[Params, jax.Array, Any], tuple[jax.Array, Any]],
  trainable: Params,
  batch: Any,
) -> tuple[Params, Any]:
  """The gradient of `value` by the parameters, and what else it gives.

  Args:
    encode: (parameters, micro-batch, its number) → the vectors of its units `[shard, unit, d]`; equal
      for equal arguments, dropout included.
    value: (parameters, vectors, merged batch) → the loss, and further results.
    trainable: parameters by path.
    batch: `[accumulate, shard, …]`.

  """
  items = (jnp.arange(jax.tree.leaves(batch)[0].shape[0]), batch)
  vectors = jax.lax.map(lambda item: encode(trainable, item[1], item[0]), items)

  def of_vectors(trainable, vectors):
    return value(trainable, merged(vectors), merged(batch))

  (direct, cached), further = jax.grad(of_vectors, argnums=(0, 1), has_aux=True)(trainable, vectors)

  def pull(total, item):
    number, micro, its = item
    _, back = jax.vjp(lambda params: encode(params, micro, number), trainable)
    return jax.tree.map(jnp.add, total, back(its)[0]), None

  total, _ = jax.lax.scan(pull, direct, (*items, cached))
  return total, further
