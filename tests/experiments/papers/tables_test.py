"""The papers' tables: every row resolves, and what is printed beside the published figures."""

import csv
import json

import pytest

from as2jax.commands import app
from as2jax.experiments.papers import needs, report, tables
from as2jax.experiments.papers import plan as paper_plan
from as2jax.experiments.papers.plan import Choice, Table
from as2jax.experiments.papers.rows import Column, Row, Run
from as2jax.experiments.sweeps import local_executor
from as2jax.runtime.errors import InputError

LEXICAL = "configs/wikiqa_baseline.py"
SAMPLE = Run(f"{LEXICAL}:bm25,sample")


@pytest.mark.parametrize("name", paper_plan.names())
def test_every_row_of_every_table_resolves(name, tmp_path):
  table = paper_plan.load(name)
  assert table.title and table.scale in (1, 100)
  rows = [row.name for row in table.rows]
  assert len(set(rows)) == len(rows)
  plan = paper_plan.plan(table, tmp_path, Choice(), lacking=lambda config: "")
  for row in table.rows:
    assert len(row.published) == len(table.columns)
    assert all(p is None or isinstance(p, float) for p in row.published)
    for figure in filter(None, row.published):
      assert (1 < figure < 100) if row.gain_over or table.scale == 100 else 0 < figure < 1
    assert bool(row.runs) + bool(row.lacks) + bool(row.gain_over) == 1
    assert set(row.gain_over) <= set(rows)
    for key in row.runs:
      assert any(key in column.runs for column in table.columns)
      assert (row.name, key) in plan.cells, plan.skipped
  assert any(f is not None for row in table.rows for f in row.published)
  for jobs in plan.cells.values():
    assert len({job.id for job in jobs}) == len(jobs) >= 1
  for number, wave in enumerate(plan.waves):
    earlier = {job.id for its in plan.waves[:number] for job in its}
    assert all(set(plan.after[job.id]) <= earlier for job in wave)


def test_a_second_stage_names_its_first(tmp_path):
  table = paper_plan.load("cassie_table3")
  plan = paper_plan.plan(table, tmp_path, Choice(), lacking=lambda config: "")
  assert len(plan.waves) == 2
  (transfer,) = (job for job in plan.waves[0] if json.loads(job.text)["data"]["name"] == "asnq")
  for row in table.rows:
    jobs = plan.cells[row.name, "ASNQ"]
    assert [job.seed for job in jobs] == [0, 1, 2]
    begin = [json.loads(job.text)["warm_start"] for job in jobs]
    assert all(b["run"] == str(tmp_path / transfer.id) and b["seed"] == 0 for b in begin)
  assert json.loads(plan.cells["TANDA", "ASNQ"][0].text)["warm_start"]["scope"] == "all"
  lacking = lambda config: "no ASNQ here" if config.data.name == "asnq" else ""
  without = paper_plan.plan(table, tmp_path, Choice(), lacking=lacking)
  assert without.skipped["CASSIE", "ASNQ"] == "it begins with configs/asnq_tanda.py: no ASNQ here"
  assert ("CASSIE", "plain") in without.cells and transfer.id not in without.after


def test_words_and_settings_change_what_takes_them():
  made, name = paper_plan.resolve(Run("configs/wikiqa_cete.py:bert"), Choice(("minilm",)))
  assert name == "configs/wikiqa_cete.py:bert" and "bert" in made.encoder.pretrained
  made, name = paper_plan.resolve(
    Run("configs/wikiqa_triplet.py:xlnet", {"epochs": 9}), Choice(("minilm",), {"epochs": 1})
  )
  assert name == "configs/wikiqa_triplet.py:xlnet,minilm" and "minilm" in made.encoder.pretrained
  assert made.epochs == 1
  with pytest.raises(InputError, match="zebra"):
    paper_plan.resolve(Run("configs/wikiqa_triplet.py:zebra"), Choice(("minilm",)))


def test_what_lacks_is_named(tmp_path, monkeypatch):
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  lacking = lambda path, settings: needs.lacking(
    paper_plan.resolve(Run(path, settings), Choice())[0]
  )
  assert lacking(f"{LEXICAL}:bm25,sample", {}) == ""
  assert lacking(f"{LEXICAL}:bm25", {}).startswith("data wikiqa: no WikiQA-train.tsv")
  assert "weights: 'glove/glove.6B.300d.txt' is neither" in lacking(f"{LEXICAL}:glove,sample", {})
  assert lacking(f"{LEXICAL}:mean,sample", {"encoder.pretrained": "/no/such"}).startswith(
    "weights /no/such: encoder '/no/such': no such folder"
  )
  assert "elmo" in lacking(f"{LEXICAL}:elmo,sample", {})


