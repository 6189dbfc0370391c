"""The loop over packed rows: devices meet outside of it alone."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from as2jax.layers.cpu import Direction, scan_units

D, C, P = 3, 5, 4
SPANS = [(0, 0, 4), (0, 4, 2), (1, 1, 5)]  # row, start, length; padding before and behind
RNG = np.random.default_rng(0)
draw = lambda *shape: jnp.asarray(RNG.normal(0, 0.7, shape), jnp.float32)
X, WEIGHT = draw(2, 7, D), draw(2, 7, P)


def parameters():
  return {
    name: {"wide": (draw(P, C), draw(C)), "narrow": (draw(C, P), None), "input": draw(D, C)}
    for name in ("forward", "backward")
  } | {"initial": draw(2, P)}


def step(product, state, x):
  """A recurrence through two products, of which one has a bias; state and output differ."""
  hidden = product("narrow", jnp.tanh(x + product("wide", state)))
  return jnp.sin(hidden), hidden


def layout():
  position, segment = np.zeros((2, 2, 7), np.int32)
  for number, (row, start, length) in enumerate(SPANS):
    position[row, start : start + length] = np.arange(length)
    segment[row, start : start + length] = number + 1
  return jnp.asarray(position), jnp.asarray(segment)


def packed(params, x=X, weight=WEIGHT, unroll=1):
  directions = [
    Direction(
      step,
      {k: params[name][k] for k in ("wide", "narrow")},
      x @ params[name]["input"],
      params["initial"],
      name == "backward",
    )
    for name in ("forward", "backward")
  ]
  actual = scan_units(directions, *layout(), unroll=unroll, precision="highest")
  return sum((output * weight).sum() + jnp.square(state).sum() for output, state in actual)


def test_devices_meet_outside_the_loop_alone():
  mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
  rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["data"], []))
  params = {k: v for k, v in parameters().items() if k != "initial"}

  def loss(params, x, weight):
    return packed({**params, "initial": jnp.zeros((2, P))}, x, weight)

  compiled = jax.jit(jax.grad(loss), in_shardings=(whole, rows, rows)).lower(params, X, WEIGHT)
  text = compiled.compile().as_text()
  assert " while(" in text
  meeting = r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(-start)?\("
  entry = text[text.index("\nENTRY ") :]
  assert re.search(meeting, entry)
  assert not re.search(meeting, text[: text.index("\nENTRY ")])
