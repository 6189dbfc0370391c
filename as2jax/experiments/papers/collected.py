"""What a finished run leaves in configs/papers/results: its config, results, ledger, questions' values.

The folder has the layout of a run's, so that `run_scores.load` and the comparison read it. It holds
no text of the data and no path of the machine that trained it.
"""

import json
import lzma
import pathlib
import re
import shutil
from typing import Any

import numpy as np

from as2jax.config import check, flags
from as2jax.config import jobs as job_files
from as2jax.config.flat import differences, flatten
from as2jax.config.overrides import apply as override
from as2jax.data.datasets import trec_files
from as2jax.evaluation import results, run_scores
from as2jax.experiments.papers.rows import Run
from as2jax.runtime.errors import InputError
from as2jax.training.run_folder import step_seconds

SEEDS = "seeds.jsonl"  # of a peer's training: a line a seed
OF_A_SEED = ("seed", "dev_map", "epoch", "seconds", "accelerator")  # the rest are settings
CPU_SECONDS = "cpu_seconds.json"  # of the runs on a CPU that runs on an accelerator replaced
LARGEST = 50_000  # bytes of a file
LEFT_OUT = (
  "other_scores",
)  # of each seed of results.json, and of its diagnostics what is no number
_PATH = re.compile(r"(?<![\w./:\]-])~?/(?:[\w.+@ -]+/)+")


def folder() -> pathlib.Path:
  """Where the results lie; in a wheel there are none."""
  return job_files.folder() / "papers" / "results"


def resolve(run: Run) -> Any:
  """The config that a row states, with the seeds that the config file has."""
  config = override(flags.load(run.config), run.settings, f"{run.config}:")
  check.check(config)
  return config


def collect(source: pathlib.Path, name: str, run: Run, target: pathlib.Path) -> pathlib.Path:
  """Copies what stands for a finished run into `target / name`.

  Raises:
    InputError: it is not finished, it is a run of another config than the row `name` states, its
      tables do not give its results, or a file would be too large.

  """
  content = results.read(source)
  if content is None:
    raise InputError(f"{source} is not finished (no results.json): finish it, then collect it")
  _check_config(source, name, run)
  seeds = [outcome["seed"] for outcome in content["seeds"]]
  written = {}
  for split in results.splits_of(content):
    run_scores.load([str(source)], split=split)  # says where tables and results disagree
    for seed in seeds:
      table = results.folder(source, split, seed, seeds) / "per_question.tsv"
      ids, columns = trec_files.read_per_question(table)
      place = results.folder("", split, seed, seeds) / "per_question.tsv.xz"
      written[str(place)] = lzma.compress(_table(ids, columns), preset=9)
  content["seeds"] = [_of_a_seed(outcome) for outcome in content["seeds"]]
  if any(outcome.get("steps") for outcome in content["seeds"]):
    content["execution"]["seconds_in_steps"] = round(step_seconds(source), 1)
  config = json.loads((source / "config.json").read_text())
  written["results.json"] = (_without_paths(json.dumps(content)) + "\n").encode()
  written["config.json"] = (_without_paths(json.dumps(config, indent=1)) + "\n").encode()
  ledger = source / results.LEDGER
  if ledger.exists():
    written[results.LEDGER] = ledger.read_bytes()
  return _write(source, written, target / name)


def _of_a_seed(outcome: dict[str, Any]) -> dict[str, Any]:
  kept = {key: value for key, value in outcome.items() if key not in LEFT_OUT}
  numbers = kept.pop("diagnostics", {}).items()
  if numbers := {key: value for key, value in numbers if isinstance(value, int | float)}:
    kept["diagnostics"] = numbers
  return kept


def collect_tables(source: pathlib.Path, name: str, target: pathlib.Path) -> pathlib.Path:
  """Copies what launch/benchmarks/sentence_transformers_training.py wrote into `target / name`.

  Raises:
    InputError: there is none of it, or a file would be too large.

  """
  if not (source / SEEDS).exists():
    raise InputError(f"{source} holds no {SEEDS}: run the benchmark to its end, then collect it")
  written = {SEEDS: (source / SEEDS).read_bytes()}
  for table in sorted(source.glob("seed-*.tsv")):
    ids, columns = trec_files.read_per_question(table)
    written[f"{table.name}.xz"] = lzma.compress(_table(ids, columns), preset=9)
  if (source / results.LEDGER).exists():
    written[results.LEDGER] = (source / results.LEDGER).read_bytes()
  return _write(source, written, target / name)


def tables(folder: pathlib.Path, split: str) -> str:
  """The tables of all seeds that `collect_tables` kept, as `run_scores.load` takes them; "" for none."""
  return ",".join(str(path) for path in sorted(folder.glob(f"seed-*.{split}.tsv.xz")))


def seeds_of_peer(folder: pathlib.Path) -> int:
  """How many seeds `collect_tables` kept; 0 where it kept none."""
  return len(_lines(folder)) if (folder / SEEDS).exists() else 0


