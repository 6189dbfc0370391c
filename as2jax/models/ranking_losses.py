"""Pairwise, listwise and in-batch losses of scores that rank a question's candidates.

All of them work with any system that gives one score an example. A question's list is what a shard
holds of it, so that the sampler `grouped`, which keeps a question's candidates together, is the one
to take. `scale` multiplies scores before anything else: 1/τ of a temperature τ.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from as2jax.data.batches.batch import Batch
from as2jax.data.inputs.protocol import Input
from as2jax.data.inputs.rankings import TeacherScores
from as2jax.layers.vectors import norm, take, unit
from as2jax.models.losses import Loss, Term
from as2jax.runtime.registry import Above, OneOf

NOWHERE = -1e30  # a logit that softmax takes as 0, and that has no NaN in its gradient


def contrast(
  right: Float[Array, "*#b"], logits: Float[Array, "*#b n"], negative: Bool[Array, "*#b n"]
) -> Float[Array, "*b"]:
  """Return −ln of the share of `right` among itself and the negatives by softmax; 0 without any.
  ln(1 + exp(lse(negatives) − right)), the term of InfoNCE (van den Oord et al. 2018, eq. 4).
  """
  others = jax.nn.logsumexp(jnp.where(negative, logits, NOWHERE), axis=-1)
  return jnp.where(negative.any(-1), jax.nn.softplus(others - right), 0.0)


def _log_shares(x: Float[Array, "s e"], same: Bool[Array, "s e e"]) -> Float[Array, "s e e"]:
  """Return the logarithm of the softmax of `x` over each example's question."""
  return jax.nn.log_softmax(jnp.where(same, x[..., None, :], NOWHERE), axis=-1)


def _lists(
  output: Any, batch: Batch, scale: float, *, unlabelled: bool = False
) -> tuple[Array, Array, Bool[Array, "s e e"]]:
  """Return scores [s, e], labels [s, e] and which judged examples are of one question [s, e, e].
  With `unlabelled`, examples without a label count as judged.
  """
  examples = batch.examples
  labels = examples.labels[..., 0]
  judged = (examples.mask > 0) & (unlabelled | (labels >= 0))
  same = examples.question[..., :, None] == examples.question[..., None, :]
  same = same & judged[..., :, None] & judged[..., None, :]
  scores = scale * output.scores.astype(jnp.float32)
  return jnp.where(judged, scores, 0.0), labels, same


@dataclasses.dataclass(frozen=True)
class ScoreLoss(Loss):
  """Reads one score a pair of question and candidate, multiplied by `scale`."""

  scale: float
  layouts: ClassVar[tuple[str, ...]] = ("pairs", "single")
  outputs: ClassVar[tuple[str, ...]] = ("scores",)


@dataclasses.dataclass(frozen=True)
class ListSoftmax(ScoreLoss):
  """Takes −ln of each positive's share among itself and its question's negatives, mean.

  InfoNCE (van den Oord et al. 2018, eq. 4) over a question's own candidates. The question's other
  positives are in no denominator. Labels above 0 are positive.
  """

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    scores, labels, same = _lists(output, batch, self.scale)
    positive = jnp.diagonal(same, axis1=-2, axis2=-1) & (labels > 0)
    negative = same & (labels == 0)[..., None, :]
    values = contrast(scores, scores[..., None, :], negative)
    usable = positive & negative.any(-1)
    return {"list_softmax": Term(jnp.where(usable, values, 0.0), usable.astype(jnp.float32))}


@dataclasses.dataclass(frozen=True)
class RankNet(ScoreLoss):
  """Takes the logistic loss of every pair of candidates with different labels, mean over questions.
  ln(1 + exp(s_j − s_i)) where candidate i has the greater label (RankNet, Burges et al. 2005, eq.
  3); the mean is over the pairs of a question first. Labels may be graded.
  """

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    scores, labels, same = _lists(output, batch, self.scale)
    better = same & (labels[..., :, None] > labels[..., None, :])
    values = jax.nn.softplus(scores[..., None, :] - scores[..., :, None])
    # Of the question, at each of its examples.
    pairs = (better.sum(-1)[..., None, :] * same).sum(-1)
    weights = jnp.where(better, 1.0 / jnp.maximum(pairs, 1)[..., None], 0.0)
    return {"ranknet": Term(values, weights)}


