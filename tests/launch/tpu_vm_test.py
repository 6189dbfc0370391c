"""launch/tpu_vm.sh and emitted sweeps, against a stand-in for gcloud that fails in every place once."""

import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys

import pytest

from as2jax.experiments.sweeps import cloud, machines, points, preflight
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_IN = pathlib.Path(__file__).with_name("gcloud_stand_in.py")
# In place of uv: makes a Python that stands for a run; the first installation fails.
UV = r"""#!/bin/bash
echo "$*" >>"$STAND_IN/uv"
mkdir "$STAND_IN/uv-failed" 2>/dev/null && echo 'no network' && exit 1
[ "$1" = venv ] || exit 0
mkdir -p .venv/bin && cp "$STAND_IN/bin/python-of-a-node" .venv/bin/python
"""
PYTHON = r"""#!/bin/bash
for word; do case "$word" in --workdir=gs://*) folder=$STAND_IN/gs/${word#--workdir=gs://} ;; esac; done
echo "$(basename "$folder") $(cat as2jax/source.json) $*" >>"$STAND_IN/ran"
[ -e "$folder/config.json" ] || { echo no config; exit 9; }
once() { mkdir "$STAND_IN/once-$1" 2>/dev/null; }
case "$folder" in
  *id1) echo "loss is nan"; exit 3 ;;
  *id2) if once id2; then printf PREEMPTED >"$NODE/state"; exit 143; fi ;;
  *id4) echo "wrong key"; exit 2 ;;
  *id5) trap 'exit 75' TERM; for ((i = 0; i < 300; i++)); do sleep 0.1; done ;;
esac
echo "it is done"
mkdir -p "$folder" && echo '{}' >"$folder/results.json"
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
  """A small repository of its own, which an emission packs."""
  folder = tmp_path / "clone"
  shutil.copytree(ROOT / "launch", folder / "launch", ignore=shutil.ignore_patterns("bench*"))
  shutil.copy(ROOT / "requirements.txt", folder)
  (folder / "as2jax").mkdir()
  (folder / "as2jax" / "a.py").write_text("A = 1\n")
  git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-C", str(folder)]
  for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
    subprocess.run([*git, *words], check=True)
  monkeypatch.setattr(cloud, "ROOT", folder)
  monkeypatch.setattr(preflight, "preflight", lambda *jobs, **options: "table")
  monkeypatch.setattr(cloud, "SCRIPT", folder / "launch" / "tpu_vm.sh")
  return folder


class Cloud:
  """The stand-in with its folder, and what it was asked."""

  def __init__(self, folder):
    self.folder = folder
    (folder / "bin").mkdir(parents=True)
    (folder / "zones.json").write_text("{}")
    gcloud = f"#!{os.path.realpath(sys.executable)} -SE\n{STAND_IN.read_text()}"
    for name, text in (("gcloud", gcloud), ("uv", UV), ("python-of-a-node", PYTHON)):
      (folder / "bin" / name).write_text(text)
    for path in (folder / "bin").iterdir():
      path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (folder / "gs" / "bucket" / "data").mkdir(parents=True)
    (folder / "gs" / "bucket" / "data" / "x.tsv").write_text("x")

  def refuse(self, **zones):
    (self.folder / "zones.json").write_text(json.dumps(zones))

  def start(self, *command, **variables):
    env = {
      **os.environ,
      "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
      "STAND_IN": str(self.folder),
      **{"PAUSE": "0", "HOURS": "0", "ATTEMPTS": "2", "NAME": "node", **variables},
    }
    return subprocess.Popen(
      ["bash", *map(str, command)],
      env=env,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  def run(self, *command, **variables):
    """Exit status, standard output, standard error."""
    process = self.start(*command, **variables)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err

  def calls(self):
    return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

  def ran(self):
    return (self.folder / "ran").read_text().splitlines()

  def store(self, name):
    return self.folder / "gs" / "bucket" / "runs" / name


@pytest.fixture
def stand_in(tmp_path):
  return Cloud(tmp_path / "cloud")


def jobs_of(*numbers):
  text = json.dumps({"batch": {"shards": 1}})
  return [points.Job(f"id{i}", i, f"point it's {i} $HOME", {}, 0, text) for i in numbers]


def emit(
  out,
  jobs,
  *,
  kind="gcloud",
  queued=False,
  carry=False,
  zones="us-west4-a,us-central1-a",
  **options,
):
  where = machines.machine("v5e-1", queued=queued, zones=zones)
  points.write_manifest(out, jobs)
  places = cloud.Places("gs://bucket/runs", "gs://bucket/data", carry)
  cloud.emit(kind, jobs, out, where=[where], places=places, **{"nodes": 1, **options})
  return out / ("gcloud.sh" if kind == "gcloud" else "skypilot/launch.sh")


@pytest.mark.parametrize("queued", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_job_ends_with_its_results_though_every_place_fails_once(
  clone, stand_in, tmp_path, queued
):
  """Also where a node is preempted (id2), and though others fail by themselves (id1, id4)."""
  script = emit(tmp_path / "out", jobs_of(0, 1, 2, 3, 4), nodes=2, queued=queued)
  status, out, err = stand_in.run(script, HOURS="1", ATTEMPTS="3", CONNECT_MINUTES="1")
  assert status == 1, err
  assert [f"id{i}: finished" in out for i in range(5)] == [True, False, True, True, False], err
  assert "id1: FAILED" in err and "id4: FAILED" in err and "loss is nan" in err
  assert "PREEMPTED; it is made anew" in err
  for i in (0, 2, 3):
    assert (stand_in.store(f"id{i}") / "results.json").exists()
    (log,) = (stand_in.store(f"id{i}") / "logs").iterdir()
    assert "it is done" in log.read_text()
  ran = stand_in.ran()
  count = lambda name: sum(line.startswith(f"{name} ") for line in ran)
  assert count("id4") == 1  # a mistake in the input is not repeated
  assert count("id2") >= 2 and 2 <= count("id1") <= 3
  assert all("--config.compilation_cache=gs://bucket/runs/xla" in line for line in ran)
  # Calls without a machine's name: each was answered at least once, after it had failed.
  calls = stand_in.calls()
  kinds = {" ".join(call[1:4]) for call in calls}
  kind = "queued-resources" if queued else "tpu-vm"
  assert {f"tpus {kind} create", "tpus tpu-vm ssh", "tpus tpu-vm scp"} <= kinds
  assert not list((stand_in.folder / "nodes").iterdir())  # the bill has ended
  again = stand_in.run(script)
  assert again[0] == 1 and "id3: finished" in again[1]
  later = [line.split()[0] for line in stand_in.ran()[len(ran) :]]
  assert set(later) == {"id1", "id4"}


@pytest.mark.slow
def test_a_node_is_installed_once_and_again_for_another_source(clone, stand_in, tmp_path):
  script = emit(tmp_path / "out", jobs_of(0, 3))
  assert stand_in.run(script, HOURS="1")[0] == 0
  uv = lambda: (stand_in.folder / "uv").read_text().splitlines()
  # It failed once, and what is installed is not installed again for the second run.
  assert sum(line.startswith("venv") for line in uv()) == 2
  count = lambda: sum("-r requirements.txt" in line for line in uv())
  done = count()
  installed = lambda: count() - done
  home = stand_in.folder / "nodes" / "one" / "home"
  variables = {"REPOSITORY": str(clone), "DATA": "gs://bucket/data"}
  install = lambda **more: stand_in.run(ROOT / "tests" / "launch" / "ready.sh", clone, **more)
  assert install(**variables)[0] == 0 and installed() == 1
  assert install(**variables)[0] == 0 and installed() == 1
  assert (home / "data" / "x.tsv").exists()
  (clone / "as2jax" / "a.py").write_text("A = 2\n")
  (clone / "as2jax" / "new.py").write_text("B = 1\n")
  status, _, err = install(**variables)
  assert status == 2 and "as2jax/new.py" in err and "CHANGES=carry" in err
  assert install(**variables, CHANGES="carry")[0] == 0 and installed() == 2
  assert (home / "as2jax" / "as2jax" / "a.py").read_text() == "A = 2\n"
  assert (home / "as2jax" / "as2jax" / "new.py").exists()
  (clone / "as2jax" / "new.py").unlink()
  assert install(**variables, CHANGES="carry")[0] == 0
  assert not (home / "as2jax" / "as2jax" / "new.py").exists()  # what is gone is gone there, too


def test_install_by_itself_finds_the_nodes_zone(clone, stand_in):
  temporary = stand_in.folder / "temporary"
  temporary.mkdir()
  variables = {
    "REPOSITORY": str(clone),
    "ZONES": "us-west4-a us-central1-a",
    "DATA": "gs://bucket/data",
    "TMPDIR": str(temporary),
  }
  command = lambda word, **more: stand_in.run(
    clone / "launch" / "tpu_vm.sh", word, "one", **variables, STEADY="1", **more
  )
  status, _, err = command("install")
  assert status == 1 and "one is in none of" in err and "tpu_vm.sh create one" in err
  stand_in.refuse(**{"us-west4-a": "room"})
  assert command("create", HOURS="1")[0] == 0
  stand_in.refuse()
  status, _, err = command("create", HOURS="1")  # again: no second one where there is room by now
  assert status == 0 and "READY in us-central1-a" in err
  assert sum(call[3:4] == ["create"] for call in stand_in.calls()) == 2
  status, _, err = command("install")  # uv fails once
  assert status == 1 and "one in us-central1-a is not installed" in err and "no network" in err
  assert command("install")[0] == 0
  assert (stand_in.folder / "nodes" / "one" / "home" / "data" / "x.tsv").exists()
  assert not list(temporary.iterdir())


def test_a_command_without_its_arguments_says_which_it_has(clone, stand_in):
  for words in (["run", "one"], ["run", "one", "config.py"], ["logs", "one"], ["state"], []):
    status, _, err = stand_in.run(clone / "launch" / "tpu_vm.sh", *words)
    assert status == 2 and "run NODE CONFIG DIR" in err and "unbound" not in err
  assert not (stand_in.folder / "calls").exists()


def test_uncommitted_changes_are_refused_or_carried_as_a_patch(clone, stand_in, tmp_path):
  (clone / "as2jax" / "a.py").write_text("A = 2\n")
  (clone / "new.txt").write_text("new\n")
  with pytest.raises(InputError, match=r"(?s)M\s+as2jax/a.py.*A\s+new.txt.*--changes=carry"):
    emit(tmp_path / "out", jobs_of(0))
  script = emit(tmp_path / "out", jobs_of(0), carry=True)
  stand_in.store("").mkdir()
  (stand_in.store("") / "cancelled").touch()  # before: a sweep goes on when it is started again
  assert stand_in.run(script, HOURS="1")[0] == 0
  assert not (stand_in.store("") / "cancelled").exists()
  (ran,) = set(stand_in.ran())
  source = json.loads(re.search(r"\{.*?\}", ran)[0])
  assert len(source["commit"]) == 40 and len(source["patch"]) == 40
  patch = stand_in.folder / "gs" / "bucket" / "runs" / "source.tar.gz.patch"
  head = ["git", "-C", str(clone)]
  assert (
    subprocess.check_output([*head, "hash-object", str(patch)], text=True).strip()
    == source["patch"]
  )
  subprocess.run([*head, "stash", "-q", "-u"], check=True)
  subprocess.run([*head, "apply", str(patch)], check=True)  # what ran can be had again
  assert (clone / "as2jax" / "a.py").read_text() == "A = 2\n"
  assert subprocess.check_output([*head, "status", "--porcelain", "as2jax/source.json"]) == b""


SKY = """#!/bin/bash
echo "$*" >>"$STAND_IN/sky"
[ "$2" != queue ] || cat "$STAND_IN/queue"
"""


def test_skypilots_jobs_are_started_once_ended_and_started_again(clone, stand_in, tmp_path):
  script = emit(tmp_path / "out", jobs_of(0, 1, 2), kind="skypilot")
  sky = stand_in.folder / "bin" / "sky"
  sky.write_text(SKY)
  sky.chmod(0o755)
  (stand_in.folder / "queue").write_text('[{"job_name": "as2jax-id1"}]')  # it is under way
  stand_in.store("id2").mkdir(parents=True)
  (stand_in.store("id2") / "results.json").touch()
  (stand_in.store("") / "cancelled").touch()  # before

  def asked(*words):
    """The end status, and what SkyPilot is told, of a start in which nothing else fails."""
    (stand_in.folder / "sky").write_text("")
    status, _, _ = stand_in.run(script, *words, STEADY="1")
    lines = (stand_in.folder / "sky").read_text().splitlines()
    return status, [line for line in lines if " queue " not in f"{line} "]

  assert stand_in.run(script)[0] == 1  # the bucket does not answer
  assert (stand_in.store("") / "cancelled").exists()
  launched = "jobs launch --yes --detach-run --name as2jax-id0 id0.yaml"
  assert asked() == (0, [launched])
  assert not (stand_in.store("") / "cancelled").exists()
  assert (stand_in.store("") / "manifest.jsonl").exists()
  assert asked("cancel") == (0, ["jobs cancel --yes --name as2jax-id1"])


@pytest.mark.parametrize(
  "refused, status, words",
  [
    (
      {"us-west4-a": "quota", "us-central1-a": "type"},
      2,
      ["IAM & Admin", "accelerator-types list"],
    ),
    ({"us-west4-a": "permission"}, 2, ["add-iam-policy-binding"]),
    ({"us-west4-a": "api"}, 2, ["gcloud services enable tpu.googleapis.com"]),
    ({"us-west4-a": "room", "us-central1-a": "quota"}, 3, ["no room", "within 0 hours"]),
  ],
)
def test_what_waiting_does_not_mend_ends_at_once(clone, stand_in, tmp_path, refused, status, words):
  script = emit(tmp_path / "out", jobs_of(0, 3))
  stand_in.refuse(**refused)
  variables = {"HOURS": "0", "STEADY": "1"} if status == 3 else {"HOURS": "9"}
  code, _, err = stand_in.run(script, **variables)
  assert code == 1 and "id0: FAILED" in err and "id3: FAILED" in err
  for word in words:
    assert word in err
  created = [call for call in stand_in.calls() if call[3:4] == ["create"]]
  assert len(created) <= 4 and not (stand_in.folder / "ran").exists()


def test_a_bucket_that_does_not_exist_is_not_waited_for(clone, stand_in, tmp_path):
  script = emit(tmp_path / "out", jobs_of(0))
  for refused in ("bucket", "no-bucket"):
    status, _, err = stand_in.run(script, REFUSE=refused)
    assert status == 2 and "gcloud storage buckets create" in err


def test_a_run_whose_config_was_removed_fails_alone(clone, stand_in, tmp_path):
  script = emit(tmp_path / "out", jobs_of(0, 3))
  (tmp_path / "out" / "id0" / "config.json").unlink()
  status, out, err = stand_in.run(script, HOURS="1", STEADY="1")
  assert status == 1 and "id0: FAILED" in err and "id3: finished" in out


def test_variables_of_another_job_do_not_move_a_sweep(clone, stand_in, tmp_path):
  """launch/tpu_vm.md exports them for a single job, above."""
  script = emit(tmp_path / "out", jobs_of(0))
  other = {"STORE": "gs://bucket/other", "TPU": "v5litepod-8", "ZONES": "mars-1-a", "DATA": ""}
  assert stand_in.run(script, HOURS="1", STEADY="1", **other)[0] == 0
  (create,) = [call for call in stand_in.calls() if call[3:4] == ["create"]]
  assert "--accelerator-type=v5litepod-1" in create and "--zone=us-west4-a" in create
  assert (stand_in.store("id0") / "results.json").exists()


def test_the_next_zone_is_asked_where_one_has_no_room(clone, stand_in, tmp_path):
  stand_in.refuse(**{"us-west4-a": "room", "us-central1-a": "quota"})
  script = emit(tmp_path / "out", jobs_of(0), zones="us-west4-a,us-central1-a,us-south1-a")
  status, out, err = stand_in.run(script, HOURS="1")
  assert status == 0 and "made in us-south1-a" in err, err


@pytest.mark.parametrize("queued", ["0", "1"])
@pytest.mark.parametrize(
  "refused, status, words",
  [
    ("login", 2, "log in: gcloud auth login"),
    ("api", 2, "gcloud services enable tpu.googleapis.com"),
    ("permission", 2, "add-iam-policy-binding"),
    ("quota", 1, "Quota limit"),
  ],
)
def test_a_node_of_which_gcloud_does_not_say_is_not_taken_for_deleted(
  stand_in, queued, refused, status, words
):
  variables = {"ZONES": "us-west4-a us-central1-a", "QUEUED": queued, "STEADY": "1"}
  command = lambda word, **more: stand_in.run(
    ROOT / "launch" / "tpu_vm.sh", word, "one", **variables, **more
  )
  stand_in.refuse(**{"us-west4-a": "room"})
  assert command("create", HOURS="1")[0] == 0
  code, _, err = command("delete", REFUSE=refused)
  assert code == status and words in err and "one is not deleted" in err
  assert (stand_in.folder / "nodes" / "one").exists()
  assert command("delete", REFUSE="type")[0] == 0  # no zone of this name
  assert command("delete")[0] == 0 and not (stand_in.folder / "nodes" / "one").exists()
  assert command("delete")[0] == 0  # it is gone


def test_a_sweep_whose_nodes_may_still_be_there_fails(clone, stand_in, tmp_path):
  script = emit(tmp_path / "out", jobs_of(0))
  status, _, err = stand_in.run(script, "delete", REFUSE="login")
  assert status == 1 and re.search(r"as2jax-\w+-0: FAILED", err) and "log in" in err
  assert stand_in.run(script, "delete", STEADY="1")[0] == 0


@pytest.mark.slow
def test_a_cancelled_sweep_saves_and_ends(clone, stand_in, tmp_path):
  process = stand_in.start(emit(tmp_path / "out", jobs_of(5, 0)), HOURS="1")
  while not (stand_in.folder / "ran").exists():
    assert process.poll() is None
  (stand_in.store("") / "cancelled").touch()
  out, err = process.communicate(timeout=60)
  assert process.returncode == 1 and "id5: cancelled" in err and "id0: FAILED" in err
  assert not list((stand_in.folder / "nodes").iterdir())


def test_a_script_says_what_it_does():
  said = subprocess.run(
    ["bash", str(ROOT / "launch" / "tpu_vm.sh"), "rm", "x"], capture_output=True, text=True
  )
  assert said.returncode == 2 and "delete NODE" in said.stderr and ': "${' not in said.stderr


@pytest.mark.slow
def test_gcloud_itself_knows_every_command(clone, stand_in, tmp_path):
  if not (gcloud := shutil.which("gcloud")):
    pytest.skip("gcloud is not installed")
  for queued in (False, True):
    emit_to = tmp_path / f"out-{queued}"
    stand_in.run(emit(emit_to, jobs_of(0), queued=queued), HOURS="1")
    shutil.rmtree(stand_in.store("id0"))
  known = {}
  for call in stand_in.calls():
    flags = tuple(word.partition("=")[0] for word in call if word.startswith("--"))
    known[(*call[:4], flags)] = call
  assert len(known) > 8
  for call in known.values():
    words = [re.sub(r"^(--command)=.*", r"\1=x", word, flags=re.DOTALL) for word in call]
    text = shlex.join(["gcloud", *words])
    lint = [gcloud, "meta", "lint-gcloud-commands", f"--command-string={text}"]
    (actual,) = json.loads(subprocess.check_output(lint, text=True, stderr=subprocess.DEVNULL))
    assert actual["success"], (text, actual["error_message"])
