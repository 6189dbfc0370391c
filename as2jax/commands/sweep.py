"""`as2jax lab sweep`: runs a sweep on this machine, collects its table."""

from typing import Annotated

import typer
from typer.core import TyperGroup

from as2jax.commands.output import examples
from as2jax.commands.train import Set
from as2jax.runtime.errors import InputError

Parallel = Annotated[
  int, typer.Option(min=0, help="runs at a time; 0 only collects what is finished")
]
ManySeeds = Annotated[
  str, typer.Option("--seeds", metavar="N", help="3 is 0, 1, 2; or such as 0,4; else the config's")
]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="a sweep's folder (its --output)")]
Split = Annotated[
  str,
  typer.Option("--table", metavar="SPLIT", help="split of the table (default: that which chooses)"),
]


class WithDefault(TyperGroup):
  """A group whose command `run` is meant where none is named."""

  def parse_args(self, ctx, args):
    """Puts in the command that is meant."""
    return super().parse_args(ctx, self.meant(args))

  def meant(self, args: list[str]) -> list[str]:
    """Return the words with the name of the command before them."""
    if not args or args[0] in (*self.commands, "--help", "-h"):
      return args
    return ["run", *args]


app = typer.Typer(
  cls=WithDefault,
  help="Runs a grid or a sweep file; without a command: run.",
  no_args_is_help=True,
  epilog=examples(
    "as2jax lab sweep --base=wikiqa_triplet:minilm --grid optimizer.rate=1e-5,2e-5 -o runs/rates",
    "as2jax lab sweep configs/ablations/cete_grid.py --parallel=2 -o runs/grid",
    "as2jax lab sweep collect runs/grid                 on Cloud TPUs: launch/sky.yaml",
  ),
)


@app.command()
def run(
  target: Annotated[str, typer.Option("-o", "--output", metavar="FOLDER", help="runs and tables")],
  file: Annotated[
    str, typer.Argument(metavar="[FILE]", help="a sweep file, configs/ablations/cete_grid.py")
  ] = "",
  base: Annotated[str, typer.Option(metavar="JOB", help="the job")] = "",
  axes: Annotated[
    list[str], typer.Option("--grid", metavar="KEY=A,B", help="values of a key; several: all pairs")
  ] = [],  # noqa: B006
  settings: Set = [],  # noqa: B006
  seeds: ManySeeds = "",
  parallel: Parallel = 1,
  split: Split = "",
  prepare: Annotated[
    int | None,
    typer.Option(min=0, metavar="K", help="runs nothing: writes run K's config, prints its folder"),
  ] = None,
) -> None:
  """Runs a grid or a sweep file. Every point and seed; the same command goes on after a stop."""
  import pathlib

  from as2jax.config import jobs as job_files
  from as2jax.config import overrides
  from as2jax.experiments.sweeps import local_executor
  from as2jax.experiments.sweeps import points as sweep_points

  if bool(file) == bool(axes) or (axes and not base):
    raise InputError("give a sweep file, or --base=JOB with --grid KEY=A,B")
  if "://" in target:
    raise InputError(f"--output={target}: runs on this machine want a local folder")
  named, points = sweep_points.load(file) if file else (base, sweep_points.grid(base, axes))
  base = base or named
  folder = pathlib.Path(target).absolute()
  jobs = sweep_points.plan(
    base,
    points,
    seeds=overrides.seeds_of(seeds) if seeds else (),
    settings=overrides.parse(job_files.load(base), settings),
  )
  if prepare is not None:
    if prepare >= len(jobs):
      raise InputError(f"--prepare={prepare}: the sweep has {len(jobs)} runs, from 0 on")
    local_executor.write_config(folder / jobs[prepare].id, jobs[prepare])
    print(folder / jobs[prepare].id)
    return
  sweep_points.write_manifest(folder, jobs)
  failed = local_executor.execute(jobs, folder, parallel=parallel) if parallel else {}
  from as2jax.experiments.sweeps import table  # with numpy and all that reads results

  print(table.collect(folder, jobs, split))
  raise typer.Exit(int(bool(failed)))


@app.command()
def collect(place: Folder, split: Split = "") -> None:
  """Makes the table of a sweep's finished runs. Names those that have begun and have no results."""
  import pathlib

  from as2jax.experiments.sweeps import points, table

  folder = pathlib.Path(place)
  print(table.collect(folder, points.read_manifest(folder), split))
