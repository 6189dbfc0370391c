"""What stands between a person and a running TPU job, each with the command that mends it.

`cloud` looks from here: account, project, API, machine type, quota, bucket, versions. `here` looks on
the machine itself: versions, devices, half a minute of steps.
"""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from as2jax.experiments.compile import chips
from as2jax.experiments.sweeps.local_executor import ROOT
from as2jax.experiments.sweeps.machines import Machine
from as2jax.runtime import processes

SECONDS = 30.0  # of steps on the machine
WIDTH = 1024  # of the matrices that a step multiplies
# In the names of quotas, by generation; Google's names differ from those of the types.
QUOTAS = {"v4": "V4", "v5e": "V5s", "v5p": "V5P", "v6e": "V6E"}


class Report:
  """What was looked at; `fine` tells whether all of it is as it should be."""

  def __init__(self, say: Callable[[str], None]):
    self.say, self.fine = say, True

  def add(self, name: str, fine: bool, finding: str, mend: str) -> bool:
    """Tells what was found, and where it is not `fine` what to do; returns `fine`."""
    self.fine &= fine
    lines = finding.splitlines() or [""]
    body = lines[0] if len(lines) == 1 else "".join(f"\n        {line}" for line in lines)
    self.say(
      f"{'ok  ' if fine else 'BAD '}  {name}: {body}" + ("" if fine else f"\n      do: {mend}")
    )
    return fine


def ask(*words: str) -> tuple[bool, str]:
  """Whether a gcloud command succeeds, and what it prints (of a failure's errors the last line)."""
  try:
    done = subprocess.run(["gcloud", *words], capture_output=True, text=True, timeout=120)
  except FileNotFoundError:
    return False, "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
  except subprocess.TimeoutExpired:
    return False, "no answer within two minutes"
  if done.returncode:
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    error = next((line for line in lines if "ERROR" in line), lines[-1])
    return False, f"{done.stdout.strip()}\n{error}".strip()  # first what a machine's doctor says
  return True, done.stdout.strip()


def cloud(report: Report, where: Machine, store: str) -> None:
  """Looks at the project and the bucket; what depends on what is not there is left out."""
  fine, account = ask("auth", "list", "--filter=status:ACTIVE", "--format=value(account)")
  if not report.add("account", fine and bool(account), account or "none", "gcloud auth login"):
    return
  fine, project = ask("config", "get", "project")
  fine = fine and project not in ("", "(unset)")
  if not report.add("project", fine, project or "none", "gcloud config set project PROJECT"):
    return
  for api in ("tpu.googleapis.com", "storage.googleapis.com"):
    words = ["--enabled", f"--filter=config.name={api}", "--format=value(config.name)"]
    fine, enabled = ask("services", "list", *words)
    fine = fine and enabled == api
    report.add(f"API {api}", fine, enabled or "not enabled", f"gcloud services enable {api}")
  _zones(report, where, project)
  if store:
    _bucket(report, store, where, account)
  _versions(report)


def _zones(report: Report, where: Machine, project: str) -> None:
  there, refused = [], ""
  for zone in where.zones:
    words = [f"--zone={zone}", f"--filter=type={where.accelerator}", "--format=value(type)"]
    fine, answer = ask("compute", "tpus", "accelerator-types", "list", *words)
    if fine and where.accelerator in answer.split():
      there.append(zone)
    refused = refused if fine else answer
  report.add(
    f"zones with {where.accelerator}",
    bool(there),
    ", ".join(there) or refused or f"none of {', '.join(where.zones)}",
    f"gcloud compute tpus accelerator-types list --zone={where.zones[0]}, then --zones or --tpu",
  )
  words = ["--service=tpu.googleapis.com", f"--project={project}", "--format=json"]
  fine, answer = ask("beta", "quotas", "info", "list", *words)
  granted = quota(json.loads(answer or "[]"), where) if fine else {}
  enough = any(value >= where.chips for value in granted.values())
  report.add(
    "quota, chips by zone",
    enough,
    ", ".join(f"{zone} {value:g}" for zone, value in granted.items()) or answer[:200] or "none",
    f"ask for {where.chips} chips of {where.accelerator} under IAM & Admin → Quotas "
    f"(https://console.cloud.google.com/iam-admin/quotas?project={project})",
  )


def quota(infos: Sequence[dict[str, Any]], where: Machine) -> dict[str, float]:
  """{zone: chips} that the quotas of a project grant for a machine, in those of its zones."""
  mark = QUOTAS[where.topology.partition(":")[0]].lower()
  granted: dict[str, float] = {}
  for info in infos:
    name = info.get("quotaId", "").lower()
    if mark not in name or ("preemptible" in name) != where.spot:
      continue
    for entry in info.get("dimensionsInfos", ()):
      value = float(entry.get("details", {}).get("value", 0))
      for zone in entry.get("applicableLocations", ()):
        if zone in where.zones and value:
          granted[zone] = max(value, granted.get(zone, 0.0))
  return granted


