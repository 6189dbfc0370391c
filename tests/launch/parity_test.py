"""The parity table: every row within its bound, and what it says where something is missing."""

import pathlib

import numpy as np
import pytest

from launch import parity, parity_cases, parity_published


@pytest.fixture
def alone(monkeypatch):
  """As on a machine without torch, transformers and sentence-transformers."""

  def libraries(*names):
    raise parity.Absent(f"{names[0]} is not installed")

  monkeypatch.setattr(parity_cases, "libraries", libraries)
  monkeypatch.setattr(parity_published, "libraries", libraries)


def test_every_row_holds_against_what_was_recorded(alone, tmp_path):
  done = list(parity.rows(parity_cases.cases(tmp_path)))
  ran = {row.case.encoder.split(" ")[0].rstrip(",") for row in done if row.difference is not None}
  assert {"bert", "roberta", "xlnet", "GRU", "LSTM", "InferSent"} <= ran
  assert len(done) == 24 and all(row.holds for row in done), parity.table(done)
  assert all(row.case.bound <= 1e-5 for row in done)
  for row in done:  # what did not run says what is missing
    assert row.difference is not None or "AS2JAX_DATA" in row.against or "pip" in row.against


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlnet"])
def test_the_recording_is_what_the_library_gives(kind, tmp_path):
  case = parity_cases._transformers(kind, tmp_path)[0]
  try:
    expected = case.reference()
  except parity.Absent as reason:
    pytest.skip(str(reason))
  np.testing.assert_allclose(np.load(parity.RECORDED)[kind], expected, atol=1e-6)


def test_a_difference_is_shown_and_fails(monkeypatch, tmp_path, capsys):
  ours = np.linspace(0, 1, 6)
  good = parity.Case("a", "text", "b", lambda: ours, lambda: ours)
  bad = parity.Case("c", "text", "d", lambda: ours + 2e-5, lambda: ours)
  monkeypatch.setattr(parity_cases, "cases", lambda folder: [good, bad])
  assert parity.main([]) == 1
  shown = capsys.readouterr().out.splitlines()
  assert " ok " in shown[1] and "2.0e-05" in shown[2] and "DIFFERS" in shown[2]


def test_a_reference_that_tells_nothing_is_refused():
  zeros = lambda: np.zeros(5)
  with pytest.raises(ValueError, match="constant"):
    list(parity.rows([parity.Case("a", "text", "b", zeros, zeros)]))


def test_the_recording_lies_beside_the_command():
  assert parity.RECORDED.exists() and pathlib.Path(parity.RECORDED).stat().st_size < 50_000
