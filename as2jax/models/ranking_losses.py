"""Pairwise, listwise and in-batch losses of scores that rank a question's candidates.

All of them work with any system that gives one score an example: bi-encoders (layout `pairs`) and
cross-encoders (layout `single`). A question's list is what a shard holds of it, so that the sampler
`grouped`, which keeps a question's candidates together, is the one to take; with others a list is cut.
Labels may be graded where a loss says so. `scale` multiplies scores before anything else: 1/τ of a
temperature τ.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from as2jax.data.batches.batch import Batch
from as2jax.data.inputs.protocol import Input
from as2jax.data.inputs.teacher_scores import TeacherScores
from as2jax.layers.vectors import norm, take
from as2jax.models.losses import Loss, Term
from as2jax.runtime.registry import Above, AtLeast, OneOf

WEIGHTINGS = ("none", "ndcg")
NOWHERE = -1e30  # a logit that softmax takes as 0, and that has no NaN in its gradient


def contrast(
  right: Float[Array, "*#b"], logits: Float[Array, "*#b n"], negative: Bool[Array, "*#b n"]
) -> Float[Array, "*b"]:
  """−ln of the share of `right` among itself and the negatives by softmax; 0 where there are none.

  ln(1 + exp(lse(negatives) − right)), the term of InfoNCE (van den Oord et al. 2018, eq. 4).
  """
  others = jax.nn.logsumexp(jnp.where(negative, logits, NOWHERE), axis=-1)
  return jnp.where(negative.any(-1), jax.nn.softplus(others - right), 0.0)


def _log_shares(x: Float[Array, "s e"], same: Bool[Array, "s e e"]) -> Float[Array, "s e e"]:
  """Logarithm of the softmax of `x` over each example's question."""
  return jax.nn.log_softmax(jnp.where(same, x[..., None, :], NOWHERE), axis=-1)


def _pair_weights(better: Bool[Array, "s e e"], same: Bool[Array, "s e e"]) -> Array:
  """1 / the number of a question's pairs, for each pair of it."""
  pairs = (better.sum(-1)[..., None, :] * same).sum(-1)  # of the question, at each of its examples
  return jnp.where(better, 1.0 / jnp.maximum(pairs, 1)[..., None], 0.0)


