"""Where the time of BERT-base's triplet step goes on a GPU: each of its parts alone, forward and backward.

A part is compiled by itself over arrays of the step's sizes, and counted as often as the step has it. In a
whole step XLA fuses neighbours, so that the parts need not add up. On a CPU MiniLM's sizes and two rows show
that the script runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from as2jax.layers import transformer
from as2jax.layers.dense import spread
from as2jax.layers.packed_attention import packed_attention
from as2jax.training import optimizers
from as2jax.training.step import update
from launch.benchmarks import steps

NEED_GPU = ("cuDNN", "kernel")
Part = tuple[str, int, Callable[[], Callable[[], Any]], float, str]


def both_ways(function: Callable, arrays: tuple, *given: Any) -> Callable[[], Any]:
  """Return what computes `function(*arrays, *given)` and the gradients of `arrays`."""
  like = jax.eval_shape(function, *arrays, *given)
  gradient = jax.random.normal(jax.random.key(1), like.shape, like.dtype)

  @jax.jit
  def run(gradient, arrays, given):
    output, pull = jax.vjp(lambda *arrays: function(*arrays, *given), *arrays)
    return output, pull(gradient)

  return partial(run, gradient, arrays, given)


def lean_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
  """Return the layer norm in `x`'s type, with float32 statistics alone."""
  mean = x.mean(axis=-1, keepdims=True, dtype=jnp.float32)
  square = jnp.square(x.astype(jnp.float32)).mean(axis=-1, keepdims=True)
  inverse = jax.lax.rsqrt(square - jnp.square(mean) + 1e-12)
  scale, bias = (spread(one.astype(x.dtype), x.shape) for one in (scale, bias))
  return (x - mean.astype(x.dtype)) * inverse.astype(x.dtype) * scale + bias


def products(x: jax.Array, square: jax.Array, wide: jax.Array, narrow: jax.Array) -> jax.Array:
  """Return the six dense products of a layer in `x`'s type, one after the other."""
  for kernel in (square, square, square, square, wide, narrow):
    x = x @ kernel.astype(x.dtype)
  return x


