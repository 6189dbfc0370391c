"""CASSIE: question-context alignment, sentence graph, mutual information (paper section 3)."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import jraph
from flax import linen as nn
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from as2jax.data.batches.batch import Batch, Words
from as2jax.data.inputs.protocol import Input
from as2jax.data.inputs.rankings import FirstStageRanking
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords
from as2jax.layers.alignment import ALIGNMENTS, GRADIENTS, MARGINALS, RELEVANCE, Aligner, Alignment
from as2jax.layers.pooling import TOKENS, pool
from as2jax.layers.segment_embeddings import SEGMENTS, STARTS, role_embeddings
from as2jax.layers.transformer import MASKED
from as2jax.layers.vectors import take, unit
from as2jax.models.losses import Loss, Term
from as2jax.models.system import Layout, System
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import Above, AtLeast, Each, OneOf

TEMPLATES = ("context", "pair", "joint")
HEAD_READS = ("h", "r", "d", "cls")
RANKER_HEADS = ("none", "linear", "pooled")
EDGES = ("softmax", "sigmoid")
SELF_TERMS = ("none", "residual", "loop")


@struct.dataclass
class CassieOutput:
  """Holds logits of p by scored node (the candidate; in `joint` all K), and scores.

  An absent node's score has no meaning. `pair_logits` are those of U([h_i; h_j]), in the order (i,
  j). A node takes part (`nodes`) where it has words (`sentences`) or stands for a missing sentence.
  `node_cosines` are before the graph and after each layer, `relevant_words` the number of words in
  a sentence's relevant context, `self_aligned` of the question's words that a sentence holds, too,
  (those whose greatest π is that of the word itself, all).
  """

  scores: Array
  node_logits: Float[Array, "s e n"]
  pair_logits: Float[Array, "s e k k"]
  nodes: Bool[Array, "s e k"]
  sentences: Bool[Array, "s e k"]
  node_cosines: Float[Array, "s e l"]
  relevant_words: Int[Array, "s e k"]
  self_aligned: Int[Array, "s e k 2"]


@struct.dataclass
class CassieAlignment:
  """Holds what a picture of the model's view needs: see `Cassie.align`.
  `units` belongs to the batch's units; an example's unit is `examples.members[..., 0]`.
  """

  units: Alignment
  edges: Float[Array, "s e k k"]
  scores: Array


class Cassie(System):
  """Aligns [q; c; previous; next] → LM → transport to each sentence → graph → p (CASSIE section 3).

  The mean of a sentence's relevant context is its node, the transport cost enters the weights of
  edges, and after the graph convolutions the candidate's node gives p. The template `pair` is the
  ablation without context (a graph of one node); `joint` reads the top K candidates in one sequence
  [q; c₁ … c_K] and gives each a p (paper section 4.2). A node that is absent (no words) sends
  nothing; its own h is ReLU(b), so that its score is a constant.

  >>> from as2jax.config import jobs
  >>> jobs.load("wikiqa_cassie:joint").model.template
  'joint'

  Attributes:
    encoder, token: LM; whose vector stands for a unit, `cls` (first token) or `cls_last` (XLNet).
    template: `context`, `pair` or `joint`.
    segments: embeddings by role, added to the LM's input embeddings before their norm: `four`
      (question, candidate, previous, next), `three` (one for both context sentences) or `none`.
      `pair` and `joint` have two with either; `joint` has one for each rank with `ranks`.
    segments_start: of these embeddings: `normal`, N(0, 0.02), or `zero`.
    alignment, marginals, stop_words, epsilon, epsilon_relative, iterations, transport_gradient,
      question_words, sentence_words, relevance: see `as2jax.layers.alignment.Aligner`.
    graph_layers: L; 0 is the ablation without GCN (p from r_1).
    self_term, edges: see `GraphConvolution` and `EdgeWeights`.
    head_reads: what the head reads of a scored node, of `h` (the node after the graph, the
      paper's), `r` (its relevant context), `d` (its transport cost) and `cls` (the unit's `token`).
    ranker_head: whether the logit of a cross-encoder's head on the unit's `token` (`linear`, or
      `pooled` behind a tanh layer) is added to that of the candidate's node, which then begins as
      0: with `warm_start.scope` = `matching` a transferred ranker's scores are CASSIE's before the
      first step. Not in the paper, and not with `joint`.
    hidden: width of the hidden layer of every FFN.
    padding_node: whether a missing context sentence is a node, with r = 0 and d = 0, or none.

  """

  encoder: nn.Module
  token: Annotated[str, OneOf(TOKENS)]
  template: Annotated[str, OneOf(TEMPLATES)] = dataclasses.field()
  segments: Annotated[str, OneOf(tuple(SEGMENTS))]
  segments_start: Annotated[str, OneOf(tuple(STARTS))]
  alignment: Annotated[str, OneOf(ALIGNMENTS)]
  marginals: Annotated[str, OneOf(MARGINALS)]
  stop_words: bool
  epsilon: Annotated[float, Above(0)]
  epsilon_relative: bool
  iterations: Annotated[int, AtLeast(1)]
  transport_gradient: Annotated[str, OneOf(GRADIENTS)]
  question_words: Annotated[int, AtLeast(1)]
  sentence_words: Annotated[int, AtLeast(1)]
  relevance: Annotated[str, OneOf(RELEVANCE)]
  graph_layers: Annotated[int, AtLeast(0)]
  self_term: Annotated[str, OneOf(SELF_TERMS)]
  edges: Annotated[str, OneOf(EDGES)]
  head_reads: Annotated[tuple[str, ...], Each(OneOf(HEAD_READS))]
  ranker_head: Annotated[str, OneOf(RANKER_HEADS)]
  hidden: Annotated[int, AtLeast(1)]
  padding_node: bool

  score_names: ClassVar[tuple[str, ...]] = ("logit",)
  warm_start_paths: ClassVar[Mapping[str, str]] = MappingProxyType(
    {"pooler/": "ranker/pooler/", "head/": "ranker/head/"}
  )

  @property
  def layout(self) -> Layout:
    return "joint" if self.template == "joint" else "single"

  @property
  def inputs(self) -> tuple[Input, ...]:
    ranking = (FirstStageRanking(),) if self.layout == "joint" else ()
    return (DocumentFrequency(), StopWords(), *ranking)

  def setup(self):
    fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(Aligner)}
    self.aligner = Aligner(**fields)
    self.segment_embeddings = role_embeddings(self)
    if self.graph_layers:
      self.edge_weights = EdgeWeights(self.hidden, self.edges)
      self.convolutions = [GraphConvolution(self.self_term) for _ in range(self.graph_layers)]
    self.head = FeedForward(self.hidden, output_bias=True)
    if self.ranker_head != "none":
      if self.template == "joint":
        raise InputError(
          f"model.ranker_head = {self.ranker_head!r}: with template 'joint' one token stands for all "
          "candidates; set it to 'none'"
        )
      self.ranker = RankerHead(self.ranker_head == "pooled")
    self.discriminator = FeedForward(self.hidden, output_bias=True)

  @nn.nowrap
  def initial_params(self, params: dict[str, Array]) -> dict[str, Array]:
    if self.ranker_head == "none":
      return params
    zero = {path: 0 * params[path] for path in params if path.startswith("head/output/")}
    return params | zero

  def __call__(self, batch: Batch, *, train: bool) -> CassieOutput:
    return self._score(batch, *self._align(batch, train=train))[0]

  def token_vectors(self, batch: Batch, *, train: bool = False) -> Float[Array, "s r l d"]:
    offset = self.segment_embeddings(batch.tokens)
    return self.encoder(batch.tokens, input_offset=offset, train=train)

  def align(self, batch: Batch) -> CassieAlignment:
    """Return plans, costs, relevant context and edge weights of a batch, without dropout."""
    aligned, whole = self._align(batch, train=False)
    output, edges = self._score(batch, aligned, whole)
    return CassieAlignment(aligned, edges, output.scores)

  def _align(self, batch: Batch, *, train: bool) -> tuple[Alignment, Float[Array, "s u d"]]:
    """Return the alignment of each unit, and the vector of its `token`."""
    hidden = self.token_vectors(batch, train=train)
    sentences = batch.examples.labels.shape[-1]
    whole = pool(hidden, batch.tokens, batch.units, self.token)
    return self.aligner(hidden, batch.units, batch.words, sentences), whole

  def _score(self, batch: Batch, aligned: Alignment, whole: Array) -> tuple[CassieOutput, Array]:
    """Return the output, and α `[s e k k]`."""
    examples, k = batch.examples, batch.examples.labels.shape[-1]
    real = (examples.mask > 0)[..., None]
    of = lambda x: take(x, examples.members[..., 0])
    sentences = of(aligned.present) & real
    nodes = sentences
    if self.padding_node and self.template == "context":
      asked = (of(aligned.question) >= 0).any(-1, keepdims=True) & real
      nodes = nodes | (asked & (jnp.arange(k) > 0)[None, None])
    representation, distance = of(aligned.representation), of(aligned.distance)
    graph = sentence_graphs(representation, nodes)
    cosines = [node_cosine(representation, nodes)]
    if self.graph_layers:
      graph = self.edge_weights(graph, distance.reshape(distance.shape[0], -1))
      for convolution in self.convolutions:
        graph = convolution(graph)
        cosines.append(node_cosine(ungroup(graph.nodes, k), nodes))
    s, e = examples.mask.shape
    pairs = self.discriminator(jnp.concatenate(edge_features(graph, graph.nodes), axis=-1))
    scored = k if self.template == "joint" else 1
    read = {
      "h": lambda: ungroup(graph.nodes, k),
      "r": lambda: representation,
      "d": lambda: distance[..., None],
      "cls": lambda: jnp.broadcast_to(
        of(whole)[:, :, None], (*representation.shape[:3], whole.shape[-1])
      ),
    }
    parts = [read[name]()[:, :, :scored].astype(jnp.float32) for name in self.head_reads]
    logits = self.head(jnp.concatenate(parts, axis=-1))
    if self.ranker_head != "none":
      logits = logits + self.ranker(of(whole))[..., None]
    scores = logits if self.template == "joint" else logits[..., 0]
    output = CassieOutput(
      scores,
      logits,
      pairs.reshape(s, e, k, k),
      nodes,
      sentences,
      jnp.stack(cosines, axis=-1),
      of(aligned.selected).sum(-1),
      of(_self_aligned(batch.words, aligned)),
    )
    return output, graph.edges.reshape(s, e, k, k)


class RankerHead(nn.Module):
  """Gives a cross-encoder's log P(1) − log P(0) of each vector, behind a tanh layer if `pooled`."""

  pooled: bool

  @nn.compact
  def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n"]:
    if self.pooled:
      x = jnp.tanh(nn.Dense(x.shape[-1], name="pooler", precision=lax.Precision.HIGHEST)(x))
    start = nn.initializers.normal(0.02)
    logits = nn.Dense(2, name="head", kernel_init=start, precision=lax.Precision.HIGHEST)(x)
    logits = logits.astype(jnp.float32)
    return logits[..., 1] - logits[..., 0]


