"""The report of a compiled step, what is advised where it does not fit, compiles for v5e."""

import re

import jax
import pytest
import tiny

from as2jax.commands import app
from as2jax.config import jobs
from as2jax.experiments.compile import chips, compiled
from as2jax.experiments.compile.chips import GIB
from as2jax.experiments.compile.compiled import Measured
from as2jax.experiments.compile.program import Program
from as2jax.runtime.errors import InputError

V5E = chips.Chip("v5e", 16 * GIB)
EMPTY = "ENTRY %main (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n"
needs_libtpu = pytest.mark.skipif(bool(chips.absent()), reason=chips.absent())


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
    chips.devices(topology)


def test_without_libtpu_it_says_what_to_install(monkeypatch, capsys):
  monkeypatch.setattr(chips, "library", lambda: None)
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
