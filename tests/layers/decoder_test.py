"""Decoders: an output of their own, the bag's softmax; the step of Cross-VAEs is PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from as2jax.layers.decoder import BagDecoder, GRUDecoder

RNG = np.random.default_rng(0)
S, E, L, Z, D, H, V = 2, 3, 5, 4, 6, 7, 11
LATENT = RNG.normal(size=(S, E, Z)).astype(np.float32)
READ = RNG.integers(1, V, (S, E, L)).astype(np.int32)
TARGET = RNG.integers(3, V, (S, E, L)).astype(np.int32)
LENGTH = RNG.integers(1, L + 1, (S, E))
REAL = np.arange(L) < LENGTH[..., None]
TABLE = RNG.normal(size=(V, D)).astype(np.float32)
ARGUMENTS = tuple(map(jnp.asarray, (LATENT, TABLE[READ], TARGET, REAL, TABLE)))


def decoder(kind="gru", tied=True, chunk=0):
  if kind == "mlp":
    return BagDecoder(H, tied, "highest")
  return GRUDecoder(H, tied, chunk, 1, "highest")


def params(module):
  shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *ARGUMENTS))["params"]
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda x: rng.normal(0, 0.5, x.shape).astype(np.float32), shapes)


def on_device(values):
  return jax.tree.map(jnp.asarray, values)


def test_an_output_of_its_own_in_chunks_has_the_numbers_of_the_tied_one():
  values = params(decoder())
  width, bias = values["words"]["width"], values["words"]["bias"]
  own = {"words": TABLE @ width["kernel"].T, "bias": bias + TABLE @ width["bias"]}
  expected = decoder().apply({"params": on_device(values)}, *ARGUMENTS)
  untied = {"params": on_device({**values, "words": own})}
  actual = decoder(tied=False, chunk=4).apply(untied, *ARGUMENTS)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  assert np.asarray(expected)[REAL].all() and not np.asarray(expected)[~REAL].any()


@pytest.mark.parametrize("tied", [True, False])
def test_the_bag_is_one_softmax_a_text(tied):
  module = decoder("mlp", tied)
  values = params(module)
  actual = module.apply({"params": on_device(values)}, *ARGUMENTS)
  hidden = np.maximum(LATENT @ values["hidden"]["kernel"] + values["hidden"]["bias"], 0)
  words = values["words"]
  if tied:
    hidden = hidden @ words["width"]["kernel"] + words["width"]["bias"]
  logits = hidden @ (TABLE if tied else words["words"]).T + words["bias"]
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  wanted = np.where(REAL, np.take_along_axis(log_p, TARGET, -1), 0)
  np.testing.assert_allclose(actual, wanted, atol=1e-5)
