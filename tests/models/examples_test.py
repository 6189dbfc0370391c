"""The examples in the docstrings of systems run."""

import doctest
import importlib

import pytest

from as2jax.runtime import registry


@pytest.mark.parametrize(
  "module",
  sorted({"as2jax.data.dataset", *(place.split(":")[0] for place in registry.MODELS.values())}),
)
def test_examples_run(module):
  failed, tried = doctest.testmod(importlib.import_module(module))
  assert tried and not failed
