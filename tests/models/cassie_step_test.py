"""CASSIE's train step, traced and lowered for TPU: no callback, no loop of unknown length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from programs import primitives
from tiny_cassie import LOSS, batch, case, encoder, model, run_config, xlnet

from as2jax.runtime import sharding
from as2jax.training import optimizers
from as2jax.training.state import TrainState
from as2jax.training.step import make_train_step


def lowered(net, example_batch, seeds):
  """The real step for so many seeds at once: (primitives, StableHLO for TPU)."""
  optimizer = optimizers.from_config(run_config("cassie").optimizer)
  rate = optimizers.schedule("constant", rate=1e-3, warmup=0.0, epochs=1.0)

  def state(key):
    params = traverse_util.flatten_dict(
      net.init(key, example_batch, train=False)["params"], sep="/"
    )
    return TrainState(jnp.zeros((), jnp.int32), params, {}, optimizer.init(params), {})

  mesh = sharding.make_mesh()
  keys = jax.vmap(jax.random.key)(np.arange(seeds))
  shapes = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding.replicated(mesh)),
    jax.eval_shape(jax.vmap(state), keys),
  )
  step = make_train_step(net, LOSS, optimizer, rate, mesh=mesh, state=shapes, seeds=seeds)
  many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((seeds, 1, *x.shape), x.dtype), example_batch)
  each = lambda dtype: jax.ShapeDtypeStruct((seeds,), dtype)
  traced = step.trace(shapes, many, each(jnp.uint32), each(jnp.float32), each(bool))
  new, scalars = traced.out_info
  same = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert same(new) == same(shapes) and scalars["loss"].shape == (seeds,)
  return primitives(traced.jaxpr.jaxpr), traced.lower(lowering_platforms=("tpu",)).as_text()


CONTEXT = [[case(0), case(1)]], [[case(2)]]
JOINT = [[case(0, (2, 3, 1, 2, 2, 2), (1, 0, 0, 0, 1))]], [[case(1, (2,) * 6, (0,) * 5)]]


@pytest.mark.parametrize(
  "net, content, seeds",
  [
    (model(encoder=encoder(type_vocab_size=1, position_offset=2)), CONTEXT, 1),
    pytest.param(model(encoder=xlnet()), CONTEXT, 1, marks=pytest.mark.slow),
    pytest.param(model(template="joint"), JOINT, 1, marks=pytest.mark.slow),
    (model(template="joint"), JOINT, 2),
  ],
  ids=["roberta", "xlnet", "bert, joint", "bert, joint, two seeds at once"],
)
def test_the_step_is_one_program_for_tpu(net, content, seeds):
  actual, text = lowered(net, batch(*content), seeds)
  assert {"scan", "dot_general", "exp"} <= actual
  assert "while" not in actual and not any("callback" in name for name in actual)
  assert "callback" not in text and "stablehlo.dot_general" in text
