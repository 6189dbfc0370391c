"""The live table: what it shows of runs under way."""

import io
import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from as2jax.experiments.sweeps import live_table, local_executor
from as2jax.experiments.sweeps.local_executor import FAILED, FINISHED, RUNNING, WAITING, Status


def drawn(statuses, output):
  console = Console(file=io.StringIO(), width=120)
  console.print(live_table.table(statuses, output))
  return console.file.getvalue()


def test_a_run_under_way_shows_the_last_line_of_its_log(tmp_path):
  (tmp_path / "a").mkdir()
  (tmp_path / "a" / "log.txt").write_text("step 1\nstep 2 [loss] 0.5\n\n")
  text = drawn(
    [Status("b", "rate=1 [x]", WAITING, 0.0), Status("a", "base", RUNNING, 61.0)], tmp_path
  )
  lines = text.splitlines()
  assert "1 running, 0 failed, 0 finished, 1 waiting" in text
  first, second = (
    next(i for i, line in enumerate(lines) if mark in line)
    for mark in ("step 2 [loss] 0.5", "rate=1 [x]")
  )
  assert first < second and "00:01:01" in lines[first] and "step 1" not in text


def test_what_needs_eyes_comes_first_and_the_rest_is_counted(tmp_path):
  many = [Status(f"id{i}", "t", FINISHED, 1.0) for i in range(30)]
  text = drawn([*many, Status("bad", "t", FAILED, 2.0)], tmp_path)
  assert "bad" in text and "and 11 more" in text and "id29" not in text


def test_the_executor_tells_where_the_runs_are(tmp_path):
  class Job:
    text = "{}"

    def __init__(self, number):
      self.id, self.title = f"id{number}", f"job {number}"

  code = (
    "import pathlib, sys\nif FOLDER.endswith('id1'):\n  sys.exit('no')\n"
    "(pathlib.Path(FOLDER) / 'results.json').write_text('{}')"
  )
  seen = []
  console = Console(file=io.StringIO(), width=100)
  with Live(console=console, transient=True) as live:

    def watch(statuses):
      seen.append({s.id: s.state for s in statuses})
      live.update(live_table.table(statuses, tmp_path))

    local_executor.execute(
      [Job(0), Job(1)],
      tmp_path,
      parallel=1,
      say=lambda line: live.console.print(Text(line)),
      watch=watch,
      make_command=lambda folder: [sys.executable, "-c", code.replace("FOLDER", repr(str(folder)))],
    )
  assert seen[0] == {"id0": RUNNING, "id1": WAITING}
  assert seen[-1] == {"id0": FINISHED, "id1": FAILED}
  assert "id1 job 1: FAILED with status 1: no" in console.file.getvalue()
