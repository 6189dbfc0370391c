"""Masked batch norm: PyTorch's numbers where all is real; nothing real changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers.dense import MaskedBatchNorm

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