def made_table():
  """Two runs, one that cannot be, a gain, an average of two data sets."""
  columns = (Column("MAP", ("a",), "map"), Column("both", ("a", "b"), "mrr"))
  rows = (
    Row("base", (0.5, None), {"a": SAMPLE, "b": Run(f"{LEXICAL}:word_overlap,sample")}),
    Row("other", (0.625, 0.7777), {"a": Run(f"{LEXICAL}:idf_overlap,sample")}),
    Row("gain", (12.5, None), gain_over=("base", "other")),
    Row("foreign", (0.25, 0.25), lacks="its weights are elsewhere"),
  )
  return Table("made", "A paper, table 9", 1, columns, rows)


def results(folder, value):
  folder.mkdir(parents=True)
  entry = {"mean": value, "sd": None, "half_width": 0.01}
  (folder / "results.json").write_text(
    json.dumps(
      {
        "data": {"name": "sample"},
        "weights": {"pretrained": "bert-base-uncased"},
        "metrics": {f"{m}[sample-clean/test]": entry for m in ("map", "mrr")},
      }
    )
  )


def test_figures_stand_beside_the_published_ones(tmp_path):
  table, choice = made_table(), Choice(seeds=(0, 1), settings={"epochs": 1})
  plan = paper_plan.plan(table, tmp_path, choice, lacking=lambda config: "")
  for cell, values in ((("base", "a"), (0.4, 0.6)), (("other", "a"), (0.6, 0.6))):
    for job, value in zip(plan.cells[cell], values, strict=True):
      results(tmp_path / job.id, value)
  failing = plan.cells["base", "b"][0].id
  text = report.write(table, plan, tmp_path, choice, {failing: "no room"})
  lines = {line.split()[0]: " ".join(line.split()) for line in text.splitlines() if line.strip()}
  assert lines["base"] == "base 0.5000 (0.1414) ± 0.0100 0.500 0.5000"
  assert lines["other"] == "other 0.6000 (0.0000) ± 0.0100 0.625 0.6000 0.7777"
  assert lines["gain"] == "gain 20.00 12.50 20.00"
  assert lines["foreign"].startswith("foreign – 0.250")
  assert "skipped: foreign: its weights are elsewhere" in text
  assert f"failed: base · b, seed 0 ({failing}): no room" in text
  assert text.count("pretraining of bert-base-uncased: BookCorpus, English Wikipedia") == 1
  assert "not run yet: base · b, seed 1" in text and "not the paper's: epochs=1" in text
  rows = list(csv.DictReader((tmp_path / "made.csv").read_text().splitlines()))
  assert len(rows) == 8 and all(row["source"] == "A paper, table 9" for row in rows)
  assert float(rows[0]["ours"]) == 0.5 and rows[0]["published"] == "0.5"
  assert "| base | 0.5000" in (tmp_path / "made.md").read_text()


def test_what_begins_with_a_failed_run_is_not_run(tmp_path, monkeypatch):
  first, second = (
    Run(f"{LEXICAL}:bm25,sample"),
    Run(f"{LEXICAL}:idf_overlap,sample", after={"warm_start.run": SAMPLE}),
  )
  row = Row("r", (0.5,), {"a": second, "b": first})
  plan = paper_plan.plan(
    Table("x", "X", 1, (Column("MAP", ("a", "b"), "map"),), (row,)),
    tmp_path,
    Choice(),
    lacking=lambda config: "",
  )
  ran = []

  def run_here(jobs, output, parallel):
    ran.extend(job.id for job in jobs)
    return {job.id: "no room" for job in jobs}

  monkeypatch.setattr(tables.sweep, "run_here", run_here)
  failed = tables.run(plan, tmp_path, 1)
  base, other = plan.cells["r", "b"][0].id, plan.cells["r", "a"][0].id
  assert ran == [base] and failed[base] == "no room" and base in failed[other]


def test_the_command(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(paper_plan, "load", lambda name: made_table())
  monkeypatch.setattr(
    tables.sweep,
    "run_here",
    lambda jobs, output, parallel: (
      [
        results(output / job.id, 0.5)
        for job in jobs
        if not local_executor.finished(output / job.id)
      ]
      and {}
      or {}
    ),
  )
  arguments = ["made", f"--output={tmp_path}"]
  assert app.run(["lab", "paper", *arguments, "--list"]) == 0
  said = capsys.readouterr().out
  assert said.count("would run") == 3 and "skipped   foreign: its weights are" in said
  assert app.run(["lab", "paper", *arguments]) == 0
  assert "0.5000 ± 0.0100" in capsys.readouterr().out
  assert app.run(["lab", "paper", *arguments, "--list"]) == 0
  assert capsys.readouterr().out.count("finished") == 3
  assert app.run(["lab", "paper"]) == 0
  assert all(name in capsys.readouterr().out for name in ("asbert_table3",))
  monkeypatch.undo()
  assert app.run(["lab", "paper", "zebra"]) == 2
  assert "there is no table zebra: name one of asbert_table3" in capsys.readouterr().err
