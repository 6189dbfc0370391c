"""The rows of a person's table, ranked."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from as2jax.data import user_files
from as2jax.data.user_files import OwnFile

log = logging.getLogger(__name__)


def ranked(
  own: OwnFile, scores: Sequence[np.ndarray], top: int | None = None
) -> list[dict[str, Any]]:
  """The rows of `own`, best first within each question, with their rank from 1 and score.

  A question without candidates has no row; the log says how many there are.

  Args:
    own: a person's table.
    scores: one array a question, one score a candidate.
    top: candidates of a question; all where None.

  """
  left_out = sum(not question.candidates for question in own.questions)
  if left_out:
    log.warning(
      "%d of %d questions have no candidates, and are left out", left_out, len(own.questions)
    )
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
