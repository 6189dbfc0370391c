"""BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019) in Flax Linen, over packed rows."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Tokens
from as2jax.encoders.family import Key, Transformer, register
from as2jax.layers import transformer, vectors
from as2jax.layers.cpu import scan_layers
from as2jax.layers.dense import Dense
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, Dtype, OneOf, Precision, Rate, check_ranges


class PackedEncoder(nn.Module, kw_only=True):
  """Base of transformers over packed rows: a subclass gives `_encode` of rows [b, l].

  Units of a row are blind to one another. Parameters are float32 and do not depend on how the encoder
  runs: `dtype`, `precision`, `attention`, `unroll`, `remat`.

  Attributes:
    activation: `gelu` (exact), `gelu_new` (tanh) or `relu`.
    dtype: type of the arithmetic and of the result, `float32` or `bfloat16`. Scores, softmax and
      norm statistics are float32 always.
    precision: of the matrix products. None is jax's default, which is full float32 on CPU but TF32
      or a bfloat16 pass on GPU and TPU: set "highest" to compare with a float32 reference there.
    unroll: how many layers one turn of the loop over layers holds; 0 is all of up to 12 layers
      (and 1 with `remat` or for deeper models). Unrolled steps are about 10 % faster on CPU.
    remat: recompute each layer in the backward pass in place of keeping its activations: a fifth
      of the memory for a fifth more time.

  """

  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  intermediate_size: int
  layer_norm_eps: float = 1e-12
  hidden_dropout: Rate = 0.1
  attention_dropout: Rate = 0.1
  activation: Annotated[str, OneOf(tuple(transformer.ACTIVATIONS))] = "gelu"
  dtype: Dtype = "float32"
  precision: Precision = None
  unroll: Annotated[int, AtLeast(0)] = 0
  remat: bool = False

  @property
  def max_length(self) -> int | None:
    """The longest unit in tokens; None where positions have no end."""
    return getattr(self, "max_positions", None)

  @nn.compact
  def __call__(
    self,
    tokens: Tokens,
    *,
    input_offset: Float[Array, "s r l d"] | None = None,
    all_layers: bool = False,
    train: bool,
  ) -> Float[Array, "s r l d"] | Float[Array, "layers s r l d"]:
    """Returns token vectors of the last layer, or of the embeddings and every layer (`all_layers`).

    `input_offset` is added to the input embeddings before their norm. With `train`, dropout draws
    from the stream `dropout`. Vectors at padding are finite and mean nothing.
    """
    check_ranges(type(self), vars(self), "encoder")
    if self.hidden_size % self.num_heads:
      raise InputError(
        f"encoder.num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}"
      )
    s, r, l = tokens.ids.shape
    arrays, structure = jax.tree.flatten((tokens, input_offset))
    # [s, r] become one axis: a sharding of s stays on the major dimension.
    arrays = [jnp.reshape(x, (s * r, *x.shape[2:])) for x in arrays]
    tokens, input_offset = jax.tree.unflatten(structure, arrays)
    scan = partial(scan_layers, unroll=self.unroll, remat=self.remat, all_layers=all_layers)
    first, every, last = self._encode(tokens, input_offset, scan, train)
    if all_layers:
      last = jnp.concatenate([first, every[:-1], last[None]])
    return last.reshape(*last.shape[:-3], s, r, l, last.shape[-1])

  def _encode(
    self, tokens: Tokens, offset: Float[Array, "b l d"] | None, scan: Callable, train: bool
  ) -> tuple[Float[Array, "n b l d"], Float[Array, "m b l d"] | None, Float[Array, "b l d"]]:
    """Returns the states before a loop over layers (`scan`), those of its turns, and the last."""
    raise InputError(f"{type(self).__name__} is no encoder: it defines no `_encode`")

  def _layers(self, x, attention, apply, scan, inner_dropout=0.0):
    """Returns what `_encode` does, by BERT's layers with `attention`, each called by `apply`(layer, x)."""
    how = (jnp.dtype(self.dtype), self.precision)
    layer = transformer.TransformerLayer(
      attention,
      self.intermediate_size,
      self.activation,
      self.layer_norm_eps,
      self.hidden_dropout,
      *how,
      inner_dropout,
      name="layers",
    )
    last, every = scan(apply, layer, x, length=self.num_layers)
    return x[None], every, last

  @staticmethod
  def embedding_table(params: Any) -> Any:
    """Returns the word-embedding table [vocab_size, d] of this encoder's parameters."""
    return params["embeddings"]["word"]


