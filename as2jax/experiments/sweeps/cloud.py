"""A sweep's runs for Cloud TPUs: files for SkyPilot's managed jobs, or a script of gcloud commands.

Nothing is started here. A run's folder is STORE/<id>, as on this machine OUTPUT/<id>, so that what
is finished in either place is skipped, and results brought back are collected as local ones are.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from as2jax.experiments.sweeps.local_executor import ROOT, Job, finished
from as2jax.experiments.sweeps.machines import Machine
from as2jax.experiments.sweeps.points import write_manifest
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.preemption import AGAIN

SCRIPT = ROOT / "launch" / "tpu_vm.sh"


@dataclasses.dataclass(frozen=True)
class Places:
  """Where runs, data and source are.

  Attributes:
    store: gs:// folder of the runs; data: gs:// folder that becomes AS2JAX_DATA, "" for none.
    carry: whether uncommitted changes go along as a patch; else they are refused.

  """

  store: str
  data: str = ""
  carry: bool = False

  def check(self) -> None:
    """Raises InputError for folders elsewhere than gs://."""
    for name, place in (("store", self.store), ("data", self.data)):
      if (place or name == "store") and not re.fullmatch(r"gs://[\w.-]+(/[\w.=-]+)*", place):
        raise InputError(f"--{name}={place}: give a folder of a bucket, such as gs://bucket/{name}")


def emit(
  kind: str,
  jobs: Sequence[Job],
  output: pathlib.Path,
  *,
  where: Sequence[Machine],
  places: Places,
  nodes: int,
  compiles: bool = True,
) -> str:
  """Writes what runs the unfinished jobs elsewhere; returns what it takes and what to do with it.

  Of a sweep that is refused nothing is written: scripts of an earlier emission stay as they are.

  Args:
    kind: `skypilot`, `gcloud`, or `check`, which writes nothing.
    where: the machine; of `check` also several, with whose sizes the batches grow.
    nodes: of `gcloud`: machines at a time.
    compiles: see `preflight`.

  Raises:
    InputError: points that would fail there, no store, or uncommitted changes that are not to be
      carried.

  """
  from as2jax.experiments.sweeps.preflight import preflight  # with jax

  left = [job for job in jobs if not finished(output / job.id)]
  look = lambda machine: preflight(left, machine, compiles=compiles, scaled=len(where) > 1)
  if kind == "check":
    return "\n\n".join(map(look, where))
  places.check()
  with tempfile.TemporaryDirectory() as scratch:
    packed = pathlib.Path(scratch)
    source = pack(packed / "source.tar.gz", places.carry)  # what is refused is refused at once
    table = look(where[0])
    write_manifest(output, jobs)
    for path in packed.iterdir():
      shutil.copy(path, output / path.name)
  return table + "\n" + _write(kind, jobs, left, output, where[0], places, nodes, source)


def _write(
  kind, jobs, left, output: pathlib.Path, where: Machine, places: Places, nodes: int, source: str
) -> str:
  for job in left:
    path = output / job.id / "config.json"
    if not path.exists():
      write_whole(path, job.text + "\n")
  write_whole(output / "store.json", json.dumps({"store": places.store, "source": source}) + "\n")
  if kind == "skypilot":
    for job in left:
      write_whole(
        output / "skypilot" / f"{job.id}.yaml",
        f"# {job.title}\n" + _yaml(task(job, output, where, places)),
      )
    script = output / "skypilot" / "launch.sh"
    write_whole(script, _skypilot_script(left, places.store))
  else:
    script = output / "gcloud.sh"
    shutil.copy(SCRIPT, output / SCRIPT.name)  # as it is now: the repository may go on
    write_whole(script, _gcloud_script(_name(jobs), left, where, places, nodes, source))
  place = shlex.quote(str(output))
  return (
    f"{len(left)} of {len(jobs)} runs to do, with the source {source}. Start, and go on after "
    f"whatever happened:\n  bash {shlex.quote(str(script))}\n"
    "Watch, end, and bring the results here:\n"
    f"  as2jax lab sweep status {place}\n  as2jax lab sweep cancel {place}\n"
    f"  as2jax lab sweep collect {place}"
  )


