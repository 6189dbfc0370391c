"""`as2jax lab sweep`: runs a sweep here, writes it for Cloud TPUs, and watches it there or here."""

from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from as2jax.commands import complete, output
from as2jax.commands.output import examples
from as2jax.commands.train import Set
from as2jax.runtime.errors import InputError

Parallel = Annotated[
  int, typer.Option(min=0, help="runs at a time; 0 only collects what is finished")
]
ManySeeds = Annotated[
  str, typer.Option("--seeds", metavar="N", help="3 is 0, 1, 2; or such as 0,4; else the config's")
]
Folder = Annotated[
  str, typer.Argument(metavar="DIR", help="a sweep's folder, or the bucket's that has its runs")
]
# What a sweep is, for whoever runs or writes it.
Target = Annotated[str, typer.Option("-o", "--output", metavar="FOLDER", help="runs and tables")]
File = Annotated[
  str, typer.Argument(metavar="[FILE]", help="a sweep file, configs/ablations/cete_grid.py")
]
Base = Annotated[str, typer.Option(metavar="JOB", help="the job", autocompletion=complete.jobs)]
Axes = Annotated[
  list[str], typer.Option("--grid", metavar="KEY=A,B", help="values of a key; several: all pairs")
]


class WithDefault(TyperGroup):
  """A group whose command `run` is meant where none is named, and `emit` with `--emit=KIND`."""

  def parse_args(self, ctx, args):
    """Puts in the command that is meant."""
    return super().parse_args(ctx, self.meant(args))

  def meant(self, args: list[str]) -> list[str]:
    """The words with the name of the command before them; `--emit=KIND` is `emit KIND`."""
    if not args or args[0] in ("--help", "-h"):
      return args
    if args[0] not in self.commands:
      args = ["run", *args]
    for i, word in enumerate(args if args[0] == "run" else ()):
      if word.startswith("--emit="):
        return ["emit", word.removeprefix("--emit="), *args[1:i], *args[i + 1 :]]
      if word == "--emit":
        return ["emit", *args[i + 1 : i + 2], *args[1:i], *args[i + 2 :]]
    return args


app = typer.Typer(
  cls=WithDefault,
  help="Runs a grid or a sweep file, here or on Cloud TPUs; without a command: run.",
  no_args_is_help=True,
  epilog=examples(
    "as2jax lab sweep --base=wikiqa_triplet:minilm --grid optimizer.rate=1e-5,2e-5 -o runs/rates",
    "as2jax lab sweep configs/ablations/cete_grid.py --parallel=2 -o runs/grid",
    "as2jax lab sweep configs/ablations/cete_grid.py -o runs/grid --emit=check --tpu=v5e-4",
    "as2jax lab sweep run --help, … emit --help         all options",
    "as2jax lab sweep status runs/grid --follow         here, or gs://BUCKET/grid",
  ),
)


@app.command()
def run(
  target: Target,
  file: File = "",
  base: Base = "",
  axes: Axes = [],  # noqa: B006
  settings: Set = [],  # noqa: B006
  seeds: ManySeeds = "",
  parallel: Parallel = 1,
  table: Annotated[
    Literal["", "dev", "test", "heldout"],
    typer.Option(help="split of the table (default: that which chooses)"),
  ] = "",
) -> None:
  """Runs a grid or a sweep file. Every point and seed; the same command goes on after a stop."""
  from as2jax.experiments.sweeps import sweep as sweeps

  base, points, options = _planned_from(file, base, axes, settings, seeds)
  raise typer.Exit(sweeps.sweep(base, points, target, **options, parallel=parallel, split=table))