class FeedForward(nn.Module):
  """Is the FFN of CASSIE, in float32: one hidden layer, ReLU, one output.
  `output_bias`: whether the output has a bias, which a softmax over outputs would cancel.
  """

  hidden: int
  output_bias: bool

  @nn.compact
  def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n"]:
    """Return one number for each vector."""
    highest = lax.Precision.HIGHEST
    x = nn.Dense(self.hidden, precision=highest, name="hidden")(x.astype(jnp.float32))
    output = nn.Dense(1, use_bias=self.output_bias, precision=highest, name="output")
    return output(nn.relu(x))[..., 0]


def sentence_graphs(
  nodes: Float[Array, "s e k d"], present: Bool[Array, "s e k"]
) -> jraph.GraphsTuple:
  """Return fully connected graphs with self loops; `[s, e·k, …]` nodes and `[s, e·k·k, …]` edges.
  One batch of graphs a shard, K nodes a graph; edge (i, j) carries what node j sends to node i. It
  holds 1 where both its ends are present, else 0; edges are in the order (example, i, j).
  """
  s, e, k, d = nodes.shape
  node = jnp.arange(e * k, dtype=jnp.int32).reshape(1, e, k)
  of_edge = lambda ends: jnp.broadcast_to(ends, (s, e, k, k)).reshape(s, -1)
  return jraph.GraphsTuple(
    nodes=nodes.reshape(s, e * k, d),
    edges=of_edge(present[..., :, None] & present[..., None, :]).astype(jnp.float32),
    senders=of_edge(node[..., None, :]),
    receivers=of_edge(node[..., :, None]),
    n_node=jnp.full((s, e), k, jnp.int32),
    n_edge=jnp.full((s, e), k * k, jnp.int32),
    globals=None,
  )


