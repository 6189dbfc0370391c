"""`as2jax data`: the data sets that there are, and files of one's own."""

from typing import Annotated, Literal

import typer
from typer import Argument, Option

from as2jax.commands import output
from as2jax.commands.output import examples, option
from as2jax.commands.train import AllowCode, Columns, Drop
from as2jax.runtime.errors import InputError

app = typer.Typer(help="Data sets: what there is, counts, other forms.", no_args_is_help=True)
Root = option("of the data (default: $AS2JAX_DATA)", metavar="FOLDER")
Cache = option("of prepared copies ($AS2JAX_CACHE)", metavar="FOLDER")


@app.command("list", epilog=examples("as2jax data list"))
def list_sets(root: Root = "", cache: Cache = "", form: output.Form = "text") -> None:
  """Lists the data sets. And whether their files are here, or those of which splits."""
  from as2jax.data.dataset import SPECS
  from as2jax.data.source import located
  from as2jax.runtime.files import cache_folder, data_folder

  folder, downloads = data_folder(root), cache_folder(cache) / "downloads"
  rows, told = [], []
  for name, spec in SPECS.items():
    source = located(spec, folder, downloads / name)
    row = {"name": name, "splits": list(source.files), "lacks": source.lacks}
    rows.append(row)
    here = "here"
    if row["lacks"]:
      here = f"here: {', '.join(row['splits'])}; " if row["splits"] else ""
      here += f"not here: {', '.join(row['lacks'])}"
    told.append((name, here))
  output.emit(form, rows, lambda: output.columns(told))


@app.command(
  epilog=examples(
    "as2jax data check wikiqa",
    "as2jax data check train.csv dev.csv --columns question=query,label=is_correct",
  )
)
def check(
  names: Annotated[
    list[str], Argument(metavar="NAME|FILE...", help="data sets, or all; or your own files")
  ],
  columns: Columns = "",
  drop: Drop = False,
  root: Root = "",
  cache: Cache = "",
  download: Annotated[bool, Option(help="whether a public archive may be fetched")] = True,
  form: output.Form = "text",
) -> None:
  """Prints a data set's card. Counts, balance, lengths, duplicates, overlap of splits.

  Status 1 where counts differ from the published ones.
  """
  import os

  from as2jax.data import card
  from as2jax.data.dataset import SPECS
  from as2jax.data.tables import is_hub

  as_json = form == "json"
  known = [name for name in names if name in SPECS or name == "all"]
  if not known and any(
    os.path.exists(name) or "." in name or "/" in name or is_hub(name) for name in names
  ):
    raise typer.Exit(card.check_files(names, columns, drop=drop, as_json=as_json))
  if columns or drop:
    raise InputError("--columns and --drop are for your own files")
  options = {"root": root, "cache": cache, "download": download, "check": False}
  raise typer.Exit(max(card.check(name, options, as_json=as_json) for name in names))


@app.command(
  epilog=examples(
    "as2jax data convert faq.csv faq.jsonl --columns question=query --drop",
    "as2jax data convert wikiqa:dev dev.csv",
    "as2jax data convert hub:asnq:dev asnq.jsonl",
  )
)
def convert(
  source: Annotated[
    str, Argument(metavar="FILE|NAME:SPLIT", help=".csv, .tsv, .jsonl or .parquet")
  ],
  target: Annotated[str, Argument(metavar="TARGET", help="one of these forms, by its suffix")],
  columns: Columns = "",
  drop: Drop = False,
  excel: output.Excel = False,
) -> None:
  """Writes a file in another form. With the common names of columns; other columns stay."""
  from as2jax.data import card

  if excel:
    output.check_excel(target)
  print(f"written: {card.convert(source, target, columns, drop=drop, excel=excel)}")


@app.command(
  "near-duplicates", epilog=examples("as2jax data near-duplicates runs/bm25 runs/x --threshold=0.9")
)
def near_duplicates(
  runs: Annotated[list[str], Argument(metavar="RUN...")],
  split: Annotated[str, Option(help="whose texts are looked for in train")] = "test",
  encoder: Annotated[str, Option(help="whose vectors are compared; MiniLM without")] = "",
  threshold: Annotated[float, Option(min=0, max=1, help="of the cosine")] = 0.95,
  allow_code: AllowCode = False,
  form: output.Form = "text",
) -> None:
  """Counts test texts that the training data hold, too. And runs' metrics without them."""
  from as2jax.config import words
  from as2jax.evaluation import tables
  from as2jax.experiments import near_duplicates as texts

  how = {"encoder": encoder or words.MINILM, "threshold": threshold, "allow_code": allow_code}
  content = texts.report(runs, split=split, **how)
  rows = content["metrics"]
  output.emit(form, [content], lambda: f"{output.facts(content)}\n\n{tables.render(rows, left=3)}")


@app.command(epilog=examples("as2jax data squad train-v1.1.json train.tsv --split=train"))
def squad(
  file: Annotated[str, Argument(metavar="FILE", help="of SQuAD 1.1")],
  target: Annotated[str, Argument(metavar="TARGET", help="in ASNQ's form, with a header")],
  split: Annotated[Literal["train", "dev", "test"], Option(help="test: all articles")] = "test",
) -> None:
  """Writes SQuAD in ASNQ's form. A question's candidates are the sentences of nearby paragraphs."""
  from as2jax.data import tables
  from as2jax.data.readers import asnq
  from as2jax.data.readers import squad as reader

  tables.check_target(target, "TARGET", source=file, forms=("",))
  rows = reader.asnq_rows(file, split=split)
  print(f"{target}: {asnq.write_asnq(target, rows)} rows")