def _bucket(report: Report, store: str, where: Machine, account: str) -> None:
  bucket = "/".join(store.split("/")[:3])
  if not re.fullmatch(r"gs://[^/]+", bucket):
    report.add("bucket", False, store, "give --store=gs://BUCKET/FOLDER")
    return
  regions = list(dict.fromkeys(zone.rpartition("-")[0] for zone in where.zones))
  fine, answer = ask("storage", "buckets", "describe", bucket, "--format=value(location)")
  location = answer.lower()
  near = [r for r in regions if r == location or (len(location) == 2 and r.startswith(location))]
  create = f"gcloud storage buckets create {bucket} --location={regions[0]}"
  if not report.add("bucket", fine, answer, create):
    return
  report.add(
    "bucket's region",
    bool(near),
    f"{location}, machines in {', '.join(regions)}",
    f"give --zones of {location}, or another bucket: {create.replace(bucket, 'gs://OTHER')}",
  )
  mark = f"{store.rstrip('/')}/doctor-{int(time.time())}"
  fine, answer = ask("storage", "cp", str(ROOT / "requirements.txt"), mark)
  report.add(
    "writing into it",
    fine,
    "works" if fine else answer,
    f"gcloud storage buckets add-iam-policy-binding {bucket} --member=user:{account} "
    "--role=roles/storage.objectAdmin",
  )
  if fine:
    ask("storage", "rm", mark)


def _versions(report: Report, *, tpu: bool = False) -> None:
  """Whether jax is the one of requirements.txt, and (`tpu`) libtpu the one that jax asks for."""
  installed = importlib.metadata.version("jax")
  pins = (ROOT / "requirements.txt").read_text() if (ROOT / "requirements.txt").exists() else ""
  wanted = re.search(r"^jax==(\S+)", pins, re.M)
  report.add("jax", wanted is None or installed == wanted[1], installed, "bash launch/install.sh")
  if tpu:
    there = importlib.util.find_spec("libtpu") is not None
    version = importlib.metadata.version("libtpu") if there else "none"
    report.add("libtpu", version.startswith(chips.LIBTPU), version, "bash launch/install.sh tpu")


def node(report: Report, name: str, where: Machine) -> None:
  """Looks on a machine, by its own doctor, which speaks for itself."""
  label = f"node {name}"
  for zone in where.zones:
    words = ["compute", "tpus", "tpu-vm", "describe", name, f"--zone={zone}"]
    fine, state = ask(*words, "--format=value(state)")
    if not fine:
      continue
    if state != "READY":
      report.add(label, False, state, f"bash launch/tpu_vm.sh delete {name}")
      return
    command = f"cd as2jax && .venv/bin/python -m as2jax lab tpu doctor --here --chips={where.chips}"
    ssh = ["compute", "tpus", "tpu-vm", "ssh", name, f"--zone={zone}", "--worker=all"]
    fine, said = ask(*ssh, f"--command={command}")
    report.add(label, fine, said, f"bash launch/tpu_vm.sh install {name}, or as it says above")
    return
  zones = ", ".join(where.zones)
  report.add(label, False, f"in none of {zones}", f"bash launch/tpu_vm.sh create {name}")


def here(report: Report, count: int, seconds: float = SECONDS) -> None:
  """Looks at this machine: versions, devices (`count` of them, over all hosts), steps."""
  processes.start()
  _versions(report, tpu=processes.on_tpu_vm())
  import jax

  device_count = jax.device_count()
  kinds = ", ".join(sorted({device.device_kind for device in jax.devices()}))
  # jax falls back to the processor where it does not get the chips.
  fine = device_count == count and (jax.default_backend() == "tpu" or not processes.on_tpu_vm())
  report.add(
    "devices",
    fine,
    f"{device_count} of {count} ({kinds}) on {processes.count()} hosts",
    "start it on every host (--worker=all); ls /dev/accel* /dev/vfio shows a host's chips, "
    "sudo lsof -w /dev/accel* a process that holds them",
  )
  steps, spent, right = _steps(seconds)
  flops = 2 * WIDTH**3 * device_count * steps / max(spent, 1e-9)
  report.add(
    "steps",
    right,
    f"{steps} in {spent:.0f} s, {flops / 1e12:.2f} TFLOP/s on all devices",
    "the devices compute another sum than they should: delete the machine and make another one",
  )


def _steps(seconds: float) -> tuple[int, float, bool]:
  """Products on every device, summed over all of them, for so long: how many, how long, right?"""
  import jax
  import jax.numpy as jnp
  from jax.sharding import NamedSharding, PartitionSpec

  from as2jax.runtime import sharding

  mesh = sharding.make_mesh()
  count = jax.device_count()
  place = NamedSharding(mesh, PartitionSpec("data"))
  shape = (count, WIDTH, WIDTH)
  ones = jax.jit(lambda: jnp.full(shape, 1 / WIDTH, jnp.float32), out_shardings=place)()
  step = jax.jit(lambda x: (x @ x).sum() / (WIDTH * count), out_shardings=sharding.replicated(mesh))
  value, steps = float(step(ones)), 0
  # As many on every host: a host's clock must not decide when the collectives end.
  one = time.monotonic()
  step(ones).block_until_ready()
  began = time.monotonic()
  most = processes.by_first(lambda: max(int(seconds / max(began - one, 1e-4)), 1))
  while steps < most:
    value = float(step(ones))
    steps += 1
  return steps, time.monotonic() - began, abs(value - 1.0) < 1e-3
