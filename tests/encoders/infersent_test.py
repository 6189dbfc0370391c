"""InferSent's sentence encoder: parity with PyTorch, and its published form of weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from rows import lay, vectors
from tiny_transformers import apply

from as2jax.encoders import infersent
from as2jax.encoders.infersent import RecurrentEncoder
from as2jax.layers.pooling import pool
from as2jax.runtime.errors import InputError

WORDS, WIDTH, HIDDEN = 30, 5, 7
SEQUENCES = [
  np.random.default_rng(n).integers(1, WORDS, n).astype(np.int32) for n in (4, 9, 6, 2, 7)
]
TABLE = np.random.default_rng(0).normal(0, 1, (WORDS, WIDTH)).astype(np.float32)


def encoder(**fields):
  defaults = dict(
    vocab_size=WORDS,
    word_size=WIDTH,
    hidden_size=HIDDEN,
    cell="lstm",
    bidirectional=True,
    hidden_dropout=0.0,
    unroll=1,
    precision="highest",
  )
  return RecurrentEncoder(**{**defaults, **fields})


@pytest.fixture(scope="module")
def published(tmp_path_factory):
  """A torch LSTM, and a file as InferSent's weights are published."""
  torch = pytest.importorskip("torch", reason="torch is not installed")
  torch.manual_seed(0)
  lstm = torch.nn.LSTM(WIDTH, HIDDEN, 1, bidirectional=True)
  path = tmp_path_factory.mktemp("infersent") / "infersent1.pkl"
  state = {f"enc_lstm.{name}": value for name, value in lstm.state_dict().items()}
  torch.save(state, path, _use_new_zipfile_serialization=False)  # as in 2017
  return torch, lstm, path


def test_equals_a_torch_lstm_with_maximum(published):
  torch, lstm, path = published
  params = {"embeddings/word": TABLE, **infersent.load(path)}
  params = traverse_util.unflatten_dict(jax.tree.map(jnp.asarray, params), sep="/")
  tokens, units = lay(SEQUENCES, [(1, 0), (2, 3, 4)], 16, unused=1)
  shapes = jax.eval_shape(lambda: encoder().init(jax.random.key(0), tokens, train=False))["params"]
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)
  hidden = apply(encoder(), params, tokens)
  sentences = np.asarray(pool(hidden, tokens, units, "max"))[0]
  np.testing.assert_array_equal(apply(encoder(), params, tokens, all_layers=True)[0], hidden)
  for place, member in enumerate((1, 0, 2, 3, 4)):
    with torch.no_grad():
      expected = lstm(torch.tensor(TABLE[SEQUENCES[member]])[:, None])[0][:, 0].numpy()
    np.testing.assert_allclose(vectors(hidden, units)[member], expected, atol=1e-6)
    np.testing.assert_allclose(sentences[place], expected.max(axis=0), atol=1e-6)
  assert not sentences[5].any()


def test_offset_and_packing():
  one, units_one = lay(SEQUENCES, [(n,) for n in range(5)], 9)
  packed, units_packed = lay(SEQUENCES, [(1, 0), (2, 3, 4)], 16)
  gru = encoder(cell="gru")
  params = gru.init(jax.random.key(0), one, train=False)["params"]
  alone, together = (
    vectors(apply(gru, params, tokens), units)
    for tokens, units in ((one, units_one), (packed, units_packed))
  )
  for member in range(5):
    np.testing.assert_allclose(alone[member], together[member], atol=1e-6)
  shifted = {**params, "embeddings": {"word": params["embeddings"]["word"] + 0.5}}
  offset = jnp.full((1, 2, 16, WIDTH), 0.5)
  np.testing.assert_allclose(
    apply(gru, params, packed, input_offset=offset), apply(gru, shifted, packed), atol=1e-6
  )
  assert gru.embedding_table(params).shape == (WORDS, WIDTH)


@pytest.mark.parametrize(
  ("change", "pattern"),
  [
    (lambda s: {k: v for k, v in s.items() if "reverse" not in k}, "one bidirectional"),
    (lambda s: {k: v for k, v in s.items() if "bias_hh" not in k}, "bias_hh_l0' is missing"),
    (lambda s: {**s, "enc_lstm.weight_ih_l1": s["enc_lstm.weight_ih_l0"]}, "one bidirectional"),
    (lambda s: {k: v[:21] for k, v in s.items()}, "one bidirectional LSTM"),
  ],
)
def test_other_weights_are_refused(published, tmp_path, change, pattern):
  torch, lstm, _ = published
  state = {f"enc_lstm.{name}": value for name, value in lstm.state_dict().items()}
  torch.save({k: v.clone() for k, v in change(state).items()}, tmp_path / "other.pkl")
  with pytest.raises(InputError, match=f"other.pkl.*{pattern}"):
    infersent.load(tmp_path / "other.pkl")
