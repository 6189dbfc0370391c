"""python -m launch.benchmarks.history: runs the benchmarks that launch/README.md shows, and keeps them.

Each row is a benchmark of this folder in a process of its own: both sides in turn, in alternating
blocks. A record holds the processor, the versions, the commit, the date, medians and every block, and
is added to history/, one file for each kind of machine. The table of launch/README.md is made
from the newest records that were taken on an idle machine and a commit without changes.

  python -m launch.benchmarks.history                  # all rows: about half an hour, on an idle machine
  python -m launch.benchmarks.history encode rank10    # these
  python -m launch.benchmarks.history --write          # only makes the table again
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from launch.benchmarks.machine import cores, processor

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "launch" / "benchmarks" / "history"
README = ROOT / "launch" / "README.md"
BEGIN, END = "<!-- benchmarks -->", "<!-- end of benchmarks -->"
PACKAGES = ("jax", "jaxlib", "torch", "transformers", "sentence-transformers")


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of the table.

  Attributes:
    what: as the table says it.
    command: the benchmark and its flags.
    unit: of both sides' speed: `…/s`, or `ms` where less is better.

  """

  what: str
  command: tuple[str, ...]
  unit: str


ROWS = {
  "triplet": Row(
    "training, triplets, `grouped`", ("benchmark", "--system=triplet", "--fair"), "triplets/s"
  ),
  "triplet-bfloat16": Row(
    "the same, both in bfloat16",
    ("benchmark", "--system=triplet", "--fair", "--dtype=bfloat16", "--autocast"),
    "triplets/s",
  ),
  "crossencoder": Row(
    "training, cross-encoder, batch 16", ("benchmark", "--system=crossencoder"), "pairs/s"
  ),
  "crossvae": Row(
    "training, Cross-VAEs, `small`", ("benchmark", "--system=crossvae", "--size=small"), "pairs/s"
  ),
  "m2snet": Row("training, M²S-Net, row `4`", ("benchmark", "--system=m2snet"), "pairs/s"),
  "encode": Row(
    "encoding WikiQA's test sentences", ("benchmark", "--system=encode"), "sentences/s"
  ),
  "encode-modernbert": Row(
    "the same, ModernBERT of ettin-17m's shape",
    ("benchmark", "--system=encode", "--shape=ettin-17m"),
    "sentences/s",
  ),
  "rank-split": Row("ranking WikiQA's first 300 test questions", ("rank_split",), "sentences/s"),
  "rank-split-cross": Row("the same by a cross-encoder", ("rank_split", "--kind=cross"), "pairs/s"),
  "rank10": Row("`rank` of ten candidates, warm", ("rank", "--candidates=10"), "ms"),
  "rank100": Row("`rank` of a hundred", ("rank", "--candidates=100"), "ms"),
}


def commit() -> tuple[str, bool]:
  """The clone's commit, and whether its files differ from it, but the records and their table.

  Raises:
    InputError: the program does not run in a clone.

  """
  git = lambda *words: subprocess.run(
    ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
  )
  head = git("rev-parse", "--short", "HEAD")
  if head.returncode:
    raise InputError("a record names its commit: run this in a clone of the repository")
  kept = [f":(exclude){path.relative_to(ROOT)}" for path in (FOLDER, README)]
  return head.stdout.strip(), bool(git("status", "--porcelain", "--", ".", *kept).stdout.strip())


def machine() -> dict[str, Any]:
  """What a record says of the machine and of what was installed."""
  installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
  versions = {p: importlib.metadata.version(p) for p in PACKAGES if p in installed}
  head, changed = commit()
  return {
    "processor": processor(),
    "cores": cores(),
    "versions": versions,
    "commit": head,
    "changed": changed,
    "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
  }


def measure(name: str, extra: Sequence[str] = ()) -> dict[str, Any]:
  """One record of a row: the benchmark's own result, cut to what the table reads and its blocks.

  Raises:
    InputError: the benchmark failed, or ran without its other side.

  """
  module, *flags = ROWS[name].command
  with tempfile.TemporaryDirectory(prefix="as2jax-history-") as folder:
    file = pathlib.Path(folder) / "result.json"
    command = [sys.executable, "-m", f"launch.benchmarks.{module}", *flags, *extra]
    done = subprocess.run([*command, f"--json={file}"], cwd=ROOT, check=False)
    if done.returncode or not file.exists():
      raise InputError(f"{' '.join(command)} failed with status {done.returncode}")
    result = json.loads(file.read_text(encoding="utf-8"))
  if len(result["sides"]) < 2:
    raise InputError(f"{name}: {'; '.join(result['notes'])}: a record wants both sides")
  return {"row": name, "flags": [*flags, *extra], **shortened(result)}


