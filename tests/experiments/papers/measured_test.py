"""Our own tables: made from what finished runs left, the same in the READMEs, nothing that must stay out."""

import json
import pathlib
import shutil

import pytest

from as2jax.commands import app
from as2jax.config import jobs
from as2jax.config.overrides import flatten
from as2jax.evaluation import results, run_scores, significance
from as2jax.experiments.papers import collected, measured
from as2jax.experiments.papers.measured import Closing, Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[3]
LEXICAL = "configs/wikiqa_baseline.py"
MAP = Column("MAP", (), "map")


def test_the_readmes_show_what_the_command_prints_each_table_once(kept_rows):
  texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in measured.READMES}
  made = measured.every(kept_rows)
  for name, text in texts.items():
    assert text == measured.with_tables(text, made), f"{name}: as2jax lab measured --write"
    assert any(measured.place(table)[0] in text for table in made), name
  for table in made:
    assert sum(measured.place(table)[0] in text for text in texts.values()) == 1, table


def test_every_row_resolves_and_a_name_has_one_run():
  runs = {}
  for table in measured.tables():
    names = [row.name for row in table.rows]
    assert not table.base or table.base in names
    for row in (*table.first, *table.rows):
      assert bool(row.name) != bool(row.published), row.system
      assert len(row.published) in (0, len(table.columns)), row.system
      if row.name:
        assert runs.setdefault(row.name, row.run) == row.run, row.name
  for run in runs.values():
    collected.resolve(run)


def test_tables_of_tuned_take_back_each_of_its_changes():
  tables = jobs.module("papers.measured_tuned_rows").TUNED
  assert tables
  settled = lambda run: flatten(json.loads(collected.resolve(run).to_json()))
  for table in tables:
    tuned, *others = [row.run for row in table.rows]
    words = [w for w in tuned.config.partition(":")[2].split(",") if w != "tuned"]
    printed = settled(Run(f"{tuned.config.partition(':')[0]}:{','.join(words)}", tuned.settings))
    changed = {key for key, value in settled(tuned).items() if printed[key] != value}
    taken_back = {key for run in others for key in changed if settled(run)[key] == printed[key]}
    assert changed == taken_back, table.name


def test_commands_hold_for_an_interactive_shell():
  settings = {"seeds": (0, 1), "optimizer.lr_multipliers": (("^(?!encoder/)", 10.0),)}
  (line,) = measured.commands([Measured("x", "x", Run("a.py", settings))])
  assert '"--config.seeds=(0,1)"' in line  # within "…", bash takes ! for one of its history
  assert """'--config.optimizer.lr_multipliers=(("^(?!encoder/)",10.0),)'""" in line


@pytest.fixture
def kept(finished_run, tmp_path):
  """What two runs without parameters left, unpacked."""
  for name in ("word_overlap", "bm25"):
    collected.collect(finished_run(name), name, Run(f"{LEXICAL}:{name},sample"), tmp_path)
  with collected.unpacked(tmp_path) as rows:
    yield rows


def trained(folder, name, luck):
  """A copy of a collected run as if it had one seed for each number of `luck`."""
  target = folder / name
  shutil.copytree(folder / "bm25", target)
  content = json.loads((target / "results.json").read_text())
  (outcome,) = content["seeds"]
  content |= {"deterministic": False, "seeds": []}
  for seed in range(len(luck)):
    content["seeds"].append(outcome | {"seed": seed, "steps": 6, "best_epoch": int(seed > 0)})
    if len(luck) > 1:
      shutil.copytree(folder / "bm25/eval/test", target / f"eval/test/seed-{seed}")
  (target / "results.json").write_text(json.dumps(content))
  row = {"data": "sample", "split": "test", "seeds": [0], "mode": "evaluate"}
  (target / results.LEDGER).write_text(2 * (json.dumps(row) + "\n"))


