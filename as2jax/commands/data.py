"""`as2jax data`: the data sets that there are, and files of one's own."""

from typing import Annotated

import typer

from as2jax.commands import output
from as2jax.commands.output import examples

app = typer.Typer(help="Data sets: what there is, counts, other forms.", no_args_is_help=True)
PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
Root = Annotated[str, typer.Option(metavar="FOLDER", help="of the data (default: $AS2JAX_DATA)")]
Cache = Annotated[str, typer.Option(metavar="FOLDER", help="of prepared copies ($AS2JAX_CACHE)")]


@app.command("list", epilog=examples("as2jax data list"))
def list_sets(root: Root = "", cache: Cache = "", form: output.Form = "auto") -> None:
  """Lists the data sets. And whether their files are here."""
  from as2jax.data.datasets.dataset import SPECS
  from as2jax.data.datasets.files_on_disk import lacking
  from as2jax.runtime.folders import cache_folder, data_folder

  folder, downloads = data_folder(root), cache_folder(cache) / "downloads"
  rows = [
    {"name": name, "lacks": [str(file) for file in lacking(spec, folder, downloads / name)]}
    for name, spec in SPECS.items()
  ]
  told = lambda row: f"not here: {', '.join(row['lacks'])}" if row["lacks"] else "here"
  output.emit(form, rows, lambda: output.columns((row["name"], told(row)) for row in rows))


@app.command(epilog=examples("as2jax data check wikiqa"))
def check(
  name: Annotated[str, typer.Argument(help="a data set's, or all")],
  root: Root = "",
  cache: Cache = "",
  download: Annotated[bool, typer.Option(help="whether a public archive may be fetched")] = True,
  form: output.Form = "auto",
) -> None:
  """Prints a data set's card. Status 1 where counts differ from the published ones."""
  from as2jax.data import checks

  options = {"root": root, "cache": cache, "download": download, "check": False}
  raise typer.Exit(checks.check(name, options, as_json=output.as_json(form)))


@app.command(context_settings=PASS_ON, add_help_option=False)
def squad(context: typer.Context) -> None:
  """Writes SQuAD in ASNQ's form. --help shows its options."""
  from as2jax.data.datasets import squad_rerank

  raise typer.Exit(squad_rerank.main(context.args))


@app.command(context_settings=PASS_ON, add_help_option=False)
def yahoo(context: typer.Context) -> None:
  """Builds YahooCQA from raw files. --help shows its options."""
  from as2jax.data.datasets import yahoo_raw

  raise typer.Exit(yahoo_raw.main(context.args))
