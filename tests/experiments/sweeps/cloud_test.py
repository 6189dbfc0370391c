"""Sweeps for Cloud TPUs: SkyPilot's own schema, and the gcloud script against a stand-in."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from as2jax.commands import app
from as2jax.experiments.compile import chips
from as2jax.experiments.sweeps import cloud, machines, points, preflight
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[3]
TITLES = ("base, seed 0", 'model.x=it\'s "4" $HOME, seed 0', "a, seed 1", "b, seed 1")


def jobs_of(count, shards=1):
  text = json.dumps({"batch": {"shards": shards}, "sharding": {"fsdp": 1, "tensor": 1}})
  return [points.Job(f"id{i}", i, TITLES[i], {}, 0, text) for i in range(count)]


@pytest.fixture(autouse=True)
def _packed(monkeypatch):
  """The source of this clone, which may have changes, is not packed: see launch/tpu_vm_test.py."""
  monkeypatch.setattr(cloud, "pack", lambda archive, carry: "0123456789ab")
  monkeypatch.setattr(preflight, "preflight", lambda *jobs, **options: "table")


def emit(kind, jobs, output, tpu="v5e-1", store="gs://bucket/runs", data="", zones=""):
  where = machines.machine(tpu, zones=zones, spot=True, queued=True)
  places = cloud.Places(store, data)
  return cloud.emit(kind, jobs, output, where=[where], places=places, nodes=1)


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
  assert resources["job_recovery"]["recover_on_exit_codes"] == [75]
  local = task["file_mounts"]["~/configs/id1.json"]
  assert json.loads(pathlib.Path(local).read_text()) == json.loads(jobs_of(2)[1].text)
  assert task["file_mounts"]["~/data"] == "gs://bucket/data"
  assert " gs://bucket/runs/id1 " in task["run"] and "$HOME/configs/id1" in task["run"]
  regions = [entry["infra"] for entry in resources["any_of"]]
  assert regions[0] == "gcp/us-west4" and len(regions) == len(set(regions)) > 3
  assert "launch/install.sh tpu" in task["setup"] and "launch/job.sh" in task["run"]
  script = tmp_path / "skypilot" / "launch.sh"
  assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


@pytest.fixture(scope="session")
def skypilot(tmp_path_factory):
  """A Python with SkyPilot, whose packages are not those of ours: kept beside the compiler for TPUs."""
  folder = ROOT / ".skypilot"
  python = folder / "bin" / "python"
  if not (folder / "whole").exists():
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "-q", "skypilot==0.14.1"]
    if subprocess.run(install, capture_output=True).returncode:
      pytest.skip("no SkyPilot 0.14.1 in the package index")
    (folder / "whole").touch()
  home = tmp_path_factory.mktemp("home")
  return python, {**os.environ, "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}


@pytest.mark.slow
def test_skypilot_itself_reads_the_tasks(tmp_path, skypilot):
  """Its schema and its parser; a lack of room in one region lets it try each of the others."""
  python, env = skypilot
  expected = {}
  for tpu in ("v5e-1", "v6e-4", "v5p-8", "v4-8"):
    emit("skypilot", jobs_of(1), tmp_path / tpu, tpu=tpu, data="gs://bucket/data")
    (tmp_path / tpu / "source.tar.gz").touch()
    zones = machines.machine(tpu).zones
    path = str(tmp_path / tpu / "skypilot" / "id0.yaml")
    expected[path] = sorted({zone.rpartition("-")[0] for zone in zones})
  program = [str(python), str(ROOT / "tests" / "launch" / "skypilot_parse.py"), *expected]
  said = subprocess.run(program, env=env, capture_output=True, text=True, timeout=300)
  assert said.returncode == 0, said.stderr[-2000:]
  assert json.loads(said.stdout.splitlines()[-1]) == expected


@pytest.mark.parametrize(
  "options, message",
  [
    ({"tpu": "v9-8"}, "--tpu=v9-8: give a generation"),
    ({"tpu": "v5e-0"}, "--tpu=v5e-0"),
    ({"tpu": "v5e-2"}, "v5e comes in 1, 4, 8, 16"),
    ({"zones": "mars"}, "'mars' is no zone; give such as us-west4-a"),
    ({"store": "runs"}, "--store=runs: give a folder of a bucket"),
    ({"store": ""}, "--store=: give"),
    ({"data": "gs://a b"}, "--data=gs://a b"),
  ],
)
def test_what_cannot_run_there_is_refused(tmp_path, options, message):
  with pytest.raises(InputError, match=message):
    emit("gcloud", jobs_of(1), tmp_path, **options)
  assert not list(tmp_path.rglob("*.sh"))


def test_changes_are_refused_before_anything_is_compiled(tmp_path, monkeypatch):
  def refused(archive, carry):
    raise InputError("--emit: these files are not committed")

  monkeypatch.setattr(cloud, "pack", refused)
  monkeypatch.setattr(preflight, "preflight", None)  # would fail
  with pytest.raises(InputError, match="not committed"):
    emit("gcloud", jobs_of(1), tmp_path)


def test_a_generation_has_its_zones_sizes_and_shapes():
  actual = {tpu: machines.machine(tpu) for tpu in ("v4-8", "v5p-16", "v5e-16", "v6e-1")}
  assert {tpu: its.chips for tpu, its in actual.items()} == {
    "v4-8": 4,
    "v5p-16": 8,
    "v5e-16": 16,
    "v6e-1": 1,
  }
  assert actual["v4-8"].zones == ("us-central2-b",)
  assert "us-west4-a" in actual["v5e-16"].zones and "us-west4-a" not in actual["v6e-1"].zones
  assert machines.machine("v5e-4", zones="a-b1-c,us-east1-d").zones == ("a-b1-c", "us-east1-d")
  for kind, generation in machines.GENERATIONS.items():
    for size in generation.topologies:
      its = machines.machine(f"{kind}-{size}")
      assert chips.count(its.topology) == its.chips


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
  assert 'SPOT="0"' in script and 'STORE="gs://bucket/x"' in script
  assert app.run(["lab", "sweep", *arguments]) == 2
  assert "--store=: give" in capsys.readouterr().err


def test_what_is_only_checked_or_refused_leaves_an_earlier_emission_as_it_is(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(ROOT)
  monkeypatch.setattr(cloud, "pack", lambda archive, carry: archive.write_text("new") and "new")
  out = tmp_path / "out"
  base = ["--base=wikiqa_baseline:bm25,sample", "--grid", "model.name=word_overlap"]
  command = ["lab", "sweep", *base, f"--output={out}", "--store=gs://bucket/x"]
  assert app.run([*command, "--emit=gcloud"]) == 0
  (out / "source.tar.gz").write_text("old")
  before = (out / "manifest.jsonl").read_text()
  assert app.run([*command, "--emit=check", "--seeds=2"]) == 0

  def refused(*jobs, **options):
    raise InputError("it does not fit")

  monkeypatch.setattr(preflight, "preflight", refused)
  assert app.run([*command, "--emit=gcloud", "--seeds=2"]) == 2
  assert (out / "manifest.jsonl").read_text() == before
  assert (out / "source.tar.gz").read_text() == "old"


def test_machines_keep_their_names_when_a_sweep_is_emitted_again(tmp_path):
  """So that `gcloud.sh delete` finds those of the earlier script; another sweep has its own."""

  def name(jobs):
    emit("gcloud", jobs, tmp_path)
    return re.search(r'NAME="(as2jax-\w+)"', (tmp_path / "gcloud.sh").read_text())[1]

  first = name(jobs_of(2))
  for done in ("id0", "id1"):
    finish(tmp_path / done)
    assert name(jobs_of(2)) == first
  assert name(jobs_of(3)) != first


@pytest.mark.parametrize("name", ["tpu_vm.sh", "job.sh", "install.sh", "environment.sh"])
def test_the_recipes_are_bash(name):
  assert subprocess.run(["bash", "-n", str(ROOT / "launch" / name)]).returncode == 0
