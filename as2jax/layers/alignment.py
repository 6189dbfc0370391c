"""Words of question and sentences as weighted points, aligned by optimal transport (CASSIE section 3.2).

A unit holds the question (role 0) and sentences 1 … K (its candidate and context, or K candidates);
all arrays are `[shard, unit, …]`. Examples that share a unit share its alignment. A transport
problem is n points of the question against m of a sentence; leading axes are independent problems.
It is float32, masked by zero marginals and of fixed length: there is no callback and no loop whose
length depends on data.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from ott.geometry.geometry import Geometry
from ott.problems.linear.linear_problem import LinearProblem
from ott.solvers.linear.sinkhorn import Sinkhorn

from as2jax.data.batches.batch import Units, Words
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords
from as2jax.layers.vectors import norm, take

ALIGNMENTS = ("transport", "mean")
MARGINALS = ("frequency", "uniform")
RELEVANCE = ("plan", "plan_over_mass", "nearest")
GRADIENTS = ("envelope", "unrolled")


class Alignment(NamedTuple):
  """Holds the alignment of each unit's question with each of its K sentences.
  `representation` r `[s u k d]` is the mean of the relevant context `selected` `[s u k m]`, 0 where
  there is none; `distance` d = Σ D·π `[s u k]`; `present` tells whether question and sentence both
  have a word; `plan` and `cost` are π and D `[s u k n m]`, 0 at padding; `question` `[s u n]` and
  `sentence` `[s u k m]` the index in `Batch.words` of each point, −1 for none.
  """

  representation: Array
  distance: Array
  present: Array
  plan: Array
  cost: Array
  selected: Array
  question: Array
  sentence: Array


@dataclasses.dataclass(frozen=True)
class Aligner:
  """Aligns words; the fields are those of `as2jax.models.cassie.Cassie`, which checks them.

  `alignment`: `transport`, or `mean`, which aligns nothing: the relevant context is every word, and
  d the cost of the independent plan p_X p_Yᵀ (that of ε → ∞). `marginals`: `frequency` (freq(w) / Σ
  freq) or `uniform`. `stop_words`: whether words are left out whose input `stop_words` is not 0.
  `question_words`, `sentence_words`: the most points; further words are left out. `relevance`: by
  what the relevant word of a question's word is the greatest: `plan` (the paper's π),
  `plan_over_mass` (π over the word's marginal, by which frequent words are not preferred) or
  `nearest` (−D). For the rest see `transport_plan`, `transport_cost`.
  """

  alignment: str
  marginals: str
  stop_words: bool
  epsilon: float
  epsilon_relative: bool
  iterations: int
  transport_gradient: str
  question_words: int
  sentence_words: int
  relevance: str

  def __call__(
    self, hidden: Float[Array, "s r l d"], units: Units, words: Words, sentences: int
  ) -> Alignment:
    """Align the question of each unit with its `sentences` sentences."""
    sizes = (self.question_words,) + (self.sentence_words,) * sentences
    vectors, number = points(hidden, units, words, sizes, filtered=self.stop_words)
    frequency = words.inputs[DocumentFrequency.name]
    weight = jnp.ones_like(frequency) if self.marginals == "uniform" else frequency
    weight = jnp.where(number >= 0, take(weight, jnp.maximum(number, 0)), 0.0)

    def sides(x):
      sentence = x[:, :, self.question_words :]
      return (
        x[:, :, : self.question_words],
        sentence.reshape(*x.shape[:2], sentences, self.sentence_words, *x.shape[3:]),
      )

    (x, y), (a, b), (question, sentence) = sides(vectors), sides(weight), sides(number)
    over = lambda z: jnp.broadcast_to(z[:, :, None], (*z.shape[:2], sentences, *z.shape[2:]))
    x, a, b = over(x), marginal(over(a)), marginal(b)
    cost = distances(x, y)
    plan, selected = self._plan(cost, a, b)
    distance = transport_cost(cost, plan, self.transport_gradient)
    count = jnp.maximum(selected.sum(-1), 1)[..., None].astype(jnp.float32)
    total = jnp.einsum(
      "sukm,sukmd->sukd", selected.astype(jnp.float32), y, precision=lax.Precision.HIGHEST
    )
    real = (a[..., :, None] > 0) & (b[..., None, :] > 0)
    return Alignment(
      total / count,
      distance,
      real.any((-2, -1)),
      plan,
      jnp.where(real, cost, 0.0),
      selected,
      question,
      sentence,
    )

  def _plan(self, cost, a, b):
    """Return the plan and the relevant context; no word of a sentence is relevant to no question."""
    if self.alignment == "mean":
      return a[..., :, None] * b[..., None, :], (b > 0) & (a > 0).any(-1)[..., None]
    if self.transport_gradient == "envelope":
      cost = lax.stop_gradient(cost)
    plan = transport_plan(
      cost, a, b, epsilon=self.epsilon, relative=self.epsilon_relative, iterations=self.iterations
    )
    value = {
      "plan": lambda: plan,
      "plan_over_mass": lambda: plan / jnp.where(b > 0, b, 1.0)[..., None, :],
      "nearest": lambda: -cost,
    }[self.relevance]()
    return plan, relevant_context(lax.stop_gradient(value), a, b)


def points(
  hidden: Float[Array, "s r l d"],
  units: Units,
  words: Words,
  sizes: tuple[int, ...],
  *,
  filtered: bool,
) -> tuple[Float[Array, "s u p d"], Int[Array, "s u p"]]:
  """Return the words of each unit as points, at most `sizes[role]` of each role in turn.

  Of each point the mean of its pieces' vectors, float32 (0 where there is no word), and the index
  of its word (−1 where there is none). Words of one role and unit must follow one another;
  `filtered` leaves out those with `keep` 0. One segment sum over tokens, without a table of words
  in between.
  """
  _, r, l, width = hidden.shape
  slots = units.length.shape[1]
  place = _places(words, slots, sizes, filtered)

  def shard(hidden, row, start, words, place):
    nowhere = slots * sum(sizes)
    count = jnp.arange(len(place), dtype=jnp.int32)
    first = row[words.unit] * l + start[words.unit] + words.start
    first = jnp.where(place < nowhere, first, r * l)
    begins = jnp.full(r * l, -1, jnp.int32).at[first].set(count, mode="drop")
    token = jnp.arange(r * l, dtype=jnp.int32)
    last = lax.cummax(jnp.where(begins >= 0, token, -1))
    word = begins[jnp.maximum(last, 0)]
    inside = (last >= 0) & (token - last < words.length[word])
    share = 1 / jnp.maximum(words.length[word], 1).astype(jnp.float32)
    target = jnp.where(inside, place[word], nowhere)
    flat = hidden.astype(jnp.float32).reshape(r * l, width) * share[:, None]
    vectors = jax.ops.segment_sum(flat, target, nowhere + 1)[:-1]
    number = jnp.full(nowhere, -1, jnp.int32).at[place].set(count, mode="drop")
    return vectors.reshape(slots, -1, width), number.reshape(slots, -1)

  return jax.vmap(shard)(hidden, units.row, units.start, words, place)


def _places(words: Words, slots: int, sizes: tuple[int, ...], filtered: bool):
  """Return the number of each word's point in its shard, slots · Σ sizes for those that are none."""
  offset = jnp.asarray([sum(sizes[:i]) for i in range(len(sizes))], jnp.int32)
  limit = jnp.asarray(sizes, jnp.int32)
  used = (words.length > 0) & (words.role < len(sizes))
  if filtered:
    used &= words.inputs[StopWords.name] == 0
  before = jnp.cumsum(used, axis=1, dtype=jnp.int32) - used.astype(jnp.int32)
  changed = lambda x: x[:, 1:] != x[:, :-1]
  starts = jnp.pad(
    changed(words.unit) | changed(words.role), ((0, 0), (1, 0)), constant_values=True
  )
  rank = before - lax.cummax(jnp.where(starts, before, 0), axis=1)
  role = jnp.minimum(words.role, len(sizes) - 1)
  place = words.unit * sum(sizes) + offset[role] + rank
  return jnp.where(used & (rank < limit[role]), place, slots * sum(sizes))


@jax.custom_vjp
def distances(x: Float[Array, "*p n d"], y: Float[Array, "*p m d"]) -> Float[Array, "*p n m"]:
  """Return D(x_i, y_j) = ‖x_i − y_j‖, with gradient 0 where the two points coincide.
  Computed from the differences, which XLA fuses into their sum: |x|² + |y|² − 2xy would lose the
  digits of small distances. The gradient is two matrix products, whose error is no larger than that
  of rounding x and y.
  """
  return norm(x[..., :, None, :] - y[..., None, :, :])


def _distances_forward(x, y):
  cost = distances(x, y)
  return cost, (x, y, cost)


def _distances_backward(saved, cotangent):
  x, y, cost = saved
  weight = jnp.where(cost > 0, cotangent / jnp.where(cost > 0, cost, 1.0), 0.0)
  product = partial(jnp.einsum, precision=lax.Precision.HIGHEST)
  of_x = x * weight.sum(-1)[..., None] - product("...nm,...md->...nd", weight, y)
  of_y = y * weight.sum(-2)[..., None] - product("...nm,...nd->...md", weight, x)
  return of_x, of_y


distances.defvjp(_distances_forward, _distances_backward)


def marginal(weights: Float[Array, "*p n"]) -> Float[Array, "*p n"]:
  """Divide weights ≥ 0 by their sum; all 0 where the sum is 0."""
  total = weights.sum(-1, keepdims=True)
  return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), 0.0)


