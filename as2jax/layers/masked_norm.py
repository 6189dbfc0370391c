"""Batch normalisation over real positions: padding enters neither statistics nor output."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.layers import dense


class MaskedBatchNorm(nn.Module):
  """γ·(x − E[x]) / √(Var[x] + ε) + β per channel (Ioffe and Szegedy 2015; M²S-Net eq. 3 and 4).

  In training, mean and variance are those of the positions with mask 1 of the whole batch, over all
  shards; in prediction they are the running ones of the collection `batch_stats`. As in PyTorch and
  Caffe, a batch is normalised with its biased variance, and the running variance is the unbiased
  one. A batch without a real position does not change the running statistics.

  Attributes:
    momentum: weight of the old running statistics at each step.
    eps: added to the variance.

  """

  momentum: float
  eps: float

  @nn.compact
  def __call__(
    self, x: Float[Array, "c *n"], mask: Float[Array, "*n"], *, train: bool
  ) -> Float[Array, "c *n"]:
    """Normalised `x`, 0 where `mask` is 0; the channels come first."""
    channels = x.shape[:1]
    mean = self.variable("batch_stats", "mean", jnp.zeros, channels, jnp.float32)
    var = self.variable("batch_stats", "var", jnp.ones, channels, jnp.float32)
    scale = self.param("scale", nn.initializers.ones, channels, jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, channels, jnp.float32)
    center, spread = mean.value, var.value
    if train:
      center, spread, count = masked_moments(x, mask)
      if not self.is_initializing():
        self._remember(mean, center, count > 0)
        self._remember(var, spread * count / jnp.maximum(count - 1, 1), count > 0)
    wide = lambda value: dense.spread_channels(value, x.shape)
    factor = scale * jax.lax.rsqrt(spread + self.eps)
    normalised = (x - wide(center)) * wide(factor) + wide(bias)
    return jnp.where(mask[None] > 0, normalised, 0.0)

  def _remember(self, running: nn.Variable, value: Array, real: Array) -> None:
    value = jax.lax.stop_gradient(value)
    mixed = self.momentum * running.value + (1 - self.momentum) * value
    running.value = jnp.where(real, mixed, running.value)


def masked_moments(
  x: Float[Array, "c *n"], mask: Float[Array, "*n"]
) -> tuple[Float[Array, "c"], Float[Array, "c"], Float[Array, ""]]:
  """Mean and biased variance of each channel where `mask` is not 0, and the number of positions.

  Computed in two passes, because E[x²] − E[x]² loses digits where the mean is large.
  """
  real = mask[None] > 0
  count = jnp.sum(mask > 0).astype(jnp.float32)
  total = jnp.maximum(count, 1.0)
  mean = dense.channel_sums(jnp.where(real, x, 0.0)) / total
  centred = x - dense.spread_channels(mean, x.shape)
  var = dense.channel_sums(jnp.where(real, jnp.square(centred), 0.0)) / total
  return mean, var, count
