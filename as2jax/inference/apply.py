"""What the modes `evaluate` and `predict` do with a trained run."""

import csv
import io
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.datasets.user_files import read_unlabelled
from as2jax.data.inputs.first_stage_ranking import Ranking
from as2jax.data.text import normalise
from as2jax.evaluation import parameter_free, results, tasks
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

COLUMNS = ("question_id", "question", "rank", "score", "candidate_id", "candidate")


def evaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Evaluates the best checkpoint of a run on `data` and `evaluation.splits` of the config.

  Writes below `eval/` as training does, and `evaluation.json`; `results.json` stays.
  """
  run = Run(workdir, config)
  components, splits = run.components, config.evaluation.splits
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
    fitted = run.ranker().predictor
    outcomes = [parameter_free.evaluate(config, components.dataset, fitted, workdir, splits)[0]]
  return results.write(
    workdir,
    config,
    results.data_facts(components.dataset, config.data),
    components.facts,
    outcomes,
    {},
    name="evaluation.json",
  )


def predict(config: Any, workdir: epath.PathLike) -> epath.Path:
  """Ranks the candidates of `predict.input` (TSV or JSON-lines) and writes a TSV, best first.

  Columns: question id, question, rank, score (mean over seeds of the score that ranks), candidate
  id, candidate.
  """
  run = Run(workdir, config, data=False)
  if not config.predict.input:
    raise InputError(
      "predict.input is missing: --config.predict.input=FILE names a TSV or "
      "JSON-lines file of questions with candidates"
    )
  questions = read_unlabelled(config.predict.input)
  if config.predict.ranking:
    ranking = Ranking()
    ranking.add(config.predict.ranking, normalise.apply(questions, config.data.rules))
    run.rerank(ranking)
  elif run.components.model.layout == "joint":
    raise InputError(
      f"{config.model.name} ranks the best candidates of another ranker again: name the run file of "
      "its ranking of these questions in predict.ranking"
    )
  by_seed = [next(iter(run.ranker(seed).all_scores(questions).values())) for seed in run.seeds]
  text = io.StringIO()
  writer = csv.writer(
    text,
    delimiter="\t",
    lineterminator="\n",
    quoting=csv.QUOTE_NONE,
    quotechar=None,
    escapechar=None,
  )
  writer.writerow(COLUMNS)
  for i, question in enumerate(questions):
    scores = np.mean([s[i] for s in by_seed], axis=0)
    for rank, at in enumerate(np.argsort(-scores, kind="stable"), 1):
      candidate = question.candidates[at]
      writer.writerow(
        (question.id, question.text, rank, f"{scores[at]:.9g}", candidate.id, candidate.text)
      )
  output = epath.Path(config.predict.output or epath.Path(workdir) / "predictions.tsv")
  write_whole(output, text.getvalue())
  return output
