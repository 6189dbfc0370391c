"""What a person sees of a run: phases, epochs, the time that is left, and the end."""

import io
import json
import logging
import re
import sys

import numpy as np
import pytest
import rich.console
from ml_collections import ConfigDict

from as2jax.config import jobs
from as2jax.data.batches.batcher import Plan
from as2jax.evaluation import results
from as2jax.runtime import devices
from as2jax.runtime.errors import InputError
from as2jax.training import forecast, progress_bar, run_folder
from as2jax.training.progress_bar import Display

CONFIG = ConfigDict({"seconds": 0.0})
METRIC = "map[wikiqa-clean/dev]"


class Terminal(io.StringIO):
  def isatty(self):
    return True


def played(workdir="runs/x"):
  """A run of two epochs of three steps, of which each takes a second but the first, which compiles."""
  with Display(CONFIG, workdir) as display:
    display.phase("reading")
    display.phase("tokenising")
    display.seeds((0,), 0, 1, 2)
    for epoch in range(2):
      display.epoch(epoch, 0, 3, 0)
      for step in range(1, 4):
        now[0] += 60.0 if epoch == 0 and step == 1 else 1.0
        display.step(step, {"loss": 0.5, "seconds_per_step": 1.0}, 8 * step)
      display.phase("evaluating")
      now[0] += 30.0 if epoch == 0 else 2.0
      display.evaluated(epoch + 1, METRIC, [0.5], [True])


now = [0.0]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # where runs/x gets its status


@pytest.fixture
def clock(monkeypatch):
  """The time of `played`."""
  now[0] = 0.0
  monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])


def test_a_log_names_phases_epochs_and_the_time_left(clock, capsys):
  played()
  lines = capsys.readouterr().err.splitlines()
  assert lines[:3] == ["reading", "tokenising", "runs/x: seed 0"]
  told = [line for line in lines if line.startswith("training")]
  assert told[0].startswith("training  epoch 1 of 2  1/3  loss 0.5") and "left" not in told[0]
  # A second a step from the second on: the minute of compilation counts in no rate.
  assert "epoch 1 of 2  2/3" in told[1] and "8 examples/s  4 s left" in told[1]
  assert "epoch 2 of 2  3/3" in told[-1] and "8 examples/s  0 s left" in told[-1]
  assert f"after 2 epochs  {METRIC} 0.5000 (best)" in lines


def test_a_terminal_shows_what_looks_like_markup(clock, monkeypatch):
  stream = Terminal()
  monkeypatch.setattr(sys, "stderr", stream)
  monkeypatch.setattr(
    rich.console, "Console", lambda **k: CONSOLE(file=stream, force_terminal=True, width=120, **k)
  )
  played("runs/[/x]:smile:")
  shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
  assert f"after 1 epoch  {METRIC} 0.5000 (best)" in shown and "runs/[/x]:smile:: seed 0" in shown
  assert "evaluating  epoch 2 of 2" in shown and "examples/s" in shown


def test_every_phase_is_drawn_though_nothing_draws_between(clock, monkeypatch):
  """On a busy machine the thread that draws ten times a second may stand still for long."""
  stream = Terminal()
  monkeypatch.setattr(sys, "stderr", stream)
  monkeypatch.setattr("rich.live._RefreshThread.run", lambda self: None)
  monkeypatch.setattr(
    rich.console, "Console", lambda **k: CONSOLE(file=stream, force_terminal=True, width=120, **k)
  )
  played()
  shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
  drawn = [re.sub(r"\W*━.*", "", line) for line in re.split(r"[\r\n]+", shown) if "━" in line]
  assert list(dict.fromkeys(drawn)) == [
    "",
    "reading",
    "tokenising",
    "compiling  epoch 1 of 2",
    "training  epoch 1 of 2",
    "evaluating  epoch 1 of 2",
    "training  epoch 2 of 2",
    "evaluating  epoch 2 of 2",
  ]
  assert " 50 %" in shown and "after 1 epoch" in shown


CONSOLE = rich.console.Console


def test_durations():
  assert [progress_bar.duration(s) for s in (40, 720, 12600)] == ["40 s", "12 min", "3.5 h"]


def test_tags_group_by_split():
  assert run_folder.tag(METRIC) == "dev/map_wikiqa-clean"
  assert run_folder.tag("map[wikiqa-clean/dev+test]") == "dev+test/map_wikiqa-clean"
  assert run_folder.tag("loss") == "train/loss"