def edge_features(graph: jraph.GraphsTuple, values: Float[Array, "s n d"]) -> tuple[Array, Array]:
  """Return the values of the receiver i and of the sender j of each edge, `[s, edges, d]`."""
  return take(values, graph.receivers), take(values, graph.senders)


class EdgeWeights(nn.Module):
  """Computes α_ij = softmax_j FFN([r_i ⊙ r_j; d_i; d_j]) over the present j (CASSIE section 3.3).
  `weighting` is `softmax` (the paper's equation), or `sigmoid` of the FFN (the paper's text once),
  by which a node's weights do not add up to 1.
  """

  hidden: int
  weighting: str = "softmax"

  @nn.compact
  def __call__(self, graph: jraph.GraphsTuple, distance: Float[Array, "s n"]) -> jraph.GraphsTuple:
    """Return `graph` (edges 1 or 0) with α as its edges; 0 where either end is absent."""
    left, right = edge_features(graph, graph.nodes)
    d = jnp.concatenate(edge_features(graph, distance[..., None]), axis=-1)
    score = FeedForward(self.hidden, output_bias=False, name="score")
    scores = score(jnp.concatenate([left * right, d], axis=-1))

    def shard(scores, edges, receivers):
      if self.weighting == "sigmoid":
        return edges * nn.sigmoid(scores)
      scores = jnp.where(edges > 0, scores, MASKED)
      return edges * jraph.segment_softmax(scores, receivers, distance.shape[1])

    return graph._replace(edges=jax.vmap(shard)(scores, graph.edges, graph.receivers))


