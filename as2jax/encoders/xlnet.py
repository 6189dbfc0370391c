"""XLNet (Yang et al. 2019) in Flax Linen, content stream, over packed rows."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np

from as2jax.encoders.bert import PackedEncoder, size_keys, tensor_names
from as2jax.encoders.family import Key, Transformer, register
from as2jax.layers import transformer
from as2jax.layers.relative_attention import RelativeAttention, sinusoids
from as2jax.runtime.registry import OneOf

ATTENTION_TYPES = ("bi", "uni")


class XLNetEncoder(PackedEncoder):
  """XLNet as it is fine-tuned: the content stream alone, without memory of earlier rows.

  Positions count only as differences, so a unit gives the same vectors wherever it lies in a row,
  and no length is too long. `tokens.type` counts only as same or other: XLNet's 0 and 1 for two
  sentences and 2 for `<cls>`.

    embeddings/word [vocab_size, d]
    layers/attention/{query, key, value, relative, output}/kernel [d, d]
    layers/attention/{r_w_bias, r_r_bias, r_s_bias} [heads, k], seg_embed [2, heads, k]
    layers/feed_forward/{intermediate, output}/{kernel, bias}
    layers/{attention_norm, output_norm}/{scale, bias}
  where everything under `layers` has a first axis [num_layers].

  Attributes:
    attention_type: `bi` (every token sees its whole unit: fine-tuning) or `uni` (itself and those
      before it).
    clamp_len: distances are cut to ±clamp_len; not above 0 is no cut.
    hidden_dropout: of embeddings, sinusoids, residual branches, the feed-forward's inner layer and
      the last output. The sinusoids' mask is one for all rows of the call; the original draws one
      for each row, which would make their product as large as the keys'.

  """

  attention_type: Annotated[str, OneOf(ATTENTION_TYPES)] = "bi"
  clamp_len: int = -1

  def _encode(self, tokens, offset, scan, train):
    dtype = jnp.dtype(self.dtype)
    x = transformer.Embeddings(
      self.vocab_size, self.hidden_size, dtype, self.hidden_dropout, name="embeddings"
    )(tokens, offset, train=train)
    l = tokens.ids.shape[1]
    positions = sinusoids(l, self.hidden_size, self.clamp_len)
    positions = transformer.Dropout(self.hidden_dropout)(positions, train=train).astype(x.dtype)
    mask = transformer.segment_mask(tokens.segment)
    if self.attention_type == "uni":
      mask &= jnp.tril(jnp.ones((l, l), bool))[None, None]
    same_type = (tokens.type[:, :, None] == tokens.type[:, None, :])[:, None]
    how = (dtype, self.precision)
    attention = partial(RelativeAttention, self.num_heads, self.attention_dropout, *how)
    apply = lambda layer, x: layer(x, mask, same_type, positions, train=train)
    states, every, last = self._layers(x, attention, apply, scan, self.hidden_dropout)
    return states, every, transformer.Dropout(self.hidden_dropout)(last, train=train)


_ATTENTION = ("query", "key", "value", "relative", "output")
# Kernels [d, heads·k] here and bare [d, heads, k] in transformers; `output` is its own transpose.
_HEADED = frozenset(f"layers/attention/{name}/kernel" for name in _ATTENTION)
# Kernels whose first axis there is our last.
_TRANSPOSED = frozenset(
  f"layers/{name}/kernel"
  for name in ("attention/output", "feed_forward/intermediate", "feed_forward/output")
)


def _ours(path: str, tensor: np.ndarray) -> np.ndarray:
  """Returns the parameter at `path` of one tensor of one layer; a view where it can be."""
  if path in _HEADED:
    tensor = tensor.reshape(tensor.shape[0], -1)
  if path in _TRANSPOSED:
    tensor = tensor.T
  return tensor


def _theirs(path: str, value: np.ndarray, heads: int) -> np.ndarray:
  """Returns the tensor of one layer of the parameter at `path`."""
  if path in _TRANSPOSED:
    value = value.T
  if path in _HEADED:
    value = value.reshape(value.shape[0], heads, -1)
  return value


def _classifier(config: Mapping[str, Any], width: int) -> tuple[str, list]:
  """Returns the pooling and the layers of a sequence classifier, whose summary may lack its layer."""
  kind, activation = config.get("summary_type", "last"), config.get("summary_activation", "tanh")
  projects = config.get("summary_use_proj", True)
  if kind != "last" or projects and activation != "tanh":
    raise ValueError(f"summary_type {kind!r}, {activation!r} is not implemented")
  layers = [(("dense", 0, "identity", True), XLNET.head["head"])]
  if projects:
    layers.insert(0, (("dense", width, "tanh", True), XLNET.head["pooler"]))
  return "cls_last", layers


XLNET = register(
  Transformer(
    name="xlnet",
    module=XLNetEncoder,
    token="cls_last",
    keys=(
      *size_keys("d_model", "n_layer", "n_head", "d_inner"),
      Key("attn_type", "attention_type", "bi", words=ATTENTION_TYPES),
      Key("clamp_len", "clamp_len", -1, least=-1, largest=1 << 20),
      Key("layer_norm_eps", "layer_norm_eps", 1e-12, below=1.0),
      Key("dropout", "hidden_dropout", 0.1, below=1.0),
      Key("ff_activation", "activation", "gelu", words=tuple(transformer.ACTIVATIONS)),
    ),
    names={
      "embeddings/word": "word_embedding.weight",
      **{
        f"layers/attention/{ours}/kernel": f"layer.{{}}.rel_attn.{theirs}"
        for ours, theirs in zip(_ATTENTION, "qkvro", strict=True)
      },
      **{
        f"layers/attention/{name}": f"layer.{{}}.rel_attn.{name}"
        for name in ("r_w_bias", "r_r_bias", "r_s_bias", "seg_embed")
      },
      **tensor_names(
        {
          "layers/attention_norm": "layer.{}.rel_attn.layer_norm",
          "layers/feed_forward/intermediate": "layer.{}.ff.layer_1",
          "layers/feed_forward/output": "layer.{}.ff.layer_2",
          "layers/output_norm": "layer.{}.ff.layer_norm",
        }
      ),
    },
    classes="XLNet",
    prefix="transformer.",
    # The query stream's start, and heads of other tasks.
    ignored=re.compile(
      r"mask_emb|(lm_loss|sequence_summary|logits_proj|classifier|qa_outputs"
      r"|start_logits|end_logits|answer_class)\..+"
    ),
    head={"pooler": "sequence_summary.summary", "head": "logits_proj"},
    special={"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
    typed=True,
    ours=_ours,
    theirs=_theirs,
    variants=("bi_data", "same_length"),
    adapt=lambda config, fields: {
      "attention_dropout": Key("dropatt", "", fields["hidden_dropout"], below=1.0).read(config)
    },
    settings=lambda encoder: {"dropatt": encoder.attention_dropout},
    bare_head=True,
    classifier_settings=lambda pooler, rate: {
      "summary_type": "last",
      "summary_use_proj": pooler,
      "summary_activation": "tanh" if pooler else "linear",
      "summary_last_dropout": rate,
    },
    classifier=_classifier,
    published={
      "xlnet-base-cased": dict(vocab_size=32000, d_model=768, n_layer=12, n_head=12, d_inner=3072),
      "xlnet-large-cased": dict(
        vocab_size=32000, d_model=1024, n_layer=24, n_head=16, d_inner=4096
      ),
    },
  )
)
