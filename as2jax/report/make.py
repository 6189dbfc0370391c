"""Make the page of runs (`as2jax report`, `Run.report`, the end of a run), and that of many runs."""

import base64
import dataclasses
import functools
import hashlib
import importlib.resources
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from etils import epath
from markupsafe import Markup

from as2jax.data import holdout
from as2jax.evaluation import answer_triggering, compare, run_scores, tables
from as2jax.report import figures, plots, questions, verdict
from as2jax.report import runs as reading
from as2jax.report.runs import Runs
from as2jax.runtime import processes, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object, write_whole
from as2jax.runtime.version import __version__

log = logging.getLogger(__name__)
NAME = "report.html"  # in a run's folder
METRICS = {"rerank": ("map", "mrr", "p@1", "ndcg@10"), "retrieve": ("mrr", "r@1", "r@5")}
SAMPLES = 100_000  # of the randomization test
PUBLISHED = "as2jax.experiments.papers.published:figures"  # of the papers' rows that runs are of


@dataclasses.dataclass(frozen=True)
class Options:
  """Hold the options of `as2jax report`.

  Attributes:
    split: of the runs' folders.
    metrics: the first leads the page; () are those of the task.
    question_filter: see `run_scores.load`.
    deterministic: names of files whose system has no randomness.
    explain: so many questions that differ most are explained, which opens the runs' weights.
    question_ids: further questions to explain.

  """

  split: str = "test"
  metrics: Sequence[str] = ()
  question_filter: str | None = None
  deterministic: Sequence[str] = ()
  explain: int = 0
  question_ids: Sequence[str] = ()


def make(names: Sequence[str], output: epath.PathLike = NAME, **options: Any) -> epath.Path:
  """Write the page of systems and return its path.

  Args:
    names: folders of finished runs, tables, or TREC run files; others are compared with the first.
    output: the page.
    options: the fields of `Options`.

  Raises:
    InputError: systems that cannot be compared, no such metric, or an output that cannot be written.

  """
  asked, output = Options(**options), epath.Path(output)
  if output.suffix != ".html":
    raise InputError(f"--output={output}: name a file that ends in .html")
  runs = reading.read(
    names,
    split=asked.split,
    question_filter=asked.question_filter,
    deterministic=asked.deterministic,
  )
  text = page("runs.html.j2", **content(runs, asked, str(output)))
  try:
    write_whole(output, text)
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return output


def content(runs: Runs, asked: Options, output: str) -> dict[str, Any]:
  """Return what `runs.html.j2` shows of systems."""
  metrics = _metrics(runs, asked)
  scores = [system.scores for system in runs.systems]
  rows = compare.compare(scores, metrics, samples=SAMPLES, seed=0)
  first = [row for row in rows if row["metric"] == rows[0]["metric"]]
  where = first[0]["metric"].partition("[")[2].rstrip("]")
  known = [(system.config, system.content) for system in runs.systems if system.config]
  published = registry.resolve(PUBLISHED)(known, where)
  listed = questions.rows(runs, metrics[0], asked.question_ids)
  chunks, held = questions.packed(runs, listed)
  labels = [system.label for system in runs.systems]
  return {
    "title": " · ".join(labels),
    "subtitle": f"{where}, {first[0]['questions']} questions",
    "verdict": verdict.lines(runs, first),
    "protocol": verdict.protocol(runs, first[0]),
    "caveats": verdict.caveats(runs, first),
    "commands": commands(runs, asked, metrics, output),
    "forest": plots.systems(runs, rows, {(one.metric, one.whose): one.value for one in published}),
    "sources": list(dict.fromkeys(one.source for one in published)),
    "system_rows": _system_rows(runs, rows),
    "training": plots.training(runs),
    "differences": plots.differences(runs, metrics[0]),
    "answering": _answering(runs),
    "labels": labels,
    "metric": metrics[0].upper(),
    "absent": runs.absent,
    "listed": listed,
    "total": len(runs.questions) or len(runs.systems[0].scores.ids),
    "chunks": chunks,
    "held": held,
    "explained": _explained(runs, listed, asked),
    "explanations_asked": bool(asked.question_ids),
    "data": runs.data_record,
    "data_rows": reading.data_rows(runs.data_record) if runs.data_record else [],
    "data_notes": reading.data_notes(runs.data_record) if runs.data_record else [],
    "identity_rows": reading.identity_rows(runs),
  }


def _metrics(runs: Runs, asked: Options) -> list[str]:
  """Return the metrics of the page: those asked for, or those of the task that the first system has.

  Raises:
    InputError: a system lacks one that is asked for.

  """
  metrics = list(dict.fromkeys(asked.metrics))
  if not metrics:
    usual, values = METRICS[runs.task], runs.systems[0].scores.values
    metrics = [metric for metric in usual if metric in values] or list(usual)
  for system in runs.systems:
    for metric in metrics:
      system.scores.metric(metric)
  return metrics


