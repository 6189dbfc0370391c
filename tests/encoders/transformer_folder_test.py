"""Finding an encoder, reading its config and weights, and what is said when they are not right."""

import json
import time

import jax
import numpy as np
import pytest
import tiny
import tiny_encoders
from safetensors.numpy import load_file, save_file

from as2jax.encoders import hub, transformer_folder, weights
from as2jax.encoders.bert import BERT, BertEncoder
from as2jax.runtime.errors import InputError

CONFIG = {**tiny.SIZES, "vocab_size": len(tiny.vocabulary())}


def bert_tensors():
  """Every tensor of Hugging Face's BertModel of `CONFIG`, whose names parity_test proves."""
  return load_file(f"{tiny.encoder_folder()}/model.safetensors")


def write(folder, tensors, **config):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
  if tensors is not None:
    save_file(tensors, folder / "model.safetensors")
  return folder


@pytest.fixture
def folder(tmp_path):
  return write(tmp_path / "bert", bert_tensors())


def same(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


def test_tensors_become_parameters_and_the_same_tensors_again(folder):
  tensors = bert_tensors()
  encoder = tiny.encoder_module(folder)
  params = transformer_folder.load_params(folder, encoder)
  kernel = params["layers"]["feed_forward"]["intermediate"]["kernel"]
  assert kernel.shape == (2, 16, 32) and kernel.dtype == np.float32
  np.testing.assert_array_equal(kernel[1], tensors["encoder.layer.1.intermediate.dense.weight"].T)
  assert (BertEncoder.embedding_table(params) == tensors["embeddings.word_embeddings.weight"]).all()
  pooler = transformer_folder.load_pooler(folder, BERT)
  np.testing.assert_array_equal(pooler["kernel"], tensors["pooler.dense.weight"].T)
  same(weights.to_tensors(params, encoder, pooler), tensors)


XLNET = dict(model_type="xlnet", vocab_size=9, d_model=8, n_layer=1, n_head=2, d_inner=8)
DISTILBERT = dict(model_type="distilbert", vocab_size=9, dim=8, n_layers=1, n_heads=2, hidden_dim=8)
MODERNBERT = {**CONFIG, "model_type": "modernbert", "num_hidden_layers": 3}
MODERNBERT |= {"hidden_activation": "gelu"}
DEBERTA = {
  **CONFIG,
  "model_type": "deberta-v2",
  "max_position_embeddings": 40,
  **tiny_encoders.DEBERTA,
}
KINDS = ["full_attention", "sliding_attention", "full_attention"]
# A config's changes to a family's, and what is said of them.
REFUSED = [
  (CONFIG, {"hidden_size": 10**9}, "hidden_size is .*expected an integer from 1 to 65,536"),
  (CONFIG, {"hidden_size": "8"}, "hidden_size is '8'; expected an integer"),
  (CONFIG, {"hidden_size": 9}, "hidden_size 9 is not a multiple of num_attention_heads 2"),
  (CONFIG, {"num_hidden_layers": True}, "num_hidden_layers is True; expected an integer"),
  (CONFIG, {"layer_norm_eps": float("nan")}, "layer_norm_eps is nan; expected a number"),
  (CONFIG, {"attention_probs_dropout_prob": 1.5}, "dropout_prob is 1.5; expected a number"),
  (CONFIG, {"hidden_act": ["gelu"]}, "hidden_act is .*; expected gelu"),
  (CONFIG, {"position_embedding_type": "relative_key"}, "relative_key'; expected absolute"),
  (CONFIG, {"model_type": {"a": 1}}, "model_type is .*known are bert, .*xlnet"),
  (CONFIG, {"model_type": "gpt2"}, "model_type is 'gpt2'; known are bert"),
  (CONFIG, {"is_decoder": True}, "is_decoder is True; only false is implemented"),
  ({}, {"model_type": "bert"}, "'vocab_size' is missing"),
  ({**CONFIG, "model_type": "mpnet"}, {"relative_attention_num_buckets": 2}, "num_buckets is 2"),
  (XLNET, {"n_head": 3}, "d_model 8 is not a multiple of n_head 3"),
  (XLNET, {"attn_type": "none"}, "attn_type is 'none'; expected bi, uni"),
  (XLNET, {"bi_data": True}, "bi_data is True; only false"),
  (DEBERTA, {"conv_kernel_size": 3}, "conv_kernel_size is 3; only false"),
  (DEBERTA, {"pos_att_type": "c2p"}, "pos_att_type is .'c2p'.; only .'p2c', 'c2p'. is"),
  (DEBERTA, {"share_att_key": False}, "share_att_key is False; only True"),
  (DEBERTA, {"position_biased_input": None}, "position_biased_input is None; only False"),
  (DEBERTA, {"embedding_size": 4}, "embedding_size is 4; only 16"),
  (DEBERTA, {"position_buckets": -1}, "position_buckets is -1; expected an integer from 4"),
  (DEBERTA, {"position_buckets": 80}, "buckets is 80; expected fewer than twice the 40 positions"),
  (DISTILBERT, {"n_heads": 3}, "dim 8 is not a multiple of n_heads 3"),
  (MODERNBERT, {"attention_bias": True}, "attention_bias is True; only false"),
  (MODERNBERT, {"layer_types": KINDS[:2]}, "layer_types: only 3 layers of"),
  (MODERNBERT, {"layer_types": KINDS[1:] + KINDS[1:2]}, "the first in every n-th layer"),
  (MODERNBERT, {"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is .*yarn"),
  (MODERNBERT, {"global_rope_theta": "far"}, "to float: 'far'"),
  (MODERNBERT, {"rope_parameters": {"rope_theta": 1e4}}, "'rope_theta'.*for each of full_att"),
]


@pytest.mark.parametrize("config, change, message", REFUSED)
def test_a_config_that_is_not_implemented_is_named_with_its_key(tmp_path, config, change, message):
  (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
  with pytest.raises(InputError, match=rf"^{tmp_path}/config.json: .*{message}"):
    transformer_folder.read_family(tmp_path)[1]


@pytest.mark.parametrize("text", ["[" * 10**5, '{"vocab_size": 1', b"\xff", "[]", None])
def test_what_is_no_config_is_one_error(tmp_path, text):
  file = tmp_path / "config.json"
  if text is not None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(InputError, match="(not valid JSON|no JSON object|cannot be read).*again"):
    transformer_folder.read_family(tmp_path)[1]


def test_old_names_prefix_heads_and_half_precision_are_read(folder, tmp_path):
  expected = transformer_folder.load_params(folder, tiny.encoder_module(folder))
  old = {}
  encoder_only = {k: v for k, v in bert_tensors().items() if not k.startswith("pooler")}
  for name, tensor in encoder_only.items():
    if "LayerNorm" in name:
      name = name.replace("weight", "gamma").replace("bias", "beta")
    old[f"bert.{name}"] = tensor
  for name in (
    "cls.predictions.bias",
    "cls.seq_relationship.weight",
    "classifier.weight",
    "bert.embeddings.position_ids",
  ):
    old[name] = np.zeros(3, np.float32)
  other = write(tmp_path / "old", old)
  same(transformer_folder.load_params(other, tiny.encoder_module(other)), expected)
  assert transformer_folder.load_pooler(other, BERT) is None
  half = write(tmp_path / "half", {k: v.astype(np.float16) for k, v in bert_tensors().items()})
  params = transformer_folder.load_params(half, tiny.encoder_module(half))
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(params))
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
  jax.tree.map(close, params, expected)


KEY = "encoder.layer.1.attention.self.key.weight"


@pytest.mark.parametrize(
  "change, config, message",
  [
    (lambda t: t.pop(KEY), {}, rf"{KEY}.*missing.*\[16, 16\]"),
    (lambda t: t.update({KEY: np.zeros((8, 4), np.float32)}), {}, rf"{KEY}.*\[8, 4\].*\[16, 16\]"),
    (lambda t: t.update(extra=np.zeros(3, np.float32)), {}, r"'extra' \[3\].* has no place"),
    (lambda t: None, {"vocab_size": 12}, r"word_embeddings.*\[\d+, 16\].*\[12, 16\]"),
    (lambda t: None, {"num_hidden_layers": 3}, r"encoder.layer.2.*missing"),
    (lambda t: None, {"num_hidden_layers": 1}, r"encoder.layer.1.*16 such.*no place.*1 layers"),
  ],
)
def test_a_tensor_that_does_not_fit_is_named(tmp_path, change, config, message):
  tensors = bert_tensors()
  change(tensors)
  folder = write(tmp_path / "bert", tensors, **config)
  with pytest.raises(InputError, match=message) as caught:
    transformer_folder.load_params(folder, tiny.encoder_module(folder))
  assert str(folder / "model.safetensors") in str(caught.value)


def test_folders_packages_and_names_below_the_data_are_found(folder, tmp_path, monkeypatch):
  assert str(hub.resolve(str(folder))) == str(folder)
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  published = write(tmp_path / "somebody" / "encoder", None)
  assert str(hub.resolve("somebody/encoder")) == str(published) and not hub.absent(
    "somebody/encoder"
  )
  package = tmp_path / "some_encoder"
  package.mkdir()
  (package / "__init__.py").write_text("")
  write(package / "model", None)
  monkeypatch.syspath_prepend(str(tmp_path))
  assert str(hub.resolve("package:some_encoder/model")) == str(package / "model")
  monkeypatch.setenv("HOME", str(tmp_path))
  assert str(hub.resolve("~/bert")) == str(folder)


def test_what_is_not_there_is_named():
  for spec, message in (
    ("package:no_such_package/model", "'no_such_package' is not installed; `pip install"),
    ("package:json/model", "has no config.json"),
    ("./no/such/folder", "no such folder.*:sample"),
    ("", "no such folder"),
  ):
    with pytest.raises(InputError, match=message):
      hub.resolve(spec)


@pytest.fixture
def cache(tmp_path, monkeypatch):
  """A Hugging Face client with an empty cache and no network."""
  from huggingface_hub import constants

  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
  monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
  return tmp_path / "hub"


def test_without_a_network_a_hub_name_fails_within_seconds(cache):
  start = time.monotonic()
  with pytest.raises(InputError) as caught:
    hub.resolve("bert-base-uncased")
  assert time.monotonic() - start < 20
  message = str(caught.value)
  for part in ("bert-base-uncased", str(cache), "127.0.0.1:9", "hf download", ":sample"):
    assert part in message
  assert "\n" not in message


@pytest.fixture
def snapshot(cache):
  """The folder of bert-base-uncased in the cache, still empty."""
  folder = cache / "models--bert-base-uncased" / "snapshots" / ("0" * 40)
  folder.mkdir(parents=True)
  refs = cache / "models--bert-base-uncased" / "refs"
  refs.mkdir()
  (refs / "main").write_text("0" * 40)
  return folder


def test_the_local_cache_comes_before_the_network(snapshot):
  """Half a snapshot is none, and what it lacks is named."""

  def lacks(name):
    with pytest.raises(InputError, match=rf"only in part .without .*{name}.*did not give"):
      hub.resolve("bert-base-uncased")

  write(snapshot, None)
  lacks("model.safetensors")
  part = "model-00002-of-00002.safetensors"
  (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": part}}))
  (snapshot / "model-00001-of-00002.safetensors").touch()
  lacks(part)
  write(snapshot, bert_tensors())
  lacks("the tokeniser in .*vocab.txt")
  (snapshot / "vocab.txt").touch()
  assert str(hub.resolve("bert-base-uncased")) == str(snapshot)
  modules = {"1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
  listed = [{"path": k, "type": f"sentence_transformers.models.{v}"} for k, v in modules.items()]
  (snapshot / "modules.json").write_text(json.dumps(listed))
  for name in ("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"):
    lacks(name)
    (snapshot / name).parent.mkdir(exist_ok=True)
    (snapshot / name).touch()
  assert str(hub.resolve("bert-base-uncased")) == str(snapshot)
