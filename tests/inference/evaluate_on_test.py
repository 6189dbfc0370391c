"""A finished run is evaluated on the split of any data set, and on a person's own file."""

import dataclasses
import json
import os
import shutil

import pytest
import tiny

import as2jax
from as2jax.commands import app
from as2jax.config import jobs
from as2jax.data import dataset as datasets
from as2jax.data.record import Question
from as2jax.evaluation import results, run_scores
from as2jax.inference import export, modes, reevaluate
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError


@pytest.fixture
def copied(finished_run, tmp_path):
  """copied(system) -> a copy of a finished run, to be written into."""
  return lambda system: shutil.copytree(finished_run(system), tmp_path / system)


@pytest.mark.parametrize("system", ["bm25", "triplet"])
def test_the_runs_own_data_by_name_give_its_own_figures(copied, system):
  run = Run(copied(system))
  written = [run.folder / name for name in ("config.json", "results.json")]
  before = [path.read_bytes() for path in written]
  content = reevaluate.evaluate_on(run, as2jax.dataset("sample", "test"))
  for name, entry in content["metrics"].items():
    assert entry == pytest.approx(run.metrics[name], abs=1e-6), name
  assert [path.read_bytes() for path in written] == before
  folder = run.folder / "evaluations" / "sample-test"
  for file in ("run.trec", "qrels.trec"):
    actual, own = ((at / "eval/test" / file).read_text() for at in (folder, run.folder))
    assert len(actual.splitlines()) == len(own.splitlines())
  here, there = run_scores.load([str(folder), str(run.folder)])
  assert here.ids == there.ids and here.deterministic == there.deterministic
  first, named = run.folder / "eval/test/run.trec", as2jax.dataset("sample", "test")
  with pytest.raises(InputError, match="predict.ranking is for models that rank the best"):
    reevaluate.evaluate_on(Run(run.folder), named, ranking=first)


def test_other_data_lie_apart_and_a_file_needs_labels(copied, tmp_path):
  folder = copied("bm25")
  config = jobs.of_run(str(folder / "config.json")).unlock()
  own = tiny.write_questions(
    tmp_path / "own.jsonl", as2jax.dataset("sample", "test").splits["test"]
  )
  config.mode, config.evaluation.data = "evaluate", own
  kept = (folder / "eval/test/run.trec").read_bytes()
  text = modes.run(config, str(folder))
  assert "map[own-clean/test]" in text
  assert (folder / "eval/test/run.trec").read_bytes() == kept
  assert [place.name for place in (folder / "evaluations").iterdir()] == ["own-test"]
  assert results.times_evaluated(folder, "test", "own") == (1, 1)
  other = tmp_path / "deep/own.jsonl"
  other.parent.mkdir()
  config.evaluation.data = tiny.write_questions(
    other, as2jax.dataset("sample", "test").splits["test"]
  )
  lines = other.read_text().splitlines(keepends=True)
  other.write_text("".join(lines[:9]))
  with pytest.raises(InputError, match="own-test holds .* other questions, those of .*/own.jsonl"):
    modes.run(config, str(folder))
  other.write_text("".join(lines))  # the same questions elsewhere
  assert modes.run(config, str(folder)).partition("\n")[0] == text.partition("\n")[0]
  content = json.loads((folder / "results.json").read_text())
  assert "map[sample-clean/test]" in content["metrics"]
  config.evaluation.data, config.data.drop = "sample:test", True  # as the run's own files were read
  assert "map[sample-clean/test]" in modes.run(config, str(folder))
  config.mode = "train"
  with pytest.raises(InputError, match="evaluation.data = .* is for a finished run"):
    modes.run(config, str(tmp_path / "other"))


def exported(finished_run):
  """A finished run as a published model, made once a process."""
  folder = finished_run("triplet")
  target = folder.with_name(f"triplet-published-{os.getpid()}")
  if not target.exists():
    export.export(folder, target, 0)
  return str(target)


def test_a_published_model_is_measured_and_compared_with_runs(tmp_path, finished_run, capsys):
  model, table = exported(finished_run), str(tmp_path / "model.tsv")
  assert app.run(["evaluate", model, "--data=sample:test", "-o", table, "--format=json"]) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  by_name = {row["metric"]: row for row in rows}
  assert {"map[sample-clean/test]", "map[sample-all/test]"} <= set(by_name)
  data = as2jax.dataset("sample", "test", filter="clean")
  expected = as2jax.evaluate(as2jax.load(model), data).metrics["map"]["mean"]
  assert by_name["map[sample-clean/test]"]["mean"] == pytest.approx(expected, abs=1e-9)
  assert as2jax.evaluate(model, data).metrics["map"]["mean"] == pytest.approx(expected, abs=1e-9)
  of_table, of_run = run_scores.load([table, str(finished_run("bm25"))])
  assert of_table.ids == of_run.ids
  assert of_table.metric("map").mean() == pytest.approx(expected, abs=1e-9)
  assert app.run(["evaluate", model, "--data=sample:test", "--rules=mask_numbers,lowercase"]) == 0


REFUSED = [  # whether a run or a published model, options, words of the message
  (True, ["--set", "epochs=3"], "--set epochs: a key of training"),
  (True, ["--data=sample", "--splits=dev"], "name the split of other data with it"),
  (True, ["--data=sample:dev", "--drop"], "drop = True is for your own files"),
  (True, ["--columns=question=q"], "--columns and --drop are for a file of your own"),
  (True, ["--rules=ptb"], "--rules, --label and --output are for what is no run"),
  (False, [], "holds no run, which would have data of its own: train first, or name labelled"),
  (False, ["--data=sample:test", "--set", "epochs=1"], "--set and --splits are for runs"),
  (False, ["--data=sample:test", "--rules=upper"], "data.rules = ('upper',)"),
  (False, ["--data=sample:test", "-o", "scores.csv"], "--output=scores.csv: the scores are"),
]


@pytest.mark.parametrize("of_run, options, told", REFUSED)
def test_what_is_not_evaluated_is_refused(finished_run, capsys, of_run, options, told):
  place = str(finished_run("bm25")) if of_run else exported(finished_run)
  assert app.run(["evaluate", place, *options]) == 2
  assert told in capsys.readouterr().err


def test_a_run_file_is_measured_and_questions_without_candidates_do_not_count(
  finished_run, monkeypatch, capsys
):
  run = finished_run("word_overlap")
  empty = Question("nobody answered", "who?", ())
  real = as2jax.dataset("sample", "test")
  with_empty = dataclasses.replace(real, splits={"test": (empty, *real.splits["test"])})
  monkeypatch.setattr(datasets, "by_address", lambda *_, **__: with_empty)
  file = str(run / "eval/test/run.trec")
  assert app.run(["evaluate", file, "--data=sample:test", "--format=json"]) == 0
  rows = {row["metric"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
  (own,) = json.loads((run / "results.json").read_text())["seeds"]
  for name in ("map[sample-clean/test]", "mrr[sample-all/test]"):
    rows[name]["value"] = rows[name]["mean"]
    for key in ("value", "questions", "worst", "best", "tied_questions"):
      assert rows[name][key] == pytest.approx(own["metrics"][name][key], abs=1e-9), key
    assert rows[name]["worst"] < rows[name]["best"]
  assert app.run(["evaluate", file, "--data=sample:test"]) == 0
  (told,) = (note for note in own["notes"] if "sample-clean/test" in note)
  assert f"note: {told.removeprefix('score word_overlap: ')}\n" in capsys.readouterr().out