def commands(runs: Runs, asked: Options, metrics: Sequence[str], output: str) -> list[str]:
  """Return the command of this page, that of its tests, and those that train the runs again."""
  names = [system.name for system in runs.systems]
  shared = [f"--split={asked.split}"]
  if asked.question_filter:
    shared.append(f"--filter={asked.question_filter}")
  shared += [f"--deterministic={name}" for name in asked.deterministic]
  own = [f"--explain={asked.explain}", *(f"--question={id}" for id in asked.question_ids)]
  if asked.metrics:
    own.append(f"--metrics={','.join(asked.metrics)}")
  said = [shlex.join(["as2jax", "report", *names, "-o", output, *shared, *own])]
  if len(names) > 1:  # `compare` alone takes two metrics
    said.append(
      shlex.join(["as2jax", "compare", *names, *shared, f"--metrics={','.join(metrics)}"])
    )
  for system in runs.systems:
    if system.config:  # an evaluation on other data has none
      folder = epath.Path(system.name)  # without a slash at its end
      config = f"rerun:{folder / 'config.json'}"
      said.append(shlex.join(["as2jax", "train", config, "-o", f"{folder}-again"]))
  return said


def _system_rows(runs: Runs, rows: Sequence[dict[str, Any]]) -> list[list[str]]:
  """Return the figures behind the plot, with the tests against the first system, under a head."""
  named = {system.name: system.label for system in runs.systems}
  head = ["system", "metric", "mean", "±", "s.d. (seeds)"]
  tests = ["difference", "±", "p (t)", "p (rand.)", "p (methods)"]
  cells = [[*head, *tests] if len(named) > 1 else head]
  for row in rows:
    width, sd = row["half_width"], row["sd"]
    line = [named[row["system"]], row["metric"].partition("[")[0].upper(), f"{row['mean']:.4f}"]
    line.append("–" if width is None else f"{width:.4f}")
    line.append("–" if sd is None else f"{sd:.4f} ({row['seeds']})")
    if "p_t" in row:
      line.append(f"{row['difference']:+.4f}".replace("-", "−"))
      line.append(f"{row['difference_half_width']:.4f}")
      for name in ("p_t", "p_randomization", "p_methods"):
        line.append("–" if row[name] is None else compare.p_text(row[name]))
    cells.append(line + [""] * (len(cells[0]) - len(line)))
  return cells


def _answering(runs: Runs) -> list[list[str]]:
  """Return WikiQA's answer triggering of each system, seeds averaged, under a head; [] without dev."""
  run, rows = runs.first_run, []
  if run is None or runs.task != "rerank" or runs.dataset is None:
    return []
  dev = holdout.selection_split({"holdout": 0.0, **run.config.get("data", {})})
  if dev in runs.split.split("+") or dev not in runs.dataset.splits:
    return []
  for system in runs.systems:
    fitted_on = system.rankings(dev) if system.content is not None else []
    seeds = []
    for before, after in zip(fitted_on, system.rankings(runs.split), strict=False):
      best = answer_triggering.best(runs.dataset.splits[dev], before)
      seeds.append(answer_triggering.measure(best, answer_triggering.best(runs.questions, after)))
    if seeds:
      cells = [system.label]
      for field in ("precision", "recall", "f1", "half_width", "brier", "calibration_error"):
        cells.append(f"{sum(getattr(seed, field) for seed in seeds) / len(seeds):.3f}")
      rows.append(cells)
  head = ["system", "precision", "recall", "F1", "±", "Brier", "calibration error"]
  return [head, *rows] if rows else []


def _explained(runs: Runs, listed: Sequence[questions.Row], asked: Options) -> list[Any]:
  """Return the explanations of the questions that differ most and of those asked for."""
  if not asked.explain and not asked.question_ids:
    return []
  from as2jax.report import explanations  # with jax and all that opens weights

  rows = explanations.chosen(listed, asked.explain, asked.question_ids)
  return explanations.explain(runs, rows)


@functools.cache
def _environment() -> jinja2.Environment:
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader(__package__),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.filters["table"] = _table
  environment.filters["series"] = figures.series
  return environment


def _table(cells: Sequence[Sequence[Any]], left: int = 1) -> Markup:
  """Return rows of cells as a table of HTML, the first its head."""
  return Markup(tables.render(cells, "html", left=left))


def resource(name: str) -> str:
  """Return a file of the templates' folder."""
  return importlib.resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def page(template: str, **context: Any) -> str:
  """Return a whole page: one file, which loads nothing.

  Its Content-Security-Policy allows its own style and program, by their digests, and nothing else.
  """
  style, program = figures.colour_rules() + resource("page.css"), resource("page.js")
  digests = []
  for text in (style, program):
    digests.append(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
  policy = (
    f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
    "base-uri 'none'; form-action 'none'"
  )
  own = {"style": Markup(style), "program": Markup(program), "policy": policy}
  template = _environment().get_template(template)
  return template.render(**context, **own, version=__version__)


def automatic(folder: epath.PathLike) -> None:
  """Write the page of a run that has just ended; say in the log where it cannot.

  A page that cannot be made does not undo the run.
  """
  folder = epath.Path(folder)
  if not processes.first() or (folder / NAME).exists():
    return
  began = time.monotonic()
  try:
    content = read_object(folder / "results.json", reading.ADVICE)
    make([str(folder)], folder / NAME, split=_reported(content))
  except (InputError, OSError) as error:
    log.warning("no report was written: %s", error)
    return
  log.info("report: %s (%.1f s)", folder / NAME, time.monotonic() - began)


def _reported(content: Mapping[str, Any]) -> str:
  """Return the split of a run's page: the one that was reported last, test where it was."""
  metric, rule = run_scores.KEYS[content["task"]]
  start, splits = f"{metric}[{content['data']['name']}-{rule}/", []
  for key in content["metrics"]:
    if key.startswith(start):
      splits.append(key.removeprefix(start).rstrip("]"))
  if not splits:
    raise InputError("the run's results hold no split that a report could show")
  return "test" if "test" in splits else splits[-1]
