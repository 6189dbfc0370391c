"""Flipped bits in checkpoints: refused or mended, never used. Those of caches: runtime/cache_test.py."""

import contextlib
import logging
import pathlib
import random
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from as2jax.runtime.errors import InputError
from as2jax.training.checkpoints import Checkpoints, read_best
from tests.faults.fuzz import Totals
from tests.file_damage import files, flip_bit


@contextlib.contextmanager
def said() -> Iterator[list[str]]:
  """The warnings logged in a block, which nobody else hears."""
  lines: list[str] = []
  handler, before = logging.Handler(logging.WARNING), logging.root.manager.disable
  handler.emit = lambda record: lines.append(record.getMessage())
  logging.disable(logging.NOTSET)
  loggers = [logging.getLogger(), logging.getLogger("absl")]
  others = [logger.handlers for logger in loggers]
  loggers[0].handlers, loggers[1].handlers = [handler], []
  try:
    yield lines
  finally:
    for logger, handlers in zip(loggers, others):
      logger.handlers = handlers
    logging.disable(before)


def same(one: Any, other: Any) -> bool:
  """Whether two trees of arrays are equal to the bit."""
  leaves, structure = jax.tree.flatten(one)
  others, other_structure = jax.tree.flatten(other)
  return structure == other_structure and all(
    np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(leaves, others)
  )


def in_checkpoints(folder: pathlib.Path, seed: int, cases: int, scratch: pathlib.Path) -> Totals:
  """One bit of one file of a run's checkpoints; then its state and its best are restored.

  Right is an error that names the damaged file; or the exact content, where the file was not
  needed, or the exact content of the state before, where the log says so.
  """
  totals = Totals("bits of checkpoints")
  whole = folder / "checkpoints"
  steps = lambda kind: sorted(int(p.name) for p in (whole / kind).iterdir() if p.name.isdigit())
  latest, best = steps("latest"), steps("best")
  alone = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  reader = ocp.StandardCheckpointer()
  abstract = jax.tree.map(
    lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=alone),
    reader.metadata(whole / "latest" / str(latest[-1]) / "state").item_metadata.tree,
  )
  states = {
    step: reader.restore(whole / "latest" / str(step) / "state", abstract) for step in latest
  }
  bests = {step: read_best(whole, step) for step in best}
  for case in range(cases):
    rng = random.Random(f"{seed} checkpoints {case}")
    copy = shutil.copytree(whole, scratch / "checkpoints")
    path = _of_any_size(copy, rng)
    where = f"{path.relative_to(copy).parent}/{flip_bit(path, rng)}"
    outcomes = [_restore_best(copy, step, bests[step], path) for step in best]
    outcomes.append(_restore_latest(copy, abstract, states, latest[-1]))
    wrong = [outcome for outcome in outcomes if outcome.startswith("silent")]
    noticed = [outcome for outcome in outcomes if outcome != "not needed"]
    totals.add((wrong or noticed or ["not needed"])[0], wrong=f"{where}: {wrong}" if wrong else "")
    shutil.rmtree(copy)
  return totals


def _of_any_size(folder: pathlib.Path, rng: random.Random) -> pathlib.Path:
  """A file: half of the time any, half of the time by its number of bytes."""
  actual = files(folder)
  sizes = [path.stat().st_size for path in actual] if rng.random() < 0.5 else None
  return rng.choices(actual, sizes)[0]


def _restore_best(folder, step, wanted, damaged) -> str:
  try:
    actual = read_best(folder, step)
  except InputError as error:
    return "refused" if damaged.name in str(error) else f"silent about the place: {error}"
  return "not needed" if same(actual, wanted) else f"silent: best {step} is another"


def _restore_latest(folder, abstract, states: Mapping[int, Any], newest: int) -> str:
  with said() as lines:
    try:
      opened = Checkpoints(folder)
    except InputError:
      return "refused"
    try:
      step, (actual, _) = opened.latest_step, opened.restore(abstract)
    except InputError:
      return "refused"
    finally:
      opened.close()
  if not same(actual, states[step]):
    return f"silent: state {step} is another"
  if step == newest:
    return "not needed"
  back = any("going back to the checkpoint of step" in line for line in lines)
  return "went back to the state before" if back else f"silent: state {step}, not {newest}"
