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
from as2jax.data.source import located
from as2jax.encoders import hub, open_encoder
from as2jax.evaluation import results
from as2jax.experiments.papers.rows import Run, Table
from as2jax.experiments.sweeps import points
from as2jax.experiments.sweeps.local_executor import finished
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, data_folder

# Words that set an encoder, whatever was named before; `large` wants one.
REPLACING = {"sample", *config_words.ENCODERS} - {"large"}
_absent = functools.cache(hub.absent)  # why weights are not here
Cell = tuple[str, str]  # the name of a row, and the key of one of its runs


@dataclasses.dataclass(frozen=True)
class Choice:
  """What the command changes in every row: words of config files, overrides, seeds in place of the configs'."""

  words: tuple[str, ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  seeds: tuple[int, ...] = ()


@dataclasses.dataclass
class Plan:
  """The jobs of a table.

  Attributes:
    cells: one job a seed; skipped: why there is none.
    configs: the config file that is run, with its argument.
    others: what its weights or data are in place of the row's own.
    taken: the folder of a finished run with all its seeds, in place of jobs.
    jobs, after: by id, also what jobs begin with: the job, and the ids of those that it depends on.

  """

  cells: dict[Cell, list[points.Job]] = dataclasses.field(default_factory=dict)
  skipped: dict[Cell, str] = dataclasses.field(default_factory=dict)
  configs: dict[Cell, str] = dataclasses.field(default_factory=dict)
  others: dict[Cell, str] = dataclasses.field(default_factory=dict)
  taken: dict[Cell, pathlib.Path] = dataclasses.field(default_factory=dict)
  jobs: dict[str, points.Job] = dataclasses.field(default_factory=dict)
  after: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

  def folders(self, cell: Cell, output: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders of the runs of a cell, finished or not."""
    if cell in self.taken:
      return [self.taken[cell]]
    return [output / job.id for job in self.cells.get(cell, ())]

  @property
  def waves(self) -> list[list[points.Job]]:
    """The jobs of cells that are not taken, and of what these begin with, in the order of dependence."""
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
      if name not in depths:
        depths[name] = max((depth(before) + 1 for before in self.after[name]), default=0)
      return depths[name]

    for cell, jobs in self.cells.items():
      for job in jobs if cell not in self.taken else ():
        depth(job.id)
    waves = []
    for wave in range(max(depths.values(), default=-1) + 1):
      waves.append([self.jobs[name] for name in depths if depths[name] == wave])
    return waves


def resolve(run: Run, choice: Choice) -> tuple[Any, str]:
  """Return the config of a run and FILE.py:ARGUMENT, without the runs that it begins with.

  A word that names an encoder takes the place of the row's own. Where the config refuses the words of
  `choice` beside the name of its own vectors, they take its place. A baseline, which is not trained,
  takes the words of an encoder alone. A config that takes none stays the paper's.
  """
  file, _, argument = run.config.partition(":")
  own = argument.split(",")
  ways = [own]
  if choice.words:
    kept = own
    if REPLACING.intersection(choice.words):
      kept = [word for word in own if word not in config_words.ENCODERS]
    rest = [word for word in kept if word not in recipes.CETE_VECTORS]
    ways = [[*kept, *choice.words], [*choice.words, *rest]]
    if encoders := [word for word in choice.words if word in config_words.ENCODERS]:
      ways.append([*kept, *encoders])
    ways.append(own)
  for words in ways:
    text = ":" + ",".join(filter(None, words))
    name = file + text.rstrip(":")
    try:
      start = job_files.load(job_files.path(file) + text.rstrip(":"))
      break
    except InputError:
      if words is own:
        raise
  return override(start, {**run.settings, **choice.settings}, f"{run.config}:"), name


def plan(table: Table, output: pathlib.Path, choice: Choice, *, lacking=None) -> Plan:
  """Resolve every run of a table; `lacking` says why a config cannot be run here, "" where it can.

  `output` is absolute: a second stage names its first by it.
  """
  made = Plan()
  for row in table.rows:
    if row.lacks:
      made.skipped[row.name, ""] = row.lacks
    for key, run in row.runs.items():
      cell = row.name, key
      made.configs[cell] = run.config
      try:
        jobs, name = _jobs(run, f"{row.name}, {key}", output, choice, lacking or lacking_here, made)
      except InputError as reason:
        made.skipped[cell] = str(reason)
        continue
      made.cells[cell], made.configs[cell] = jobs, name
      if others := other(resolve(run, Choice())[0], resolve(run, choice)[0]):
        made.others[cell] = others
  return made


def _jobs(
  run: Run,
  title: str,
  output: pathlib.Path,
  choice: Choice,
  lacking,
  made: Plan,
  only: int | None = None,
) -> tuple[list[points.Job], str]:
  """Return a run's jobs, one a seed, and the config that they are of; add them to a plan.

  Each seed (or `only` that of the run that begins with this one) has runs of its own of all that it begins
  with, but for rankers without randomness.
  """
  config, name = resolve(run, choice)
  check.check(config)
  if reason := lacking(config):
    raise InputError(reason)
  seeds = choice.seeds or tuple(config.seeds)
  if only is not None:
    seeds = (only,)
  if not registry.has_parameters(config.model.name):
    seeds = (0,)
  jobs = []
  for seed in seeds:
    folders, before = {}, []
    for key, stage in run.after.items():
      try:
        (job,), _ = _jobs(stage, f"{title}: {key}", output, choice, lacking, made, only=seed)
      except InputError as error:
        raise InputError(f"it begins with {stage.config}: {error}") from error
      folders[key] = str(output / job.id)
      before.append(job.id)
    whole = override(config, {**folders, "seeds": (seed,)}, f"{name}:")
    job = points.job(whole, 0, f"{title}, seed {seed}", {})
    made.jobs.setdefault(job.id, job)  # which rows may share
    made.after[job.id] = tuple(before)
    jobs.append(job)
  return jobs, name


def lacking_here(config: Any) -> str:
  """Return why the job that `config` describes cannot run here, "" where it can."""
  return "; ".join(filter(None, (_data(config.data), _encoder(config))))


def other(wanted: Any, config: Any) -> str:
  """Return what `config` reads in place of the weights and the data that a row wants, by name; "" for these."""
  others = []
  if config.data.name != wanted.data.name or config.data.name == "sample":
    others.append(f"data {config.data.name}")
  if registry.has_parameters(config.model.name):
    for key in ("pretrained", "vectors", "weights"):
      mine, its = (str(c.encoder.get(key) or "") for c in (config, wanted))
      if mine.rpartition("/")[2] != its.rpartition("/")[2]:
        others.append(f"{mine or 'none'} in place of {its}")
  return "; ".join(others)


def _data(section: Any) -> str:
  if section.name in (load.FILES, load.ASNQ_FILES):
    return ""  # by path, which the run checks first
  if section.name not in SPECS:
    return f"there is no data set {section.name}"
  downloads = cache_folder(section.cache) / "downloads" / section.name
  missing = located(SPECS[section.name], data_folder(section.root), downloads).lacks
  return f"data {section.name}: no {', '.join(missing)}" if missing else ""


def _encoder(config: Any) -> str:
  section = config.encoder
  if not registry.has_parameters(config.model.name):
    return ""
  try:
    if own := open_encoder.own_family(section.name):
      own.check_there(section, config.data.root)
    elif section.get("pretrained"):
      reason = _absent(section.pretrained)
      return f"weights {section.pretrained}: {reason}" if reason else ""
  except InputError as error:
    return f"weights: {str(error).partition(':')[0].partition(';')[0]}"
  return ""


def take(run_plan: Plan, folders: Sequence[pathlib.Path]) -> None:
  """Fill cells of a plan with finished runs, whose jobs are then not run.

  A run fits where its config differs in nothing but its seeds, all of which the row asks for, and it
  was evaluated on the splits that the row reports and its data have. `folders` are of runs, or hold some.
  """
  runs = []
  for folder in folders:
    before = len(runs)
    for path in [folder, *sorted(folder.iterdir())] if folder.is_dir() else ():
      if finished(path) and (path / "config.json").exists():
        config = _known((path / "config.json").read_text())
        runs.append((path.absolute(), config, results.read(path)))
    if len(runs) == before:
      raise InputError(
        f"--runs={folder}: there is no finished run (a folder with results.json), nor in its folders"
      )
  for cell, jobs in run_plan.cells.items():
    wanted = _known(jobs[0].text)
    seeds = sorted(job.seed for job in jobs)
    for folder, config, content in runs:
      parts = content["data"]["splits"].keys()
      asked = {split for split in wanted["evaluation.splits"] if set(split.split("+")) <= parts}
      its = sorted(outcome["seed"] for outcome in content["seeds"])
      if its == seeds and asked <= set(results.splits_of(content)):
        if not differences(config, wanted):
          run_plan.taken[cell] = folder
          break


def _known(config: str) -> dict[str, Any]:
  """Return a flat config without seeds; keys that are younger than the run have their defaults."""
  flat = {**flatten(json.loads(base.get_config().to_json())), **flatten(json.loads(config))}
  flat.pop("seeds")
  return flat
