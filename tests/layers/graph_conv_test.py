"""The sentence graph: absent nodes, weights by sigmoid, self terms; CASSIE's step is PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.layers.graph_conv import EdgeWeights, GraphConvolution, sentence_graphs, ungroup

S, E, K, D, HIDDEN = 2, 3, 4, 6, 5
WEIGHTS, CONVOLUTION = EdgeWeights(HIDDEN), GraphConvolution()


def content():
  rng = np.random.default_rng(0)
  nodes = jnp.asarray(rng.normal(size=(S, E, K, D)), jnp.float32)
  distance = jnp.asarray(rng.uniform(1, 5, (S, E, K)), jnp.float32)
  present = np.ones((S, E, K), bool)
  present[0, 0, 2] = present[1, 1, :2] = present[1, 2] = False  # the last graph has no node
  return nodes, distance, jnp.asarray(present)


def parameters():
  graph = sentence_graphs(*content()[::2])
  draw = lambda shapes, seed: jax.tree.map(
    lambda x: jnp.asarray(np.random.default_rng(seed).normal(size=x.shape), jnp.float32), shapes
  )
  distance = content()[1].reshape(S, -1)
  return (
    draw(WEIGHTS.init(jax.random.key(0), graph, distance), 1),
    draw(CONVOLUTION.init(jax.random.key(0), graph), 2),
  )


@jax.jit
def ours(nodes, distance, present, weights, convolution):
  graph = WEIGHTS.apply(weights, sentence_graphs(nodes, present), distance.reshape(S, -1))
  hidden = ungroup(CONVOLUTION.apply(convolution, graph).nodes, K)
  return graph.edges.reshape(S, E, K, K), hidden


def test_absent_nodes_send_nothing():
  nodes, distance, present = content()
  args = parameters()
  hidden = ours(nodes, distance, present, *args)[1]
  other = jnp.where(present[..., None], nodes, 1e6)
  np.testing.assert_array_equal(ours(other, distance, present, *args)[1], hidden)
  finite = jax.grad(lambda z: ours(z, distance, present, *args)[1].sum())(nodes)
  assert jnp.isfinite(finite).all() and not jnp.any(finite[1, 2]) and jnp.any(finite[0, 0, 0])


def test_a_sigmoid_weighs_each_edge_alone():
  nodes, distance, present = content()
  args = parameters()
  alpha = np.asarray(ours(nodes, distance, present, *args)[0])
  graph = sentence_graphs(nodes, present)
  actual = EdgeWeights(HIDDEN, "sigmoid").apply(args[0], graph, distance.reshape(S, -1)).edges
  actual = np.asarray(actual).reshape(S, E, K, K)
  real = np.asarray(present)[..., :, None] & np.asarray(present)[..., None, :]
  share = np.where(real, actual, 0.5)
  odds = share / (1 - share) * real  # the softmax's, too
  np.testing.assert_allclose(odds / np.maximum(odds.sum(-1, keepdims=True), 1e-9), alpha, atol=1e-4)
  assert (actual[~real] == 0).all() and np.ptp(actual.sum(-1)[real.any(-1)]) > 1e-3


def test_self_terms_by_hand():
  nodes, distance, present = content()
  weights, convolution = parameters()
  graph = WEIGHTS.apply(weights, sentence_graphs(nodes, present), distance.reshape(S, -1))
  plain = np.asarray(CONVOLUTION.apply(convolution, graph).nodes)
  residual = GraphConvolution("residual").apply(convolution, graph).nodes
  np.testing.assert_allclose(residual, plain + np.asarray(graph.nodes), atol=1e-6)
  loop = np.random.default_rng(5).normal(size=(D, D)).astype(np.float32)
  own = {"params": {**convolution["params"], "loop": {"kernel": loop}}}
  looped = GraphConvolution("loop").apply(own, graph).nodes
  w, b = (np.asarray(x) for x in (convolution["params"]["map"]["kernel"], own["params"]["bias"]))
  alpha = np.asarray(graph.edges).reshape(S, E, K, K)
  sent = np.einsum("seij,sejd->seid", alpha, (np.asarray(graph.nodes) @ w).reshape(S, E, K, D))
  expected = np.maximum(sent.reshape(S, -1, D) + b + np.asarray(graph.nodes) @ loop, 0)
  np.testing.assert_allclose(looped, expected, rtol=1e-4, atol=1e-4)
