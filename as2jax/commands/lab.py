"""`as2jax lab`: what a researcher does with many runs, chips and papers."""

from typing import Annotated

import typer

from as2jax.commands import sweep
from as2jax.commands.output import examples
from as2jax.commands.sweep import ManySeeds, Parallel
from as2jax.commands.train import Set
from as2jax.runtime.errors import InputError

app = typer.Typer(
  help="Sweeps, papers' tables, compilation for TPUs, benchmarks.", no_args_is_help=True
)
app.add_typer(sweep.app, name="sweep")
PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@app.command(
  epilog=examples(
    "as2jax lab paper                                   (lists the tables)",
    "as2jax lab paper asbert_table3 --words=minilm --list",
    "as2jax lab paper rerankers --runs=runs --no-train      (fills it from what lies in runs/)",
  )
)
def paper(
  tables: Annotated[list[str], typer.Argument(metavar="[TABLE]...", help="see without one")] = [],  # noqa: B006
  target: Annotated[
    str, typer.Option("-o", "--output", metavar="FOLDER", help="runs and tables")
  ] = "runs/papers",
  only_list: Annotated[bool, typer.Option("--list", help="what would be run, what not")] = False,
  parallel: Parallel = 1,
  seeds: ManySeeds = "",
  words: Annotated[
    str, typer.Option(help="further words of the jobs, such as minilm, which the table then says")
  ] = "",
  settings: Set = [],  # noqa: B006
  runs: Annotated[
    list[str],
    typer.Option(metavar="FOLDER", help="finished runs, taken for rows that have their config"),
  ] = [],  # noqa: B006
  train: Annotated[
    bool, typer.Option(help="trains the other rows; if not, only what takes no step is run")
  ] = True,
) -> None:
  """Fills a paper's table. Our figures stand beside the published ones."""
  import pathlib

  from as2jax.config import overrides
  from as2jax.experiments.papers import plan, rows
  from as2jax.experiments.papers import tables as paper_tables
  from as2jax.experiments.sweeps import points

  if not tables:
    for name, table in rows.paper_tables().items():
      print(f"{name:20s} {table.title}")
    return
  if "://" in target:
    raise InputError(f"--output={target}: give a local folder")
  choice = plan.Choice(
    tuple(filter(None, words.split(","))),
    points.settings_of(settings),
    overrides.seeds_of(seeds) if seeds else (),
  )
  output = pathlib.Path(target).absolute()
  raise typer.Exit(
    max(
      paper_tables.make(
        name,
        output,
        choice,
        parallel=parallel,
        only_list=only_list,
        runs=tuple(map(pathlib.Path, runs)),
        train=train,
      )
      for name in tables
    )
  )


@app.command(
  epilog=examples(
    "as2jax lab controlled                              (lists the tasks)",
    "as2jax lab controlled context --seeds=3",
  )
)
def controlled(
  tasks: Annotated[list[str], typer.Argument(metavar="[TASK]...", help="see without one")] = [],  # noqa: B006
  target: Annotated[
    str, typer.Option("-o", "--output", metavar="FOLDER", help="runs and encoders")
  ] = "runs/controlled",
  seeds: ManySeeds = "3",
  settings: Set = [],  # noqa: B006
) -> None:
  """Trains systems and their ablations on generated data. Only the mechanism can answer there."""
  import pathlib

  from as2jax.config import overrides
  from as2jax.experiments import controlled as controlled_tasks
  from as2jax.experiments.sweeps import points

  if not tasks:
    for name, task in controlled_tasks.TASKS.items():
      print(f"{name:12s} {', '.join(task.systems)}: {task.about}")
    return
  how = {"seeds": overrides.seeds_of(seeds), "settings": points.settings_of(settings)}
  for name in tasks:
    controlled_tasks.check(name)
  for name in tasks:
    print(controlled_tasks.run(name, pathlib.Path(target).absolute(), **how), end="\n\n")


