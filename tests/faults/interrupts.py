"""Ctrl-C to commands at any moment, imports and compilation included: one line and status 130."""

import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from tests.faults.stops import HUNG, Runs
from tests.faults.totals import Totals

SECONDS = 60.0  # from the last signal to the end of a process
START = 1.0  # seconds in which Python may not have begun with the package
AGAIN = 0.3  # seconds between the first and the second signal, where there are two
RAW = ("Traceback", "KeyboardInterrupt", "Exception ignored", "Fatal", "Segmentation", "internal")


def commands(runs: Runs, folder: pathlib.Path) -> dict[str, list[str]]:
  """Command lines by name; `folder` is where they write."""
  plain, config = str(runs.base / "plain"), f"--config=rerun:{runs.base / 'config.json'}"
  questions = folder / "questions.tsv"
  lines = [f"who sat on {i}?\tthe cat sat on {i}." for i in range(5)]
  questions.write_text("question\tcandidate\n" + "\n".join(lines) + "\n")
  begun = folder / "begun"  # of its own: `train` may be interrupted before it makes its folder
  begun.mkdir(exist_ok=True)
  shutil.copy(runs.base / "config.json", begun)
  return {
    "train": ["as2jax.main", config, f"--workdir={folder / 'run'}"],
    "go on": ["as2jax", "train", str(begun)],
    "evaluate": ["as2jax", "evaluate", plain],
    "rank": ["as2jax", "rank", plain, str(questions), "-o", str(folder / "ranked.jsonl")],
    "export": ["as2jax", "export", plain, str(folder / "exported")],
    "compare": ["as2jax", "compare", plain, plain],
    "check": ["as2jax", "data", "check", "sample"],
    "list": ["as2jax", "list", "keys"],
  }


def interrupt(runs: Runs, seed: int, cases: int) -> list[Totals]:
  """Sends SIGINT once or twice to each command in turn; the run `plain` is finished."""
  totals = Totals("interrupted commands")
  folder = runs.base / "stopped"
  folder.mkdir()
  lines = commands(runs, folder)
  took: dict[str, float] = {}
  for case in range(cases):
    name = list(lines)[case % len(lines)]
    rng = random.Random(f"{seed} interrupts {case}")
    longest = took.get(name, 5.0)
    moment = rng.random() * (longest if rng.random() < 0.7 else min(longest, 1.0))
    # Of one that had ended: `export` replaces no folder.
    shutil.rmtree(folder / "exported", ignore_errors=True)
    begin = time.monotonic()
    status, said = send(lines[name], moment, twice=rng.random() < 0.25)
    if status == 0:  # it had ended: the next ones come earlier
      took[name] = time.monotonic() - begin
      totals.add("it had ended")
    elif moment < START and "as2jax" not in said:
      totals.add("in Python's own start")
    else:
      took[name] = max(took.get(name, 5.0), moment * 1.5)
      wrong = judge(status, said)
      where = f"{name} after {moment:.2f} s: {wrong}: status {status}: {said[-3000:]}"
      totals.add("one line" if not wrong else "wrong", wrong=where if wrong else "")
  return [totals]


def send(command: list[str], moment: float, *, twice: bool) -> tuple[int | str, str]:
  """Starts a command and interrupts it after `moment` seconds; its status and standard error."""
  process = subprocess.Popen(
    [sys.executable, "-m", *command],
    text=True,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
  )
  try:
    return process.wait(moment), process.stderr.read()
  except subprocess.TimeoutExpired:
    process.send_signal(signal.SIGINT)
  if twice:
    time.sleep(AGAIN)
    process.send_signal(signal.SIGINT)
  try:
    _, said = process.communicate(timeout=SECONDS)
    return process.returncode, said
  except subprocess.TimeoutExpired:
    process.kill()
    return HUNG, process.communicate()[1]


def judge(status: int | str, said: str) -> str:
  """What is wrong with the end of an interrupted process; "" where nothing is."""
  if status != 130:
    return "the status"
  raw = [word for word in RAW if word in said]
  if raw:
    return f"it says {raw}"
  told = [line for line in said.splitlines() if "SIGINT" in line or "interrupted" in line]
  if not told or not said.splitlines()[-1].startswith("as2jax: "):
    return "it does not say why it ended"
  return "it says it twice" if len(told) > 2 else ""
