"""A fully connected graph of sentences with learned edge weights, and convolutions over it.

CASSIE section 3.3. Graphs are `jraph.GraphsTuple` batches, one batch a shard; K nodes a graph, edge
(i, j) carries what node j sends to node i, self loops included.
"""

import jax
import jax.numpy as jnp
import jraph
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Bool, Float

from as2jax.layers.transformer import MASKED
from as2jax.layers.vectors import take


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
  An edge holds 1 where both its ends are present, else 0; edges are in the order (example, i, j),
  where i is the receiver.
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


EDGES = ("softmax", "sigmoid")
SELF_TERMS = ("none", "residual", "loop")


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