def seconds(folder: pathlib.Path) -> float | None:
  """Mean seconds on a CPU of a seed's training steps; None where they were not kept.

  Those on an accelerator say nothing beside them: rows that were trained there keep the seconds of
  the CPU's run which they replaced.
  """
  kept = folder / CPU_SECONDS
  if kept.exists():
    return json.loads(kept.read_text())["seconds"]
  if accelerator(folder):
    return None
  if (folder / SEEDS).exists():
    return float(np.mean([row["seconds"] for row in _lines(folder)]))
  content = results.read(folder) or {"seeds": ()}
  spent = content.get("execution", {}).get("seconds_in_steps")
  return None if spent is None else spent / len(content["seeds"])


def steps_took(folder: pathlib.Path) -> float:
  """Seconds of the training steps of all seeds, on whatever trained them; 0.0 where none were kept."""
  if (folder / SEEDS).exists():
    return sum(row["seconds"] for row in _lines(folder))
  return ((results.read(folder) or {}).get("execution") or {}).get("seconds_in_steps", 0.0)


def accelerator(folder: pathlib.Path) -> str:
  """The name of the accelerator that trained the seeds; "" for a CPU."""
  if (folder / SEEDS).exists():
    return _lines(folder)[0].get("accelerator", "")
  execution = (results.read(folder) or {}).get("execution", {})
  backend = execution.get("backend", "cpu")
  return "" if backend == "cpu" else execution.get("device") or backend


def _lines(folder: pathlib.Path) -> list[dict[str, Any]]:
  return [json.loads(line) for line in (folder / SEEDS).read_text().splitlines()]


def _write(source: pathlib.Path, written: dict[str, bytes], target: pathlib.Path) -> pathlib.Path:
  for file, text in written.items():
    if len(text) > LARGEST:
      raise InputError(f"{source}: {file} has {len(text)} bytes, more than {LARGEST}")
  if target.exists():  # of a run that this one replaces, maybe of other seeds
    spent = seconds(target)
    if spent is not None and accelerator(source) and _same_training(source, target):
      written[CPU_SECONDS] = f"{json.dumps({'seconds': round(spent, 1)})}\n".encode()
    if earlier := _earlier_evaluations(target, written.get(results.LEDGER, b"")):
      written[results.LEDGER] = earlier + written.get(results.LEDGER, b"")
    shutil.rmtree(target)
  for file, text in written.items():
    path = target / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
  return target


def _earlier_evaluations(target: pathlib.Path, ledger: bytes) -> bytes:
  """The rows of the ledger in `target` that the one in its place lacks, as of an earlier training."""
  kept = target / results.LEDGER
  if not kept.exists():
    return b""
  results.note_another_training(target)
  of = lambda line: {key: its for key, its in json.loads(line).items() if key != "mode"}
  there = [of(line) for line in ledger.splitlines()]
  lines = kept.read_bytes().splitlines(keepends=True)
  return b"".join(line for line in lines if of(line) not in there)


def _same_training(one: pathlib.Path, other: pathlib.Path) -> bool:
  """Whether two folders agree in all settings that both state; later versions state more."""
  settings = _of_a_peer if (one / SEEDS).exists() else _settings
  a, b = settings(one), settings(other)
  return all(a[key] == b[key] for key in a.keys() & b.keys())


def _of_a_peer(folder: pathlib.Path) -> dict[str, Any]:
  return {key: its for key, its in _lines(folder)[0].items() if key not in OF_A_SEED}


def _settings(folder: pathlib.Path) -> dict[str, Any]:
  """A run's config without its seeds and without folders."""
  flat = flatten(json.loads((folder / "config.json").read_text()))
  return {key: _named(value) for key, value in flat.items() if key != "seeds"}


def _check_config(source: pathlib.Path, name: str, run: Run) -> None:
  there = _settings(source)
  wanted = {key: _named(its) for key, its in flatten(json.loads(resolve(run).to_json())).items()}
  known = {key: value for key, value in wanted.items() if key in there}  # others came later
  changed = differences(there, known)
  younger = [key for key in run.settings if key not in there and key != "seeds"]
  changed += [f"  {key}: the run's version did not have it" for key in younger]
  if changed:
    raise InputError(f"{source} is no run of the row {name}:\n" + "\n".join(changed))


def _named(value: Any) -> Any:
  """A path without its folders, which differ from machine to machine; a package's is the same on all."""
  if not isinstance(value, str) or value.startswith("package:"):
    return value
  return value.rpartition("/")[2]


def _table(ids, columns) -> bytes:
  """As `trec_files.write_table`, in ten digits."""
  lines = ["\t".join(["question", *columns])]
  for question, *values in zip(ids, *(c.tolist() for c in columns.values()), strict=True):
    lines.append("\t".join([question, *(f"{value:.10g}" for value in values)]))
  return ("\n".join(lines) + "\n").encode()


def _without_paths(text: str) -> str:
  return _PATH.sub("", text)