@dataclasses.dataclass(frozen=True)
class Distillation(ScoreLoss):
  """Takes the KL of the teacher's softmax over a question's candidates to the scores'.

  Σ_j p_j (ln p_j − ln q_j), p = softmax(t / τ), q = softmax(scale · s) (Hinton et al. 2015, section
  2, over a list); τ is `temperature`. Labels are not read, and candidates without one count, too.
  """

  temperature: Annotated[float, Above(0)]
  reads_unlabelled: ClassVar[bool] = True
  inputs: ClassVar[tuple[Input, ...]] = (TeacherScores(),)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    scores, _, same = _lists(output, batch, self.scale, unlabelled=True)
    teacher = batch.inputs[TeacherScores.name] / self.temperature
    target = _log_shares(teacher, same)
    values = jnp.where(same, jnp.exp(target) * (target - _log_shares(scores, same)), 0.0).sum(-1)
    # The first example of a question stands for it.
    first = jnp.diagonal(same & (jnp.cumsum(same, axis=-1) == 1), axis1=-2, axis2=-1)
    return {"distillation": Term(values, first.astype(jnp.float32))}


SIMILARITIES = ("cosine", "dot", "euclidean")


@dataclasses.dataclass(frozen=True)
class InBatchSoftmax(Loss):
  """Takes −ln of each positive's share among all candidates of the batch, mean over positives.

  In-batch negatives (Henderson et al. 2017, section 4; InfoNCE): for a question, every text that is
  a candidate anywhere in the batch, over all shards and devices, except the
  question's other positives, as far as the batch holds them (the sampler `grouped` keeps these
  together). Equal texts count once. `scale` is 1/τ, 20 for a cosine in sentence-transformers;
  `similarity` is that by which the model ranks, `euclidean` −‖u − v‖.
  """

  scale: float
  similarity: Annotated[str, OneOf(SIMILARITIES)]
  whole_batch: ClassVar[bool] = True
  layouts: ClassVar[tuple[str, ...]] = ("pairs",)
  outputs: ClassVar[tuple[str, ...]] = ("units",)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    examples, units = batch.examples, batch.units
    vectors, number = output.units.astype(jnp.float32), units.id
    labels = examples.labels[..., 0]
    real = examples.mask > 0
    positive = (real & (labels > 0)).reshape(-1)
    at = lambda k: take(number, examples.members[..., k])
    own, sought = (jnp.where(real, at(k), -1).reshape(-1) for k in range(2))
    asked = take(vectors, examples.members[..., 0]).reshape(-1, vectors.shape[-1])
    answer = take(vectors, examples.members[..., 1]).reshape(asked.shape)
    # Over shards: one gather.
    pool, ids = vectors.reshape(-1, vectors.shape[-1]), number.reshape(-1)
    equal = ids[:, None] == ids[None, :]  # of equal texts the first counts
    repeated = (equal & jnp.tril(jnp.ones(equal.shape, bool), -1)).any(1)
    listed = (ids[:, None] == sought[None, :]).any(1) & (ids >= 0) & ~repeated
    matches = (own[:, None] == own[None, :]) & real.reshape(-1)[None, :]
    holds = sought[:, None] == ids[None, :]
    # Neither another positive of the question nor an unjudged candidate of it is a negative.
    exempt = matches & (labels != 0).reshape(-1)[None, :]
    exempt = jnp.matmul(exempt.astype(jnp.float32), holds.astype(jnp.float32)) > 0.5
    negative = listed[None, :] & ~exempt
    logits = self._similarities(asked, pool)
    right = self._similarities(asked[:, None], answer[:, None])[:, 0, 0]
    values = contrast(self.scale * right, self.scale * logits, negative)
    usable = positive & negative.any(-1)
    values = jnp.where(usable, values, 0.0)
    return {"in_batch_softmax": Term(values, usable.astype(jnp.float32))}

  def _similarities(self, u: Float[Array, "*b n d"], v: Float[Array, "*b m d"]) -> Array:
    """Return the similarity of each u with each v, [*b, n, m]."""
    if self.similarity == "euclidean":
      return -norm(u[..., :, None, :] - v[..., None, :, :])
    if self.similarity == "cosine":
      u, v = unit(u), unit(v)
    return jnp.matmul(u, v.swapaxes(-1, -2), precision=jax.lax.Precision.HIGHEST)
