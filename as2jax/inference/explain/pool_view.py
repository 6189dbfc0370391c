"""The questions of one answer of a pool, by a run's vectors (Cross-VAE, figures 2a and 2b)."""

from collections import Counter

import numpy as np

from as2jax.data.datasets.pool import Pool
from as2jax.runtime.errors import InputError


def questions_of(pool: Pool, answer: str) -> tuple[str, list[str]]:
  """The passage `answer` (an id, or `most`) and the questions whose gold passage it is.

  Raises:
    InputError: no such passage, or fewer than two questions.

  """
  count = Counter(query.answers[0] for query in pool.queries)
  if answer == "most" and count:
    answer = count.most_common(1)[0][0]
  place = pool.place()
  if answer not in place:
    raise InputError(
      f"--answer={answer}: the pool has no such passage (the first is "
      f"{pool.passages[0].id}); `most` is the one that most questions ask for"
    )
  asked = [query.text for query in pool.queries if query.answers[0] == answer]
  if len(asked) < 2:
    raise InputError(
      f"--answer={answer}: {len(asked)} questions have it as their answer; the "
      "distances between them need two"
    )
  return pool.passages[place[answer]].text, asked


def projected(vectors: np.ndarray) -> np.ndarray:
  """Vectors `[n, d]`, brought to length 1, along their first two singular directions, `[n, 2]`.

  They are not centred, as in Cross-VAE (figure 2), so that what is close to one direction stays so;
  signs are such that each coordinate's largest value is positive.
  """
  lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
  unit = vectors / np.where(lengths > 0, lengths, 1.0)
  _, _, directions = np.linalg.svd(unit, full_matrices=False)
  points = unit @ directions[:2].T
  points = np.concatenate([points, np.zeros((len(points), 2 - points.shape[1]))], 1)
  largest = points[np.abs(points).argmax(0), np.arange(2)]
  return points * np.where(largest < 0, -1.0, 1.0)


def closeness(vectors: np.ndarray) -> float:
  """The mean squared distance between the rows `[n, d]`, brought to length 1 (SSE)."""
  lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
  unit = vectors / np.where(lengths > 0, lengths, 1.0)
  first, second = np.triu_indices(len(unit), 1)
  return float(np.square(unit[first] - unit[second]).sum(1).mean())
