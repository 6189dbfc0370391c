"""`as2jax lab`: what a researcher does with many runs, chips and papers."""

from typing import Annotated

import typer
from typer import Argument, Option

from as2jax.commands import output
from as2jax.commands.output import examples, option
from as2jax.commands.train import AllowCode, Label, Set
from as2jax.runtime.errors import InputError

Parallel = Annotated[int, Option(min=0, help="runs at a time; 0 only collects what is finished")]
ManySeeds = option("3 is 0, 1, 2; or such as 0,4; else the config's", "--seeds", metavar="N")
NewFolder = option("a new folder", "-o", "--output", metavar="FOLDER")
Runs = option("of runs and tables", "-o", "--output", metavar="FOLDER")


app = typer.Typer(help="Sweeps, papers' tables, compilation for TPUs.", no_args_is_help=True)


@app.command(
  "sweep",
  epilog=examples(
    "as2jax lab sweep --base=wikiqa_triplet:minilm --grid optimizer.rate=1e-5,2e-5 -o runs/rates",
    "as2jax lab sweep configs/ablations/cete_grid.py --parallel=2 -o runs/grid",
    "as2jax lab sweep configs/ablations/cete_grid.py --parallel=0 -o runs/grid    (its table alone)",
  ),
)
def run_sweep(
  target: Runs,
  file: Annotated[str, Argument(metavar="[FILE]", help="a sweep file")] = "",
  base: option("the job", metavar="JOB") = "",
  axes: option("values of a key", "--grid", metavar="KEY=A,B", kind=list[str]) = [],
  settings: Set = [],
  seeds: ManySeeds = "",
  parallel: Parallel = 1,
  prepare: Annotated[
    int | None, Option(min=0, metavar="K", help="runs nothing: writes run K's config")
  ] = None,
  allow_code: AllowCode = False,
) -> None:
  """Runs a grid or a sweep file. Every point and seed; the same command goes on after a stop."""
  import pathlib

  from as2jax.config import jobs as job_files
  from as2jax.config import overrides
  from as2jax.experiments import sweep

  if bool(file) == bool(axes) or (axes and not base):
    raise InputError("give a sweep file, or --base=JOB with --grid KEY=A,B")
  if "://" in target:
    raise InputError(f"--output={target}: runs on this machine want a local folder")
  named, points = sweep.load(file) if file else (base, [])
  base = base or named
  start = job_files.load(base, allow_code)
  points = points or sweep.grid(base, axes)
  folder = pathlib.Path(target).absolute()
  jobs = sweep.plan(
    base,
    points,
    seeds=overrides.seeds_of(seeds) if seeds else (),
    settings=overrides.parse(start, settings),
  )
  if prepare is not None:
    if prepare >= len(jobs):
      raise InputError(f"--prepare={prepare}: the sweep has {len(jobs)} runs, from 0 on")
    sweep.write_config(folder / jobs[prepare].id, jobs[prepare])
    print(folder / jobs[prepare].id)
    return
  sweep.write_manifest(folder, jobs)
  failed = sweep.execute(jobs, folder, parallel=parallel) if parallel else {}
  print(sweep.collect(folder, jobs))
  raise typer.Exit(int(bool(failed)))


@app.command(
  epilog=examples(
    "as2jax lab paper                                   (lists the tables)",
    "as2jax lab paper asbert_table3 --words=minilm --parallel=0 (what would be run, what not)",
    "as2jax lab paper rerankers --runs=runs --parallel=0        (fills it from what lies in runs/)",
  )
)
def paper(
  tables: Annotated[list[str], Argument(metavar="[TABLE]...", help="see without one")] = [],
  target: Runs = "runs/papers",
  parallel: Parallel = 1,
  seeds: ManySeeds = "",
  words: Annotated[str, Option(help="further words of the jobs, which the table then says")] = "",
  settings: Set = [],
  runs: option("finished runs, for rows of their config", metavar="FOLDER", kind=list[str]) = [],
) -> None:
  """Fills a paper's table. Our figures stand beside the published ones."""
  import pathlib

  from as2jax.config import overrides
  from as2jax.experiments import sweep
  from as2jax.experiments.papers import plan, rows
  from as2jax.experiments.papers import tables as paper_tables

  if not tables:
    for name, table in rows.paper_tables().items():
      print(f"{name:20s} {table.title}")
    return
  if "://" in target:
    raise InputError(f"--output={target}: give a local folder")
  choice = plan.Choice(
    tuple(filter(None, words.split(","))),
    sweep.settings_of(settings),
    overrides.seeds_of(seeds) if seeds else (),
  )
  failed = 0
  for name in tables:
    how = {"parallel": parallel, "runs": list(map(pathlib.Path, runs))}
    failed |= paper_tables.make(name, pathlib.Path(target).absolute(), choice, **how)
  raise typer.Exit(failed)