@app.command(
  "compile",
  epilog=examples(
    "as2jax lab compile wikiqa_triplet:roberta --topology=v5e:16x16 --set encoder.remat=true"
  ),
)
def compile_for(
  job: Annotated[str, typer.Argument()],
  topology: Annotated[str, typer.Option(help="chip and shape of the slice")] = "v5e:1x1",
  settings: Set = [],  # noqa: B006
) -> None:
  """Compiles a job's steps for absent TPUs. Memory, work, traffic; status 1 where it does not fit."""
  from as2jax.config import jobs as job_files
  from as2jax.config import overrides
  from as2jax.experiments.compile import aot

  config = job_files.load(job)
  raise typer.Exit(aot.run(overrides.apply(config, overrides.parse(config, settings)), topology))


@app.command(
  epilog=examples(
    "as2jax lab vectors --data=wikiqa --dimension=100 --treebank -o vectors.txt",
    "as2jax lab vectors --text=texts.txt -o vectors.txt",
  )
)
def vectors(
  target: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="of the vectors")],
  data: Annotated[str, typer.Option(metavar="NAME", help="a data set, its training split")] = "",
  text: Annotated[str, typer.Option(metavar="FILE", help="UTF-8, a text a line")] = "",
  dimension: Annotated[int, typer.Option(min=1, help="numbers of a vector")] = 300,
  epochs: Annotated[int, typer.Option(min=1)] = 5,
  min_count: Annotated[int, typer.Option(min=1, help="of a word that gets a vector")] = 2,
  seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
  cased: Annotated[bool, typer.Option("--cased", help="keep case")] = False,
  treebank: Annotated[
    bool, typer.Option("--treebank", help="words as GloVe has them: do n't, John 's, u.s.")
  ] = False,
) -> None:
  """Trains word vectors. Skip-gram on a data set or a text file."""
  import json

  from as2jax.experiments import train_vectors

  texts, told = train_vectors.source(data, text)
  settings = train_vectors.Settings(dimension, epochs, min_count, seed, not cased, treebank)
  print(json.dumps(train_vectors.train(texts, target, settings, told), indent=2))


@app.command(
  epilog=examples(
    "as2jax lab mine runs/x wikiqa -o negatives",
    "as2jax lab mine runs/x,bm25 train.tsv --exclude=test.tsv --judge=runs/cross -o negatives",
    "as2jax train recommended:fast -o runs/y --set data.mined=\"('negatives',)\"",
  )
)
def mine(
  miners: Annotated[
    str, typer.Argument(metavar="RANKER", help="a bi-encoder, bm25, random, or several: a,b")
  ],
  data: Annotated[str, typer.Argument(help="a data set's name, or a file of training questions")],
  target: Annotated[str, typer.Option("-o", "--output", metavar="FOLDER", help="a new folder")],
  passages: Annotated[str, typer.Option(metavar="FILE", help="further texts, one a line")] = "",
  exclude: Annotated[
    list[str],
    typer.Option(metavar="FILE", help="whose questions are kept out: your dev and test files"),
  ] = [],  # noqa: B006
  ranks: Annotated[str, typer.Option(metavar="M:N", help="of the passages looked at")] = "1:100",
  count: Annotated[int, typer.Option(help="negatives a question, at most")] = 8,
  below: Annotated[float, typer.Option(help="share of the worst positive's score")] = 0.95,
  judge: Annotated[str, typer.Option(metavar="RANKER", help="a cross-encoder as a filter")] = "",
  seed: Annotated[int, typer.Option(min=0, help="of what is drawn")] = 0,
) -> None:
  """Mines hard negatives. Passages that rank high and do not answer; the same command goes on."""
  import json

  from as2jax.commands import documents
  from as2jax.experiments import mine as mining

  first, _, last = ranks.partition(":")
  if not (first.isdigit() and last.isdigit()):
    raise InputError(f"--ranks={ranks}: give the first and the last rank, such as 10:100")
  settings = mining.Settings(int(first), int(last), count, below, judge, seed)
  questions, kept_out = mining.training_questions(data, exclude)
  content = mining.mine(
    miners,
    questions,
    target,
    settings,
    passages=documents.read(passages)[1] if passages else (),
    kept_out=kept_out,
    source=data,
  )
  print(json.dumps(content, indent=2, ensure_ascii=False))


