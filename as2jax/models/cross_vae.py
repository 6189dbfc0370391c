"""Cross-VAEs: question and answer encoders whose latents generate each other's text (Yu et al. 2020).

Dual-VAEs and Dual-GRUs, the paper's competitors, are the same model with another `crossing`.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from as2jax.data.batches.batch import Batch, Tokens, Units
from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.word_tokenizer import UNKNOWN_ID
from as2jax.layers.decoder import DECODERS, BagDecoder, GRUDecoder
from as2jax.layers.pooling import StructuredSelfAttention, redundancy
from as2jax.layers.recurrent import Recurrent
from as2jax.layers.similarity import gather_units
from as2jax.layers.vectors import cosine, take, unit
from as2jax.models.losses import Loss, Term
from as2jax.models.ranking_losses import contrast
from as2jax.models.system import Embeddings, System
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import AtLeast, OneOf, Precision

SIDES = ("question", "answer")
ROLE = {"question": ROLES["question"], "answer": ROLES["candidate"]}
# crossing -> the side whose latent generates the text of each side
SOURCES = {
  "cross": {"question": "answer", "answer": "question"},
  "dual": {"question": "question", "answer": "answer"},
  "none": {},
}
MATCHED = ("sample", "mean")
STARTS = ("apart", "equal")
MATCHINGS = ("bce", "softmax")
REDUCTIONS = ("sum", "mean")
ACTIVE = 0.01  # of a latent's variance over texts (Burda et al. 2016), and of its KL in nats


@struct.dataclass
class Text:
  """The words of one side of each example, cut to a fixed length."""

  ids: Int[Array, "s e l"]
  length: Int[Array, "s e"]

  @property
  def real(self) -> Bool[Array, "s e l"]:
    place = jnp.arange(self.ids.shape[-1], dtype=jnp.int32)[None, None]
    return place < self.length[..., None]


def gather_text(
  tokens: Tokens, units: Units, members: Int[Array, "s e"], mask: Array, size: int
) -> Text:
  """Return the words of the units that examples point to, from wherever in a row each lies.
  `members` are units, local to their shard; `mask` is 0 for an example that is padding; words
  beyond `size` are cut off.
  """
  ids, length = gather_units(tokens.ids[..., None], units, members, mask, size)  # padding is 0
  return Text(ids[..., 0], length)


def as_tokens(ids: Int[Array, "s e l"]) -> Tokens:
  """Return words as the encoder wants them; word vectors depend on nothing else."""
  none = jnp.zeros_like(ids)
  return Tokens(ids=ids, segment=none + 1, position=none, type=none, role=none)


@struct.dataclass
class Side:
  """Holds what the loss sees of one side (question or answer) of each example.
  `mean` and `log_variance` are those of q(z | text); `matched`, z (a sample in training) or its
  mean, is compared with the other side's; `redundancy` is ‖AAᵀ − I‖² of the attention;
  `log_likelihood` that of the side's own text under its decoder, summed over `words` (the mark of
  the end is one, for the GRU). What the model lacks is None.
  """

  mean: Float[Array, "s e z"]
  log_variance: Float[Array, "s e z"] | None
  matched: Float[Array, "s e z"]
  redundancy: Float[Array, "s e"]
  log_likelihood: Float[Array, "s e"] | None
  words: Float[Array, "s e"]


@struct.dataclass
class CrossVAEOutput:
  """Holds both sides, and the matching function σ(scale·cos + bias).
  `draw` has a random number for each question with each answer of the batch, from which a loss
  draws negatives; `scores` are the cosines of μ.
  """

  question: Side
  answer: Side
  scale: Float[Array, ""]
  bias: Float[Array, ""]
  draw: Float[Array, "s e n"]
  scores: Float[Array, "s e"]


class LatentEncoder(nn.Module):
  """Gives q(z | text) by a GRU in both directions and self-attention (section 3.2).

  Fields as of `CrossVAE`; `variational` is whether there is a variance.
  """

  hidden_size: int
  hops: int
  attention_size: int
  latent_size: int
  variational: bool
  log_variance_start: float
  unroll: int
  precision: Any

  @nn.compact
  def __call__(
    self, words: Float[Array, "n l d"], length: Int[Array, "n"]
  ) -> tuple[Array, Array | None, Array]:
    """Return (μ [n, z], log σ² [n, z] or None, redundancy [n]); those of no text are no use."""
    n, size, _ = words.shape
    position = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), (n, size))
    real = position < length[:, None]
    hidden = Recurrent("gru", self.hidden_size, True, self.unroll, self.precision, name="gru")(
      words, position, real.astype(jnp.int32)
    )
    attention = StructuredSelfAttention(
      self.hops, self.attention_size, self.precision, name="attention"
    )
    pooled, weights = attention(hidden, real)
    dense = lambda name, start=0.0: nn.Dense(
      self.latent_size,
      precision=self.precision,
      bias_init=nn.initializers.constant(start),
      name=name,
    )(pooled)
    log_variance = dense("log_variance", self.log_variance_start) if self.variational else None
    return dense("mean"), log_variance, redundancy(weights)


class CrossVAE(System):
  """Encodes questions and answers; their latents generate texts (section 3.1, figure 1).

  In training both texts of each example are gathered from the rows of the batch, so each encoder
  reads its own side alone. `encode` takes a unit's side from its role; a batch of one role alone
  runs one encoder, a mixed one runs both on all units.

  >>> from as2jax.config import jobs
  >>> jobs.load("squad_dual_vae:small").model.crossing
  'dual'

  Attributes:
    encoder: word vectors, behind the encoder contract; trained along.
    crossing: who generates what: `cross` (q from z_a, a from z_q), `dual` (each side itself), or
      `none` (no decoder, no variance: z = μ).
    decoder: `gru`, or `mlp`, a bag of words.
    hidden_size, decoder_size: of the encoders' GRUs, a direction; of the decoders.
    hops, attention_size, latent_size: r and d_a of the self-attention; width of z.
    question_length, answer_length: words (marks included) that a side is cut to.
    tied: whether the decoders' softmax has the word vectors as its kernel.
    match_on: what is compared in training: the `sample` (eq. 3) or the `mean`.
    answer_start: whether the answers' encoder starts with weights of its own (`apart`) or the
      questions' (`equal`), by which texts that share words match before any training.
    log_variance_start, match_scale, match_bias: log σ² of q, s and b of σ(s·cos + b) at the start.
    softmax_chunk: words of a shard whose logits are in memory at once; 0 for all.
    marks: ids of the marks put before and after each text; as the encoder's vocabulary says.
    output_size: rows of the table that decoders generate: words of the training text. A word behind
      them, or unknown, is read, but its likelihood does not count.

  """

  encoder: nn.Module
  crossing: Annotated[str, OneOf(tuple(SOURCES))]
  decoder: Annotated[str, OneOf(DECODERS)]
  hidden_size: Annotated[int, AtLeast(1)]
  decoder_size: Annotated[int, AtLeast(1)]
  hops: Annotated[int, AtLeast(1)]
  attention_size: Annotated[int, AtLeast(1)]
  latent_size: Annotated[int, AtLeast(1)]
  question_length: Annotated[int, AtLeast(2)]
  answer_length: Annotated[int, AtLeast(2)]
  tied: bool
  match_on: Annotated[str, OneOf(MATCHED)]
  answer_start: Annotated[str, OneOf(STARTS)]
  log_variance_start: float
  match_scale: float
  match_bias: float
  softmax_chunk: Annotated[int, AtLeast(0)]
  unroll: Annotated[int, AtLeast(1)]
  precision: Precision
  marks: tuple[int, int]
  output_size: int

  encodes: ClassVar[bool] = True
  score_names: ClassVar[tuple[str, ...]] = ("cosine",)
  diagnostics: ClassVar[str] = "as2jax.evaluation.diagnostics:CROSS_VAE"

  def setup(self):
    for side in SIDES:
      encoder = LatentEncoder(
        self.hidden_size,
        self.hops,
        self.attention_size,
        self.latent_size,
        bool(SOURCES[self.crossing]),
        self.log_variance_start,
        self.unroll,
        self.precision,
      )
      setattr(self, f"{side}_encoder", encoder)
    for side in SOURCES[self.crossing]:
      decoder = BagDecoder(self.decoder_size, self.tied, self.precision)
      if self.decoder == "gru":
        decoder = GRUDecoder(
          self.decoder_size, self.tied, self.softmax_chunk, self.unroll, self.precision
        )
      setattr(self, f"{side}_decoder", decoder)
    self.scale = self.param("match_scale", nn.initializers.constant(self.match_scale), ())
    self.bias = self.param("match_bias", nn.initializers.constant(self.match_bias), ())

  @nn.nowrap
  def initial_params(self, params: dict[str, Array]) -> dict[str, Array]:
    if self.answer_start == "apart":
      return params
    equal = dict(params)
    for path in params:
      if path.startswith("answer_encoder/"):
        equal[path] = params[path.replace("answer", "question", 1)]
    return equal

  def __call__(self, batch: Batch, *, train: bool) -> CrossVAEOutput:
    """Return both sides of each example (`pairs`)."""
    examples = batch.examples
    texts, encoded, latents, sides = {}, {}, {}, {}
    for k, side in enumerate(SIDES):
      texts[side] = self._text(batch, k)
      encoded[side] = self._encode(side, texts[side], train)
      mean, log_variance, _ = encoded[side]
      latents[side] = mean
      if train and log_variance is not None:  # z = μ + σ ε (Kingma and Welling 2013)
        noise = jax.random.normal(self.make_rng("dropout"), mean.shape)
        latents[side] = mean + jnp.exp(log_variance / 2) * noise
    for side in SIDES:
      mean, log_variance, doubling = encoded[side]
      source = SOURCES[self.crossing].get(side)
      likelihood = self._likelihood(side, latents[source], texts[side], train) if source else None
      sides[side] = Side(
        mean,
        log_variance,
        latents[side] if self.match_on == "sample" else mean,
        doubling,
        likelihood,
        self._targets(texts[side])[1].sum(-1).astype(jnp.float32),
      )
    s, e = examples.mask.shape
    draw = jnp.zeros((s, e, s * e))
    if train:
      draw = jax.random.uniform(self.make_rng("dropout"), draw.shape)
    scores = cosine(encoded["question"][0], encoded["answer"][0])
    return CrossVAEOutput(**sides, scale=self.scale, bias=self.bias, draw=draw, scores=scores)

  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    """Return μ of each unit by the encoder of its role, float32."""
    units = batch.units
    slots = jnp.arange(units.length.shape[1], dtype=jnp.int32)
    members = jnp.broadcast_to(slots, units.length.shape)
    first = jnp.where(units.length > 0, units.row * batch.tokens.role.shape[2] + units.start, 0)
    role = take(batch.tokens.role.reshape(len(first), -1), first)
    vectors = jnp.zeros((*units.length.shape, self.latent_size))
    for side in SIDES:
      mine = (units.length > 0) & (role == ROLE[side])
      text = gather_text(batch.tokens, units, members, mine, getattr(self, f"{side}_length"))
      run = lambda module, text, side=side: module._encode(side, text, train)[0]
      # A batch of candidates alone, as a pool is made of, costs one encoder.
      skip = lambda module, text: jnp.zeros((*text.length.shape, module.latent_size))
      encoded = (
        run(self, text) if self.is_initializing() else nn.cond(mine.any(), run, skip, self, text)
      )
      vectors = jnp.where(mine[..., None], encoded, vectors)
    return Embeddings(vectors)

  def reconstruct(self, batch: Batch, *, train: bool) -> dict[str, dict[str, Array]]:
    """Return what the model has by side of each example: `mean`, `log_variance` `[s, e, z]`,
    `log_likelihood`, `words`, and `all_words`, those that no decoder generates included.
    """
    output, by_side = self(batch, train=train), {}
    for k, side in enumerate(SIDES):
      names = ("mean", "log_variance", "log_likelihood", "words")
      values = {name: getattr(getattr(output, side), name) for name in names}
      values["all_words"] = self._targets(self._text(batch, k), every=True)[1].sum(-1)
      by_side[side] = {name: value for name, value in values.items() if value is not None}
    return by_side

  def _text(self, batch: Batch, k: int) -> Text:
    examples, size = batch.examples, getattr(self, f"{SIDES[k]}_length")
    return gather_text(batch.tokens, batch.units, examples.members[..., k], examples.mask, size)

  def _encode(self, side: str, text: Text, train: bool) -> tuple[Array, Array | None, Array]:
    """Return μ, log σ² `[s, e, z]` and the attention's redundancy `[s, e]` of texts of a side."""
    words = self.encoder(as_tokens(text.ids), train=train)
    s, e, length, width = words.shape
    encoder = getattr(self, f"{side}_encoder")
    encoded = encoder(words.reshape(s * e, length, width), text.length.reshape(-1))
    return tuple(None if x is None else x.reshape(s, e, *x.shape[1:]) for x in encoded)

  def _targets(self, text: Text, every: bool = False) -> tuple[Array, Array]:
    """Return the words that follow each word, and which a decoder predicts, `[s, e, l − 1]`.

    It predicts words that it can generate; `every`: all that are real.
    """
    target, real = text.ids[..., 1:], text.real[..., 1:]
    known = (target < self.output_size) & (target != UNKNOWN_ID)
    target, real = jnp.where(known, target, UNKNOWN_ID), real & (known | every)
    if self.decoder == "mlp":  # that a text ends says nothing of its words
      real = real & (target != self.marks[1])
    return target, real

  def _likelihood(self, side: str, z: Array, text: Text, train: bool) -> Float[Array, "s e"]:
    """Return log p(text | z), summed over words."""
    target, real = self._targets(text, every=True)
    predicted, read = self._targets(text)[1], text.ids[..., :-1]
    vectors = self.encoder(as_tokens(read), train=train)
    decoder = getattr(self, f"{side}_decoder")
    table = self.encoder.embedding_table(self.encoder.variables["params"])[: self.output_size]
    log_probability = decoder(z, vectors, target, real, table)
    return jnp.where(predicted, log_probability, 0.0).sum(-1)


