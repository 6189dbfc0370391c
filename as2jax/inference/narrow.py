"""Vectors of documents in 16 or 8 bits, and how far scores by them can be from those of float32.

A search reads the narrow vectors and scores the best again by the float32 ones. It is exact all the same:
by the Cauchy–Schwarz inequality a score is off by at most ‖q‖ times the length of what narrowing took
from a document, and by rounding, so that a document which was not found cannot have been among the
best, or else more are found, and at last all documents are scored in float64.
"""

import numpy as np
from jaxtyping import Float32

from as2jax.evaluation.exact_search import Narrow
from as2jax.runtime.errors import InputError

STORAGE = ("float32", "float16", "int8")
LARGEST = {"float16": 1.0, "int8": 127.0}  # of a row's values, in magnitude


def check(storage: str) -> None:
  """Raises InputError where it is none of `STORAGE`."""
  if storage not in STORAGE:
    raise InputError(f"storage {storage!r}: vectors are kept as one of {', '.join(STORAGE)}")


def rounding(prepared: Float32[np.ndarray, "n w"]) -> float:
  """The most that a product in float32 can be off, for a query of length 1: of w rounded numbers."""
  lengths = np.linalg.norm(prepared.astype(np.float64), axis=1)
  return 2 * (prepared.shape[1] + 2) * float(np.finfo(np.float32).eps * lengths.max(initial=0))


def narrowed(
  prepared: Float32[np.ndarray, "n w"], storage: str, similarity: str
) -> tuple[Narrow, float]:
  """Prepared vectors in fewer bits, and the most that a score can be off, for a query of length 1.

  Args:
    prepared: `exact_search.prepared` of the pool.
    storage: `float16` or `int8`; each row has a scale of its own.
    similarity: `euclidean` has a last column, which stays as it is.

  """
  vectors = prepared[:, :-1] if similarity == "euclidean" else prepared
  last = prepared[:, -1] if similarity == "euclidean" else np.zeros(len(prepared), np.float32)
  largest = np.abs(vectors).max(1, initial=0)
  scale = np.where(largest > 0, largest / LARGEST[storage], 1).astype(np.float32)
  scale = np.maximum(scale, np.finfo(np.float32).tiny)  # of subnormal numbers
  values = vectors / scale[:, None]
  values = np.rint(values).astype(np.int8) if storage == "int8" else values.astype(np.float16)
  gap = vectors.astype(np.float64) - scale[:, None].astype(np.float64) * values
  error = float(np.linalg.norm(gap, axis=1).max(initial=0)) + rounding(prepared)
  return Narrow(values, scale, last), error
