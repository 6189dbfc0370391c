"""Compile the steps of a run for chips that are not there, and report what they take (`as2jax lab compile`).

The real steps (training, prediction) are compiled for TPUs, as Google's system architecture pages state them: memory,
traffic, collectives. No weights and no data are read. Memory and the HBM's traffic are XLA's own counts
(`memory_analysis`, `cost_analysis`), of which the second takes the body of a loop once. Here a collective counts as
often as the loops around it turn. A loop's turns are those that XLA states, or the constant that its
counter is compared with: every `scan` of jax counts from 0 by 1.

Encoders have the sizes that their folder's config states, or their published ones. Batches have the
examples of the embedded sample in the config's layout, with texts as long as WikiQA's, cut as in a run:
so their shapes are a run's, near enough, though a data set of longer texts fills more rows of `paper`
batches (`batch.rows` states those of the others).
"""

import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from as2jax.config import base, check
from as2jax.config.overrides import apply
from as2jax.data.batches.batcher import Batcher, Column, Plan, Steps
from as2jax.data.inputs.protocol import Resources, declared
from as2jax.data.inputs.rankings import OrderGiven
from as2jax.data.load import load as load_dataset
from as2jax.data.text.tokenise import UnitTable
from as2jax.encoders import open_encoder
from as2jax.evaluation.predict import PAIRS, make_predict_step
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.training import optimizers
from as2jax.training import state as states
from as2jax.training.build import BatchTables, Components, leaves_open, with_source
from as2jax.training.step import make_train_step

