"""`as2jax evaluate` and `as2jax report`: metrics of a run, a model or a run file, and a page of runs."""

from typing import Annotated

import typer
from typer import Argument, Option

from as2jax.commands import output, process
from as2jax.commands.output import examples, option
from as2jax.commands.train import AllowCode, Columns, Drop, Label, Set, finish
from as2jax.commands.use import Deterministic, Filter, check_filter
from as2jax.runtime.errors import InputError

# Keys of training alone, which say nothing of how a finished run is evaluated.
TRAINING = ("epochs", "patience", "optimizer.", "loss.", "checkpoint.", "warm_start.")
app = typer.Typer()


@app.command(
  epilog=examples(
    "as2jax evaluate runs/x",
    "as2jax evaluate runs/x --data=semeval2016:test",
    "as2jax evaluate runs/x --data=own.csv --columns question=query,label=is_correct",
    "as2jax evaluate cross-encoder/ms-marco-MiniLM-L6-v2 --data=wikiqa:test -o marco.tsv",
    "as2jax evaluate 'ours-*.run' --qrels=qrels.txt --metrics=nDCG@10,R@100",
  )
)
def evaluate(
  system: Annotated[
    str, Argument(metavar="SYSTEM", help="a run's folder, a published model or a run file")
  ],
  data: option(
    "semeval2016:test, hub:NAME:SPLIT, or your own file", metavar="NAME:SPLIT|FILE"
  ) = "",
  splits: option("such as dev,test; default: the run's", metavar="NAMES") = "",
  columns: Columns = "",
  drop: Drop = False,
  rules: option("of no run: text rules, such as ptb", metavar="NAMES") = "",
  target: option("of no run: the scores of each question", "-o", "--output", metavar="FILE") = "",
  settings: Set = [],
  label: Label = None,
  qrels: option("what is right in run files, as of as2jax compare", metavar="FILE") = "",
  metrics: option("by --qrels, joined by commas; default: nDCG@10,AP", metavar="NAMES") = "",
  allow_code: AllowCode = False,
  form: output.Form = "text",
) -> None:
  """Evaluates a run again, or what is no run on labelled questions."""
  if qrels or metrics:
    others = (data, splits, columns, drop, rules, target, settings, label)
    if not qrels or any(others):
      raise InputError(
        "--metrics and --qrels are for run files by judgements, as2jax evaluate FILE --qrels=FILE, without "
        "what is for other systems and data"
      )
    from as2jax.evaluation import run_scores
    from as2jax.inference import evaluate as evaluation

    one = evaluation.evaluate(system, qrels=qrels, measures=metrics or run_scores.MEASURES)
    rows = []
    for name, entry in one.metrics.items():
      rows.append({"metric": one.title(name), **entry, "note": one.note})
    output.emit(form, rows, lambda: repr(one))
    return
  process.begin_run()
  from as2jax.data import dataset as datasets
  from as2jax.inference import open as opening

  if not data and (columns or drop):
    raise InputError("--columns and --drop are for a file of your own: name it, --data=FILE")
  if datasets.is_named(data):
    datasets.refuse(data, columns, drop)
  if opening.is_run(system):
    if rules or target or label or (data and splits):
      raise InputError(
        "--rules, --label and --output are for what is no run, and --splits for the run's own data: name the "
        "split of other data with it, --data=wikiqa:test"
      )
    _again(system, data, splits, columns, drop, settings, allow_code, form)
    return
  if settings or splits:
    raise InputError(f"--set and --splits are for runs: {system} is none")
  if not data:
    raise InputError(
      f"{system} holds no run, which would have data of its own: train first, or name labelled "
      "questions, --data=wikiqa:test or --data=FILE, or what is right in a run file, --qrels=FILE"
    )
  _on_questions(
    system, data, columns, drop, tuple(filter(None, rules.split(","))), target, form, label
  )