def transport_plan(
  cost: Float[Array, "*p n m"],
  a: Float[Array, "*p n"],
  b: Float[Array, "*p m"],
  *,
  epsilon: float,
  relative: bool,
  iterations: int,
) -> Float[Array, "*p n m"]:
  """Return π = argmin ⟨D, π⟩ + ε KL(π | a bᵀ) with marginals a and b, by Sinkhorn in ott-jax.

  The last step fits a: rows add up to a up to rounding, columns to b as far as it has converged
  (with ε = 0.1 of the mean cost 4e-4 off in total after 20 iterations, 1e-6 after 50).
  Differentiable in `cost` through the iterations. The value of D ≥ 0 counts only where a and b, 0
  at padding, are positive; a problem whose a or b is all 0 has plan 0. `epsilon` is in units of D
  or (`relative`) of the mean of D over the pairs of real points; `iterations` is their fixed
  number.
  """
  real = (a[..., :, None] > 0) & (b[..., None, :] > 0)
  whole = real.any((-2, -1))
  cost = jnp.where(real, cost, 0.0)
  if relative:
    count = jnp.maximum(real.sum((-2, -1)), 1).astype(cost.dtype)
    mean = cost.sum((-2, -1)) / count
    cost = cost / jnp.where(mean > 0, mean, 1.0)[..., None, None]
  # An empty problem has no plan: that of two single points stands in for it, then is struck out.
  first = lambda x: jnp.where(jnp.arange(x.shape[-1]) == 0, jnp.ones_like(x), jnp.zeros_like(x))
  fill = lambda x: jnp.where(whole[..., None], x, first(x))
  solve = lambda cost, a, b: _solve(cost, a, b, epsilon, iterations)
  for _ in range(cost.ndim - 2):
    solve = jax.vmap(solve)
  return jnp.where(real, solve(cost, fill(a), fill(b)), 0.0)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _solve(cost, a, b, epsilon: float, iterations: int):
  """Return the plan of one problem. Other settings of ott give wrong gradients at weight zero.

  ott broadcasts across ranks, when it is differentiated as well: both are traced here, where that
  is allowed, whatever the caller's setting. The backward pass runs the iterations again.
  """
  return _sinkhorn(cost, a, b, epsilon, iterations)


