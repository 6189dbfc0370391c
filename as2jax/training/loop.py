"""train_and_evaluate(config, workdir): the order of things, and only that.

Evaluate on dev (or the questions held out), save; then, for each epoch: next batch, step, write;
evaluate, save. At the end the best checkpoint is read back from disk and evaluated on the splits
that are reported. Each step and each predicted batch is a point at which a signal is obeyed.
"""

import dataclasses
import logging
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from etils import epath

from as2jax.data.batches.batcher import Plan, stack
from as2jax.data.batches.prefetch import prefetch
from as2jax.data.datasets import holdout
from as2jax.encoders import open
from as2jax.evaluation import diagnostics, predict, results, tasks
from as2jax.runtime import devices, preemption, processes, profiling, registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.folder_lock import lock
from as2jax.training import finished_run, identity, optimizers, warm_start
from as2jax.training import state as states
from as2jax.training.build import Components, load
from as2jax.training.checkpoints import Checkpoints, group_folder
from as2jax.training.early_stopping import Tracker, check_selection
from as2jax.training.forecast import forecast
from as2jax.training.progress_bar import Display
from as2jax.training.run_folder import MetricsLog, begun, change_seeds, claim
from as2jax.training.step import make_train_step
from as2jax.training.step_log import StepLog

log = logging.getLogger(__name__)


def train_and_evaluate(config: Any, workdir: epath.PathLike) -> dict:
  """Trains every seed of a config, evaluates each one's best checkpoint, writes `results.json`.

  Run again, it continues from the last checkpoint; a finished run returns its results, see
  `finished_run`. On several hosts all call it; see `hosts`.

  Raises:
    InputError: anything wrong with config, data, weights or folder, before any work is lost.
    Preempted: SIGTERM or SIGINT came, and what there was to save is saved.

  """
  started = time.monotonic()
  workdir = epath.Path(workdir)
  seed_groups(config)
  if len(config.seeds) > 1 and not registry.has_parameters(config.model.name):
    log.info("%s has no randomness: one seed stands for all", config.model.name)
    config = config.copy_and_resolve_references().unlock()
    config.seeds = tuple(config.seeds)[:1]
    config.lock()
  with lock(workdir):
    finished = processes.by_first(lambda: _enter(workdir, config))
    if finished is not None:
      log.info("%s is finished: these are its results. To run again, give another folder.", workdir)
      return finished
    start = warm_start.begin(config, workdir)
    with Display(config.log, workdir) as display:
      return _train_and_evaluate(config, workdir, start, display, started)


def _train_and_evaluate(
  config: Any,
  workdir: epath.Path,
  start: warm_start.WarmStart | None,
  display: Display,
  started: float,
) -> dict:
  """What `train_and_evaluate` does in a folder that is this process's."""
  display.phase("reading")
  components = processes.in_order(lambda: load(config, workdir=workdir))
  if not begun(workdir):
    _check_pooling(config, components.source)
  data = results.data_record(components.data, config.data)
  known = identity.settle(workdir, components)
  # Only now, that nothing else has changed.
  processes.by_first(lambda: change_seeds(workdir, config))
  if not components.model.has_parameters:
    outcome = _rank_untrained(components, workdir)
    summary = {"deterministic": True, "identity": known}
    return results.write(workdir, config, data, {}, [outcome], summary)
  check_selection(config, components.data)
  if start:
    start.check_encoder(components.provenance)
  groups = seed_groups(config)
  display.phase("tokenising")
  trainer = Trainer(components, workdir, len(groups[0]), started, display, start)
  try:
    outcomes = [outcome for i, seeds in enumerate(groups) for outcome in trainer.run(seeds, i)]
  finally:
    trainer.log.close()
  identity.record_best(workdir, trainer.best)
  summary = trainer.summary() | ({"warm_start": start.record} if start else {})
  summary["identity"] = known
  return results.write(workdir, config, data, components.provenance, outcomes, summary)


