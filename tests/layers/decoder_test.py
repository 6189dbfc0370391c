"""Decoders: PyTorch's GRU on the same weights, and padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from recurrent_test import to_torch

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


def scores(values, hidden, tied):
  """Logits of an output, in numpy."""
  words = values["words"]
  if tied:
    hidden = hidden @ words["width"]["kernel"] + words["width"]["bias"]
  return hidden @ (TABLE if tied else words["words"]).T + words["bias"]


def log_softmax(x):
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


def theirs(values, tied):
  """Log-likelihoods by `torch.nn.GRU`, a text at a time."""
  layer = torch.nn.GRU(D + Z, H, batch_first=True)
  state = to_torch({"forward": values["layer"]["forward"]}, "")
  layer.load_state_dict({name: torch.tensor(x) for name, x in state.items()})
  actual = np.zeros((S, E, L))
  for s, e in np.ndindex(S, E):
    n, z = LENGTH[s, e], LATENT[s, e]
    start = np.tanh(z @ values["start"]["kernel"] + values["start"]["bias"])
    x = np.concatenate([TABLE[READ[s, e, :n]], np.tile(z, (n, 1))], axis=1)
    with torch.no_grad():
      hidden = layer(torch.tensor(x)[None], torch.tensor(start)[None, None])[0][0].numpy()
    log_p = log_softmax(scores(values, hidden, tied))
    actual[s, e, :n] = log_p[np.arange(n), TARGET[s, e, :n]]
  return actual


@pytest.mark.parametrize("tied, chunk", [(True, 0), (True, 4), (False, 0)])
def test_the_gru_is_that_of_torch(tied, chunk):
  module = decoder(tied=tied, chunk=chunk)
  values = params(module)
  actual = module.apply({"params": on_device(values)}, *ARGUMENTS)
  np.testing.assert_allclose(actual, theirs(values, tied), atol=1e-5)
  assert ("words" in values["words"]) != tied


@pytest.mark.parametrize("tied", [True, False])
def test_the_bag_is_one_softmax_a_text(tied):
  module = decoder("mlp", tied)
  values = params(module)
  actual = module.apply({"params": on_device(values)}, *ARGUMENTS)
  hidden = np.maximum(LATENT @ values["hidden"]["kernel"] + values["hidden"]["bias"], 0)
  log_p = log_softmax(scores(values, hidden, tied))
  wanted = np.where(REAL, np.take_along_axis(log_p, TARGET, -1), 0)
  np.testing.assert_allclose(actual, wanted, atol=1e-5)
