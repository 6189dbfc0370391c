"""Points of a sweep before a machine is paid for: the checks of runs, memory of a chip, hours."""

import json

import pytest
import tiny

from as2jax.commands import app
from as2jax.experiments.compile import cached, chips
from as2jax.experiments.compile.chips import GIB
from as2jax.experiments.sweeps import machines, points, preflight
from as2jax.runtime import folders
from as2jax.runtime.errors import InputError

needs_libtpu = pytest.mark.skipif(bool(chips.absent()), reason=chips.absent())


def job(title="base, seed 0", system="crossencoder", **changes):
  return points.Job(title, 0, title, {}, 0, tiny.config(system, **changes).to_json())


@pytest.fixture
def compiler(monkeypatch):
  """A compiler that notes what it is given: 2 GiB and 1e15 FLOP a step, or as `needs` says."""
  compiled = []

  def figures(config, topology, *, exact, begins):
    begins()
    compiled.append((cached.shape_of(config), topology, exact))
    train = {"bytes": figures.needs, "fits": figures.needs < 16 * GIB, "flops": 1e15}
    return {"hbm": 16 * GIB, "peak": 197e12, "train": train, "predict": {**train, "flops": 0}}

  figures.needs = 2 * GIB
  monkeypatch.setattr(chips, "absent", lambda: "")
  monkeypatch.setattr(cached, "figures", figures)
  figures.made = compiled
  return figures


def look(jobs, tpu="v5e-1", **options):
  return preflight.preflight(jobs, machines.machine(tpu), say=lambda line: None, **options)


def test_points_of_the_same_shapes_are_compiled_once_and_their_hours_are_told(compiler):
  jobs = [
    job("base, seed 0"),
    job("rate, seed 0", optimizer__rate=1e-3),
    job("small, seed 0", batch__examples=8, epochs=2),
  ]
  text = look(jobs)
  assert len(compiler.made) == 2 and {exact for *_, exact in compiler.made} == {True}
  rows = {line.split()[0].rstrip(","): line.split() for line in text.splitlines()[1:3]}
  runs, chips_, *memory, one, unit, both, other_unit = rows["base"][-8:]
  assert (runs, chips_, memory) == ("2", "1", ["2.00", "2.00"])
  # By hand: the steps of an epoch of the base, from the batcher of a described run.
  steps = len(preflight._plan(preflight.describe(tiny.config("crossencoder")).train_batcher()))
  config = tiny.config("crossencoder")
  expected = config.epochs * steps * 1e15 / (preflight.MFU * 197e12)
  assert (unit, other_unit) == ("min", "min")  # too short to be told in hours
  assert 60 * float(one) == pytest.approx(expected, rel=0.5)  # of a tenth of the sample
  assert float(both) == pytest.approx(2 * float(one), abs=1)
  assert "35% of the chip's peak" in text


@pytest.mark.parametrize("tpu, shards, grown", [("v4-8", 4, 2), ("v4-8", 8, 1), ("v5e-4", 4, 1)])
def test_the_time_of_v4_is_that_of_the_batch_of_the_run(tpu, shards, grown):
  config = tiny.config("crossencoder", batch__shards=shards)
  assert preflight._grown(config, machines.machine(tpu)) == grown


@pytest.mark.parametrize("changes", [{"epochs": 1}, {"data__train_fraction": 0.05}])
def test_the_time_of_each_run_is_its_own(compiler, monkeypatch, changes):
  """Runs of one shape may take more steps or fewer, which the sum of the sweep follows."""
  monkeypatch.setattr(preflight, "_time", lambda hours: f"{hours:.6f} h")
  jobs = [job("short, seed 0", **{"epochs": 9, **changes}), job("long, seed 0", epochs=9)]
  short, long, total = look(jobs).splitlines()[1:]
  assert len(compiler.made) == 1
  times = [float(line.split()[-2]) for line in (short, long)]
  assert 0 < times[0] < times[1]
  assert float(total.split("; about ")[1].split()[0]) == pytest.approx(sum(times), abs=1e-5)


@pytest.mark.parametrize(
  "hours, said", [(1e-5, "< 1 s"), (0.01, "36 s"), (0.5, "30 min"), (12.3, "12.3 h")]
)
def test_a_time_is_told_in_its_own_unit(hours, said):
  config = tiny.config("crossencoder")
  shape = preflight.Shape([job()], config, {}, hours)
  assert said in preflight.table([shape], machines.machine("v5e-1")).splitlines()[1]


