"""Evaluate a finished run again, or on other data, and rank the candidates of a table by it."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import retrieval, tables, user_files
from as2jax.data.dataset import Dataset, Splits
from as2jax.data.record import UNKNOWN, Question
from as2jax.data.text import normalise
from as2jax.evaluation import results, tasks
from as2jax.inference.ranker import ranked_rows
from as2jax.inference.run import Run
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError
from as2jax.training import record

log = logging.getLogger(__name__)
SELECTED = ("seed", "best_step", "best_epoch", "best_value", "steps")  # of an outcome


def reevaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Evaluate the best checkpoint of a finished run again, on `evaluation.splits` of the config.

  Writes below `eval/` as training does, and `evaluation.json`; `results.json` stays. Where
  `evaluation.data` names other data, the run is evaluated on these (`evaluate_on`).

  """
  if config.evaluation.data:
    address, how = config.evaluation.data, {}
    if not datasets.is_named(address):
      how = {"columns": config.data.columns, "drop": config.data.drop}
    data = datasets.by_address(address, **how)
    return evaluate_on(Run(workdir, config), data, ranking=config.predict.ranking)
  run = Run(workdir, config, data=True)
  trained = run.results
  components = run.components
  splits = components.config.evaluation.splits
  known = record.check_data(run.folder, components, splits)
  steps = -1 if components.model.has_parameters else 0
  outcomes = [results.Outcome(seed, steps, steps, None, steps) for seed in run.seeds]
  _record(run, config, components.dataset, workdir, splits, outcomes)
  summary = {key: trained[key] for key in ("deterministic", "before_training") if key in trained}
  changed = record.changes(run.folder, record.read(run.folder), run.config)
  summary["identity"] = {**known, "changed": changed}
  of_data = results.data_record(components.data, config.data)
  provenance, name = components.provenance, "evaluation.json"
  return results.write(workdir, config, of_data, provenance, outcomes, summary, name=name)


def evaluate_on(run: Run, data: Dataset, *, ranking: epath.PathLike = "") -> dict:
  """Evaluate the best checkpoint of each seed of a finished run on any re-ranking data set.

  Of pairs of question and right answer, all answers are one pool, which a bi-encoder searches.

  What is written lies in `evaluations/<data>-<split>`: a folder with `results.json` (which is returned)
  and `eval/`, which `compare` reads. The run's ledger has a row more.

  Args:
    run: of any task, whose text rules are applied.
    data: see `as2jax.dataset`; the splits that it reports are evaluated, under every filter.
    ranking: of a joint model, the run file of the first-stage ranking of these questions.

  InputError: the folder holds what is of another file of the same name.

  """
  trained = run.results
  config = run.config.copy_and_resolve_references().unlock()
  config.evaluation.task = "rerank"
  ruled, questions = {}, []
  for split, plain in data.splits.items():
    ruled[split] = normalise.apply(plain, config.data.rules)
    questions += ruled[split]
  require_labels(questions, f"{data.source}: ")
  data = dataclasses.replace(data, splits=Splits(ruled, ruled.__getitem__))
  run.start_from(ranking, questions)
  model = run.components.model
  if retrieval.of_pairs(data) and (model.encodes or not model.has_parameters):
    data, config.evaluation.task, config.select = (
      retrieval.pooled(data, negatives="none"),
      "retrieve",
      "mrr",
    )
  folder = run.folder / "evaluations" / f"{data.name}-{'+'.join(data.splits)}"
  before = (results.read(folder) or {}).get("data", {})
  source = before.get("source", data.source)
  if source != data.source and results.changed_split(before, data):
    raise InputError(
      f"{folder} holds the evaluation on other questions, those of {source}: give {data.source} another "
      "name, or move that folder away"
    )
  outcomes = []
  for outcome in trained["seeds"]:
    outcomes.append(results.Outcome(**{name: outcome[name] for name in SELECTED}))
  _record(run, config, data, folder, data.reported, outcomes)
  prints = {split: record.of_questions(data.splits[split]) for split in data.reported}
  changed = record.changes(run.folder, record.read(run.folder), run.config)
  summary = {
    "deterministic": trained.get("deterministic", False),
    "run": str(run.folder),
    "identity": {"own": False, "data": prints, "changed": changed},
  }
  note(run, data, [outcome.seed for outcome in outcomes])
  of_data = results.data_record(data, config.data)
  return results.write(folder, config, of_data, run.components.provenance, outcomes, summary)


def _record(
  run: Run,
  config: Any,
  data: Any,
  folder: epath.PathLike,
  splits: Sequence[str],
  outcomes: Sequence[results.Outcome],
) -> None:
  """Measure splits of `data` with each outcome's seed, and write their files below `folder`."""
  task = None
  for outcome in outcomes:
    ranker = run.ranker(outcome.seed)
    task = task or tasks.make(config, data, ranker.predictor)
    for split in splits:
      task.record(folder, ranker.variables, split, [outcome])
  bound.bind(folder, results.LEDGER, *(f"eval/{split}" for split in splits))


def require_labels(questions: Sequence[Question], where: str = "") -> None:
  """Raise InputError where a candidate has no label; `where` stands before the message."""
  for question in questions:
    if any(candidate.label == UNKNOWN for candidate in question.candidates):
      raise InputError(
        f"{where}a candidate of question {question.id!r} has no label, without which nothing can be "
        "evaluated: add a column label with 0 or 1"
      )


def note(run: Run, data: Dataset, seeds: Sequence[int]) -> None:
  """Add the evaluation on other data to the run's ledger."""
  try:
    for split in data.reported:
      results.note_evaluation(run.folder, split, seeds, data.name, "evaluate")
  except OSError as error:
    log.warning("%s cannot note that it was evaluated: %s", run.folder, error)


def predict(config: Any, workdir: epath.PathLike) -> epath.Path:
  """Rank the candidates of the table `predict.input` and writes a table, best first.

  The rows are those of `as2jax rank` (`ranked_rows`), but the score is the mean over seeds.
  """
  run = Run(workdir, config)
  if not config.predict.input:
    raise InputError(
      "predict.input is missing: --config.predict.input=FILE names a TSV, CSV, JSON-lines or "
      "Parquet file of questions with candidates"
    )
  output = config.predict.output or str(epath.Path(workdir) / "predictions.tsv")
  tables.check_target(output, "predict.output", source=config.predict.input)
  own = user_files.read(
    config.predict.input, labelled=False, columns=config.data.columns, drop=config.data.drop
  )
  run.start_from(config.predict.ranking, normalise.apply(own.questions, config.data.rules))
  by_seed = [next(iter(run.ranker(seed).all_scores(own.questions).values())) for seed in run.seeds]
  scores = [np.mean(of_question, axis=0) for of_question in zip(*by_seed, strict=True)]
  tables.write(output, ranked_rows(own, scores), "predict.output")
  return epath.Path(output)
