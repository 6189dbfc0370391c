"""Reading compiled programs, the report of a compiled step, what does not fit, compiles for v5e."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.sharding import NamedSharding, PartitionSpec

from as2jax.commands import app
from as2jax.config import jobs
from as2jax.experiments import compile as compiled
from as2jax.experiments.compile import GIB, Measured, Program
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError

V5E = compiled.Chip("v5e", 16 * GIB)
EMPTY = "ENTRY %main (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n"
needs_libtpu = pytest.mark.skipif(bool(compiled.absent()), reason=compiled.absent())


def step(gib=3.0, collectives={}):
  program = Program(EMPTY)
  program.collectives = collectives
  sizes = (2 * GIB, 2 * GIB, 2 * GIB, (gib - 2) * GIB, 0)
  names = ("arguments", "outputs", "aliased", "temporaries", "code")
  return Measured("train", dict(zip(names, sizes)), gib * GIB, program, 4e9)


def test_memory_and_collectives_are_reported():
  text = compiled.report(V5E, step(collectives={"all-reduce": (2, 8e9)}))
  assert "3.00 of 16 GiB a v5e" in text and "4 GB read and written" in text
  assert "2 × all-reduce, 8000.0 MB in all" in text and "temporaries 1.00" in text
  assert "no collectives" in compiled.report(V5E, step())


def test_what_does_not_fit_is_told():
  message = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Used 20.5G of 15.75G hbm."

  def fail(words):
    raise jax.errors.JaxRuntimeError(words)

  gone = compiled.measure("train", lambda: fail(message))
  said = "train: DOES NOT FIT a v5e (Used 20.5G of 15.75G)"
  assert not compiled.fits(V5E, gone) and compiled.report(V5E, gone) == said
  assert compiled.fits(V5E, step()) and not compiled.fits(V5E, step(gib=17.0))
  with pytest.raises(jax.errors.JaxRuntimeError, match="a fault"):
    compiled.measure("train", lambda: fail("INTERNAL: a fault"))


@pytest.mark.parametrize("topology", ["v5e", "v9:2x2", "v5e:2", "v5e-16"])
def test_other_topologies_are_refused(topology):
  with pytest.raises(InputError, match="give a chip"):
    compiled.chip_devices(topology)


def test_without_libtpu_it_says_what_to_install(monkeypatch, capsys):
  monkeypatch.setattr(compiled, "library", lambda: None)
  status = app.run(["lab", "compile", "wikiqa_triplet", "--topology=v5e:2x2"])
  said = capsys.readouterr().err
  assert status == 2 and re.search(r"--target \.libtpu 'libtpu==0\.0\.\d+\.\*'", said)


SMALL = {"batch__shards": 1, "batch__examples": 4, "batch__predict_rows": 4}


@needs_libtpu
@pytest.mark.parametrize(
  "name",
  [
    pytest.param("cassie", marks=pytest.mark.slow),
    pytest.param("recommended:fast,ettin17m", marks=pytest.mark.long),
    pytest.param("recommended:accurate,ettin17m", marks=pytest.mark.long),
    pytest.param("recommended:accurate,deberta", marks=pytest.mark.long),
  ],
)
def test_it_compiles_for_v5e_without_the_host(name):
  """A tiny CASSIE; training and prediction of the smallest ettin at its published size."""
  if name == "cassie":
    config = tiny.config(name, model__hidden=8, model__iterations=5, **SMALL)
  else:
    config = jobs.load(name)
    with config.unlocked():
      config.batch.rows = config.batch.predict_rows = 8
      config.batch.examples = 64
  chip, _, steps = compiled.steps_of(config, "v5e:1x1")
  actual = list(steps)
  assert actual[0].name == "train" and len(actual) >= 2
  for one in actual:
    assert compiled.fits(chip, one) and not one.program.host_calls
    if name == "cassie":
      assert not one.program.collectives
      assert one.program.loops and None not in one.program.loops


@pytest.mark.slow
@needs_libtpu
def test_the_gradient_alone_is_exchanged_between_chips():
  config = tiny.config("triplet", **SMALL)
  _, scaled, steps = compiled.steps_of(config, "v5e:2x2")
  assert scaled.batch.shards == 4
  actual = next(steps).program.collectives
  assert actual.keys() == {"all-reduce"}


LAYERS, WIDTH, ROWS = 5, 8, 4
WEIGHTS = np.zeros((LAYERS, WIDTH, WIDTH), np.float32)
X = np.zeros((ROWS, WIDTH), np.float32)


def stacked(w, x):
  return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0].sum()


def text_of(function, *arguments, **options) -> str:
  """The program, without the turns of loops that XLA for CPU states and XLA for TPU does not."""
  text = jax.jit(function, **options).lower(*arguments).compile().as_text()
  return re.sub(r'"known_trip_count":\{[^}]*\},?', "", text)


def test_a_gradient_is_exchanged_once_and_counted_with_its_loop():
  mesh = sharding.make_mesh()
  place = [NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))]
  program = Program(
    text_of(jax.grad(stacked), WEIGHTS, X, in_shardings=place, out_shardings=place[0])
  )
  assert set(program.loops) == {LAYERS}
  ((kind, (calls, size)),) = program.collectives.items()
  assert kind == "all-reduce" and size == WEIGHTS.nbytes and calls in (1, LAYERS)
  assert program.host_calls == []


@pytest.mark.parametrize("stated", [True, False])
def test_a_counter_tells_the_turns(stated):
  text = text_of(stacked, WEIGHTS, X)
  if stated:
    text = jax.jit(stacked).lower(WEIGHTS, X).compile().as_text()
  assert Program(text).loops == [LAYERS]


def test_a_loop_whose_end_depends_on_data_is_told_apart():
  function = lambda x: jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: x * 2 + 1, x)
  counted = lambda n: jax.lax.fori_loop(0, n, lambda i, x: x + i, 0)  # to a number that is given
  assert Program(text_of(function, X)).loops == [None]
  assert Program(text_of(counted, np.int32(3))).loops == [None]


def test_calls_to_the_host_are_found():
  shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
  called = lambda x: jax.pure_callback(np.sin, shape, x) + 1
  assert Program(text_of(called, X)).host_calls
  assert not Program(text_of(lambda x: jnp.sin(x) + 1, X)).host_calls


# As XLA for TPU writes it: memory spaces, asynchronous copies and collectives, meshes as groups.
TPU = """HloModule jit_f, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %z = f32[]{:T(128)} add(%x, %y)
}

