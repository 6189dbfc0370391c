"""XLNet: parity with transformers, live and recorded, and with what the original code recorded."""

import functools
import json
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import lay, vectors
from tiny_xlnet import (
  ALONE,
  CHUNKS,
  PACKED,
  SEQUENCES,
  TYPES,
  apply,
  full_rows,
  hf_weights,
  tiny,
  with_mems,
)

from as2jax.encoders.checkpoints import pretrained, tensorflow_checkpoint, xlnet_weights
from as2jax.layers.relative_attention import RelativeLayer, sinusoids

GOLDEN = pathlib.Path(__file__).parent / "golden" / "xlnet.npz"


@pytest.fixture(scope="module")
def params():
  return pretrained.from_tensors(hf_weights(), tiny(), "here")


def torch_xlnet(**config):
  torch = pytest.importorskip("torch", reason="torch is not installed")
  transformers = pytest.importorskip("transformers")
  sizes = dict(vocab_size=61, d_model=16, n_layer=2, n_head=4, d_inner=24)
  model = transformers.XLNetModel(transformers.XLNetConfig(**sizes, **config)).eval()
  state = {name: torch.tensor(x) for name, x in hf_weights().items()}
  actual = model.load_state_dict(state, strict=False)
  assert actual.missing_keys == ["mask_emb"] and not actual.unexpected_keys
  return torch, model


def torch_states(torch, model, ids, types):
  """Embeddings and every layer [layers + 1, l, d] of one sequence."""
  with torch.no_grad():
    states = model(
      torch.tensor(np.asarray(ids, np.int64)[None]),
      token_type_ids=torch.tensor(np.asarray(types, np.int64)[None]),
      output_hidden_states=True,
    ).hidden_states
  return np.stack([x[0].numpy() for x in states])


def torch_mems(torch, model, chunks):
  """[(output, new mems)] of chunks of ids [r, l], each given the mems of the one before."""
  mems, outputs = None, []
  for chunk in chunks:
    with torch.no_grad():
      result = model(torch.tensor(chunk.astype(np.int64)), mems=mems, use_mems=True)
    mems = result.mems
    outputs.append(
      (result.last_hidden_state.numpy(), np.stack([x.numpy().swapaxes(0, 1) for x in mems]))
    )
  return outputs


MEMS = {"mem_len": 7, "reuse_len": 4}


def write_golden():
  """Writes the golden file anew, with torch: run this file with the repository on PYTHONPATH."""
  torch, model = torch_xlnet(**MEMS)
  states = [
    torch_states(torch, model, ids, types) for ids, types in zip(SEQUENCES, TYPES, strict=True)
  ]
  outputs, mems = zip(*torch_mems(torch, model, CHUNKS), strict=True)
  GOLDEN.parent.mkdir(exist_ok=True)
  np.savez_compressed(
    GOLDEN, states=np.concatenate(states, axis=1), outputs=np.stack(outputs), mems=mems[-1]
  )


def check_states(encoder, params, expected):
  """`expected`: for each sequence [layers + 1, l, d]."""
  for rows, length in ((ALONE, 9), (PACKED, 16)):
    tokens, units = lay(SEQUENCES, rows, length, types=TYPES)
    actual = [vectors(x, units) for x in apply(encoder, params, tokens, all_layers=True)]
    for n, states in enumerate(expected):
      for layer, x in enumerate(states):
        np.testing.assert_allclose(actual[layer][n], x, atol=1e-5, rtol=0)


def test_equals_the_recorded_reference(params):
  golden = np.load(GOLDEN)
  ends = np.cumsum([len(x) for x in SEQUENCES])[:-1]
  check_states(tiny(), params, np.split(golden["states"], ends, axis=1))
  mems = None
  for chunk, expected in zip(CHUNKS, golden["outputs"], strict=True):
    hidden, mems = with_mems(tiny(), params, full_rows(chunk), mems, *MEMS.values())
    np.testing.assert_allclose(hidden[0], expected, atol=1e-5, rtol=0)
  np.testing.assert_allclose(mems[:, 0], golden["mems"], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
  "fields, config",
  [
    ({}, {}),
    ({"activation": "gelu_new", "clamp_len": 3}, {"ff_activation": "gelu_new", "clamp_len": 3}),
    ({"activation": "relu", "attention_type": "uni"}, dict(ff_activation="relu", attn_type="uni")),
  ],
  ids=["as published", "clamped", "causal"],
)
def test_equals_torch_alone_and_packed_with_types_and_all_layers(params, fields, config):
  torch, model = torch_xlnet(**config)
  pairs = zip(SEQUENCES, TYPES, strict=True)
  check_states(tiny(**fields), params, [torch_states(torch, model, *pair) for pair in pairs])


