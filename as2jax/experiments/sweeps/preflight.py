"""What is known of a sweep's points before a machine is paid for: the real checks, memory, hours."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from as2jax.config import check, rerun
from as2jax.data.batches.samplers import WHOLE_QUESTIONS
from as2jax.data.datasets.load import load as load_dataset
from as2jax.experiments.compile import aot, cached, chips, compiled
from as2jax.experiments.compile.chips import GIB
from as2jax.experiments.sweeps.machines import Machine
from as2jax.experiments.sweeps.points import Job
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.training.describe import describe
from as2jax.training.progress_bar import duration

MFU = 0.35  # share of a chip's peak that a step is assumed to reach; no step was measured on a TPU


@dataclasses.dataclass(frozen=True)
class _Device:
  """Stands for a chip in a mesh of which only the shape is asked."""

  id: int
  platform: str = "tpu"


@dataclasses.dataclass
class Shape:
  """Runs whose steps have the same shapes and number.

  Attributes:
    jobs: the runs; config: of the first.
    figures: of its steps, see `cached.figures`; {} where nothing was compiled.
    hours: of one run; None where the data are not here, or nothing was compiled.

  """

  jobs: list[Job]
  config: Any
  figures: dict[str, Any]
  hours: float | None = None


def preflight(
  jobs: Sequence[Job],
  where: Machine,
  *,
  compiles: bool = True,
  scaled: bool = False,
  say: Callable[[str], None] = print,
) -> str:
  """Puts every point through the checks of a machine and the compiler for it; returns the table.

  Args:
    compiles: whether the steps are compiled; else only what needs no compiler is checked.
    scaled: lets the batches grow with the machine, so that a chip's work is fixed.

  Raises:
    InputError: points that would fail there, with the keys to change, or no compiler.

  """
  shapes: dict[str, Shape] = {}
  wrong: dict[str, list[str]] = {}
  for job in jobs:
    config = rerun.resolved(json.loads(job.text), job.title)
    if scaled:
      config = compiled.scaled(config, where.chips // config.sharding.tensor)
    key = json.dumps([cached.shape_of(config), _length(config)], sort_keys=True)
    if key in shapes:
      shapes[key].jobs.append(job)
      continue
    shapes[key] = Shape([job], config, {})
    try:
      check_on(config, where.chips)
    except InputError as error:
      wrong.setdefault(f"{error}{_proposed(config, where)}", []).append(job.title)
  _refuse(wrong, where)
  learned = [s for s in shapes.values() if registry.has_parameters(s.config.model.name)]
  if compiles and learned and (reason := chips.absent()):
    raise InputError(
      f"--emit compiles every point for {where.topology} first: {reason}; --no-compile emits "
      "without"
    )
  for shape in _compiled(learned, where, say) if compiles else ():
    for step in ("train", "predict"):
      if step in shape.figures and not shape.figures[step]["fits"]:
        needs = shape.figures[step]["bytes"] / GIB
        hbm = shape.figures["hbm"] * _grown(shape.config, where) / GIB
        if needs <= hbm:  # half a chip of v4 was given what a whole one holds
          continue
        advice = "\n    ".join(aot.advice(shape.config, step, where.chips))
        wrong.setdefault(
          f"{step} needs {needs:.2f} of the {hbm:.0f} GiB of a chip; try one of\n    {advice}", []
        ).append(shape.jobs[0].title)
  _refuse(wrong, where)
  return table(list(shapes.values()), where)


def _compiled(
  shapes: Sequence[Shape], where: Machine, say: Callable[[str], None]
) -> Iterator[Shape]:
  """Sets figures and hours; compiles once what has the same shapes, and yields the first of them."""
  alike: dict[str, list[Shape]] = {}
  for shape in shapes:
    alike.setdefault(json.dumps(cached.shape_of(shape.config), sort_keys=True), []).append(shape)
  for number, same in enumerate(alike.values(), 1):
    what = f"{number} of {len(alike)} shapes for {where.topology}: {same[0].jobs[0].title}"
    figures = cached.figures(
      _as_loop(same[0].config),
      where.topology,
      exact=_exact(where),
      begins=lambda what=what: say(f"compiling {what}"),
    )
    for shape in same:
      shape.figures = figures
      shape.hours = _hours(shape, where)
    yield same[0]


def check_on(config: Any, count: int) -> None:
  """The checks that a run makes itself on so many chips, without data, weights or chips.

  Raises:
    InputError: what the run would raise.

  """
  check.check(config)
  if not registry.has_parameters(config.model.name):
    return
  mesh = sharding.make_mesh(
    fsdp=config.sharding.fsdp,
    tensor=config.sharding.tensor,
    devices=[_Device(i) for i in range(count)],
  )
  sharding.check_shards(mesh, config.batch.shards)
  try:
    parts = describe(config)
  except InputError as error:
    if "only the files of such an encoder" in str(error):
      return  # nothing is known of its sizes without them
    raise
  if parts.loss is not None and config.loss.name != "none":
    parts.train_batcher()
  layout = "sentences" if parts.model.encodes else parts.model.layout
  parts.predict_batcher(parts.dataset.splits["dev"], layout)


def _proposed(config: Any, where: Machine) -> str:
  """The keys of the batch with which a config would fit so many chips, "" where it does."""
  tensor = config.sharding.tensor
  parts = where.chips // tensor if where.chips % tensor == 0 else where.chips
  shards = math.ceil(config.batch.shards / parts) * parts
  divided = ["examples", "predict_rows"] + ["rows"] * (config.batch.sampler in WHOLE_QUESTIONS)
  wanted = {"shards": shards} | {
    name: math.ceil(config.batch[name] / shards) * shards for name in divided
  }
  changed = [f"--set batch.{k}={v}" for k, v in wanted.items() if v != config.batch[k]]
  return f"\n    try {' '.join(changed)}, or a smaller --tpu" if changed else ""


def _refuse(wrong: dict[str, list[str]], where: Machine) -> None:
  if wrong:
    lines = [f"  {_few(titles)}: {problem}" for problem, titles in wrong.items()]
    raise InputError(
      f"--emit: on {where.accelerator} ({where.chips} chips) these points would fail:\n"
      + "\n".join(lines)
    )


def _few(titles: Sequence[str]) -> str:
  return titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"


def _exact(where: Machine) -> bool:
  """Whether the compiler's devices are chips; those of v4 are its halves, to which batches grow."""
  return not where.topology.startswith("v4:")


