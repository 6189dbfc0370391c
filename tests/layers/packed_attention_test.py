"""The kernel of attention, interpreted: `attend`'s outputs and gradients, no leaks; lowered for a GPU."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from as2jax.encoders import weights
from as2jax.encoders.bert import BertEncoder
from as2jax.layers import packed_attention as kernels
from as2jax.layers import transformer

RATE = 0.3
KEY = jax.random.key(7)
SHAPE = 2, 48, 2, 16  # three tiles of 16 tokens
SEGMENTS = np.asarray([[1] * 5 + [2] * 20 + [3] * 15 + [0] * 8, [1] * 30 + [2] * 18], np.int32)
DROP = partial(transformer.drop_numbered, rate=RATE)


def normal(seed, shape=SHAPE, dtype=jnp.float32):
  """Queries, keys, values and the gradient of the output."""
  numbers = np.random.default_rng(seed).normal(size=(4, *shape))
  return [jnp.asarray(x, dtype) for x in numbers]


@partial(jax.jit, static_argnums=0)
def run(attention, arrays, segment):
  """Return the output and the gradients of queries, keys and values."""
  output, pull = jax.vjp(lambda *qkv: attention(*qkv, segment), *arrays[:3])
  return output, *pull(arrays[3])


def plain(query, key, value, segment):
  drop = partial(transformer.dropout, KEY, rate=RATE)
  return transformer.attend(query, key, value, transformer.segment_mask(segment), drop=drop)


def undropped(query, key, value, segment):
  return transformer.attend(query, key, value, transformer.segment_mask(segment))


def dropping(*arrays):
  words = transformer.hash_words(KEY)
  return kernels.packed_attention(*arrays, words, DROP, interpret=True)


def keeping(*arrays):
  return kernels.packed_attention(*arrays, jnp.zeros(2, jnp.uint32), interpret=True)


def test_outputs_and_gradients_are_those_of_the_plain_path_and_of_its_dropout():
  arrays, outputs = normal(0), []
  for theirs, ours in ((undropped, keeping), (plain, dropping)):
    expected, actual = (run(f, arrays, SEGMENTS) for f in (theirs, ours))
    outputs.append(actual[0])
    for a, b in zip(actual, expected, strict=True):
      np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max())
  assert np.abs(outputs[0] - outputs[1]).max() > 0.1


def test_bfloat16_is_as_near_to_float32_as_the_plain_path_is():
  arrays = normal(1, dtype=jnp.bfloat16)
  exact = run(plain, [x.astype(jnp.float32) for x in arrays], SEGMENTS)
  for a, b, c in zip(*(run(f, arrays, SEGMENTS) for f in (dropping, plain)), exact, strict=True):
    assert a.dtype == jnp.bfloat16
    a, b, c = (np.asarray(x, np.float64) for x in (a, b, c))
    assert np.sqrt(np.mean((a - b) ** 2)) < 1e-3 * np.abs(b).max()
    assert np.linalg.norm(a - c) < 1.25 * np.linalg.norm(b - c)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_no_segment_reads_another(data):
  """Whatever the layout: other tokens' numbers, however large, change not a bit, nor do their gradients."""
  count = SHAPE[0] * SHAPE[1]
  drawn = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
  segment = np.reshape(drawn, SHAPE[:2]).astype(np.int32)
  chosen = segment == data.draw(st.sampled_from(drawn))
  scale = data.draw(st.sampled_from([1e-3, 1.0, 1e4]))
  first, other = normal(3), normal(data.draw(st.integers(4, 99)))
  mixed = [jnp.where(chosen[..., None, None], a, scale * b) for a, b in zip(first, other)]
  for a, b in zip(run(dropping, first, segment), run(dropping, mixed, segment), strict=True):
    np.testing.assert_array_equal(a[chosen], b[chosen])


def test_a_layer_gives_the_kernel_the_key_of_its_dropout(monkeypatch):
  """Under `vmap` over seeds, too, which adds an axis to the grid."""
  interpreted = partial(kernels.packed_attention, interpret=True)
  monkeypatch.setattr(kernels, "packed_attention", interpreted)
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  monkeypatch.setattr(jax, "device_count", lambda: 1)
  x, segment = normal(4, (2, 32, 32))[0], jnp.asarray(SEGMENTS[:, 4:36])
  layer = transformer.SelfAttention(2, RATE, jnp.float32, None, "plain")
  kernel, mask = layer.clone(attention="kernel"), transformer.segment_mask(segment)
  params = jax.jit(partial(layer.init, train=False))(KEY, x, mask)
  drop = lambda layer, mask, key: layer.apply(params, x, mask, train=True, rngs={"dropout": key})
  two = lambda *how: jax.jit(jax.vmap(partial(drop, *how)))(jax.random.split(KEY, 2))
  expected = two(layer, mask)
  assert np.abs(expected[0] - expected[1]).max() > 0.01
  np.testing.assert_allclose(two(kernel, segment), expected, atol=1e-6)
  sizes = {"vocab_size": 9, "hidden_size": 32, "num_layers": 1, "num_heads": 2}
  # Its parameters are asked for without a batch, too.
  encoder = BertEncoder(**sizes, intermediate_size=8, max_positions=32)
  assert weights.shapes(encoder.clone(attention="kernel")) == weights.shapes(encoder)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")  # jax 0.12
@pytest.mark.parametrize("length", [128, 256, 512])
@pytest.mark.parametrize("width", [32, 64])
def test_it_lowers_for_cuda(length, width):
  gpu = {"device_kind": "NVIDIA H100", "num_cores": 132, "platform": "gpu"}
  known = [field.name for field in dataclasses.fields(AbstractDevice)]
  device = AbstractDevice(**{name: gpu[name] for name in known})
  mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)
  half = jax.ShapeDtypeStruct((2, length, 3, width), jnp.bfloat16)
  ints = jax.ShapeDtypeStruct((2, length), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.uint32)
  loss = lambda *given: kernels.packed_attention(*given, DROP).astype(jnp.float32).sum()
  with use_abstract_mesh(mesh):
    traced = jax.jit(jax.grad(loss, (0, 1, 2))).trace(half, half, half, *ints)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
  assert text.count("custom_call @__gpu$xla.gpu.triton") == 2  # forward, and the gradient
  assert f"tensor<2x3x{length}x{length}x" not in text  # no scores in memory