def test_a_table_says_what_its_rows_bear_out(kept):
  trained(kept, "several", (0, 1, 2))
  trained(kept, "one", (0,))
  rows = tuple(Measured(name, name) for name in ("word_overlap", "bm25", "several", "one"))
  later = Measured("later", "later", Run("configs/x.py", {"epochs": 1, "seeds": (0, 1)}))
  published = Measured("*paper*", published=("*.700*",))
  table = MeasuredTable("x", (MAP,), (*rows, later, published), base="word_overlap")
  text = measured.rendered(table, kept)
  lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if "|" in line}
  base, bm25 = run_scores.load([str(kept / name) for name in ("word_overlap", "bm25")])
  actual = significance.methods_test(bm25.metric("map"), base.metric("map"), fixed=(True, True))
  shown = f"{actual.difference:+.3f} ± {actual.half_width:.3f} (p ".replace("0.", ".")
  assert shown in lines["bm25"] and f"finds {actual.detectable:.3f})".replace("0.", ".") in text
  assert (
    " | – | " in lines["bm25"] and " | 3 | " in lines["several"] and "(.000)" in lines["several"]
  )
  assert "cannot be told from one seed" in lines["one"]
  assert lines["later (not trained yet)"].endswith("|  |  |  |") and "*.700*" in lines["*paper*"]
  assert "one: fewer than 3 seeds." in text and "several: fewer" not in text
  assert "several: best = before training (seed 0)." in text
  assert "one: test was evaluated 2 times with each seed." in text
  assert 'configs/x.py --config.epochs=1 "--config.seeds=(0,1)" --workdir=runs/later' in text


@pytest.fixture
def closing_rows(monkeypatch):
  """BM25, which judges, and a peer, on one data set."""
  rows = (
    Closing("BM25", ("bm25",)),
    Closing("their trainer", ("peer",), "train {data} -o {output}"),
    Closing("later", ("later",)),
  )
  module = jobs.module("papers.measured_rows")
  monkeypatch.setattr(module, "CLOSING", rows)
  monkeypatch.setattr(module, "CLOSING_DATA", {"Sample": "sample"})


def test_the_closing_table_has_peers_and_the_seconds_of_a_seed(kept, closing_rows):
  (kept / "peer").mkdir()
  shutil.copy(kept / "word_overlap/eval/test/per_question.tsv", kept / "peer/seed-0.test.tsv")
  (kept / "peer" / collected.SEEDS).write_text('{"seconds": 30.0}\n')
  lines = measured.closing(kept).splitlines()
  (base,) = run_scores.load([str(kept / "word_overlap")])
  mean = base.metric("map").mean()
  assert f"| their trainer | {measured._short(mean)} ± " in lines[3]
  assert lines[3].endswith(", 30 s |") and lines[4] == "| later | not trained yet |"
  assert "train sample -o runs/peer --seeds=1" in lines and "Trained on" not in str(lines)
  (kept / "peer" / collected.SEEDS).write_text('{"seconds": 3.0, "accelerator": "A7"}\n')
  assert "Trained on A7: their trainer (Sample)." in measured.closing(kept)


MEASURED = ["lab", "measured"]


def test_the_command(kept, finished_run, monkeypatch, capsys, tmp_path_factory):
  row = Measured("BM25", "bm25", Run(f"{LEXICAL}:bm25,sample"))
  monkeypatch.setattr(measured, "tables", lambda: (MeasuredTable("x", (MAP,), (row,)),))
  monkeypatch.setattr(jobs.module("papers.measured_rows"), "SUMMARY", ())
  monkeypatch.setattr(measured, "closing", lambda folder: "")
  folder = tmp_path_factory.mktemp("results")
  monkeypatch.setattr(collected, "folder", lambda: folder)
  assert app.run(MEASURED + ["--missing"]) == 0
  assert "--workdir=runs/bm25" in capsys.readouterr().out
  assert app.run(MEASURED + ["--collect", f"bm25={finished_run('bm25')}"]) == 0
  assert app.run(MEASURED + ["x"]) == 0
  assert "| BM25 | ." in capsys.readouterr().out and (folder / "bm25.tar.xz").exists()
  assert app.run(MEASURED + ["--collect", f"zebra={finished_run('bm25')}"]) == 2
  assert "there is no row 'zebra': name one of bm25" in capsys.readouterr().err
  with pytest.raises(InputError, match="the line <!-- end of x --> is missing"):
    measured.with_tables("<!-- measured: x -->\n", {"x": ""})