def _check_pooling(config: Any, source: Any) -> None:
  """Raises InputError where `cls`, the first token, is pooled over an encoder whose <cls> is the last."""
  last = source is not None and source.model_fields.get("token") == "cls_last"
  if last and config.model.get("pooling") == "cls":
    raise InputError(
      "model.pooling = 'cls' reads the first token of a text, and this encoder's <cls> is the last: "
      "--config.model.pooling=cls_last"
    )


def _rank_untrained(components: Components, workdir: epath.Path) -> results.Outcome:
  """The outcome of a ranker without parameters on the split that selects and the reported ones."""
  config, dataset = components.config, components.data
  model = components.model
  ranker = predict.FittedRanker(model, dataset.splits["train"] if model.reads_training else ())
  selection = holdout.selection_split(config.data)
  task = tasks.make(config, dataset, ranker)
  outcome = results.Outcome(0, 0, 0, float("nan"), 0)
  for split in dict.fromkeys((selection, *config.evaluation.splits)):
    if split in dataset.splits:
      task.record(workdir, None, split, [outcome])
  if task.selector in outcome.metrics:  # no question of the split may have an answer
    outcome.best_value = outcome.metrics[task.selector]["value"]
  return outcome


def _enter(workdir: epath.Path, config: Any) -> dict | None:
  """Makes the folder this run's; the results if it has finished, with these seeds, data and splits."""
  if not claim(workdir, config):
    return None
  finished = results.read(workdir)
  if finished is not None:
    finished_run.check(workdir, config, finished)
  elif not begun(workdir):
    open.forget(workdir)
    results.note_another_training(workdir)
  return finished


def seed_groups(config: Any) -> list[tuple[int, ...]]:
  """The seeds that train together: all of them under `vmap`, one by one `in_turn`.

  Raises:
    InputError: no seeds, a repeated one, one that is no whole number.

  """
  seeds = tuple(config.seeds)
  whole = all(isinstance(s, int) and 0 <= s < 2**31 for s in seeds)
  if not seeds or not whole or len(set(seeds)) < len(seeds):
    raise InputError(f"seeds = {seeds}: give different whole numbers from 0, such as (0, 1, 2)")
  return [seeds] if config.seeds_parallel else [(s,) for s in seeds]


