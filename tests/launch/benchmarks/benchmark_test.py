"""The benchmark's arithmetic: FLOPs, both sides' loss, a prepared file. Nothing here is timed."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy as np
import pytest
import tiny

from as2jax.runtime.errors import InputError
from launch.benchmarks import benchmark, jax_side, machine, processes, workload

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(benchmark.__file__).parents[2]
needs_torch = pytest.mark.skipif(
  importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
FLAGS = {"triplet": ["--sampler=grouped"], "crossencoder": [], "encode": []}


@pytest.fixture(autouse=True)
def _untimed(monkeypatch):
  """No peak is measured; the tests' compilation cache, which a benchmark turns off, comes back."""
  monkeypatch.setattr(jax_side, "matmul_peak", lambda dtype: 1e9)
  yield
  jax.config.update("jax_enable_compilation_cache", True)


@pytest.fixture(scope="module")
def work():
  """Workloads over `sample` and the tiny encoder without dropout, made once each."""
  made_work = {}

  def get(system):
    if system not in made_work:
      flags = benchmark.parse(
        [
          f"--system={system}",
          "--data=sample",
          "--dropout=0",
          f"--encoder={tiny.encoder_folder()}",
          *FLAGS[system],
        ]
      )
      made_work[system] = workload.from_config(benchmark.config_of(flags), system)
    return made_work[system]

  return get


def test_flops_are_those_of_xla():
  sizes = {"hidden_size": 128, "num_layers": 2, "num_heads": 4, "intermediate_size": 512}
  encoder = tiny.encoder_module(**sizes, hidden_dropout=0.0, attention_dropout=0.0, unroll=2)
  tokens = tiny.tokens(shards=2, rows=3, length=64)
  params = encoder.init(jax.random.key(0), tokens, train=False)
  forward = lambda p: encoder.apply(p, tokens, train=False).sum()
  counted = workload.forward_flops(sizes, np.full(6, 64))
  for function, passes in ((forward, 1), (jax.grad(forward), 3)):
    xla = jax.jit(function).lower(params).cost_analysis()["flops"]
    assert passes * counted == pytest.approx(xla, rel=0.1)


def test_flops_by_hand():
  # One layer, d = 2, f = 3, two sequences of 1 and 2 tokens: n(8·4 + 4·2·3) + 4·n²·2.
  sizes = {"hidden_size": 2, "num_layers": 1, "intermediate_size": 3}
  assert workload.forward_flops(sizes, [1, 2]) == (56 + 8) + (2 * 56 + 32)


@pytest.mark.parametrize("system", ["triplet", "crossencoder", "encode"])
def test_an_epoch_holds_every_example_once(work, system):
  whole = work(system).whole
  assert whole.examples == len(work(system).members)
  assert whole.tokens <= whole.positions and whole.flops < whole.padded_flops
  if system != "triplet":  # one unit an example, so all tokens once
    assert whole.tokens == work(system).offsets[-1]


def numbers(work, batch):
  """The examples of a batch by their numbers in the table."""
  e, units = batch.examples, batch.units.id.ravel()
  assert e.mask.shape[:2] == (1, 1)
  real = e.mask[0, 0] > 0
  by_units = {}
  for number, (members, label) in enumerate(zip(work.members.tolist(), work.labels, strict=True)):
    by_units[*members, label] = number
  actual = zip(units[e.members[0, 0][real]].tolist(), e.labels[0, 0, real, 0], strict=True)
  return np.asarray([by_units[*members, label] for members, label in actual])


@needs_torch
@pytest.mark.parametrize("system", ["triplet", "crossencoder"])
def test_both_sides_have_one_loss(work, system):
  from launch.benchmarks import torch_side

  ours = jax_side.side(work(system))
  theirs = torch_side.side(work(system), ours.params(), 1)
  batch = ours.batches[0]
  examples = numbers(work(system), batch)
  loss = float(ours.step(ours.place(batch))["loss"][0])  # dropout is 0
  for choice in theirs.choices():
    theirs.reset(choice)
    assert loss == pytest.approx(float(theirs.loss(examples).detach()), rel=1e-3)


@needs_torch
def test_the_grouped_loop_has_the_same_loss_and_encodes_a_sentence_once(work):
  from launch.benchmarks import torch_grouped

  ours = jax_side.side(work("triplet"))
  theirs = torch_grouped.Grouped(work("triplet"), ours.params(), 1)
  batch = ours.batches[0]
  examples = numbers(work("triplet"), batch)
  loss = float(ours.step(ours.place(batch))["loss"][0])  # dropout is 0
  for choice in theirs.choices():
    theirs.reset(choice)
    assert loss == pytest.approx(float(theirs.loss(examples).detach()), rel=1e-3)
  plan = theirs.plan(0)
  np.testing.assert_array_equal(
    np.sort(np.concatenate(plan)), np.arange(len(work("triplet").members))
  )
  anchors = [set(work("triplet").members[batch, 0].tolist()) for batch in plan]
  assert sum(map(len, anchors)) == len(set.union(*anchors))  # no question is cut
  distinct = len(np.unique(work("triplet").members[plan[0]]))
  assert theirs.load(plan[0]).units == distinct < work("triplet").members[plan[0]].size