class GraphConvolution(nn.Module):
  """Computes h_i = ReLU(Σ_j α_ij W h_j + b) (CASSIE eq. 2); W is square.
  `self_term` keeps nodes apart, which convolutions with weights that add up to 1 average: `none`
  (the paper's), `residual` (h_i is added to the result) or `loop` (a second square matrix times h_i
  is added before ReLU).
  """

  self_term: str = "none"

  @nn.compact
  def __call__(self, graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
    """Return the graph with its new node vectors; edges hold the weights α."""
    n, width = graph.nodes.shape[1:]
    sent = nn.Dense(width, use_bias=False, precision=lax.Precision.HIGHEST, name="map")(graph.nodes)
    bias = self.param("bias", nn.initializers.zeros, (width,), jnp.float32)

    def shard(sent, edges, senders, receivers):
      return jraph.segment_sum(edges[:, None] * sent[senders], receivers, n)

    got = jax.vmap(shard)(sent, graph.edges, graph.senders, graph.receivers) + bias[None, None]
    if self.self_term == "loop":
      loop = nn.Dense(width, use_bias=False, precision=lax.Precision.HIGHEST, name="loop")
      got = got + loop(graph.nodes)
    nodes = nn.relu(got)
    return graph._replace(nodes=nodes + graph.nodes if self.self_term == "residual" else nodes)


def ungroup(values: Float[Array, "s n *d"], k: int) -> Float[Array, "s e k *d"]:
  """Reshape the values of nodes to `[…, example, node, …]`."""
  return values.reshape(values.shape[0], -1, k, *values.shape[2:])


def node_cosine(nodes: Float[Array, "s e k d"], present: Bool[Array, "s e k"]) -> Array:
  """Return the mean cosine of different nodes that are present, `[s e]`; 0 without a pair.

  Near 1, the graph has made all sentences one, and its head cannot tell them apart.
  """
  nodes = unit(lax.stop_gradient(nodes.astype(jnp.float32)))
  cosines = jnp.einsum("seid,sejd->seij", nodes, nodes, precision=lax.Precision.HIGHEST)
  pairs = (
    present[..., :, None] & present[..., None, :] & ~jnp.eye(nodes.shape[2], dtype=bool)[None, None]
  )
  pairs = pairs.astype(jnp.float32)
  return (cosines * pairs).sum((2, 3)) / jnp.maximum(pairs.sum((2, 3)), 1.0)


def _self_aligned(words: Words, aligned: Alignment) -> Int[Array, "s u k 2"]:
  """Return `CassieOutput.self_aligned`; words are the same where their lower-cased forms are."""
  form = lambda number: take(words.form, jnp.maximum(number, 0))
  asked, there = form(aligned.question)[:, :, None, :, None], form(aligned.sentence)[..., None, :]
  real = (aligned.question >= 0)[:, :, None, :, None] & (aligned.sentence >= 0)[..., None, :]
  same = (asked == there) & real
  best = jnp.argmax(jnp.where(real, aligned.plan, -1.0), axis=-1)
  hit = jnp.take_along_axis(same, best[..., None], axis=-1)[..., 0]
  shared = same.any(-1)
  return jnp.stack([(hit & shared).sum(-1), shared.sum(-1)], axis=-1)


def judged_pairs(
  labels: Array, sentences: Array, *, self_pairs: bool
) -> tuple[Float[Array, "s e k k"], Float[Array, "s e k k"]]:
  """Return I₊ and I₋ of CASSIE eq. 3 as masks over (i, j).
  I₊: both are answers; I₋: i is an answer and j is not (ordered, as printed). `labels` are −1 where
  not judged; `sentences` tells whether a node has words; neither set has others. `self_pairs`:
  whether I₊ holds (i, i), as printed.
  """
  answer = sentences & (labels == 1)
  other = sentences & (labels == 0)
  both = answer[..., :, None] & answer[..., None, :]
  if not self_pairs:
    both &= ~jnp.eye(labels.shape[-1], dtype=bool)[None, None]
  apart = answer[..., :, None] & other[..., None, :]
  return both.astype(jnp.float32), apart.astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class CassieLoss(Loss):
  """Takes L_AS2 + γ L_MI (CASSIE eq. 3 and 4).

  L_AS2 is the cross entropy of p, summed over the scored nodes that are judged; L_MI = −Σ_{I₊} log
  U(h_i, h_j) − Σ_{I₋} log(1 − U(h_i, h_j)) (`judged_pairs`). Both are means over the examples of a
  batch. Pairs, sentences without a label and masked nodes are counted in the log. `gamma` is γ, 0
  the ablation without MI; `mi_self_pairs` whether I₊ holds (i, i), as printed.
  """

  gamma: float
  mi_self_pairs: bool
  outputs: ClassVar[tuple[str, ...]] = ("node_logits", "pair_logits", "nodes", "sentences")

  def __call__(self, output: CassieOutput, batch: Batch, progress: Array) -> dict[str, Term]:
    examples = batch.examples
    labels, mask = examples.labels, examples.mask
    scored = labels[..., : output.node_logits.shape[-1]]
    there = output.sentences[..., : output.node_logits.shape[-1]]
    judged = (there & (scored >= 0)).astype(jnp.float32)
    logits = output.node_logits
    entropy = jax.nn.softplus(logits) - logits * jnp.where(scored == 1, 1.0, 0.0)
    both, apart = judged_pairs(labels, output.sentences, self_pairs=self.mi_self_pairs)
    u = output.pair_logits
    mutual = both * jax.nn.softplus(-u) + apart * jax.nn.softplus(u)
    count = lambda mask_of_kind: Term(
      mask_of_kind.reshape(*mask.shape, -1).sum(-1, dtype=jnp.float32), mask, "sum", 0.0
    )
    terms = {
      "bce": Term((judged * entropy).sum(-1), mask * judged.any(-1)),
      "mutual_information": Term(mutual.sum((2, 3)), mask, "mean", self.gamma),
      "answer_pairs": count(both),
      "contrast_pairs": count(apart),
      "unjudged_sentences": count(output.sentences & (labels < 0)),
      "masked_nodes": count(~output.nodes),
    }
    # Whether words align with themselves, and whether the graph averages its nodes away.
    real = output.sentences.astype(jnp.float32)
    shared = output.self_aligned[..., 1].astype(jnp.float32)
    hit = output.self_aligned[..., 0] / jnp.maximum(shared, 1.0)
    several = mask * (output.nodes.sum(-1) > 1)
    for n in range(output.node_cosines.shape[-1]):
      terms[f"node_cosine_{n}"] = Term(output.node_cosines[..., n], several, "mean", 0.0)
    terms["self_alignment"] = Term(hit, shared * real, "mean", 0.0)
    words = output.relevant_words.astype(jnp.float32)
    return terms | {"relevant_words": Term(words, real, "mean", 0.0)}