def test_hyperparameters_and_tags_are_in_tensorboards_file(tmp_path):
  config = ConfigDict({"optimizer": {"rate": 0.25}, "seeds": (0, 1), "none": None})
  log = run_folder.MetricsLog(tmp_path, tensorboard=True, config=config)
  log.roll_back((0,), 0)
  log.write(0, 1, {METRIC: 0.5})
  log.close()
  (file,) = (tmp_path / "tensorboard" / "seed-0").iterdir()
  content = file.read_bytes()
  assert b"optimizer.rate" in content and b"dev/map_wikiqa-clean" in content


@pytest.fixture
def no_devices(monkeypatch, tmp_path):
  """A folder in place of /dev and of the PCI bus; no plugin of jax has failed."""
  (tmp_path / "pci").mkdir()
  monkeypatch.setattr(devices, "PCI", str(tmp_path / "pci"))
  monkeypatch.setattr(devices, "VFIO", str(tmp_path / "vfio/[0-9]*"))
  gpu, tpu = str(tmp_path / "nvidia[0-9]*"), str(tmp_path / "accel*")
  monkeypatch.setitem(devices.DRIVERS, "NVIDIA GPU", ((gpu,), "cuda12"))
  monkeypatch.setitem(devices.DRIVERS, "TPU", ((tpu,), "tpu"))
  monkeypatch.setattr(devices, "_failed_plugins", [])
  monkeypatch.delenv("JAX_PLATFORMS", raising=False)
  return tmp_path


def pci(folder, vendor, device):
  (folder / "pci/0").mkdir()
  (folder / "pci/0/vendor").write_text(vendor + "\n")
  (folder / "pci/0/device").write_text(device + "\n")


def test_a_platform_that_is_not_here_is_one_line(monkeypatch, no_devices):
  def absent():
    raise RuntimeError(
      "Unable to initialize backend 'rocm':\n not known (set JAX_PLATFORMS='' to automatically)"
    )

  monkeypatch.setattr("jax.default_backend", absent)
  monkeypatch.setenv("JAX_PLATFORMS", "rocm")
  with pytest.raises(InputError) as caught:
    devices.backend()
  text = str(caught.value)
  assert text.startswith("JAX_PLATFORMS=rocm: ") and "\n" not in text and "as2jax[cuda12]" in text
  assert "backend 'rocm': not known);" in text
  monkeypatch.setenv("JAX_PLATFORMS", "tpu,cpu")
  with pytest.raises(InputError, match="^JAX_PLATFORMS=tpu,cpu: this machine has no TPU; unset it"):
    devices.backend()
  pci(no_devices, "0x1ae0", "0x9999")  # a TPU of a kind that is not known yet
  with pytest.raises(InputError, match="no such device can be used here"):
    devices.backend()


def test_why_a_plugin_failed_is_said_in_the_one_line(monkeypatch, no_devices, caplog):
  def absent():
    try:
      raise ValueError("cuInit(0) failed:\n no driver")
    except ValueError:
      logging.getLogger("jax._src.xla_bridge").exception("Jax plugin configuration error: x")
    raise AssertionError

  monkeypatch.setattr("jax.default_backend", absent)
  monkeypatch.setenv("JAX_PLATFORMS", "cuda")
  with pytest.raises(InputError, match=r"\(cuInit\(0\) failed: no driver\); .* check the driver$"):
    devices.backend()
  assert not caplog.records
  monkeypatch.delenv("JAX_PLATFORMS")
  monkeypatch.setattr(devices, "backend", lambda: "cpu")
  assert devices.unused() == (
    "warning: jax computes on the CPU: a plugin of it failed (cuInit(0) failed: no driver)"
  )
  (no_devices / "nvidia0").write_text("")
  assert "a NVIDIA GPU, but" in devices.unused() and "failed (cuInit(0)" in devices.unused()


def test_an_unused_accelerator_is_a_warning(monkeypatch, no_devices):
  monkeypatch.setattr(devices, "backend", lambda: "cpu")
  pci(no_devices, "0x1ae0", "0x0042")  # a network card
  assert devices.unused() == ""
  (no_devices / "nvidia0").write_text("")
  assert "has a NVIDIA GPU" in devices.unused() and "as2jax[cuda12]" in devices.unused()
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  assert "JAX_PLATFORMS=cpu asks for that" in devices.unused()
  monkeypatch.setattr(devices, "backend", lambda: "gpu")
  assert devices.unused() == ""


