"""XLNet's names, shapes and config keys, written out independently of the tables."""

import numpy as np
import pytest
from tiny_xlnet import RUN

from as2jax.encoders.checkpoints import families, pretrained, xlnet_weights
from as2jax.encoders.xlnet import XLNetEncoder
from as2jax.runtime.errors import InputError

CONFIG = dict(
  model_type="xlnet",
  vocab_size=11,
  d_model=6,
  n_layer=2,
  n_head=2,
  d_head=3,
  d_inner=8,
  ff_activation="gelu",
  dropout=0.2,
  clamp_len=-1,
  attn_type="bi",
  bi_data=False,
  same_length=False,
  untie_r=True,
  layer_norm_eps=1e-9,
)
ORIGINAL = dict(
  n_token=11,
  d_model=6,
  n_layer=2,
  n_head=2,
  d_head=3,
  d_inner=8,
  ff_activation="gelu",
  untie_r=True,
)


def variables(tied=False):
  """Every variable of an original checkpoint of `CONFIG`, its head and some optimiser state."""
  stem = "model/transformer/"
  shapes = {stem + "word_embedding/lookup_table": (11, 6), stem + "mask_emb/mask_emb": (1, 1, 6)}
  for n in range(2):
    attention, fed = f"{stem}layer_{n}/rel_attn/", f"{stem}layer_{n}/ff/"
    shapes |= {f"{attention}{name}/kernel": (6, 2, 3) for name in "qkvor"}
    shapes |= {fed + "layer_1/kernel": (6, 8), fed + "layer_1/bias": (8,)}
    shapes |= {fed + "layer_2/kernel": (8, 6), fed + "layer_2/bias": (6,)}
    norms = [x + "LayerNorm/" + leaf for x in (attention, fed) for leaf in ("gamma", "beta")]
    shapes |= {name: (6,) for name in norms}
  shapes |= {stem + f"r_{name}_bias": (2, 3) if tied else (2, 2, 3) for name in "rsw"}
  shapes[stem + "seg_embed"] = (2, 2, 2, 3)
  shapes |= {"model/lm_loss/bias": (11,), "global_step": ()}
  shapes[stem + "layer_0/ff/layer_1/bias/adam_m"] = (8,)
  rng = np.random.default_rng(0)
  return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def from_hf(tensors):
  encoder = XLNetEncoder(**xlnet_weights.fields(CONFIG), **RUN)
  today = {families.XLNET.today(name): tensor for name, tensor in tensors.items()}
  return pretrained.from_tensors(today, encoder, "here")


def to_hf(params):
  return pretrained.to_tensors(params, family=families.XLNET, num_heads=2)


def test_original_variables_reach_their_places():
  source = variables()
  params = from_hf(xlnet_weights.from_tensorflow(source, 2))
  of = lambda name: source["model/transformer/" + name]
  attention = params["layers"]["attention"]
  x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
  for n in range(2):
    for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("relative", "r")):
      expected = np.einsum("lh,hnd->lnd", x, of(f"layer_{n}/rel_attn/{theirs}/kernel"))
      actual = (x @ attention[ours]["kernel"][n]).reshape(4, 2, 3)
      np.testing.assert_allclose(actual, expected, atol=1e-6)
    expected = np.einsum("lnd,hnd->lh", x.reshape(4, 2, 3), of(f"layer_{n}/rel_attn/o/kernel"))
    np.testing.assert_allclose(x @ attention["output"]["kernel"][n], expected, atol=1e-6)
    for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed"):
      np.testing.assert_array_equal(attention[name][n], of(name)[n])
    fed = params["layers"]["feed_forward"]
    for ours, theirs in (("intermediate", "layer_1"), ("output", "layer_2")):
      for leaf in ("kernel", "bias"):
        np.testing.assert_array_equal(fed[ours][leaf][n], of(f"layer_{n}/ff/{theirs}/{leaf}"))
    for ours, theirs in (("attention_norm", "rel_attn"), ("output_norm", "ff")):
      norm = params["layers"][ours]
      np.testing.assert_array_equal(norm["scale"][n], of(f"layer_{n}/{theirs}/LayerNorm/gamma"))
      np.testing.assert_array_equal(norm["bias"][n], of(f"layer_{n}/{theirs}/LayerNorm/beta"))
  np.testing.assert_array_equal(params["embeddings"]["word"], of("word_embedding/lookup_table"))


