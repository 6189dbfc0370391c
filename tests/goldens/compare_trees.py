"""Compares what two trees of the project compute, to the bit, on this machine.

python tests/goldens/compare_trees.py OLD NEW [--only=triplet,cete] [--keep=FOLDER]

OLD and NEW are two checkouts with the same `.venv`. In each, its own `tests/hosts_program.py` trains every
system on its tiny config, over one encoder; then it ranks users' files, evaluates run files and compiles three of
the jobs for TPU v5e. The values that are compared come from files that
other programs read (run.trec, qrels.trec, metrics.jsonl, Orbax checkpoints) and from printed JSON, so that a
tree may change all of its insides. Status 1 where anything differs.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SYSTEMS = (
  "bm25 word_overlap triplet siamese crossencoder cosine loct cassie cete cross_vae m2snet".split()
)
GROUPED = {"batch__sampler": "grouped", "batch__examples": 256, "data__train_fraction": 0.2}
JOBS = {name: (name, {}) for name in SYSTEMS}
JOBS |= {"grouped": ("triplet", GROUPED), "seeds": ("crossencoder", {"seeds": [0, 1]})}
UNTIMED = "loss grad map mrr p@1 rate norm term dev positives triplets".split()
QUESTIONS = [
  ("how are glacier caves formed", "A cave is formed within ice.", "Ice is cold. NA"),
  ("what is 007", "null", "The agent 007 is a spy; he drives."),
]
COMPILED = ("triplet", "cassie", "cross_vae")


def tables(folder: pathlib.Path) -> dict[str, str]:
  """Write six users' files of one content; return file names and options of `rank`."""
  rows = [(q, c) for q, *answers in QUESTIONS for c in answers]
  quoted = "".join(f'"{q}","{c}"\n' for q, c in rows)
  (folder / "plain.csv").write_text(f"question,candidate\n{quoted}")
  semicolons = quoted.replace('","', '";"')
  (folder / "mark.csv").write_text(f"\ufeffquestion;candidate\n{semicolons}")
  (folder / "renamed.csv").write_text(f"ask,reply\n{quoted}")
  (folder / "tabs.tsv").write_text(
    "question\tcandidate\n" + "".join(f"{q}\t{c}\n" for q, c in rows)
  )
  lines = [json.dumps({"question": q, "candidate": c}) for q, c in rows]
  (folder / "lines.jsonl").write_text("\n".join(lines) + "\n")
  grouped = [json.dumps({"question": q, "candidates": list(answers)}) for q, *answers in QUESTIONS]
  (folder / "grouped.jsonl").write_text("\n".join(grouped) + "\n")
  return {
    "plain.csv": "", "mark.csv": "", "tabs.tsv": "", "lines.jsonl": "", "grouped.jsonl": "",
    "renamed.csv": "--columns=question=ask,candidate=reply",
  }  # fmt: skip


def call(tree: pathlib.Path, cache: pathlib.Path, *arguments: str, encoder: str = "") -> str:
  """Run Python in a tree; return what it printed, or its status and errors."""
  environment = {**os.environ, "JAX_PLATFORMS": "cpu", "AS2JAX_CACHE": str(cache)}
  environment |= {"JAX_COMPILATION_CACHE_DIR": str(cache.parent / "programs")}
  environment |= {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    "AS2JAX_TINY_ENCODER": encoder,
  }
  environment |= {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "tests")])}
  command = [str(tree / ".venv/bin/python"), *arguments]
  done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
  if done.returncode:
    return f"status {done.returncode}: {done.stderr[-1500:]}"
  return done.stdout


def parameters(run: pathlib.Path) -> dict[str, str]:
  """Return the digest of every array in a run's checkpoints, by path."""
  import jax
  import numpy as np
  import orbax.checkpoint as ocp

  digests = {}
  for path in sorted(run.glob("checkpoints/**/variables")):
    alone = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    reader = ocp.StandardCheckpointer()
    tree = reader.metadata(path).item_metadata.tree
    target = jax.tree.map(lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=alone), tree)
    for key, value in jax.tree_util.tree_flatten_with_path(reader.restore(path, target))[0]:
      name = f"{path.relative_to(run)}{jax.tree_util.keystr(key)}"
      digests[name] = hashlib.sha256(np.asarray(value).tobytes()).hexdigest()[:16]
  return digests


