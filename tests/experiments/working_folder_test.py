"""The folder of a command that goes on after a stop: one process at a time."""

import pytest

from as2jax.experiments.working_folder import open_working
from as2jax.runtime.errors import InputError


def test_results_lie_beside_what_is_removed_at_the_end(tmp_path):
  with open_working(tmp_path / "out") as (folder, working):
    (working / "half").touch()
    (folder / "result").touch()
  assert [path.name for path in (tmp_path / "out").iterdir()] == ["result"]
  with pytest.raises(InputError, match="out is not empty"), open_working(tmp_path / "out"):
    pass


def test_a_second_process_is_refused(tmp_path):
  out = tmp_path / "out"
  with open_working(out) as (_, working):
    (working / "half").touch()
    message = r"--output=.*out is in use by another process; wait .* another folder$"
    with pytest.raises(InputError, match=message), open_working(out):
      pass
    assert (working / "half").exists()


def test_what_was_begun_stays_after_an_error(tmp_path):
  out = tmp_path / "out"
  with pytest.raises(KeyboardInterrupt), open_working(out) as (_, working):
    (working / "half").touch()
    raise KeyboardInterrupt
  with open_working(out) as (_, working):
    assert (working / "half").exists()