@app.command()
def emit(
  kind: Annotated[
    Literal["skypilot", "gcloud", "check"],
    typer.Argument(help="the files; check only says what the points take there"),
  ],
  target: Target,
  file: File = "",
  base: Base = "",
  axes: Axes = [],  # noqa: B006
  settings: Set = [],  # noqa: B006
  seeds: ManySeeds = "",
  tpu: Annotated[
    str, typer.Option(help="such as v5e-8; of check also several, batches growing")
  ] = "v5e-1",
  zones: Annotated[
    str, typer.Option(metavar="A,B", help="the best first (default: all that have it)")
  ] = "",
  store: Annotated[str, typer.Option(help="gs:// folder of the runs")] = "",
  data: Annotated[str, typer.Option(help="gs:// folder, becomes AS2JAX_DATA")] = "",
  changes: Annotated[
    Literal["refuse", "carry"],
    typer.Option(help="uncommitted changes are refused, or carried as a patch"),
  ] = "refuse",
  spot: Annotated[bool, typer.Option(help="preemptible machines")] = True,
  queued: Annotated[bool, typer.Option(help="as queued resources")] = True,
  compiles: Annotated[
    bool, typer.Option("--compile/--no-compile", help="compile every point for it first")
  ] = True,
  nodes: Annotated[int, typer.Option(min=1, help="of gcloud: machines at a time")] = 1,
) -> None:
  """Writes what runs a sweep on Cloud TPUs. Checks every point first; starts nothing. Also --emit."""
  from as2jax.experiments.sweeps import cloud, machines
  from as2jax.experiments.sweeps import sweep as sweeps

  names = tpu.split(",")
  if len(names) > 1 and kind != "check":
    raise InputError(f"--tpu={tpu}: several are for --emit=check; name one")
  where = [machines.machine(name, zones=zones, spot=spot, queued=queued) for name in names]
  places = cloud.Places(store.rstrip("/"), data.rstrip("/"), changes == "carry")
  base, points, options = _planned_from(file, base, axes, settings, seeds)
  jobs, folder = sweeps.planned(base, points, target, **options)
  print(cloud.emit(kind, jobs, folder, where=where, places=places, nodes=nodes, compiles=compiles))


def _planned_from(
  file: str, base: str, axes: list[str], settings: list[str], seeds: str
) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
  """The base, the points, and the options of `sweep.planned` that a command line describes.

  Raises:
    InputError: neither a sweep file nor a grid with its job, or both; a wrong file, key or value.

  """
  from as2jax.config import flags, overrides
  from as2jax.experiments.sweeps import points as sweep_points

  if bool(file) == bool(axes) or (axes and not base):
    raise InputError("give a sweep file, or --base=JOB with --grid KEY=A,B")
  named, points = sweep_points.load(file) if file else (base, sweep_points.grid(base, axes))
  options = {
    "seeds": overrides.seeds_of(seeds) if seeds else (),
    "settings": overrides.parse(flags.load(base or named), settings),
  }
  return base or named, points, options


@app.command()
def status(
  place: Folder,
  follow: Annotated[bool, typer.Option(help="look again until all runs have ended")] = False,
  pause: Annotated[float, typer.Option(min=1, help="of --follow: seconds between two looks")] = 15,
  form: output.Form = "auto",
) -> None:
  """Shows where each run is. Step, dev, time left, failures: from its folder alone."""
  import time

  from rich.console import Console
  from rich.live import Live

  from as2jax.experiments.sweeps import watch

  states = watch.states(place)
  unfinished = lambda: any(one.state in (watch.RUNNING, watch.WAITING) for one in states)
  if output.as_json(form):
    while follow and unfinished():
      time.sleep(pause)
      states = watch.states(place)
    output.emit(form, watch.rows(states), str)
  elif not follow:
    Console().print(watch.table(states))
  else:
    with Live(watch.table(states)) as live:
      while unfinished():
        time.sleep(pause)
        states = watch.states(place)
        live.update(watch.table(states))


@app.command()
def logs(
  place: Folder,
  run: Annotated[str, typer.Argument(help="the first letters of its id; without: all")] = "",
  lines: Annotated[int, typer.Option(min=1, help="of each log, the last")] = 20,
) -> None:
  """Prints the ends of logs. One a run here, one a host elsewhere."""
  from as2jax.experiments.sweeps import watch

  store = watch.store_of(place)
  chosen = [job for job in watch.jobs_of(place) if job.id.startswith(run)]
  if not chosen:
    raise InputError(f"{place} has no run {run}: see as2jax lab sweep status {place}")
  for job in chosen:
    for path in watch.log_files(store / job.id):
      print(f"== {job.id} {job.title} ({path.name})")
      print("\n".join(path.read_bytes().decode(errors="replace").splitlines()[-lines:]))


@app.command()
def cancel(place: Folder) -> None:
  """Ends a sweep. Its runs save themselves; started again, it goes on."""
  from as2jax.experiments.sweeps import watch

  print(watch.cancel(place))


@app.command()
def collect(
  place: Folder,
  split: Annotated[
    Literal["", "dev", "test", "heldout"],
    typer.Option("--table", help="split of the table (default: that which chooses)"),
  ] = "",
) -> None:
  """Brings finished runs here. Writes their table, as text, Markdown and CSV."""
  import pathlib

  from as2jax.experiments.sweeps import table, watch

  if "://" in place:
    raise InputError(f"{place}: name the local folder of the sweep (its --output)")
  watch.bring(place)
  print(table.collect(pathlib.Path(place), watch.jobs_of(place), split))
