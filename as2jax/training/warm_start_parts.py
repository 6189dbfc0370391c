"""What of a first run another model takes by `warm_start.scope` = `matching`, and under which paths."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from as2jax.models.system import System
from as2jax.runtime.errors import InputError

Arrays = dict[str, np.ndarray]


def matching(taken: Arrays, here: Mapping[str, Any], model: System) -> Arrays:
  """Those of the first run's arrays that the model has, by the paths that they have here."""
  matching = {}
  for path, value in taken.items():
    renamed = [
      target + path.removeprefix(start)
      for start, target in model.warm_start_paths.items()
      if path.startswith(start)
    ]
    for target in (*renamed, path):
      if target in here and here[target].shape[1:] == value.shape:
        matching[target] = value
        break
  return matching


def check_together(
  there: Arrays, params: Mapping[str, Any], taken: Arrays, model: System, run: Any
) -> None:
  """Raises InputError where of the parts that a model renames only some are taken.

  A head without the pooler that it was trained on, for example, gives other scores.
  """
  has = lambda paths, start: any(path.startswith(start) for path in paths)
  parts = model.warm_start_paths.items()
  came = [start for start, target in parts if has(taken, target)]
  for start, target in parts:
    lacks = has(there, start) != has(params, target)
    if came and start not in came and lacks:
      raise InputError(
        f"warm_start.scope = 'matching': {', '.join(came)} of warm_start.run = {run} was trained "
        + (f"with {start}, and" if has(there, start) else f"without {start}, but")
        + f" this model has {'' if has(params, target) else 'no '}{target}: give it the same parts "
        "(of CASSIE, model.ranker_head = 'pooled' where there is a pooler, else 'linear'), or set the "
        "scope to encoder"
      )