def _as_loop(config: Any) -> Any:
  loop_config = config.copy_and_resolve_references()
  with loop_config.unlocked():
    for key, value in cached.LOOP.items():
      section, _, name = key.partition(".")
      if name in loop_config[section]:
        loop_config[section][name] = value
  return loop_config


def _length(config: Any) -> list[Any]:
  """The keys of a config that decide, beside its shapes, how many steps a run takes."""
  data = json.loads(config.data.to_json())
  return [data, config.evaluation.task, config.epochs, len(config.seeds)]


def _grown(config: Any, where: Machine) -> float:
  """How many times a run's batch the compiled one is: twice where the halves of v4 made it grow."""
  if _exact(where):
    return 1.0
  halves = 2 * where.chips // config.sharding.tensor
  return compiled.scaled(config, halves).batch.shards / config.batch.shards


def _hours(shape: Shape, where: Machine) -> float | None:
  """Hours of one run: FLOPs of its steps and evaluations on dev over `MFU` of the peak.

  None where the data are not here: their number decides that of the steps.
  """
  config = shape.config
  section = config.data.copy_and_resolve_references()
  with section.unlocked():
    section.download = False
  try:
    data = load_dataset(section, config.evaluation.task)
  except InputError:
    return None
  parts = dataclasses.replace(describe(config), dataset=data)
  flops = 0.0
  if "train" in shape.figures:
    flops += config.epochs * len(_plan(parts.train_batcher())) * shape.figures["train"]["flops"]
  if "dev" in parts.dataset.splits:
    layout = "sentences" if parts.model.encodes else parts.model.layout
    batches = len(_plan(parts.predict_batcher(parts.dataset.splits["dev"], layout)))
    flops += (config.epochs + 1) * batches * shape.figures["predict"]["flops"]
  flops /= _grown(config, where)
  return flops / (MFU * shape.figures["peak"]) / 3600 * len(config.seeds)


def _plan(batcher: Any) -> Any:
  return batcher.plan(batcher.sampler.blocks(), 0, 0)


def table(shapes: Sequence[Shape], where: Machine) -> str:
  """A line a shape and number of steps: its runs, memory of a chip, time; then what the sweep takes in all."""
  rows = [("point", "runs", "chips", "GiB, training", "GiB, prediction", "time of a run", "of all")]
  total, unknown = 0.0, 0
  for shape in shapes:
    memory = [
      f"{shape.figures[step]['bytes'] / GIB:.2f}" if step in shape.figures else "–"
      for step in ("train", "predict")
    ]
    runs = len(shape.jobs)
    times = ["–", "–"]
    if shape.hours is None:  # a ranker without parameters takes none of a chip's
      unknown += runs * registry.has_parameters(shape.config.model.name)
    else:
      total += shape.hours * runs
      times = [_time(shape.hours), _time(shape.hours * runs)]
    rows.append((_few([j.title for j in shape.jobs]), str(runs), str(where.chips), *memory, *times))
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = [
    "  ".join(
      cell.rjust(width) if i else cell.ljust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    for row in rows
  ]
  of = f"{chips.parse(where.topology)[0].hbm / GIB:.0f}"
  if total:
    lines.append(
      f"{where.accelerator}, {of} GiB a chip; about {_time(total)} of the machine, "
      f"{_time(total * where.chips)} of one chip: an estimate that assumes {MFU:.0%} of the chip's "
      "peak, without starts, compilation and waiting"
    )
  if unknown:
    lines.append(
      f"of {unknown} runs the time is not known: that wants their data here (AS2JAX_DATA) and "
      "the compiler"
    )
  return "\n".join(lines)


def _time(hours: float) -> str:
  return duration(3600 * hours) if hours * 3600 >= 0.5 else "< 1 s"
