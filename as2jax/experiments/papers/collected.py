"""Keep finished runs as rows of configs/papers/results: one file a row, `<row>.tar.xz`.

Unpacked, a row has a run's layout (`config.json`, `results.json`, the ledger of evaluations, the values of
every question), which comparisons read: `tar -xf configs/papers/results/wikiqa-bm25.tar.xz -C runs`. It holds
no text of the data and no path of the machine that trained it.
"""

import contextlib
import io
import json
import lzma
import pathlib
import re
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from as2jax.config import base, check
from as2jax.config import jobs as job_files
from as2jax.config.overrides import apply as override
from as2jax.config.overrides import differences, flatten
from as2jax.data import trec_files
from as2jax.evaluation import results, run_scores
from as2jax.experiments.papers.rows import Peer, Run
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.training.metrics_log import step_seconds

SEEDS = "seeds.jsonl"  # of a peer's training: a line a seed
PACKED = ".tar.xz"
_PATH = re.compile(r"(?<![\w./:\]-])~?/(?:[\w.+@ -]+/)+")


class Training(NamedTuple):
  """What trained a row: seconds of all seeds' steps, number of seeds, accelerator ("" for a CPU)."""

  seconds: float
  seeds: int
  device: str


def folder() -> pathlib.Path:
  """Return the folder of the rows; a wheel has none."""
  return job_files.folder() / "papers" / "results"


@contextlib.contextmanager
def unpacked(where: pathlib.Path, names: str = "*") -> Iterator[pathlib.Path]:
  """Unpack the rows in `where` whose names match a pattern into a temporary folder, a folder a row."""
  with tempfile.TemporaryDirectory(prefix="as2jax-rows-") as place:
    for path in sorted(where.glob(f"{names}{PACKED}")):
      try:
        whole = io.BytesIO(lzma.decompress(path.read_bytes()))
        with tarfile.open(fileobj=whole) as archive:
          archive.extractall(place, filter="data")
      except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise InputError(
          f"{path} is not a whole row ({error}): delete it, then check it out or collect it again"
        ) from None
    yield pathlib.Path(place)


def collect(source: pathlib.Path, run: Run | Peer, where: pathlib.Path) -> pathlib.Path:
  """Keep what stands for a finished run, or a peer's training, as a row in `where`; return the row.

  A peer's folder is written by launch/benchmarks/sentence_transformers_training.py. The ledger of the row that
  is replaced stays.
  """
  files = _of_peer(source) if isinstance(run, Peer) else _of_run(source, run)
  target = where / f"{run.name}{PACKED}"
  ledger = bound.file(source, results.LEDGER)
  if ledger.exists():
    files[results.LEDGER] = ledger.read_bytes()
  if target.exists():
    rows = files.get(results.LEDGER, b"")
    if earlier := _earlier_evaluations(target, run.name, rows):
      files[results.LEDGER] = earlier + rows
  written = io.BytesIO()
  with tarfile.open(fileobj=written, mode="w", format=tarfile.USTAR_FORMAT) as archive:
    for file in sorted(files):
      entry = tarfile.TarInfo(f"{run.name}/{file}")  # without times and owners
      entry.size, entry.mode = len(files[file]), 0o644
      archive.addfile(entry, io.BytesIO(files[file]))
  write_whole(target, lzma.compress(written.getvalue(), preset=9 | lzma.PRESET_EXTREME))
  return target


def _of_peer(source: pathlib.Path) -> dict[str, bytes]:
  if not (source / SEEDS).exists():
    raise InputError(f"{source} holds no {SEEDS}: run the benchmark to its end, then collect it")
  files = {SEEDS: (source / SEEDS).read_bytes()}
  for table in source.glob("seed-*.tsv"):
    files[table.name] = _table(table)
  return files


