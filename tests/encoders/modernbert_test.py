"""ModernBERT: against transformers, packed and alone, its window, its config and weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import lay, vectors
from tiny_bert import apply, initialised, loss_and_gradient
from tiny_modernbert import ALONE, PACKED, SEQUENCES, config, tiny

from as2jax.encoders.checkpoints import families, modernbert_weights, pretrained, published_shapes
from as2jax.encoders.modernbert import ModernBertEncoder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

FAMILY = families.MODERNBERT


def torch_twin(params):
  """transformers' model with our parameters."""
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  twin_config = transformers.ModernBertConfig(
    **{k: v for k, v in config().items() if k != "model_type"},
    pad_token_id=0,
    attn_implementation="eager",
  )
  model = transformers.ModernBertModel(twin_config).eval()
  tensors = pretrained.to_tensors(params, family=FAMILY)
  model.load_state_dict({name: torch.tensor(x) for name, x in tensors.items()}, strict=True)
  return torch, model


def test_hidden_states_and_gradients_are_those_of_transformers():
  """Of every layer, for sequences shorter and longer than the window, alone in a row and packed."""
  encoder = tiny()
  tokens, units = lay(SEQUENCES, PACKED, 18)
  params = initialised(encoder, tokens)
  torch, model = torch_twin(params)
  every = np.asarray(apply(encoder, params, tokens, all_layers=True))
  layers = [vectors(hidden, units) for hidden in every]
  last = vectors(apply(encoder, params, tokens), units)
  weights = np.random.default_rng(1).normal(size=(1, 2, 18, 16)).astype(np.float32)
  weighed, loss = vectors(weights, units), 0.0
  for n, ids in enumerate(SEQUENCES):
    actual = model(torch.tensor(ids[None].astype(np.int64)), output_hidden_states=True)
    theirs = [hidden[0].detach().numpy() for hidden in actual.hidden_states]
    assert len(theirs) == len(layers) == 6
    for ours, hidden in zip(layers[:-1], theirs[:-1]):
      np.testing.assert_allclose(ours[n], hidden, atol=1e-5)
    for ours in (layers[-1], last):
      np.testing.assert_allclose(ours[n], actual.last_hidden_state[0].detach().numpy(), atol=1e-5)
    loss = loss + (actual.last_hidden_state[0] * torch.tensor(weighed[n])).sum()
  loss.backward()
  real = jnp.asarray(weights) * (tokens.segment > 0)[..., None]
  value, gradient = loss_and_gradient(encoder, params, tokens, real)
  assert float(value) == pytest.approx(loss.item(), rel=1e-5)
  ours = pretrained.to_tensors(gradient, family=FAMILY)
  theirs = {name: p.grad.numpy() for name, p in model.named_parameters()}
  assert ours.keys() == theirs.keys() and len(theirs) == 3 + 5 * 5 + 4
  for name, expected in theirs.items():
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(
      ours[name] / np.abs(expected).max(), expected / np.abs(expected).max(), atol=1e-5
    )


@pytest.mark.parametrize("fields", [{}, {"unroll": 1}, {"remat": True}, {"num_layers": 1}])
def test_packing_padding_and_shards_change_no_vector(fields):
  encoder = tiny(**fields)
  tokens, units = lay(SEQUENCES, ALONE, 11)
  params = initialised(encoder, tokens)
  expected = vectors(apply(encoder, params, tokens), units)
  assert np.std(np.concatenate(list(expected.values())), axis=0).min() > 0.05
  for rows, length, shards in ((PACKED, 18, 1), ([(4, 3, 2), (0, 1)], 17, 2)):
    tokens, units = lay(SEQUENCES, rows, length, shards=shards)
    actual = vectors(apply(encoder, params, tokens), units)
    for n in expected:
      np.testing.assert_allclose(actual[n], expected[n], atol=5e-6)


def test_local_layers_see_the_window_alone():
  """With one global layer (the first), a token's change reaches half a window a local layer."""
  encoder = tiny(num_layers=2, window=4, global_every=5)
  ids = np.arange(1, 21, dtype=np.int32)
  tokens, units = lay([ids], [(0,)], 20)
  params = initialised(encoder, tokens)
  cut = jax.tree.map(lambda x: x, params)
  cut["first_layer"]["attention"]["output"]["kernel"] *= 0  # the global layer passes nothing on
  moved = tokens.replace(ids=tokens.ids.at[0, 0, 10].set(50))
  change = lambda p: np.abs(apply(encoder, p, tokens) - apply(encoder, p, moved))[0, 0].max(-1) > 0
  assert np.flatnonzero(change(cut)).tolist() == [8, 9, 10, 11, 12]
  assert change(params).all()