@needs_torch
def test_both_sides_have_one_encoding(work):
  from launch.benchmarks import torch_side

  ours = jax_side.side(work("encode"))
  theirs = torch_side.side(work("encode"), ours.params(), 1)
  batch = ours.batches[0]
  vectors = ours.step(ours.place(batch))[0, 0]
  slots = np.flatnonzero(batch.units.id.ravel() >= 0)[:20]
  members = work("encode").members[:, 0].tolist()
  examples = np.asarray([members.index(u) for u in batch.units.id.ravel()[slots]])
  np.testing.assert_allclose(vectors[slots], theirs.step(examples), atol=1e-4)


@needs_torch
def test_torch_pads_to_the_longest_and_counts_it(work):
  from launch.benchmarks import torch_side

  theirs = torch_side.side(work("triplet"), None, 1)
  examples = theirs.plan(0)[0]
  together, apart = (
    theirs.load(examples) for theirs.choice in ("sdpa, 1 forward", "sdpa, 3 forward")
  )
  padded = theirs.pad(work("triplet").members[examples].T.ravel())
  assert together.positions == padded["input_ids"].numel() >= apart.positions
  assert together.tokens == apart.tokens == int(padded["attention_mask"].sum())
  every = np.arange(len(work("triplet").members))
  np.testing.assert_array_equal(np.sort(np.concatenate(theirs.plan(0))), every)


@pytest.mark.parametrize(
  "system,dtype",
  [
    ("triplet", "bfloat16"),
    pytest.param("crossencoder", "float32", marks=pytest.mark.slow),
    ("encode", "float32"),
  ],
)
def test_prepare_then_prepared(tmp_path, capsys, system, dtype):
  file, out = tmp_path / "work.pkl", tmp_path / "out.json"
  shared = [f"--system={system}", "--data=sample", f"--encoder={tiny.encoder_folder()}"]
  assert benchmark.main([*shared, f"--prepare={file}", "--batches=2"]) == 0
  assert (
    benchmark.main(
      [f"--prepared={file}", f"--dtype={dtype}", "--seconds=0", "--blocks=1", f"--json={out}"]
    )
    == 0
  )
  result = json.loads(out.read_text())
  assert result["system"] == system and result["dtype"] == dtype and result["sides"] == ["as2jax"]
  assert result["blocks"][0]["examples"] > 0 and len(result["blocks"]) == 1
  assert "as2jax" in capsys.readouterr().out


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("system", ["encode", pytest.param("crossencoder", marks=pytest.mark.long)])
def test_an_encoder_of_another_shape_over_the_same_texts(tmp_path, system, work):
  """ettin-17m's shape beside the one of the folder, on both sides."""
  out = tmp_path / "out.json"
  command = [f"--system={system}", "--data=sample", f"--encoder={tiny.encoder_folder()}"]
  command += ["--shape=ettin-17m", "--seconds=0", "--blocks=1", f"--json={out}"]
  assert benchmark.main(command) == 0
  result = json.loads(out.read_text())
  assert result["pretrained"] == "random weights, ettin-17m"
  assert result["sides"] == ["as2jax", "torch"] and {b["side"] for b in result["blocks"]} == {
    "as2jax",
    "torch",
  }
  assert result["as2jax"]["epoch"]["tokens"] == work(system).whole.tokens
  # 7 layers of width 256, gated to 384: 3.9 M parameters beside the word table, and attention's share.
  flops = result["as2jax"]["epoch"]["flops"] / result["as2jax"]["epoch"]["tokens"]
  assert flops > (1 if system == "encode" else 3) * 2 * 3.8e6


@pytest.mark.slow
def test_prepared_needs_jax_flax_optax_alone(tmp_path):
  file = tmp_path / "work.pkl"
  assert (
    benchmark.main(
      [
        "--data=sample",
        f"--encoder={tiny.encoder_folder()}",
        "--weights=none",
        f"--prepare={file}",
        "--batches=1",
      ]
    )
    == 0
  )
  absent = (
    "ml_collections",
    "tensorflow_datasets",
    "transformers",
    "tokenizers",
    "safetensors",
    "jaxtyping",
    "etils",
    "orbax",
    "torch",
    "tensorboardX",
  )
  program = (
    f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
    "from launch.benchmarks import benchmark\n"
    f"sys.exit(benchmark.main(['--prepared={file}', '--seconds=0', '--blocks=1']))"
  )
  child = subprocess.run(
    [sys.executable, "-c", program],
    cwd=ROOT,
    capture_output=True,
    text=True,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
    check=False,
  )
  assert child.returncode == 0, child.stderr
  assert "triplets/s" in child.stdout


def test_a_broken_file_is_one_message(tmp_path, capsys):
  file = tmp_path / "work.pkl"
  file.write_bytes(b"PK\x03\x04 cut short")
  assert benchmark.main([f"--prepared={file}"]) == 2
  assert f"--prepared={file}" in capsys.readouterr().err
  with pytest.raises(InputError, match="absent.pkl"):
    workload.load(str(tmp_path / "absent.pkl"))


