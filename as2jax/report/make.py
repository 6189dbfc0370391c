"""Makes the page of runs: `as2jax report`, `Run.report`, and at the end of a run."""

import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from as2jax.evaluation import compare, run_scores
from as2jax.evaluation.answer_triggering import CALIBRATIONS
from as2jax.report import (
  answering,
  cards,
  curves,
  forest,
  markup,
  page,
  questions,
  strata,
  tables,
  verdict,
)
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


class Content(NamedTuple):
  """The page's text, its figures by name, and the rows of its comparison."""

  text: str
  figures: dict[str, Drawing]
  rows: list[dict[str, Any]]


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
  files: epath.PathLike = "",
  explain: int = 0,
  question_ids: Sequence[str] = (),
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
    files: a folder for every figure as SVG and PDF and the comparison as Markdown, LaTeX, CSV and
      JSON; "" for none.
    explain: so many questions that differ most are explained, which opens the runs' weights.
    question_ids: further questions to explain.

  Raises:
    InputError: systems that cannot be compared, no such metric, or an output that cannot be written.

  """
  output = epath.Path(output)
  if calibration not in CALIBRATIONS:
    raise InputError(f"--calibration={calibration}: use one of {', '.join(CALIBRATIONS)}")
  if output.suffix != ".html":
    raise InputError(f"--output={output}: name a file that ends in .html")
  if files:
    importlib.import_module("matplotlib")  # a missing extra is said before the work
  runs = reading.read(
    names, split=split, question_filter=question_filter, deterministic=deterministic
  )
  chosen = tuple(metrics) or METRICS[runs.task]
  command = [*names, "-o", str(output), f"--split={split}"]
  if question_filter:
    command.append(f"--filter={question_filter}")
  if calibration != "platt":
    command.append(f"--calibration={calibration}")
  if explain or question_ids:
    command += [f"--explain={explain}", *(f"--question={id}" for id in question_ids)]
  wanted = (explain, tuple(question_ids))
  made = content(runs, chosen, command, published or {}, calibration, wanted)
  try:
    write_whole(output, made.text)
    if files:
      write_files(epath.Path(files), made)
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return output


def write_files(folder: epath.Path, made: Content) -> None:
  """Every figure as SVG and PDF, and the comparison in the forms of `tables`."""
  for name, drawing in made.figures.items():
    write_whole(folder / f"{name}.svg", drawing.svg(alone=True) + "\n")
    (folder / f"{name}.pdf").write_bytes(drawing.pdf())
  for form, suffix in tables.FORMS.items():
    write_whole(folder / f"systems{suffix}", tables.written(made.rows, form))


def content(
  runs: Runs,
  metrics: Sequence[str],
  command: Sequence[str],
  published: Published,
  calibration: str,
  wanted: tuple[int, Sequence[str]] = (0, ()),
) -> Content:
  """The page of systems; `wanted` is how many questions are explained, and which."""
  metrics = [metric for metric in metrics if metric in runs.systems[0].scores.values] or metrics
  rows = tested(runs, metrics)
  where = rows[0]["metric"].partition("[")[2].rstrip("]")
  figures = {"forest": forest.drawing(runs, rows, published)}
  trained = curves.drawings(runs)
  asked = questions.drawings(runs, metrics[0])
  listed = questions.rows(runs, metrics[0])
  why, of_why, numbers = _explained(runs, listed, wanted)
  kinds, of_kinds = strata.section(runs, metrics[0])
  silent, of_silent = answering.section(runs, calibration)
  systems = markup.figure(figures["forest"].svg(), name="forest") + forest.table(runs, rows)
  text = page.page(
    " · ".join(system.label for system in runs.systems),
    f"{where}, {rows[0]['questions']} questions",
    [
      verdict.section(runs, rows, command),
      markup.section("systems", "Systems", systems),
      _training(runs, trained),
      questions.section(runs, metrics[0], listed, asked, numbers),
      *why,
      kinds,
      silent,
      cards.section(runs),
    ],
  )
  return Content(text, figures | trained | asked | of_why | of_kinds | of_silent, rows)


def tested(runs: Runs, metrics: Sequence[str]) -> list[dict[str, Any]]:
  """The rows of `as2jax compare`."""
  scores = [system.scores for system in runs.systems]
  return compare.compare(scores, metrics, samples=SAMPLES, seed=0)


def _explained(
  runs: Runs, listed: Sequence[questions.Row], wanted: tuple[int, Sequence[str]]
) -> tuple[list[str], dict[str, Drawing], list[str]]:
  """The sections of explanations, their figures, and the ids of the questions in it."""
  if not any(wanted):
    return [], {}, []
  from as2jax.report import explanations  # with jax and all that opens weights

  found = explanations.explain(runs, explanations.chosen(listed, *wanted))
  section, figures = explanations.section(found)
  near, of_near = explanations.projections(runs)
  return [section, near], figures | of_near, [one.question.id for one in found]


def _training(runs: Runs, found: Mapping[str, Drawing]) -> str:
  if not found:
    return ""
  figures = "".join(markup.figure(made.svg(), name=name) for name, made in found.items())
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
