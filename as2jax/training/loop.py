"""train_and_evaluate(config, workdir): the order of things, and only that.

Evaluate on dev (or the questions held out), save; then, for each epoch: next batch, step, write;
evaluate, save. At the end the best checkpoint is read back from disk and evaluated on the splits
that are reported. Each step and each predicted batch is a point at which a signal is obeyed.
"""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from etils import epath

from as2jax.config.overrides import apply
from as2jax.data import holdout
from as2jax.data.batches.batcher import Plan, prefetch, stack
from as2jax.encoders import open_encoder
from as2jax.evaluation import diagnostics, predict, results, tasks
from as2jax.models.system import exportable
from as2jax.runtime import devices, preemption, processes, profiling, registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import lock
from as2jax.training import optimizers, record, warm_start
from as2jax.training import state as states
from as2jax.training.build import Components, load
from as2jax.training.checkpoints import Checkpoints, group_folder
from as2jax.training.metrics_log import MetricsLog, StepLog
from as2jax.training.progress import Progress
from as2jax.training.state import Tracker
from as2jax.training.step import make_train_step

log = logging.getLogger(__name__)


def train_and_evaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Trains every seed of a config, evaluates each one's best checkpoint, writes `results.json`.

  Run again, it continues from the last checkpoint; a finished run returns its results, see
  `record.check_finished`. On several hosts all call it; see `processes`.

  Raises:
    InputError: anything wrong with config, data, weights or folder, before any work is lost.
    Preempted: SIGTERM or SIGINT came, and what there was to save is saved.

  """
  started = time.monotonic()
  workdir = epath.Path(workdir)
  if len(config.seeds) > 1 and not registry.has_parameters(config.model.name):
    log.info("%s has no randomness: one seed stands for all", config.model.name)
    config = apply(config, {"seeds": tuple(config.seeds)[:1]})
  with lock(workdir):
    finished = processes.by_first(lambda: _claim(workdir, config))
    if finished is not None:
      log.info("%s is finished: these are its results. To run again, give another folder.", workdir)
      return finished
    start = warm_start.begin(config, workdir)
    with Progress(config.log.seconds) as progress:
      progress.phase("reading")
      components = processes.in_order(lambda: load(config, workdir=workdir))
      data = results.data_record(components.data, config.data)
      copied = start.record if start else None
      known = processes.by_first(lambda: record.settle(workdir, components, copied))
      # Only now, that nothing else has changed.
      processes.by_first(lambda: record.add_seeds(workdir, config))
      if components.model.has_parameters:
        if start:
          start.check_encoder(components.provenance)
        progress.phase("tokenising")
        trainer = Trainer(components, workdir, progress, start)
        outcomes = trainer.run()
        best, summary = trainer.best, trainer.summary(started)
      else:
        outcomes, best = [_rank_untrained(components, workdir)], {}
        summary = {"deterministic": True}
      summary = {**summary, "identity": known}
      record.finish(workdir, components.config, best)
      return results.write(workdir, config, data, components.provenance, outcomes, summary)


def _claim(workdir: epath.Path, config: Any) -> dict | None:
  """Makes the folder this run's; returns the results if it has finished with this config."""
  if not record.claim(workdir, config):
    return None
  finished = results.read(workdir)
  if finished is not None:
    record.check_finished(workdir, config, finished)
  elif not record.begun(workdir):
    open_encoder.forget(workdir)
    results.note_another_training(workdir)
  return finished


def _rank_untrained(components: Components, workdir: epath.Path) -> results.Outcome:
  """Evaluates a ranker without parameters on the split that selects and the reported ones."""
  config, dataset = components.config, components.data
  model = components.model
  ranker = predict.FittedRanker(model, dataset.splits["train"] if model.reads_training else ())
  selection = holdout.selection_split(config.data)
  task = tasks.make(config, dataset, ranker)
  outcome = results.Outcome(0, 0, 0, None, 0)
  for split in dict.fromkeys((selection, *config.evaluation.splits)):
    if split in dataset.splits:
      task.record(workdir, None, split, [outcome])
  if task.selector in outcome.metrics:  # no question of the split may have an answer
    outcome.best_value = outcome.metrics[task.selector]["value"]
  return outcome