def _again(
  run: str,
  data: str,
  splits: str,
  columns: str,
  drop: bool,
  settings: list[str],
  allow_code: bool,
  form: str,
) -> None:
  """Evaluate a finished run, on its own data or on others."""
  from as2jax.config import jobs, overrides

  config = jobs.of_run(f"{run}/config.json", allow_code)
  options = [f"evaluation.splits={splits}"] * bool(splits)
  if data:  # a mapping of the training file's columns is not this file's
    options += [f"evaluation.data={data}", f"data.columns={columns}", f"data.drop={drop}"]
  values = overrides.parse(config, options + settings)
  if idle := [key for key in values if key.startswith(TRAINING)]:
    raise InputError(
      f"--set {idle[0]}: a key of training, which changes nothing in a finished run; leave it out, or "
      f"train another run: as2jax train rerun:{run}/config.json -o FOLDER --set {idle[0]}=VALUE"
    )
  config = overrides.apply(config, {**values, "mode": "evaluate"})
  from as2jax.inference import modes

  folder = modes.prepare(config, run)
  content = modes.content(config, folder)
  from as2jax.evaluation import results

  finish(content, lambda: results.table(content, folder), form)


def _on_questions(
  system: str,
  address: str,
  columns: str,
  drop: bool,
  rules: tuple[str, ...],
  target: str,
  form: str,
  label: str | None,
) -> None:
  """Measure what is no run on labelled questions, under each of their question filters."""
  import dataclasses

  from as2jax.data import dataset as datasets
  from as2jax.data import tables, trec_files
  from as2jax.data.dataset import Splits
  from as2jax.data.text import normalise
  from as2jax.evaluation import metrics, results, tasks
  from as2jax.inference.evaluate import labelled, scores_of

  normalise.check(rules)
  if target:
    if not target.endswith(".tsv"):
      raise InputError(f"--output={target}: the scores are a tab-separated table, name a .tsv file")
    tables.check_target(target, source=address)
  data = dataclasses.replace(datasets.by_address(address, columns=columns, drop=drop), filter="all")
  if rules:
    plain = data.splits
    ruled = Splits(tuple(plain), lambda split: normalise.apply(plain[split], rules))
    data = dataclasses.replace(data, splits=ruled)
  questions = labelled(data)
  (scores,), _ = scores_of(system, questions, data, label=label)
  split = "+".join(data.reported)
  found = tasks.evaluate(scores, data, split, ties="expected", questions=questions)
  if target:
    names, _, labels = metrics.columns_of(questions)
    trec_files.write_per_question(target, names, labels, found.per_question)
  rows = {}
  for name, entry in found.metrics.items():
    rows[name] = {"mean": entry.pop("value"), "sd": None, "seeds": 1, **entry}
  content = {"task": "rerank", "metrics": rows, "seeds": [], "deterministic": True}
  notes = [f"note: {note}" for note in found.notes]
  finish(content, lambda: "\n".join([results.table(content), *notes]), form)


@app.command(
  epilog=examples(
    "as2jax report runs/x                                   (runs/x/report.html)",
    "as2jax report runs/bm25 runs/x -o report.html",
    "as2jax report runs/x reranked.trec -o report.html",
  )
)
def report(
  systems: Annotated[list[str], Argument(metavar="SYSTEM...", help="as of as2jax compare")],
  target: option("the page; in the first folder without", "-o", "--output", metavar="FILE") = "",
  split: Annotated[str, Option(help="of runs' folders")] = "test",
  metrics: Annotated[str, Option(help="joined by commas; the first leads the page")] = "",
  question_filter: Filter = None,
  deterministic: Deterministic = [],
  explain: Annotated[int, Option(min=0, help="explain so many questions that differ most")] = 3,
  allow_code: AllowCode = False,
) -> None:
  """Writes a page that shows runs. One HTML file: verdict, curves, every question, data and runs."""
  import os

  check_filter(question_filter)
  from as2jax.evaluation import run_scores

  place = run_scores.named(systems[0])[1]
  if not target and not os.path.isdir(place):
    raise InputError("name the page: -o report.html")
  from as2jax.report import make

  page = make.make(
    systems,
    target or os.path.join(place, make.NAME),
    split=split,
    metrics=[name.strip() for name in metrics.split(",") if name.strip()],
    question_filter=question_filter,
    deterministic=deterministic,
    explain=explain,
    allow_code=allow_code,
  )
  print(f"written: {page}")
