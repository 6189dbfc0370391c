"""The benchmark of Cross-VAEs: PyTorch's side computes our loss and our gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

pytest.importorskip("torch")

from as2jax.runtime import registry  # noqa: E402
from launch.benchmarks import benchmark, jax_side, torch_side, workload  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work():
  flags = benchmark.parse(
    [
      "--system=crossvae",
      "--data=sample",
      "--dropout=0.3",
      "--size=small",
      f"--encoder={tiny.encoder_folder()}",
    ]
  )
  config = benchmark.config_of(flags)
  assert config.model.word_dropout == 0.3 and config.model.hidden_size == 128
  config.encoder.size = 60
  config.model.update(
    {
      "hidden_size": 6,
      "decoder_size": 7,
      "hops": 2,
      "attention_size": 5,
      "latent_size": 4,
      "softmax_chunk": 0,
      "tied": True,
    }
  )
  config.loss.update({"alpha": 0.3, "beta": 0.7, "gamma": 5.0})
  config.batch.examples = 16
  return workload.from_config(config, "crossvae")


@pytest.fixture(scope="module")
def ours(work):
  return jax_side.side(work)


def numbers(work, batch):
  """The examples of a batch by their numbers in the table."""
  units, e = batch.units.id.ravel(), batch.examples
  pairs = units[e.members[0, 0][e.mask[0, 0] > 0]]
  by_pair = {tuple(pair): i for i, pair in enumerate(work.members.tolist())}
  return np.asarray([by_pair[tuple(pair)] for pair in pairs.tolist()])


def test_both_sides_have_one_loss_and_one_gradient(work, ours):
  """Without samples and word dropout, which differ; unknown words are in the texts."""
  batch = work.shapes()[0]
  rng = np.random.default_rng(0)
  params = jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), ours.params()[0])
  loss = registry.build(registry.LOSSES, work.settings["loss"], "loss")
  assert (batch.tokens.ids >= work.settings["model"]["output_size"]).any()

  @jax.jit
  @jax.value_and_grad
  def value(params):
    micro = jax.tree.map(lambda x: jnp.asarray(x[0]), batch)
    output = ours.model.apply({"params": params}, micro, train=False)
    terms = loss(output, micro, jnp.float32(1e6))
    mean = lambda t: (t.values * t.weights).sum() / t.weights.sum()
    return sum(t.scale * mean(t) for t in terms.values() if t.scale)

  wanted, gradient = value(params)
  wanted_gradient = torch_side.CrossVAE.to_state(jax.tree.map(np.asarray, gradient), {})
  side = torch_side.side(work, (params, {}), 1)
  examples = numbers(work, batch)
  for way in side.choices():
    side.reset(way)
    side.model.eval()
    actual = side.loss(examples)
    actual.backward()
    assert actual.item() == pytest.approx(float(wanted), rel=1e-5)
    for name, parameter in side.model.named_parameters():
      np.testing.assert_allclose(
        parameter.grad, wanted_gradient[name], atol=2e-5, rtol=2e-3, err_msg=name
      )


@pytest.mark.slow
def test_both_sides_run_the_same_examples_in_one_program(work, ours, monkeypatch):
  monkeypatch.setattr(jax_side, "matmul_peak", lambda dtype: 1e9)
  side = torch_side.side(work, ours.params(), 1)
  sides = (ours, side)
  records = benchmark.measure(sides, blocks=1, seconds=0, dtype="float32")
  actual = benchmark.summary(sides, records)
  assert actual["as2jax"]["epoch"]["examples"] == actual["torch"]["epoch"]["examples"]
  assert actual["as2jax"]["facts"]["programs"] == 1 and actual["torch"]["ratio"] > 0
  assert side.choice in side.choices()