@pytest.mark.parametrize("mem_len, reuse_len", [(7, None), (3, None), (7, 4)])
def test_mems_equal_torch(params, mem_len, reuse_len):
  torch, model = torch_xlnet(mem_len=mem_len, reuse_len=reuse_len)
  mems = None
  for chunk, (output, expected) in zip(CHUNKS, torch_mems(torch, model, CHUNKS), strict=True):
    hidden, mems = with_mems(tiny(), params, full_rows(chunk), mems, mem_len, reuse_len)
    assert mems.shape == (2, 1, *expected.shape[1:])
    np.testing.assert_allclose(hidden[0], output, atol=1e-5, rtol=0)
    np.testing.assert_allclose(mems[:, 0], expected, atol=1e-5, rtol=0)


def recording(folder):
  """(folder, encoder, params, variables, tokens) of one of the original's tiny checkpoints."""
  path = pathlib.Path(os.environ.get("AS2JAX_DATA", ""), "xlnet_tiny", folder)
  if "AS2JAX_DATA" not in os.environ or not path.exists():
    pytest.skip("needs XLNet's recordings: set AS2JAX_DATA to the folder that holds xlnet_tiny/")
  fields = xlnet_weights.fields(json.loads((path / "xlnet_config.json").read_text()))
  # They were recorded with causal attention, which is an argument and not part of the config.
  encoder = tiny(**{**fields, "attention_type": "uni"})
  variables = tensorflow_checkpoint.read(path / "xlnet_model.ckpt")
  tensors = xlnet_weights.from_tensorflow(variables, encoder.num_layers)
  tokens = full_rows(np.load(path / "input_ids.npy"), np.load(path / "seg_ids.npy"))
  params = pretrained.from_tensors(tensors, encoder, str(path))
  return path, encoder, params, variables, tokens


def recorded_mems(path):
  return np.stack([np.load(path / f"mems_{n}.npy") for n in (0, 1)]).astype(np.float32)[:, None]


def test_original_recording_without_mems_and_with_tied_biases():
  path, encoder, params, _, tokens = recording("test_checkpoint_empty")
  expected = np.load(path / "empty_output.npy")
  np.testing.assert_allclose(apply(encoder, params, tokens)[0], expected, atol=1e-6, rtol=0)
  both_ways = apply(encoder.clone(attention_type="bi"), params, tokens)[0]
  assert np.abs(both_ways - expected).max() > 1e-3  # the recording does tell the two apart


def test_original_recording_of_mems():
  path, encoder, params, variables, tokens = recording("test_checkpoint_pre")
  _, actual = with_mems(encoder, params, tokens, recorded_mems(path), 5)
  for n in (0, 1):
    expected = np.load(path / f"pre_new_mems_{n}.npy")
    np.testing.assert_allclose(actual[n, 0], expected, atol=1e-6, rtol=0)
  # The files tune_* beside it belong to other weights: the first of them holds word vectors, and
  # none of this checkpoint's is like them.
  table = variables["model/transformer/word_embedding/lookup_table"]
  other = np.load(path / "tune_new_mems_0.npy")[0, 0]
  assert np.abs(table - other).max(axis=-1).min() > 1e-3


def test_original_recording_of_the_query_stream_built_from_the_same_layers():
  path, encoder, params, variables, tokens = recording("test_checkpoint_pre")
  mems = recorded_mems(path)
  content = with_mems(encoder, params, tokens, mems, 5)[1][:, 0]  # the inputs of both layers
  asked = np.load(path / "input_query.npy")[..., None].astype(np.float32)
  mask_embedding = variables["model/transformer/mask_emb/mask_emb"]
  query = jnp.asarray(asked * mask_embedding[0] + (1 - asked) * content[0])
  types = np.asarray(tokens.type[0])
  same = (types[:, :, None] == np.pad(types, ((0, 0), (5, 0)))[:, None])[:, None]
  earlier = np.concatenate([np.ones((5, 5), bool), np.tril(np.ones((5, 5), bool), -1)], axis=1)
  mask = jnp.asarray(np.broadcast_to(earlier, (2, 1, 5, 10)))  # a target does not see itself
  layer = RelativeLayer(2, 12, encoder.activation, 1e-12, 0.0, 0.0, jnp.float32, None)
  attend = jax.jit(functools.partial(layer.apply, train=False))
  for n in (0, 1):
    query = attend(
      {"params": jax.tree.map(lambda x: x[n], params["layers"])},
      query,
      jnp.concatenate([mems[n, 0], content[n]], axis=1),
      mask,
      jnp.asarray(same),
      sinusoids(5, 10, 6, -1),
    )
  logits = query @ params["embeddings"]["word"].T + variables["model/lm_loss/bias"][None, None]
  expected = np.load(path / "pre_output.npy")
  assert expected.std() > 1e-3
  np.testing.assert_allclose(jax.nn.softmax(logits), expected, atol=1e-7, rtol=0)


if __name__ == "__main__":
  write_golden()