class Trainer:
  """Runs groups of seeds, one after another, through the same compiled steps."""

  def __init__(
    self,
    components: Components,
    workdir: epath.Path,
    group: int,
    started: float,
    display: Display,
    start: warm_start.WarmStart | None = None,
  ):
    config = self.config = components.config
    self.components, self.workdir, self.started, self.start = components, workdir, started, start
    self.display = display
    self.batcher = components.train_batcher()
    self.blocks = self.batcher.sampler.blocks()
    self.plans: dict[tuple[int, int], Plan] = {}  # of the epoch under way: large data take minutes
    plan = self._plan(config.seeds[0], 0)
    worth = sharding.cores_worth(int(np.max(plan.rows * plan.row_length)))
    most_cores = min(components.most_cores, worth)
    self.mesh = sharding.mesh_for_batches(config, most_cores=most_cores)
    self.shards = sharding.local_shards(self.mesh, config.batch.shards)
    o = config.optimizer
    self.rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=config.epochs)
    self.optimizer = optimizers.from_config(o)
    self.predictor = predict.Predictor(components, self.mesh, group)
    self.task = tasks.make(config, components.dataset, self.predictor)
    self.diagnose = diagnostics.Diagnoser(components, self.mesh, group)
    self.log = MetricsLog(workdir, tensorboard=config.log.tensorboard, config=config)
    self.step_function: Any = None
    self.padding = self.batcher.padding(plan)
    if processes.first() and (told := forecast(config, self.batcher, plan, components.pretrained)):
      display.say(told)
    self.execution: dict[str, Any] = {}
    self.best: dict[epath.PathLike, int] = {}  # the step of the best checkpoint of each group
    self.trace = profiling.Trace(workdir)

  def run(self, seeds: Sequence[int], done: int = 0) -> list[results.Outcome]:
    """Trains a group of seeds, after `done` others, and evaluates the best checkpoint of each."""
    self._open(seeds)
    self.display.seeds(seeds, done, len(seed_groups(self.config)), self.config.epochs)
    try:
      with preemption.deferred():
        self._train()
        outcomes = self._finish()
      self.checkpoints.close()
      return outcomes
    except preemption.Preempted:
      with preemption.deferred():  # another signal does not disturb the save
        saved = self._save_before_the_end()
      raise preemption.Preempted(saved) from None
    except BaseException:
      self.checkpoints.abandon()
      raise

  def _save_before_the_end(self) -> str:
    """Saves where the loop is, finishes all saves, and says what was saved."""
    try:
      if self.step:  # before the first step there is nothing that would be missed
        self._save()
    finally:
      self.checkpoints.close()
    return f"saved at step {self.step}" if self.step else "nothing to save before the first step"

  def _train(self) -> None:
    """Epoch by epoch from the position of the last checkpoint to the end."""
    if self.step == 0 and self.checkpoints.latest_step is None:
      with futures.ThreadPoolExecutor(1) as beside:
        compiled = beside.submit(self._compile_step, [self._plan(seed, 0) for seed in self.seeds])
        self._evaluate(0)
        compiled.result()
    while self.epoch < self.config.epochs and any(self.tracker.active):
      self._train_epoch()
      self._evaluate(self.epoch + 1)
    self.trace.close(self.step, self.state)
    self.checkpoints.wait()

  def _open(self, seeds: Sequence[int]) -> None:
    """State, tracker and position of a group: fresh, or those of its last checkpoint."""
    self.seeds = seeds
    self.checkpoints = Checkpoints(group_folder(self.workdir, self.config.seeds, seeds))
    plan = self._plan(seeds[0], 0)
    example = jax.tree.map(lambda x: x[0], self.batcher.batch(plan, 0))
    self.state = self.components.fresh_state(example, seeds, self.optimizer, self.mesh)
    self.tracker = Tracker.start(len(seeds), self.config.patience)
    self.epoch = self.begin = self.step = rows = 0
    self.unwritten: list[dict] = []  # of the log, see `StepLog.unwritten`
    if self.checkpoints.latest_step is not None:
      self.state, saved = self.checkpoints.restore(states.abstract(self.state))
      self.tracker = Tracker(**saved["tracker"])
      self.epoch, self.begin, self.step = saved["epoch"], saved["begin"], saved["step"]
      self.unwritten, rows = saved["unwritten"], saved.get("rows", 0)
      log.info("continuing from step %d (epoch %d)", self.step, self.epoch)
    elif self.start:
      self.state = self.start.place(self.state, seeds, self.components.model)
    # With no checkpoint not even the row of step 0 counts: it will be written again.
    reached = self.step if self.checkpoints.latest_step is not None else -1
    self.log.roll_back(seeds, reached, evaluated=self.begin == 0, rows=rows)
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

  def _compile_step(self, plans: Sequence[Plan]) -> None:
    """Compiles the step of the first batch; jax keeps what it makes for the call that follows."""
    if not self.config.epochs:
      return
    arguments = self._batch(plans, 0), *self._arguments(plans, 0)
    self.step_function.lower(self.state, *arguments).compile()

  def _arguments(self, plans: Sequence[Plan], i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What step `i` of an epoch takes beside state and batch: seeds, their progress, which go on."""
    progress = [self.epoch + p.seen[min(i, len(p))] / p.seen[-1] for p in plans]
    active = [a and i < len(p) for a, p in zip(self.tracker.active, plans)]
    return np.asarray(self.seeds, np.uint32), np.asarray(progress, np.float32), np.asarray(active)

  def _train_epoch(self) -> None:
    plans = [self._plan(seed, self.epoch) for seed in self.seeds]
    active = self.tracker.active
    count = max(len(p) for a, p in zip(active, plans) if a)
    step_log = StepLog(self.components, self.checkpoints, self.seeds, self.log, self.unwritten)
    self.unwritten = []
    padding = [self.batcher.padding_by_step(p) for p in plans]
    seen = lambda i: sum(int(p.seen[min(i, len(p))]) for p in plans)
    self.display.epoch(self.epoch, self.begin, count, seen(self.begin))
    for i, batch in enumerate(
      prefetch(lambda i: self._batch(plans, i), range(self.begin, count)), self.begin
    ):
      self.state, scalars = self.step_function(self.state, batch, *self._arguments(plans, i))
      self.step += 1
      self.trace.after_step(self.step, scalars)
      padded = [float(p[i]) if i < len(p) else 0.0 for p in padding]
      questions = [self._questions(p, i) if a else set() for a, p in zip(active, plans)]
      step_log.add(self.step, scalars, questions, padded)
      self.execution.setdefault("seconds_to_first_step", self._since_start(scalars))
      self.begin = i + 1
      saves, ends = self.step % self.config.checkpoint.steps == 0, preemption.due()
      if saves or self.step % self.config.log.steps == 0 or i + 1 == count:
        self.display.step(i + 1, step_log.write(self.step), seen(i + 1))
      if saves and i + 1 < count:
        self._save()
      if ends:
        self.display.stops(self.begin)
        self.unwritten = step_log.unwritten()
        raise preemption.Preempted
    self.execution.setdefault("compilations_in_first_epoch", self.step_function._cache_size())

  def _plan(self, seed: int, epoch: int) -> Plan:
    """The plan of an epoch; those of other epochs, and of seeds of other groups, are forgotten."""
    if (seed, epoch) not in self.plans:
      group = next(group for group in seed_groups(self.config) if seed in group)
      kept = {(s, epoch) for s in group}
      self.plans = {key: plan for key, plan in self.plans.items() if key in kept}
      self.plans[seed, epoch] = self.batcher.plan(self.blocks, seed, epoch)
    return self.plans[seed, epoch]

  def _since_start(self, scalars: Any) -> float:
    if "seconds_to_first_step" not in self.execution:
      jax.block_until_ready(scalars)
    return round(time.monotonic() - self.started, 2)

  def _batch(self, plans: Sequence[Plan], i: int) -> Any:
    """Batch `i` of each seed, padded to one shape, on the devices; this host makes its shards."""
    live = [p for p in plans if i < len(p)]
    shape = (max(int(p.rows[i]) for p in live), max(int(p.row_length[i]) for p in live))
    batch = stack([self.batcher.batch(p, i, shape, only=self.shards) for p in plans])
    return sharding.place(batch, self.mesh, shards=self.config.batch.shards)

  def _questions(self, plan: Plan, i: int) -> set[int]:
    """Numbers of the questions in step `i` of a plan."""
    shards = [s for micro in plan.steps[i] for s in micro if s is not None] if i < len(plan) else []
    return {int(q) for s in shards for q in self.batcher.examples.question[s.examples]}

  def _save(self) -> None:
    self._check_finite()
    self.log.flush(durable=True)
    position = {"epoch": self.epoch, "begin": self.begin, "step": self.step}
    position["rows"] = self.log.count(self.seeds)
    # `asdict` copies the lists: the next evaluation may change them while this save is under way.
    best = self.tracker.saved_step
    tracker = dataclasses.asdict(self.tracker)
    progress = {**position, "best": best, "tracker": tracker, "unwritten": self.unwritten}
    self.checkpoints.save(self.step, self.state, progress)

  def _check_finite(self) -> None:
    """Raises InputError where the state is not finite: it is neither evaluated nor saved."""
    wrong = states.not_finite(self.state)
    if wrong:
      raise InputError(
        f"step {self.step}: {wrong[0]} (one of {len(wrong)} arrays of the state) is not finite: "
        f"training has diverged. {self.checkpoints.last_finite()} Lower optimizer.rate."
      )

  def _evaluate(self, epoch: int) -> None:
    """Metrics and diagnostics on the split that selects after `epoch` epochs, the best, the state.

    In this order; all of it is written, or replayed.
    """
    self._check_finite()
    self.display.phase("evaluating")
    values, selector = [], self.task.selector
    variables = states.ranking_variables(self.state)
    evaluations = self.task.measure(variables, self.task.selection)
    diagnoses = self.diagnose(variables, self.task.selection)
    for seed, evaluation, diagnosis in zip(self.seeds, evaluations, diagnoses, strict=True):
      metrics = {name: entry["value"] for name, entry in evaluation.metrics.items()}
      scalars = {**evaluation.scalars, **diagnosis.scalars}
      self.log.write(seed, self.step, {"epoch": epoch, **metrics, **scalars})
      diagnostics.write(self.workdir, diagnosis, epoch=epoch, seed=seed, seeds=self.config.seeds)
      values.append(evaluation.metrics[selector]["value"])
    improved = self.tracker.update(values, self.step, epoch)
    self.display.evaluated(epoch, selector, values, improved)
    if any(improved):
      self._save_best(improved)
    self.epoch, self.begin = epoch, 0
    self._save()

  def _save_best(self, improved: Sequence[bool]) -> None:
    variables = states.variables(self.state)
    if not all(improved) and self.tracker.saved_step >= 0:
      before = self.checkpoints.restore_best(self.tracker.saved_step, states.abstract(variables))
      variables = states.choose(np.asarray(improved), variables, before)
    self.checkpoints.save_best(self.step, variables)
    self.tracker.saved_step = self.step

  def _finish(self) -> list[results.Outcome]:
    """Evaluates the best checkpoint, read back from disk, on the splits that are reported."""
    restored = self.checkpoints.restore_best(
      self.tracker.saved_step, states.abstract(states.variables(self.state))
    )
    self.best[self.checkpoints.folder] = self.tracker.saved_step
    best = states.ranking_variables(dataclasses.replace(self.state, opt_state=(), **restored))
    steps = np.asarray(self.state.step).tolist()  # of seeds that train together, some stop before
    outcomes = [
      results.Outcome(
        seed, self.tracker.best_step[i], self.tracker.best_epoch[i], self.tracker.best[i], steps[i]
      )
      for i, seed in enumerate(self.seeds)
    ]
    self.display.phase("evaluating")
    diagnoses = self.diagnose(best, self.task.selection)
    for outcome, diagnosis in zip(outcomes, diagnoses, strict=True):
      outcome.diagnostics = {**diagnosis.scalars, **diagnosis.summary}
    for split in self.config.evaluation.splits:
      self.task.record(self.workdir, best, split, outcomes)
    return outcomes

  def summary(self) -> dict:
    """What the run was, and (under `execution`) how it went on this machine."""
    units, inputs = self.batcher.units, self.components.statistics(self.batcher)
    count = states.count(self.state.trainable) + states.count(self.state.frozen)
    return {
      # Nothing was drawn by a seed: no step was taken, and every parameter is a pretrained one.
      "deterministic": self.step == 0
      and self.start is None
      and self.state.trainable.keys() | self.state.frozen.keys()
      <= self.components.pretrained.keys(),
      "parameters": {"all": count, "trainable": states.count(self.state.trainable)},
      "examples": len(self.batcher.examples),
      "sampler": self.config.batch.sampler,
      "units": len(units.lengths),
      "truncated_units": int(units.truncated_units),
      "tokens_lost": int(units.tokens_lost),
      **({"inputs": inputs} if inputs else {}),
      "padding": round(self.padding, 4),
      "execution": {
        **self.execution,
        "devices": jax.device_count(),
        "processes": processes.count(),
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "peak_memory_bytes": devices.peak_memory(),
        "compilations_of_step": self.step_function._cache_size(),
        "compilations_of_prediction": self.predictor.compilations,
        "seconds": round(time.monotonic() - self.started, 1),
        # The share of the time since the first start that was spent in steps which count.
        "goodput": self.display.status.goodput(),
      },
    }