class BertEncoder(PackedEncoder):
  """BERT without its pooler; RoBERTa, too, whose positions begin at `position_offset` 2.

    embeddings/{word, position, type} [rows, d], embeddings/norm/{scale, bias} [d]
    layers/attention/{query, key, value, output}/{kernel, bias}
    layers/feed_forward/{intermediate, output}/{kernel, bias}
    layers/{attention_norm, output_norm}/{scale, bias}
  where everything under `layers` has a first axis [num_layers].

  Attributes:
    attention: how attention is computed; see `layers.transformer.ATTENTION`.

  """

  max_positions: int
  embedding_size = 0  # no field: ELECTRA's embeddings alone have a width of their own
  type_vocab_size: int = 2
  position_offset: int = 0
  attention: Annotated[str, OneOf(transformer.ATTENTION)] = "auto"

  def _encode(self, tokens, offset, scan, train, bias=None):
    how = (jnp.dtype(self.dtype), self.precision)
    width = self.embedding_size or self.hidden_size
    x = transformer.Embeddings(
      self.vocab_size,
      width,
      how[0],
      self.hidden_dropout,
      self.layer_norm_eps,
      max_positions=self.max_positions,
      type_vocab_size=self.type_vocab_size,
      position_offset=self.position_offset,
      name="embeddings",
    )(tokens, offset, train=train)
    if width != self.hidden_size:
      start = {"kernel_init": transformer.INITIALIZER, "name": "embeddings_project"}
      x = Dense(self.hidden_size, dtype=how[0], precision=self.precision, **start)(x)
    mask = tokens.segment  # all that the kernel needs
    if self.attention != "kernel":
      mask = transformer.segment_mask(mask)
    attention = (self.num_heads, self.attention_dropout, *how, self.attention)
    attention = partial(transformer.SelfAttention, *attention)
    return self._layers(x, attention, lambda layer, x: layer(x, mask, bias, train=train), scan)

  @property
  def max_length(self) -> int:
    """The longest unit in tokens: rows of the position table."""
    return self.max_positions - self.position_offset


def size_keys(hidden: str, layers: str, heads: str, intermediate: str) -> tuple[Key, ...]:
  """Returns the keys of a family's sizes by their names, up to several times what is published."""
  return (
    Key("vocab_size", "vocab_size", largest=1 << 24),
    Key(hidden, "hidden_size", largest=1 << 16),
    Key(layers, "num_layers", largest=1 << 10),
    Key(heads, "num_heads", largest=1 << 12),
    Key(intermediate, "intermediate_size", largest=1 << 18),
  )