def log_lines(run: pathlib.Path) -> list[dict]:
  """Return the values of metrics.jsonl that no clock decides."""
  kept = []
  for line in (run / "metrics.jsonl").read_text().splitlines():
    values = json.loads(line)
    names = [n for n in values if n == "step" or any(word in n.lower() for word in UNTIMED)]
    kept.append({n: values[n] for n in names if "second" not in n and "per_s" not in n})
  return kept


def record(tree: pathlib.Path, encoder: str, out: pathlib.Path, only: list[str]) -> dict:
  """Run everything in one tree; return {name: value}."""
  found, cache = {}, out / "cache"
  cache.mkdir(exist_ok=True)
  for name in filter(JOBS.__contains__, only):
    (system, overrides), run = JOBS[name], out / "runs" / name
    job = {"name": name, "system": system, "folder": str(run), "overrides": overrides}
    (out / "job.json").write_text(json.dumps([job]))
    if not (run / "results.json").exists():
      program = str(tree / "tests/hosts_program.py")
      said = call(tree, cache, program, str(out / "job.json"), "8", encoder=encoder)
      if said.startswith("status"):
        found[f"{name}: trains"] = said
        continue
    for file in sorted(run.glob("**/eval/**/*.trec*")):
      found[f"{name}: {file.relative_to(run)}"] = file.read_bytes().hex()
    if (run / "metrics.jsonl").exists():
      for number, line in enumerate(log_lines(run)):
        found[f"{name}: metrics.jsonl line {number}"] = line
    found |= {f"{name}: {k}": v for k, v in parameters(run).items()}
    if name != "bm25":
      both = str(out / "runs/bm25"), str(run)
      table = call(tree, cache, "-m", "as2jax", "compare", *both, "--format=json")
      found[f"{name}: compare"] = table.replace(str(out), "")
    print(f"  {name}", flush=True)
  if "files" in only:
    files = out / "files"
    files.mkdir(exist_ok=True)
    for file, option in tables(files).items():
      ranked = out / f"{file}.ranked.csv"
      options = ["-o", str(ranked), *option.split()]
      for run in ("bm25", "triplet"):
        said = call(
          tree, cache, "-m", "as2jax", "rank", str(out / "runs" / run), str(files / file), *options
        )
        found[f"files: {file} by {run}"] = ranked.read_text() if ranked.exists() else said
        ranked.unlink(missing_ok=True)
  if "compile" in only:
    for name in COMPILED:
      job = f"rerun:{out / 'runs' / name / 'config.json'}"
      said = call(tree, cache, "-m", "as2jax", "lab", "compile", job, "--topology=v5e:2x2")
      found[f"compile: {name}"] = [line for line in said.splitlines() if "second" not in line]
  return found


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("old", type=pathlib.Path)
  parser.add_argument("new", type=pathlib.Path)
  parser.add_argument("--only", default=",".join(["bm25", *JOBS, "files", "compile"]))
  parser.add_argument(
    "--keep", type=pathlib.Path, help="keep what the old tree gave here, and read it again"
  )
  options = parser.parse_args()
  only = list(dict.fromkeys(options.only.split(",")))
  with tempfile.TemporaryDirectory() as scratch:
    folder = (options.keep or pathlib.Path(scratch)).absolute()
    encoder, found = str(folder / "encoder"), {}
    copy = f"import shutil, tiny; shutil.copytree(tiny.encoder_folder(), {encoder!r})"
    if not os.path.exists(encoder):
      call(options.old.absolute(), folder / "cache", "-c", copy)
    for name, tree in (("old", options.old), ("new", options.new)):
      kept = folder / f"{name}.json"
      if name == "old" and kept.exists():
        found[name] = json.loads(kept.read_text())
        continue
      print(tree, flush=True)
      if name == "new" or not options.keep:
        shutil.rmtree(folder / name, ignore_errors=True)
      (folder / name).mkdir(exist_ok=True)
      found[name] = record(tree.absolute(), encoder, folder / name, only)
      found[name] = json.loads(json.dumps(found[name]).replace(str(folder / name), ""))
      kept.write_text(json.dumps(found[name], indent=1))
  old = {k: v for k, v in found["old"].items() if k.split(":")[0] in only}
  differing = [k for k in {**old, **found["new"]} if old.get(k) != found["new"].get(k)]
  for key in differing[:60]:
    print(f"{key}\n  old {str(old.get(key))[:300]}\n  new {str(found['new'].get(key))[:300]}")
  print(f"{len(old)} values in the old tree, {len(differing)} differ")
  return int(bool(differing) or not old)


if __name__ == "__main__":
  sys.exit(main())
