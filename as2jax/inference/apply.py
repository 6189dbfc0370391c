"""What the modes `evaluate` and `predict` do with a trained run."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import tables, user_files
from as2jax.data.datasets import named
from as2jax.data.datasets.dataset import Dataset, Unions
from as2jax.data.inputs.first_stage_ranking import Ranking
from as2jax.data.record import UNKNOWN, Question
from as2jax.data.text import normalise
from as2jax.evaluation import parameter_free, results, tasks
from as2jax.inference import ranked_rows
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.training import identity

log = logging.getLogger(__name__)
DIGITS = 8  # of a digest in a folder's name
SELECTED = ("seed", "best_step", "best_epoch", "best_value", "steps")  # of an outcome


def evaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Evaluates the best checkpoint of a finished run on `data` and `evaluation.splits` of the config.

  Writes below `eval/` as training does, and `evaluation.json`; `results.json` stays. Where
  `evaluation.data` names other data, the run is evaluated on these (`evaluate_on`).

  Raises:
    InputError: the run is not finished, or its data have changed.

  """
  if config.evaluation.data:
    how: dict[str, Any] = {"columns": config.data.columns, "drop": config.data.drop}
    if named.is_named(config.evaluation.data):  # they are of the files that the run was trained on
      how = {}
    data = named.by_address(config.evaluation.data, **how)
    return evaluate_on(Run(workdir, config, data=False), data, ranking=config.predict.ranking)
  run = Run(workdir, config)
  trained = run.results
  components = run.components
  splits = components.config.evaluation.splits
  known = identity.check_data(run.folder, components, splits)
  if components.model.has_parameters:
    outcomes, task = [], None
    for seed in run.seeds:
      ranker = run.ranker(seed)
      task = task or tasks.make(config, components.dataset, ranker.predictor)
      outcome = results.Outcome(seed, -1, -1, float("nan"), -1)
      for split in splits:
        task.record(workdir, ranker.variables, split, [outcome])
      outcomes.append(outcome)
  else:
    fitted: Any = run.ranker().predictor
    outcomes = [parameter_free.evaluate(config, components.dataset, fitted, workdir, splits)[0]]
  return results.write(
    workdir,
    config,
    results.data_record(components.data, config.data),
    components.provenance,
    outcomes,
    {key: trained[key] for key in ("deterministic", "before_training") if key in trained}
    | {"identity": {**known, "changed": run.changed}},
    name="evaluation.json",
  )


def evaluate_on(run: Run, data: Dataset, *, ranking: epath.PathLike = "") -> dict:
  """Evaluates the best checkpoint of each seed of a finished run on any re-ranking data set.

  Texts go through the run's text rules. What is written lies apart from the run's own evaluation, in
  `evaluations/<data>-<split>`: a folder with `results.json` and `eval/`, which `compare` reads. Other
  questions of the same name lie beside it, with a digest. The run's ledger has a row more.

  Args:
    run: of any task.
    data: see `as2jax.dataset`; the splits that it reports are evaluated, under every filter.
    ranking: of a joint model, the run file of the first-stage ranking of these questions.

  Returns:
    The content of `results.json`.

  Raises:
    InputError: the run is not finished, a candidate has no label, or a joint model has no ranking.

  """
  trained = run.results
  config = run.config.copy_and_resolve_references().unlock()
  config.evaluation.task = "rerank"
  ruled = {name: normalise.apply(its, config.data.rules) for name, its in data.splits.items()}
  for question in (question for its in ruled.values() for question in its):
    if any(candidate.label == UNKNOWN for candidate in question.candidates):
      raise InputError(
        f"{data.source}: a candidate of question {question.id!r} has no label, without which "
        "nothing can be evaluated: add a column label with 0 or 1"
      )
  data = dataclasses.replace(data, splits=Unions(ruled))
  start_from(run, ranking, [question for its in ruled.values() for question in its])
  folder = _folder(run, data)
  of_seed = {outcome["seed"]: outcome for outcome in trained["seeds"]}
  outcomes, task = [], None
  for seed in of_seed:
    ranker = run.ranker(seed if run.components.model.has_parameters else "best")
    task = task or tasks.make(config, data, ranker.predictor)
    outcome = results.Outcome(**{name: of_seed[seed][name] for name in SELECTED})
    for split in data.reported:
      task.record(folder, ranker.variables, split, [outcome])
    outcomes.append(outcome)
  summary = {
    "deterministic": trained.get("deterministic", False),
    "run": str(run.folder),
    "identity": {
      "own": False,
      "data": {split: identity.of_questions(data.splits[split]) for split in data.reported},
      "changed": run.changed,
    },
  }
  note(run, data, list(of_seed))
  of_data = results.data_record(data, config.data)
  return results.write(folder, config, of_data, run.components.provenance, outcomes, summary)


def _folder(run: Run, data: Dataset) -> epath.Path:
  """Where an evaluation on other data lies: its name, and behind it a digest if that is taken."""
  folder = run.folder / "evaluations" / f"{data.name}-{'+'.join(data.splits)}"
  now = {split: data.fingerprints.get(split) for split in data.splits}
  there = (results.read(folder) or {}).get("data", {}).get("splits", {})
  if all(there[split]["fingerprint"] == now[split] for split in now if split in there):
    return folder
  digest = hashlib.sha256(json.dumps(now, sort_keys=True).encode()).hexdigest()
  return folder.with_name(f"{folder.name}-{digest[:DIGITS]}")


def note(run: Run, data: Dataset, seeds: Sequence[int]) -> None:
  """Adds the evaluation on other data to the run's ledger."""
  try:
    for split in data.reported:
      results.note_evaluation(run.folder, split, seeds, data.name, "evaluate")
  except OSError as error:
    log.warning("%s cannot note that it was evaluated: %s", run.folder, error)


def start_from(run: Run, ranking: epath.PathLike, questions: Sequence[Question]) -> None:
  """Names the first-stage ranking of `questions`, which already are under the run's text rules.

  Raises:
    InputError: a joint model without one.

  """
  if ranking:
    first_stage = Ranking()
    first_stage.add(ranking, questions)
    run.rerank(first_stage)
  elif run.components.model.layout == "joint":
    raise InputError(
      f"{run.config.model.name} ranks the best candidates of another ranker again: name the run "
      "file of its ranking of these questions in predict.ranking (as2jax rank: --ranking)"
    )


def predict(config: Any, workdir: epath.PathLike) -> epath.Path:
  """Ranks the candidates of the table `predict.input` and writes a table, best first.

  The rows are those of `as2jax rank` (`ranked_rows.ranked`), but the score is the mean over seeds.
  """
  run = Run(workdir, config, data=False)
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
  start_from(run, config.predict.ranking, normalise.apply(own.questions, config.data.rules))
  by_seed = [next(iter(run.ranker(seed).all_scores(own.questions).values())) for seed in run.seeds]
  scores = [np.mean(of_question, axis=0) for of_question in zip(*by_seed, strict=True)]
  tables.write(output, ranked_rows.ranked(own, scores), "predict.output")
  return epath.Path(output)
