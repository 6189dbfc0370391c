"""`as2jax lab tpu doctor`: what it finds wrong, with the command that mends it."""

import json
import re

import pytest

from as2jax.commands import app
from as2jax.experiments.sweeps import doctor, machines

QUOTA = [
  {
    "quotaId": "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI",
    "dimensionsInfos": [
      {"details": {"value": "16"}, "applicableLocations": ["us-west4-a", "mars-1-a"]},
      {"details": {"value": "0"}, "applicableLocations": ["us-central1-a"]},
    ],
  },
  {
    "quotaId": "TPUV5sLitepodPerProjectPerZoneForTPUAPI",
    "dimensionsInfos": [{"details": {"value": "64"}, "applicableLocations": ["us-central1-a"]}],
  },
]
# What gcloud prints where all is well: the first words of a command, then its output.
WELL = {
  "auth list": "a@x.example",
  "config get": "project-1",
  "services list": lambda words: re.search(r"config.name=(\S+)", " ".join(words))[1],
  "compute tpus accelerator-types": "v5litepod-8",
  "beta quotas": json.dumps(QUOTA),
  "storage buckets": "US-WEST4",
  "storage cp": "",
  "storage rm": "",
  "compute tpus tpu-vm describe": "READY",
  "compute tpus tpu-vm ssh": "ok    devices: 8 of 8",
}


@pytest.fixture
def gcloud(monkeypatch):
  """The answers of gcloud, which a test changes: None is a failure."""
  answers, asked = dict(WELL), []

  def ask(*words):
    asked.append(words)
    answer = next(a for start, a in answers.items() if " ".join(words).startswith(start))
    if answer is None:
      return False, "ERROR: (gcloud) PERMISSION_DENIED"
    return True, answer(words) if callable(answer) else answer

  monkeypatch.setattr(doctor, "ask", ask)
  answers["asked"] = asked
  return answers


def look(capsys, *options):
  status = app.run(["lab", "tpu", "doctor", "--tpu=v5e-8", "--store=gs://b/runs", *options])
  return status, capsys.readouterr().out


def test_all_is_well(gcloud, capsys):
  status, said = look(capsys)
  assert status == 0 and "BAD" not in said and "do:" not in said
  names = re.findall(r"^ok    (.*?):", said, re.M)
  assert names == [
    "account",
    "project",
    "API tpu.googleapis.com",
    "API storage.googleapis.com",
    "zones with v5litepod-8",
    "quota, chips by zone",
    "bucket",
    "bucket's region",
    "writing into it",
    "jax",
  ]
  assert "us-west4-a 16" in said
  written = [words[-1] for words in gcloud["asked"] if words[:2] == ("storage", "cp")]
  assert [("storage", "rm", written[0])] == [w for w in gcloud["asked"] if w[1] == "rm"]


@pytest.mark.parametrize(
  "command, answer, mend",
  [
    ("auth list", "", "gcloud auth login"),
    ("config get", "(unset)", "gcloud config set project"),
    ("services list", "", "gcloud services enable tpu.googleapis.com"),
    ("compute tpus accelerator-types", "", "accelerator-types list --zone=us-west4-a"),
    ("beta quotas", "[]", "ask for 8 chips of v5litepod-8"),
    ("beta quotas", None, "ask for 8 chips of v5litepod-8"),
    ("storage buckets", None, "gcloud storage buckets create gs://b --location="),
    ("storage buckets", "ASIA-EAST1", "create gs://OTHER --location=us-west4"),  # the first zone's
    ("storage cp", None, "add-iam-policy-binding gs://b --member=user:a@x.example"),
  ],
)
def test_what_is_wrong_is_said_with_what_mends_it(gcloud, capsys, command, answer, mend):
  gcloud[command] = answer
  status, said = look(capsys)
  assert status == 1 and said.count("BAD") in (1, 2)
  assert mend in said.split("BAD")[1].split("\nok")[0]


def test_quotas_are_of_the_generation_and_of_spot():
  of = lambda tpu, spot: doctor.quota(QUOTA, machines.machine(tpu, spot=spot))
  assert of("v5e-8", True) == {"us-west4-a": 16.0}
  assert of("v5e-8", False) == {"us-central1-a": 64.0}
  assert of("v6e-8", True) == {}


@pytest.mark.parametrize(
  "command, answer, mend",
  [
    ("compute tpus tpu-vm describe", None, "tpu_vm.sh create first"),
    ("compute tpus tpu-vm describe", "PREEMPTED", "tpu_vm.sh delete first"),
    ("compute tpus tpu-vm ssh", None, "tpu_vm.sh install first"),
  ],
)
def test_a_machine_is_looked_at_from_itself(gcloud, capsys, command, answer, mend):
  status, said = look(capsys, "--node=first")
  assert status == 0 and "devices: 8 of 8" in said
  (words,) = [w for w in gcloud["asked"] if w[3:4] == ("ssh",)]
  assert "--worker=all" in words and "--here --chips=8" in words[-1]
  gcloud[command] = answer
  status, said = look(capsys, "--node=first")
  assert status == 1 and mend in said


def test_steps_are_taken_on_all_devices_of_this_machine(capsys, monkeypatch):
  import jax

  monkeypatch.setattr(doctor, "WIDTH", 64)
  lines = []
  report = doctor.Report(lines.append)
  doctor.here(report, jax.device_count(), seconds=0.1)
  assert report.fine and any("ok    steps: " in line for line in lines)
  doctor.here(report, jax.device_count() + 1, seconds=0.1)
  assert not report.fine and "ls /dev/accel*" in lines[-2]


def test_a_tpu_vm_that_computes_on_its_processor_is_not_well(monkeypatch):
  import jax

  monkeypatch.setattr(doctor, "WIDTH", 64)
  monkeypatch.setattr(doctor.processes, "start", lambda: None)
  monkeypatch.setattr(doctor.processes, "on_tpu_vm", lambda: True)
  lines = []
  report = doctor.Report(lines.append)
  doctor.here(report, jax.device_count(), seconds=0.1)
  (line,) = [line for line in lines if "devices:" in line]
  assert line.startswith("BAD") and "lsof" in line and not report.fine


def test_what_a_machine_says_of_itself_is_told_where_it_is_not_well(capsys, monkeypatch, tmp_path):
  gcloud = tmp_path / "gcloud"
  gcloud.write_text(
    "#!/bin/sh\ncase $* in *describe*) echo READY; exit 0 ;; esac\n"
    "echo 'BAD   devices: 4 of 8'; echo '##### Command execution failed.' >&2; exit 1\n"
  )
  gcloud.chmod(0o755)
  monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
  status, said = look(capsys, "--node=first")
  assert status == 1 and "devices: 4 of 8" in said and "execution failed" in said


def test_without_gcloud_it_says_where_to_get_it(monkeypatch, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  assert doctor.ask("auth", "list") == (
    False,
    "gcloud is not installed: https://cloud.google.com/sdk/docs/install",
  )