def _of_run(source: pathlib.Path, run: Run) -> dict[str, bytes]:
  content = results.read(source)
  if content is None:
    raise InputError(f"{source} is not finished (no results.json): finish it, then collect it")
  check_config(source, run)
  seeds = [outcome["seed"] for outcome in content["seeds"]]
  files = {}
  for split in results.splits_of(content):
    run_scores.load([str(source)], split=split)  # says where tables and results disagree
    for seed in seeds:
      place = results.folder("", split, seed, seeds) / "per_question.tsv"
      files[str(place)] = _table(bound.file(source, place))
  trained = False
  for outcome in content["seeds"]:
    trained = trained or bool(outcome.get("steps"))
    outcome.pop("other_scores", None)
    diagnostics = outcome.pop("diagnostics", {})
    numbers = {key: one for key, one in diagnostics.items() if isinstance(one, int | float)}
    if numbers:
      outcome["diagnostics"] = numbers
  if trained:
    content["execution"]["seconds_in_steps"] = round(step_seconds(source), 1)
  config = json.loads(bound.file(source, "config.json").read_text())
  files["results.json"] = (_PATH.sub("", json.dumps(content)) + "\n").encode()
  files["config.json"] = (_PATH.sub("", json.dumps(config, indent=1)) + "\n").encode()
  return files


def peer_tables(row: pathlib.Path, split: str) -> str:
  """Return the tables of all seeds of a peer's row, as `run_scores.load` takes them; "" for none."""
  return ",".join(map(str, sorted(row.glob(f"seed-*.{split}.tsv"))))


def changed_code(row: pathlib.Path) -> str:
  """Say that an unpacked row was made by more than one state of the code; "" where it was not."""
  changed = (results.read(row) or {}).get("identity", {}).get("changed", ())
  return "the code changed between its seeds" if changed else ""


def training(row: pathlib.Path) -> Training:
  """Return what trained an unpacked row; 0 seconds where they were not kept."""
  if (row / SEEDS).exists():
    lines = list(map(json.loads, (row / SEEDS).read_text().splitlines()))
    seconds = sum(line["seconds"] for line in lines)
    return Training(seconds, len(lines), lines[0].get("accelerator", ""))
  content = results.read(row) or {}
  execution = content.get("execution") or {}
  device = execution.get("backend", "cpu")
  device = "" if device == "cpu" else execution.get("device") or device
  return Training(execution.get("seconds_in_steps", 0.0), len(content.get("seeds", ())), device)


def _earlier_evaluations(target: pathlib.Path, name: str, rows: bytes) -> bytes:
  """Return the ledger rows of the row in `target` that the new ones lack: of an earlier training."""

  def without_mode(line: bytes) -> dict[str, Any]:
    return {**json.loads(line), "mode": ""}

  known = list(map(without_mode, rows.splitlines()))
  with unpacked(target.parent, name) as place:
    ledger = place / name / results.LEDGER
    if not ledger.exists():
      return b""
    results.note_another_training(ledger.parent)
    lines = ledger.read_bytes().splitlines(keepends=True)
  return b"".join(line for line in lines if without_mode(line) not in known)


def check_config(source: pathlib.Path, run: Run) -> None:
  """Raise InputError where a run's config is not the one that its row states."""
  config = override(job_files.load(run.config), run.settings, f"{run.config}: ")
  check.check(config)
  if changed := differing((source / "config.json").read_text(), config.to_json()):
    raise InputError(f"{source} is no run of the row {run.name}:\n" + "\n".join(changed))


def differing(there: str, wanted: str) -> list[str]:
  """Return a line a key in which two configs differ, as JSON.

  Keys that are younger than the first have their defaults there. Seeds and folders of paths are not compared.
  """
  both = flatten(json.loads(there)), flatten(json.loads(wanted))
  defaults = flatten(base.get_config())
  for key in (both[1].keys() - both[0].keys()) & defaults.keys():
    both[0][key] = defaults[key]
  for settings in both:
    del settings["seeds"]
    for key, value in settings.items():
      if isinstance(value, str) and not value.startswith("package:"):
        settings[key] = value.rpartition("/")[2]
  return differences(*both)


def _table(path: pathlib.Path) -> bytes:
  ids, columns = trec_files.read_per_question(path)
  lines = ["\t".join(["question", *columns]) + "\n"]
  for question, values in zip(ids, np.stack(list(columns.values()), 1).tolist(), strict=True):
    lines.append("\t".join([question, *(f"{value:.10g}" for value in values)]) + "\n")
  return "".join(lines).encode()