def parts(side: steps.JaxSide) -> list[Part]:
  """Return the parts of a side's step, with arrays of its first batch's sizes.

  A part is its name, how often a step has it, what gives its function, GFLOP (or MB) of once, and the
  unit of its rate.
  """
  e, tokens, key = side.work.model.encoder, side.batches[0].tokens, jax.random.key(0)
  l, layers, h, rate = tokens.ids.shape[-1], e.num_layers, e.num_heads, e.attention_dropout
  ids, segment = (jnp.asarray(x).reshape(-1, l) for x in (tokens.ids, tokens.segment))
  b, n, d, f, v = len(ids), ids.size, e.hidden_size, e.intermediate_size, e.vocab_size
  normal = lambda *shape, dtype=e.dtype: jax.random.normal(key, shape, dtype)
  heads, mask = (normal(b, l, h, d // h),) * 3, transformer.segment_mask(segment)
  x, wide, vector = normal(b, l, d), normal(b, l, f), normal(d, dtype="float32")
  kernels = [normal(*shape, dtype="float32") for shape in ((d, d), (d, f), (f, d), (v, d))]
  words, normed = transformer.hash_words(key), (x, vector, vector)
  state = jax.tree.map(lambda x: x[0], side.state)

  drop = lambda seed: partial(transformer.dropout, seed, rate=rate)
  plain = lambda q, k, v, mask, seed: transformer.attend(q, k, v, mask, drop=drop(seed))
  cudnn = partial(jax.nn.dot_product_attention, implementation="cudnn")
  kernel = partial(packed_attention, drop=partial(transformer.drop_numbered, rate=rate))
  norm = lambda x, scale, bias: transformer.LayerNorm(1e-12, x.dtype).apply(
    {"params": {"scale": scale, "bias": bias}}, x
  )
  float32_gelu = lambda x: transformer.gelu(x.astype(jnp.float32)).astype(x.dtype)
  hidden = lambda x, seed: drop(seed)(x)
  bits = jax.jit(lambda key: transformer.hash_bits(key, (b, h, l, l)).sum())
  adam = partial(update, optimizers.from_config(side.work.optimizer), lambda progress: 1e-5)
  updated = partial(jax.jit(adam), state, state.trainable, state.mutables, jnp.float32(1))

  both = lambda function, arrays, *given: partial(both_ways, function, arrays, *given)
  product, many, count = 12e-9 * n * d, 2 * layers + 1, sum(map(jnp.size, state.trainable.values()))
  # x read, y written; then x and y's gradient read, x's written.
  moved = 5e-6 * n * x.dtype.itemsize
  looked_up = 4e-6 * d * (v + 5 * n)
  return [
    ("attention, plain, dropout", layers, both(plain, heads, mask, key), product * l, "TFLOP/s"),
    ("attention, plain", layers, both(transformer.attend, heads, mask), product * l, "TFLOP/s"),
    ("attention, cuDNN", layers, both(cudnn, heads, None, mask), product * l, "TFLOP/s"),
    (
      "attention, kernel, dropout",
      layers,
      both(kernel, heads, segment, words),
      product * l,
      "TFLOP/s",
    ),
    ("norms, float32", many, both(norm, normed), moved * d, "GB/s"),
    ("norms, float32 statistics", many, both(lean_norm, normed), moved * d, "GB/s"),
    ("GELU, float32", layers, both(float32_gelu, (wide,)), moved * f, "GB/s"),
    ("GELU", layers, both(transformer.gelu, (wide,)), moved * f, "GB/s"),
    ("dropout of hidden states", many, both(hidden, (x,), key), 0.8 * moved * d, "GB/s"),
    (
      "attention's dropout bits",
      layers,
      lambda: partial(bits, key),
      1e-6 * n * h * l,
      "G numbers/s",
    ),
    ("dense products", layers, both(products, (x, *kernels[:3])), product * (2 * d + f), "TFLOP/s"),
    ("word embeddings", 1, both(partial(jnp.take, axis=0), kernels[3:], ids), looked_up, "GB/s"),
    ("Adam, float32", 1, lambda: updated, 28e-6 * count, "GB/s"),
  ]


def run(seconds: float) -> dict[str, Any]:
  """Print the table, a part as it ends; return its figures, the whole step's as `speed`."""
  on_gpu = jax.default_backend() == "gpu"
  case, sizes = "bert-base:triplet", {}
  if not on_gpu:
    case, sizes = "minilm:triplet", {"questions": 4, "rows": 2}

  def whole(attention):
    side = steps.JaxSide(steps.made(case, attention, **sizes))
    return side, partial(side.step, side.place(side.batches[0]))

  side, step = whole("plain")
  work = 1e-9 * side.work.load_of(side.batches[0]).flops  # of real tokens
  total = steps.milliseconds(step, seconds)
  print("| part | times a step | ms a step | share of the step | rate |")
  print("| --- | ---: | ---: | ---: | ---: |")
  print(f"| {case} | 1 | {total:.3f} | 100.0% | {work / total:.4g} TFLOP/s |", flush=True)
  last = "the step with the kernel", 1, lambda: whole("kernel")[1], work, "TFLOP/s"
  found: dict[str, dict[str, float]] = {}
  for name, times, make, work, unit in (*parts(side), last):
    line = "needs a GPU | | |"
    if on_gpu or not any(word in name for word in NEED_GPU):
      # A kernel that this GPU or jax has not met may fail: the rest is measured.
      try:
        ms = times * steps.milliseconds(make(), seconds)
        found[name] = {"ms": ms, "share": ms / total}
        line = f"{ms:.3f} | {ms / total:.1%} | {times * work / ms:.4g} {unit} |"
      except Exception as error:
        line = f"failed: {str(error).splitlines()[0][:200]} | | |"
    print(f"| {name} | {times} | {line}", flush=True)
  return {"speed": total, "parts": found}
