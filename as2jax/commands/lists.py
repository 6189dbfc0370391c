"""`as2jax list`: what the command knows by name."""

import ast
from collections.abc import Mapping
from typing import Annotated

import typer

from as2jax.commands import complete, output

app = typer.Typer(
  help="Lists jobs, recipes, models, encoders, presets or keys.", no_args_is_help=True
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

  told = lambda name: known.TRAINED[name].__doc__ if name in known.TRAINED else "A baseline."
  _print(form, {name: told(name).splitlines()[0] for name in known.NAMES})


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
def presets(form: output.Form = "auto") -> None:
  """Lists the words that may follow a job: as2jax train wikiqa_triplet:minilm,grouped."""
  from as2jax.config import presets as known

  words = {**known.ARGUMENTS, **known.POOLS}
  _print(form, {word: (preset.__doc__ or "").splitlines()[0] for word, preset in words.items()})


@app.command()
def keys(
  job: Annotated[
    str, typer.Argument(help="the job whose values are shown", autocompletion=complete.jobs)
  ] = "wikiqa_triplet",
  form: output.Form = "auto",
) -> None:
  """Lists a job's keys with their values: as2jax train --set KEY=VALUE."""
  from as2jax.config import flags
  from as2jax.config.flat import flatten

  rows = [{"key": key, "value": value} for key, value in flatten(flags.load(job)).items()]
  output.emit(form, rows, lambda: output.columns((row["key"], repr(row["value"])) for row in rows))


def _print(form: str, descriptions: Mapping[str, str]) -> None:
  rows = [{"name": name, "about": about} for name, about in descriptions.items()]
  output.emit(form, rows, lambda: output.columns(descriptions.items()))


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
