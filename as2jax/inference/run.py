"""A trained run as a tool: evaluate its best checkpoint again, or rank unlabelled candidates."""

import csv
import dataclasses
import functools
import io
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from as2jax.config.flat import differences, flatten
from as2jax.data.datasets.user_files import read_unlabelled
from as2jax.data.inputs.first_stage_ranking import Ranking
from as2jax.data.record import Question
from as2jax.data.text import normalise
from as2jax.evaluation import predict as evaluate
from as2jax.evaluation import results, tasks
from as2jax.runtime import processes, registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.training import lexical_run, optimizers
from as2jax.training import state as states
from as2jax.training.build import Experiment, build
from as2jax.training.checkpoints import Checkpoints, group_folder
from as2jax.training.early_stopping import Tracker

# What a checkpoint's numbers depend on: the rest of a config may differ when it is used.
USED = (
  "model.",
  "encoder.name",
  "encoder.pretrained",
  "encoder.vectors",
  "encoder.weights",
  "encoder.mix",
  "data.max_length",
  "seeds",
  "seeds_parallel",
)


class TrainedRun:
  """The best checkpoint of each seed of a run, ready to score.

  Raises:
    InputError: the folder holds no checkpoint, or one of another model than the config's.

  """

  def __init__(self, config: Any, workdir: epath.PathLike, experiment: Experiment):
    self.workdir, self.experiment = epath.Path(workdir), experiment
    self.mesh = sharding.make_mesh(fsdp=config.sharding.fsdp, tensor=config.sharding.tensor)
    sharding.check_shards(self.mesh, config.batch.shards)
    seeds = tuple(config.seeds)
    self.groups = [seeds] if config.seeds_parallel else [(s,) for s in seeds]
    self.predictor = evaluate.Predictor(experiment, self.mesh, len(self.groups[0]))

  def scores(self, questions: Sequence[Question]) -> list[tuple[int, evaluate.Scores]]:
    """(seed, scores by name) of every seed."""
    found = []
    for seeds in self.groups:
      found += list(zip(seeds, self.predictor(self.state(seeds, questions), questions)))
    return found

  @functools.cached_property
  def task(self) -> tasks.Rerank | tasks.Retrieve:
    """How the config's data set is evaluated."""
    return tasks.make(self.experiment.config, self.experiment.dataset, self.predictor)

  def record(
    self, workdir: epath.PathLike, split: str, outcomes: Sequence[results.Outcome]
  ) -> None:
    """Evaluates a split with every seed and writes its files; one outcome a seed."""
    by_seed = {outcome.seed: outcome for outcome in outcomes}
    for seeds in self.groups:
      state = self.state(seeds, self.task.questions(split))
      self.task.record(workdir, state, split, [by_seed[seed] for seed in seeds])

  def state(self, seeds: Sequence[int], questions: Sequence[Question]) -> dict:
    """The variables of the best checkpoint of a group of seeds; `questions` are what will be predicted first."""
    folder = group_folder(self.workdir, self.experiment.config.seeds, seeds)
    if not (folder / "best").exists():
      raise InputError(
        f"{folder} holds no checkpoint: train first, with --config.mode=train and "
        f"--workdir={self.workdir}"
      )
    checkpoints = Checkpoints(folder)
    tracker = Tracker(**checkpoints.progress()["tracker"])
    layout = "sentences" if self.experiment.model.encodes else self.experiment.model.layout
    batcher = self.predictor.batcher(questions, layout)
    example = batcher.batch(batcher.plan(batcher.sampler.blocks(), 0, 0), 0)
    state = self.experiment.fresh_state(
      jax.tree.map(lambda x: x[0], example), seeds, optimizers.no_optimizer(), self.mesh
    )
    wanted = states.abstract(states.variables(state))
    found = checkpoints.restore_best(tracker.saved_step, wanted)
    checkpoints.close()
    return states.ranking_variables(state.replace(**found))


def check_used(config: Any, workdir: epath.PathLike) -> None:
  """Raises InputError where the config describes another model than the run in `workdir`."""
  path = epath.Path(workdir) / "config.json"
  if not path.exists():
    raise InputError(f"--workdir={workdir} holds no run (no config.json): train first")
  try:
    there = json.loads(path.read_text())
  except json.JSONDecodeError as error:
    raise InputError(
      f"{path} is not JSON ({error}): it was changed by hand; put it back as it was"
    ) from error
  used = lambda flat: {k: v for k, v in flat.items() if k.startswith(USED)}
  changed = differences(used(flatten(there)), used(flatten(json.loads(config.to_json()))))
  if changed:
    raise InputError(
      f"{workdir} holds a run of another model:\n"
      + "\n".join(changed)
      + f"\nUse --config=configs/rerun.py:{path}"
    )


def evaluate_run(config: Any, workdir: epath.PathLike) -> dict:
  """Evaluates the best checkpoint of a run on `data` and `evaluation.splits` of the config.

  Writes below `eval/` as training does, and `evaluation.json`; `results.json` stays.
  """
  check_used(config, workdir)
  if config.model.name in registry.LEXICAL:
    return lexical_run.evaluate(config, workdir)
  experiment = processes.in_order(lambda: build(config, workdir=workdir))
  run = TrainedRun(config, workdir, experiment)
  data = experiment.dataset
  outcomes = [results.Outcome(seed, -1, -1, float("nan"), -1) for seed in config.seeds]
  for split in config.evaluation.splits:
    run.record(workdir, split, outcomes)
  return results.write(
    workdir,
    config,
    results.data_facts(data, config.data),
    experiment.facts,
    outcomes,
    {},
    name="evaluation.json",
  )


def predict(config: Any, workdir: epath.PathLike) -> epath.Path:
  """Ranks the candidates of `predict.input` (TSV or JSON-lines) and writes a TSV, best first.

  Columns: question id, question, rank, score (mean over seeds of the score that ranks), candidate
  id, candidate.
  """
  check_used(config, workdir)
  if not config.predict.input:
    raise InputError(
      "predict.input is missing: --config.predict.input=FILE names a TSV or "
      "JSON-lines file of questions with candidates"
    )
  given = read_unlabelled(config.predict.input)
  questions = normalise.apply(given, config.data.rules)
  experiment = processes.in_order(lambda: build(config, data=False, workdir=workdir))
  if config.predict.ranking:
    if experiment.model.layout != "joint":
      raise InputError(
        "predict.ranking is for models that rank the best candidates of another "
        "ranker again (model.template = 'joint'); leave it empty"
      )
    found = Ranking()
    found.add(config.predict.ranking, questions)
    experiment = dataclasses.replace(experiment, ranking=found)
  run = TrainedRun(config, workdir, experiment)
  by_seed = [next(iter(scores.values())) for _, scores in run.scores(questions)]
  text = io.StringIO()
  writer = csv.writer(
    text,
    delimiter="\t",
    lineterminator="\n",
    quoting=csv.QUOTE_NONE,
    quotechar=None,
    escapechar=None,
  )
  writer.writerow(("question_id", "question", "rank", "score", "candidate_id", "candidate"))
  for i, question in enumerate(given):
    scores = np.mean([s[i] for s in by_seed], axis=0)
    for rank, at in enumerate(np.argsort(-scores, kind="stable"), 1):
      candidate = question.candidates[at]
      writer.writerow(
        (question.id, question.text, rank, f"{scores[at]:.9g}", candidate.id, candidate.text)
      )
  output = epath.Path(config.predict.output or epath.Path(workdir) / "predictions.tsv")
  write_whole(output, text.getvalue())
  return output
