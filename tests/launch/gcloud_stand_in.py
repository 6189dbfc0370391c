"""Stands for gcloud, its machines and its buckets, under the folder $STAND_IN.

A bucket is a folder `gs/BUCKET`, a machine a folder `nodes/NAME` with its state, its zone and a home,
in which `ssh` runs the very command that it is given. Every place at which gcloud is called fails
once, as the real one would there. `$STAND_IN/zones.json` says what a zone answers for good when a
machine is made in it, `$REFUSE` what every call is answered.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(os.environ["STAND_IN"])
WORDS = {
  "quota": "ERROR: Quota limit 'TPUV5sPreemptible' has been exceeded. Limit: 0 in this zone.",
  "room": "ERROR: (gcloud) There is no more capacity in the zone; you can try in another zone",
  "type": "ERROR: (gcloud) NOT_FOUND: accelerator type not found",
  "permission": "ERROR: (gcloud) PERMISSION_DENIED: tpu.nodes.create on projects/p",
  "login": "ERROR: (gcloud) Reauthentication failed. Please run: $ gcloud auth login",
  "api": "ERROR: Cloud TPU API has not been used in project 1 before or it is disabled.",
  "absent": "ERROR: (gcloud) NOT_FOUND: Resource 'projects/p/nodes' was not found",
  "connection": "ERROR: gcloud crashed (ConnectionError): ('Connection aborted.', timeout)",
  "bucket": "ERROR: (gcloud.storage.rm) gs://bucket not found: 404.",
  "no-bucket": "ERROR: (gcloud.storage.cp) HTTPError 404: The specified bucket does not exist.",
  "ssh": "ssh: connect to host 10.0.0.1 port 22: Connection refused",
}


def end(kind, status=1):
  print(WORDS[kind], file=sys.stderr)
  sys.exit(status)


def place(words):
  """What a call is about, without names."""
  text = re.sub(r"as2jax-\w+-\d+|node-\d+", "NODE", " ".join(words))
  text = re.sub(r"gs://\S*/(id\d+)/", "RUN/", text)
  return re.sub(r"[^\w]+", "-", re.sub(r"/\S*/", "/", text))[:150]


def path(url):
  return ROOT / "gs" / url.removeprefix("gs://")


def storage(verb, *names):
  names = [name for name in names if not name.startswith("--")]
  if verb == "ls":
    if not path(names[0]).exists():
      print("ERROR: (gcloud.storage.ls) One or more URLs matched no objects.", file=sys.stderr)
      sys.exit(1)
  elif verb == "rm":
    if not path(names[0]).exists():
      print("ERROR: The following URLs matched no objects or files:", names[0], file=sys.stderr)
      sys.exit(1)
    path(names[0]).unlink()
  elif verb == "rsync":
    shutil.copytree(path(names[0]), names[1], dirs_exist_ok=True)
  elif verb == "cp":
    target = path(names[-1])
    for name in names[:-1]:
      if not pathlib.Path(name).exists():
        print("ERROR: The following URLs matched no objects or files:", name, file=sys.stderr)
        sys.exit(1)
      to = target / pathlib.Path(name).name if names[-1].endswith("/") else target
      to.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(name, to)


class Node:
  """One machine."""

  def __init__(self, name, zone):
    self.folder, self.zone = ROOT / "nodes" / name, zone
    self.home = self.folder / "home"

  def state(self):
    there = (self.folder / "zone").exists() and (self.folder / "zone").read_text() == self.zone
    return (self.folder / "state").read_text() if there else end("absent")

  def create(self):
    refused = json.loads((ROOT / "zones.json").read_text()).get(self.zone)
    if refused:
      end(refused)
    self.home.mkdir(parents=True)
    (self.folder / "zone").write_text(self.zone)
    (self.folder / "state").write_text("READY")

  def ssh(self, command):
    """Runs it in the machine's home; a machine that is taken away meanwhile says nothing more."""
    env = {**os.environ, "HOME": str(self.home), "NODE": str(self.folder), "LOOK": "0.2"}
    done = subprocess.run(
      ["bash", "-c", command], cwd=self.home, env=env, stdout=subprocess.PIPE, text=True
    )
    if self.state() != "READY":
      end("ssh", 255)
    print(done.stdout, end="")
    return done.returncode


def tpus(kind, verb, name, *options):
  flags = dict(option[2:].partition("=")[::2] for option in options if option.startswith("--"))
  node = Node(name.partition(":")[0], flags["zone"])
  if verb == "describe":
    state = node.state()
    print(state if kind == "tpu-vm" else "ACTIVE" if state == "READY" else "SUSPENDED")
  elif verb == "create":
    node.create()
  elif verb == "delete":
    node.state()
    shutil.rmtree(node.folder)
  elif verb == "ssh":
    return node.ssh(flags["command"])
  return 0


def main(words):
  with open(ROOT / "calls", "a") as file:
    file.write(json.dumps(words) + "\n")
  if refused := os.environ.get("REFUSE"):
    end(refused)
  mark = ROOT / "failed" / place(words)
  first = not mark.exists() and "STEADY" not in os.environ
  mark.parent.mkdir(exist_ok=True)
  mark.touch()
  remote = words[3:4] == ["ssh"] or words[3:4] == ["scp"]
  if first and not (remote and "job.sh" in words[-1]):
    end("ssh" if remote else "connection", 255 if remote else 1)
  if words[0] == "storage":
    return storage(*words[1:])
  if words[3] == "scp":
    home = ROOT / "nodes" / words[5].partition(":")[0] / "home"
    return shutil.copy(words[4], home / words[5].partition(":")[2]) and 0
  status = tpus(*words[2:])
  if first and remote:  # a run ends well, and the connection breaks before it says so
    end("ssh", 255)
  return status


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
