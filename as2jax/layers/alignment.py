"""Words of question and sentences as weighted points, and their alignment (CASSIE section 3.2).

A unit holds the question (role 0) and sentences 1 … K (its candidate and context, or K candidates);
all arrays are `[shard, unit, …]`. Examples that share a unit share its alignment.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from as2jax.data.batches.batch import Units, Words
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords
from as2jax.layers import transport
from as2jax.layers.vectors import take

ALIGNMENTS = ("transport", "mean")
MARGINALS = ("frequency", "uniform")
RELEVANCE = ("plan", "plan_over_mass", "nearest")


class Alignment(NamedTuple):
  """Holds the alignment of each unit's question with each of its K sentences.
  `representation` r `[s u k d]` is the mean of the relevant context `selected` `[s u k m]`, 0 where
  there is none; `distance` d = Σ D·π `[s u k]`; `present` tells whether question and sentence both
  have a word; `plan` and `cost` are π and D `[s u k n m]`, 0 at padding; `question` `[s u n]` and
  `sentence` `[s u k m]` the index in `Batch.words` of each point, −1 for none.
  """

  representation: Array
  distance: Array
  present: Array
  plan: Array
  cost: Array
  selected: Array
  question: Array
  sentence: Array


@dataclasses.dataclass(frozen=True)
class Aligner:
  """Aligns words; the fields are those of `as2jax.models.cassie.Cassie`, which checks them.

  `alignment`: `transport`, or `mean`, which aligns nothing: the relevant context is every word, and
  d the cost of the independent plan p_X p_Yᵀ (that of ε → ∞). `marginals`: `frequency` (freq(w) / Σ
  freq) or `uniform`. `stop_words`: whether words are left out whose input `stop_words` is not 0.
  `question_words`, `sentence_words`: the most points; further words are left out. `relevance`: by
  what the relevant word of a question's word is the greatest: `plan` (the paper's π),
  `plan_over_mass` (π over the word's marginal, by which frequent words are not preferred) or
  `nearest` (−D). For the rest see `transport`.
  """

  alignment: str
  marginals: str
  stop_words: bool
  epsilon: float
  epsilon_relative: bool
  iterations: int
  transport_gradient: str
  question_words: int
  sentence_words: int
  relevance: str

  def __call__(
    self, hidden: Float[Array, "s r l d"], units: Units, words: Words, sentences: int
  ) -> Alignment:
    """Align the question of each unit with its `sentences` sentences."""
    sizes = (self.question_words,) + (self.sentence_words,) * sentences
    vectors, number = points(hidden, units, words, sizes, filtered=self.stop_words)
    frequency = words.inputs[DocumentFrequency.name]
    weight = jnp.ones_like(frequency) if self.marginals == "uniform" else frequency
    weight = jnp.where(number >= 0, take(weight, jnp.maximum(number, 0)), 0.0)

    def sides(x):
      sentence = x[:, :, self.question_words :]
      return (
        x[:, :, : self.question_words],
        sentence.reshape(*x.shape[:2], sentences, self.sentence_words, *x.shape[3:]),
      )

    (x, y), (a, b), (question, sentence) = sides(vectors), sides(weight), sides(number)
    over = lambda z: jnp.broadcast_to(z[:, :, None], (*z.shape[:2], sentences, *z.shape[2:]))
    x, a, b = over(x), transport.marginal(over(a)), transport.marginal(b)
    cost = transport.distances(x, y)
    plan, selected = self._plan(cost, a, b)
    distance = transport.transport_cost(cost, plan, self.transport_gradient)
    count = jnp.maximum(selected.sum(-1), 1)[..., None].astype(jnp.float32)
    total = jnp.einsum(
      "sukm,sukmd->sukd", selected.astype(jnp.float32), y, precision=lax.Precision.HIGHEST
    )
    real = (a[..., :, None] > 0) & (b[..., None, :] > 0)
    return Alignment(
      total / count,
      distance,
      real.any((-2, -1)),
      plan,
      jnp.where(real, cost, 0.0),
      selected,
      question,
      sentence,
    )

  def _plan(self, cost, a, b):
    """Return the plan and the relevant context; no word of a sentence is relevant to no question."""
    if self.alignment == "mean":
      return a[..., :, None] * b[..., None, :], (b > 0) & (a > 0).any(-1)[..., None]
    if self.transport_gradient == "envelope":
      cost = lax.stop_gradient(cost)
    plan = transport.transport_plan(
      cost, a, b, epsilon=self.epsilon, relative=self.epsilon_relative, iterations=self.iterations
    )
    value = {
      "plan": lambda: plan,
      "plan_over_mass": lambda: plan / jnp.where(b > 0, b, 1.0)[..., None, :],
      "nearest": lambda: -cost,
    }[self.relevance]()
    return plan, transport.relevant_context(lax.stop_gradient(value), a, b)


def points(
  hidden: Float[Array, "s r l d"],
  units: Units,
  words: Words,
  sizes: tuple[int, ...],
  *,
  filtered: bool,
) -> tuple[Float[Array, "s u p d"], Int[Array, "s u p"]]:
  """Return the words of each unit as points, at most `sizes[role]` of each role in turn.

  Of each point the mean of its pieces' vectors, float32 (0 where there is no word), and the index
  of its word (−1 where there is none). Words of one role and unit must follow one another;
  `filtered` leaves out those with `keep` 0. One segment sum over tokens, without a table of words
  in between.
  """
  _, r, l, width = hidden.shape
  slots = units.length.shape[1]
  place = _places(words, slots, sizes, filtered)

  def shard(hidden, row, start, words, place):
    nowhere = slots * sum(sizes)
    count = jnp.arange(len(place), dtype=jnp.int32)
    first = row[words.unit] * l + start[words.unit] + words.start
    first = jnp.where(place < nowhere, first, r * l)
    begins = jnp.full(r * l, -1, jnp.int32).at[first].set(count, mode="drop")
    token = jnp.arange(r * l, dtype=jnp.int32)
    last = lax.cummax(jnp.where(begins >= 0, token, -1))
    word = begins[jnp.maximum(last, 0)]
    inside = (last >= 0) & (token - last < words.length[word])
    share = 1 / jnp.maximum(words.length[word], 1).astype(jnp.float32)
    target = jnp.where(inside, place[word], nowhere)
    flat = hidden.astype(jnp.float32).reshape(r * l, width) * share[:, None]
    vectors = jax.ops.segment_sum(flat, target, nowhere + 1)[:-1]
    number = jnp.full(nowhere, -1, jnp.int32).at[place].set(count, mode="drop")
    return vectors.reshape(slots, -1, width), number.reshape(slots, -1)

  return jax.vmap(shard)(hidden, units.row, units.start, words, place)


def _places(words: Words, slots: int, sizes: tuple[int, ...], filtered: bool):
  """Return the number of each word's point in its shard, slots · Σ sizes for those that are none."""
  offset = jnp.asarray([sum(sizes[:i]) for i in range(len(sizes))], jnp.int32)
  limit = jnp.asarray(sizes, jnp.int32)
  used = (words.length > 0) & (words.role < len(sizes))
  if filtered:
    used &= words.inputs[StopWords.name] == 0
  before = jnp.cumsum(used, axis=1, dtype=jnp.int32) - used.astype(jnp.int32)
  changed = lambda x: x[:, 1:] != x[:, :-1]
  starts = jnp.pad(
    changed(words.unit) | changed(words.role), ((0, 0), (1, 0)), constant_values=True
  )
  rank = before - lax.cummax(jnp.where(starts, before, 0), axis=1)
  role = jnp.minimum(words.role, len(sizes) - 1)
  place = words.unit * sum(sizes) + offset[role] + rank
  return jnp.where(used & (rank < limit[role]), place, slots * sum(sizes))