def kl_of_dimensions(
  mean: Float[Array, "*n z"], log_variance: Float[Array, "*n z"]
) -> Float[Array, "*n z"]:
  """Return KL(N(μ, σ²) ‖ N(0, 1)) = ½ (μ² + σ² − 1 − log σ²) of each dimension, in nats."""
  return 0.5 * (jnp.square(mean) + jnp.exp(log_variance) - 1 - log_variance)


def annealed(progress: Array, epochs: int) -> Array:
  """Return β's share after `progress` epochs: 2/epochs an epoch, up to 1 (section 4.3)."""
  return jnp.minimum(2 * (progress / max(epochs, 1)), 1.0)


@dataclasses.dataclass(frozen=True)
class CrossVAELoss(Loss):
  """Takes reconstruction, KL and matching (eqs. 4 to 7, with the signs of a loss).

  L_cross (sum over words, mean over examples) and L_KL are over aligned pairs, those with label 1.
  L_matching is the binary cross entropy of σ(s·cos + b), the mean over positives and the mean over
  negatives with equal weight. A negative is a pair with label 0, or a question with another
  example's answer, unless that answer has the same text as its own or that example the same
  question.

  Attributes:
    alpha, beta, gamma: the weights; that of the KL after annealing.
    epochs: of the whole run, for annealing; see `annealed`.
    negatives: `in_batch`, all of them over all shards, or `sampled:k`, k at random a question.
    redundancy: weight of ‖AAᵀ − I‖², the penalty of Lin et al. 2017; 0 only logs it.
    matching: `bce` (eq. 7); or `softmax`: −ln of the positive's share among itself and the
      negatives of its question, by softmax of s·cos, the mean over positives.
    reconstruction: of a text's words, their `sum` (eq. 4) or their `mean`.

  """

  alpha: float
  beta: float
  gamma: float
  epochs: int
  negatives: str
  redundancy: Annotated[float, AtLeast(0)]
  matching: Annotated[str, OneOf(MATCHINGS)]
  reconstruction: Annotated[str, OneOf(REDUCTIONS)]
  outputs: ClassVar[tuple[str, ...]] = ("question", "answer", "draw")
  whole_batch: ClassVar[bool] = True  # its negatives are those of all shards

  def __post_init__(self):
    super().__post_init__()
    kind, _, count = self.negatives.partition(":")
    if self.negatives != "in_batch" and not (kind == "sampled" and count.isdigit() and int(count)):
      raise InputError(
        f"loss.negatives = {self.negatives!r}: use `in_batch` or `sampled:k` with k of 1 or more"
      )

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    examples = batch.examples
    aligned = examples.mask * (examples.labels[..., 0] == 1)
    terms, share = self._matching(output, batch, aligned), annealed(progress, self.epochs)
    for side in ("question", "answer"):
      values = getattr(output, side)
      terms[f"redundancy_{side}"] = Term(values.redundancy, aligned, "mean", self.redundancy)
      if values.log_likelihood is not None:
        terms |= self._reconstruction(side, values, aligned)
      if values.log_variance is not None:
        terms |= self._kl(side, values, aligned, share)
    if output.question.log_variance is not None:
      terms["beta"] = Term(self.beta * share, jnp.ones(()), "mean", 0.0)
    return terms

  def _reconstruction(self, side, values, aligned) -> dict[str, Term]:
    """Return −log p of the side's text; its perplexity is that of the batch's words."""
    surprise, words = -values.log_likelihood, jnp.maximum(values.words, 1.0)
    total, count = jnp.sum(aligned * surprise), jnp.sum(aligned * values.words)
    perplexity = jnp.exp(total / jnp.maximum(count, 1.0))
    cost = surprise / words if self.reconstruction == "mean" else surprise
    return {
      f"reconstruction_{side}": Term(cost, aligned, "mean", self.alpha),
      f"nats_per_word_{side}": Term(surprise / words, aligned * values.words, "mean", 0.0),
      f"perplexity_{side}": Term(perplexity, (count > 0).astype(jnp.float32), "mean", 0.0),
    }

  def _kl(self, side, values, aligned, share) -> dict[str, Term]:
    """Return the KL, and whether the posterior has collapsed onto the prior."""
    each = kl_of_dimensions(values.mean, values.log_variance)
    kl = each.sum(-1)
    there = aligned.sum() > 0
    weight = (aligned / jnp.maximum(aligned.sum(), 1.0))[..., None]
    center = jnp.sum(weight * values.mean, (0, 1), keepdims=True)
    variance = jnp.sum(weight * jnp.square(values.mean - center), (0, 1))
    of_dimension = jnp.sum(weight * each, (0, 1))
    log = lambda values: Term(values.astype(jnp.float32), there.astype(jnp.float32), "mean", 0.0)
    noise = jnp.sum(weight * jnp.exp(values.log_variance), (0, 1)).sum()
    return {
      f"annealed_kl_{side}": Term(share * kl, aligned, "mean", self.beta),
      f"signal_{side}": log(variance.sum() / jnp.maximum(variance.sum() + noise, 1e-12)),
      f"kl_{side}": Term(kl, aligned, "mean", 0.0),
      f"kl_largest_dimension_{side}": log(of_dimension.max()),
      f"kl_active_dimensions_{side}": log((of_dimension > ACTIVE).sum()),
      f"active_units_{side}": log((variance > ACTIVE).sum()),
    }

  def _matching(self, output, batch, aligned) -> dict[str, Term]:
    question, answer = unit(output.question.matched), unit(output.answer.matched)
    answers = answer.reshape(-1, answer.shape[-1])  # of all shards
    cosines = jnp.einsum("sez,nz->sen", question, answers, precision=jax.lax.Precision.HIGHEST)
    logits = output.scale * cosines + output.bias
    positive, negative = pairs_of(batch, aligned)
    if self.negatives != "in_batch":
      negative = drawn(negative, output.draw, int(self.negatives.partition(":")[2]))
    right = jnp.where(positive, logits > 0, logits < 0)
    if self.matching == "softmax":
      scaled = output.scale * cosines
      values = contrast(scaled, scaled[..., None, :], (negative > 0)[..., None, :])
      usable = positive * (negative.sum(-1, keepdims=True) > 0)
      matching = {"matching_softmax": Term(values, usable, "mean", self.gamma)}
    else:
      half = self.gamma / 2
      matching = {
        "matching_positive": Term(jax.nn.softplus(-logits), positive, "mean", half),
        "matching_negative": Term(jax.nn.softplus(logits), negative, "mean", half),
      }
    return matching | {
      "cosine_positive": Term(cosines, positive, "mean", 0.0),
      "cosine_negative": Term(cosines, negative, "mean", 0.0),
      "matching_right": Term(right.astype(jnp.float32), positive + negative, "mean", 0.0),
    }


def pairs_of(
  batch, aligned: Float[Array, "s e"]
) -> tuple[Float[Array, "s e n"], Float[Array, "s e n"]]:
  """Return masks of the positives and of the negatives among (question of e, answer of n)."""
  examples = batch.examples
  s, e = examples.mask.shape
  own = jnp.eye(s * e).reshape(s, e, s * e)
  wrong = examples.mask * (examples.labels[..., 0] == 0)
  text = take(batch.units.id, examples.members[..., 0])
  differs = lambda x: x[..., None] != x.reshape(-1)[None, None]
  there = examples.mask[..., None] * examples.mask.reshape(-1)[None, None]
  other = there * (differs(examples.answer) & differs(text))
  return own * aligned[..., None], own * wrong[..., None] + other


def drawn(
  mask: Float[Array, "s e n"], draw: Float[Array, "s e n"], k: int
) -> Float[Array, "s e n"]:
  """Return `mask` with at most k entries a question left: those with the largest random numbers."""
  order = jnp.where(mask > 0, draw, -1.0)
  k = min(k, order.shape[-1])
  lowest = jax.lax.top_k(order, k)[0][..., -1:]
  return mask * (order >= lowest)
