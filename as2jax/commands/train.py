"""`as2jax train` and `as2jax list`: a job, or a recipe on one's own files, to a finished run."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from as2jax.commands import output, process
from as2jax.commands.output import shown
from as2jax.runtime.errors import InputError

Set = Annotated[
  list[str],
  typer.Option(
    "--set", metavar="KEY=VALUE", help="one value of the config, several times (as2jax list keys)"
  ),
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="N", help="3 is 0, 1, 2; or such as 0,4")]
Columns = Annotated[
  str,
  typer.Option(
    metavar="FIELD=COLUMN,…",
    help="your files' columns: question=query,candidate=answer,label=is_correct",
  ),
]
Drop = Annotated[
  bool, typer.Option("--drop", help="leave out rows without text and repeated candidates")
]
Output = Annotated[str, typer.Option("-o", "--output", metavar="FOLDER", help="of the run")]


@shown(
  "as2jax train wikiqa_triplet:minilm,grouped -o runs/x",
  "as2jax train wikiqa_triplet:sample -o runs/y --set epochs=3 --seeds 3",
  "as2jax train --recipe=triplet:minilm --train=faq.csv --dev=dev.csv -o runs/faq",
  "as2jax train runs/x                                    (goes on with it)",
  "as2jax train runs/x --seeds=5                          (adds seeds to it)",
)
def train(
  job: Annotated[
    str,
    typer.Argument(
      metavar="[JOB]",
      help="a job's name with words, wikiqa_triplet:minilm (as2jax list jobs, as2jax list words), "
      "a config file, or a run's folder to go on with it",
    ),
  ] = "",
  folder: Output = "",
  settings: Set = [],  # noqa: B006 (typer reads the default)
  seeds: Seeds = "",
  recipe: Annotated[
    str,
    typer.Option(
      metavar="NAME[:WORDS]",
      help="a system for your own files, such as triplet:minilm (as2jax list recipes)",
    ),
  ] = "",
  train_file: Annotated[str, typer.Option("--train", metavar="FILE", help="your questions")] = "",
  dev: Annotated[
    str, typer.Option(metavar="FILE", help="selects; without it a tenth of --train does")
  ] = "",
  test: Annotated[str, typer.Option(metavar="FILE", help="is reported at the end")] = "",
  columns: Columns = "",
  drop: Drop = False,
  profile: Annotated[int, typer.Option(min=0, help="steps to trace into FOLDER/profile")] = 0,
  coordinator: Annotated[
    str, typer.Option(metavar="HOST:PORT", help="several processes: process 0; or auto")
  ] = "",
  processes: Annotated[int, typer.Option(help="several processes: how many")] = 0,
  process_id: Annotated[int, typer.Option(help="several processes: this one's, from 0")] = -1,
  form: output.Form = "auto",
) -> None:
  """Trains a system and evaluates it. The same command goes on after a stop."""
  files = {"train": train_file, "dev": dev, "test": test}
  config, folder = resolve(job, folder, settings, seeds, recipe, files, columns, drop)
  process.begin_run(coordinator, processes, process_id, profile)
  from as2jax.evaluation import results
  from as2jax.inference import modes

  content = modes.content(config, modes.prepare(config, folder))
  finish(content, lambda: results.summary(content, folder), form)


def resolve(
  job: str,
  folder: str,
  settings: list[str],
  seeds: str,
  recipe: str,
  files: dict[str, str],
  columns: str = "",
  drop: bool = False,
) -> tuple[Any, str]:
  """The config that the command line of `train` describes, and the run's folder.

  Raises:
    InputError: neither job nor recipe, or both; no folder; any mistake in the config.

  """
  import os

  from as2jax.config import jobs as job_files
  from as2jax.config import overrides, recipes

  if bool(job) == bool(recipe):
    raise InputError(
      "name a job, such as wikiqa_triplet:minilm (as2jax list jobs), or for your own files a recipe: "
      "--recipe=triplet:minilm --train=FILE"
    )
  if job and os.path.isfile(os.path.join(job, "config.json")):
    folder = folder or job
    job = f"rerun:{os.path.join(job, 'config.json')}"
  if not folder:
    raise InputError("the run's folder is missing: -o runs/x")
  if recipe and not any(files.values()):
    raise InputError(
      "--recipe wants your questions: --train=FILE; --test=FILE alone does for bm25 and word_overlap"
    )
  config = job_files.load(job or "own:" + recipe.replace(":", ",", 1))
  if any(files.values()):
    config = overrides.apply(config, recipes.own_files(config, files))
  column_settings = [f"data.columns={columns}"] * bool(columns) + ["data.drop=true"] * drop
  values = overrides.parse(config, column_settings + settings)
  if seeds:
    values["seeds"] = overrides.seeds_of(seeds)
  return overrides.apply(config, values), folder


def finish(content: dict[str, Any], text: Callable[[], str], form: str) -> None:
  """Prints what a run came to, in the first of several processes."""
  from as2jax.runtime import processes

  processes.stop()
  if processes.first():
    rows = ({"metric": name, **entry} for name, entry in content["metrics"].items())
    output.emit(form, rows, text)


@shown("as2jax list jobs", "as2jax list words", "as2jax list keys wikiqa_cassie")
def list_names(
  kind: Annotated[
    Literal["jobs", "recipes", "words", "models", "encoders", "keys"],
    typer.Argument(
      help="jobs: train JOB; recipes: train --recipe=NAME; words: behind a job's colon; models: "
      "model.name; encoders: encoder.name; keys: of a job, for --set"
    ),
  ],
  job: Annotated[str, typer.Argument(help="whose keys are listed")] = "wikiqa_triplet",
  form: output.Form = "auto",
) -> None:
  """Lists jobs, recipes, words, models, encoders or keys."""
  import ast

  from as2jax.config import jobs, recipes
  from as2jax.config import words as config_words
  from as2jax.config.overrides import flatten
  from as2jax.runtime import registry

  if kind == "keys":
    rows = [{"key": key, "value": value} for key, value in flatten(jobs.load(job)).items()]
    lines = [(row["key"], repr(row["value"])) for row in rows]
    output.emit(form, rows, lambda: output.columns(lines))
    return
  about: dict[str, Any] = {}
  if kind == "jobs":
    for name in jobs.names():
      about[name] = ast.get_docstring(ast.parse((jobs.folder() / f"{name}.py").read_text()))
  elif kind in ("models", "encoders"):
    about = dict(registry.MODELS if kind == "models" else registry.ENCODERS)
  else:
    known = recipes.SYSTEMS if kind == "recipes" else {**config_words.WORDS, **config_words.POOLS}
    about = {name: recipe.__doc__ for name, recipe in known.items()}
    if kind == "recipes":
      about |= dict.fromkeys(recipes.BASELINES, "Rank without training.")
  rows = [{"name": name, "about": text.partition("\n")[0]} for name, text in about.items()]
  output.emit(form, rows, lambda: output.columns(row.values() for row in rows))
