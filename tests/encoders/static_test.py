"""Static vectors behind the encoder contract, what a run keeps of them; InferSent beside PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from tiny_transformers import apply, lay, vectors

from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenizer import SKIPPED
from as2jax.encoders import infersent, static
from as2jax.encoders.infersent import RecurrentEncoder
from as2jax.encoders.static import StaticEncoder
from as2jax.layers.pooling import pool
from as2jax.runtime.errors import InputError

TEXTS = ["Ice caves form", "the Caves of ICE", "the glacier's ice"]
ROWS = {
  "the": [1, 1],
  "ice": [2, 4],
  "caves": [3, 3],
  "Caves": [5, 5],
  "'s": [7, 7],
  "<s>": [8, 8],
  "</s>": [9, 9],
  "rest": [0, 6],
}
SEQUENCES = [np.random.default_rng(n).integers(1, 30, n).astype(np.int32) for n in (4, 9, 6, 2, 7)]


@pytest.fixture
def path(tmp_path):
  rows = "".join(f"{word} {a} {b}\n" for word, (a, b) in ROWS.items())
  (tmp_path / "vectors.txt").write_text(rows)
  return tmp_path / "vectors.txt"


def prepare(path, texts=TEXTS, **settings):
  defaults = dict(vocabulary="data", lower=False, treebank=False, unknown_words="zero", markers=())
  return static.prepare(texts, path, **{**defaults, **settings})


def encoded(encoding, text):
  """(token, vector) of each token of a text."""
  ids = encoding.tokenizer.encode([text]).ids
  return list(zip(encoding.tokenizer.tokens(ids), encoding.table[ids].tolist(), strict=True))


def test_each_word_has_its_vector(path):
  encoding = prepare(path)
  assert encoded(encoding, "the Caves of ICE new") == [
    ("the", [1, 1]),
    ("Caves", [5, 5]),
    ("of", [0, 0]),
    ("ICE", [2, 4]),
    ("[UNK]", [0, 0]),
  ]
  statistics = encoding.statistics
  assert (statistics["types"], statistics["oov_types"]) == (9, 3)
  assert (statistics["tokens"], statistics["oov_tokens"]) == (10, 3)
  assert statistics["frequent_oov"] == ["form", "glacier's", "of"]
  assert statistics["vectors"]["rows"] == 8 and statistics["vectors"]["kept"] == 4
  assert statistics["size"] == len(encoding.table) == encoding.tokenizer.vocab_size == 11


def test_policies_for_unknown_words(path):
  assert encoded(prepare(path, unknown_words="skip"), "of ice form") == [("ice", [2, 4])]
  assert encoded(prepare(path, unknown_words="skip"), "of form") == [(SKIPPED, [0, 0])]
  mean = np.mean([ROWS[word] for word in ("the", "ice", "caves", "Caves")], axis=0).tolist()
  assert encoded(prepare(path, unknown_words="mean"), "of ice") == [("of", mean), ("ice", [2, 4])]
  drawn = prepare(path, unknown_words="uniform")
  (_, of), (_, form), (_, new) = encoded(drawn, "of form new")
  assert len({tuple(of), tuple(form), tuple(new)}) == 3
  assert max(map(abs, [*of, *form, *new])) <= 0.25
  assert not drawn.table[0].any()  # padding
  fewer = prepare(path, TEXTS[1:], unknown_words="uniform")
  assert encoded(fewer, "of") == [("of", of)]


def test_the_whole_file_may_be_the_vocabulary(path):
  encoding = prepare(path, vocabulary="file", unknown_words="skip")
  assert encoded(encoding, "rest ICE The caves") == [
    ("rest", [0, 6]),
    ("ICE", [2, 4]),
    ("caves", [3, 3]),
  ]
  assert word_tokenizer.entries(encoding.tokenizer)[2:] == [*ROWS, "ICE", "Ice"]
  assert encoding.statistics["oov_types"] == 3


def test_lower_case_treebank_and_markers(path):
  lower = prepare(path, lower=True, treebank=True, unknown_words="skip", markers=("<s>", "</s>"))
  assert encoded(lower, "Glacier's CAVES") == [("'s", [7, 7]), ("caves", [3, 3])]
  special = lower.tokenizer.special
  (before, _), (after, _) = *special.single_before, *special.single_after
  assert lower.table[[before, after]].tolist() == [[8, 8], [9, 9]]


def test_unknown_settings_are_named(path):
  with pytest.raises(InputError, match="encoder.vocabulary = 'all': use one of data, file"):
    prepare(path, vocabulary="all")
  with pytest.raises(InputError, match="encoder.unknown_words = 'none': use one of zero"):
    prepare(path, unknown_words="none")


@pytest.mark.parametrize("name", ["vectors.json", "vectors.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["absent", "cut off", "another's"])
def test_a_damaged_folder_is_refused(path, tmp_path, name, damage):
  static.save(prepare(path), tmp_path / "kept")
  static.save(prepare(path, unknown_words="mean", lower=True), tmp_path / "other")
  file = tmp_path / "kept" / name
  content = {"absent": b"", "cut off": file.read_bytes()[:20]}
  file.write_bytes(content.get(damage, (tmp_path / "other" / name).read_bytes()))
  if damage == "absent":
    file.unlink()
  with pytest.raises(InputError, match="kept"):
    static.load(tmp_path / "kept")


ENCODER = StaticEncoder(vocab_size=30, hidden_size=6, hidden_dropout=0.0)
PARAMS = {
  "embeddings": {"word": jnp.asarray(np.random.default_rng(0).normal(0, 1, (30, 6)), jnp.float32)}
}


def test_rows_of_the_table_behind_the_contract():
  tokens, units = lay(SEQUENCES, [(1, 0), (2, 3, 4)], 16, unused=1)
  shapes = jax.eval_shape(lambda: ENCODER.init(jax.random.key(0), tokens, train=False))["params"]
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, PARAMS)
  table = np.asarray(ENCODER.embedding_table(PARAMS))
  hidden = apply(ENCODER, PARAMS, tokens)
  assert hidden.shape == (1, 2, 16, 6) and hidden.dtype == jnp.float32
  pooled = np.asarray(pool(hidden, tokens, units, "mean"))[0]
  for place, member in enumerate((1, 0, 2, 3, 4)):
    expected = table[SEQUENCES[member]]
    np.testing.assert_array_equal(vectors(hidden, units)[member], expected)
    np.testing.assert_allclose(pooled[place], expected.mean(axis=0), atol=1e-6)
  offset = jnp.ones((1, 2, 16, 6))
  np.testing.assert_array_equal(apply(ENCODER, PARAMS, tokens, input_offset=offset), hidden + 1)
  np.testing.assert_array_equal(apply(ENCODER, PARAMS, tokens, all_layers=True), hidden[None])


WORDS, WIDTH, HIDDEN = 30, 5, 7
TABLE = np.random.default_rng(0).normal(0, 1, (WORDS, WIDTH)).astype(np.float32)


INFERSENT = RecurrentEncoder(WORDS, WIDTH, HIDDEN, "lstm", True, 0.0, 1, "highest")


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
  shapes = jax.eval_shape(lambda: INFERSENT.init(jax.random.key(0), tokens, train=False))["params"]
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)
  hidden = apply(INFERSENT, params, tokens)
  sentences = np.asarray(pool(hidden, tokens, units, "max"))[0]
  np.testing.assert_array_equal(apply(INFERSENT, params, tokens, all_layers=True)[0], hidden)
  for place, member in enumerate((1, 0, 2, 3, 4)):
    with torch.no_grad():
      expected = lstm(torch.tensor(TABLE[SEQUENCES[member]])[:, None])[0][:, 0].numpy()
    np.testing.assert_allclose(vectors(hidden, units)[member], expected, atol=1e-6)
    np.testing.assert_allclose(sentences[place], expected.max(axis=0), atol=1e-6)
  assert not sentences[5].any()


def test_an_offset_is_added_to_the_word_vectors():
  """Packing is that of `layers/recurrent_test.py`."""
  packed, _ = lay(SEQUENCES, [(1, 0), (2, 3, 4)], 16)
  gru = INFERSENT.clone(cell="gru")
  params = gru.init(jax.random.key(0), packed, train=False)["params"]
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
