"""Decoders: PyTorch's GRU on the same weights, padding, greedy generation by brute force."""

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


def test_greedy_words_are_the_most_probable_after_those_before():
  module = decoder()
  values = params(module)
  z = jnp.asarray(LATENT[0])
  actual = generate(module, values)
  own, table = {"params": on_device(values)}, jnp.asarray(TABLE)
  likelihood = jax.jit(
    lambda z, read, target: module.apply(
      own, z, table[read], target, jnp.ones(target.shape, bool), table
    )
  )
  ended = 0
  for n in range(E):
    words = [2]
    for t in range(4):
      read = jnp.asarray([*words, *[0] * (3 - t)], jnp.int32)
      each = jnp.broadcast_to(read, (1, V - 3, 4))
      target = jnp.broadcast_to(jnp.arange(3, V, dtype=jnp.int32)[None, :, None], each.shape)
      z_n = jnp.broadcast_to(z[n], (1, V - 3, Z))
      best = 3 + int(np.argmax(likelihood(z_n, each, target)[0, :, t]))
      if best == 3:
        assert not actual[n, t:].any()
        ended += 1
        break
      assert actual[n, t] == best
      words.append(best)
  assert ended < E  # else the words were never compared


def generate(module, values):
  arguments = jnp.asarray(LATENT[0]), jnp.asarray(TABLE), 4, 2, 3
  return np.asarray(module.apply({"params": on_device(values)}, *arguments, method="generate"))


def test_generation_stops_at_the_end_mark():
  module = decoder(tied=False)
  values = params(module)
  values["words"]["bias"][3] = 50
  np.testing.assert_array_equal(generate(module, values), 0)


def test_a_bag_gives_its_likeliest_words_without_marks():
  module = decoder("mlp")
  values = params(module)
  values["words"]["bias"][[0, 1, 2, 3]] = 50
  actual = generate(module, values)
  hidden = np.maximum(LATENT[0] @ values["hidden"]["kernel"] + values["hidden"]["bias"], 0)
  order = 4 + np.argsort(-scores(values, hidden, True)[:, 4:], axis=1)[:, :4]
  np.testing.assert_array_equal(actual, order)
