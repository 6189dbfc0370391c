"""Finding an encoder, reading its config and weights, and what is said when they are not right."""

import json
import os
import time

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.checkpoints import pretrained
from as2jax.runtime.errors import InputError

CONFIG = dict(
  model_type="bert",
  vocab_size=11,
  hidden_size=8,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=12,
  max_position_embeddings=6,
  type_vocab_size=2,
  layer_norm_eps=1e-7,
  hidden_act="relu",
  hidden_dropout_prob=0.2,
  attention_probs_dropout_prob=0.3,
)


def layer_tensors(layer):
  stem = f"encoder.layer.{layer}."
  shapes = {f"attention.self.{x}": (8, 8) for x in ("query", "key", "value")}
  shapes |= {"attention.output.dense": (8, 8), "intermediate.dense": (12, 8)}
  shapes["output.dense"] = (8, 12)
  names = {f"{stem}{name}.weight": shape for name, shape in shapes.items()}
  names |= {f"{stem}{name}.bias": shape[:1] for name, shape in shapes.items()}
  for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
    names |= {f"{stem}{norm}.weight": (8,), f"{stem}{norm}.bias": (8,)}
  return names


def bert_tensors():
  """Every tensor of Hugging Face's BertModel of `CONFIG`, written out independently of the map."""
  shapes = {
    "embeddings.word_embeddings.weight": (11, 8),
    "embeddings.position_embeddings.weight": (6, 8),
    "embeddings.token_type_embeddings.weight": (2, 8),
    "embeddings.LayerNorm.weight": (8,),
    "embeddings.LayerNorm.bias": (8,),
    "pooler.dense.weight": (8, 8),
    "pooler.dense.bias": (8,),
  }
  for layer in range(3):
    shapes |= layer_tensors(layer)
  rng = np.random.default_rng(0)
  return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write(folder, tensors, **config):
  folder.mkdir(exist_ok=True)
  (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
  if tensors is not None:
    save_file(tensors, folder / "model.safetensors")
  return folder


def encoder_of(folder):
  return BertEncoder(**pretrained.read_config(folder))


@pytest.fixture
def folder(tmp_path):
  return write(tmp_path / "bert", bert_tensors())


def same(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


def test_config_becomes_fields(folder):
  assert pretrained.read_config(folder) == dict(
    vocab_size=11,
    hidden_size=8,
    num_layers=3,
    num_heads=2,
    intermediate_size=12,
    max_positions=6,
    type_vocab_size=2,
    position_offset=0,
    layer_norm_eps=1e-7,
    hidden_dropout=0.2,
    attention_dropout=0.3,
    activation="relu",
  )


def test_tensors_become_parameters_and_the_same_tensors_again(folder):
  tensors = bert_tensors()
  params = pretrained.load_params(folder, encoder_of(folder))
  kernel = params["layers"]["feed_forward"]["intermediate"]["kernel"]
  assert kernel.shape == (3, 8, 12) and kernel.dtype == np.float32
  np.testing.assert_array_equal(kernel[1], tensors["encoder.layer.1.intermediate.dense.weight"].T)
  assert (BertEncoder.embedding_table(params) == tensors["embeddings.word_embeddings.weight"]).all()
  pooler = pretrained.load_pooler(folder)
  np.testing.assert_array_equal(pooler["kernel"], tensors["pooler.dense.weight"].T)
  same(pretrained.to_tensors(params, pooler), tensors)


@pytest.mark.parametrize(
  "key, value, message",
  [
    ("hidden_size", 10**9, "expected an integer from 1 to 65,536"),
    ("hidden_size", -8, "is -8; expected an integer"),
    ("hidden_size", "8", "is '8'; expected an integer"),
    ("hidden_size", 8.0, "is 8.0; expected an integer"),
    ("hidden_size", None, "is None; expected an integer"),
    ("hidden_size", 9, "is not a multiple of num_attention_heads 2"),
    ("num_attention_heads", 0, "is 0; expected an integer"),
    ("num_hidden_layers", 10**6, "expected an integer from 1 to 1,024"),
    ("num_hidden_layers", True, "is True; expected an integer"),
    ("vocab_size", 10**30, "expected an integer"),
    ("vocab_size", [11], "expected an integer"),
    ("max_position_embeddings", 2**31, "expected an integer"),
    ("type_vocab_size", {}, "expected an integer"),
    ("intermediate_size", 10**12, "expected an integer"),
    ("layer_norm_eps", float("nan"), "expected a number from 0 to 1"),
    ("hidden_dropout_prob", "0.1", "expected a number from 0 to below 1"),
    ("attention_probs_dropout_prob", 1.5, "expected a number from 0 to below 1"),
    ("hidden_act", ["gelu"], "expected a word"),
    ("model_type", {"a": 1}, "known are bert"),
  ],
)
def test_an_absurd_value_is_named_with_its_key(tmp_path, key, value, message):
  folder = write(tmp_path / "bert", None, **{key: value})
  with pytest.raises(InputError, match=rf"^{folder}/config.json: {key}.*{message}"):
    pretrained.read_config(folder)


@pytest.mark.parametrize(
  "change", [{"d_model": 10**9}, {"n_head": 0}, {"d_head": -4}, {"n_head": 3}]
)
def test_an_absurd_value_of_an_xlnet_is_named_with_its_key(tmp_path, change):
  config = {"model_type": "xlnet", "vocab_size": 9, "d_model": 8, "n_layer": 1, "n_head": 2}
  folder = tmp_path / "xlnet"
  folder.mkdir()
  (folder / "config.json").write_text(json.dumps({**config, "d_inner": 8, **change}))
  (key,) = change
  with pytest.raises(InputError, match=f"^{folder}/config.json: .*{key}"):
    pretrained.read_config(folder)


def test_the_largest_sizes_cost_nothing(folder):
  (folder / "config.json").write_text(
    json.dumps(
      {**CONFIG, "vocab_size": 1 << 24, "hidden_size": 1 << 16, "intermediate_size": 1 << 18}
    )
  )
  with pytest.raises(InputError, match=r"has shape \[.*the config asks for"):
    pretrained.load_params(folder, encoder_of(folder))


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, '{"vocab_size": 1', b"\xff", "[]"])
def test_what_is_no_config_is_one_error(folder, text):
  file = folder / "config.json"
  file.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(InputError, match=f"^{file}: (not valid JSON|holds no JSON object)"):
    pretrained.read_config(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a device"])
def test_what_is_no_file_is_not_opened(folder, name, kind):
  encoder, path = encoder_of(folder), folder / name
  path.unlink()
  if kind == "a named pipe":
    os.mkfifo(path)
  elif kind == "a directory":
    path.mkdir()
  else:
    path.symlink_to("/dev/zero")
  read = pretrained.read_config if name == "config.json" else pretrained.load_params
  with pytest.raises(InputError, match=f"^{path} is {kind}"):
    read(*((folder,) if name == "config.json" else (folder, encoder)))


def test_old_names_prefix_heads_and_half_precision_are_read(folder, tmp_path):
  expected = pretrained.load_params(folder, encoder_of(folder))
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
  same(pretrained.load_params(other, encoder_of(other)), expected)
  assert pretrained.load_pooler(other) is None
  half = write(tmp_path / "half", {k: v.astype(np.float16) for k, v in bert_tensors().items()})
  params = pretrained.load_params(half, encoder_of(half))
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(params))
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
  jax.tree.map(close, params, expected)


