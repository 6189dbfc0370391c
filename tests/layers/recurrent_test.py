"""GRU and LSTM: PyTorch's numbers and gradients on the same weights, packing."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tiny_elmo import numbered
from tiny_transformers import ALONE, lay, vectors

from as2jax.layers.recurrent import Recurrent, from_torch
from as2jax.runtime.errors import InputError

D, H = 5, 7
RNG = np.random.default_rng(0)
SEQUENCES = [RNG.normal(size=(n, D)).astype(np.float32) for n in (4, 9, 1, 6, 2)]
NUMBERS = numbered(SEQUENCES)  # of their vectors, in a table of all
CASES = [("gru", False), ("gru", True), ("lstm", False), ("lstm", True)]


def recurrent(cell, bidirectional, unroll=1):
  return Recurrent(cell, H, bidirectional, unroll, "highest")


def placed(vectors, tokens, padding):
  """The vectors of the sequences where their numbers lie, `[row, token, …]`."""
  table = np.concatenate([np.full_like(vectors[0][:1], padding), *vectors])
  return jnp.asarray(table[np.asarray(tokens.ids[0])], jnp.float32)


def read(tokens):
  """(x, position, segment), padding filled with large numbers."""
  return placed(SEQUENCES, tokens, 1e3), tokens.position[0], tokens.segment[0]


@functools.partial(jax.jit, static_argnums=0)
def outputs_and_gradient(layer, params, data, weight):
  def loss(params):
    outputs = layer.apply({"params": params}, *data)
    return (outputs * weight).sum(), outputs

  gradient, outputs = jax.grad(loss, has_aux=True)(params)
  return outputs, gradient


def torch_pair(cell, bidirectional):
  """A torch module with random weights, and the same weights as parameters."""
  torch = pytest.importorskip("torch", reason="torch is not installed")
  torch.manual_seed(0)
  module = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](
    D, H, batch_first=True, bidirectional=bidirectional
  )
  with torch.no_grad():
    for parameter in module.parameters():
      parameter.mul_(2)
  tensors = {f"rnn.{k}": v.detach().numpy() for k, v in module.state_dict().items()}
  return torch, module, from_torch(tensors, "rnn.")


def initialised(layer):
  params = layer.init(jax.random.key(0), *read(lay(NUMBERS, ALONE, 9)[0]))["params"]
  return jax.tree.map(lambda p: 2 * p, params)


@pytest.mark.parametrize("cell, bidirectional", CASES)
def test_equals_torch_with_its_gradients_however_sequences_are_packed(cell, bidirectional):
  torch, module, params = torch_pair(cell, bidirectional)
  rng, width = np.random.default_rng(1), H * (1 + bidirectional)
  weights = [rng.normal(size=(len(x), width)) for x in SEQUENCES]
  packed = torch.nn.utils.rnn.pack_sequence(
    [torch.tensor(x) for x in SEQUENCES], enforce_sorted=False
  )
  padded, _ = torch.nn.utils.rnn.pad_packed_sequence(module(packed)[0], batch_first=True)
  expected = [v[: len(x)] for v, x in zip(padded, SEQUENCES)]
  sum((v * torch.tensor(w)).sum() for v, w in zip(expected, weights)).backward()
  theirs = from_torch({name: p.grad.numpy() for name, p in module.named_parameters()}, "")
  packings = (ALONE, 11, 1), ([(4, 1, 3, 2, 0)], 22, 1), ([(4, 3, 2), (), (0, 1)], 14, 4)
  for rows, length, unroll in packings:
    tokens, units = lay(NUMBERS, rows, length)
    layer, weight = recurrent(cell, bidirectional, unroll=unroll), placed(weights, tokens, 0)
    outputs, gradient = outputs_and_gradient(layer, params, read(tokens), weight)
    assert not np.asarray(outputs)[np.asarray(tokens.segment[0]) == 0].any()
    for n, actual in vectors(outputs[None], units).items():
      np.testing.assert_allclose(actual, expected[n].detach(), atol=1e-6, rtol=0)
    assert jax.tree.structure(gradient) == jax.tree.structure(theirs)
    for leaf, wanted in zip(jax.tree.leaves(gradient), jax.tree.leaves(theirs)):
      assert np.abs(leaf).max() > 0.1
      np.testing.assert_allclose(leaf, wanted, atol=1e-5 * np.abs(leaf).max(), rtol=0)


def test_devices_meet_outside_the_loop_alone():
  mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
  rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["data"], []))
  layer, data = recurrent("lstm", True), read(lay(NUMBERS, [(0, 1), (3, 4)], 14)[0])
  loss = lambda params, *data: jnp.square(layer.apply({"params": params}, *data)).sum()
  shardings = whole, rows, rows, rows
  lowered = jax.jit(jax.grad(loss), in_shardings=shardings).lower(initialised(layer), *data)
  loops, entry = lowered.compile().as_text().split("\nENTRY ")
  meeting = r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(-start)?\("
  assert " while(" in entry and re.search(meeting, entry) and not re.search(meeting, loops)


def test_what_does_not_fit_is_named():
  shapes = {"weight_ih": (3 * H, D), "weight_hh": (3 * H, H), "bias_ih": 3 * H, "bias_hh": 3 * H}
  ends = itertools.product(shapes, ("_l0", "_l0_reverse"))
  tensors = {f"enc.{name}{end}": np.zeros(shapes[name]) for name, end in ends}
  assert from_torch(tensors, "enc.").keys() == {"forward", "backward"}
  with pytest.raises(InputError, match=r"'enc\.bias_hh_l0_reverse' is missing"):
    from_torch({k: v for k, v in tensors.items() if k != "enc.bias_hh_l0_reverse"}, "enc.")
  with pytest.raises(InputError, match=r"'weight_ih_l0' is missing"):
    from_torch(tensors, "")
  for name, shape in (("weight_hh_l0", (21, 6)), ("bias_ih_l0", (20,)), ("weight_ih_l0", (20, 5))):
    with pytest.raises(InputError, match="shapes.*neither a GRU nor an LSTM"):
      from_torch(tensors | {f"enc.{name}": np.zeros(shape)}, "enc.")
