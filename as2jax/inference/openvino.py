"""The encoder of a model by OpenVINO on this machine's processor, what follows it by JAX (`as2jax.load`).

OpenVINO has bfloat16 and 8-bit products where the processor has them, which XLA:CPU does not use.
"""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from as2jax.encoders.bert import BertEncoder
from as2jax.evaluation import predict
from as2jax.runtime.errors import InputError

# OpenVINO's telemetry would tell of each import, from a fork of this process, which has threads.
sys.modules.setdefault("openvino_telemetry", None)
BACKENDS = ("jax", "openvino", "openvino-int8")
STATES = "openvino"  # the input of a batch that holds the token vectors
GELU = {"gelu": "erf", "gelu_new": "tanh"}
INT8 = 127  # the largest weight of a column


class Given(nn.Module):
  """Stands for an encoder whose token vectors come with the batch."""

  def __call__(self, tokens: Any, *, input_offset: None = None, train: bool) -> jax.Array:
    """Returns the token vectors `[s, r, l, d]`."""
    return tokens.inputs[STATES]


def check(backend: str) -> None:
  """Raises InputError for an unknown backend, or where openvino is not installed."""
  if backend not in BACKENDS:
    raise InputError(f"backend = {backend!r}: use one of {', '.join(BACKENDS)}")
  try:
    importlib.import_module("openvino")
  except ModuleNotFoundError:
    raise InputError(
      f"backend = {backend!r} needs openvino, which is not installed: pip install 'as2jax[openvino]'"
    ) from None


def use(ranker: Any, backend: str) -> None:
  """Computes the encoder of a `Ranker` by OpenVINO, compiled here once for all shapes.

  Args:
    ranker: of a model that `as2jax export` can write, over BERT or what has its network.
    backend: `openvino`, in the encoder's dtype, or `openvino-int8`, with weights of 8 bits, and
      activations of 8 bits in products with them.

  """
  import openvino

  model, name = ranker.model, ranker.source or ranker.name
  form, encoder = model.published_form(), getattr(model, "encoder", None)
  network = getattr(type(encoder), "_encode", None)
  if form is None or network is not BertEncoder._encode:
    over = f"over {type(encoder).__name__}" if encoder else "without an encoder"
    raise InputError(
      f"{name} is {ranker.name} {over}: OpenVINO computes what as2jax export writes, over BERT, "
      "RoBERTa, ELECTRA or DistilBERT; leave backend at 'jax'"
    )
  if ranker.mesh.devices.flat[0].platform != "cpu":
    raise InputError(f"backend = {backend!r} computes on a CPU: set JAX_PLATFORMS=cpu")
  if backend == "openvino-int8" and ranker.dtype != "float32":
    raise InputError(
      f"backend = {backend!r}: beside 8 bits it computes in float32, not {ranker.dtype}"
    )
  params = jax.tree.map(lambda x: np.asarray(x)[0], ranker.variables["params"]["encoder"])
  if backend == "openvino-int8":
    ranker.dtype = "int8"  # also in the fingerprint: other vectors
  precision = "bf16" if ranker.dtype == "bfloat16" else "f32"
  graph = encoder_graph(encoder, params, int8=ranker.dtype == "int8")
  options = {"INFERENCE_PRECISION_HINT": precision}
  encode = openvino.Core().compile_model(graph, "CPU", options)
  predictor = ranker.predictor
  method = "encode" if model.encodes else "__call__"
  rest = model.clone(encoder=Given())
  step = predict.make_predict_step(rest, method, mesh=predictor.mesh, seeds=1)
  predictor.step = Step(encode, encoder.hidden_size, form.typed, step)


