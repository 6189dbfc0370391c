"""CETE's feature-based ranker: a new transformer encoder over frozen word vectors (section 3.1)."""

from functools import partial
from typing import Annotated, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, Int

from as2jax.data.batches.batch import Batch
from as2jax.data.inputs.protocol import Input
from as2jax.encoders.elmo import LayerMix
from as2jax.encoders.frozen_vectors import FrozenVectors
from as2jax.layers import transformer
from as2jax.layers.pooling import pool
from as2jax.layers.vectors import cosine, take
from as2jax.models.system import Embeddings, System
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, OneOf, Rate

NORMS = ("pre", "post")
POSITIONS = ("sinusoids", "none")
EPSILON = 1e-6  # of the layer norms


@struct.dataclass
class FeatureOutput:
  """Cosine of (question, candidate), which is score and prediction of the label at once."""

  scores: Float[Array, "s e"]


def sinusoids(position: Int[Array, "*n"], width: int) -> Float[Array, "*n d"]:
  """Return positional encodings (Vaswani et al. 2017, section 3.5), float32.
  PE(t, 2i) = sin(t / 10000^(2i/d)), PE(t, 2i+1) = cos(t / 10000^(2i/d)), d = `width`.
  """
  pairs = jnp.arange(0, width, 2, dtype=jnp.float32)
  rate = 10000.0 ** (-pairs / width)
  angle = position[..., None].astype(jnp.float32) * rate.reshape((1,) * position.ndim + (-1,))
  both = jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
  return both.reshape(*position.shape, -1)[..., :width]


_attention = partial(
  transformer.SelfAttention, dtype=jnp.float32, precision=None, attention="plain"
)


class PreNormLayer(nn.Module):
  """Adds attention(norm(x)), then feed_forward(norm(x)), to x, with dropout on what is added."""

  num_heads: int
  dropout: float

  @nn.compact
  def __call__(
    self, x: Float[Array, "b l d"], mask: Array, *, train: bool
  ) -> Float[Array, "b l d"]:
    attended = _attention(self.num_heads, self.dropout, name="attention")(
      transformer.LayerNorm(EPSILON, name="attention_norm")(x), mask, train=train
    )
    x = x + transformer.Dropout(self.dropout)(attended, train=train)
    fed = transformer.FeedForward(x.shape[-1], "relu", name="feed_forward")(
      transformer.LayerNorm(EPSILON, name="feed_forward_norm")(x)
    )
    return x + transformer.Dropout(self.dropout)(fed, train=train)


class FeatureBased(System):
  """Takes word vectors + positions → transformer encoder → mean → cosine (CETE section 3.1, 4.3).

  One encoder for both sentences; its width and that of its inner layer are the features'. Reads
  `FrozenVectors`, `[s r l d]`, kept on disk as `storage`; those of several layers, `[s r l layers
  d]`, are mixed by learned weights first (ELMo). `encoder_layers` 0 is the ablation of figure 4:
  the mean of the vectors, without positions. `num_heads` must divide the width (GloVe's 300: 6).
  `dropout` is on the sum of vectors and positions, on what each sublayer adds, on the attention.
  `positions` are `sinusoids` (section 3.1, and the authors' code for GloVe alone), or `none`, for
  contextual vectors, which hold their position already. The vectors are multiplied by
  `feature_scale` before (1 is the paper's sum; Vaswani et al. 2017, section 3.4, have √d). `norm`
  is `pre` (each sublayer's input and the last output are normalised) or `post`.

  >>> from as2jax.config import jobs
  >>> jobs.load("wikiqa_cete:glove").model.num_heads
  6
  """

  encoder_layers: Annotated[int, AtLeast(0)]
  num_heads: Annotated[int, AtLeast(1)]
  dropout: Rate
  positions: Annotated[str, OneOf(POSITIONS)]
  feature_scale: float
  norm: Annotated[str, OneOf(NORMS)]
  storage: Annotated[str, OneOf(("float32", "float16"))]

  encodes: ClassVar[bool] = True
  score_names: ClassVar[tuple[str, ...]] = ("cosine",)

  @property
  def inputs(self) -> tuple[Input, ...]:
    return (FrozenVectors(self.storage),)

  @nn.compact
  def token_vectors(self, batch: Batch, *, train: bool = False) -> Float[Array, "s r l d"]:
    tokens = batch.tokens
    x = batch.inputs[FrozenVectors.name].astype(jnp.float32)
    if x.ndim == 5:
      x = LayerMix(name="layer_mix")(jnp.moveaxis(x, 3, 0))
    if not self.encoder_layers:
      return x
    s, r, l, width = x.shape
    if width % self.num_heads:
      raise InputError(
        f"model.num_heads = {self.num_heads} does not divide the width of the vectors, {width}; give a "
        "number that does"
      )
    rows = lambda array: array.reshape(s * r, *array.shape[2:])
    x = self.feature_scale * rows(x)
    if self.positions == "sinusoids":
      x = x + sinusoids(rows(tokens.position), width)
    x = transformer.Dropout(self.dropout)(x, train=train)
    mask = transformer.segment_mask(rows(tokens.segment))
    for n in range(self.encoder_layers):
      if self.norm == "pre":
        layer = PreNormLayer(self.num_heads, self.dropout, name=f"layer_{n}")
      else:
        layer = transformer.TransformerLayer(
          partial(_attention, self.num_heads, self.dropout),
          width,
          "relu",
          EPSILON,
          self.dropout,
          jnp.float32,
          None,
          name=f"layer_{n}",
        )
      x = layer(x, mask, train=train)
    if self.norm == "pre":
      x = transformer.LayerNorm(EPSILON, name="output_norm")(x)
    return x.reshape(s, r, l, width)

  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    return Embeddings(
      pool(self.token_vectors(batch, train=train), batch.tokens, batch.units, "mean")
    )

  def __call__(self, batch: Batch, *, train: bool) -> FeatureOutput:
    units = self.encode(batch, train=train).units
    question, candidate = (take(units, batch.examples.members[..., k]) for k in range(2))
    return FeatureOutput(cosine(question, candidate))
