"""Readers of what runs and sweeps leave in their folders, each with whole files and a judge."""

import json
import pathlib
import tempfile

import tiny

from as2jax.config import jobs
from as2jax.data import trec_files
from as2jax.evaluation import results
from as2jax.experiments.sweeps import points, states
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import seal, unseal
from as2jax.training import progress
from as2jax.training.metrics_log import MetricsLog
from tests.faults.fuzz import Reader, judged


def evaluations() -> list[Reader]:
  """The readers of run files, judgements, scores and results."""
  run = "".join(f"q{i} Q0 c{j} {j + 1} {9 - j}.5 tag\n" for i in range(3) for j in range(4))
  qrels = "".join(f"q{i} 0 c{j} {j % 2}\n" for i in range(3) for j in range(4))
  table = "question\tcandidates\tpositives\tmap\n" + "".join(f"q{i}\t4\t1\t0.5\n" for i in range(5))
  lines = lambda path: len([x for x in path.read_bytes().split(b"\n") if x.strip()])
  pairs = lambda read: lambda path: sum(map(len, read(path).values())) == lines(path)
  written = {
    "name": "x", "task": "rerank", "metrics": {"map[x-clean/test]": {"mean": 0.5, "sd": None}},
    "seeds": [{"seed": 0}],
  }  # fmt: skip
  rows = "".join(json.dumps({"seed": 0, "step": i, "loss": 0.5}) + "\n" for i in range(6))

  of_a_run = seal({"state": "training", "step": 3, "steps": 9, "best": 0.5, "time": 0.0})
  ledger = "".join(
    json.dumps({"data": "x", "split": "test", "seeds": [0, 1], "mode": "train"}) + "\n"
    for _ in range(3)
  )

  return [
    Reader("evaluations.jsonl", [ledger.encode()], judged("evaluations.jsonl", _counted)),
    Reader("TREC run", [run.encode()], judged("run.trec", pairs(trec_files.read_run))),
    Reader("TREC judgements", [qrels.encode()], judged("qrels", pairs(trec_files.read_qrels))),
    Reader(
      "per-question scores",
      [table.encode()],
      judged(
        "table.tsv", lambda p: len(trec_files.read_per_question(p)[0]) == max(lines(p) - 1, 0)
      ),
    ),
    Reader(
      "results.json",
      [json.dumps(written, indent=2).encode()],
      judged("results.json", lambda p: results.read(p.parent) == json.loads(p.read_bytes())),
    ),
    Reader("metrics.jsonl", [rows.encode()], judged("metrics.jsonl", _rolled_back)),
    Reader("status.json", [of_a_run.encode()], judged("status.json", _known)),
  ]


def _rolled_back(path: pathlib.Path) -> bool:
  """The log keeps each row up to the step, as it was, and the rows only."""
  before = path.read_bytes()
  log = MetricsLog(path.parent, tensorboard=False)
  log.roll_back((0,), 3)
  log.close()
  whole = before[: before.rfind(b"\n") + 1].decode().splitlines(keepends=True)
  rows = [(line, json.loads(line)) for line in whole]
  kept = [line for line, row in rows if row["seed"] != 0 or row["step"] <= 3]
  return path.read_bytes().decode() == "".join(kept)


def _known(path: pathlib.Path) -> bool:
  """A status that is not what was written is none: nothing is shown of it."""
  actual = progress.read_status(path.parent)
  row = states.state_of(path.parent, points.Job("x", 0, "x", {}, 0, "{}"))
  states.cells([row])
  if not actual:
    assert row == {"id": "x", "title": "x", "state": states.WAITING, "note": ""}
    raise InputError(f"{path}: damaged")
  return actual == unseal(path.read_bytes().decode()) and row["step"] == actual["step"]


def _counted(path: pathlib.Path) -> bool:
  """Only rows of this split of these data count, each once for each of its seeds; a training's once."""
  times = results.times_evaluated(path.parent, "test", "x")
  rows = [json.loads(line) for line in path.read_bytes().splitlines()]
  rows = [row for row in rows if row["data"] == "x" and "test" in row["split"].split("+")]
  trained = {
    (row["split"], seed) for row in rows if row["mode"] == "train" for seed in row["seeds"]
  }
  seeds = [seed for _, seed in trained]
  seeds += [seed for row in rows if row["mode"] != "train" for seed in set(row["seeds"])]
  return times == max(map(seeds.count, seeds), default=0)


def folders() -> list[Reader]:
  """The readers of what lies in the folders of sweeps, and of a run's config."""

  def listed(path: pathlib.Path) -> bool:
    """The runs that the lines describe, all of them."""
    actual = points.read_manifest(path.parent)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(job.id, job.title, job.seed) for job in actual] == [
      (row["id"], row["title"], row["seed"]) for row in rows
    ]

  runs = [points.Job(f"a{i}", i, f"x={i}, seed 0", {"x": i}, 0, "{}") for i in range(3)]
  with tempfile.TemporaryDirectory() as scratch:
    points.write_manifest(pathlib.Path(scratch), runs)
    manifest = pathlib.Path(scratch, "manifest.jsonl").read_bytes()
  return [
    Reader("a sweep's runs", [manifest], judged("manifest.jsonl", listed)),
    Reader(
      "config.json of a run",
      [tiny.config(name).to_json(indent=2).encode() for name in ("crossencoder", "triplet")],
      judged("config.json", lambda p: bool(jobs.of_run(str(p)))),
    ),
  ]
