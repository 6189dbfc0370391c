"""M²S-Net: convolutions over the similarity of each pair of tokens (Meng and Li 2016)."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from as2jax.data.batches.batch import Batch
from as2jax.data.inputs.protocol import Input
from as2jax.data.inputs.word_overlap import FORMS, WordOverlap
from as2jax.layers import similarity
from as2jax.layers.cpu import cropped_convolution
from as2jax.layers.dense import MaskedBatchNorm
from as2jax.layers.similarity import SIMILARITIES
from as2jax.layers.transformer import Dropout
from as2jax.layers.vectors import take
from as2jax.models.losses import BinaryCrossEntropy
from as2jax.models.system import Judged, System
from as2jax.runtime.registry import AtLeast, Each, OneOf, Precision, Rate


class M2SNet(System):
  """Convolves a grid of similarities, then a hidden layer and a logistic (M²S-Net).

  (Convolution → batch norm → tanh → average pool)*, section 2 and table 2 of the paper. A position
  of a grid is *valid* where its window holds at least one pair of real tokens (which lie in the
  upper left corner): only those are in the statistics of batch norm, and all others are 0 after
  each layer, so that padding reaches neither a score nor a statistic. Convolutions have no bias:
  batch norm's β stands there.

  Tokens beyond `question_length` and `candidate_length` are cut off; `filters` are those of each
  convolution, one entry is the paper's `shallow`; `dropout` is on the hidden layer's output (tanh).
  In the paper's form of the overlap features (`WordOverlap`) AdaDelta hardly moves their weights.
  For the rest see `SimilarityGrid` and `MaskedBatchNorm`.

  >>> from as2jax.config import jobs
  >>> jobs.load("trecqa_m2snet:cos").model.similarity
  'cosine'
  """

  encoder: nn.Module
  similarity: Annotated[str, OneOf(SIMILARITIES)]
  modes: Annotated[int, AtLeast(1)]
  noise: Annotated[float, AtLeast(0)]
  question_length: Annotated[int, AtLeast(1)]
  candidate_length: Annotated[int, AtLeast(1)]
  filters: Annotated[Sequence[int], Each(AtLeast(1))]
  filter_size: Annotated[int, AtLeast(1)]
  pool_size: Annotated[int, AtLeast(1)]
  hidden_size: Annotated[int, AtLeast(1)]
  dropout: Rate
  overlap: Annotated[str, OneOf(FORMS)]
  standardise_overlap: bool
  momentum: Rate
  eps: Annotated[float, AtLeast(0)]
  precision: Precision

  score_names: ClassVar[tuple[str, ...]] = ("logit",)

  @property
  def inputs(self) -> tuple[Input, ...]:
    return (WordOverlap(self.overlap, self.standardise_overlap),)

  @nn.compact
  def __call__(self, batch: Batch, *, train: bool) -> Judged:
    order = _by_length(batch)
    x, rows, columns = self._grid(batch, order, train)
    for n, filters in enumerate(self.filters):
      shape = (self.filter_size, self.filter_size, x.shape[0], filters)
      kernel = _Kernel(shape, name=f"convolution_{n}")()
      x = cropped_convolution(x, kernel, rows, columns, self.precision)
      valid = similarity.rectangle(rows, columns, x.shape[2:])
      norm = MaskedBatchNorm(self.momentum, self.eps, name=f"norm_{n}")
      x = jnp.tanh(norm(x, valid, train=train))
      rows, columns = (
        -(-jnp.minimum(count, size) // self.pool_size)
        for count, size in zip((rows, columns), x.shape[2:])
      )
      x = similarity.average_pool(x, self.pool_size)
    x = x.swapaxes(0, 1).reshape(x.shape[1], -1)
    x = nn.Dense(self.hidden_size, name="hidden", precision=self.precision)(x)
    x = Dropout(self.dropout)(jnp.tanh(x), train=train)
    features = take(batch.inputs[WordOverlap.name], order)
    x = jnp.concatenate([x, features.reshape(len(x), -1)], axis=-1)
    logits = nn.Dense(1, name="head", precision=jax.lax.Precision.HIGHEST)(x)
    logits = take(logits.reshape(order.shape), jnp.argsort(order, axis=1))
    return Judged(logits, logits)

  @nn.nowrap
  def similarity_grids(self, variables, batch: Batch) -> Float[Array, "s e k i j"]:
    """Return M (eq. 1) of each example, as the first convolution reads it, 0 beyond its tokens."""
    _, kept = self.apply(
      variables,
      batch,
      train=False,
      capture_intermediates=lambda module, _: module.name == "grid",
      mutable=["intermediates"],
    )
    (grid,) = kept["intermediates"]["grid"]["__call__"]
    order = _by_length(batch)
    grid = jnp.moveaxis(grid.reshape(len(grid), *order.shape, *grid.shape[2:]), 0, 2)
    return take(grid, jnp.argsort(order, axis=1))

  def _grid(self, batch: Batch, order: Array, train: bool) -> tuple[Array, Array, Array]:
    """Return similarities `[k, n, i, j]`, and how many rows and columns of each are real.

    The examples of a shard are put into `order` and the shards lie one after the other: batch norm
    goes over all of them.
    """
    hidden = self.encoder(batch.tokens, train=train).astype(jnp.float32)
    members, sides = take(batch.examples.members, order), []
    mask = take(batch.examples.mask, order)
    for k, size in enumerate((self.question_length, self.candidate_length)):
      vectors, length = similarity.gather_units(hidden, batch.units, members[..., k], mask, size)
      sides.append((vectors.reshape(-1, *vectors.shape[2:]), length.reshape(-1)))
    (x, rows), (y, columns) = sides
    mask = similarity.rectangle(rows, columns, (self.question_length, self.candidate_length))
    grid = similarity.SimilarityGrid(self.similarity, self.modes, self.noise, name="grid")
    return grid(x, y, mask), rows, columns


def _by_length(batch: Batch) -> Int[Array, "s e"]:
  """Return the order of examples by their candidate's length: like sizes are convolved together."""
  length = take(batch.units.length, batch.examples.members[..., 1])
  return jnp.argsort(jnp.where(batch.examples.mask > 0, length, 0), axis=1)


class _Kernel(nn.Module):
  """Holds the filters of a convolution, `kernel` [h, w, c, f]."""

  shape: tuple[int, int, int, int]

  @nn.compact
  def __call__(self) -> Float[Array, "h w c f"]:
    return self.param("kernel", nn.initializers.lecun_normal(), self.shape, jnp.float32)


@dataclasses.dataclass(frozen=True)
class M2SNetLoss(BinaryCrossEntropy):
  """Takes cross entropy plus λ(‖U‖² + ‖B‖²) of the learnt metric (M²S-Net eq. 5).
  `weight` is λ; without effect on similarities that have no parameters.
  """

  weight: float

  def penalty(self, params) -> dict[str, Array]:
    metric = params.get("grid")
    if metric is None:
      return {}
    squares = sum(jnp.sum(jnp.square(metric[name])) for name in ("U", "B"))
    return {"metric_penalty": self.weight * squares}
