"""The kept rows of configs/papers/results, unpacked once."""

import pytest

from as2jax.experiments.papers import collected


@pytest.fixture(scope="session")
def kept_rows():
  with collected.unpacked(collected.folder()) as rows:
    yield rows