def test_tied_biases_are_repeated_for_each_layer():
  source = variables(tied=True)
  tensors = xlnet_weights.from_tensorflow(source, 2)
  for n in range(2):
    for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
      expected = source[f"model/transformer/{name}"]
      np.testing.assert_array_equal(tensors[f"layer.{n}.rel_attn.{name}"], expected)


def test_tensors_in_and_out_are_the_same():
  tensors = xlnet_weights.from_tensorflow(variables(), 2)
  again = to_hf(from_hf(tensors))
  assert set(tensors) - set(again) == {"mask_emb"} and set(again) <= set(tensors)
  for name, tensor in again.items():
    np.testing.assert_array_equal(tensor, tensors[name])
  headed = {"transformer." + name: x for name, x in tensors.items()}
  headed |= {"lm_loss.weight": tensors["word_embedding.weight"], "lm_loss.bias": np.zeros(11)}
  actual = to_hf(from_hf(headed))
  for name, tensor in again.items():
    np.testing.assert_array_equal(actual[name], tensor)


@pytest.mark.parametrize(
  "name, expected",
  [
    ("model/transformer/layer_11/rel_attn/o/kernel", "layer.11.rel_attn.o"),
    ("model/transformer/layer_3/ff/LayerNorm/beta", "layer.3.ff.layer_norm.bias"),
    ("model/transformer/r_w_bias", "layer.{}.rel_attn.r_w_bias"),
    ("model/transformer/mask_emb/mask_emb", "mask_emb"),
    ("model/lm_loss/bias", None),
    ("model/transformer/layer_0/ff/layer_1/bias/adam_m", None),
    ("model/transformer/layer_0", None),
    ("global_step", None),
  ],
)
def test_names_of_original_variables(name, expected):
  assert xlnet_weights.tf_name(name) == expected


def test_faulty_tensors_are_named():
  tensors = xlnet_weights.from_tensorflow(variables(), 2)
  lacking = {name: x for name, x in tensors.items() if name != "layer.1.rel_attn.r"}
  with pytest.raises(InputError, match=r"'layer\.1\.rel_attn\.r' \[6, 2, 3\] is missing"):
    from_hf(lacking)
  with pytest.raises(InputError, match=r"'layer\.0\.\S+' \[.*\] is missing"):
    from_hf({"word_embedding.weight": tensors["word_embedding.weight"]})
  with pytest.raises(InputError, match=r"'pooler' \[2\] has no place"):
    from_hf({**tensors, "pooler": np.zeros(2)})
  with pytest.raises(ValueError, match="'model/transformer/r_._bias' has 2 layers.* 3"):
    xlnet_weights.from_tensorflow(variables(), 3)


def test_fields_of_a_config():
  expected = dict(
    vocab_size=11,
    hidden_size=6,
    num_layers=2,
    num_heads=2,
    intermediate_size=8,
    attention_type="bi",
    clamp_len=-1,
    layer_norm_eps=1e-9,
    hidden_dropout=0.2,
    attention_dropout=0.2,
    activation="gelu",
  )
  assert xlnet_weights.fields(CONFIG) == expected
  run = dict(dtype="float32", precision=None, unroll=0, remat=False)
  XLNetEncoder(**expected, **run)
  # The original code's word `gelu` is the tanh form; its config names neither rates nor epsilon.
  assert xlnet_weights.fields(ORIGINAL) == expected | dict(
    layer_norm_eps=1e-12, hidden_dropout=0.1, attention_dropout=0.1, activation="gelu_new"
  )


@pytest.mark.parametrize(
  "change, message",
  [
    ({"bi_data": True}, "bi_data is True; only false"),
    ({"same_length": True}, "same_length is True; only false"),
    ({"attn_type": "none"}, "attn_type 'none' is none of bi, uni"),
    ({"ff_activation": "silu"}, "ff_activation 'silu' is none of gelu"),
    ({"d_head": 4}, "d_head 4 × n_head 2 is not d_model 6"),
    ({"d_model": None}, "'d_model' is missing"),
    ({"vocab_size": None}, "'n_token' is missing"),
  ],
)
def test_configs_that_are_not_implemented(change, message):
  config = {key: value for key, value in (CONFIG | change).items() if value is not None}
  with pytest.raises(ValueError, match=message):
    xlnet_weights.fields(config)
