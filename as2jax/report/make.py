"""Makes the page of runs: `as2jax report`, `Run.report`, and at the end of a run."""

import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from as2jax.evaluation import compare, run_scores
from as2jax.report import cards, curves, forest, markup, page, questions, tables, verdict
from as2jax.report import runs as reading
from as2jax.report.asked import Asked
from as2jax.report.drawing import Drawing, series
from as2jax.report.runs import Runs
from as2jax.runtime import processes, registry, regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

log = logging.getLogger(__name__)
NAME = "report.html"  # in a run's folder
METRICS = {"rerank": ("map", "mrr", "p@1", "ndcg@10"), "retrieve": ("mrr", "r@1", "r@5")}
SAMPLES = 100_000  # of the randomization test
PUBLISHED = "as2jax.experiments.papers.published:figures"  # of the papers' rows that runs are of


class Content(NamedTuple):
  """The page's text, its figures by name, and the rows of its comparison."""

  text: str
  figures: dict[str, Drawing]
  rows: list[dict[str, Any]]


def make(names: Sequence[str], output: epath.PathLike = NAME, **options: Any) -> epath.Path:
  """Writes the page and returns its path.

  Args:
    names, output, options: the fields of `asked.Asked`.

  Raises:
    InputError: systems that cannot be compared, no such metric, or an output that cannot be written.

  """
  asked = Asked(names, output, **options)
  output = epath.Path(output)
  if output.suffix != ".html":
    raise InputError(f"--output={output}: name a file that ends in .html")
  if asked.files:
    if (folder := epath.Path(asked.files)).exists() and not folder.is_dir():
      raise InputError(
        f"--files={asked.files} is a file: name a folder, which is made if it is new"
      )
    importlib.import_module("matplotlib")  # a missing extra is said before the work
  selection = {"split": asked.split, "question_filter": asked.question_filter}
  runs = reading.read(names, **selection, deterministic=asked.deterministic)
  page_content = content(runs, asked)
  try:
    write_whole(output, page_content.text)
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  if asked.files:
    try:
      write_files(epath.Path(asked.files), page_content)
    except OSError as error:
      raise InputError(f"--files={asked.files} cannot be written: {error}") from error
  return output


def write_files(folder: epath.Path, page_content: Content) -> None:
  """Every figure as SVG and PDF, and the comparison in the forms of `tables`."""
  for name, drawing in page_content.figures.items():
    write_whole(folder / f"{name}.svg", drawing.svg(alone=True) + "\n")
    (folder / f"{name}.pdf").write_bytes(drawing.pdf())
  for form, suffix in tables.FORMS.items():
    write_whole(folder / f"systems{suffix}", tables.written(page_content.rows, form))


def content(runs: Runs, asked: Asked) -> Content:
  """The page of systems."""
  metrics = _metrics(runs, asked)
  rows = tested(runs, metrics)
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  published, sources = _published(runs, where, asked.published)
  figures = {"forest": forest.drawing(runs, rows, published)}
  trained = curves.drawings(runs)
  bars = questions.drawings(runs, metrics[0])
  listed = questions.rows(runs, metrics[0], asked.question_ids)
  why, of_why, numbers = _explained(runs, listed, (asked.explain, asked.question_ids))
  shown = markup.figure(figures["forest"].svg(), sources, "forest")
  text = page.page(
    " · ".join(system.label for system in runs.systems),
    f"{where}, {rows[0]['questions']} questions",
    [
      verdict.section(runs, rows, asked.commands(runs, metrics)),
      markup.section("systems", "Systems", shown, forest.table(runs, rows)),
      _training(runs, trained),
      questions.section(runs, metrics[0], listed, bars, numbers),
      *why,
      cards.section(runs),
    ],
  )
  return Content(text, figures | trained | bars | of_why, rows)


def _metrics(runs: Runs, asked: Asked) -> Sequence[str]:
  """The metrics of the page: those asked for, or those of the task that the first system has.

  Raises:
    InputError: a system lacks one that is asked for, or the page lacks that of a published figure.

  """
  usual, values = METRICS[runs.task], runs.systems[0].scores.values
  metrics = (
    list(dict.fromkeys(asked.metrics)) or [metric for metric in usual if metric in values] or usual
  )
  for system in runs.systems:
    for metric in metrics:
      system.scores.metric(metric)
  for metric, whose in asked.published:
    if metric not in metrics:
      raise InputError(
        f"--published: the figure of {whose} is of {metric!r}, which the page does not show; name one "
        f"of {', '.join(metrics)}, or the metrics of the page with --metrics"
      )
  return metrics


def tested(runs: Runs, metrics: Sequence[str]) -> list[dict[str, Any]]:
  """The rows of `as2jax compare`."""
  scores = [system.scores for system in runs.systems]
  return compare.compare(scores, metrics, samples=SAMPLES, seed=0)


def _published(
  runs: Runs, where: str, stated: Mapping[tuple[str, str], float]
) -> tuple[dict[tuple[str, str], float], str]:
  """Published figures by (metric, whose), those that were given too, and where they come from."""
  ours = [(system.config, system.content) for system in runs.systems if system.config]
  known = registry.resolve(PUBLISHED)(ours, where)
  sources = "; ".join(dict.fromkeys(one.source for one in known))
  figures = {(one.metric, one.whose): one.value for one in known}
  said = f"Hollow marks are published figures: {sources}." if sources else ""
  return {**figures, **stated}, said


def _explained(
  runs: Runs, listed: Sequence[questions.Row], wanted: tuple[int, Sequence[str]]
) -> tuple[list[str], dict[str, Drawing], list[str]]:
  """The sections of explanations, their figures, and the ids of the questions in it."""
  if not any(wanted):
    return [], {}, []
  from as2jax.report import explanations  # with jax and all that opens weights

  explained = explanations.explain(runs, explanations.chosen(listed, *wanted))
  section, figures = explanations.section(explained)
  if wanted[1] and not explained:
    why = runs.absent or "no system of the page has parameters"
    note = markup.note(f"No question is explained: {why}.")
    section = markup.section("explanations", "Explanations", note)
  near, of_near = explanations.projections(runs)
  return [section, near], figures | of_near, [one.question.id for one in explained]


def _training(runs: Runs, drawings: Mapping[str, Drawing]) -> str:
  if not drawings:
    return ""
  figures = "".join(markup.figure(drawing.svg(), name=name) for name, drawing in drawings.items())
  ring = (
    "A ring marks the best checkpoint. Seconds are those of training steps, without evaluations."
  )
  grid = f'<div class="grid">{figures}</div>'
  return markup.section("curves", "Training", legend(runs), grid, markup.note(ring))


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