GIB = 2**30
# Apart from the other packages: with libtpu among them jax looks for a TPU at each start.
FOLDER = pathlib.Path(__file__).resolve().parents[2] / ".libtpu"
CHIPS = {"v4": 32 * GIB, "v5e": 16 * GIB, "v5p": 95 * GIB, "v6e": 32 * GIB}  # bytes of HBM
# Without these libtpu asks a metadata server, for minutes, warns of what it did not hear, and keeps
# other processes out by a lock file, which only those with a device need.
_ENVIRONMENT = {
  "TPU_SKIP_MDS_QUERY": "1",
  "TPU_WORKER_HOSTNAMES": "localhost",
  "TPU_ACCELERATOR_TYPE": "v5litepod-1",
  "TPU_STDERR_LOG_LEVEL": "3",
  "TPU_MIN_LOG_LEVEL": "3",
  "TF_CPP_MIN_LOG_LEVEL": "3",
  "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
ADVICE = (
  "  try       --set encoder.remat=true, half of batch.rows or batch.examples with twice "
  "batch.accumulate, half of batch.predict_rows, sharding.fsdp over several chips"
)
COLLECTIVES = """all-reduce all-gather reduce-scatter all-to-all collective-permute
  collective-broadcast ragged-all-to-all""".split()
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|\w+_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch|called)_computations=\{([^}]*)\}")
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,<=]*)\]")
_COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(")
_LOOP = re.compile(r" while\(.*\bcondition=%?([\w.\-]+)")
# Tokens a word of the sample's texts, which makes them as long as WikiQA's (8 and 28 word pieces).
QUESTION, SENTENCE = 1.15, 1.8
_NONE = np.zeros(0, np.int32)


def library() -> pathlib.Path | None:
  """Return the compiler's library: of the package libtpu if that is installed, or in `FOLDER`."""
  spec = importlib.util.find_spec("libtpu")
  package = FOLDER / "libtpu"
  if spec and spec.origin:
    package = pathlib.Path(spec.origin).parent
  return package / "libtpu.so" if (package / "libtpu.so").exists() else None


def asked() -> str:
  """Return the requirement of libtpu that the installed jax states."""
  stated = importlib.metadata.requires("jax") or []
  return next(line for line in stated if line.startswith("libtpu")).partition(";")[0]


def absent() -> str:
  """Return why nothing can be compiled for TPUs here, "" where it can."""
  if library():
    return ""
  return (
    f"the package libtpu, which holds the compiler for TPUs, is not here: pip install "
    f"--no-deps --target {FOLDER.name} '{asked()}' (212 MB; no TPU is needed)"
  )


class Chip(NamedTuple):
  """A device of a topology: its name, and bytes of HBM."""

  name: str
  hbm: float


def chip_devices(topology: str) -> tuple[Chip, list[Any]]:
  """Return what a device of a topology such as `v5e:16x16` is, and compile-only devices in its order.

  Of v4 a device is a core, half a chip. InputError for another chip, or without libtpu.
  """
  match = re.fullmatch(r"(\w+):(\d+(?:x\d+){1,2})", topology)
  if not match or match[1] not in CHIPS:
    raise InputError(
      f"--topology={topology}: give a chip ({', '.join(CHIPS)}) and its slice's "
      "shape, such as v5e:16x16 or v4:2x2x4"
    )
  name, shape = match[1], tuple(map(int, match[2].split("x")))
  if reason := absent():
    raise InputError(reason)
  for key, value in _ENVIRONMENT.items():
    os.environ.setdefault(key, value)
  os.environ.setdefault("TPU_LIBRARY_PATH", str(library()))
  from jax.experimental import topologies

  # A host holds up to 2 × 2 chips; of a smaller slice it holds all.
  bounds = (*(min(size, 2) for size in shape[:2]), 1)
  try:
    compile_devices = topologies.get_topology_desc(
      platform="tpu", topology_name=topology, chips_per_host_bounds=bounds
    ).devices
  except Exception as error:  # libtpu's own, of several kinds
    raise InputError(
      f"--topology={topology}: libtpu does not give it ({str(error).splitlines()[0]})"
    ) from error
  cores = len(compile_devices) // math.prod(shape)
  label = name if cores == 1 else f"{name} core"
  return Chip(label, CHIPS[name] / cores), list(compile_devices)


class Program:
  """A compiled program (`compiled.as_text()`).

  Attributes:
    loops: how often each loop turns, in the order of the program; None where data decide.
    collectives: calls a step, and bytes of their results on one chip, by kind.
    host_calls: what makes the host take part: callbacks, feeds, transfers.

  """

  def __init__(self, text: str):
    self._computations, name, entry = {}, "", ""
    for line in text.splitlines():
      if header := _HEADER.match(line):
        name = header[2]
        entry = name if header[1] else entry
        self._computations[name] = []
      elif name:
        self._computations[name].append(line)
    if not entry:
      raise ValueError("no HLO module: there is no ENTRY computation")
    self.loops: list[int | None] = []
    self.collectives: dict[str, tuple[int, float]] = {}
    self.host_calls: list[str] = []
    for times, line in self._walk(entry, 1):
      if match := _COLLECTIVE.search(line):
        kind = match[2]
        calls, size = self.collectives.get(kind, (0, 0.0))
        size += times * _bytes(match[1], kind, bool(match[3]))
        self.collectives[kind] = calls + times, size
      self.host_calls += _host_calls(line)

  def _walk(self, name: str, times: int) -> Iterator[tuple[int, str]]:
    """Every line of a computation and of those that it calls, with how often it runs."""
    for line in self._computations[name]:
      yield times, line
      inner = times
      if loop := _LOOP.search(line):
        turns = self._turns(line, loop[1])
        self.loops.append(turns)
        inner *= 1 if turns is None else turns
      called = _CALLED.findall(line)
      for several in _BRANCHES.findall(line):
        called += [one.strip().removeprefix("%") for one in several.split(",")]
      for callee in called:
        if callee in self._computations:
          yield from self._walk(callee, inner)

  def _turns(self, line: str, condition: str) -> int | None:
    if stated := re.search(r'known_trip_count":\{"n":"(\d+)"', line):
      return int(stated[1])
    text = "\n".join(line for _, line in self._walk(condition, 1))
    ends = set(re.findall(r"\b[su]\d+\[\]\S* constant\((\d+)\)", text))
    counted = re.search(r"\bdirection=L[TE]|compare", text)
    return int(ends.pop()) if counted and len(ends) == 1 else None


def _bytes(shapes: str, kind: str, start: bool) -> float:
  """Bytes of a collective's result; one that only starts gives its operands and its results."""
  sizes = []
  for name, bits, axes in _SHAPE.findall(shapes):
    count = math.prod(int(re.sub(r"\D", "", n)) for n in axes.split(",") if n)
    sizes.append(count * (1.0 if name == "pred" else int(bits) / 8))
  if start and kind != "all-reduce":
    return sum(sizes[len(sizes) // 2 :]) if kind == "all-gather" else max(sizes)
  return sum(sizes)


def _host_calls(line: str) -> list[str]:
  target = re.search(r'custom_call_target="([^"]*(?:callback|host)[^"]*)"', line, re.IGNORECASE)
  feed = re.search(r" (infeed|outfeed)\(", line)
  transfer = re.search(r" (send|recv)\(.*is_host_transfer=true", line)
  return [match[1] for match in (target, feed, transfer) if match]


class Measured(NamedTuple):
  """One compiled step on one chip, in bytes.

  Attributes:
    memory: of arguments, outputs, aliased, temporaries and code.
    needs: of the HBM in all; xla_bytes: read and written, with the body of a loop once.
    lacks: what the compiler said when it gave up for want of HBM; the rest is empty then.

  """

  name: str
  memory: Mapping[str, float] = {}
  needs: float = 0.0
  program: Program | None = None
  xla_bytes: float = 0.0
  lacks: str = ""


def describe(config: Any) -> "Description":
  """Returns the parts that a config describes, without weights or data."""
  if not registry.has_parameters(config.model.name):
    raise InputError(f"model.name = {config.model.name!r} has no step to compile")
  source = open_encoder.describe(config.encoder)
  config, model, loss = with_source(config, source)
  sample = base.get_config().data  # without the files, columns, rules and negatives of other data
  sample.name, sample.holdout = "sample", 0.1
  sample.root, sample.cache = config.data.root, config.data.cache
  encoder = source.module if leaves_open(config.model, "encoder") else None
  resources = Resources(config, source, "", None)
  inputs = tuple(entry.bind(resources) for entry in declared(model, encoder, loss))
  parts = Description(config, load_dataset(sample), source, model, loss, {}, {}, inputs)
  return parts.with_ranking(OrderGiven())


@dataclasses.dataclass(frozen=True)
class Description(Components):
  """Holds the parts of a run without weights, over texts that are only so and so long.

  `dataset` is the embedded sample; `source` has no parameters and no tokeniser.
  """

  def tables(
    self, questions: Sequence[Any], layout: str, *, training: bool = False, **options
  ) -> BatchTables:
    """Returns units of nothing but lengths, and columns of zeros."""
    units, table = self.examples(questions, layout, **options)
    asked = {question.text for question in questions}
    lengths = []  # of texts, and a token before, between and after them
    for parts in units:
      length = len(parts) + 1
      for text in parts:
        length += round(len(text.split()) * (QUESTION if text in asked else SENTENCE))
      lengths.append(min(length, self.config.data.max_length))
    unit_table = UnitTable.of_lengths(lengths)
    rows = {
      "token": len(unit_table.ids),
      "vocabulary": 1,  # the only id
      "word": len(unit_table.word_form),
      "unit": len(unit_table),
      "example": len(table),
    }
    columns = {}
    for entry in self.inputs:
      spec = entry.spec()
      if spec is not None and (training or not entry.training_only):
        tail, kind = spec
        values = np.broadcast_to(np.zeros((), kind), (rows[entry.level], *tail))
        columns[entry.name] = Column(entry.level, values)
    return BatchTables(unit_table, table, columns)

  def batch(self, batcher: Batcher) -> Any:
    """Returns the shapes of one shard of the largest batch, `[1, …]`."""
    alone = dataclasses.replace(batcher, shards=1, accumulate=1)
    empty = Plan(Steps(1, 1), _NONE, _NONE, _NONE, _NONE)
    batch = alone.batch(empty, 0, (batcher.rows[-1], batcher.row_lengths[-1]))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch)

  def state(self, batch: Any, seeds: Sequence[int], optimizer: Any, mesh: Any) -> states.TrainState:
    """Returns shapes and shardings of the train state; `batch` is of one shard."""
    return states.shapes(
      self.model,
      batch,
      seeds=seeds,
      lr_multipliers=self.config.optimizer.lr_multipliers,
      optimizer=optimizer,
      mesh=mesh,
    )


def scaled(config: Any, parts: int) -> Any:
  """Return `config` with a shard for each part of the mesh, its work as it is; InputError for more shards."""
  shards = config.batch.shards
  if shards >= parts:
    return config
  if parts % shards:
    raise InputError(
      f"batch.shards = {shards} does not divide the {parts} parts of the mesh: set "
      "batch.shards to 1"
    )
  keys = ("examples", "rows", "predict_rows", "shards")
  return apply(config, {f"batch.{key}": config.batch[key] * parts // shards for key in keys})


def steps(parts: Description, mesh: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
  """Yield the name of each step of an experiment, and a function that traces it.

  `train` is a step of training; `predict` encodes sentences, or scores examples; `compare` compares
  vectors, where the model encodes.
  """
  config, model = parts.config, parts.model
  sharding.check_shards(mesh, config.batch.shards)
  seeds = tuple(config.seeds) if config.seeds_parallel else tuple(config.seeds)[:1]
  n, every = len(seeds), sharding.replicated(mesh)
  o = config.optimizer
  optimizer = optimizers.from_config(o)
  rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=config.epochs)
  shard = parts.batch(parts.train_batcher())
  state = parts.state(shard, seeds, optimizer, mesh)
  variables = states.ranking_variables(state)

  def of_shards(batch, front, place):

    def placed(x):
      shape = (*front, config.batch.shards, *x.shape[1:])
      return jax.ShapeDtypeStruct(shape, x.dtype, sharding=place)

    return jax.tree.map(placed, batch)

  def train():
    batch = of_shards(shard, (n, config.batch.accumulate), NamedSharding(mesh, sharding.BATCH))
    step = make_train_step(model, parts.loss, optimizer, rate, mesh=mesh, state=state, seeds=n)
    kinds = np.uint32, np.float32, np.bool_
    each = [jax.ShapeDtypeStruct((n,), kind, sharding=every) for kind in kinds]
    return step.trace(state, batch, *each)

  layout = "sentences" if model.encodes else model.layout
  question = parts.predict_batcher(parts.dataset.splits["dev"], layout)
  asked = of_shards(parts.batch(question), (1,), NamedSharding(mesh, sharding.PREDICTED))
  method = "encode" if model.encodes else "__call__"
  predict_step = make_predict_step(model, method, mesh=mesh, seeds=n)

  def compare():
    width = jax.eval_shape(predict_step, variables, asked).units.shape[-1]
    vectors = jax.ShapeDtypeStruct((n, PAIRS, width), np.float32, sharding=every)
    return make_predict_step(model, "compare", mesh=mesh, seeds=n).trace(
      variables, (vectors, vectors)
    )

  if parts.loss is not None and config.loss.name != "none":
    yield "train", train
  yield "predict", lambda: predict_step.trace(variables, asked)
  if model.encodes:
    yield "compare", compare


def measure(name: str, trace: Callable[[], Any]) -> Measured:
  """Compile one step and measure it."""
  try:
    executable = trace().lower().compile()
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    used = re.search(r"Used [\d.]+\w of [\d.]+\w", str(error))
    return Measured(name, lacks=used[0] if used else "out of memory")
  analysis = executable.memory_analysis()
  memory = {
    "arguments": analysis.argument_size_in_bytes,
    "outputs": analysis.output_size_in_bytes,
    "aliased": analysis.alias_size_in_bytes,
    "temporaries": analysis.temp_size_in_bytes,
    "code": analysis.generated_code_size_in_bytes,
  }
  needs = sum(memory.values()) - 2 * memory["aliased"]
  moved = executable.cost_analysis().get("bytes accessed", 0.0)
  return Measured(name, memory, needs, Program(executable.as_text()), moved)


def steps_of(config: Any, topology: str) -> tuple[Chip, Any, Iterator[Measured]]:
  """Return the chip, the config as scaled to the slice, and its steps, compiled as they are taken."""
  jax.config.update("jax_platforms", "cpu")  # no device of this machine is needed, or taken
  chip, devices = chip_devices(topology)
  mesh = sharding.make_mesh(
    fsdp=config.sharding.fsdp, tensor=config.sharding.tensor, devices=devices
  )
  config = scaled(config, mesh.shape["data"] * mesh.shape["fsdp"])
  compiled = (measure(name, trace) for name, trace in steps(describe(config), mesh))
  return chip, config, compiled


def report(chip: Chip, step: Measured) -> str:
  """Return what one step takes of a chip, in lines."""
  if step.lacks:
    return f"{step.name}: DOES NOT FIT a {chip.name} ({step.lacks})"
  head = f"{step.name}: {step.needs / GIB:.2f} of {chip.hbm / GIB:.0f} GiB a {chip.name}"
  sizes = ", ".join(f"{name} {size / GIB:.2f}" for name, size in step.memory.items())
  exchanged = []
  for kind, (calls, size) in step.program.collectives.items():
    exchanged.append(f"{calls} × {kind}, {size / 1e6:.1f} MB in all")
  lines = [
    head,
    f"  memory    {sizes} GiB",
    f"  traffic   {step.xla_bytes / 1e9:.3g} GB read and written (XLA's count: a loop's body once)",
    f"  between   {', '.join(exchanged) or 'no collectives'}",
  ]
  if step.program.host_calls:
    lines.append(f"  host      takes part: {', '.join(sorted(set(step.program.host_calls)))}")
  if unknown := step.program.loops.count(None):
    lines.append(f"  loops     {unknown} whose end depends on data (counted as one turn)")
  return "\n".join(lines)


def fits(chip: Chip, step: Measured) -> bool:
  """Tell whether a step compiled and its memory is within that of the chip."""
  return not step.lacks and step.needs <= chip.hbm


def run(config: Any, topology: str) -> int:
  """Print the report; return the exit status, 1 where a step does not fit."""
  check.check(config)
  chip, config, measured = steps_of(config, topology)
  batch = config.batch
  print(
    f"{topology}: batch.shards={batch.shards}, batch.examples={batch.examples}, "
    f"batch.rows={batch.rows}, batch.predict_rows={batch.predict_rows} (fixed work a chip)",
    flush=True,
  )
  status = 0
  for step in measured:
    print(report(chip, step), flush=True)
    if not fits(chip, step):
      status = 1
      print(ADVICE)
  return status
