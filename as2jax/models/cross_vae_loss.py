"""The loss of Cross-VAEs and its siblings: α·L_cross + β·L_KL + γ·L_matching (Yu et al. 2020)."""

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from as2jax.layers.vectors import take, unit
from as2jax.models.losses import Loss, Term
from as2jax.models.ranking_losses import contrast
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, OneOf

MATCHINGS = ("bce", "softmax")
REDUCTIONS = ("sum", "mean")
ACTIVE = 0.01  # of a latent's variance over texts (Burda et al. 2016), and of its KL in nats


def kl_of_dimensions(
  mean: Float[Array, "*n z"], log_variance: Float[Array, "*n z"]
) -> Float[Array, "*n z"]:
  """Return KL(N(μ, σ²) ‖ N(0, 1)) = ½ (μ² + σ² − 1 − log σ²) of each dimension, in nats."""
  return 0.5 * (jnp.square(mean) + jnp.exp(log_variance) - 1 - log_variance)


def annealed(progress: Array, epochs: int) -> Array:
  """Return β's share after `progress` epochs: 2/epochs an epoch, up to 1 (section 4.3)."""
  return jnp.minimum(2 * (progress / max(epochs, 1)), 1.0)


@dataclasses.dataclass(frozen=True)
class CrossVAELoss(Loss):
  """Takes reconstruction, KL and matching (eqs. 4 to 7, with the signs of a loss).

  L_cross (sum over words, mean over examples) and L_KL are over aligned pairs, those with label 1.
  L_matching is the binary cross entropy of σ(s·cos + b), the mean over positives and the mean over
  negatives with equal weight. A negative is a pair with label 0, or a question with another
  example's answer, unless that answer has the same text as its own or that example the same
  question.

  Attributes:
    alpha, beta, gamma: the weights; that of the KL after annealing.
    epochs: of the whole run, for annealing; see `annealed`.
    negatives: `in_batch`, all of them over all shards, or `sampled:k`, k at random a question.
    redundancy: weight of ‖AAᵀ − I‖², the penalty of Lin et al. 2017; 0 only logs it.
    matching: `bce` (eq. 7); or `softmax`: −ln of the positive's share among itself and the
      negatives of its question, by softmax of s·cos, the mean over positives.
    reconstruction: of a text's words, their `sum` (eq. 4) or their `mean`.

  """

  alpha: float
  beta: float
  gamma: float
  epochs: int
  negatives: str
  redundancy: Annotated[float, AtLeast(0)]
  matching: Annotated[str, OneOf(MATCHINGS)]
  reconstruction: Annotated[str, OneOf(REDUCTIONS)]
  outputs: ClassVar[tuple[str, ...]] = ("question", "answer", "draw")
  whole_batch: ClassVar[bool] = True  # its negatives are those of all shards

  def __post_init__(self):
    super().__post_init__()
    kind, _, count = self.negatives.partition(":")
    if self.negatives != "in_batch" and not (kind == "sampled" and count.isdigit() and int(count)):
      raise InputError(
        f"loss.negatives = {self.negatives!r}: use `in_batch` or `sampled:k` with k of 1 or more"
      )

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    examples = batch.examples
    aligned = examples.mask * (examples.labels[..., 0] == 1)
    terms, share = self._matching(output, batch, aligned), annealed(progress, self.epochs)
    for side in ("question", "answer"):
      values = getattr(output, side)
      terms[f"redundancy_{side}"] = Term(values.redundancy, aligned, "mean", self.redundancy)
      if values.log_likelihood is not None:
        terms |= self._reconstruction(side, values, aligned)
      if values.log_variance is not None:
        terms |= self._kl(side, values, aligned, share)
    if output.question.log_variance is not None:
      terms["beta"] = Term(self.beta * share, jnp.ones(()), "mean", 0.0)
    return terms

  def _reconstruction(self, side, values, aligned) -> dict[str, Term]:
    """Return −log p of the side's text; its perplexity is that of the batch's words."""
    surprise, words = -values.log_likelihood, jnp.maximum(values.words, 1.0)
    total, count = jnp.sum(aligned * surprise), jnp.sum(aligned * values.words)
    perplexity = jnp.exp(total / jnp.maximum(count, 1.0))
    cost = surprise / words if self.reconstruction == "mean" else surprise
    return {
      f"reconstruction_{side}": Term(cost, aligned, "mean", self.alpha),
      f"nats_per_word_{side}": Term(surprise / words, aligned * values.words, "mean", 0.0),
      f"perplexity_{side}": Term(perplexity, (count > 0).astype(jnp.float32), "mean", 0.0),
    }

  def _kl(self, side, values, aligned, share) -> dict[str, Term]:
    """Return the KL, and whether the posterior has collapsed onto the prior."""
    each = kl_of_dimensions(values.mean, values.log_variance)
    kl = each.sum(-1)
    there = aligned.sum() > 0
    weight = (aligned / jnp.maximum(aligned.sum(), 1.0))[..., None]
    center = jnp.sum(weight * values.mean, (0, 1), keepdims=True)
    variance = jnp.sum(weight * jnp.square(values.mean - center), (0, 1))
    of_dimension = jnp.sum(weight * each, (0, 1))
    log = lambda values: Term(values.astype(jnp.float32), there.astype(jnp.float32), "mean", 0.0)
    noise = jnp.sum(weight * jnp.exp(values.log_variance), (0, 1)).sum()
    return {
      f"annealed_kl_{side}": Term(share * kl, aligned, "mean", self.beta),
      f"signal_{side}": log(variance.sum() / jnp.maximum(variance.sum() + noise, 1e-12)),
      f"kl_{side}": Term(kl, aligned, "mean", 0.0),
      f"kl_largest_dimension_{side}": log(of_dimension.max()),
      f"kl_active_dimensions_{side}": log((of_dimension > ACTIVE).sum()),
      f"active_units_{side}": log((variance > ACTIVE).sum()),
    }

  def _matching(self, output, batch, aligned) -> dict[str, Term]:
    question, answer = unit(output.question.matched), unit(output.answer.matched)
    answers = answer.reshape(-1, answer.shape[-1])  # of all shards
    cosines = jnp.einsum("sez,nz->sen", question, answers, precision=jax.lax.Precision.HIGHEST)
    logits = output.scale * cosines + output.bias
    positive, negative = pairs_of(batch, aligned)
    if self.negatives != "in_batch":
      negative = drawn(negative, output.draw, int(self.negatives.partition(":")[2]))
    right = jnp.where(positive, logits > 0, logits < 0)
    if self.matching == "softmax":
      scaled = output.scale * cosines
      values = contrast(scaled, scaled[..., None, :], (negative > 0)[..., None, :])
      usable = positive * (negative.sum(-1, keepdims=True) > 0)
      matching = {"matching_softmax": Term(values, usable, "mean", self.gamma)}
    else:
      half = self.gamma / 2
      matching = {
        "matching_positive": Term(jax.nn.softplus(-logits), positive, "mean", half),
        "matching_negative": Term(jax.nn.softplus(logits), negative, "mean", half),
      }
    return matching | {
      "cosine_positive": Term(cosines, positive, "mean", 0.0),
      "cosine_negative": Term(cosines, negative, "mean", 0.0),
      "matching_right": Term(right.astype(jnp.float32), positive + negative, "mean", 0.0),
    }


def pairs_of(
  batch, aligned: Float[Array, "s e"]
) -> tuple[Float[Array, "s e n"], Float[Array, "s e n"]]:
  """Return masks of the positives and of the negatives among (question of e, answer of n)."""
  examples = batch.examples
  s, e = examples.mask.shape
  own = jnp.eye(s * e).reshape(s, e, s * e)
  wrong = examples.mask * (examples.labels[..., 0] == 0)
  text = take(batch.units.id, examples.members[..., 0])
  differs = lambda x: x[..., None] != x.reshape(-1)[None, None]
  there = examples.mask[..., None] * examples.mask.reshape(-1)[None, None]
  other = there * (differs(examples.answer) & differs(text))
  return own * aligned[..., None], own * wrong[..., None] + other


def drawn(
  mask: Float[Array, "s e n"], draw: Float[Array, "s e n"], k: int
) -> Float[Array, "s e n"]:
  """Return `mask` with at most k entries a question left: those with the largest random numbers."""
  order = jnp.where(mask > 0, draw, -1.0)
  k = min(k, order.shape[-1])
  lowest = jax.lax.top_k(order, k)[0][..., -1:]
  return mask * (order >= lowest)
