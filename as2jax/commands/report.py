"""`as2jax report`: one self-contained HTML page that shows runs."""

from typing import Annotated

import typer

from as2jax.commands import process, use
from as2jax.commands.output import shown
from as2jax.runtime.errors import InputError

Systems = Annotated[
  list[str],
  typer.Argument(
    metavar="SYSTEM...",
    help="folders of finished runs, tables of per-question scores, or TREC run files (those of one "
    "system's seeds joined by commas); others are compared with the first",
  ),
]


@shown(
  "as2jax report runs/x                                   (runs/x/report.html)",
  "as2jax report runs/bm25 runs/x -o report.html",
  "as2jax report runs/x reranked.trec -o report.html",
)
def report(
  systems: Systems,
  target: Annotated[
    str,
    typer.Option("-o", "--output", metavar="FILE", help="the page; in the first folder without"),
  ] = "",
  split: Annotated[str, typer.Option(help="of runs' folders")] = "test",
  metrics: Annotated[str, typer.Option(help="joined by commas; the first leads the page")] = "",
  question_filter: use.Filter = None,
  deterministic: use.Deterministic = [],  # noqa: B006
  explain: Annotated[
    int, typer.Option(min=0, help="explain so many questions that differ most; opens the weights")
  ] = 3,
  question_ids: Annotated[
    list[str], typer.Option("--question", metavar="ID", help="explain this question, too")
  ] = [],  # noqa: B006
) -> None:
  """Write a page that shows runs. One HTML file: verdict, curves, every question, data and runs."""
  import os

  use.check_filter(question_filter)
  if not target and not os.path.isdir(systems[0]):
    raise InputError("name the page: -o report.html")
  process.quiet_libraries()
  from as2jax.report import make

  page = make.make(
    systems,
    target or os.path.join(systems[0], make.NAME),
    split=split,
    metrics=[name.strip() for name in metrics.split(",") if name.strip()],
    question_filter=question_filter,
    deterministic=deterministic,
    explain=explain,
    question_ids=question_ids,
  )
  print(f"written: {page}")
