"""Plan a paper's table (configs/papers): the jobs that fill it, and what cannot be run here and why.

Nothing large is downloaded. Finished runs of a row's very config may stand for its jobs.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from as2jax.config import base, check, recipes
from as2jax.config import jobs as job_files
from as2jax.config import words as config_words
from as2jax.config.overrides import apply as override
from as2jax.config.overrides import differences, flatten
from as2jax.data import load
from as2jax.data.dataset import SPECS
from as2jax.data.source import lacking as lacking_files
from as2jax.encoders import hub, open_encoder
from as2jax.evaluation import results
from as2jax.experiments.papers.rows import Run, Table
from as2jax.experiments.sweeps import points, sweep
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, data_folder

# Words that set an encoder, whatever was named before; `large` wants one.
REPLACING = {"sample", *config_words.ENCODERS} - {"large"}


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
    """Return the folders of the runs of a cell, finished or not."""
    if cell in self.taken:
      return [self.taken[cell]]
    return [output / job.id for job in self.cells.get(cell, ())]

  def drop_idle(self) -> None:
    """Take out of the waves the jobs of skipped cells and of cells that finished runs fill."""
    left = {job.id for cell, jobs in self.cells.items() if cell not in self.taken for job in jobs}
    waiting = list(left)
    while waiting:
      before = set(self.after.get(waiting.pop(), ())) - left
      left |= before
      waiting += before
    self.waves[:] = [[job for job in wave if job.id in left] for wave in self.waves]


class Lacking(Exception):
  """Say why a job cannot be run here."""


def resolve(run: Run, choice: Choice) -> tuple[Any, str]:
  """Return the config of a run and FILE.py:ARGUMENT, without the runs that it begins with.

  A word that names an encoder takes the place of the row's own. Where the config refuses the words of
  `choice` beside the name of its own vectors, they take its place. A baseline, which is not trained,
  takes the words of an encoder alone. A config that takes none stays the paper's.
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


def plan(table: Table, output: pathlib.Path, choice: Choice, *, lacking=None) -> Plan:
  """Resolve every run of a table.

  Args:
    output: folder of the runs, absolute: a second stage names its first by it.
    lacking: says why a config cannot be run here, "" where it can.

  """
  lacking = lacking or lacking_here
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
      if others := other(resolve(run, Choice())[0], resolve(run, choice)[0]):
        run_plan.others[cell] = others
      _put(run_plan, wave, jobs)
    filled = any(name == row.name for name, _ in choice.filled)
    if not row.runs and row.lacks and not filled:
      run_plan.skipped[row.name, ""] = row.lacks
  run_plan.drop_idle()
  return run_plan


def _jobs(
  run: Run,
  title: str,
  output: pathlib.Path,
  choice: Choice,
  lacking,
  run_plan: Plan,
  only: int | None = None,
) -> tuple[list[points.Job], int, str]:
  """Return a run's jobs, one a seed, their wave, and the config that they are of.

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
  """Add jobs to a wave, those of several rows once."""
  known = {job.id for jobs_ in run_plan.waves for job in jobs_}
  while len(run_plan.waves) <= wave:
    run_plan.waves.append([])
  run_plan.waves[wave] += [job for job in jobs if job.id not in known]


def lacking_here(config: Any) -> str:
  """Return why the job that `config` describes cannot run here, "" where it can."""
  return "; ".join(filter(None, (_data(config.data), _encoder(config))))


def other(wanted: Any, config: Any) -> str:
  """Return what `config` reads in place of the weights and the data that a row wants, by name; "" for these."""
  differences = []
  if config.data.name != wanted.data.name or config.data.name == "sample":
    differences.append(f"data {config.data.name}")
  if registry.has_parameters(config.model.name):
    for key in ("pretrained", "vectors", "weights"):
      mine, its = (str(c.encoder.get(key) or "") for c in (config, wanted))
      if mine.rpartition("/")[2] != its.rpartition("/")[2]:
        differences.append(f"{mine or 'none'} in place of {its}")
  return "; ".join(differences)


def _data(section: Any) -> str:
  if section.name in (load.FILES, load.ASNQ_FILES):
    return ""  # by path, which the run checks first
  if section.name not in SPECS:
    return f"there is no data set {section.name}"
  downloads = cache_folder(section.cache) / "downloads" / section.name
  missing = lacking_files(SPECS[section.name], data_folder(section.root), downloads)
  return f"data {section.name}: no {', '.join(missing)}" if missing else ""


def _encoder(config: Any) -> str:
  section = config.encoder
  if not registry.has_parameters(config.model.name):
    return ""
  try:
    if own := open_encoder.own_family(section.name):
      own.check_there(section, config.data.root)
    elif section.get("pretrained"):
      return _transformer(section.pretrained)
  except InputError as error:
    return f"weights: {str(error).partition(':')[0].partition(';')[0]}"
  return ""


@functools.cache
def _transformer(spec: str) -> str:
  """Return why weights are not here: no folder, package or name that the hub has or cached."""
  reason = hub.absent(spec)
  return f"weights {spec}: {reason}" if reason else ""


def take(run_plan: Plan, folders: Sequence[pathlib.Path]) -> None:
  """Fill cells of a plan with finished runs, whose jobs are then not run.

  A run fits where its config differs in nothing but its seeds, all of which the row asks for, and it
  was evaluated on the splits that the row reports.

  Args:
    run_plan: gets `taken`; jobs that no other cell needs leave its waves.
    folders: of runs, or of folders of runs.

  Raises:
    InputError: a folder holds no finished run.

  """
  runs = [run for folder in folders for run in _finished(folder)]
  for cell, jobs in run_plan.cells.items():
    wanted = _known(json.loads(jobs[0].text))
    seeds = sorted(job.seed for job in jobs)
    for folder, config, content in runs:
      its = sorted(outcome["seed"] for outcome in content["seeds"])
      lacks = _unevaluated(content, wanted["evaluation.splits"])
      if its == seeds and not lacks and not differences(config, wanted):
        run_plan.taken[cell] = folder
        break
  run_plan.drop_idle()


def _finished(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict[str, Any], dict[str, Any]]]:
  """Return folder, config and results of each finished run at `folder` or in it."""
  there = [folder, *sorted(folder.iterdir())] if folder.is_dir() else []
  runs = [path for path in there if finished(path) and (path / "config.json").exists()]
  if not runs:
    raise InputError(
      f"--runs={folder}: there is no finished run (a folder with results.json), nor in its folders"
    )
  return [
    (path.absolute(), _known(json.loads((path / "config.json").read_text())), results.read(path))
    for path in runs
  ]


def _unevaluated(content: dict[str, Any], asked: Sequence[str]) -> list[str]:
  """Return the splits that a row reports and its data have, but the results lack."""
  there, parts = results.splits_of(content), content["data"]["splits"].keys()
  return [split for split in asked if split not in there and set(split.split("+")) <= parts]


def _known(config: dict[str, Any]) -> dict[str, Any]:
  """Return a flat config without seeds; keys that are younger than the run have their defaults."""
  flat = {**flatten(json.loads(base.get_config().to_json())), **flatten(config)}
  flat.pop("seeds")
  return flat
