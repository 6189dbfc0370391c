"""A sweep's runs for Cloud TPUs: files for SkyPilot's managed jobs, or a script of gcloud commands.

Nothing is started here. A run's folder is STORE/<id>, as on this machine OUTPUT/<id>, so that what
is finished in either place is skipped, and results brought back are collected as local ones are.
"""

import dataclasses
import json
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import Any, Protocol

from as2jax.experiments.sweeps.local_executor import ROOT, finished
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

# Generation: accelerator type, runtime version, whether the number counts cores (two a chip).
GENERATIONS = {
  "v4": ("v4", "tpu-ubuntu2204-base", True),
  "v5e": ("v5litepod", "v2-alpha-tpuv5-lite", False),
  "v5p": ("v5p", "v2-alpha-tpuv5", True),
  "v6e": ("v6e", "v2-alpha-tpuv6e", False),
}
PREEMPTED = 75  # exit status of a run that was told to end and saved itself
SCRIPT = ROOT / "launch" / "tpu_vm.sh"
END_OF_COMMANDS = "# The commands end here."


class Job(Protocol):
  """One run: its folder's name, what a reader calls it, its config as JSON."""

  id: str
  title: str
  text: str


@dataclasses.dataclass(frozen=True)
class Machine:
  """What to ask Google for.

  Attributes:
    accelerator: accelerator type, such as v5litepod-8; version: its runtime.
    chips: how many.
    zone: such as us-west4-a; spot: preemptible; queued: as a queued resource.

  """

  accelerator: str
  version: str
  chips: int
  zone: str
  spot: bool
  queued: bool


