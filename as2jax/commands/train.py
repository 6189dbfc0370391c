"""`as2jax train` and `as2jax list`: a job, or a recipe on one's own files, to a finished run."""

import ast
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from as2jax.commands import output, process
from as2jax.commands.output import examples, option
from as2jax.runtime.errors import InputError

Set = option(
  "a value of the config (as2jax list keys)", "--set", metavar="KEY=VALUE", kind=list[str]
)
Seeds = option("3 is 0, 1, 2; or such as 0,4", "--seeds", metavar="N")
Columns = option("your files' columns: question=query,label=is_correct", metavar="FIELD=COLUMN,…")
Drop = option("leave out rows without text and repeated candidates", "--drop", kind=bool)
AllowCode = option("run classes of one's own that a run names", "--allow-code", kind=bool)
Label = Annotated[
  str | None,
  Option(metavar="CLASS", help="of a published classifier: the class that means 'it answers'"),
]
Output = option("of the run", "-o", "--output", metavar="FOLDER")
app = typer.Typer()


@app.command(
  epilog=examples(
    "as2jax train wikiqa_triplet:minilm,grouped -o runs/x",
    "as2jax train wikiqa_triplet:sample -o runs/y --set epochs=3 --seeds 3",
    "as2jax train --recipe=fast --train=faq.csv --dev=dev.csv -o runs/faq",
    "as2jax train runs/x                                    (goes on with it)",
    "as2jax train runs/x --seeds=5                          (adds seeds to it)",
  )
)
def train(
  job: Annotated[
    str,
    Argument(
      metavar="[JOB]", help="a job with words (as2jax list jobs), a config file, or a run's folder"
    ),
  ] = "",
  folder: Output = "",
  settings: Set = [],
  seeds: Seeds = "",
  recipe: option("for your own files (as2jax list recipes)", metavar="NAME[:WORDS]") = "",
  train_file: option("your questions, or hub:NAME", "--train", metavar="FILE") = "",
  dev: option("selects; without it a tenth of --train does", metavar="FILE") = "",
  test: option("is reported at the end", metavar="FILE") = "",
  columns: Columns = "",
  drop: Drop = False,
  profile: Annotated[int, Option(min=0, help="steps to trace into FOLDER/profile")] = 0,
  coordinator: option("several processes: process 0; or auto", metavar="HOST:PORT") = "",
  processes: Annotated[int, Option(help="several processes: how many")] = 0,
  process_id: Annotated[int, Option(help="several processes: this one's, from 0")] = -1,
  allow_code: AllowCode = False,
  form: output.Form = "text",
) -> None:
  """Trains a system and evaluates it. The same command goes on after a stop."""
  files = {"train": train_file, "dev": dev, "test": test}
  config, folder = resolve(job, folder, settings, seeds, recipe, files, columns, drop, allow_code)
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
  allow_code: bool = False,
) -> tuple[Any, str]:
  """Return the config that the command line of `train` describes, and the run's folder.

  InputError: neither job nor recipe, or both; no folder; any mistake in the config.
  """
  import os

  from as2jax.config import jobs as job_files
  from as2jax.config import overrides, recipes
  from as2jax.data import user_files

  if bool(job) == bool(recipe):
    raise InputError(
      "name a job, such as wikiqa_triplet:minilm (as2jax list jobs), or for your own files a recipe: "
      "--recipe=fast --train=FILE"
    )
  if recipe and not any(files.values()):
    raise InputError("--recipe wants your questions: --train=FILE")
  if recipe:
    job = f"own:{recipe}"
  elif os.path.isfile(os.path.join(job, "config.json")):
    folder = folder or job
    job = f"rerun:{os.path.join(job, 'config.json')}"
  if not folder:
    raise InputError("the run's folder is missing: -o runs/x")
  config = job_files.load(job, allow_code)
  if any(files.values()):
    form = user_files.form_of(next(filter(None, files.values())), columns)
    if form != user_files.LABELLED:
      config = recipes.on_pairs(config, negatives=form == user_files.WITH_NEGATIVES)
    config = overrides.apply(config, recipes.own_files(config, files))
  own = [f"data.columns={columns}"] * bool(columns) + ["data.drop=true"] * drop
  values = overrides.parse(config, own + settings)
  if seeds:
    values["seeds"] = overrides.seeds_of(seeds)
  return overrides.apply(config, values), folder


def finish(content: dict[str, Any], text: Callable[[], str], form: str) -> None:
  """Print what a run came to, in the first of several processes."""
  from as2jax.runtime import processes

  processes.stop()
  if processes.first():
    rows = ({"metric": name, **entry} for name, entry in content["metrics"].items())
    output.emit(form, rows, text)


@app.command(
  "list", epilog=examples("as2jax list jobs", "as2jax list words", "as2jax list keys wikiqa_cassie")
)
def list_names(
  kind: Annotated[
    Literal["jobs", "recipes", "words", "models", "encoders", "keys"],
    Argument(help="words stand behind a job's colon; keys are those of a job"),
  ],
  job: Annotated[str, Argument(help="whose keys are listed")] = "wikiqa_triplet",
  form: output.Form = "text",
) -> None:
  """Lists jobs, recipes, words, models, encoders or keys."""
  from as2jax.config import jobs, recipes, words
  from as2jax.config.overrides import flatten
  from as2jax.runtime import registry

  if kind == "keys":
    rows = [{"key": key, "value": value} for key, value in flatten(jobs.load(job)).items()]
    lines = [(row["key"], repr(row["value"])) for row in rows]
    output.emit(form, rows, lambda: output.columns(lines))
    return
  described = {"recipes": recipes.SYSTEMS, "words": words.WORDS}.get(kind, {})
  about: dict[str, Any] = {name: recipe.__doc__ for name, recipe in described.items()}
  if kind == "jobs":
    about = {name: _docstring(jobs.folder() / f"{name}.py") for name in jobs.names()}
  elif kind == "recipes":
    about |= recipes.LEXICAL | recipes.UNTRAINED
  classes = {"models": registry.MODELS, "encoders": registry.ENCODERS}.get(kind, {})
  for name, target in classes.items():
    module, _, inside = target.partition(":")
    path = pathlib.Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")
    about[name] = _docstring(path, inside)
  rows = [{"name": name, "about": text.partition("\n")[0]} for name, text in about.items()]
  output.emit(form, rows, lambda: output.columns(row.values() for row in rows))


def _docstring(path: pathlib.Path, inside: str = "") -> str:
  """Return the docstring of a module, or of a class in it, which is not imported."""
  module = ast.parse(path.read_bytes())
  for node in module.body:
    if isinstance(node, ast.ClassDef) and node.name == inside:
      return ast.get_docstring(node) or ""
  return ast.get_docstring(module) or ""
