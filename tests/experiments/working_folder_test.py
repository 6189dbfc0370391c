"""The folder of a command that goes on after a stop (see mine_test.py): one process at a time."""

import pytest

from as2jax.experiments.working_folder import open_working
from as2jax.runtime.errors import InputError


def test_a_second_process_is_refused(tmp_path):
  out = tmp_path / "out"
  with open_working(out) as (_, working):
    (working / "half").touch()
    message = r"output=.*out is in use by another process; wait .* another folder$"
    with pytest.raises(InputError, match=message), open_working(out):
      pass
    assert (working / "half").exists()
