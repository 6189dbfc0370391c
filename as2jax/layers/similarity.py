"""Similarity of the tokens of two sentences, pair by pair, and narrow convolutions over the grid.

Grids are channels first, `[channel, example, row, column]`: rows are tokens of the question,
columns those of the candidate.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from as2jax.data.batches.batch import Units
from as2jax.layers.vectors import norm, take, unit
from as2jax.runtime.errors import InputError

SIMILARITIES = ("euclidean", "cosine", "metric")


def gather_units(
  hidden: Shaped[Array, "s r l d"],
  units: Units,
  members: Int[Array, "s e"],
  mask: Shaped[Array, "s e"],
  size: int,
) -> tuple[Shaped[Array, "s e {size} d"], Int[Array, "s e"]]:
  """Return the token vectors (or ids) of examples' units, zero beyond a unit's end, and their number.

  `members` are indices of units, local to their shard; `mask` is 0 (or false) for an example that is padding;
  tokens beyond `size` are cut off.
  """
  of = lambda values: take(values, members)
  length = jnp.where(mask > 0, jnp.minimum(of(units.length), size), 0)
  place = jnp.arange(size, dtype=jnp.int32)[None, None]
  real = place < length[..., None]
  index = jnp.where(real, (of(units.row) * hidden.shape[2] + of(units.start))[..., None] + place, 0)
  flat = hidden.reshape(hidden.shape[0], -1, hidden.shape[-1])
  return jnp.where(real[..., None], take(flat, index), 0), length


def rectangle(
  rows: Int[Array, "n"], columns: Int[Array, "n"], shape: tuple[int, int]
) -> Float[Array, "n i j"]:
  """Return 1 in the first `rows` × `columns` positions of each example's grid, 0 elsewhere."""
  inside = lambda count, size: jnp.arange(size, dtype=jnp.int32)[None] < count[:, None]
  both = inside(rows, shape[0])[:, :, None] & inside(columns, shape[1])[:, None, :]
  return both.astype(jnp.float32)


def euclidean(x: Float[Array, "n i d"], y: Float[Array, "n j d"]) -> Float[Array, "n i j"]:
  """Return 1 / (1 + |x − y|) of each pair (M²S-Net eq. 1, Euc.), with gradient 0 where x = y.
  Computed from the differences: with |x|² + |y|² − 2xy the distance of a word to itself is not 0.
  """
  return 1 / (1 + norm(x[:, :, None] - y[:, None]))


def cosine(x: Float[Array, "n i d"], y: Float[Array, "n j d"]) -> Float[Array, "n i j"]:
  """Return x·y / (|x|·|y|) of each pair (M²S-Net eq. 1, Cos.); 0 where either vector is zero."""
  return jnp.einsum("nid,njd->nij", unit(x), unit(y), precision=lax.Precision.HIGHEST)


class SimilarityGrid(nn.Module):
  """Computes M of M²S-Net (eq. 1), masked: 0 for pairs with a token that is padding.
  The learnt metric is x·U_k y + B_k, with U `[k, d, d]` and B `[k, i, j]`, which belongs to
  positions and so fixes the size of the grid. U starts at I/√d plus noise of standard deviation
  `noise`, which tells the k = `modes` modes apart; B at 0.
  """

  similarity: str
  modes: int
  noise: float

  @nn.compact
  def __call__(
    self, x: Float[Array, "n i d"], y: Float[Array, "n j d"], mask: Float[Array, "n i j"]
  ) -> Float[Array, "{self.modes} n i j"]:
    """Compare each token of `x` with each of `y`; InputError for unfit `modes`."""
    if self.similarity != "metric" and self.modes != 1:
      raise InputError(f"model.modes = {self.modes}: {self.similarity} has exactly 1")
    if self.similarity == "metric":
      grid = self._metric(x, y)
    else:
      grid = {"euclidean": euclidean, "cosine": cosine}[self.similarity](x, y)[None]
    return jnp.where(mask[None] > 0, grid, 0.0)

  def _metric(self, x, y):
    width = x.shape[-1]

    def start(key, shape):
      return jnp.eye(width)[None] * width**-0.5 + self.noise * jax.random.normal(key, shape)

    metric = self.param("U", start, (self.modes, width, width))
    bias = self.param("B", nn.initializers.zeros, (self.modes, x.shape[1], y.shape[1]))
    left = jnp.einsum("nid,kdf->knif", x, metric, precision=lax.Precision.HIGHEST)
    product = jnp.einsum("knif,njf->knij", left, y, precision=lax.Precision.HIGHEST)
    return product + bias[:, None]


def narrow_convolution(
  x: Float[Array, "c n i j"], kernel: Float[Array, "h w c f"], precision: str
) -> Float[Array, "f n a b"]:
  """Convolve without padding (M²S-Net eq. 2): `[f, n, i − h + 1, j − w + 1]`.
  Computed as one matrix product over patches: with its gradients no slower on CPU than XLA's
  convolution, and under `vmap` over seeds, where XLA's becomes a grouped convolution, little slower
  per seed than alone. Patches are stacked on the channels, the first axis, so that they are copied
  in long runs.
  """
  height, width, channels, filters = kernel.shape
  _, n, i, j = x.shape
  i, j = i - height + 1, j - width + 1
  if i < 1 or j < 1:
    raise _too_small(f"a {height}×{width} filter does", x.shape)
  patches = jnp.concatenate(
    [x[:, :, a : a + i, b : b + j] for a in range(height) for b in range(width)]
  )
  flat = kernel.reshape(height * width * channels, filters)
  product = jnp.einsum("pf,pm->fm", flat, patches.reshape(len(flat), -1), precision=precision)
  return product.reshape(filters, n, i, j)


def average_pool(x: Float[Array, "c n i j"], size: int) -> Float[Array, "c n a b"]:
  """Return means of size × size tiles; rows and columns left over at the end are dropped.
  Rows are added before columns: on CPU this takes a ninth of the time of a mean over two axes.
  """
  channels, n, i, j = x.shape
  i, j = i // size, j // size
  if i < 1 or j < 1:
    raise _too_small(f"{size}×{size} tiles do", x.shape)
  tiles = x[:, :, : i * size, : j * size].reshape(channels, n, i, size, j * size)
  rows = sum(tiles[:, :, :, a] for a in range(size))
  return sum(rows[..., b::size] for b in range(size)) / size**2


def _too_small(what: str, shape: tuple[int, ...]) -> InputError:
  return InputError(
    f"{what} not fit into a grid of {shape[2:]}: raise model.question_length or "
    "model.candidate_length, or lower model.filter_size, model.pool_size or the "
    "number of model.filters"
  )
