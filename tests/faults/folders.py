"""Damaged files of whole folders: a run, its encoder, an export, an index, a sweep.

The oracle is what is read of the undamaged folder. Of a damaged one, each reading gives that very object, or
one error that names the folder; all else is wrong.
"""

import pathlib
import random
import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import tiny

import as2jax
from as2jax.config import jobs
from as2jax.evaluation import results, run_scores
from as2jax.experiments import sweep
from as2jax.experiments.sweep import write_config
from as2jax.inference.export import export
from as2jax.inference.run import Run
from as2jax.report import runs as report_runs
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError
from as2jax.training import record
from as2jax.training.loop import train_and_evaluate
from tests.faults.fuzz import Totals
from tests.file_damage import damaged_by, files, flip_bit

SWEEP = ("wikiqa_baseline:bm25,sample", [{"model.name": "word_overlap"}])
Reading = Callable[[pathlib.Path], Any]


class Kind(NamedTuple):
  """A whole folder, what is read of it, by name, and the folders in it whose files are damaged."""

  whole: pathlib.Path
  readings: Mapping[str, Reading]
  damaged: tuple[str, ...] = ("",)


def kinds(base: pathlib.Path, place: pathlib.Path) -> dict[str, Kind]:
  """Makes the folders below `base`. Each is read as a copy at `place`."""
  plain, bi_encoder = base / "run", base / "bi-encoder"
  splits = {"evaluation__splits": ("dev", "test")}
  train_and_evaluate(tiny.config("crossencoder", data__train_fraction=0.08, **splits), plain)
  train_and_evaluate(tiny.config("triplet", epochs=0), bi_encoder)
  export(bi_encoder, base / "export")
  texts = [f"document {i} of ice" for i in range(20)]
  as2jax.load(bi_encoder).index(texts, path=base / "index")
  for job in (planned := sweep.plan(*SWEEP)):
    write_config(base / "sweep" / job.id, job)
    config = jobs.of_run(str(base / "sweep" / job.id / "config.json"))
    train_and_evaluate(config, base / "sweep" / job.id)
  begun = base / "begun"  # with the encoder that it began with
  shutil.copytree(plain, begun / "run")
  config = jobs.of_run(str(begun / "run" / "config.json")).unlock()
  shutil.copytree(config.encoder.pretrained, begun / "encoder")
  config.encoder.pretrained = str(place / "encoder")
  bound.write(begun / "run", "config.json", config.to_json())
  judged = plain / "eval/test/run.trec"
  of_run = {
    "model": _model,
    "metrics": lambda folder: Run(folder).metrics,
    "scores": lambda folder: [vars(one) for one in run_scores.load([str(folder)])],
    "judgements": lambda folder: vars(run_scores.load([str(folder), str(judged)])[1]),
    "report": _reported,
    "ledger": lambda folder: results.times_evaluated(folder, "test", "sample"),
  }
  return {
    "run": Kind(plain, of_run),
    "encoder": Kind(begun, {"resumed": _resumed}, ("encoder", "run/encoder")),
    "export": Kind(base / "export", {"ranker": lambda folder: _ranker(as2jax.load(folder))}),
    "index": Kind(base / "index", {"search": _searched}),
    "sweep": Kind(base / "sweep", {"table": lambda folder: sweep.collect(folder, planned)}),
  }


def _model(folder: pathlib.Path) -> Any:
  run = Run(folder)
  seed = run.check_seed("best")
  return run.config.to_json(), seed, _parts(run.components), run.parameters(seed)


def _parts(components: Any) -> Any:
  """What decides a score beside the run's own parameters."""
  tokenizer = components.source.tokenizer.fingerprint
  pretrained, fitted = dict(components.pretrained), dict(components.fitted)
  return repr(components.model), tokenizer, components.prompts, pretrained, fitted


def _reported(folder: pathlib.Path) -> Any:
  (system,) = report_runs.read([str(folder)]).systems
  return system.rankings("test"), system.content, system.config, system.log


def _resumed(folder: pathlib.Path) -> Any:
  run = folder / "run"
  components = Run(run, jobs.of_run(str(run / "config.json")), data=True).components
  record.settle(run, components)
  return _parts(components)


def _ranker(ranker: Any) -> Any:
  return ranker.config.to_json(), _parts(ranker.predictor.components), ranker.variables


def _searched(folder: pathlib.Path) -> Any:
  index = as2jax.Index.open(folder)
  hits = [vars(hit) for hit in index.search("ice", k=20)]
  return hits, index.texts, index.ids, index._rows[:], _ranker(index.ranker)


def content(tree: Any) -> list[tuple[str, Any]]:
  """The leaves of what was read, comparable to the bit."""
  leaves = []
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if isinstance(leaf, (np.ndarray, jax.Array)):
      leaf = (leaf.dtype, leaf.shape, np.asarray(leaf).tobytes())
    leaves.append((jax.tree_util.keystr(path), leaf if isinstance(leaf, tuple) else repr(leaf)))
  return leaves


def damage(seed: int, cases: int, base: pathlib.Path) -> list[Totals]:
  """Damages a file a case, in turn of each kind of folder, and reads all that is read of it."""
  place, totals = base / "copy", []
  for name, kind in kinds(base / "folders", place).items():
    totals.append(Totals(f"damaged files of: {name}"))
    shutil.copytree(kind.whole, place)
    undamaged = {reading: content(read(place)) for reading, read in kind.readings.items()}
    shutil.rmtree(place)
    for case in range(cases):
      rng = random.Random(f"{seed} {name} {case}")
      shutil.copytree(kind.whole, place)
      path = rng.choice([path for inner in kind.damaged for path in files(place / inner)])
      where = _damage(path, rng)
      outcomes = [outcome(read, place, undamaged[one]) for one, read in kind.readings.items()]
      wrong = [said for said in outcomes if said not in ("the undamaged object", "refused")]
      total = "refused" if "refused" in outcomes else "the undamaged object"
      shown = f"{path.relative_to(place)} ({where}): {wrong}"
      totals[-1].add("wrong" if wrong else total, wrong=shown if wrong else "")
      shutil.rmtree(place)
  return totals


def _damage(path: pathlib.Path, rng: random.Random) -> str:
  if rng.random() < 0.5:
    return flip_bit(path, rng)
  before = path.read_bytes()
  while (data := damaged_by(rng, before)) == before:
    pass
  path.write_bytes(data)
  return "several damages"


def outcome(read: Reading, folder: pathlib.Path, undamaged: Any) -> str:
  """What became of one reading of a damaged folder."""
  try:
    actual = content(read(folder))
  except InputError as error:
    return "refused" if str(folder) in str(error) else f"no place: {error}"
  except Exception as error:
    return f"raw: {error!r:.200}"
  return "the undamaged object" if actual == undamaged else "silent: another object"