def shard(folder):
  tensors = load_file(folder / "model.safetensors")
  (folder / "model.safetensors").unlink()
  names = sorted(tensors)
  places = {}
  for part, chosen in enumerate((names[:20], names[20:]), 1):
    file = f"model-0000{part}-of-00002.safetensors"
    save_file({name: tensors[name] for name in chosen}, folder / file)
    places |= dict.fromkeys(chosen, file)
  (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def test_sharded_weights_are_read(folder):
  encoder = encoder_of(folder)
  expected, pooler = pretrained.load_params(folder, encoder), pretrained.load_pooler(folder)
  shard(folder)
  same(pretrained.load_params(folder, encoder), expected)
  same(pretrained.load_pooler(folder), pooler)
  (folder / "model-00002-of-00002.safetensors").unlink()
  with pytest.raises(InputError, match="model-00002-of-00002.safetensors.*cannot be read"):
    pretrained.load_params(folder, encoder)
  (folder / "model.safetensors.index.json").write_text("[]")
  with pytest.raises(InputError, match="index.json.*not an index"):
    pretrained.load_params(folder, encoder)


def test_a_tensor_that_the_index_promises_must_be_there(folder):
  shard(folder)
  index = folder / "model.safetensors.index.json"
  places = json.loads(index.read_text())["weight_map"]
  places["cls.lost"] = "model-00001-of-00002.safetensors"
  index.write_text(json.dumps({"weight_map": places}))
  with pytest.raises(InputError, match="'cls.lost' is not in model-00001"):
    pretrained.load_params(folder, encoder_of(folder))


KEY = "encoder.layer.2.attention.self.key.weight"


@pytest.mark.parametrize(
  "change, config, message",
  [
    (lambda t: t.pop(KEY), {}, rf"{KEY}.*\[8, 8\].*missing"),
    (lambda t: t.update({KEY: np.zeros((8, 4), np.float32)}), {}, rf"{KEY}.*\[8, 4\].*\[8, 8\]"),
    (lambda t: t.update(extra=np.zeros(3, np.float32)), {}, r"'extra' \[3\] has no place"),
    (lambda t: None, {"vocab_size": 12}, r"word_embeddings.*\[11, 8\].*\[12, 8\]"),
    (lambda t: None, {"intermediate_size": 16}, r"intermediate.*\[12\].*\[16\]"),
    (lambda t: None, {"num_hidden_layers": 4}, r"encoder.layer.3.*missing"),
    (lambda t: None, {"num_hidden_layers": 2}, r"encoder.layer.2.*15 more.*no place.*2 layers"),
    (lambda t: t.pop("embeddings.LayerNorm.bias"), {}, r"embeddings.LayerNorm.bias.*missing"),
  ],
)
def test_a_tensor_that_does_not_fit_is_named(tmp_path, change, config, message):
  tensors = bert_tensors()
  change(tensors)
  folder = write(tmp_path / "bert", tensors, **config)
  with pytest.raises(InputError, match=message) as caught:
    pretrained.load_params(folder, encoder_of(folder))
  assert str(folder / "model.safetensors") in str(caught.value)


def test_half_a_pooler_is_an_error(tmp_path):
  tensors = bert_tensors()
  del tensors["pooler.dense.bias"]
  with pytest.raises(InputError, match="pooler.dense.bias.*missing"):
    pretrained.load_pooler(write(tmp_path / "bert", tensors))


@pytest.mark.parametrize("kept", [4, 100, -1])
def test_a_truncated_file_is_named(folder, kept):
  file, encoder = folder / "model.safetensors", encoder_of(folder)
  file.write_bytes(file.read_bytes()[:kept])
  with pytest.raises(InputError, match="model.safetensors: not a whole safetensors file"):
    pretrained.load_params(folder, encoder)


@pytest.mark.parametrize(
  "config, message",
  [
    ({"model_type": "gpt2"}, "'gpt2'.*bert, roberta, .*xlnet"),
    ({"model_type": None}, "None.*bert"),
    ({"position_embedding_type": "relative_key"}, "relative_key.*absolute"),
    ({"hidden_act": "silu"}, "hidden_act 'silu'.*gelu"),
  ],
)
def test_another_architecture_is_named(tmp_path, config, message):
  with pytest.raises(InputError, match=message):
    pretrained.read_config(write(tmp_path / "bert", None, **config))


def test_a_broken_config_is_named(folder):
  file = folder / "config.json"
  for text, message in (
    ('{"model_type": "bert"}', "'vocab_size' is missing"),
    ('{"model_type"', "not valid JSON"),
    ("[]", "no JSON object"),
  ):
    file.write_text(text)
    with pytest.raises(InputError, match=f"config.json: .*{message}"):
      pretrained.read_config(folder)
  file.unlink()
  with pytest.raises(InputError, match="config.json"):
    pretrained.read_config(folder)


def test_folders_and_packages_are_found(folder, tmp_path, monkeypatch):
  assert str(pretrained.resolve(str(folder))) == str(folder)
  package = tmp_path / "some_encoder"
  package.mkdir()
  (package / "__init__.py").write_text("")
  write(package / "model", None)
  monkeypatch.syspath_prepend(str(tmp_path))
  assert str(pretrained.resolve("package:some_encoder/model")) == str(package / "model")


@pytest.mark.parametrize(
  "spec, message",
  [
    ("package:no_such_package/model", "'no_such_package' is not installed; `pip install"),
    ("package:json/model", "has no config.json"),
    ("./no/such/folder", "no such folder.*:sample"),
    ("", "no such folder"),
  ],
)
def test_what_is_not_there_is_named(spec, message):
  with pytest.raises(InputError, match=message):
    pretrained.resolve(spec)


@pytest.fixture
def hub(tmp_path, monkeypatch):
  """A Hugging Face client with an empty cache and no network."""
  from huggingface_hub import constants

  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
  monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
  return tmp_path / "hub"


def test_without_a_network_a_hub_name_fails_within_seconds(hub):
  start = time.monotonic()
  with pytest.raises(InputError) as caught:
    pretrained.resolve("bert-base-uncased")
  assert time.monotonic() - start < 20
  message = str(caught.value)
  for part in ("bert-base-uncased", str(hub), "127.0.0.1:9", "hf download", ":sample"):
    assert part in message
  assert "\n" not in message


@pytest.fixture
def snapshot(hub):
  """The folder of bert-base-uncased in the cache, still empty."""
  folder = hub / "models--bert-base-uncased" / "snapshots" / ("0" * 40)
  folder.mkdir(parents=True)
  refs = hub / "models--bert-base-uncased" / "refs"
  refs.mkdir()
  (refs / "main").write_text("0" * 40)
  return folder


def test_the_local_cache_comes_before_the_network(snapshot):
  """Half a snapshot is none, and what it lacks is named."""

  def lacks(name):
    with pytest.raises(InputError, match=rf"not whole in .*, which lacks .*{name}.*did not give"):
      pretrained.resolve("bert-base-uncased")

  write(snapshot, None)
  lacks("model.safetensors")
  part = "model-00002-of-00002.safetensors"
  (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": part}}))
  (snapshot / "model-00001-of-00002.safetensors").touch()
  lacks(part)
  write(snapshot, bert_tensors())
  lacks("the tokeniser in .*vocab.txt")
  (snapshot / "vocab.txt").touch()
  assert str(pretrained.resolve("bert-base-uncased")) == str(snapshot)
  modules = {"1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
  listed = [{"path": k, "type": f"sentence_transformers.models.{v}"} for k, v in modules.items()]
  (snapshot / "modules.json").write_text(json.dumps(listed))
  for name in ("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"):
    lacks(name)
    (snapshot / name).parent.mkdir(exist_ok=True)
    (snapshot / name).touch()
  assert str(pretrained.resolve("bert-base-uncased")) == str(snapshot)
