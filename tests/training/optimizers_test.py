"""Schedules over progress, update rules by hand, frozen parts."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from as2jax.runtime.errors import InputError
from as2jax.training import optimizers


def rule(name="adam", **changes):
  settings = dict(
    b1=0.9, b2=0.999, eps=1e-8, clip_norm=0.0, weight_decay=0.0, layer_decay=1.0, lr_multipliers=()
  )
  return optimizers.from_config({"name": name, **settings, **changes})


@pytest.mark.parametrize(
  "name, warmup, epochs, rates",
  [
    ("constant", 0.1, 20, {0.0: 0, 0.05: 0.5, 0.1: 1, 0.5: 1, 19.0: 1}),
    ("linear", 0.5, 2.5, {0.25: 0.5, 0.5: 1, 1.5: 0.5, 2.5: 0, 3.0: 0}),
  ],
)
def test_the_rate_rises_to_the_end_of_warmup_and_stays_or_falls(name, warmup, epochs, rates):
  rate = optimizers.schedule(name, rate=2e-5, warmup=warmup, epochs=epochs)
  actual = [float(rate(progress)) / 2e-5 for progress in rates]
  np.testing.assert_allclose(actual, list(rates.values()), atol=1e-6)


def test_decay_moves_matrices_alone():
  params = {"matrix": jnp.ones((2, 2)), "bias": jnp.ones(2)}
  grads = {"matrix": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}
  decayed = rule("sgd", weight_decay=0.1)
  updates, _ = decayed.update(grads, decayed.init(params), params)
  np.testing.assert_allclose(updates["matrix"], 0.1)
  np.testing.assert_allclose(updates["bias"], 0)
  stacked = {  # of two layers each
    "encoder/layers/kernel": jnp.ones((2, 3, 3)),
    "encoder/layers/bias": jnp.ones((2, 3)),
    "encoder/layers/norm/scale": jnp.ones((2, 3)),
    "encoder/layers/attention/r_w_bias": jnp.ones((2, 3, 3)),  # XLNet's, of each head
  }
  nothing = {path: jnp.zeros_like(value) for path, value in stacked.items()}
  updates, _ = decayed.update(nothing, decayed.init(stacked), stacked)
  np.testing.assert_allclose(updates.pop("encoder/layers/kernel"), 0.1)
  assert len(updates) == 3 and not any(np.any(value) for value in updates.values())


STACK = {
  "encoder/embeddings/word": jnp.ones((5, 2)),
  "encoder/layers/kernel": jnp.ones((3, 2, 2)),
  "encoder/layers/bias": jnp.ones((3, 2)),
  "head/kernel": jnp.ones((2, 1)),
}


TWO_FROZEN = (("^encoder/embeddings", 0.0), ("^encoder/layers/[01]/", 0.0))


def moved(**changes):
  """What a plain gradient step of all ones moves each parameter by."""
  stepped = rule("sgd", **changes)
  updates, _ = stepped.update(STACK, stepped.init(STACK), STACK)
  return updates


def test_the_rate_decays_from_the_top_layer_down():
  updates = moved(layer_decay=0.5)
  np.testing.assert_allclose(updates["encoder/layers/bias"][:, 0], [0.125, 0.25, 0.5])
  np.testing.assert_allclose(updates["encoder/layers/kernel"][:, 1, 1], [0.125, 0.25, 0.5])
  np.testing.assert_allclose(updates["encoder/embeddings/word"], 0.0625)
  np.testing.assert_allclose(updates["head/kernel"], 1)


def test_frozen_layers_stay_and_have_no_part_in_the_clipped_norm():
  updates = moved(lr_multipliers=TWO_FROZEN, weight_decay=0.1)
  assert not updates["encoder/embeddings/word"].any()
  np.testing.assert_allclose(updates["encoder/layers/kernel"][:, 0, 0], [0, 0, 1.1])
  clipped = moved(lr_multipliers=TWO_FROZEN, clip_norm=1.0)  # the norm of 4 + 2 + 2 ones
  np.testing.assert_allclose(clipped["head/kernel"], 8**-0.5, rtol=1e-6)


WITH_FIRST = {
  "encoder/embeddings/word": np.ones((5, 2)),
  "encoder/first_layer/kernel": np.ones((2, 2)),
  "encoder/layers/kernel": np.ones((2, 2, 2)),
  "encoder/final_norm/scale": np.ones(2),
  "head/kernel": np.ones((2, 1)),
}


def test_a_first_layer_outside_of_the_stack_is_layer_0():
  factors = optimizers.multipliers(WITH_FIRST, 0.5, ())
  assert {path: np.ravel(factor).tolist() for path, factor in factors.items()} == {
    "encoder/embeddings/word": [0.5**4],
    "encoder/first_layer/kernel": [0.5**3],
    "encoder/layers/kernel": [0.5**2, 0.5],
    "encoder/final_norm/scale": [1.0],
    "head/kernel": [1.0],
  }
  freeze = (("^encoder/layers/[01]/", 0.0),)
  tree = traverse_util.unflatten_dict(WITH_FIRST, sep="/")
  trainable, frozen = optimizers.split_frozen(tree, freeze)
  assert (
    not frozen
  )  # a part of the stack is trained, and its numbers begin behind the first layer's
  factors = optimizers.multipliers(trainable, 1.0, freeze)
  assert np.ravel(factors["encoder/first_layer/kernel"]).tolist() == [0.0]
  assert np.ravel(factors["encoder/layers/kernel"]).tolist() == [0.0, 1.0]
  assert len(optimizers.split_frozen(tree, (("^encoder/layers/[0-2]/", 0.0),))[1]) == 2


def test_multipliers_are_factors_by_path():
  updates = moved(lr_multipliers=(("^head", 10.0), ("bias$", 0.5)), layer_decay=0.5)
  np.testing.assert_allclose(updates["head/kernel"], 10)
  np.testing.assert_allclose(updates["encoder/layers/bias"][:, 0], [0.0625, 0.125, 0.25])


def test_impossible_multipliers_are_named():
  alone = {"head/kernel": jnp.ones((2, 1))}
  stepped = rule("sgd", layer_decay=0.9)
  with pytest.raises(InputError, match="no encoder with a stack"):
    stepped.update(alone, stepped.init(alone), alone)
  with pytest.raises(InputError, match="'zebra' matches no parameter"):
    optimizers.split_frozen(STACK, (("zebra", 2.0),))
