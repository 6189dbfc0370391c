"""Makes the page of runs: `as2jax report`, `Run.report`, and at the end of a run."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.evaluation import compare, run_scores
from as2jax.evaluation.answer_triggering import CALIBRATIONS
from as2jax.report import answering, cards, curves, forest, markup, page, questions, strata, verdict
from as2jax.report import runs as reading
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Runs
from as2jax.runtime import processes, regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

log = logging.getLogger(__name__)
NAME = "report.html"  # in a run's folder
METRICS = {"rerank": ("map", "mrr", "p@1", "ndcg@10"), "retrieve": ("mrr", "r@1", "r@5")}
SAMPLES = 100_000  # of the randomization test
Published = Mapping[tuple[str, str], float]


def make(
  names: Sequence[str],
  output: epath.PathLike = NAME,
  *,
  split: str = "test",
  metrics: Sequence[str] = (),
  question_filter: str | None = None,
  deterministic: Sequence[str] = (),
  published: Published | None = None,
  calibration: str = "platt",
) -> epath.Path:
  """Writes the page and returns its path.

  Args:
    names: folders of finished runs, tables, or TREC run files; others are compared with the first.
    output: the page, a .html.
    split: of the runs' folders.
    metrics: the first leads the page; () are those of the task.
    question_filter: see `run_scores.load`.
    deterministic: names of files whose system has no randomness.
    published: {(metric, whose): figure}, drawn as hollow marks.
    calibration: of scores, on dev: `platt` or `isotonic`.

  Raises:
    InputError: systems that cannot be compared, no such metric, or an output that cannot be written.

  """
  output = epath.Path(output)
  if calibration not in CALIBRATIONS:
    raise InputError(f"--calibration={calibration}: use one of {', '.join(CALIBRATIONS)}")
  if output.suffix != ".html":
    raise InputError(f"--output={output}: name a file that ends in .html")
  runs = reading.read(
    names, split=split, question_filter=question_filter, deterministic=deterministic
  )
  chosen = tuple(metrics) or METRICS[runs.task]
  command = [*names, "-o", str(output), f"--split={split}"]
  if question_filter:
    command.append(f"--filter={question_filter}")
  if calibration != "platt":
    command.append(f"--calibration={calibration}")
  text = content(runs, chosen, command, published or {}, calibration)
  try:
    write_whole(output, text)
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return output


def content(
  runs: Runs, metrics: Sequence[str], command: Sequence[str], published: Published, calibration: str
) -> str:
  """The page's text."""
  metrics = [metric for metric in metrics if metric in runs.systems[0].scores.values] or metrics
  rows = tested(runs, metrics)
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  title = " · ".join(system.label for system in runs.systems)
  made = forest.drawing(runs, rows, published)
  return page.page(
    title,
    f"{where}, {rows[0]['questions']} questions",
    [
      verdict.section(runs, rows, command),
      markup.section(
        "systems", "Systems", markup.figure(made.svg(), name="forest"), forest.table(runs, rows)
      ),
      markup.section("curves", "Training", *_curves(runs)),
      questions.section(runs, metrics[0], questions.rows(runs, metrics[0])),
      strata.section(runs, metrics[0])[0],
      answering.section(runs, calibration)[0],
      cards.section(runs),
    ],
  )


def tested(runs: Runs, metrics: Sequence[str]) -> list[dict[str, Any]]:
  """The rows of `as2jax compare`."""
  scores = [system.scores for system in runs.systems]
  return compare.compare(scores, metrics, samples=SAMPLES, seed=0)


def _curves(runs: Runs) -> list[str]:
  found = curves.drawings(runs)
  if not found:
    return []
  figures = "".join(markup.figure(made.svg(), name=name) for name, made in found.items())
  ring = (
    "A ring marks the best checkpoint. Seconds are those of training steps, without evaluations."
  )
  return [legend(runs), f'<div class="grid">{figures}</div>', markup.note(ring)]


def legend(runs: Runs) -> str:
  """Which colour is which system."""
  lines = []
  for number, system in enumerate(runs.systems):
    dot = Drawing(10, 10, "")
    dot.circle(5, 5, 5, series(number))
    lines.append(f"<li>{dot.svg()}{markup.text(system.label)}</li>")
  return f'<ul class="legend">{"".join(lines)}</ul>'


def automatic(folder: epath.PathLike) -> None:
  """Writes the page of a run that has just ended, by what it wrote; says in the log where it cannot.

  A page that cannot be made does not undo the run.
  """
  folder = epath.Path(folder)
  if not processes.first() or (folder / NAME).exists():
    return
  began = time.monotonic()
  try:
    content = regular_files.read_object(folder / "results.json", reading.ADVICE)
    split = _reported(content)
    make([str(folder)], folder / NAME, split=split)
  except (InputError, OSError) as error:
    log.warning("no report was written: %s", error)
    return
  log.info("report: %s (%.1f s)", folder / NAME, time.monotonic() - began)


def _reported(content: Mapping[str, Any]) -> str:
  """The split of a run's page: the one that was reported last, test where it was."""
  metric, rule = run_scores.KEYS[content["task"]]
  start = f"{metric}[{content['data']['name']}-{rule}/"
  splits = [
    key.removeprefix(start).rstrip("]") for key in content["metrics"] if key.startswith(start)
  ]
  if not splits:
    raise InputError("the run's results hold no split that a report could show")
  return "test" if "test" in splits else splits[-1]
