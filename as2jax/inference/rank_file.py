"""Ranks the candidates of a person's table (`as2jax rank`)."""

from collections.abc import Mapping
from typing import Any, Literal

from as2jax.data import user_files
from as2jax.data.text import normalise
from as2jax.inference import apply, open, ranked_rows
from as2jax.inference.run import Run


def rank_file(
  source: str,
  table: Any,
  *,
  seed: int | Literal["best"] = "best",
  top: int | None = None,
  ranking: str = "",
  columns: Mapping[str, str] | str = "",
  drop: bool = False,
) -> list[dict[str, Any]]:
  """The candidates of a table's questions, each question's best first.

  Args:
    source: a run's folder, or what else `as2jax.load` opens.
    table: the path of a file, or a frame; see `user_files.read`.
    top: candidates of a question; all where None.
    ranking: of joint models: another ranker's run file over the questions.
    columns: {field: column}, or `question=query,…`.
    drop: whether rows without text and repeated ones are left out.

  Returns:
    Rows as `ranked_rows.ranked` gives them.

  """
  read = lambda: user_files.read(table, labelled=False, columns=columns, drop=drop)
  if ranking:
    run, own = Run(source), read()
    apply.start_from(run, ranking, normalise.apply(own.questions, run.config.data.rules))
    ranker = run.ranker(seed)
  else:
    own = read()  # first: a mistake in the table costs no second
    ranker = open.load(source, seed=seed)
    if ranker.model.layout == "joint":
      apply.start_from(Run(source), "", own.questions)
  scores = next(iter(ranker.all_scores(own.questions).values()))
  return ranked_rows.ranked(own, scores, top)
