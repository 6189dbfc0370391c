"""Commands that are killed, or find a full disk, at each of their file calls, and are given again.

`calls.c` counts the calls that change files below the folder that a command writes; a process in which it
is loaded before all others (LD_PRELOAD) forks one that runs the command. Right is: what an undisturbed
command writes, after the same command again; no visible file that is not whole; of a full disk status 2 with
our message last (orbax's threads may print a traceback before it).
"""

import ctypes
import json
import logging
import os
import pathlib
import random
import shutil
import signal
import sys

import tiny
import tiny_systems

from tests.faults import stops
from tests.faults.fuzz import Totals

# What is under way, and what has times in it.
HIDDEN = (
  "working checkpoints encoder log.txt metrics.jsonl run.json evaluations.jsonl report.html".split()
)
# verb -> its words, and the file that says that all is whole.
VERBS = {
  "index": ("index {runs}/triplet {base}/few.txt -o {out}", "index.json"),
  "mine": ("lab mine {runs}/triplet,bm25 {base}/few.tsv --below=1e9 -o {out}", "mining.json"),
  "distill": (
    "lab distill {base}/few.tsv --cross-fit=recommended:accurate -o {out} --set encoder.pretrained="
    "{base}/encoder --set epochs=1 --set data.max_length=64 --set batch.row_lengths=(64,) --set "
    "batch.shards=2 --set log.report=False --set log.tensorboard=False",
    "teachers.json",
  ),
  "export": ("export {runs}/triplet {out}/exported", "exported/README.md"),
  "collect": ("lab measured --collect x={runs}/bm25", "x.tar.xz"),
  "sweep": (
    "lab sweep --base=wikiqa_baseline:bm25,sample --grid model.name=bm25,word_overlap -o {out}",
    "table.txt",
  ),
}


class Kills:
  """Commands over runs, files and an encoder in the folder `base`, a case at a time in `base`/case."""

  def __init__(self, base: pathlib.Path):
    from as2jax.experiments import distil, mine, sweep  # noqa: F401  imported before the forks
    from as2jax.experiments.papers import collected, measured, rows
    from as2jax.inference import export, index, modes, open  # noqa: F401

    self.base, self.out, self.log = base, base / "case" / "out", base / "log.txt"
    self.arm = ctypes.CDLL(None).arm
    base.mkdir(parents=True)
    encoder = base / "encoder"
    make = lambda: shutil.copytree(tiny.encoder_folder(), encoder)
    assert stops.wait(stops.fork(make, self.log)) == 0, self.log.read_text()
    os.environ["AS2JAX_TINY_ENCODER"] = str(encoder)
    tiny.encoder_folder.cache_clear()
    for system in ("triplet", "bm25"):
      train = lambda: modes.run(tiny_systems.config(system), str(base / "runs" / system))
      assert stops.wait(stops.fork(train, self.log)) == 0, self.log.read_text()
    (base / "few.txt").write_text("".join(f"number {i} is here\n" for i in range(40)))
    lines = ["question_id\tquestion\tcandidate_id\tcandidate\tlabel"]
    for i in range(40):
      for label, text in ((1, f"number {i} is here"), (0, f"a dog {i}")):
        lines.append(f"q{i}\twho is number {i}\tq{i}-{label}\t{text}\t{label}")
    (base / "few.tsv").write_text("\n".join(lines) + "\n")
    # A row of ours that a run on the sample may fill, in no folder of the repository.
    row = rows.Run("configs/wikiqa_baseline.py:bm25,sample", name="x")
    measured.kept_runs, collected.folder = lambda: {"x": row}, lambda: self.out

  def run(self, verb: str, call: int = 0, full: bool = False) -> tuple[int, str, int]:
    """Gives a command that ends at a call; returns its status, its words, and its number of calls."""
    words = VERBS[verb][0].format(runs=self.base / "runs", base=self.base, out=self.out).split()
    counted = self.base / "counted"
    self.log.unlink(missing_ok=True)

    def work() -> None:
      from as2jax.commands import app

      logging.disable(logging.NOTSET)
      sys.argv = ["as2jax", *words]
      self.arm(str(self.out.parent).encode(), call, full)
      status = app.run()
      counted.write_text(str(ctypes.CDLL(None).counted()))
      sys.exit(status)

    status = stops.wait(stops.fork(work, self.log))
    return status, self.log.read_text(), int(counted.read_text()) if counted.exists() else 0

  def content(self) -> dict[str, bytes]:
    """The visible files that a command has finished, without times."""
    found = {}
    for path in sorted(self.out.rglob("*")):
      parts = path.relative_to(self.out).parts
      hidden = any(
        part.startswith(".") or part.endswith(".unfinished") or part in HIDDEN for part in parts
      )
      if path.is_file() and not hidden:
        found["/".join(parts)] = path.read_bytes()
        if path.name == "results.json":
          found["/".join(parts)] = json.dumps(
            json.loads(path.read_text()) | {"execution": None}
          ).encode()
    return found

  def begin(self) -> None:
    """Empties the folder of the case."""
    shutil.rmtree(self.out.parent, ignore_errors=True)
    self.out.parent.mkdir()

  def cases(self, verb: str, most: int, seed: int) -> Totals:
    """Disturbs a command by a kill and by a full disk, each at a random call of each of `most` equal parts."""
    totals, mark = Totals(f"stops of {verb}"), VERBS[verb][1]
    self.begin()
    status, said, calls = self.run(verb)
    assert status == 0, said
    plain, most, rng = self.content(), min(most, calls), random.Random(f"{seed} {verb}")
    for part in range(most):
      for full in (False, True):
        call = rng.randrange(calls * part // most, calls * (part + 1) // most) + 1
        self.begin()
        where = f"{verb}, call {call} of {calls}, {'full disk' if full else 'SIGKILL'}"
        status, said, _ = self.run(verb, call, full)
        there = self.content()
        wrong = [name for name in there if there[name] != plain.get(name) and name != "index.json"]
        if there.get(mark) == plain[mark] and there != plain:
          wrong.append(f"{mark} is there before {sorted(plain.keys() - there.keys())}")
        if status != (2 if full else -signal.SIGKILL) and there != plain:
          wrong.append(f"status {status}: {said[-500:]}")
        if full and status == 2 and not said.strip().rpartition("\n")[2].startswith("as2jax: "):
          wrong.append(f"no message: {said[-500:]}")
        status, said, _ = self.run(verb)
        if self.content() != plain or status and not (status == 2 and there == plain):
          wrong.append(f"again, status {status}: {said[-500:]}")
        totals.add("full disk" if full else "SIGKILL", wrong=f"{where}: {wrong}" if wrong else "")
    return totals
