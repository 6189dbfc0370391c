"""The sentence graph: weights by sigmoid, self terms; CASSIE's step is PyTorch's."""

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.layers.graph_conv import EdgeWeights, GraphConvolution, sentence_graphs

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


def test_a_sigmoid_weighs_each_edge_alone():
  nodes, distance, present = content()
  weights, _ = parameters()
  graph = sentence_graphs(nodes, present)
  alpha, actual = (
    np.asarray(layer.apply(weights, graph, distance.reshape(S, -1)).edges).reshape(S, E, K, K)
    for layer in (WEIGHTS, EdgeWeights(HIDDEN, "sigmoid"))
  )
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