SIZES = size_keys("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
KEYS = (
  *SIZES,
  Key("max_position_embeddings", "max_positions", largest=1 << 20),
  Key("layer_norm_eps", "layer_norm_eps", 1e-12, below=1.0),
  Key("hidden_dropout_prob", "hidden_dropout", 0.1, below=1.0),
  Key("attention_probs_dropout_prob", "attention_dropout", 0.1, below=1.0),
  Key("hidden_act", "activation", "gelu", words=tuple(transformer.ACTIVATIONS)),
  Key("position_embedding_type", "", "absolute", words=("absolute",)),
)
TYPES = Key("type_vocab_size", "type_vocab_size", 2, largest=1 << 10)


def tensor_names(parts: Mapping[str, str]) -> dict[str, str]:
  """Returns the names of both tensors of each dense layer or norm: ours -> transformers'."""
  names = {}
  for ours, theirs in parts.items():
    names[f"{ours}/kernel"], names[f"{ours}/bias"] = f"{theirs}.weight", f"{theirs}.bias"
    if ours.endswith("norm"):
      names[f"{ours}/scale"] = names.pop(f"{ours}/kernel")
  return names


EMBEDDINGS = {
  "embeddings/word": "embeddings.word_embeddings.weight",
  "embeddings/position": "embeddings.position_embeddings.weight",
}
FEED_FORWARD = {
  "embeddings/norm": "embeddings.LayerNorm",
  "layers/feed_forward/intermediate": "encoder.layer.{}.intermediate.dense",
  "layers/feed_forward/output": "encoder.layer.{}.output.dense",
  "layers/output_norm": "encoder.layer.{}.output.LayerNorm",
}
# A layer's first axis is the layer; `{}` is its number.
NAMES = {
  **EMBEDDINGS,
  "embeddings/type": "embeddings.token_type_embeddings.weight",
  **tensor_names(FEED_FORWARD),
  **tensor_names(
    {
      "layers/attention/query": "encoder.layer.{}.attention.self.query",
      "layers/attention/key": "encoder.layer.{}.attention.self.key",
      "layers/attention/value": "encoder.layer.{}.attention.self.value",
      "layers/attention/output": "encoder.layer.{}.attention.output.dense",
      "layers/attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    }
  ),
}
IGNORED = re.compile(
  r"embeddings\.(position_ids|token_type_ids)|pooler\.dense\.(weight|bias)"
  r"|(cls|classifier|qa_outputs|lm_head)\..+"
)


def todays_name(name: str) -> str:
  """Returns a tensor's name with LayerNorm's weight and bias, which were gamma and beta till 2019."""
  return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
    "LayerNorm.beta", "LayerNorm.bias"
  )


def published(layers: int, hidden: int, intermediate: int, heads: int, **more: Any) -> dict:
  """Returns the sizes of a published config."""
  keys = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
  return {**dict(zip(keys, (layers, hidden, intermediate, heads))), **more}


def dense_classifier(activation: str, pooler: str, head: str) -> Callable[..., tuple[str, list]]:
  """Returns a family's `classifier`: a square layer with `activation` on the first token, and the head."""
  if activation not in vectors.ACTIVATIONS:
    raise ValueError(
      f"the classifier's activation is {activation!r:.80}; expected {', '.join(vectors.ACTIVATIONS)}"
    )

  def layers(config: Mapping[str, Any], width: int) -> tuple[str, list]:
    square, last = ("dense", width, activation, True), ("dense", 0, "identity", True)
    return "cls", [(square, pooler), (last, head)]

  return layers


BASE, LARGE = (12, 768, 3072, 12), (24, 1024, 4096, 16)
_BERT = dict(vocab_size=30522, max_position_embeddings=512)
_ROBERTA = dict(
  vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
)

_OF_BOTH: dict[str, Any] = dict(
  module=BertEncoder,
  token="cls",
  keys=(*KEYS, TYPES),
  names=NAMES,
  ignored=IGNORED,
  rename=todays_name,
  variants=("is_decoder",),
)
BERT = register(
  Transformer(
    name="bert",
    classes="Bert",
    prefix="bert.",
    **_OF_BOTH,
    pooler={"kernel": "pooler.dense.weight", "bias": "pooler.dense.bias"},
    head={"pooler": "bert.pooler.dense", "head": "classifier"},
    special={"unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"},
    typed=True,
    is_of=lambda encoder: not encoder.position_offset,
    published={
      "bert-base-uncased": published(*BASE, **_BERT),
      "bert-large-uncased": published(*LARGE, **_BERT),
      "nreimers/MiniLM-L6-H384-uncased": published(6, 384, 1536, 12, **_BERT),
    },
  )
)


_PADDING = Key("pad_token_id", "", 1, least=0, largest=1 << 16)
# RoBERTa has no pooler; the one in some files was never trained.
ROBERTA = register(
  Transformer(
    name="roberta",
    aliases=("xlm-roberta", "camembert"),  # with tokenisers of their own
    classes="Roberta",
    prefix="roberta.",
    **_OF_BOTH,
    head={"pooler": "classifier.dense", "head": "classifier.out_proj"},
    special={"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
    typed=False,
    # Positions count from behind the padding's id, which keeps its own row.
    adapt=lambda config, fields: {"position_offset": _PADDING.read(config) + 1},
    settings=lambda encoder: {"pad_token_id": encoder.position_offset - 1},
    is_of=lambda encoder: encoder.position_offset > 0,
    published={
      "roberta-base": published(*BASE, **_ROBERTA),
      "roberta-large": published(*LARGE, **_ROBERTA),
    },
  )
)
