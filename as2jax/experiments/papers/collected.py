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
from collections.abc import Iterable, Iterator, Sequence
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
_MODE = re.compile(rb'"mode": "[^"]*"')  # in a row of the ledger
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

  Of a row of the same recipe the seeds stay that the run lacks, and the ledger. A peer's folder is written by
  launch/benchmarks/sentence_transformers_training.py.
  """
  target, sources, evaluations = where / f"{run.name}{PACKED}", [source], {}
  with unpacked(where, run.name) as rows:
    earlier = rows / run.name
    if isinstance(run, Peer):
      files = _of_peer(source)
    else:
      if set(_seeds(earlier)) - set(_seeds(source)) and not _changed(earlier, run):
        sources.insert(0, earlier)
      files = _of_run(sources, run)
    if earlier not in sources:
      results.note_another_training(earlier)
    for place in (earlier, source):
      ledger = bound.file(place, results.LEDGER)
      for line in ledger.read_bytes().splitlines(keepends=True) if ledger.exists() else ():
        evaluations[_MODE.sub(b"", line)] = line
  if evaluations:
    files[results.LEDGER] = b"".join(evaluations.values())
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
  tables = {table.name: _table(table) for table in source.glob("seed-*.tsv")}
  return {SEEDS: (source / SEEDS).read_bytes(), **tables}


def _seeds(folder: pathlib.Path) -> list[int]:
  return [outcome["seed"] for outcome in (results.read(folder) or {}).get("seeds", ())]


def lacking(run: Run | Peer, row: pathlib.Path) -> Run | Peer | None:
  """Return a run with those of its seeds that its unpacked row lacks; None where it lacks none."""
  if not row.exists():
    return run
  wanted = [] if isinstance(run, Peer) else run.settings.get("seeds", ())
  left = tuple(seed for seed in wanted if seed not in _seeds(row))
  if not left:
    return None
  hours = run.hours * len(left) / len(wanted)
  return run._replace(settings={**run.settings, "seeds": left}, hours=hours)


def _of_run(sources: Sequence[pathlib.Path], run: Run) -> dict[str, bytes]:
  """Return the files of a row, of one or two runs by its recipe; of a seed that both have, those of the second."""
  contents = [_content(source, run) for source in sources]
  places = {seed: source for source in sources for seed in _seeds(source)}
  seeds, content, files = sorted(places), contents[-1], {}
  for split in results.splits_of(content):
    run_scores.load(list(map(str, sources)), split=split)  # says what does not agree
    for seed, source in places.items():
      own = results.folder("", split, seed, _seeds(source)) / "per_question.tsv"
      place = results.folder("", split, seed, seeds) / own.name
      files[str(place)] = _table(bound.file(source, own))
  if len(contents) > 1:
    _join(*contents, f"{run.name}: its kept seeds and those of {sources[-1]}")
  config = json.loads(bound.file(sources[-1], "config.json").read_text()) | {"seeds": seeds}
  files["results.json"] = (_PATH.sub("", json.dumps(content)) + "\n").encode()
  files["config.json"] = (_PATH.sub("", json.dumps(config, indent=1)) + "\n").encode()
  return files


def _content(source: pathlib.Path, run: Run) -> dict[str, Any]:
  """Return what a row keeps of a run's results; InputError where it is unfinished or not of the row's recipe."""
  content = results.read(source)
  if content is None:
    raise InputError(f"{source} is not finished (no results.json): finish it, then collect it")
  check_config(source, run)
  for outcome in content["seeds"]:
    outcome.pop("other_scores", None)
    outcome.pop("diagnostics", None)
  content["execution"].setdefault("seconds_in_steps", round(step_seconds(source), 1))
  return content


def _join(earlier: dict[str, Any], content: dict[str, Any], whose: str) -> None:
  """Give the second of two results the seeds that it lacks; the tables alone say how wide intervals are then."""
  parts = earlier, content
  first, last = (part["identity"] for part in parts)
  for of in ("weights", "tokenizer", "inputs"):
    if first.get(of) != last.get(of):
      raise InputError(f"{whose} did not begin with the same {of}: train them anew, all together")
  content["seeds"] = _by_seed(part["seeds"] for part in parts)
  content["metrics"] = results.over_seeds([results.Outcome(**one) for one in content["seeds"]])
  content["before_training"] = results.before_training(content)
  if "warm_start" in content:
    content["warm_start"]["seeds"] = _by_seed(part["warm_start"]["seeds"] for part in parts)
  seconds = [part["execution"]["seconds_in_steps"] for part in parts]
  content["execution"]["seconds_in_steps"] = round(sum(seconds), 1) if all(seconds) else 0.0
  last["changed"] = [*first["changed"], *last["changed"]]
  for of in ("code", "versions"):
    if first[of] != last[of]:
      last["changed"].append(f"{of}: {first[of]} → {last[of]}")


def _by_seed(lists: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
  """Join lists of what seeds have, in their order; of a seed that several have, the last."""
  found = {one["seed"]: one for entries in lists for one in entries}
  return [found[seed] for seed in sorted(found)]


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
    device = lines[0].get("accelerator", "")
    return Training(sum(line["seconds"] for line in lines), len(lines), device)
  content = results.read(row) or {}
  execution = {"backend": "cpu"} | (content.get("execution") or {})
  device = "" if execution["backend"] == "cpu" else execution.get("device") or execution["backend"]
  return Training(execution.get("seconds_in_steps", 0.0), len(content.get("seeds", ())), device)


def check_config(source: pathlib.Path, run: Run) -> None:
  """Raise InputError where a run's config is not the one that its row states."""
  if changed := _changed(source, run):
    raise InputError(f"{source} is no run of the row {run.name}:\n" + "\n".join(changed))


def _changed(source: pathlib.Path, run: Run) -> list[str]:
  config = override(job_files.load(run.config), run.settings, f"{run.config}: ")
  check.check(config)
  return differing((source / "config.json").read_text(), config.to_json())


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
