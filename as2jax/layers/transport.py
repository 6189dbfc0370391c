"""Optimal transport between two sets of words: cost, entropic plan, relevant context (CASSIE 3.2).

Everything is float32, masked by zero marginals and of fixed length: there is no callback and no
loop whose length depends on data. A problem is n points of the question against m of a sentence;
leading axes are independent problems.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float
from ott.geometry.geometry import Geometry
from ott.problems.linear.linear_problem import LinearProblem
from ott.solvers.linear.sinkhorn import Sinkhorn

from as2jax.layers.vectors import norm

GRADIENTS = ("envelope", "unrolled")


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