def _sinkhorn(cost, a, b, epsilon, iterations):
  solver = Sinkhorn(
    lse_mode=True,
    implicit_diff=None,
    threshold=-1.0,
    min_iterations=iterations,
    max_iterations=iterations,
    inner_iterations=iterations,
  )
  with jax.numpy_rank_promotion("allow"):
    return solver(LinearProblem(Geometry(cost_matrix=cost, epsilon=epsilon), a, b)).matrix


def _solve_forward(cost, a, b, epsilon, iterations):
  return _sinkhorn(cost, a, b, epsilon, iterations), (cost, a, b)


def _solve_backward(epsilon, iterations, saved, cotangent):
  cost, a, b = saved
  with jax.numpy_rank_promotion("allow"):
    of_cost = jax.vjp(lambda cost: _sinkhorn(cost, a, b, epsilon, iterations), cost)[1](cotangent)
  return *of_cost, None, None


_solve.defvjp(_solve_forward, _solve_backward)


def transport_cost(
  cost: Float[Array, "*p n m"], plan: Float[Array, "*p n m"], gradient: str
) -> Float[Array, "*p"]:
  """Return d = Σ D·π (CASSIE section 3.2).
  `gradient` `envelope` holds π constant (the exact gradient of ⟨D, π⟩ + ε KL, an approximation of
  that of d); `unrolled` differentiates exactly, through the iterations.
  """
  if gradient == "envelope":
    plan = lax.stop_gradient(plan)
  # Where π = 0 the cost may be that of padding.
  return jnp.sum(jnp.where(plan > 0, cost * plan, 0.0), axis=(-2, -1))


def relevant_context(
  plan: Float[Array, "*p n m"], a: Float[Array, "*p n"], b: Float[Array, "*p m"]
) -> Bool[Array, "*p m"]:
  """Return { j : j = argmax_j' π_ij' for some real i } as a mask; the first j of equals."""
  reachable = jnp.where(b[..., None, :] > 0, plan, -jnp.inf)
  best = jnp.argmax(reachable, axis=-1)
  columns = jnp.arange(plan.shape[-1]).reshape((1,) * (plan.ndim - 1) + (-1,))
  chosen = (best[..., None] == columns) & (a[..., None] > 0)
  return chosen.any(-2) & (b > 0)