@dataclasses.dataclass(frozen=True)
class Step:
  """Is the forward pass of a predictor: `encode` by OpenVINO, then the jitted `rest`."""

  encode: Any
  width: int
  typed: bool
  rest: Any

  def __call__(self, variables: Any, batch: Any) -> Any:
    """Returns the output of a batch `[1, shard, …]`."""
    tokens, arrays = batch.tokens, []
    for array in (tokens.ids, tokens.segment, tokens.position, tokens.type):
      arrays.append(np.asarray(array).reshape(-1, array.shape[-1]))
    if not self.typed:
      arrays[-1] = np.zeros_like(arrays[-1])
    return self.rest(variables, self._given(batch, self.encode(arrays)[0]))

  def lower(self, variables: Any, batch: Any) -> Any:
    """Lowers what JAX computes; OpenVINO has compiled its part for every shape."""
    states = np.zeros((*batch.tokens.ids.shape, self.width), np.float32)
    return self.rest.lower(variables, self._given(batch, states))

  def _given(self, batch: Any, states: np.ndarray) -> Any:
    tokens = batch.tokens
    states = states.reshape(*tokens.ids.shape, -1)
    return batch.replace(tokens=tokens.replace(inputs={**tokens.inputs, STATES: states}))


def encoder_graph(encoder: BertEncoder, params: Mapping[str, Any], *, int8: bool) -> Any:
  """Returns `BertEncoder` as an openvino.Model from ids, segment, position, type to vectors `[b, l, d]`.

  With `int8`, each column of a kernel is 8-bit numbers and a scale, which OpenVINO multiplies so.
  """
  import openvino
  from openvino import opset13 as ops

  def take(table: str, rows: Any) -> Any:
    return ops.gather(ops.constant(params["embeddings"][table]), rows, ops.constant(0))

  def dense(x: Any, layer: Mapping[str, np.ndarray]) -> Any:
    kernel = np.ascontiguousarray(layer["kernel"].T)
    weight = ops.constant(kernel)
    if int8:
      scale = np.maximum(np.abs(kernel).max(axis=1, keepdims=True), 1e-30) / INT8
      weight = ops.constant(np.round(kernel / scale).astype(np.int8))
      weight = ops.multiply(ops.convert(weight, "f32"), ops.constant(scale))
    return ops.add(ops.matmul(x, weight, False, True), ops.constant(layer["bias"]))

  def norm(x: Any, layer: Mapping[str, np.ndarray]) -> Any:
    last = ops.constant(np.array([-1]))
    x = ops.mvn(x, last, True, encoder.layer_norm_eps, "inside_sqrt")
    return ops.add(ops.multiply(x, ops.constant(layer["scale"])), ops.constant(layer["bias"]))

  names = ("ids", "segment", "position", "type")
  inputs = [ops.parameter([-1, -1], np.int32, name=name) for name in names]
  ids, segment, position, kind = inputs
  x = take("word", ids)
  offset = ops.constant(np.int32(encoder.position_offset))
  x = ops.add(x, take("position", ops.add(position, offset)))
  if encoder.type_vocab_size:
    x = ops.add(x, take("type", kind))
  x = norm(x, params["embeddings"]["norm"])
  if "embeddings_project" in params:
    x = dense(x, params["embeddings_project"])
  queries, keys = (ops.unsqueeze(segment, ops.constant(axis)) for axis in (2, 1))
  mask = ops.unsqueeze(ops.equal(queries, keys), ops.constant(1))
  width = encoder.hidden_size // encoder.num_heads
  heads = ops.constant(np.array([0, 0, encoder.num_heads, width]))
  joined = ops.constant(np.array([0, 0, encoder.hidden_size]))
  swap = ops.constant(np.array([0, 2, 1, 3]))
  for number in range(encoder.num_layers):
    layer = jax.tree.map(lambda x, number=number: x[number], params["layers"])
    attention, feed_forward = layer["attention"], layer["feed_forward"]
    parts = []
    for name in ("query", "key", "value"):
      parts.append(ops.transpose(ops.reshape(dense(x, attention[name]), heads, True), swap))
    mixed = ops.transpose(ops.scaled_dot_product_attention(*parts, mask), swap)
    attended = dense(ops.reshape(mixed, joined, True), attention["output"])
    x = norm(ops.add(x, attended), layer["attention_norm"])
    fed = dense(x, feed_forward["intermediate"])
    if encoder.activation == "relu":
      fed = ops.relu(fed)
    else:
      fed = ops.gelu(fed, GELU[encoder.activation])
    x = norm(ops.add(x, dense(fed, feed_forward["output"])), layer["output_norm"])
  return openvino.Model([x], inputs)
