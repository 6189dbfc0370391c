"""Every encoder from every format of its weights equals its reference (see `format_cases`)."""

import format_cases
import jax
import numpy as np
import published_cases
import pytest

NAMES = [case.name for case in format_cases.cases(None)]


@pytest.fixture
def case(request, tmp_path):
  return next(c for c in format_cases.cases(tmp_path) if c.name == request.param)


@pytest.fixture(autouse=True)
def _exact_products():
  with jax.default_matmul_precision("highest"):
    yield


@pytest.mark.parametrize("case", NAMES, indirect=True)
def test_a_format_gives_what_was_recorded(case):
  try:
    if case.key:
      expected = np.load(format_cases.RECORDED)[case.key]
    else:  # the original's own recording, in the data
      expected = case.reference()
    actual = case.actual()
  except format_cases.Absent as reason:
    pytest.skip(str(reason))
  assert case.bound <= 1e-5 and np.ptp(expected) > 1e-3 and np.isfinite(actual).all()
  np.testing.assert_allclose(actual, expected, rtol=0, atol=case.bound)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlnet"])
def test_the_recording_is_what_the_library_gives(kind, tmp_path):
  case = format_cases.transformers_cases(kind, tmp_path)[0]
  try:
    expected = case.reference()
  except format_cases.Absent as reason:
    pytest.skip(str(reason))
  np.testing.assert_allclose(
    np.load(format_cases.RECORDED)[kind], expected, atol=5e-6
  )  # another processor rounds


def test_recordings_are_small_and_of_these_cases():
  keys = {case.key for case in format_cases.cases(None)} - {""}
  assert set(np.load(format_cases.RECORDED).files) == keys and published_cases.TEXTS
  assert format_cases.RECORDED.stat().st_size < 50_000