@app.command(
  epilog=examples(
    "as2jax lab controlled                              (lists the tasks)",
    "as2jax lab controlled context --seeds=3",
  )
)
def controlled(
  tasks: Annotated[list[str], Argument(metavar="[TASK]...", help="see without one")] = [],
  target: Runs = "runs/controlled",
  seeds: ManySeeds = "3",
  settings: Set = [],
) -> None:
  """Trains systems and their ablations on generated data. Only the mechanism can answer there."""
  import pathlib

  from as2jax.config import overrides
  from as2jax.experiments import controlled as controlled_tasks
  from as2jax.experiments import sweep

  if not tasks:
    for name, task in controlled_tasks.TASKS.items():
      print(f"{name:12s} {', '.join(task.systems)}: {task.about}")
    return
  how = {"seeds": overrides.seeds_of(seeds), "settings": sweep.settings_of(settings)}
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
  job: str,
  topology: Annotated[str, Option(help="chip and shape of the slice")] = "v5e:1x1",
  settings: Set = [],
  allow_code: AllowCode = False,
) -> None:
  """Compiles a job's steps for absent TPUs. Memory, work, traffic; status 1 where it does not fit."""
  from as2jax.config import jobs as job_files
  from as2jax.config import overrides
  from as2jax.experiments import compile as compiled

  config = job_files.load(job, allow_code)
  raise typer.Exit(
    compiled.run(overrides.apply(config, overrides.parse(config, settings)), topology)
  )


@app.command(
  epilog=examples(
    "as2jax lab vectors --data=wikiqa --dimension=100 --treebank -o vectors.txt",
    "as2jax lab vectors --text=texts.txt -o vectors.txt",
  )
)
def vectors(
  target: option("of the vectors", "-o", "--output", metavar="FILE"),
  data: option("a data set, its training split", metavar="NAME") = "",
  text: option("UTF-8, a text a line", metavar="FILE") = "",
  dimension: Annotated[int, Option(min=1, help="numbers of a vector")] = 300,
  epochs: Annotated[int, Option(min=1)] = 5,
  min_count: Annotated[int, Option(min=1, help="of a word that gets a vector")] = 2,
  seed: Annotated[int, Option(min=0, max=2**32 - 1)] = 0,
  cased: option("keep case", "--cased", kind=bool) = False,
  treebank: option(
    "words as GloVe has them: do n't, John 's, u.s.", "--treebank", kind=bool
  ) = False,
  form: output.Form = "text",
) -> None:
  """Trains word vectors. Skip-gram on a data set or a text file."""
  from as2jax.experiments import train_vectors

  texts, told = train_vectors.source(data, text)
  content = train_vectors.train(
    texts,
    target,
    told,
    dimension=dimension,
    epochs=epochs,
    min_count=min_count,
    seed=seed,
    lower=not cased,
    treebank=treebank,
  )
  output.emit(form, [content], lambda: output.facts(content))


@app.command(
  epilog=examples(
    "as2jax lab mine runs/x wikiqa -o negatives",
    "as2jax lab mine runs/x,bm25 train.tsv --exclude=test.tsv -o negatives",
    "as2jax train recommended:fast -o runs/y --set data.mined=\"('negatives',)\"",
  )
)
def mine(
  miners: Annotated[str, Argument(metavar="RANKER", help="a bi-encoder, bm25, random, or several")],
  data: Annotated[str, Argument(help="a data set's name, or a file of training questions")],
  target: NewFolder,
  passages: option("further texts, one a line", metavar="FILE") = "",
  exclude: option("whose questions are kept out", metavar="FILE", kind=list[str]) = [],
  ranks: option("of the passages looked at", metavar="M:N") = "1:100",
  count: Annotated[int, Option(min=1, help="negatives a question, at most")] = 8,
  below: Annotated[float, Option(min=0.0, help="share of the worst positive's score")] = 0.95,
  seed: Annotated[int, Option(min=0, help="of what is drawn")] = 0,
  allow_code: AllowCode = False,
  form: output.Form = "text",
) -> None:
  """Mines hard negatives. Passages that rank high and do not answer; the same command goes on."""
  from as2jax.commands import documents
  from as2jax.experiments import mine as mining

  first, _, last = ranks.partition(":")
  if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
    raise InputError(f"--ranks={ranks}: give the first and the last rank, such as 10:100")
  settings = mining.Settings(int(first), int(last), count, below, seed)
  questions, kept_out = mining.training_questions(data, exclude)
  content = mining.mine(
    miners,
    questions,
    target,
    settings,
    passages=documents.read(passages, drop=True)[1] if passages else (),
    kept_out=kept_out,
    source=data,
    allow_code=allow_code,
  )
  output.emit(form, [content], lambda: output.facts(content))


