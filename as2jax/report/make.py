"""Make the page of runs (`as2jax report`, `Run.report`, the end of a run)."""

import base64
import hashlib
import importlib.resources
import logging
import shlex
import time
from collections.abc import Sequence
from typing import Any

import jinja2
from etils import epath
from markupsafe import Markup

from as2jax.data import holdout
from as2jax.evaluation import calibration, compare, results, tables
from as2jax.report import figures, plots, verdict
from as2jax.report import runs as reading
from as2jax.report.runs import Options, Runs
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.version import __version__

log = logging.getLogger(__name__)
NAME = "report.html"  # in a run's folder
METRICS = {"rerank": ("map", "mrr", "p@1", "ndcg@10"), "retrieve": ("mrr", "r@1", "r@5")}
# The share of questions whose first candidate is right.
RIGHT_FIRST = {"rerank": "p@1", "retrieve": "r@1"}


def make(names: Sequence[str], output: epath.PathLike = NAME, **options: Any) -> epath.Path:
  """Write the page of systems and return its path.

  Args:
    names: folders of finished runs, tables, or TREC run files; others are compared with the first.
    options: the fields of `Options`.

  """
  asked, output = Options(**options), epath.Path(output)
  if output.suffix != ".html":
    raise InputError(f"--output={output}: name a file that ends in .html")
  runs = reading.read(names, asked)
  try:
    write_whole(output, page(**content(runs, asked, str(output))))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return output


def content(runs: Runs, asked: Options, output: str) -> dict[str, Any]:
  """Return what `runs.html.j2` shows of systems."""
  metrics = list(dict.fromkeys(asked.metrics))
  if not metrics:
    usual, values = METRICS[runs.task], runs.systems[0].scores.values
    metrics = [metric for metric in usual if metric in values] or list(usual)
  scores = [system.scores for system in runs.systems]
  rows = compare.compare(scores, metrics)
  first = [row for row in rows if row["metric"] == rows[0]["metric"]]
  where = first[0]["metric"].partition("[")[2].rstrip("]")
  listed = reading.rows(runs, metrics[0])
  chunks, held = reading.packed(runs, listed)
  labels, record = runs.labels, runs.data_record
  tested, right = first, RIGHT_FIRST[runs.task]
  if all(right in one.values for one in scores):
    tested = compare.compare(scores, [right])
  return {
    "title": " · ".join(labels),
    "subtitle": f"{where}, {first[0]['questions']} questions",
    "verdict": verdict.plain(runs, tested, first),
    "behind": verdict.lines(runs, first),
    "protocol": verdict.protocol(runs, first[0]),
    "caveats": verdict.caveats(runs, first),
    "command": command(runs, asked, output),
    "forest": plots.systems(runs, rows),
    "compared": Markup(compare.as_html(rows)),
    "training": plots.training(runs),
    "answering": _answering(runs),
    "labels": labels,
    "metric": metrics[0].upper(),
    "absent": runs.absent,
    "listed": listed,
    "total": len(runs.questions) or len(scores[0].ids),
    "chunks": chunks,
    "held": held,
    "explained": _explained(runs, listed, asked.explain),
    "data": record,
    "data_rows": reading.data_rows(record) if record else [],
    "data_notes": reading.data_notes(record) if record else [],
    "identity_rows": reading.identity_rows(runs),
  }


def command(runs: Runs, asked: Options, output: str) -> str:
  """Return the command of this page."""
  said = ["as2jax", "report", *(system.name for system in runs.systems), "-o", output]
  said += [f"--split={asked.split}", f"--explain={asked.explain}"]
  if asked.question_filter:
    said.append(f"--filter={asked.question_filter}")
  if asked.metrics:
    said.append(f"--metrics={','.join(asked.metrics)}")
  said += map("--deterministic={}".format, asked.deterministic)
  said += ["--allow-code"] * asked.allow_code
  return shlex.join(said)


def _answering(runs: Runs) -> list[list[str]]:
  """Return WikiQA's answer triggering of each system, seeds averaged, under a head; [] without dev."""
  run, fields = runs.first_run, ("precision", "recall", "f1", "half_width", "brier")
  if run is None or runs.dataset is None:
    return []
  dev = holdout.selection_split({"holdout": 0.0, **run.config.get("data", {})})
  if dev in runs.split.split("+"):
    return []
  rows = [["system", "precision", "recall", "F1", "±", "Brier", "calibration error"]]
  for system in runs.systems:
    seeds = []
    for seed in system.seeds if system.content is not None else ():
      pair = [calibration.ranked_by(system.place, split, seed) for split in (dev, runs.split)]
      if None not in pair:
        seeds.append(calibration.measure(*(candidates.best for candidates in pair)))
    if seeds:
      cells = [system.label]
      for field in (*fields, "calibration_error"):
        cells.append(f"{sum(seed[field] for seed in seeds) / len(seeds):.3f}")
      rows.append(cells)
  return rows if len(rows) > 1 else []


def _explained(runs: Runs, listed: Sequence[reading.Row], count: int) -> list[dict[str, Any]]:
  """Return questions with documents and pictures: the first `count` counted ones, of a document also the middle one."""
  by_id, pairs, found = {question.id: question for question in runs.questions}, {}, []
  if count:
    from as2jax.report import explanations  # with jax and all that opens weights

    pairs = explanations.explain(runs, listed[:count])
  middle = sum(bool(row.values) for row in listed) // 2
  for number, row in enumerate(listed):
    if row.id in by_id and (number == middle or number < max(count, 1)) and row.values:
      question = by_id[row.id]
      documents = reading.documents(runs, question)
      if documents or row.id in pairs:
        one = {"number": number, "question": question, "documents": documents}
        found.append(one | {"pairs": pairs.get(row.id, [])})
  return found


def resource(name: str) -> str:
  """Return a file of the templates' folder."""
  return importlib.resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def page(**context: Any) -> str:
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
  options = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True}
  environment = jinja2.Environment(**options, lstrip_blocks=True)
  environment.filters["table"] = lambda cells, left: Markup(tables.render(cells, "html", left=left))
  environment.filters["series"] = figures.series
  template = environment.from_string(resource("runs.html.j2"))
  return template.render(**context, **own, version=__version__)


def automatic(folder: epath.PathLike) -> None:
  """Write the page of a run that has just ended; where it cannot, say so in the log, no more.

  It shows test where that was reported, else the split that was reported last.
  """
  folder = epath.Path(folder)
  if not processes.first() or (folder / NAME).exists():
    return
  began = time.monotonic()
  try:
    splits = results.splits_of(results.read(folder))
    if not splits:
      raise InputError("the run's results hold no split that a report could show")
    make([str(folder)], folder / NAME, split="test" if "test" in splits else splits[-1])
  except (InputError, OSError) as error:
    log.warning("no report was written: %s", error)
    return
  log.info("report: %s (%.1f s)", folder / NAME, time.monotonic() - began)
