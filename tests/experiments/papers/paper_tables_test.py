"""The papers' tables: every row resolves, and what is printed beside the published figures."""

import json

import numpy as np
import pytest
import tiny
import tiny_elmo

from as2jax.commands import app
from as2jax.data import trec_files
from as2jax.evaluation import significance
from as2jax.evaluation.results import note_evaluation
from as2jax.experiments import sweep
from as2jax.experiments.papers import plan as paper_plan
from as2jax.experiments.papers import rows, tables
from as2jax.experiments.papers.plan import Cell, Choice
from as2jax.experiments.papers.rows import Column, Row, Run, Table
from as2jax.runtime.errors import InputError

LEXICAL = "configs/wikiqa_baseline.py"
TRIPLET, SIAMESE = "configs/wikiqa_triplet.py", "configs/wikiqa_siamese.py"


LACKING = paper_plan.lacking_here


@pytest.fixture(autouse=True)
def all_here(monkeypatch):
  """As if all data and weights were here."""
  monkeypatch.setattr(paper_plan, "lacking_here", lambda config, splits: "")


@pytest.mark.parametrize("name", rows.paper_tables())
def test_every_row_of_every_table_resolves(name, tmp_path):
  table = rows.load(name)
  assert table.title and table.scale in (1, 100)
  names = [row.name for row in table.rows]
  assert len(set(names)) == len(names)
  plan = paper_plan.plan(table, tmp_path, Choice())
  for row in table.rows:
    assert len(row.published) == len(table.columns)
    assert all(p is None or isinstance(p, float) for p in row.published)
    for figure in filter(None, row.published):
      assert 0 < figure < (1 if row.runs and table.scale == 1 else 100)
    assert bool(row.runs) + bool(row.lacks) == 1
    for key in row.runs:
      assert any(key in column.runs for column in table.columns)
      assert plan[row.name, key].jobs, plan[row.name, key].lacks
  assert any(f is not None for row in table.rows for f in row.published)
  for cell in plan.values():
    assert len({job.id for job in cell.jobs}) == len(cell.jobs)


def test_a_second_stage_names_its_first(tmp_path, monkeypatch):
  table = rows.load("cassie_table3")
  plan = paper_plan.plan(table, tmp_path, Choice())
  for row in table.rows[1:]:  # but the baseline
    jobs = plan[row.name, "ASNQ"].jobs
    assert [job.seed for job in jobs] == [0, 1, 2]  # a seed repeats every stage
    for job in jobs:
      (first,) = job.after
      assert json.loads(first.text)["data"]["name"] == "asnq" and first.seed == job.seed
      begin = json.loads(job.text)["warm_start"]
      assert begin["run"] == str(tmp_path / first.id) and begin["seed"] is None
      assert first.id in {its.after[0].id for its in plan["TANDA", "ASNQ"].jobs}
  assert json.loads(plan["TANDA", "ASNQ"].jobs[0].text)["warm_start"]["scope"] == "all"
  lacking = lambda config, splits: "no asnq here" if config.data.name == "asnq" else ""
  monkeypatch.setattr(paper_plan, "lacking_here", lacking)
  without = paper_plan.plan(table, tmp_path, Choice())
  cell = without["CASSIE", "ASNQ"]
  assert cell.lacks == "it begins with configs/asnq_tanda.py: no asnq here" and not cell.jobs
  assert without["CASSIE", "plain"].jobs


def test_rows_of_one_run_and_rows_of_other_weights_are_told(tmp_path):
  table = rows.load("asbert_table3")
  plan = paper_plan.plan(table, tmp_path, Choice(("minilm",)))
  jobs = [plan[f"Triplet-{name}", "wikiqa"].jobs[0].id for name in ("BERT", "RoBERTa", "XLNet")]
  assert len(set(jobs)) == 1
  assert plan["Triplet-BERT", "wikiqa"].other.endswith("in place of bert-base-uncased")
  assert not plan["GloVe", "wikiqa"].other  # it takes no other vectors
  plain = paper_plan.plan(table, tmp_path, Choice())
  assert not any(cell.other for cell in plain.values())
  sample = paper_plan.plan(table, tmp_path, Choice(settings={"data.name": "sample"}))
  assert sample["GloVe", "wikiqa"].other == "data sample"


