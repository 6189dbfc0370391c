"""The rows of a person's table, ranked."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.data.datasets import user_files
from as2jax.data.datasets.user_files import OwnFile


def ranked(
  own: OwnFile, scores: Sequence[np.ndarray], top: int | None = None
) -> list[dict[str, Any]]:
  """The rows of `own`, best first within each question, with their rank from 1 and score.

  Args:
    own: a person's table.
    scores: one array a question, one score a candidate.
    top: candidates of a question; all where None.

  """
  own_rows = iter(user_files.rows(own, ("rank", "score")))
  result = []
  for question, its in zip(own.questions, scores, strict=True):
    rows = [next(own_rows) for _ in question.candidates]
    order = np.argsort(-np.asarray(its), kind="stable").tolist()[:top]
    for rank, at in enumerate(order, 1):
      row = rows[at]
      first = {"question_id": row.pop("question_id"), "question": row.pop("question")}
      result.append({**first, "rank": rank, "score": float(its[at]), **row})
  return result