def test_dropout_acts_in_training_alone():
  encoder = tiny(embedding_dropout=0.3, hidden_dropout=0.3, attention_dropout=0.3)
  tokens, _ = lay(SEQUENCES, PACKED, 18)
  params = initialised(encoder, tokens)
  run = lambda key, train: np.asarray(
    apply(encoder, params, tokens, jax.random.key(key), train=train)
  )
  assert np.any(run(0, True) != run(1, True)) and np.array_equal(run(0, False), run(1, False))


def test_input_offset_is_added_before_the_norm():
  encoder = tiny()
  tokens, _ = lay(SEQUENCES, PACKED, 18)
  params = initialised(encoder, tokens)
  role = np.random.default_rng(0).normal(size=16).astype(np.float32)
  actual = apply(encoder, params, tokens, input_offset=jnp.broadcast_to(role, (1, 2, 18, 16)))
  table = params["embeddings"]["word"] + role[None]
  moved = {**params, "embeddings": {**params["embeddings"], "word": table}}
  np.testing.assert_allclose(actual, apply(encoder, moved, tokens), atol=1e-5)


@pytest.mark.parametrize(
  "name, published",
  [
    ("answerdotai/ModernBERT-base", 149_014_272),
    ("answerdotai/ModernBERT-large", 394_781_696),
    ("jhu-clsp/ettin-encoder-17m", 16_797_440),
    ("jhu-clsp/ettin-encoder-32m", 31_883_136),
    ("jhu-clsp/ettin-encoder-68m", 68_144_640),
    ("jhu-clsp/ettin-encoder-150m", 149_014_272),
    ("jhu-clsp/ettin-encoder-400m", 394_781_696),
    ("jhu-clsp/ettin-encoder-1b", 1_028_050_688),
  ],
)
def test_published_sizes(name, published):
  family, fields = published_shapes.family(name)
  assert family is FAMILY
  encoder = registry.build(registry.ENCODERS, {"name": "modernbert"}, "encoder", **fields)
  tokens, _ = lay([np.arange(4)], [(0,)], 8)
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  assert sum(x.size for x in jax.tree.leaves(shapes)) == published
  rows, width, inner = (fields[k] for k in ("vocab_size", "hidden_size", "intermediate_size"))
  of_layer = 4 * width**2 + 3 * width * inner + 2 * width  # the first has a norm less
  assert published == rows * width + fields["num_layers"] * of_layer - width + 2 * width


def test_both_forms_of_the_config_are_read():
  kinds = ["full_attention" if n % 3 == 0 else "sliding_attention" for n in range(5)]
  theta = lambda value: {"rope_type": "default", "rope_theta": value}
  today = config(
    layer_types=kinds,
    rope_parameters={"full_attention": theta(160000.0), "sliding_attention": theta(10000.0)},
  )
  for key in ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"):
    del today[key]
  assert modernbert_weights.fields(today) == modernbert_weights.fields(config())
  assert ModernBertEncoder(**modernbert_weights.fields(today)) == tiny()


def test_local_attention_without_a_base_of_its_own_has_the_global_one():
  fields = modernbert_weights.fields(config(global_rope_theta=7e4, local_rope_theta=None))
  assert (fields["global_theta"], fields["local_theta"]) == (7e4, 7e4)


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"attention_bias": True}, "attention_bias is True; only layers without biases"),
    ({"hidden_activation": "swish"}, "hidden_activation 'swish' is none of"),
    ({"layer_types": ["full_attention"] * 2}, "layer_types is no list of 5"),
    (
      {"layer_types": ["sliding_attention"] * 4 + ["full_attention"]},
      "layer_types: only global attention in every n-th layer",
    ),
    ({"rope_scaling": {"rope_type": "yarn"}}, "only rotary positions of type 'default'"),
    ({"global_rope_theta": "far"}, "global_rope_theta is 'far'"),
    ({"global_rope_theta": None}, "global_rope_theta is None"),
  ],
)
def test_variants_that_are_not_there_are_named(changes, message):
  with pytest.raises(ValueError, match=message):
    modernbert_weights.fields(config(**changes))


@pytest.mark.parametrize(
  "fields, message",
  [
    ({"num_heads": 3}, "num_heads: 3 heads of hidden_size 16"),
    ({"num_heads": 16}, "num_heads: 16 heads of hidden_size 16 would not have an even width"),
    ({"window": 0}, "encoder.window = 0"),
    ({"global_every": 0}, "encoder.global_every = 0"),
    ({"activation": "swish"}, "encoder.activation: 'swish'"),
    ({"dtype": "float16"}, "encoder.dtype: 'float16'"),
    ({"attention": "flash"}, "encoder.attention: 'flash'"),
    ({"unroll": -1}, "encoder.unroll: -1"),
  ],
)
def test_impossible_fields_are_named(fields, message):
  tokens, _ = lay(SEQUENCES, ALONE, 11)
  with pytest.raises(InputError, match=message):
    tiny(**fields).init(jax.random.key(0), tokens, train=False)