def _lists(
  output: Any, batch: Batch, scale: float, *, unlabelled: bool = False
) -> tuple[Array, Array, Bool[Array, "s e e"]]:
  """Scores [s, e], labels [s, e] and which judged examples belong to one question [s, e, e].

  `unlabelled`: whether examples without a label count as judged.
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
  """A loss that reads one score a pair of question and candidate."""

  layouts: ClassVar[tuple[str, ...]] = ("pairs", "single")
  outputs: ClassVar[tuple[str, ...]] = ("scores",)


@dataclasses.dataclass(frozen=True)
class ListSoftmax(ScoreLoss):
  """−ln of each positive's share among itself and the negatives of its question, mean over positives.

  InfoNCE (van den Oord et al. 2018, eq. 4) over a question's own candidates. The question's other
  positives are in no denominator. Labels above 0 are positive.
  """

  scale: float

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    scores, labels, same = _lists(output, batch, self.scale)
    positive = jnp.diagonal(same, axis1=-2, axis2=-1) & (labels > 0)
    negative = same & (labels == 0)[..., None, :]
    values = contrast(scores, scores[..., None, :], negative)
    usable = positive & negative.any(-1)
    return {"list_softmax": Term(jnp.where(usable, values, 0.0), usable.astype(jnp.float32))}


@dataclasses.dataclass(frozen=True)
class ListNet(ScoreLoss):
  """Cross entropy of the softmax of scores against that of labels, mean over questions.

  ListNet's top-one probabilities (Cao et al. 2007, eq. 6 f.). Labels may be graded. A question with
  one candidate or with equal labels counts, too.
  """

  scale: float

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    scores, labels, same = _lists(output, batch, self.scale)
    target = jnp.exp(_log_shares(labels.astype(jnp.float32), same))
    values = -jnp.where(same, target * _log_shares(scores, same), 0.0).sum(-1)
    return {"listnet": Term(values, _first(same).astype(jnp.float32))}


@dataclasses.dataclass(frozen=True)
class RankNet(ScoreLoss):
  """Logistic loss of every pair of candidates with different labels, mean over questions.

  ln(1 + exp(s_j − s_i)) where candidate i has the greater label (RankNet, Burges et al. 2005, eq. 3);
  the mean is over the pairs of a question first. Labels may be graded.

  Attributes:
    weighting: `none`; or `ndcg`: each pair by |ΔNDCG| of exchanging both in the current order
      (LambdaRank, Burges 2010, section 4; an upper bound of NDCG's loss by LambdaLoss, Wang et al.
      2018, section 3.3). Pairs' weights have no gradient.

  """

  scale: float
  weighting: Annotated[str, OneOf(WEIGHTINGS)]

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    scores, labels, same = _lists(output, batch, self.scale)
    better = same & (labels[..., :, None] > labels[..., None, :])
    values = jax.nn.softplus(scores[..., None, :] - scores[..., :, None])
    if self.weighting == "ndcg":
      values = values * jax.lax.stop_gradient(_ndcg_changes(scores, labels, same))
    return {"ranknet": Term(values, _pair_weights(better, same))}


def _first(same: Bool[Array, "s e e"]) -> Bool[Array, "s e"]:
  """Whether an example is the first of its question."""
  return jnp.diagonal(same & (jnp.cumsum(same, axis=-1) == 1), axis1=-2, axis2=-1)


def _ndcg_changes(scores: Array, labels: Array, same: Array) -> Float[Array, "s e e"]:
  """|ΔNDCG| of exchanging two candidates of a question; gain 2^label − 1, discount 1/log2(1 + rank)."""
  above = same & (scores[..., None, :] > scores[..., :, None])
  earlier = jnp.tril(jnp.ones(same.shape, bool), -1)
  tied = same & (scores[..., None, :] == scores[..., :, None]) & earlier
  discount = lambda rank: 1.0 / jnp.log2(1.0 + jnp.maximum(rank, 1))
  at = discount((above | tied).sum(-1) + 1)
  gain = jnp.where(labels > 0, jnp.exp2(labels.astype(jnp.float32)) - 1.0, 0.0)
  better = same & (labels[..., None, :] > labels[..., :, None])
  equal = same & (labels[..., None, :] == labels[..., :, None]) & earlier
  ideal = (same * (gain * discount((better | equal).sum(-1) + 1))[..., None, :]).sum(-1)
  change = jnp.abs(gain[..., :, None] - gain[..., None, :]) * jnp.abs(
    at[..., :, None] - at[..., None, :]
  )
  return change / jnp.where(ideal > 0, ideal, 1.0)[..., None]


@dataclasses.dataclass(frozen=True)
class MarginMSE(ScoreLoss):
  """Squared error of each margin between a positive and a negative against the teacher's.

  ((s_i − s_j) − (t_i − t_j))², the mean over the pairs of a question, then over questions (Hofstätter
  et al. 2020, eq. 8). Labels only say which pairs count. Scores t come from `data.teachers`.
  """

  scale: float
  inputs: ClassVar[tuple[Input, ...]] = (TeacherScores(),)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    scores, labels, same = _lists(output, batch, self.scale)
    teacher = batch.inputs[TeacherScores.name]
    margin = lambda x: x[..., :, None] - x[..., None, :]
    better = same & (labels[..., :, None] > labels[..., None, :])
    values = jnp.square(margin(scores) - margin(teacher))
    return {"margin_mse": Term(values, _pair_weights(better, same))}


@dataclasses.dataclass(frozen=True)
class Distillation(ScoreLoss):
  """KL of the teacher's softmax over a question's candidates to the scores', mean over questions.

  Σ_j p_j (ln p_j − ln q_j), p = softmax(t / τ), q = softmax(scale · s) (Hinton et al. 2015, section 2,
  over a list). Labels are not read, and candidates without one count, too.

  Attributes:
    temperature: τ of the teacher's scores.

  """

  scale: float
  temperature: Annotated[float, Above(0)]
  reads_unlabelled: ClassVar[bool] = True
  inputs: ClassVar[tuple[Input, ...]] = (TeacherScores(),)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    scores, _, same = _lists(output, batch, self.scale, unlabelled=True)
    teacher = batch.inputs[TeacherScores.name] / self.temperature
    target = _log_shares(teacher, same)
    values = jnp.where(same, jnp.exp(target) * (target - _log_shares(scores, same)), 0.0).sum(-1)
    return {"distillation": Term(values, _first(same).astype(jnp.float32))}


SIMILARITIES = ("cosine", "dot", "euclidean")


@dataclasses.dataclass(frozen=True)
class InBatchSoftmax(Loss):
  """−ln of each positive's share among all candidates of the batch, mean over positives.

  In-batch negatives (Henderson et al. 2017, section 4; InfoNCE): for a question, every text that is a
  candidate anywhere in the batch, over all shards and devices, except the question's other positives,
  as far as the batch holds the question's pairs with them (the sampler `grouped` keeps these together).
  Equal texts count once. Only for bi-encoders with layout `pairs`, whose output has `units`.
  Accumulated micro-batches are one batch (`as2jax.training.step.cached_gradient`).

  Attributes:
    scale: 1/τ, 20 for a cosine in sentence-transformers.
    similarity: `cosine`, `dot`, or `euclidean` (−‖u − v‖); that by which the model ranks.
    symmetric: whether the share of each positive's question among all questions is added.
    false_negative_margin: a negative whose similarity exceeds the positive's by more than this is
      taken for an unlabelled answer and left out; a large number (1e9) for none.

  """

  scale: float
  similarity: Annotated[str, OneOf(SIMILARITIES)]
  symmetric: bool
  false_negative_margin: float
  whole_batch: ClassVar[bool] = True
  layouts: ClassVar[tuple[str, ...]] = ("pairs",)
  outputs: ClassVar[tuple[str, ...]] = ("units",)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    terms = {"in_batch_softmax": self._side(output, batch, 0, 1)}
    if self.symmetric:
      terms["in_batch_softmax_questions"] = self._side(output, batch, 1, 0)
    return terms

  def _side(self, output, batch, side: int, other: int) -> Term:
    """The softmax of examples' `side` over all texts that are the `other` side of an example."""
    examples, units = batch.examples, batch.units
    vectors, number = output.units.astype(jnp.float32), units.id
    labels = examples.labels[..., 0]
    real = examples.mask > 0
    positive = (real & (labels > 0)).reshape(-1)
    at = lambda k: jnp.take_along_axis(number, examples.members[..., k], axis=1)
    own, sought = (jnp.where(real, at(k), -1).reshape(-1) for k in (side, other))
    asked = take(vectors, examples.members[..., side]).reshape(-1, vectors.shape[-1])
    answer = take(vectors, examples.members[..., other]).reshape(asked.shape)
    pool, ids = (
      vectors.reshape(-1, vectors.shape[-1]),
      number.reshape(-1),
    )  # over shards: one gather
    listed = (ids[:, None] == sought[None, :]).any(1) & (ids >= 0) & _first_of(ids)
    matches = (own[:, None] == own[None, :]) & real.reshape(-1)[None, :]
    holds = sought[:, None] == ids[None, :]
    # Neither another positive of the question nor an unjudged candidate of it is a negative.
    exempt = matches & (labels != 0).reshape(-1)[None, :]
    negative = listed[None, :] & ~_any_product(exempt, holds)
    logits = self._similarities(asked, pool)
    right = self._similarities(asked[:, None], answer[:, None])[:, 0, 0]
    negative = negative & (
      logits <= jax.lax.stop_gradient(right)[:, None] + self.false_negative_margin
    )
    values = contrast(self.scale * right, self.scale * logits, negative)
    usable = positive & negative.any(-1)
    return Term(jnp.where(usable, values, 0.0), usable.astype(jnp.float32))

  def _similarities(self, u: Float[Array, "*b n d"], v: Float[Array, "*b m d"]) -> Array:
    """The similarity of each u with each v, [*b, n, m]."""
    if self.similarity == "euclidean":
      return -norm(u[..., :, None, :] - v[..., None, :, :])
    if self.similarity == "cosine":
      u, v = (x / jnp.maximum(norm(x), 1e-9)[..., None] for x in (u, v))
    return jnp.matmul(u, v.swapaxes(-1, -2), precision=jax.lax.Precision.HIGHEST)