def test_runs_that_must_fail_are_refused_with_the_keys_to_change(compiler):
  """The issue's case: eight examples for sixteen shards; what is proposed passes."""
  small = {"batch__shards": 16, "batch__examples": 8}
  with pytest.raises(InputError) as caught:
    look([job("base", batch__shards=1), job("small", **small)], "v5e-16")
  said = str(caught.value)
  assert "batch.shards = 1 is not a multiple of the 16 devices" in said
  assert "batch.examples = 8 does not divide into batch.shards = 16" in said
  proposed = said.partition("small: ")[2].partition("try ")[2].split(", or")[0].split()
  changes = {word.partition("=")[0].removeprefix("batch."): word for word in proposed[1::2]}
  assert "examples" in changes and not compiler.made
  fixed = {f"batch__{key}": int(word.partition("=")[2]) for key, word in changes.items()}
  assert "base" in look([job("base", **{**small, **fixed})], "v5e-16")
  with pytest.raises(InputError, match="fsdp"):
    look([job(sharding__fsdp=3)], "v5e-4")


def test_what_does_not_fit_a_chip_is_refused_with_advice(compiler):
  compiler.needs = 20 * GIB
  with pytest.raises(InputError, match=r"(?s)20.00 of the 16 GiB.*--set encoder.remat=true"):
    look([job()])
  look([job(batch__shards=4)], "v4-8")  # whose chips have 32
  compiler.needs = 40 * GIB
  with pytest.raises(InputError, match="40.00 of the 32 GiB of a chip"):
    look([job(batch__shards=4)], "v4-8")


def test_a_batch_grows_with_several_machines(compiler):
  look([job()], "v5e-4", scaled=True)
  ((shape, topology, _),) = compiler.made
  assert shape["batch.shards"] == 4 and topology == "v5e:2x2"


def test_a_ranker_without_parameters_needs_no_compiler(compiler, finished_run, monkeypatch):
  text = (finished_run("bm25") / "config.json").read_text()
  monkeypatch.setattr(chips, "absent", lambda: "no libtpu here")
  look([points.Job("x", 0, "bm25", {}, 0, text)])
  assert not compiler.made
  with pytest.raises(InputError, match="no libtpu here"):
    look([job()])


def test_without_the_compiler_it_says_what_to_do(monkeypatch):
  monkeypatch.setattr(chips, "library", lambda: None)
  with pytest.raises(InputError, match="libtpu.*--no-compile"):
    look([job()])
  assert "time is not known" in look([job()], compiles=False)


def test_several_machines_are_for_a_check_alone(tmp_path, capsys):
  arguments = ["lab", "sweep", "--base=wikiqa_triplet:sample", "--grid", "optimizer.rate=1e-5"]
  arguments += [f"--output={tmp_path}", "--tpu=v5e-1,v5e-4", "--store=gs://b/x"]
  assert app.run([*arguments, "--emit=gcloud"]) == 2
  assert "several are for --emit=check" in capsys.readouterr().err
  assert app.run([*arguments, "--emit=check", "--no-compile"]) == 0
  assert capsys.readouterr().out.count("time of a run") == 2


def test_emission_is_a_verb_and_an_option(tmp_path, capsys):
  """The option may stand anywhere among those of a run, in both forms."""
  options = ["--base=wikiqa_triplet:sample", "--grid", "optimizer.rate=1e-5", "--no-compile"]
  options.append(f"--output={tmp_path}")
  forms = [["emit", "check", *options], [*options, "--emit", "check"], ["--emit=check", *options]]
  forms.append(["run", *options, "--emit=check"])
  said = []
  for form in forms:
    assert app.run(["lab", "sweep", *form]) == 0
    said.append(capsys.readouterr().out)
  assert said[0].count("time of a run") == 1 and len(set(said)) == 1
  assert app.run(["lab", "sweep", *options[:-2], options[-1], "--emit=paper"]) == 2
  assert "'paper' is not one of" in capsys.readouterr().err


@pytest.mark.slow
@needs_libtpu
def test_a_shape_is_compiled_once_and_read_from_then_on(tmp_path, monkeypatch):
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path))
  config = tiny.config("crossencoder", data__cache="")
  told = []
  first = cached.figures(config, "v5e:1x1", exact=True, begins=lambda: told.append(1))
  assert 0 < first["train"]["bytes"] < 16 * GIB and first["train"]["fits"]
  (path,) = (folders.cache_folder() / "tpu").iterdir()
  assert json.loads(path.read_text()) == first
  monkeypatch.setattr(cached.aot, "measure", None)  # would fail
  other = tiny.config("crossencoder", data__cache="", optimizer__rate=1e-3)
  again = cached.figures(other, "v5e:1x1", exact=True, begins=lambda: told.append(2))
  assert again == first and told == [1]