def machine(tpu: str, *, zone: str, spot: bool, queued: bool) -> Machine:
  """The machine named `tpu`, such as v5e-8.

  Raises:
    InputError: a name that is not known.

  """
  found = re.fullmatch(r"(v\w+)-(\d+)", tpu)
  if not found or found[1] not in GENERATIONS or not int(found[2]):
    raise InputError(
      f"--tpu={tpu}: give a generation ({', '.join(GENERATIONS)}) and a size, such as v5e-8"
    )
  kind, version, cores = GENERATIONS[found[1]]
  size = int(found[2])
  return Machine(
    f"{kind}-{size}", version, max(size // 2, 1) if cores else size, zone, spot, queued
  )


def emit(
  kind: str,
  jobs: Sequence[Job],
  output: pathlib.Path,
  *,
  where: Machine,
  store: str,
  data: str,
  nodes: int,
) -> str:
  """Writes what runs the unfinished jobs elsewhere; returns what to do with it.

  Args:
    kind: `skypilot` or `gcloud`.
    store: gs:// folder of the runs; data: gs:// folder that becomes AS2JAX_DATA, "" for none.
    nodes: of `gcloud`: machines at a time.

  Raises:
    InputError: folders elsewhere than gs://, or batches that the machine's chips cannot share.

  """
  for name, place in (("store", store), ("data", data)):
    if (place or name == "store") and not re.fullmatch(r"gs://[\w.-]+(/[\w.=-]+)*", place):
      raise InputError(f"--{name}={place}: give a folder of a bucket, such as gs://bucket/{name}")
  if nodes < 1:
    raise InputError(f"--nodes={nodes}: give 1 or more")
  left = [job for job in jobs if not finished(output / job.id)]
  for job in left:
    _check_shards(job, where)
    path = output / job.id / "config.json"
    if not path.exists():
      write_whole(path, job.text + "\n")
  if kind == "skypilot":
    for job in left:
      write_whole(
        output / "skypilot" / f"{job.id}.yaml",
        f"# {job.title}\n" + _yaml(task(job, output, where, store, data)),
      )
    script = output / "skypilot" / "launch.sh"
    write_whole(script, _skypilot_script(left, store))
  else:
    script = output / "gcloud.sh"
    write_whole(script, _gcloud_script(left, where, store, data, nodes))
  return (
    f"{len(left)} of {len(jobs)} runs to do. Start, and go on after whatever happened:\n"
    f"  bash {script}\nResults, so far or all, then the table (--parallel=0):\n"
    f"  gcloud storage rsync --recursive --exclude='.*/checkpoints/.*' {store} {output}"
  )


def _check_shards(job: Job, where: Machine) -> None:
  config = json.loads(job.text)
  parts = where.chips // config["sharding"]["tensor"]
  if parts and config["batch"]["shards"] % parts:
    raise InputError(
      f"{job.title}: batch.shards = {config['batch']['shards']} cannot be spread "
      f"over the {parts} chips of {where.accelerator} that share the data: give "
      f"--set batch.shards={parts}, or a smaller machine (--tpu=v5e-1)"
    )


def task(job: Job, output: pathlib.Path, where: Machine, store: str, data: str) -> dict[str, Any]:
  """A run as SkyPilot's task: a managed job that is recovered where its machine is taken away."""
  arguments = {"runtime_version": where.version}
  if where.queued:
    arguments["gcp_queued_resource"] = True
  resources = {
    "infra": f"gcp/{where.zone.rpartition('-')[0]}/{where.zone}",
    "accelerators": f"tpu-{where.accelerator}",
    "accelerator_args": arguments,
    "use_spot": where.spot,
    "job_recovery": {
      "strategy": "FAILOVER",
      "max_restarts_on_errors": 0,
      "recover_on_exit_codes": [PREEMPTED],
    },
  }
  mounts = {f"~/configs/{job.id}.json": str(output / job.id / "config.json")}
  if data:
    mounts["~/data"] = data
  command = (
    f".venv/bin/python -m as2jax.main "
    f"--config=configs/rerun.py:$HOME/configs/{job.id}.json "
    f"--workdir={store}/{job.id} --config.compilation_cache={store}/xla"
  )
  return {
    "name": f"as2jax-{job.id}",
    "workdir": str(ROOT),
    "num_nodes": 1,
    "resources": resources,
    "file_mounts": mounts,
    "setup": "bash launch/tpu_install.sh\n",
    "run": f"export AS2JAX_DATA=$HOME/data AS2JAX_CACHE=$HOME/cache\n{command}\n",
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
# Starts each run as a managed job of SkyPilot, unless it is finished or under way.
set -uo pipefail
cd "$(dirname "$0")"
store={shlex.quote(store)}
runs=(
{_listed(jobs)})
failed=0
active=$(sky jobs queue --skip-finished --output json) || exit 1
for id in "${{runs[@]}}"; do
  if gcloud storage ls "$store/$id/results.json" >/dev/null 2>&1; then
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


def _gcloud_script(jobs: Sequence[Job], where: Machine, store: str, data: str, nodes: int) -> str:
  """Plain commands: the variables, launch/tpu_vm.sh as it is, then the runs over so many nodes."""
  commands = SCRIPT.read_text().partition(END_OF_COMMANDS)[0]
  functions = commands[commands.index("state() {") :].rstrip()
  variables = {
    "TPU": where.accelerator,
    "VERSION": where.version,
    "ZONE": where.zone,
    "SPOT": int(where.spot),
    "QUEUED": int(where.queued),
    "DATA": data,
    "STORE": store,
    "NODES": nodes,
    "NAME": f"as2jax-{jobs[0].id if jobs else 'none'}",
    "ATTEMPTS": 3,
    "TRIES": 120,
    "PAUSE": 30,
    "REPOSITORY": ROOT,
  }
  given = "\n".join(f': "${{{key}:={value}}}"' for key, value in variables.items())
  return f"""#!/usr/bin/env bash
# The runs of a sweep over NODES Cloud TPU machines, by plain gcloud commands; ends with a list of
# what failed. Run again it skips what is finished. `delete` in place of the runs: bash {{}} delete
set -uo pipefail
cd "$(dirname "$0")"
{given}
runs=(
{_listed(jobs)})

{functions}

one() {{ # NODE ID
  finished "$STORE/$2" && echo "$2: finished" && return
  gcloud storage cp "$2/config.json" "$STORE/$2/config.json" &&
    run "$1" "configs/rerun.py:$STORE/$2/config.json" "$STORE/$2" &&
    echo "$2: finished" || echo "$2" >>failed.txt
}}

turn() {{ # K: every NODES-th run, one after the other, on a machine of its own
  local node=$NAME-$1 k
  for ((k = $1; k < ${{#runs[@]}}; k += NODES)); do
    one "$node" "${{runs[$k]}}"
  done
  absent "$node" || delete "$node"
}}

rm -f failed.txt
for ((n = 0; n < NODES; n++)); do
  if [ "${{1:-}}" = delete ]; then delete "$NAME-$n"; else turn "$n" & fi
done
wait
if [ -s failed.txt ]; then
  sed 's/$/: FAILED/' failed.txt >&2
  exit 1
fi
""".replace("bash {}", "bash gcloud.sh")