def pack(archive: pathlib.Path, carry: bool) -> str:
  """Writes the repository's source as an archive; returns its name, see `pack` of launch/tpu_vm.sh.

  Raises:
    InputError: no clone, or uncommitted changes that are not to be carried.

  """
  if not SCRIPT.exists():
    raise InputError("--emit sends the source to the machines: run it in a clone of the repository")
  archive.parent.mkdir(parents=True, exist_ok=True)
  changes = "carry" if carry else "refuse"
  done = subprocess.run(
    ["bash", str(SCRIPT), "pack", str(archive)],
    cwd=ROOT,
    env={**os.environ, "CHANGES": changes, "REPOSITORY": str(ROOT)},
    capture_output=True,
    text=True,
  )
  if done.returncode:
    raise InputError(f"--emit: {done.stderr.strip()}")
  return done.stdout.strip()


def task(job: Job, output: pathlib.Path, where: Machine, places: Places) -> dict[str, Any]:
  """A run as SkyPilot's task: a managed job that is recovered where its machine is taken away.

  Its `any_of` has a region an entry, so that a lack of room in one lets SkyPilot try the next.
  """
  arguments: dict[str, Any] = {"runtime_version": where.version}
  if where.queued:
    arguments["gcp_queued_resource"] = True
  regions = dict.fromkeys(zone.rpartition("-")[0] for zone in where.zones)
  resources = {
    "accelerators": f"tpu-{where.accelerator}",
    "accelerator_args": arguments,
    "use_spot": where.spot,
    "job_recovery": {
      "strategy": "EAGER_NEXT_REGION",
      "max_restarts_on_errors": 0,
      "recover_on_exit_codes": [AGAIN],
    },
    "any_of": [{"infra": f"gcp/{region}"} for region in regions],
  }
  mounts = {f"~/configs/{job.id}.json": str(output / job.id / "config.json")}
  mounts["~/as2jax.tar.gz"] = str(output / "source.tar.gz")
  if places.data:
    mounts["~/data"] = places.data
  store = places.store
  return {
    "name": f"as2jax-{job.id}",
    "num_nodes": 1,
    "resources": resources,
    "file_mounts": mounts,
    "setup": "mkdir -p ~/as2jax\ntar -xzf ~/as2jax.tar.gz -C ~/as2jax\n"
    "bash ~/as2jax/launch/install.sh tpu\n",
    "run": f"bash ~/as2jax/launch/job.sh configs/rerun.py:$HOME/configs/{job.id}.json "
    f"{store}/{job.id} --config.compilation_cache={store}/xla\n",
  }


def _yaml(value: Any, indent: int = 0) -> str:
  """A tree of mappings as YAML in blocks; lists and scalars are JSON, which YAML contains."""
  lines = []
  pad = "  " * indent
  for key, inner in value.items():
    if isinstance(inner, dict):
      lines.append(f"{pad}{json.dumps(key)}:\n{_yaml(inner, indent + 1)}")
    elif isinstance(inner, str) and "\n" in inner:
      text = "".join(f"{pad}  {line}\n" for line in inner.splitlines())
      lines.append(f"{pad}{json.dumps(key)}: |\n{text}")
    else:
      lines.append(f"{pad}{json.dumps(key)}: {json.dumps(inner)}\n")
  return "".join(lines)


def _listed(jobs: Sequence[Job]) -> str:
  """The runs as words of a shell array, with what they are."""
  return "".join(f"  {job.id} # {job.title}\n" for job in jobs)