def test_a_small_encoder_under_a_published_name_stands_apart(tmp_path, monkeypatch):
  options = tiny_elmo.options()
  (tmp_path / "elmo").mkdir()
  tiny_elmo.write(tmp_path / "elmo", options, tiny_elmo.datasets(options))
  (tmp_path / "bert-base-uncased").symlink_to(tiny.encoder_folder())
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  monkeypatch.chdir(tmp_path)
  plan = paper_plan.plan(rows.load("cete_table3"), tmp_path, Choice())
  for name, weights in (("ELMo", "elmo"), ("BERT Base", "bert-base-uncased")):
    cell = plan[f"CETE ({name} Embeddings)", "wikiqa"]
    assert cell.other == f"{weights} of another size than the published" and cell.jobs
  assert not plan["CETE (BERT Large Embeddings)", "wikiqa"].other  # it is not here


@pytest.mark.parametrize(
  "config, words, expected",
  [
    ("wikiqa_cete.py:bert,no_encoder", ("minilm",), "minilm,no_encoder"),
    ("wikiqa_triplet.py:xlnet", ("minilm",), "minilm"),
    ("wikiqa_triplet.py:roberta,grouped", ("large",), "roberta,grouped,large"),
    ("wikiqa_baseline.py:glove", ("minilm", "list_softmax"), "glove"),  # none of these is trained
    ("wikiqa_baseline.py:mean", ("minilm", "list_softmax"), "mean,minilm"),
    ("wikiqa_baseline.py:bm25", ("minilm", "list_softmax"), "bm25,minilm"),
  ],
)
def test_words_and_settings_change_what_takes_them(config, words, expected):
  run = Run(f"configs/{config}", {"epochs": 9})
  job, name = paper_plan.resolve(run, Choice(words, {"epochs": 1}))
  assert name == f"configs/{config.partition(':')[0]}:{expected}" and job.epochs == 1
  assert "minilm" not in expected or "minilm" in job.encoder.pretrained


def test_words_that_no_config_takes_are_refused():
  with pytest.raises(InputError, match="zebra"):
    paper_plan.resolve(Run("configs/wikiqa_triplet.py:zebra"), Choice(("minilm",)))


def test_what_lacks_is_named(tmp_path, monkeypatch):
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  lacking = lambda path, settings: LACKING(paper_plan.resolve(Run(path, settings), Choice())[0])
  assert lacking(f"{LEXICAL}:bm25,sample", {}) == ""
  assert lacking(f"{LEXICAL}:bm25", {}).startswith("data wikiqa: no WikiQA-train.tsv")
  assert "weights: 'glove/glove.6B.300d.txt' is neither" in lacking(f"{LEXICAL}:glove,sample", {})
  assert lacking(f"{LEXICAL}:mean,sample", {"encoder.pretrained": "/no/such"}).startswith(
    "weights /no/such: encoder '/no/such': no such folder"
  )
  assert "elmo" in lacking(f"{LEXICAL}:elmo,sample", {})
  here = tmp_path / "squad"  # of the split test: what reads no training questions needs no more
  here.mkdir()
  (here / "dev-v1.1.json").touch()
  monkeypatch.setattr(paper_plan, "lacking_here", LACKING)
  ways = {way: Run(f"configs/squad_baseline.py:{way}") for way in ("bm25", "idf_overlap")}
  table = Table("made", (Column("MRR", tuple(ways)),), (Row("row", runs=ways),))
  cells = paper_plan.plan(table, tmp_path, Choice())
  assert cells["row", "bm25"].jobs
  assert cells["row", "idf_overlap"].lacks == "data squad: no train-v1.1.json"


def made_table():
  """Two runs, one that cannot be, an average of two data sets."""
  columns = (Column("MAP", ("a",), "map"), Column("both", ("a", "b"), "mrr"))
  made = (
    Row("base", (0.5, None), {"a": Run(TRIPLET), "b": Run(TRIPLET, {"epochs": 2})}),
    Row("other", (0.625, 0.7777), {"a": Run(SIAMESE)}),
    Row("foreign", (0.25, 0.25), lacks="its weights are elsewhere"),
  )
  return Table("made", columns, made, "A paper, table 9", claims=(("base", "other"),))


VALUES = np.asarray([0.1, 0.9, 0.5, 0.7])
LABELS = [np.asarray([1, 0])] * 4