@app.command(
  epilog=examples(
    "as2jax lab distill wikiqa -o soft --cross-fit=recommended:accurate,minilm",
    "as2jax lab distill pairs.jsonl -o soft --teacher=runs/cross --teacher=other.jsonl",
    "as2jax train recommended:fast,distil -o runs/y --set data.teachers=\"('soft',)\"",
  )
)
def distill(
  data: Annotated[str, typer.Argument(help="a data set's name, or a file; labels are not needed")],
  target: Annotated[str, typer.Option("-o", "--output", metavar="FOLDER", help="a new folder")],
  teachers: Annotated[
    list[str],
    typer.Option(
      "--teacher", metavar="TEACHER", help="a run, a published ranker, a file of scores"
    ),
  ] = [],  # noqa: B006
  cross_fit: Annotated[
    str, typer.Option(metavar="JOB", help="a job to train on all folds but the one it scores")
  ] = "",
  folds: Annotated[int, typer.Option(help="of --cross-fit")] = 2,
  settings: Set = [],  # noqa: B006
  mined: Annotated[
    list[str], typer.Option(metavar="FOLDER", help="of lab mine: score its candidates, too")
  ] = [],  # noqa: B006
  allow_seen: Annotated[
    bool, typer.Option("--allow-seen", help="score what a teacher was trained on")
  ] = False,
) -> None:
  """Scores training questions by teachers. Soft labels for `data.teachers`; several are averaged."""
  from as2jax.config import jobs as job_files
  from as2jax.config import overrides
  from as2jax.experiments import distil
  from as2jax.experiments import mine as mining

  if settings and not cross_fit:
    raise InputError("--set is for the job of --cross-fit")
  job = None
  if cross_fit:
    values = overrides.parse(job_files.load(cross_fit), settings)
    job = distil.CrossFit(cross_fit, folds, values)
  content = distil.distil(
    mining.to_score(data, mined),
    target,
    teachers,
    cross_fit=job,
    allow_seen=allow_seen,
    source=data,
  )
  print(f"{target}: {content['pairs']} pairs of {content['questions']} questions scored")


@app.command(
  epilog=examples(
    "as2jax lab measured --missing                      (the commands of rows without results)",
    "as2jax lab measured --collect runs/wikiqa-bm25",
    "as2jax lab measured --write",
  )
)
def measured(
  tables: Annotated[list[str], typer.Argument(metavar="[TABLE]...", help="all by default")] = [],  # noqa: B006
  collect: Annotated[
    list[str],
    typer.Option(metavar="[NAME=]FOLDER", help="takes a finished run into configs/papers/results"),
  ] = [],  # noqa: B006
  write: Annotated[bool, typer.Option("--write", help="puts the tables into the READMEs")] = False,
  missing: Annotated[
    bool, typer.Option("--missing", help="prints the commands of rows without results")
  ] = False,
) -> None:
  """Prints our measured figures. Made from the results that a clone keeps."""
  from as2jax.experiments.papers import measured as figures

  if text := figures.run(tables, collect=collect, write=write, missing=missing):
    print(text)


@app.command(
  context_settings=PASS_ON,
  add_help_option=False,
  epilog=examples("as2jax lab bench train", "as2jax lab bench rank rank10 --record"),
)
def bench(context: typer.Context) -> None:
  """Runs a kind of benchmark, in a clone. Ours beside PyTorch; --help shows kinds and options."""
  import os
  import pathlib
  import subprocess
  import sys

  from as2jax.runtime.devices import huge_pages_environment

  root = pathlib.Path(__file__).resolve().parents[2]
  if not (root / "launch" / "benchmarks").is_dir():
    raise InputError("benchmarks are no part of the package: run this in a clone of the repository")
  # Files that the user names lie where the command was given.
  paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
  environment = huge_pages_environment({**os.environ, "PYTHONPATH": paths})
  command = [sys.executable, "-m", "launch.benchmarks", *(context.args or ["--help"])]
  raise typer.Exit(subprocess.run(command, env=environment).returncode)