def _skypilot_script(jobs: Sequence[Job], store: str) -> str:
  return f"""#!/usr/bin/env bash
# Starts each run as a managed job of SkyPilot, unless it is finished or under way; with `cancel`, ends
# those that are under way.
set -uo pipefail
cd "$(dirname "$0")"
store={shlex.quote(store)}
runs=(
{_listed(jobs)})
failed=0
active=$(sky jobs queue --skip-finished --output json) || exit 1
if [ "${{1:-}}" != cancel ]; then # a sweep that was cancelled goes on when it is started again
  said=$(gcloud storage rm "$store/cancelled" 2>&1) || [[ "$said" == *'matched no objects'* ]] || {{
    echo "$said" >&2
    exit 1
  }}
  gcloud storage cp ../manifest.jsonl ../source.tar.gz* "$store/" || exit 1
fi
for id in "${{runs[@]}}"; do
  if [ "${{1:-}}" = cancel ]; then
    ! grep -q "as2jax-$id" <<<"$active" || sky jobs cancel --yes --name "as2jax-$id" || failed=1
  elif gcloud storage ls "$store/$id/results.json" >/dev/null 2>&1; then
    echo "$id: finished"
  elif grep -q "as2jax-$id" <<<"$active"; then
    echo "$id: under way (sky jobs logs --name as2jax-$id)"
  elif ! sky jobs launch --yes --detach-run --name "as2jax-$id" "$id.yaml"; then
    echo "$id: could not be started" >&2
    failed=1
  fi
done
exit $failed
"""


def _name(jobs: Sequence[Job]) -> str:
  """Of a sweep's machines: the same however many of its runs are finished."""
  ids = " ".join(job.id for job in jobs)
  return f"as2jax-{hashlib.sha256(ids.encode()).hexdigest()[:12]}"


def _assignments(name: str, where: Machine, places: Places, nodes: int, source: str) -> str:
  """What `_gcloud_script` reads.

  `NODES` alone is left to the environment: a TPU or STORE of another job, as launch/tpu_vm.md
  exports them, would send the runs where neither their checks nor `store.json` say.
  """
  variables = {
    "TPU": where.accelerator,
    "VERSION": where.version,
    "ZONES": " ".join(where.zones),
    "SPOT": int(where.spot),
    "QUEUED": int(where.queued),
    "DATA": places.data,
    "STORE": places.store,
    "NAME": name,
    "SOURCE": source,
    "ARCHIVE": "$PWD/source.tar.gz",
  }
  return "\n".join(
    [*(f'{key}="{value}"' for key, value in variables.items()), f': "${{NODES:={nodes}}}"']
  )


def _gcloud_script(
  name: str, jobs: Sequence[Job], where: Machine, places: Places, nodes: int, source: str
) -> str:
  """Plain commands: the variables, the functions of launch/tpu_vm.sh, the runs over so many nodes."""
  return f"""#!/usr/bin/env bash
# The runs of a sweep over NODES Cloud TPU machines, by plain gcloud commands; ends with a list of
# what failed, machines that could not be deleted among it. Run again it skips what is finished.
# `bash gcloud.sh delete` ends the bill where it was interrupted. In the environment NODES may be
# given, and what tpu_vm.sh reads and is not set here.
set -uo pipefail
cd "$(dirname "$0")"
{_assignments(name, where, places, nodes, source)}
. ./tpu_vm.sh
runs=(
{_listed(jobs)})
one() {{ # NODE ID
  stored "$STORE/$2/results.json" && return
  put "$2/config.json" "$STORE/$2/config.json" || return
  run "$1" "configs/rerun.py:$STORE/$2/config.json" "$STORE/$2"
}}

end() {{ # NODE
  delete "$1" || echo "$1" >>failed.txt
}}

turn() {{ # K: every NODES-th run, one after the other, on a machine of its own
  local node=$NAME-$1 k status=0
  for ((k = $1; k < ${{#runs[@]}}; k += NODES)); do
    if [ $status -lt 2 ]; then # else no later run would get a machine
      one "$node" "${{runs[$k]}}"
      status=$?
    fi
    if [ $status = 0 ]; then echo "${{runs[$k]}}: finished"; else echo "${{runs[$k]}}" >>failed.txt; fi
  done
  end "$node"
}}

rm -f failed.txt
if [ "${{1:-}}" != delete ]; then
  discard "$STORE/cancelled" || exit 2
  put manifest.jsonl source.tar.gz* "$STORE/" || exit 2
fi
for ((n = 0; n < NODES; n++)); do
  if [ "${{1:-}}" = delete ]; then end "$NAME-$n" & else turn "$n" & fi
done
wait
if [ -s failed.txt ]; then
  sed 's/$/: FAILED/' failed.txt >&2
  exit 1
fi
"""