@app.command(
  epilog=examples(
    "as2jax lab distill wikiqa -o soft --cross-fit=recommended:accurate,minilm",
    "as2jax lab distill pairs.jsonl -o soft --teacher=runs/cross --teacher=other.jsonl",
    "as2jax train recommended:fast,distil -o runs/y --set data.teachers=\"('soft',)\"",
  )
)
def distill(
  data: Annotated[str, Argument(help="a data set's name, or a file; labels are not needed")],
  target: NewFolder,
  teachers: option(
    "a run, a published ranker, a file of scores", "--teacher", metavar="TEACHER", kind=list[str]
  ) = [],
  cross_fit: option("a job to train on all folds but the one it scores", metavar="JOB") = "",
  folds: Annotated[int, Option(min=2, help="of --cross-fit")] = 2,
  settings: Set = [],
  mined: option("of lab mine: score its candidates, too", metavar="FOLDER", kind=list[str]) = [],
  allow_seen: option("score what a teacher was trained on", "--allow-seen", kind=bool) = False,
  label: Label = None,
  allow_code: AllowCode = False,
) -> None:
  """Scores training questions by teachers. Soft labels for `data.teachers`; several are averaged."""
  from as2jax.config import jobs as job_files
  from as2jax.config import overrides
  from as2jax.experiments import distil
  from as2jax.experiments import mine as mining

  if settings and not cross_fit:
    raise InputError("--set is for the job of --cross-fit")
  values = {}
  if cross_fit:
    values = overrides.parse(job_files.load(cross_fit, allow_code), settings)
  questions = mining.to_score(data, mined)
  options = {
    "cross_fit": cross_fit,
    "folds": folds,
    "overrides": values,
    "allow_seen": allow_seen,
    "source": data,
    "allow_code": allow_code,
    "label": label,
  }
  content = distil.distil(questions, target, teachers, **options)
  print(f"{target}: {content['pairs']} pairs of {content['questions']} questions scored")


@app.command(
  epilog=examples("as2jax lab order runs/loct runs/cassie             (on dev; then --split=test)")
)
def order(
  runs: Annotated[list[str], Argument(metavar="RUN...", help="finished runs of loct or cassie")],
  split: Annotated[list[str], Option(help="of the run's data; each is a look in its ledger")] = [
    "dev"
  ],
  allow_code: AllowCode = False,
) -> None:
  """Ranks with other neighbours. Whether a model reads an empty place as a position; trains nothing."""
  from as2jax.experiments import order as experiment

  print(experiment.run(runs, split, allow_code=allow_code))


@app.command(
  epilog=examples(
    "as2jax lab pruning First=runs/document-order BM25=runs/bm25 Fast=runs/fast",
    "as2jax lab pruning runs/fast Other=their.dev.run,their.test.run --format=markdown",
  )
)
def pruning(
  systems: Annotated[
    list[str], Argument(metavar="RUN...", help="[NAME=]FOLDER, or DEV.run,TEST.run")
  ],
  split: Annotated[str, Option(help="that is measured")] = "test",
  form: output.TableForm = "text",
) -> None:
  """Measures what rankers keep of documents. At dev's threshold, and as a curve; ranks nothing."""
  from as2jax.evaluation import tables
  from as2jax.experiments import pruning as experiment

  rows = experiment.table(systems, split)
  output.emit(form, rows, lambda: tables.render(rows, form))
  if form == "text":
    print(experiment.LEGEND)


@app.command(
  epilog=examples(
    "as2jax lab measured --missing                      (the commands of rows without results)",
    "as2jax lab measured --collect runs/wikiqa-bm25",
    "as2jax lab measured --write",
  )
)
def measured(
  collect: option(
    "takes a finished run into the results", metavar="[NAME=]FOLDER", kind=list[str]
  ) = [],
  write: option("puts the tables into the READMEs", "--write", kind=bool) = False,
  missing: option("the commands of rows without results", "--missing", kind=bool) = False,
  check: option(
    "computes every cell again; fails where a page differs", "--check", kind=bool
  ) = False,
) -> None:
  """Prints our measured figures. Made from the results that a clone keeps."""
  from as2jax.experiments.papers import measured as figures

  if text := figures.run(collect=collect, write=write, missing=missing, check=check):
    print(text)
