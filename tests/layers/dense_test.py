"""Sums by products beside numpy's, the dense layer beside flax's, masked batch norm beside PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from as2jax.layers import dense
from as2jax.layers.dense import MaskedBatchNorm


@pytest.mark.parametrize("shape", [(3,), (1, 5), (7, 1), (4, 9, 6), (2, 3, 65, 4)])
def test_column_sums_are_numpys(shape):
  x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  wanted = x.astype(np.float64).reshape(-1, shape[-1]).sum(0)
  for sums in (dense.column_sums, dense._plainly):  # here, and on other platforms
    np.testing.assert_allclose(jax.jit(sums)(x), wanted, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(
    jax.vmap(dense.column_sums)(np.stack([x, 2 * x])), [wanted, 2 * wanted], rtol=1e-5, atol=1e-5
  )


@pytest.mark.parametrize("shape", [(1, 5), (7, 1), (4, 9, 6), (4, 2, 65, 3)])
def test_channel_sums_are_numpys_and_each_others_gradients(shape):
  rng = np.random.default_rng(0)
  x, gradient = (rng.normal(size=size).astype(np.float32) for size in (shape, shape[:1]))
  wanted = x.astype(np.float64).reshape(shape[0], -1).sum(1)
  spread = np.broadcast_to(gradient.reshape(-1, *(1,) * (len(shape) - 1)), shape)
  sums, back = jax.vjp(jax.jit(dense.channel_sums), x)
  for actual in (sums, dense._channels_plainly(jnp.asarray(x))):  # here, and on other platforms
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(*back(gradient), spread)
  many, back = jax.vjp(jax.jit(lambda vector: dense.spread_channels(vector, shape)), gradient)
  np.testing.assert_array_equal(many, spread)
  np.testing.assert_allclose(*back(x), wanted, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(
    jax.vmap(dense.channel_sums)(np.stack([x, 2 * x])), [wanted, 2 * wanted], rtol=1e-5, atol=1e-5
  )


def test_sums_of_half_precision_are_added_up_in_float32():
  ones = jnp.ones((4096, 2), jnp.bfloat16)  # bfloat16 itself stays at 256
  assert dense.column_sums(ones).tolist() == [4096, 4096]
  assert dense.channel_sums(ones.T).tolist() == [4096, 4096]
  assert float(dense.sum_of_squares(ones)) == 8192


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_kernels_gradient_is_the_same_on_other_platforms(dtype):
  """Of three axes, by products over two of them, which a TPU's compiler takes without copies."""
  rng = np.random.default_rng(0)
  x, gradient = (jnp.asarray(rng.normal(size=(2, 3, 4, n)), dtype) for n in (5, 6))
  wanted = np.einsum("srti,srto->sio", *(value.astype(np.float32) for value in (x, gradient)))
  for product in (dense._flat, dense._whole):
    seeds = jax.jit(jax.vmap(lambda x, gradient: product(x, gradient, None)))
    np.testing.assert_allclose(seeds(x, gradient), wanted, rtol=8 * jnp.finfo(dtype).eps, atol=1e-6)


def test_the_norm_is_that_of_all_arrays_together():
  rng = np.random.default_rng(0)
  tree = {"a": rng.normal(size=(5, 7)), "b": [rng.normal(size=3), np.float32(2.0)]}
  tree = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)
  np.testing.assert_allclose(dense.norm(tree), optax.tree.norm(tree), rtol=1e-6)
  assert dense.norm({}) == 0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_layer_is_flaxs_with_its_parameters_and_gradients(dtype):
  ours, theirs = dense.Dense(5, dtype), nn.Dense(5, dtype=dtype)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4)), jnp.float32)
  params = theirs.init(jax.random.key(0), x)
  jax.tree.map(np.testing.assert_array_equal, ours.init(jax.random.key(0), x), params)

  def value(layer):
    loss = lambda params, x: jnp.sum(jnp.sin(layer.apply(params, x).astype(jnp.float32)))
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(params, x)

  tolerance = 1e-6 if dtype == jnp.float32 else 2e-2
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance),
    value(ours),
    value(theirs),
  )


NORM = MaskedBatchNorm(momentum=0.9, eps=1e-5)


def data(channels=3, shape=(4, 5, 6), seed=0):
  rng = np.random.default_rng(seed)
  x = (rng.normal(size=(channels, *shape)) * 3 + 10).astype(np.float32)
  return x, (rng.random(shape) < 0.6).astype(np.float32)


def run(x, mask, variables, *, train=True):
  return NORM.apply(
    variables, jnp.asarray(x), jnp.asarray(mask), train=train, mutable=["batch_stats"]
  )


@pytest.mark.parametrize("train", [True, False])
def test_without_padding_it_is_pytorchs(train):
  torch = pytest.importorskip("torch")
  x, mask = data()
  rng = np.random.default_rng(1)
  values = {
    name: rng.random(3).astype(np.float32) + 0.5 for name in ("scale", "bias", "mean", "var")
  }
  variables = {
    "params": {k: values[k] for k in ("scale", "bias")},
    "batch_stats": {k: values[k] for k in ("mean", "var")},
  }
  out, new = run(x, np.ones_like(mask), variables, train=train)
  theirs = torch.nn.BatchNorm2d(3, eps=1e-5, momentum=0.1).train(train)
  names = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
  state = {names[name]: torch.tensor(value) for name, value in values.items()}
  theirs.load_state_dict(state | {"num_batches_tracked": torch.tensor(0)})
  expected = theirs(torch.tensor(x).transpose(0, 1)).transpose(0, 1)
  np.testing.assert_allclose(out, expected.detach(), atol=1e-5)
  for ours, name in (("mean", "running_mean"), ("var", "running_var")):
    np.testing.assert_allclose(new["batch_stats"][ours], getattr(theirs, name), rtol=1e-6)


def test_a_batch_without_a_real_position_changes_no_statistic():
  x, mask = data()
  variables = NORM.init(jax.random.key(0), jnp.asarray(x), jnp.asarray(mask), train=False)
  out, new = run(x, np.zeros_like(mask), variables)
  assert np.all(np.asarray(out) == 0)
  for a, b in zip(jax.tree.leaves(new), jax.tree.leaves({"batch_stats": variables["batch_stats"]})):
    np.testing.assert_array_equal(a, b)
