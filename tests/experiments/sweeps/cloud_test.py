"""Sweeps for Cloud TPUs: SkyPilot's own schema, and the gcloud script against a stand-in."""

import json
import os
import pathlib
import subprocess

import pytest
import yaml

from as2jax.commands import app
from as2jax.experiments.sweeps import cloud, points
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[3]
TITLES = ("base, seed 0", 'model.x=it\'s "4" $HOME, seed 0', "a, seed 1", "b, seed 1")


def jobs_of(count, shards=1):
  text = json.dumps({"batch": {"shards": shards}, "sharding": {"fsdp": 1, "tensor": 1}})
  return [points.Job(f"id{i}", i, TITLES[i], {}, 0, text) for i in range(count)]


def emit(kind, jobs, output, tpu="v5e-1", store="gs://bucket/runs", data="", nodes=1, queued=True):
  where = cloud.machine(tpu, zone="us-west4-a", spot=True, queued=queued)
  return cloud.emit(kind, jobs, output, where=where, store=store, data=data, nodes=nodes)


def finish(folder):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "results.json").write_text("{}")


def test_a_task_of_skypilot(tmp_path):
  finish(tmp_path / "id0")
  said = emit("skypilot", jobs_of(3), tmp_path, data="gs://bucket/data")
  assert "2 of 3 runs to do" in said and str(tmp_path / "skypilot" / "launch.sh") in said
  assert not (tmp_path / "skypilot" / "id0.yaml").exists()
  task = yaml.safe_load((tmp_path / "skypilot" / "id1.yaml").read_text())
  resources = task["resources"]
  assert resources["accelerators"] == "tpu-v5litepod-1" and resources["use_spot"] is True
  assert resources["accelerator_args"]["gcp_queued_resource"] is True
  assert resources["job_recovery"]["recover_on_exit_codes"] == [cloud.PREEMPTED]
  local = task["file_mounts"]["~/configs/id1.json"]
  assert json.loads(pathlib.Path(local).read_text()) == json.loads(jobs_of(2)[1].text)
  assert task["file_mounts"]["~/data"] == "gs://bucket/data"
  assert "--workdir=gs://bucket/runs/id1 " in task["run"] and "$HOME/configs/id1" in task["run"]
  assert (ROOT / task["setup"].split()[1]).exists()
  script = tmp_path / "skypilot" / "launch.sh"
  assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


@pytest.mark.parametrize("tpu", ["v5e-1", "v6e-4", "v5p-8", "v4-8"])
def test_skypilots_own_schema_takes_the_tasks(tmp_path, tpu):
  reason = "skypilot is not installed: pip install skypilot into an environment of its own"
  schemas = pytest.importorskip("sky.utils.schemas", reason=reason)
  from sky.utils import common_utils

  emit("skypilot", jobs_of(2, shards=4), tmp_path, tpu=tpu, data="gs://bucket/data")
  for path in sorted((tmp_path / "skypilot").glob("*.yaml")):
    task = yaml.safe_load(path.read_text())
    common_utils.validate_schema(task, schemas.get_task_schema(), "task: ")
    common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "resources: ")
    task["resources"]["spot"] = True  # a key that it does not have
    with pytest.raises(ValueError):
      common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "")


FAKE = r"""#!/usr/bin/env bash
# Stands for gcloud: a bucket is a folder, a machine a file that holds its state.
echo "$*" >>"$FAKE/calls"
path() { echo "$FAKE/${1#gs://}"; }
words="$*"
case "$words" in
  storage\ ls*) [ -e "$(path "$3")" ] ;;
  storage\ cp*) mkdir -p "$(dirname "$(path "$4")")" && cp "$3" "$(path "$4")" ;;
  *tpu-vm\ describe*) cat "$FAKE/$5" 2>/dev/null ;;
  *queued-resources\ describe*) [ -e "$FAKE/$5" ] && echo ACTIVE ;;
  *create*) echo READY >"$FAKE/$5" ;;
  *delete*) rm "$FAKE/$5" ;;
  *as2jax.main*)
    folder=${words##*--workdir=}; folder=$(path "${folder%% *}")
    [ -e "$folder/config.json" ] || exit 9
    case "$folder" in
      *id1) exit 3 ;;
      *id2) [ -e "$FAKE/once" ] || { touch "$FAKE/once"; echo PREEMPTED >"$FAKE/$5"; exit 255; } ;;
    esac
    echo "{}" >"$folder/results.json" ;;
esac
"""


