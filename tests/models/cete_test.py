"""CETE's feature-based ranker: mixed layers, sizes, the ablation; its step is PyTorch's."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_systems import feature_based
from tiny_transformers import lay, vectors

from as2jax.data.batches.batch import Batch, Examples
from as2jax.inference import modes
from as2jax.models.cete import FeatureBased
from as2jax.runtime.errors import InputError


def random_batch():
  """Two units in each of three rows with random features, and the features of each unit."""
  rng, rows = np.random.default_rng(0), [(0, 1), (2, 3), (4, 5)]
  tokens, units = lay([np.zeros(n, np.int32) for n in rng.integers(2, 6, 6)], rows, 12)
  features = rng.normal(size=(*tokens.ids.shape, 12)).astype(np.float32)
  examples = Examples(
    members=np.arange(6, dtype=np.int32).reshape(1, 3, 2),
    labels=np.asarray([[[1], [0], [-1]]], np.int32),
    mask=np.ones((1, 3), np.float32),
    question=np.zeros((1, 3), np.int32),
    answer=np.zeros((1, 3), np.int32),
  )
  tokens = tokens.replace(inputs={"frozen_vectors": features})
  return jax.tree.map(jnp.asarray, Batch(tokens, units, examples)), vectors(features, units)


def test_without_an_encoder_it_is_the_mean():
  example, alone = random_batch()
  model = FeatureBased(0, 8, 0.2, "sinusoids", 1.0, "pre", "float32")
  assert not dict(model.init(jax.random.key(0), example, train=False))
  means = np.stack([alone[n].mean(0) for n in range(6)])
  actual = model.apply({}, example, train=True).scores[0]
  for pair in range(3):
    a, b = means[2 * pair], means[2 * pair + 1]
    np.testing.assert_allclose(
      actual[pair], a @ b / np.linalg.norm(a) / np.linalg.norm(b), atol=1e-6
    )


def test_heads_that_do_not_divide_the_width_are_refused():
  example, _ = random_batch()
  model = FeatureBased(1, 5, 0.2, "sinusoids", 1.0, "pre", "float32")
  with pytest.raises(InputError, match="num_heads = 5 does not divide .* 12"):
    model.init(jax.random.key(0), example, train=False)


def test_several_layers_are_mixed_by_learned_weights():
  example, _ = random_batch()
  layered = jnp.stack([example.inputs["frozen_vectors"] * k for k in (1.0, 2.0, -5.0)], axis=3)
  example = example.replace(tokens=example.tokens.replace(inputs={"frozen_vectors": layered}))
  model = FeatureBased(0, 2, 0.2, "sinusoids", 1.0, "pre", "float32")
  params = model.init(jax.random.key(0), example, train=False)["params"]
  vectors = lambda params: model.apply({"params": params}, example, method="token_vectors")
  np.testing.assert_allclose(vectors(params), layered.mean(3), atol=1e-5)
  params = {
    "layer_mix": {"weights": jnp.log(jnp.asarray([0.5, 0.25, 0.25])), "gamma": jnp.float32(4.0)}
  }
  np.testing.assert_allclose(vectors(params), -1.0 * layered[..., 0, :], atol=1e-5)


def test_the_ablation_trains_nothing(tmp_path):
  run = tmp_path / "run"
  modes.run(feature_based(None, tmp_path / "cache", "no_encoder"), str(run))
  content = json.loads((run / "results.json").read_text())
  assert content["parameters"] == {"all": 0, "trainable": 0} and content["seeds"][0]["steps"] == 0
  assert 0 < content["metrics"]["map[sample-clean/test]"]["mean"] < 1
