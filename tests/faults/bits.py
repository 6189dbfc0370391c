"""Flipped bits in checkpoints and caches: refused or mended, never used."""

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
import pytest
import synthetic_wikiqa
import tiny
import token_table_test

from as2jax.data.dataset import load as load_dataset
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.runtime.cache import warn_once
from as2jax.runtime.errors import InputError
from as2jax.training import build, record
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


def in_caches(seed: int, cases: int, scratch: pathlib.Path) -> list[Totals]:
  """One bit of one file of a cache: the content is exact again, and the log says that it was made."""
  part = cases // 3
  return [
    _in_token_tables(seed, cases - 2 * part, scratch / "units"),
    _in_prepared_data(seed, part, scratch / "prepared"),
    _in_training_splits(seed, part, scratch / "splits"),
  ]


def _told(totals: Totals, exact: bool, lines: list[str], where: str) -> None:
  again = [line for line in lines if "anew" in line]
  right = exact and len(again) == 1
  totals.add("made anew" if right else "silent", wrong="" if right else f"{where}: {exact} {lines}")


def _in_token_tables(seed: int, cases: int, folder: pathlib.Path) -> Totals:
  totals, tokenizer = Totals("bits of token tables"), load_tokenizer(tiny.encoder_folder())
  units, options = token_table_test.UNITS, {"template": "pair", "max_length": 16, "words": True}
  plain = build_units(units, tokenizer, **options)
  build = lambda: build_units(units, tokenizer, **options, cache=str(folder))
  build()
  for case in range(cases):
    rng = random.Random(f"{seed} token tables {case}")
    where = flip_bit(rng.choice(_arrays(folder / "units")), rng)
    with said() as lines:
      again = build()
    try:
      token_table_test.assert_equal(again, plain)
      exact = True
    except AssertionError:
      exact = False
    _told(totals, exact, lines, where)
  return totals


def _arrays(folder: pathlib.Path) -> list[pathlib.Path]:
  return [path for path in files(folder) if path.suffix in (".npy", ".json")]


def _in_prepared_data(seed: int, cases: int, folder: pathlib.Path) -> Totals:
  totals = Totals("bits of prepared data")
  root, cache, whole = (
    synthetic_wikiqa.write_source(folder / "root"),
    folder / "cache",
    folder / "whole",
  )
  with pytest.MonkeyPatch.context() as patch:
    synthetic_wikiqa.change(patch, published={}, sha256={})
    load = lambda: load_dataset("wikiqa", root=str(root), cache=str(cache), download=False)
    first = load()
    splits = {split: first.splits[split] for split in synthetic_wikiqa.SPLITS}
    shutil.copytree(cache, whole)
    for case in range(cases):
      rng = random.Random(f"{seed} prepared data {case}")
      shutil.rmtree(cache)
      shutil.copytree(whole, cache)
      where = flip_bit(rng.choice(files(cache)), rng)
      warn_once.cache_clear()  # the copied manifest is as old as that of the case before
      with said() as lines:
        again = load()
        exact = again == first and {name: again.splits[name] for name in splits} == splits
      _told(totals, exact, lines, where)
  return totals


def _in_training_splits(seed: int, cases: int, folder: pathlib.Path) -> Totals:
  """The examples and the digest that a run keeps, and the table of tokens that they name."""
  totals = Totals("bits of training splits")
  config = tiny.config("crossencoder", data__cache=str(folder))

  def begun() -> tuple[dict[str, Any], Any]:
    """What a run that begins has of its training split."""
    parts = build.load(config)
    batcher = parts.train_batcher()
    arrays = vars(batcher.examples)
    digest = record._of_data(parts, (record.TRAINING,))
    return {**arrays, "ids": batcher.units.ids, "offsets": batcher.units.offsets}, digest

  arrays, digest = begun()
  for case in range(cases):
    rng = random.Random(f"{seed} training splits {case}")
    where = flip_bit(rng.choice(_arrays(folder / "splits")), rng)
    with said() as lines:
      others, other_digest = begun()
    _told(totals, same(others, arrays) and other_digest == digest, lines, where)
  return totals