@pytest.mark.parametrize("queued", [False, True])
def test_the_gcloud_script_runs_all_that_can_be_run(tmp_path, queued):
  bucket = tmp_path / "cloud"
  (tmp_path / "bin").mkdir()
  (tmp_path / "bin" / "gcloud").write_text(FAKE)
  (tmp_path / "bin" / "gcloud").chmod(0o755)
  finish(bucket / "bucket" / "runs" / "id0")
  out = tmp_path / "out"
  emit("gcloud", jobs_of(4), out, nodes=2, queued=queued, data="gs://bucket/data")
  assert subprocess.run(["bash", "-n", str(out / "gcloud.sh")]).returncode == 0
  environment = {
    **os.environ,
    "FAKE": str(bucket),
    "PAUSE": "0",
    "ATTEMPTS": "2",
    "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    "NAME": "node",
  }
  run = lambda *more: subprocess.run(
    ["bash", str(out / "gcloud.sh"), *more],
    env=environment,
    capture_output=True,
    text=True,
    timeout=60,
  )
  done = run()
  assert done.returncode == 1 and "id1: FAILED" in done.stderr, done.stderr
  assert "id0: finished" in done.stdout and "id3: finished" in done.stdout
  assert "id2: finished" in done.stdout and "it is made anew" in done.stderr
  calls = (bucket / "calls").read_text().splitlines()
  ran = [call for call in calls if "as2jax.main" in call]
  assert sorted(call.partition("runs/id")[2][0] for call in ran) == ["1", "1", "2", "2", "3"]
  assert all("--worker=all" in call for call in ran)
  assert all("compilation_cache=gs://bucket/runs/xla" in call for call in ran)
  kind = "queued-resources create" if queued else "tpu-vm create"
  created = [call for call in calls if kind in call]
  assert len(created) == 3 and all("--spot" in call for call in created)  # one was preempted
  assert not list(bucket.glob("node-*"))  # what was made is deleted
  (bucket / "calls").unlink()
  again = run()
  ran = [call for call in (bucket / "calls").read_text().splitlines() if "as2jax.main" in call]
  assert again.returncode == 1 and len(ran) == 2 and all("runs/id1" in call for call in ran)
  run("delete")
  assert "delete node-1" in (bucket / "calls").read_text()


@pytest.mark.parametrize(
  "options, message",
  [
    ({"tpu": "v9-8"}, "--tpu=v9-8: give a generation"),
    ({"tpu": "v5e-0"}, "--tpu=v5e-0"),
    ({"tpu": "v5e-8"}, "batch.shards = 1 cannot be spread over the 8 chips"),
    ({"store": "runs"}, "--store=runs: give a folder of a bucket"),
    ({"store": ""}, "--store=: give"),
    ({"data": "gs://a b"}, "--data=gs://a b"),
    ({"nodes": 0}, "--nodes=0"),
  ],
)
def test_what_cannot_run_there_is_refused(tmp_path, options, message):
  with pytest.raises(InputError, match=message):
    emit("gcloud", jobs_of(1), tmp_path, **options)
  assert not list(tmp_path.rglob("*.sh"))


def test_chips_of_a_machine():
  chips = {
    tpu: cloud.machine(tpu, zone="z", spot=False, queued=False).chips
    for tpu in ("v4-8", "v5p-16", "v5e-16", "v6e-1")
  }
  assert chips == {"v4-8": 4, "v5p-16": 8, "v5e-16": 16, "v6e-1": 1}


def test_the_command_writes_them(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(ROOT)
  path = tmp_path / "points.py"
  path.write_text(
    "BASE = 'configs/wikiqa_baseline.py:bm25,sample'\n\n"
    "def points():\n  yield {'model.name': 'word_overlap'}\n"
  )
  arguments = [str(path), f"--output={tmp_path / 'out'}", "--emit=gcloud"]
  assert app.run(["lab", "sweep", *arguments, "--store=gs://bucket/x/", "--no-spot"]) == 0
  assert "2 of 2 runs to do" in capsys.readouterr().out
  script = (tmp_path / "out" / "gcloud.sh").read_text()
  assert '"${SPOT:=0}"' in script and '"${STORE:=gs://bucket/x}"' in script
  assert app.run(["lab", "sweep", *arguments]) == 2
  assert "--store=: give" in capsys.readouterr().err


def test_the_recipes_are_bash(tmp_path):
  for name in ("tpu_vm.sh", "tpu_install.sh"):
    assert subprocess.run(["bash", "-n", str(ROOT / "launch" / name)]).returncode == 0
  said = subprocess.run(
    ["bash", str(ROOT / "launch" / "tpu_vm.sh"), "rm", "x"],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert said.returncode == 2 and "delete NODE" in said.stderr and "set -uo" not in said.stderr
