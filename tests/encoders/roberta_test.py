"""RoBERTa: BERT's network with shifted positions, its published names and sizes."""

import functools
import json
import pathlib

import jax
import numpy as np
import pytest
from rows import lay, vectors
from safetensors.numpy import save_file

from as2jax.encoders.bert import BertEncoder
from as2jax.encoders.checkpoints import families, pretrained

CONFIG = dict(
  model_type="roberta",
  vocab_size=61,
  hidden_size=16,
  num_hidden_layers=2,
  num_attention_heads=4,
  intermediate_size=24,
  max_position_embeddings=22,
  type_vocab_size=1,
  layer_norm_eps=1e-5,
  pad_token_id=1,
)
SEQUENCES = [np.random.default_rng(n).integers(2, 61, n).astype(np.int32) for n in (4, 9, 20, 2, 7)]
PACKED = [(1, 0), (2,), (3, 4)]
GOLDEN = pathlib.Path(__file__).parent / "golden" / "roberta.npz"


@functools.partial(jax.jit, static_argnums=0)
def apply(encoder, params, tokens):
  return encoder.apply({"params": params}, tokens, train=False)


def tensors():
  """Weights drawn by numpy under Hugging Face's names, as a model with a head saves them."""
  rng = np.random.default_rng(7)
  encoder = BertEncoder(**families.ROBERTA.fields(CONFIG))
  tokens, _ = lay(SEQUENCES[:1], [(0,)], 20)
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  draw = lambda path, x: rng.normal(path[-1].key == "scale", 0.2, x.shape).astype(np.float32)
  params = jax.tree_util.tree_map_with_path(draw, shapes)
  return {f"roberta.{k}": v for k, v in pretrained.to_tensors(params).items()}


def write(folder, weights, **config):
  folder.mkdir(exist_ok=True)
  (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
  save_file(weights, folder / "model.safetensors")
  return folder


def reference():
  """The token vectors that transformers' RobertaModel gives, each sequence alone."""
  torch = pytest.importorskip("torch", reason="torch is not installed")
  transformers = pytest.importorskip("transformers")
  config = {k: v for k, v in CONFIG.items() if k != "model_type"}
  model = transformers.RobertaModel(transformers.RobertaConfig(**config), add_pooling_layer=False)
  state = {k.removeprefix("roberta."): torch.tensor(v) for k, v in tensors().items()}
  model.load_state_dict(state, strict=True)
  with torch.no_grad():
    return [
      model.eval()(torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0].numpy()
      for ids in SEQUENCES
    ]


def record():
  """Makes the golden file anew, with torch."""
  GOLDEN.parent.mkdir(exist_ok=True)
  np.savez_compressed(GOLDEN, hidden=np.concatenate(reference()))


def ours(folder):
  family, fields = pretrained.read_family(folder)
  assert family is families.ROBERTA and fields["position_offset"] == 2
  encoder = BertEncoder(**fields)
  tokens, units = lay(SEQUENCES, PACKED, 20)
  hidden = vectors(apply(encoder, pretrained.load_params(folder, encoder), tokens), units)
  return [hidden[n] for n in range(len(SEQUENCES))]


def test_packed_rows_equal_the_recorded_reference(tmp_path):
  hidden = np.concatenate(ours(write(tmp_path / "roberta", tensors())))
  np.testing.assert_allclose(hidden, np.load(GOLDEN)["hidden"], atol=1e-5, rtol=0)


def test_packed_rows_equal_live_torch(tmp_path):
  expected = np.concatenate(reference())
  hidden = np.concatenate(ours(write(tmp_path / "roberta", tensors())))
  np.testing.assert_allclose(hidden, expected, atol=1e-5, rtol=0)
  np.testing.assert_allclose(expected, np.load(GOLDEN)["hidden"], atol=1e-6)


def test_what_files_hold_beside_the_encoder_is_left_out(tmp_path):
  extra = {
    name: np.zeros((2, 2), np.float32)
    for name in (
      "lm_head.dense.weight",
      "lm_head.bias",
      "classifier.out_proj.weight",
      "roberta.pooler.dense.weight",
      "roberta.embeddings.position_ids",
    )
  }
  folder = write(tmp_path / "roberta", {**tensors(), **extra})
  np.testing.assert_array_equal(ours(folder)[0], ours(write(tmp_path / "bare", tensors()))[0])
  assert pretrained.load_pooler(folder, families.ROBERTA) is None  # it was never trained


def test_the_longest_unit_is_two_shorter_than_the_table(tmp_path):
  folder = write(tmp_path / "roberta", tensors())
  encoder = BertEncoder(**pretrained.read_config(folder))
  assert encoder.max_length == 20
  params = pretrained.load_params(folder, encoder)
  tokens, units = lay([np.full(20, 5), np.full(21, 5)], [(0,), (1,)], 24)
  hidden = vectors(apply(encoder, params, tokens), units)
  assert np.isfinite(hidden[0]).all() and np.isnan(hidden[1][20]).all()


@pytest.mark.parametrize(
  "hidden, layers, heads, published",
  [(768, 12, 12, 124_055_040), (1024, 24, 16, 354_310_144)],
  ids=["base", "large"],
)
def test_published_sizes(hidden, layers, heads, published):
  config = {
    **CONFIG,
    "vocab_size": 50265,
    "hidden_size": hidden,
    "num_hidden_layers": layers,
    "num_attention_heads": heads,
    "intermediate_size": 4 * hidden,
    "max_position_embeddings": 514,
  }
  encoder = BertEncoder(**families.ROBERTA.fields(config))
  tokens, _ = lay([np.arange(4)], [(0,)], 8)
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  assert sum(x.size for x in jax.tree.leaves(shapes)) == published  # without a pooler
  assert encoder.max_length == 512
