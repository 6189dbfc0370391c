"""Ranks the candidates of a file's questions (`as2jax rank`)."""

from typing import Any, Literal

from etils import epath

from as2jax.data.datasets.user_files import read_unlabelled
from as2jax.data.text import normalise
from as2jax.inference import apply, open
from as2jax.inference.run import Run


def rank_file(
  source: str,
  path: epath.PathLike,
  *,
  seed: int | Literal["best"] = "best",
  top: int | None = None,
  ranking: str = "",
) -> list[dict[str, Any]]:
  """The candidates of a file's questions, each question's best first, as rows with `apply.COLUMNS`.

  Args:
    source: a run's folder, or what else `as2jax.load` opens.
    path: TSV or JSON-lines of questions with candidates.
    top: candidates of a question; all where None.
    ranking: of joint models: another ranker's run file over the questions.

  """
  if ranking:
    run = Run(source)
    questions = read_unlabelled(path)
    apply.start_from(run, ranking, normalise.apply(questions, run.config.data.rules))
    ranker = run.ranker(seed)
  else:
    ranker = open.load(source, seed=seed)
    questions = read_unlabelled(path)
    if ranker.model.layout == "joint":
      apply.start_from(Run(source), "", questions)
  rows = []
  for question, hits in zip(questions, ranker.rank_many(questions), strict=True):
    for rank, hit in enumerate(hits[:top], 1):
      values = (question.id, question.text, rank, hit.score, hit.id, hit.text)
      rows.append(dict(zip(apply.COLUMNS, values, strict=True)))
  return rows