def _first_of(ids: Array) -> Bool[Array, "n"]:
  """Whether an id occurs at no earlier place."""
  equal = ids[:, None] == ids[None, :]
  return ~(equal & jnp.tril(jnp.ones(equal.shape, bool), -1)).any(1)


def _any_product(left: Bool[Array, "n k"], right: Bool[Array, "k m"]) -> Bool[Array, "n m"]:
  """Whether some k has both."""
  return jnp.matmul(left.astype(jnp.float32), right.astype(jnp.float32)) > 0.5


@dataclasses.dataclass(frozen=True)
class FocalLoss(ScoreLoss):
  """Binary cross entropy times (1 − p)^γ, p the probability of the label (Lin et al. 2017, eq. 4).

  Mean over judged examples. γ = 0 is `BinaryCrossEntropy`.
  """

  gamma: Annotated[float, AtLeast(0)]
  scale: float

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    del progress
    labels = batch.examples.labels[..., 0]
    judged = batch.examples.mask * (labels >= 0)
    margin = self.scale * output.scores * jnp.where(labels > 0, 1.0, -1.0)
    # (1 − p)^γ by its logarithm: a power below 1 of a probability that underflows has no gradient.
    values = jnp.exp(-self.gamma * jax.nn.softplus(margin)) * jax.nn.softplus(-margin)
    return {"focal": Term(values, judged)}
