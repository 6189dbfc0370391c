"""`as2jax list`: what the command knows by name."""

import ast
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from as2jax.commands import output

app = typer.Typer(
  help="Lists jobs, recipes, words, models, encoders or keys.", no_args_is_help=True
)


@app.command()
def jobs(form: output.Form = "auto") -> None:
  """Lists the jobs: as2jax train JOB."""
  from as2jax.config import jobs as files

  folder = files.folder()
  _print(form, {name: _first_line((folder / f"{name}.py").read_text()) for name in files.names()})


@app.command()
def recipes(form: output.Form = "auto") -> None:
  """Lists the recipes for your own files: as2jax train --recipe=NAME."""
  from as2jax.config import recipes as known

  baselines = dict.fromkeys(known.BASELINES, "Rank without training (recipes.baseline).")
  _print(form, {**_first_lines(known.SYSTEMS), **baselines})


@app.command()
def words(form: output.Form = "auto") -> None:
  """Lists the words behind a job or a recipe: as2jax train wikiqa_triplet:minilm,grouped."""
  from as2jax.config import words as known

  _print(form, _first_lines({**known.WORDS, **known.POOLS}))


@app.command()
def models(form: output.Form = "auto") -> None:
  """Lists the systems: model.name."""
  from as2jax.runtime import registry

  _print(form, {name: _class_line(place) for name, place in registry.MODELS.items()})


@app.command()
def encoders(form: output.Form = "auto") -> None:
  """Lists the encoders: encoder.name."""
  from as2jax.runtime import registry

  _print(form, {name: _class_line(place) for name, place in registry.ENCODERS.items()})


@app.command()
def keys(
  job: Annotated[str, typer.Argument(help="the job whose values are shown")] = "wikiqa_triplet",
  form: output.Form = "auto",
) -> None:
  """Lists a job's keys with their values: as2jax train --set KEY=VALUE."""
  from as2jax.config import jobs as job_files
  from as2jax.config.overrides import flatten

  rows = [{"key": key, "value": value} for key, value in flatten(job_files.load(job)).items()]
  output.emit(form, rows, lambda: output.columns((row["key"], repr(row["value"])) for row in rows))


def _print(form: str, descriptions: Mapping[str, str]) -> None:
  rows = [{"name": name, "about": about} for name, about in descriptions.items()]
  output.emit(form, rows, lambda: output.columns(descriptions.items()))


def _first_lines(functions: Mapping[str, Callable]) -> dict[str, str]:
  return {name: (function.__doc__ or "").partition("\n")[0] for name, function in functions.items()}


def _first_line(source: str) -> str:
  return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _class_line(place: str) -> str:
  """The first line of the docstring of `module:Class`, which is not imported."""
  import importlib.util

  module, _, name = place.partition(":")
  spec = importlib.util.find_spec(module)
  with open(spec.origin, encoding="utf-8") as file:
    tree = ast.parse(file.read())
  for node in tree.body:
    if isinstance(node, ast.ClassDef) and node.name == name:
      return (ast.get_docstring(node) or "").partition("\n")[0]
  return ""
