"""The system of as2jax/models/README.md: a user's own, with an input and a loss, named in a config.

Nothing in the package knows it; it does all that a system of the package does.
"""

import json
import pathlib
import re
import sys

import numpy as np
import pytest
import tiny

import as2jax
from as2jax import main
from as2jax.commands import app
from as2jax.config import check, jobs
from as2jax.data.inputs import protocol as fitted
from as2jax.evaluation import results
from as2jax.experiments import sweep
from as2jax.inference import modes
from as2jax.models.crossencoder import CrossEncoder
from as2jax.models.system import exported_form
from as2jax.runtime import registry, version
from as2jax.runtime.errors import InputError
from as2jax.training.build import load

GUIDE = pathlib.Path(__file__).parents[2] / "as2jax/models/README.md"


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory):
  """The guide's code as a file on Python's path."""
  (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
  folder = tmp_path_factory.mktemp("own")
  (folder / "my_ranker.py").write_text(code)
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(folder)
    yield folder / "my_ranker.py"
  sys.modules.pop("my_ranker", None)


@pytest.fixture(scope="module")
def config(module):
  """A config of the guide's system, over the tiny encoder."""

  def make(**changes):
    job_config = jobs.load(f"{module}:sample").unlock()
    small = tiny.config("triplet", data__train_fraction=0.1, checkpoint__steps=2, log__steps=1)
    small.unlock().model, small.loss = job_config.model, job_config.loss
    small.epochs, small.optimizer.rate, small.optimizer.warmup = 2, 1e-2, 0.0
    for key, value in changes.items():
      small.update_from_flattened_dict({key.replace("__", "."): value})
    return small.lock()

  return make


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory):
  run = tmp_path_factory.mktemp("runs") / "mine"
  modes.run(config(), str(run))
  return run


def test_the_guide_is_short():
  assert len(GUIDE.read_text().splitlines()) <= 80


def test_it_trains_with_its_loss_and_its_input(trained, config):
  rows = map(json.loads, (trained / "metrics.jsonl").read_text().splitlines())
  losses = [row["logistic"] for row in rows if "logistic" in row]
  third = len(losses) // 3
  assert third > 2 and np.mean(losses[-third:]) < 0.9 * np.mean(losses[:third])
  assert results.read(trained)["parameters"]["all"] > 0
  identity = results.read(trained)["identity"]
  assert identity["package"] == version.source_digest() != identity["code"]
  learnt = tiny.best_parameters(trained)
  assert learnt["my_length/kernel"].shape == (1, 1, 1) and learnt["my_map/kernel"].shape[-1] == 8
  (kept,) = (trained / "inputs").glob("relative_length.json")
  assert "mean" in kept.read_text()


def test_it_is_evaluated_and_ranks(trained, config, tmp_path):
  modes.run(config(mode="evaluate"), str(trained))
  names = "evaluation.json", "results.json"
  again, before = (results.read(trained, name)["metrics"] for name in names)
  assert again and all(before[name] == entry for name, entry in again.items())
  asked = tmp_path / "asked.tsv"
  rows = "what is ice\tfrozen water\nwhat is ice\ta stone that is very heavy indeed\n"
  asked.write_text("ask\treply\n" + rows)
  columns = {"data__columns": "question=ask,candidate=reply"}
  modes.run(config(mode="predict", predict__input=str(asked), **columns), str(trained))
  lines = (trained / "predictions.tsv").read_text().splitlines()
  assert len(lines) == 3 and {line.split("\t")[2] for line in lines[1:]} == {"1", "2"}


def test_its_code_runs_only_where_the_caller_says_so(trained, tmp_path, monkeypatch, capsys):
  """Of another process, as it were: nothing is allowed, and the module has not been imported."""
  asked = tmp_path / "asked.csv"
  asked.write_text("question,candidate\nwhat is ice,frozen water\n")
  command = ["rank", str(trained), str(asked)]
  for status, said in ((2, ()), (0, ["--allow-code"])):
    monkeypatch.setattr(registry, "_allowed", set())
    monkeypatch.delitem(sys.modules, "my_ranker", raising=False)
    assert app.run([*command, *said]) == status
    assert ("my_ranker" in sys.modules) == bool(said)
    error = capsys.readouterr().err
    assert ("running code of the module my_ranker (/" in error) == bool(said), error
  for said, message in (((), "add --allow-code"), (("--allow-code",), "reads no sentences around")):
    monkeypatch.setattr(registry, "_allowed", set())
    assert app.run(["lab", "order", str(trained), *said]) == 2
    assert message in capsys.readouterr().err
  with pytest.raises(InputError, match="allow_code=True"):
    monkeypatch.setattr(registry, "_allowed", set())
    as2jax.load(trained)
  assert as2jax.load(trained, allow_code=True).scores([("what is ice", "water")]).shape == (1,)


def test_a_run_of_its_sweep_may_run_its_code(config, module, tmp_path, monkeypatch):
  """A process of its own gets leave and this machine's folders by its command."""
  job = sweep.make_job(config(data__root="/data"), "mine")
  (tmp_path / "config.json").write_text(job.text)
  monkeypatch.setattr(registry, "_allowed", set())
  command = [*sweep.command(tmp_path)[3:], *sweep.options(job)]
  again, options = main.parse(command)
  assert options.allow_code and again.to_json(indent=2) == job.text
  with pytest.raises(InputError, match="my_ranker"):
    monkeypatch.setattr(registry, "_allowed", set())
    main.parse(command[:-1])


def test_its_encoder_may_be_ones_own(config, tmp_path, module):
  """A subclass of a published encoder, with the weights of that one's folder."""
  code = "from as2jax.encoders.bert import BertEncoder\nclass MyBert(BertEncoder):\n  pass\n"
  (module.parent / "my_encoder.py").write_text(code)
  job_config = config(encoder__name="my_encoder:MyBert", epochs=0, evaluation__splits=("dev",))
  check.check(job_config)
  own = load(job_config, data=False, workdir=_fitted(tmp_path))
  same = load(config(epochs=0), data=False, workdir=_fitted(tmp_path))
  assert type(own.model.encoder).__name__ == "MyBert"
  assert own.provenance["sha256"] == same.provenance["sha256"]
  with pytest.raises(InputError, match="encoder MyBert is a class of your own"):
    exported_form(CrossEncoder(own.model.encoder, "cls", True, 0.0))


def _fitted(folder):
  """A run's folder that holds what the guide's input counts."""
  fitted.save({"mean": 30.0}, "", folder / fitted.FOLDER / "relative_length.json")
  return folder
