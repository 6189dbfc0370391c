"""Plan a paper's table (configs/papers): the jobs that fill it, and what cannot be run here and why.

Nothing large is downloaded. Finished runs of a row's very config may stand for its jobs.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from as2jax.config import check, recipes
from as2jax.config import jobs as job_files
from as2jax.config import words as config_words
from as2jax.config.overrides import apply as override
from as2jax.data import load
from as2jax.data.dataset import SPECS
from as2jax.data.source import located
from as2jax.encoders import hub, open_encoder, transformer_folder
from as2jax.evaluation import results
from as2jax.experiments import sweep
from as2jax.experiments.papers import collected
from as2jax.experiments.papers.rows import Run, Table
from as2jax.experiments.sweep import finished
from as2jax.runtime import bound, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, data_folder

# Words that set an encoder, whatever was named before; `large` wants one.
REPLACING = {"sample", *config_words.ENCODERS} - {"large"}
_absent = functools.cache(hub.absent)  # why weights are not here


@dataclasses.dataclass(frozen=True)
class Choice:
  """What the command changes in every row: words of config files, overrides, seeds in place of the configs'."""

  words: tuple[str, ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  seeds: tuple[int, ...] = ()


@dataclasses.dataclass
class Cell:
  """One run of a row, for one of its data sets.

  Attributes:
    title: as lines of text have it; config: the config file that is run, with its argument.
    jobs: one a seed; lacks: why there is none.
    other: what its weights or data are in place of the row's own.
    taken: the folder of a finished run with all its seeds, in place of the jobs.

  """

  title: str
  config: str = ""
  jobs: tuple[sweep.Job, ...] = ()
  lacks: str = ""
  other: str = ""
  taken: pathlib.Path | None = None

  def folders(self, output: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders of its runs, finished or not."""
    return [self.taken] if self.taken else [output / job.id for job in self.jobs]


Cells = Mapping[tuple[str, str], Cell]  # by the name of a row, and the key of one of its runs


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
    encoders = [word for word in choice.words if word in config_words.ENCODERS]
    kept = own
    if REPLACING.intersection(choice.words):
      kept = [word for word in own if word not in config_words.ENCODERS]
    rest = [word for word in kept if word not in recipes.CETE_VECTORS]
    ways = [[*kept, *choice.words], [*choice.words, *rest], own]
    if encoders:
      ways.insert(2, [*kept, *encoders])
  for words in ways:
    text = (":" + ",".join(filter(None, words))).rstrip(":")
    try:
      start = job_files.load(job_files.path(file) + text)
      break
    except InputError:
      if words is own:
        raise
  return override(start, {**run.settings, **choice.settings}, f"{run.config}: "), file + text


def plan(table: Table, output: pathlib.Path, choice: Choice) -> Cells:
  """Resolve every run of a table; `output` is absolute: a second stage names its first by it."""
  cells = {}
  for row in table.rows:
    if row.lacks:
      cells[row.name, ""] = Cell(row.name, lacks=row.lacks)
    for key, run in row.runs.items():
      cell = cells[row.name, key] = Cell(f"{row.name} · {key}", run.config)
      try:
        # Of the figures that the table has of it.
        splits = {part for c in table.columns if key in c.runs for part in c.split.split("+")}
        cell.jobs = _jobs(run, cell.title, output, choice, splits=splits)
      except InputError as reason:
        cell.lacks = str(reason)
        continue
      config, cell.config = resolve(run, choice)
      cell.other = other(resolve(run, Choice())[0], config)
  return cells


def _jobs(
  run: Run,
  title: str,
  output: pathlib.Path,
  choice: Choice,
  only: int | None = None,
  splits: Collection[str] = (),
) -> tuple[sweep.Job, ...]:
  """Return a run's jobs, one a seed (or `only` that of the run that begins with this one).

  Each seed has runs of its own of all that it begins with, but for rankers without randomness.
  """
  config, name = resolve(run, choice)
  check.check(config)
  if reason := lacking_here(config, splits):
    raise InputError(reason)
  seeds = choice.seeds or tuple(config.seeds)
  if only is not None:
    seeds = (only,)
  if not registry.has_parameters(config.model.name):
    seeds = (0,)
  jobs = []
  for seed in seeds:
    folders, after = {}, []
    for key, stage in run.after.items():
      try:
        after += _jobs(stage, f"{title}: {key}", output, choice, only=seed)
      except InputError as error:
        raise InputError(f"it begins with {stage.config}: {error}") from error
      folders[key] = str(output / after[-1].id)
    whole = override(config, {**folders, "seeds": (seed,)}, f"{name}: ")
    jobs.append(sweep.make_job(whole, title, after))
  return tuple(jobs)


def lacking_here(config: Any, splits: Collection[str] = ()) -> str:
  """Return why the job that `config` describes cannot run here, "" where it can.

  A ranker that reads no training questions needs `splits` alone, where these are named.
  """
  return "; ".join(filter(None, (_data(config, splits), _encoder(config))))


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
    if not _of_published_size(config):
      others.append(f"{config.encoder.pretrained} of another size than the published")
  return "; ".join(others)


def _of_published_size(config: Any) -> bool:
  """Tell whether files that bear a published name have its sizes, as far as they are here."""
  section = config.encoder
  try:
    if own := open_encoder.own_family(section.name):
      return own.is_published(section, config.data.root)
    known = transformer_folder.published(section.pretrained)
    if known and pathlib.Path(section.pretrained).is_dir():
      return transformer_folder.read_family(section.pretrained) == known
  except InputError:
    pass  # which `lacking_here` says
  return True


def _data(config: Any, splits: Collection[str]) -> str:
  section, model = config.data, registry.find(registry.MODELS, config.model.name, "model.name")
  if section.name in (load.FILES, load.ASNQ_FILES):
    return ""  # by path, which the run checks first
  if section.name not in SPECS:
    return f"there is no data set {section.name}"
  downloads = cache_folder(section.cache) / "downloads" / section.name
  source = located(SPECS[section.name], data_folder(section.root), downloads)
  if splits and not getattr(model, "reads_training", True):
    needed = {split: source.missing[split] for split in source.missing if split in splits}
    source = dataclasses.replace(source, missing=needed)
  return f"data {section.name}: no {', '.join(source.lacks)}" if source.lacks else ""


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


def take(cells: Cells, folders: Sequence[pathlib.Path]) -> None:
  """Fill cells with finished runs, whose jobs are then not run.

  A run fits where its config differs in nothing but its seeds, among which are those that the row asks for,
  and it was evaluated on the splits that the row reports and its data have. `folders` are of runs, or hold some.
  """
  runs = []
  for folder in folders:
    before = len(runs)
    for path in [folder, *sorted(folder.iterdir())] if folder.is_dir() else ():
      if finished(path) and (path / "config.json").exists():
        config = bound.file(path, "config.json").read_text()
        runs.append((path.absolute(), config, results.read(path)))
    if len(runs) == before:
      raise InputError(f"--runs={folder}: neither it nor its folders hold results.json of a run")
  for cell in cells.values():
    for folder, config, content in runs if cell.jobs else ():
      splits = json.loads(cell.jobs[0].text)["evaluation"]["splits"]
      parts = content["data"]["splits"].keys()
      asked = {split for split in splits if set(split.split("+")) <= parts}
      seeds = {outcome["seed"] for outcome in content["seeds"]}
      fits = seeds >= {job.seed for job in cell.jobs} and asked <= set(results.splits_of(content))
      if fits and not collected.differing(config, cell.jobs[0].text):
        cell.taken = folder
        break
