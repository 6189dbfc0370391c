"""Convolution that skips padding: the numbers of the plain one, alone, mapped, and elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers import cpu as cropped
from as2jax.layers.cpu import cropped_convolution
from as2jax.layers.similarity import narrow_convolution, rectangle

SHAPE, KERNEL = (2, 8, 9, 12), (3, 3, 2, 4)
# By size, as the model has them: each group of two crops to another size.
ROWS = jnp.asarray([1, 2, 3, 4, 0, 6, 9, 2])
COLUMNS = jnp.asarray([1, 2, 4, 4, 6, 7, 3, 12])


def inputs(key=0):
  keys = jax.random.split(jax.random.key(key), 3)
  x = jax.random.normal(keys[0], SHAPE) * rectangle(ROWS, COLUMNS, SHAPE[2:])[None]
  out = (KERNEL[-1], SHAPE[1], SHAPE[2] - 2, SHAPE[3] - 2)
  weights = jax.random.normal(keys[2], out) * rectangle(ROWS, COLUMNS, out[2:])[None]
  return x, jax.random.normal(keys[1], KERNEL), weights


def with_gradients(convolve, x, kernel, weights):
  """The convolution, and the gradients of its weighted sum within the real pairs."""
  value = lambda x, kernel: jnp.sum(convolve(x, kernel) * weights)
  dx, dk = jax.grad(value, (0, 1))(x, kernel)
  return convolve(x, kernel), dx * rectangle(ROWS, COLUMNS, SHAPE[2:])[None], dk


def ours(x, kernel):
  return cropped_convolution(x, kernel, ROWS, COLUMNS, "highest")


def plain(x, kernel):
  return narrow_convolution(x, kernel, "highest")


def assert_same(actual, expected):
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_it_is_the_plain_convolution_with_its_gradients():
  arguments = inputs()
  expected = jax.jit(lambda *a: with_gradients(plain, *a))(*arguments)
  assert_same(jax.jit(lambda *a: with_gradients(ours, *a))(*arguments), expected)


def test_mapped_over_seeds_too():
  arguments = [jnp.stack(pair) for pair in zip(inputs(0), inputs(1))]
  mapped = jax.jit(jax.vmap(lambda *a: with_gradients(ours, *a)))
  assert_same(mapped(*arguments), jax.vmap(lambda *a: with_gradients(plain, *a))(*arguments))
  assert "stablehlo.while" not in mapped.lower(*arguments).as_text()  # the loop over groups


@pytest.mark.parametrize("platform,chooses", [("cpu", True), ("tpu", False), ("cuda", False)])
def test_sizes_are_chosen_on_cpu_alone(platform, chooses):
  traced = jax.jit(lambda *a: with_gradients(ours, *a)).trace(*inputs())
  text = traced.lower(lowering_platforms=(platform,)).as_text()
  assert ("stablehlo.while" in text) == chooses  # the loop over groups


def test_a_group_is_cropped(monkeypatch):
  """To five rows, where no other size is offered: only windows of more than three are missing."""
  x, kernel, _ = inputs()
  expected = jax.jit(plain)(x, kernel)
  monkeypatch.setattr(cropped, "ROWS", (0.5,))
  actual = jax.jit(lambda x, kernel: ours(x, kernel))(x, kernel)
  wrong = np.any(~np.isclose(actual, expected, atol=1e-5), axis=(0, 2, 3))
  assert list(np.flatnonzero(wrong)) == [3, 5, 6]
