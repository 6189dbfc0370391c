"""Evaluates a ranker without parameters: it is fitted, and ranks through the same tasks and files."""

from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax.data.record import Question
from as2jax.evaluation import predict, results, tasks
from as2jax.models.system import ParameterFreeSystem, Scorer


class FittedRanker:
  """Takes the place of `predict.Predictor`: scores by the scorer; it has no variables."""

  def __init__(self, model: ParameterFreeSystem, train: Sequence[Question]):
    self.model = model
    self.scorer: Scorer = model.fit(train)

  def __call__(
    self, variables: Any, questions: Sequence[Question], *, request: bool = False
  ) -> list[predict.Scores]:
    """Scores of every candidate, as of one seed.

    Raises:
      InputError: a score is not finite.

    """
    del variables, request
    name, scores = self.model.ranking_score, self.scorer.score(questions)
    predict.check_finite(scores, questions, name)
    return [{name: scores}]


def evaluate(
  config: Any, dataset: Any, ranker: FittedRanker, workdir: epath.PathLike, splits: Sequence[str]
) -> tuple[results.Outcome, str]:
  """Measures the splits and writes their files; the outcome, and the metric that selects."""
  task = tasks.make(config, dataset, ranker)
  outcome = results.Outcome(0, 0, 0, float("nan"), 0)
  for split in splits:
    task.record(workdir, None, split, [outcome])
  return outcome, task.selector
