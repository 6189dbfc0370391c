"""From a table of a paper (configs/papers) to the jobs that fill it and what cannot be run here."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.config import check, recipes
from as2jax.config import jobs as job_files
from as2jax.config import words as config_words
from as2jax.config.overrides import apply as override
from as2jax.experiments.papers import needs
from as2jax.experiments.papers.rows import Column, Row, Run
from as2jax.experiments.sweeps import points, sweep
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

# Words that set an encoder, whatever was named before; `large` wants one.
REPLACING = {"sample", *config_words.ENCODERS} - {"large"}


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of a paper: see `as2jax.experiments.papers.rows`.

  Attributes:
    claims: pairs of rows of which the paper says that the second is the better one.
    searches: questions that every row's run searches in its test sentences, shown side by side.

  """

  name: str
  title: str
  scale: int
  columns: tuple[Column, ...]
  rows: tuple[Row, ...]
  claims: tuple[tuple[str, str], ...] = ()
  searches: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Choice:
  """What the command changes in every row.

  Attributes:
    words: arguments of the config files, such as `minilm`; settings: overrides.
    seeds: in place of the configs' own.
    filled: (row, key of its runs) -> TREC run files, one a seed, of a system from elsewhere.

  """

  words: tuple[str, ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  seeds: tuple[int, ...] = ()
  filled: Mapping[tuple[str, str], tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Plan:
  """The jobs of a table.

  Attributes:
    cells: (row, key of its runs) -> one job a seed; skipped: likewise -> why there is none.
    configs: likewise -> the config file that is run, with its argument.
    others: likewise -> what its weights or data are in place of the row's own.
    waves: jobs in the order in which they depend on each other.
    after: job -> the jobs that it depends on, by id.
    taken: (row, key of its runs) -> the folder of a finished run with all its seeds, in place of jobs.

  """

  cells: dict[tuple[str, str], list[points.Job]] = dataclasses.field(default_factory=dict)
  skipped: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
  configs: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
  others: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
  waves: list[list[points.Job]] = dataclasses.field(default_factory=list)
  after: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  taken: dict[tuple[str, str], pathlib.Path] = dataclasses.field(default_factory=dict)

  def folders(self, cell: tuple[str, str], output: pathlib.Path) -> list[pathlib.Path]:
    """Where the runs of a cell lie, or will lie."""
    if cell in self.taken:
      return [self.taken[cell]]
    return [output / job.id for job in self.cells.get(cell, ())]

  def drop_idle(self) -> None:
    """Takes out of the waves what no cell needs: its cell is skipped, or taken from a finished run."""
    left = {job.id for cell, jobs in self.cells.items() if cell not in self.taken for job in jobs}
    waiting = list(left)
    while waiting:
      before = set(self.after.get(waiting.pop(), ())) - left
      left |= before
      waiting += before
    self.waves[:] = [[job for job in wave if job.id in left] for wave in self.waves]


class Lacking(Exception):
  """A job that cannot be run here; the message says why."""


def names() -> list[str]:
  """The tables that there are."""
  return sorted(
    path.stem
    for path in (job_files.folder() / "papers").glob("*.py")
    if not path.stem.endswith("_rows") and path.stem != "__init__"
  )


def load(name: str) -> Table:
  """The table of that name.

  Raises:
    InputError: there is none.

  """
  if name not in names():
    raise InputError(f"there is no table {name}: name one of {', '.join(names())}")
  module = job_files.module(f"papers.{name}")
  claims, searches = getattr(module, "CLAIMS", ()), getattr(module, "SEARCHES", ())
  return Table(name, module.TITLE, module.SCALE, module.COLUMNS, module.ROWS, claims, searches)


def resolve(run: Run, choice: Choice) -> tuple[Any, str]:
  """The config of a run before what it depends on, and FILE.py:ARGUMENT.

  A word that names an encoder takes the place of the row's own. Where the config refuses the words of
  `choice` beside the name of its own vectors, they take its place; a baseline, which is not trained, takes those of an encoder alone. A config that does not
  take them at all stays the paper's, which the second result shows.
  """
  file, _, argument = run.config.partition(":")
  path = job_files.path(file)
  own = argument.split(",")
  if any(word in REPLACING for word in choice.words):
    own = [word for word in own if word not in config_words.ENCODERS]
  rest = [word for word in own if word not in recipes.CETE_VECTORS]
  encoders = [word for word in choice.words if word in config_words.ENCODERS]
  ways = (
    (*own, *choice.words),
    (*choice.words, *rest),
    *[(*own, *encoders)] * bool(encoders),
    (argument,),
  )
  for words in ways if choice.words else ways[-1:]:
    text = ",".join(filter(None, words))
    try:
      start = job_files.load(f"{path}:{text}" if text else path)
      break
    except InputError:
      if words == (argument,):
        raise
  config = override(start, {**run.settings, **choice.settings}, f"{run.config}:")
  return config, f"{file}:{text}" if text else file


def plan(table: Table, output: pathlib.Path, choice: Choice, *, lacking=needs.lacking) -> Plan:
  """Resolves every run of a table.

  Args:
    output: folder of the runs, absolute: a second stage names its first by it.
    lacking: says why a config cannot be run here, "" where it can.

  """
  run_plan = Plan()
  for row in table.rows:
    for key, run in row.runs.items():
      cell = row.name, key
      try:
        jobs, wave, run_plan.configs[cell] = _jobs(
          run, f"{row.name}, {key}", output, choice, lacking, run_plan
        )
      except Lacking as reason:
        run_plan.skipped[cell] = str(reason)
        run_plan.configs[cell] = run.config
        continue
      run_plan.cells[cell] = jobs
      if other := _other(run, choice):
        run_plan.others[cell] = other
      _put(run_plan, wave, jobs)
    filled = any(name == row.name for name, _ in choice.filled)
    if not row.runs and row.lacks and not filled:
      run_plan.skipped[row.name, ""] = row.lacks
  run_plan.drop_idle()
  return run_plan


def _other(run: Run, choice: Choice) -> str:
  """What the run of a row reads in place of the paper's weights and data; "" where these."""
  return needs.other(resolve(run, Choice())[0], resolve(run, choice)[0])


def _jobs(
  run: Run,
  title: str,
  output: pathlib.Path,
  choice: Choice,
  lacking,
  run_plan: Plan,
  only: int | None = None,
) -> tuple[list[points.Job], int, str]:
  """A run's jobs, one a seed; their wave; the config that they are of.

  Each seed has runs of its own of all that it begins with, but for rankers without randomness.

  Args:
    only: the seed of the run that begins with this one.

  """
  try:
    config, name = resolve(run, choice)
    check.check(config)
  except InputError as error:
    raise Lacking(str(error).replace(f"{sweep.local_executor.ROOT}/", "")) from error
  reasons = [lacking(config)]
  seeds = (choice.seeds or tuple(config.seeds)) if only is None else (only,)
  if not registry.has_parameters(config.model.name):
    seeds = (0,)
  jobs, wave = [], 0
  for seed in seeds:
    folders, before = {}, []
    for key, stage in run.after.items():
      try:
        (stage_job,), its, _ = _jobs(
          stage, f"{title}: {key}", output, choice, lacking, run_plan, only=seed
        )
      except Lacking as reason:
        reasons.append(f"it begins with {stage.config}: {reason}")
        continue
      _put(run_plan, its, [stage_job])
      folders[key] = str(output / stage_job.id)
      before.append(stage_job.id)
      wave = max(wave, its + 1)
    if any(reasons):
      raise Lacking("; ".join(filter(None, reasons)))
    whole = override(config, {**folders, "seeds": (seed,)}, f"{name}:")
    jobs.append(points.job(whole, 0, f"{title}, seed {seed}", {}))
    run_plan.after[jobs[-1].id] = tuple(before)
  return jobs, wave, name


def _put(run_plan: Plan, wave: int, jobs: Sequence[points.Job]) -> None:
  """Adds jobs to a wave; what another row runs, too, is run once."""
  known = {job.id for jobs_ in run_plan.waves for job in jobs_}
  while len(run_plan.waves) <= wave:
    run_plan.waves.append([])
  run_plan.waves[wave] += [job for job in jobs if job.id not in known]