class Trainer:
  """Trains groups of seeds, one after another, through the same compiled steps.

  `epoch`, `begin`, `step`: epochs done, steps done of the epoch under way, steps done in all; `unwritten`:
  scalars of steps since the last row of the log; `best`: the best step of each group, by its folder.
  """

  def __init__(
    self,
    components: Components,
    workdir: epath.Path,
    progress: Progress,
    start: warm_start.WarmStart | None,
  ):
    config, o = components.config, components.config.optimizer
    self.config, self.components, self.workdir = config, components, workdir
    self.progress, self.start = progress, start
    seeds = tuple(config.seeds)
    self.groups: list[tuple[int, ...]] = [seeds] if config.seeds_parallel else [(s,) for s in seeds]
    self.batcher = components.train_batcher()
    # Of the epoch under way: those of large data take minutes.
    make_plan = functools.partial(self.batcher.plan, self.batcher.sampler.blocks())
    self._plan = functools.lru_cache(len(self.groups[0]))(make_plan)
    plan = self._plan(seeds[0], 0)
    self.padding = self.batcher.padding(plan)
    worth = sharding.cores_worth(int(np.max(plan.rows * plan.row_length)))
    self.mesh = sharding.mesh_for_batches(config, most_cores=min(components.most_cores, worth))
    self.shards = sharding.local_shards(self.mesh, config.batch.shards)
    self.rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=config.epochs)
    self.optimizer = optimizers.from_config(o)
    self.predictor = predict.Predictor(components, self.mesh, len(self.groups[0]))
    self.task = tasks.make(config, components.dataset, self.predictor)
    self.diagnose = diagnostics.Diagnoser(components, self.mesh, len(self.groups[0]))
    self.log = MetricsLog(workdir, tensorboard=config.log.tensorboard)
    self.step_function: Any = None
    self.best: dict[epath.Path, int] = {}
    self.trace = profiling.Trace(workdir)

  def run(self) -> list[results.Outcome]:
    """Trains every group, and evaluates the best checkpoint of each seed."""
    outcomes = []
    try:
      for seeds in self.groups:
        self._open(seeds)
        if len(self.config.seeds) > 1:
          self.progress.say(f"{self.workdir}: seeds {', '.join(map(str, seeds))}")
        outcomes += self._run_group()
    finally:
      self.log.close()
    return outcomes

  def _run_group(self) -> list[results.Outcome]:
    try:
      try:
        with preemption.deferred():
          self._train()
          outcomes = self._finish()
      except preemption.Preempted:
        if not self.step:
          raise preemption.Preempted("nothing to save before the first step") from None
        with preemption.deferred():  # another signal does not disturb the save
          self.trace.close(self.step, self.state)
          self._save()
          self.checkpoints.wait()
        raise preemption.Preempted(f"saved at step {self.step}") from None
      self.checkpoints.close()
      return outcomes
    except BaseException:
      with contextlib.suppress(Exception):  # the run's own error is the one to show
        self.checkpoints.close()
      raise

  def _open(self, seeds: Sequence[int]) -> None:
    """Begins a group with a fresh state, or goes on from its last checkpoint."""
    self.seeds = seeds
    self.checkpoints = Checkpoints(group_folder(self.workdir, self.config.seeds, seeds))
    example = jax.tree.map(lambda x: x[0], self.batcher.batch(self._plan(seeds[0], 0), 0))
    self.state = self.components.fresh_state(example, seeds, self.optimizer, self.mesh)
    self.tracker = Tracker.start(len(seeds), self.config.patience)
    saved: dict[str, Any] = {"epoch": 0, "begin": 0, "step": 0, "unwritten": []}
    reached = -1  # with no checkpoint not even the row of step 0 counts: it will be written again
    if self.checkpoints.latest_step is not None:
      self.state, saved = self.checkpoints.restore(states.abstract(self.state))
      self.tracker, reached = Tracker(**saved["tracker"]), saved["step"]
      log.info("continuing from step %d (epoch %d)", reached, saved["epoch"])
    elif self.start:
      self.state = self.start.place(self.state, seeds, self.components.model)
    self.epoch, self.begin, self.step = saved["epoch"], saved["begin"], saved["step"]
    self.unwritten: list[dict] = saved["unwritten"]
    self.log.roll_back(seeds, reached, evaluated=self.begin == 0)
    if self.step_function is None:
      self.step_function = make_train_step(
        self.components.model,
        self.components.loss,
        self.optimizer,
        self.rate,
        mesh=self.mesh,
        state=self.state,
        seeds=len(seeds),
        norms=self.config.log.gradient_norms,
      )

  def _train(self) -> None:
    """Trains epoch by epoch from the position of the last checkpoint to the end."""
    if self.step == 0 and self.checkpoints.latest_step is None:
      with futures.ThreadPoolExecutor(1) as beside:
        compiled = beside.submit(self._compile_step) if self.config.epochs else None
        self._evaluate(0)
        if compiled:
          compiled.result()
          self.progress.compiled = True
    while self.epoch < self.config.epochs and any(self.tracker.active):
      self._train_epoch()
      self._evaluate(self.epoch + 1)
    self.trace.close(self.step, self.state)
    self.checkpoints.wait()

  def _train_epoch(self) -> None:
    plans = [self._plan(seed, self.epoch) for seed in self.seeds]
    count = max(len(p) for active, p in zip(self.tracker.active, plans) if active)
    step_log = StepLog(self.seeds, self.log, self.unwritten)
    self.unwritten = []
    padding = [self.batcher.padding_by_step(p) for p in plans]
    self.progress.begin_epoch(self.epoch, self.config.epochs, self.begin, count)
    batches = prefetch(lambda i: self._batch(plans, i), range(self.begin, count))
    for i, batch in enumerate(batches, self.begin):
      arguments = self._arguments(plans, i)
      self.state, scalars = self.step_function(self.state, batch, *arguments)
      self.step += 1
      self.trace.after_step(self.step, scalars)
      shares = [of_seed[i] if i < len(of_seed) else 0.0 for of_seed in padding]
      step_log.add(self.step, scalars, arguments[-1], shares)
      self.begin = i + 1
      saves, ends = self.step % self.config.checkpoint.steps == 0, preemption.due()
      if saves or self.step % self.config.log.steps == 0 or i + 1 == count:
        self.progress.step(i + 1, step_log.write(self.step))
      if saves and i + 1 < count:
        self._save()
      if ends:
        self.unwritten = step_log.unwritten()
        raise preemption.Preempted

  def _batch(self, plans: Sequence[Plan], i: int) -> Any:
    """Makes batch `i` of each seed, padded to one shape, on the devices; this host makes its shards."""
    rows = row_length = 0
    for plan in plans:
      if i < len(plan):
        rows, row_length = max(rows, int(plan.rows[i])), max(row_length, int(plan.row_length[i]))
    shape = rows, row_length
    batch = stack([self.batcher.batch(p, i, shape, only=self.shards) for p in plans])
    return sharding.place(batch, self.mesh, shards=self.config.batch.shards)

  def _arguments(self, plans: Sequence[Plan], i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns seeds, their progress and whether they are active, beside state and batch of step `i`."""
    progress, active = [], []
    for plan, trains in zip(plans, self.tracker.active):
      progress.append(self.epoch + plan.seen[min(i, len(plan))] / plan.seen[-1])
      active.append(trains and i < len(plan))
    return np.asarray(self.seeds, np.uint32), np.asarray(progress, np.float32), np.asarray(active)

  def _compile_step(self) -> None:
    """Compiles the step of the first batch; jax keeps what it makes for the call that follows."""
    plans = [self._plan(seed, 0) for seed in self.seeds]
    batch, arguments = self._batch(plans, 0), self._arguments(plans, 0)
    self.step_function.lower(self.state, batch, *arguments).compile()

  def _evaluate(self, epoch: int) -> None:
    """Evaluates on the split that selects; saves the best, then the state: all, or it is replayed."""
    self.progress.phase("evaluating" if epoch else "compiling and evaluating")
    values, selector = [], self.task.selector
    variables = states.ranking_variables(self.state)
    evaluations = self.task.measure(variables, self.task.selection)
    diagnoses = self.diagnose(variables, self.task.selection)
    if selector not in evaluations[0].metrics:
      raise InputError(
        f"no question of the split {self.task.selection} counts in {selector}, so that it cannot select "
        "the best epoch: label some of its candidates 1, or hold training questions out (data.holdout)"
      )
    for seed, evaluation, diagnosis in zip(self.seeds, evaluations, diagnoses, strict=True):
      metrics = {name: entry["value"] for name, entry in evaluation.metrics.items()}
      scalars = {**evaluation.scalars, **diagnosis}
      self.log.write(seed, self.step, {"epoch": epoch, **metrics, **scalars})
      values.append(metrics[selector])
    improved = self.tracker.update(values, self.step, epoch)
    self.progress.evaluated(epoch, selector, values, improved)
    if any(improved):
      self._save_best(improved)
    self.epoch, self.begin = epoch, 0
    self._save()

  def _save(self) -> None:
    """Saves the state, if it is finite, with the position of the loop."""
    wrong = states.not_finite(self.state)
    if wrong:
      raise InputError(
        f"step {self.step}: {wrong[0]} (one of {len(wrong)} arrays of the state) is not finite: "
        "training has diverged. Lower optimizer.rate, in another folder"
      )
    self.log.flush(durable=True)
    progress = {
      "epoch": self.epoch,
      "begin": self.begin,
      "step": self.step,
      "best": self.tracker.saved_step,
      # `asdict` copies the lists: the next evaluation may change them while this save is under way.
      "tracker": dataclasses.asdict(self.tracker),
      "unwritten": self.unwritten,
    }
    self.checkpoints.save(self.step, self.state, progress)

  def _save_best(self, improved: Sequence[bool]) -> None:
    variables = states.variables(self.state)
    if not all(improved) and self.tracker.saved_step >= 0:
      before = self.checkpoints.restore_best(self.tracker.saved_step, states.abstract(variables))
      choose = jax.jit(states.choose, out_shardings=jax.tree.map(lambda x: x.sharding, variables))
      variables = choose(np.asarray(improved), variables, before)
    self.checkpoints.save_best(self.step, variables)
    self.tracker.saved_step = self.step

  def _finish(self) -> list[results.Outcome]:
    """Evaluates the best checkpoint, read back from disk, on the splits that are reported."""
    tracker = self.tracker
    self.best[self.checkpoints.folder] = tracker.saved_step
    shapes = states.abstract(states.variables(self.state))
    restored = self.checkpoints.restore_best(tracker.saved_step, shapes)
    best = states.ranking_variables(dataclasses.replace(self.state, opt_state=(), **restored))
    steps = np.asarray(self.state.step).tolist()  # of seeds that train together, some stop before
    self.progress.phase("evaluating the best checkpoint")
    diagnoses = self.diagnose(best, self.task.selection)
    outcomes = []
    for i, (seed, diagnosis) in enumerate(zip(self.seeds, diagnoses, strict=True)):
      reached = tracker.best_step[i], tracker.best_epoch[i], tracker.best[i]
      outcome = results.Outcome(seed, *reached, steps[i])
      outcome.diagnostics = diagnosis
      outcomes.append(outcome)
    for split in self.config.evaluation.splits:
      self.task.record(self.workdir, best, split, outcomes)
    return outcomes

  def summary(self, started: float) -> dict:
    """Returns what the run was, and (under `execution`) how it went on this machine since `started`."""
    units, inputs = self.batcher.units, self.components.statistics(self.batcher)
    trainable, frozen = states.count(self.state.trainable), states.count(self.state.frozen)
    drawn = (self.state.trainable | self.state.frozen).keys() - self.components.pretrained.keys()
    content = {
      # No step was taken, and every parameter is a pretrained one.
      "deterministic": self.step == 0 and self.start is None and not drawn,
      "parameters": {"all": trainable + frozen, "trainable": trainable},
      "exportable": exportable(self.components.model),
      "examples": len(self.batcher.examples),
      "sampler": self.config.batch.sampler,
      "units": len(units.lengths),
      "truncated_units": int(units.truncated_units),
      "tokens_lost": int(units.tokens_lost),
      "padding": round(self.padding, 4),
    }
    if inputs:
      content["inputs"] = inputs
    if self.start:
      content["warm_start"] = self.start.record
    content["execution"] = {
      "devices": jax.device_count(),
      "processes": processes.count(),
      "backend": jax.default_backend(),
      "device": jax.devices()[0].device_kind,
      "peak_memory_bytes": devices.peak_memory(),
      "compilations_of_step": self.step_function._cache_size(),
      "seconds": round(time.monotonic() - started, 1),
    }
    return content