%sliced (p.0: f32[8,128], p.1: s32[]) -> f32[1,128] {
  %p.0 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %p.1 = s32[]{:T(128)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %part = f32[1,128]{1,0:T(8,128)} dynamic-slice(%p.0, %p.1, %zero), \
dynamic_slice_sizes={1,128}
}

ENTRY %main (a: f32[8,128], i: s32[], b: bf16[16]) -> f32[1,128] {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  %b = bf16[16]{0:T(256)(128)(2,1)} parameter(2)
  %copy-start = (bf16[16]{0:T(256)S(1)}, bf16[16]{0:T(256)}, u32[]{:S(2)}) copy-start(%b)
  %copy-done = bf16[16]{0:T(256)S(1)} copy-done(%copy-start)
  %fusion = f32[1,128]{1,0:T(8,128)S(1)} fusion(%a, %i), kind=kLoop, calls=%sliced
  %all-gather-start = (bf16[16]{0:S(1)}, bf16[64]{0:S(1)}) all-gather-start(%copy-done), \
replica_groups=[2,4]<=[8], dimensions={0}
  %all-gather-done = bf16[64]{0:S(1)} all-gather-done(%all-gather-start)
  ROOT %all-reduce = f32[1,128]{1,0:T(8,128)S(1)} all-reduce(%fusion), \
replica_groups=mesh['x'=4,'y'=2] {'x','y'}, to_apply=%add, \
backend_config={"debug":"(ring) {"}
}
"""


def test_what_xla_writes_for_tpus_is_read():
  program = Program(TPU)
  assert program.collectives == {"all-gather": (1, 128), "all-reduce": (1, 512)}