def results(folder, shift, **fields):
  """A finished run whose questions have VALUES + shift."""
  place = folder / "eval/test"
  place.mkdir(parents=True)
  ids = [f"q{i}" for i in range(4)]
  values = VALUES + shift
  trec_files.write_per_question(
    place / "per_question.tsv", ids, LABELS, {"map": values, "mrr": values}
  )
  candidates, scores = [["a", "b"]] * 4, [np.float32([1, 0])] * 4
  trec_files.write_run(place / "run.trec", ids, candidates, scores, "tag")
  trec_files.write_qrels(place / "qrels.trec", ids, candidates, LABELS)
  entry = {"mean": float(values.mean()), "value": float(values.mean()), "half_width": 0.01}
  names = {f"{m}[wikiqa-clean/test]": entry for m in ("map", "mrr")}
  seed = {"seed": 0, "steps": 6, "best_epoch": 1, "metrics": names, **fields}
  data = {"name": "wikiqa", "clean": "answerable", "splits": {"test": {"fingerprint": "f"}}}
  content = {"data": data, "task": "rerank", "ties": "expected", "seeds": [seed], "metrics": names}
  (folder / "results.json").write_text(json.dumps(content))
  note_evaluation(folder, "test", (0,), "wikiqa", "train")


def test_figures_stand_beside_the_published_ones(tmp_path):
  table, choice = made_table(), Choice(seeds=(0, 1), settings={"patience": 1})
  plan = paper_plan.plan(table, tmp_path, choice)
  for cell, shifts in ((("base", "a"), (-0.1, 0.1)), (("other", "a"), (0.05, 0.05))):
    for job, shift in zip(plan[cell].jobs, shifts, strict=True):
      results(tmp_path / job.id, shift, best_epoch=int(cell[0] == "base"))
  failing = plan["base", "b"].jobs[0].id
  text = tables.write(table, plan, tmp_path, choice, {failing: "no room"})
  shown, _, claims = text.partition("the paper's claims")
  lines = {line.split()[0]: " ".join(line.split()) for line in shown.splitlines() if line.strip()}
  width = f"{significance.half_width(VALUES):.3f}"[1:]  # of the mean over seeds, as in a comparison
  assert lines["base"].startswith(f"base .550 ± {width} (.141) .5 .550 (1 of 2 data sets)")
  other = f"other .600 ± {width} (.000) .625 .600 (1 of 2 data sets) .7777"
  assert other in " ".join(text.split())
  assert "foreign – .25" in " ".join(text.split())
  assert "skipped: foreign: its weights are elsewhere" in text
  assert f"failed: base · b, seed 0 ({failing}): no room" in text
  assert (
    "not run yet: base · b, seed 1: configs/wikiqa_triplet.py (" in text
    and "not the paper's: patience=1" in text
  )
  assert "other · a: best = before training" in text and "base · a: best" not in text
  assert "test was evaluated 4 times in all by 4 runs, at most 1 times by one" in text
  # The paper's claim: that `other` is better than `base`, of these models and of the methods.
  assert "+0.0500" in claims and significance.TWO_SEEDS in claims
  assert "macro average" in claims  # of the column over two data sets
  assert "base,.550 ± " in (tmp_path / "made.csv").read_text()
  assert "| base | .550" in (tmp_path / "made.md").read_text()


def test_a_run_with_other_weights_stands_apart(tmp_path):
  row = Row("Triplet-BERT", (0.8,), {"a": Run(TRIPLET)})
  table = Table("x", (Column("MAP", ("a",), "map"),), (row,), "X")
  choice = Choice(("minilm",))
  plan = paper_plan.plan(table, tmp_path, choice)
  (job,) = plan["Triplet-BERT", "a"].jobs
  results(tmp_path / job.id, 0.0)
  text = tables.write(table, plan, tmp_path, choice, {})
  lines = [" ".join(line.split()) for line in text.splitlines()]
  assert "Triplet-BERT – .8" in lines
  (ours,) = (line for line in lines if line.startswith("ours: Triplet-BERT "))
  assert ours.partition("BERT ")[2].startswith(".550 ±") and not ours.endswith(" .8")
  assert "Triplet-BERT · a: not the paper's (" in text
  assert "Triplet-BERT · a: one seed: whether the method differs" in text