def test_a_tpu_without_dev_accel_is_seen_on_the_bus(monkeypatch, no_devices):
  monkeypatch.setattr(devices, "backend", lambda: "cpu")
  pci(no_devices, "0x1ae0", "0x0063")
  assert "has a TPU" in devices.unused() and "as2jax[tpu]" in devices.unused()


def test_the_device_is_named_with_its_kind():
  assert re.match(r"(\d+ × )?CPU \(.+, \d+ cores\)$", devices.description())


def test_the_files_that_are_told_are_there(tmp_path):
  entry = {"seed": 0, "steps": 0, "best_epoch": 0, "notes": []}
  content = {"metrics": {}, "task": "rerank", "data": {"name": "x"}, "seeds": [entry]}
  told = lambda: results.summary(content, str(tmp_path)).splitlines()[0]
  for name in ("results.json", "eval/test/run.trec"):  # what a ranker of words leaves
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
  assert told() == f"files: {tmp_path}: results.json, eval/*/run.trec"
  (tmp_path / "eval/test/seed-1").mkdir()
  (tmp_path / "eval/test/run.trec").rename(tmp_path / "eval/test/seed-1/run.trec")
  for name in ("checkpoints/seed-1/best", "tensorboard"):
    (tmp_path / name).mkdir(parents=True)
  assert told().endswith(
    ": results.json, checkpoints/seed-*/best, eval/*/seed-*/run.trec, tensorboard"
  )
  (tmp_path / "checkpoints/seed-1/best").rename(tmp_path / "checkpoints/best")
  assert told().endswith(": results.json, checkpoints/best, eval/*/seed-*/run.trec, tensorboard")


@pytest.mark.parametrize("system, lines", [("bm25", 8), ("triplet", 10)])
def test_the_end_is_at_most_ten_lines(finished_run, system, lines):
  folder = finished_run(system)
  content = json.loads((folder / "results.json").read_text())
  told = results.summary(content, "runs/x").splitlines()
  assert len(told) <= lines
  split = told[0].partition(" ")[0]
  counts = {"dev": "30 questions, 264 candidates, 33", "test": "54 questions, 477 candidates, 63"}
  assert told[1] == f"  {counts[split]} of them right"
  assert any(line.startswith("best epoch ") for line in told) == (system == "triplet")
  export = ["       as2jax export runs/x FOLDER"] * (system == "triplet")  # bm25 has no parameters
  split = "" if "test (" in "".join(told) else f" --split={told[0].partition(' ')[0]}"
  expected = ["next:  as2jax rank runs/x FILE", f"       as2jax compare OTHER_RUN runs/x{split}"]
  assert told[-len(expected + export) :] == expected + export


class Batches:
  """What `forecast` asks a batcher for."""

  shards, accumulate = 2, 1


def test_a_long_run_says_how_long_before_it_begins(monkeypatch):
  plan = Plan((None,) * 100, np.full(100, 24), np.full(100, 128), np.zeros(101))
  pretrained = {
    "encoder/embeddings/word": np.zeros((30_000, 64)),
    "encoder/layers/0/kernel": np.zeros((10_000, 2_000), np.int8),
    "encoder/layers/0/bias": np.zeros(1_000),
  }
  # 6 operations a parameter and position; two shards of 24 rows of 128 tokens, 100 steps.
  assert forecast.flops(Batches, plan, pretrained) == 6 * 20_000_000 * 2 * 24 * 128 * 100
  config = jobs.load("wikiqa_triplet")
  monkeypatch.setattr(
    forecast, "peak", lambda dtype: 6 * 20_000_000 * 2 * 24 * 128 * 100 * 40 / 1800
  )
  told = forecast.forecast(config, Batches, plan, pretrained)
  assert told.startswith("this will take about 60 min on this machine (at most 40 epochs of 100")
  assert told.endswith("Shorter: the words minilm,grouped after the job's name and a colon")
  monkeypatch.setattr(forecast, "peak", lambda dtype: 1e13)
  assert forecast.forecast(config, Batches, plan, pretrained) == ""
  small = jobs.load("wikiqa_triplet:minilm,grouped")
  assert forecast.shorter(small, forecast.MINILM_WEIGHTS).startswith("--set epochs=1")
  # Two layers of MiniLM are smaller than it.
  small.encoder.pretrained = "runs/small"
  assert forecast.shorter(small, forecast.MINILM_WEIGHTS // 3).startswith("--set epochs=1")
  assert forecast.shorter(small, 2 * forecast.MINILM_WEIGHTS).startswith("the word minilm after")


def test_the_peak_of_this_machine_is_measured():
  assert 1e9 < forecast.peak("float32", 256) < 1e15