def shortened(result: Mapping[str, Any]) -> dict[str, Any]:
  """The sides' medians, ratios of all blocks and notes of a benchmark's result."""
  sides = {}
  for side in result["sides"]:
    own = result[side]
    kept = ("speed", "examples_per_second", "share_of_peak", "peak_flops", "ratio")
    sides[side] = {key: own[key] for key in kept if key in own}
    if "ratio_of_each_block" in own:
      sides[side]["blocks"] = [round(r, 3) for r in own["ratio_of_each_block"]]
  return {"sides": sides, "busy": result["busy"], "notes": result["notes"]}


def add(records: Sequence[Mapping[str, Any]]) -> pathlib.Path:
  """Appends records to the file of their kind of machine."""
  kind = f"{records[0]['processor']} {records[0]['cores']}"
  file = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', kind.lower()).strip('-')}.jsonl"
  before = file.read_text(encoding="utf-8") if file.exists() else ""
  lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
  write_whole(file, before + lines)
  return file


def records() -> list[dict[str, Any]]:
  """All records, oldest first within a kind of machine.

  Raises:
    InputError: a line is no record.

  """
  read = []
  for file in sorted(FOLDER.glob("*.jsonl")):
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
      try:
        read.append(json.loads(line))
        read[-1]["row"], read[-1]["sides"]
      except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}:{number}: no record of a benchmark ({error})") from error
  return read


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """The newest idle record of each row and kind of machine, in Markdown."""
  newest: dict[tuple[str, str], Mapping[str, Any]] = {}
  for record in rows:
    if record["row"] in ROWS and not record["busy"] and not record["changed"]:
      newest[record["row"], f"{record['processor']}, {record['cores']} cores"] = record
  lines = [
    "| step | processor | ours | other side | ratio (each block) | share of the matrix peak | commit |",
    "| --- | --- | ---: | ---: | --- | ---: | --- |",
  ]
  for name, row in ROWS.items():
    for (of, place), record in newest.items():
      if of == name:
        lines += _lines(row, place, record)
  return "\n".join(lines)


def _lines(row: Row, place: str, record: Mapping[str, Any]) -> Iterator[str]:
  (_, ours), *others = record["sides"].items()
  share = f"{ours['share_of_peak']:.0%}" if ours.get("share_of_peak") else ""
  speed = lambda side: side.get("speed", side.get("examples_per_second"))
  for name, side in others:
    blocks = ", ".join(f"{r:.2f}" for r in side["blocks"])
    yield (
      f"| {row.what} | {place} | {speed(ours):,.4g} {row.unit} | {speed(side):,.4g} ({name}) "
      f"| {side['ratio']:.2f} ({blocks}) | {share} | {record['commit']}, {record['date']} |"
    )


def write() -> None:
  """Puts the table between its marks in launch/README.md."""
  text = README.read_text(encoding="utf-8")
  start, begin, rest = text.partition(BEGIN)
  _, ends, rest = rest.partition(END)
  if not begin or not ends:
    raise InputError(f"{README}: the marks {BEGIN} and {END} are not there")
  write_whole(README, f"{start}{BEGIN}\n{table(records())}\n{END}{rest}")


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the rows that are named, keeps their records and makes the table."""
  parser = argparse.ArgumentParser(
    prog="launch.benchmarks.history",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
  parser.add_argument("--write", action="store_true", help="only makes the table again")
  parser.add_argument("--blocks", type=int, help="of each side; default: the benchmark's")
  flags = parser.parse_args(argv)
  try:
    if unknown := [name for name in flags.rows if name not in ROWS]:
      raise InputError(f"{', '.join(unknown)}: name rows of {', '.join(ROWS)}")
    if not flags.write:
      where = machine()
      extra = [f"--blocks={flags.blocks}"] if flags.blocks else []
      for name in flags.rows or ROWS:
        print(f"== {name}", file=sys.stderr, flush=True)
        record = {**where, **measure(name, extra)}
        file = add([record])
        whys = {"BUSY": record["busy"], "uncommitted changes": record["changed"]}
        why = " and ".join(word for word, holds in whys.items() if holds)
        note = f": {why}, not for the table" if why else ""
        print(f"{name}: kept in {file.relative_to(ROOT)}{note}", flush=True)
    write()
  except InputError as error:
    print(f"history: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