def test_absent_data_is_one_message(tmp_path, capsys, monkeypatch):
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  assert benchmark.main([f"--encoder={tiny.encoder_folder()}"]) == 2
  message = capsys.readouterr().err
  assert "wikiqa" in message.lower() and "AS2JAX_DATA" in message


def test_data_that_a_system_is_not_measured_on_are_refused(capsys):
  for words in (["--system=triplet", "--data=trecqa_all"], ["--system=m2snet", "--data=wikiqa"]):
    with pytest.raises(SystemExit):
      benchmark.parse(words)
    assert f"{words[1]}: {words[0][9:]} is measured on" in capsys.readouterr().err


def test_seeds_of_what_is_not_trained_are_refused(work):
  flags = benchmark.parse(["--system=encode", "--data=sample", "--seeds=2"])
  with pytest.raises(InputError, match="--seeds=2: encode trains nothing"):
    benchmark._sides(flags, work("encode"))


def test_made_up_vectors_vanish_with_the_process(tmp_path):
  program = (
    "from launch.benchmarks import benchmark; import os\n"
    "config = benchmark.config_of(benchmark.parse(['--system=m2snet', '--data=sample']))\n"
    "print(os.path.isfile(config.encoder.vectors))"
  )
  environment = {**os.environ, "TMPDIR": str(tmp_path)}
  command = [sys.executable, "-c", program]
  assert subprocess.check_output(command, cwd=ROOT, env=environment, text=True).strip() == "True"
  assert not list(tmp_path.iterdir())


def test_other_processes_measure_what_the_flags_say(monkeypatch, work):
  """Memory of as many seeds and of PyTorch as it ran; the start of the same dtype and shards."""
  asked = []

  def run(command, **_):
    asked.append(command[3:])
    return type("Done", (), {"returncode": 0, "stdout": '{"peak_mib": 1}'})

  monkeypatch.setattr(processes.subprocess, "run", run)
  monkeypatch.setattr(processes, "_first_step", lambda *_: asked.append("start") or 1.0)
  words = ["--data=sample", "--seeds=2", "--autocast", "--shape=ettin-17m"]
  processes.measure(benchmark.parse(words), work("triplet"), ["as2jax, 2 seeds", "torch"])
  assert [(side, json.loads(how)) for side, _, how in asked] == [
    (side, {"seeds": 2, "fused": False, "half": True}) for side in ("as2jax, 2 seeds", "torch")
  ]  # no start: no run has weights of that shape
  started = []
  monkeypatch.undo()
  child = type("Child", (), {"poll": lambda self: 1, "kill": lambda self: None})
  child.__enter__, child.__exit__ = lambda self: self, lambda self, *_: None
  popen = lambda command, **_: started.append(command) or child()
  monkeypatch.setattr(processes.subprocess, "Popen", popen)
  flags = benchmark.parse(["--data=sample", "--dtype=bfloat16", "--shards=2", "--dropout=0"])
  with tempfile.TemporaryDirectory() as folder, pytest.raises(InputError, match="wrote no step"):
    processes._first_step(flags, folder, "cold")
  wanted = {"encoder.dtype=bfloat16", "batch.shards=2", "encoder.hidden_dropout=0.0"}
  assert {f"--config.{word}" for word in wanted} <= set(started[0])


def test_a_busy_machine_is_noticed(monkeypatch):
  monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
  used, own, clock = iter([100.0, 118.0, 118.0]), iter([5.0, 22.0, 12.0]), iter([0.0, 10.0, 10.0])
  monkeypatch.setattr(machine, "_used", lambda: next(used))
  monkeypatch.setattr(machine.time, "process_time", lambda: next(own))
  monkeypatch.setattr(machine.time, "monotonic", lambda: next(clock))
  others = machine.Others()
  assert not others.busy()  # 18 s of two cores' 20 were used, 17 by this process
  assert others.share() == pytest.approx(0.55)  # 7 by this process


def test_ratio_of_blocks():
  """The ratio is that of the medians; a block's rate is scaled by positions to the epoch's."""

  class Side:
    def __init__(self, name, seconds):
      self.name, self.whole = name, workload.Load(10, 20, 30, 40, 50.0, 60.0)
      self.seconds = iter(seconds)

    def warm_up(self):
      pass

    def description(self):
      return {}

    def block(self, seconds):
      return workload.Load(5, 10, 15, 20, 25.0, 30.0), next(self.seconds)

  sides = [Side("as2jax", [1.0, 2.0, 9.0]), Side("torch", [4.0, 5.0, 6.0])]
  records = benchmark.measure(sides, blocks=3, seconds=1, dtype="float32")
  assert [r["side"] for r in records] == ["as2jax", "torch"] * 3
  actual = benchmark.summary(sides, records)
  assert actual["torch"]["ratio"] == pytest.approx(5 / 2)
  assert actual["torch"]["ratio_of_each_block"] == pytest.approx([4, 2.5, 6 / 9])
  assert actual["as2jax"]["epoch_seconds"] == pytest.approx(4.0)
  assert actual["torch"]["examples_per_second"] == pytest.approx(1.0)