def test_the_command(tmp_path, monkeypatch, capsys):
  """Finished runs of a row's config are not trained again; what is not run is told."""
  monkeypatch.setattr(rows, "load", lambda name: made_table())
  ran = []

  def execute(jobs, output, parallel):
    ran.extend(job.name for job in jobs)
    results(output / jobs[-1].id, -0.05)
    return {jobs[0].id: "no room"}

  monkeypatch.setattr(sweep, "execute", execute)
  plan = paper_plan.plan(made_table(), tmp_path / "out", Choice())
  for name, cell in (("x", ("base", "a")), ("y", ("other", "a"))):
    config = json.loads(plan[cell].jobs[0].text)
    del config["data"]["labelled_negatives"]  # a key that is younger than the run
    config["epochs"] += cell[0] == "other"  # no run of this row
    results(tmp_path / "runs" / name, 0.0)
    (tmp_path / "runs" / name / "config.json").write_text(json.dumps(config))
  command = ["lab", "paper", "made", f"--output={tmp_path / 'out'}"]
  runs = [f"--runs={tmp_path / 'runs'}"]
  assert app.run([*command, *runs, "--parallel=0"]) == 0 and not ran
  said = capsys.readouterr().out
  assert said.count("the finished run ") == 1 and said.count("not run yet: ") == 2
  assert "base .550 ± " in " ".join(said.split()) and "test was evaluated 1 times" in said
  assert app.run([*command, *runs]) == 1
  assert ran == ["base · b, seed 0", "other · a, seed 0"]
  said = capsys.readouterr().out
  assert "failed: base · b, seed 0 (" in said and "other .500 ± " in " ".join(said.split())
  place = tmp_path / "runs" / "x" / "results.json"
  there = json.loads(place.read_text().replace("/test]", "/dev]"))  # as if evaluated on dev alone
  there["data"]["splits"]["dev"] = {"fingerprint": "f"}
  place.write_text(json.dumps(there))
  assert app.run([*command, *runs, "--parallel=0"]) == 0
  assert "the finished run " not in capsys.readouterr().out
  assert app.run([*command, f"--runs={tmp_path / 'none'}"]) == 2
  assert "hold results.json of a run" in capsys.readouterr().err
  monkeypatch.undo()
  assert app.run(["lab", "paper"]) == 0 and "asbert_table3" in capsys.readouterr().out
  assert app.run(["lab", "paper", "zebra"]) == 2
  assert "there is no table zebra: name one of asbert_table3" in capsys.readouterr().err


@pytest.mark.parametrize("data, columns", [("wikiqa", 4), ("trecqa", 2), ("semeval2015", 2)])
def test_collected_results_fill_the_table_of_rerankers(data, columns, tmp_path, kept_rows):
  """What the clone keeps of our measured rows, for every data set, with half-widths."""
  table = rows.load("rerankers")
  plan = paper_plan.plan(table, tmp_path, Choice())
  paper_plan.take(plan, [kept_rows])
  of_table = tables.Figures(table, plan, tmp_path)
  by_name = {row.name: row for row in table.rows}
  for name in ("BM25", "MiniLM's mean, untrained", "fast, MiniLM", "accurate, MiniLM"):
    assert plan[name, data].taken
    filled = [of_table.cell(by_name[name], c) for c in table.columns if c.runs == (data,)]
    assert len(filled) == columns and all(0.4 < float(f[:4]) < 1 and "±" in f for f in filled)
  (column, *_), fast = (c for c in table.columns if c.runs == (data,)), plan["fast, MiniLM", data]
  every = of_table.scores("fast, MiniLM", data, column).metric("map")
  fast.jobs = fast.jobs[1:2]  # as of --seeds=1,
  one = tables.Figures(table, plan, tmp_path, (1,)).scores("fast, MiniLM", data, column)
  assert len(every) > 1 and np.array_equal(one.metric("map"), every[1:2])


@pytest.mark.slow
def test_every_row_searches_the_test_sentences(finished_run):
  """As in ASBERT's table 5: the best three of the test sentences by each row."""
  names = ("triplet", "siamese")
  output = finished_run(names[0]).parent
  assert finished_run(names[1]).parent == output
  question = "how are glacier caves formed"
  table = Table("x", (), (), "X", searches=(question,))
  plan = {(n, "sample"): Cell(n, jobs=(sweep.Job(n, n, 0, ""),)) for n in names}
  head, *ranked = tables.searches(table, plan, output).splitlines()
  assert head == f"question: {question}" and [ranked[0], ranked[4]] == ["  triplet", "  siamese"]
  hits = ["1.", "2.", "3."]
  assert [line.split()[0] for line in ranked] == [names[0], *hits, names[1], *hits]
  assert tables.searches(made_table(), plan, output) == ""
  assert rows.load("asbert_table5").searches[1] == "how does interlibrary loan work"
