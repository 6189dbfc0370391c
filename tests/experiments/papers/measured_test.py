"""Our own tables: made from what finished runs left, the same in every page."""

import contextlib
import json
import re
import shutil

import numpy as np
import pytest

from as2jax.commands import app
from as2jax.config import check
from as2jax.config import jobs as job_files
from as2jax.evaluation import compare, results, run_scores, significance
from as2jax.experiments import figures
from as2jax.experiments.papers import collected, measured, plan, rows
from as2jax.experiments.papers.rows import Column, Peer, Row, Run, Table
from as2jax.runtime.errors import InputError

LEXICAL = "configs/wikiqa_baseline.py"
MAP = Column("MAP")


def test_the_pages_show_what_the_command_prints_each_table_once(kept_rows):
  texts = {path: path.read_text(encoding="utf-8") for path in measured.pages()}
  made = measured.blocks(kept_rows)
  for path, text in texts.items():
    renewed = measured.with_tables(measured.with_figures(text, kept_rows), made)
    assert text == renewed, f"{path}: as2jax lab measured --write"
    prose = measured.FIGURE.sub("", re.sub(r"(?ms)^```.*?^```|^\|.*?$", "", text))
    assert not re.findall(r".{20}± \.\d", prose), "a figure in prose without its source"
  for table in made:
    assert sum(measured.place(table) in text for text in texts.values()) == 1, table


def test_a_changed_figure_on_a_page_is_found(kept_rows, monkeypatch, capsys, tmp_path):
  unpacked = lambda folder: contextlib.nullcontext(kept_rows)
  monkeypatch.setattr(measured.collected, "unpacked", unpacked)
  monkeypatch.setattr(measured, "blocks", lambda folder: {})
  monkeypatch.setattr(measured, "pages", lambda: [tmp_path / "page.md"])
  text = (job_files.folder() / "papers" / "asbert.md").read_text()
  (tmp_path / "page.md").write_text(text)
  assert app.run(["lab", "measured", "--check"]) == 0
  assert "and figures in prose, are those of" in capsys.readouterr().out
  (tmp_path / "page.md").write_text(text.replace("−.002 ± .028", "−.003 ± .028"))
  assert app.run(["lab", "measured", "--check"]) == 2
  line = text[: text.index("−.002 ± .028")].count("\n") + 1
  assert f"page.md:{line} differs: as2jax lab measured --write" in capsys.readouterr().err


def test_figures_in_prose_are_means_and_differences(kept):
  base, bm25 = run_scores.load([str(kept / name) for name in ("word_overlap", "bm25")])
  mean = figures.short(bm25.metric("map").mean())
  actual = significance.paired_t_test(bm25.metric("map")[0], base.metric("map")[0], base.groups)
  sources = "<!--bm25:map[clean/test]-->", "<!--bm25|word_overlap:map[clean/test]-->"
  text = f"BM25 has {sources[0]}.999, {sources[1]}+.999 ± .999 more (these models, p < .0001)."
  p = compare.p_text(actual.p).replace("0.", ".")
  shown = f"{actual.difference:+.3f} ± {actual.half_width:.3f}".replace("0.", ".")
  expected = f"BM25 has {sources[0]}{mean}, {sources[1]}{shown} more (these models, p {p})."
  assert measured.with_figures(text, kept) == expected.replace("-.", "−.")
  joined = run_scores.load([str(kept / "bm25")], split="dev+test")[0]
  parts = [run_scores.load([str(kept / "bm25")], split=split)[0] for split in ("dev", "test")]
  np.testing.assert_array_equal(
    joined.metric("map")[0], np.concatenate([p.metric("map")[0] for p in parts])
  )
  table = str(kept / "bm25/eval/test/per_question.tsv")  # files are of no split
  assert run_scores.load([table], split="dev+test")[0].ids == run_scores.load([table])[0].ids
  assert len(set(joined.groups)) == sum(len(set(part.groups)) for part in parts)


def test_a_difference_of_one_seed_has_no_half_width_in_prose(kept_rows):
  source = "<!--cassie-joint-tuned-3,cassie-joint-first-3:map[clean/dev+test]-->"
  for said in ("± .021", "above (p .04)"):
    with pytest.raises(InputError, match=f"{re.escape(source)}: cannot be told from one seed"):
      measured.with_figures(f"It is {source}+.037 {said}.", kept_rows)


def test_every_row_resolves_and_a_name_has_one_run():
  runs = {}
  for tables in rows.measured_tables().values():
    for table in tables:
      names = [run.name for row in table.rows for run in row.runs.values()]
      assert not table.base or table.base in names
      for row in (*table.first, *table.rows):
        assert bool(row.runs) != any(figure is not None for figure in row.published), row.name
        assert len(row.published) == len(table.columns), row.name
        for run in row.runs.values():
          if isinstance(run, Run) and run.config != "configs/":
            assert runs.setdefault(run.name, run) == run, run.name
  assert runs.keys() <= measured.kept_runs().keys()
  for run in runs.values():
    check.check(plan.resolve(run, plan.Choice())[0])
  claims, summary = rows.claims()
  named = {name for claim in claims for name in claim.get("runs", ())} | {
    one["kept"] for one in summary
  }
  assert named <= runs.keys()


def test_commands_hold_for_an_interactive_shell():
  settings = {"seeds": (0, 1), "optimizer.lr_multipliers": (("^(?!encoder/)", 10.0),)}
  (line,) = measured.commands([Run("a.py", settings, name="x")])
  assert '"--config.seeds=(0,1)"' in line  # within "…", bash takes ! for one of its history
  assert """'--config.optimizer.lr_multipliers=(("^(?!encoder/)",10.0),)'""" in line


@pytest.fixture
def kept(finished_run, tmp_path):
  """What two runs without parameters left, unpacked."""
  for name in ("word_overlap", "bm25"):
    collected.collect(finished_run(name), Run(f"{LEXICAL}:{name},sample", name=name), tmp_path)
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
      content["identity"] = {"changed": ["code a → b"]}
      shutil.copytree(folder / "bm25/eval/test", target / f"eval/test/seed-{seed}")
  (target / "results.json").write_text(json.dumps(content))
  row = {"data": "sample", "split": "test", "seeds": [0], "mode": "evaluate"}
  (target / results.LEDGER).write_text(2 * (json.dumps(row) + "\n"))


def one_run(system, name, run=Run("")):
  return Row(system, (None,), {"": run._replace(name=name)})


def test_a_table_says_what_its_rows_bear_out(kept):
  trained(kept, "several", (0, 1, 2))
  trained(kept, "one", (0,))
  made = [one_run(name, name) for name in ("word_overlap", "bm25", "several", "one", "later")]
  table = Table("x", (MAP,), (*made, Row("paper", (0.7,))), base="word_overlap")
  text = measured.rendered(table, kept)
  lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if "|" in line}
  # Of no question the first candidate is right: no strata.
  assert "| MAP [17] | seeds | test read | hours | MAP − word_overlap |" in lines["system"]
  base, bm25 = run_scores.load([str(kept / name) for name in ("word_overlap", "bm25")])
  values = bm25.metric("map"), base.metric("map")
  actual = significance.methods_test(*values, fixed=(True, True), groups=base.groups)
  shown = f"{actual.difference:+.3f} ± {actual.half_width:.3f} (p ".replace("0.", ".")
  assert shown in lines["bm25"] and f"finds {actual.detectable:.3f})".replace("0.", ".") in text
  assert " | – | 1 |" in lines["bm25"]
  tied = f", ties in {base.tied['map']} of {len(base.ids)} |"  # in more than a tenth
  assert tied in lines["word_overlap"] and "ties" not in lines["bm25"]
  assert " | 3, code changed | 2 | " in lines["several"] and "(.000)" in lines["several"]
  assert "cannot be told from one seed" in lines["one"]
  assert lines["later (not trained yet)"].endswith("|  |  |")
  assert lines["*paper*"].startswith("| *paper* | *.700* |")
  assert text.endswith("several: best = before training (seed 0).\none: best = before training.")


def test_peers_stand_beside_runs_with_the_seconds_of_a_seed(kept):
  (kept / "peer").mkdir()
  shutil.copy(kept / "word_overlap/eval/test/per_question.tsv", kept / "peer/seed-0.test.tsv")
  (kept / "peer" / collected.SEEDS).write_text('{"seconds": 30.0}\n')
  runs = {"BM25": Run("", name="bm25"), "theirs": Peer("train", "peer"), "later": Peer("", "later")}
  made = tuple(Row(system, runs={"Sample": run}) for system, run in runs.items())
  table = Table("x", (Column("Sample", ("Sample",)),), made)
  (base,) = run_scores.load([str(kept / "word_overlap")])
  mean = figures.short(base.metric("map").mean())
  lines = measured.rendered(table, kept).splitlines()
  assert lines[3].startswith(f"| theirs | {mean} ± ") and lines[3].endswith(", 30 s |")
  assert lines[4] == "| later | not trained yet |"
  assert measured.commands([runs["theirs"]], kept) == ["train --seeds=1"]
  (kept / "peer" / collected.SEEDS).write_text('{"seconds": 3.0, "accelerator": "A7"}\n')
  assert measured.rendered(table, kept).splitlines()[3].endswith(", A7 |")


def test_the_command(finished_run, monkeypatch, capsys, tmp_path):
  row = one_run("BM25", "bm25", Run(f"{LEXICAL}:bm25,sample", {"seeds": (0, 1)}, hours=2))
  claim = {
    "claim": "it ranks",
    "paper": "x",
    "runs": ["bm25", "bm25"],
    "holds": "yes",
    "why": "why",
    "column": "MAP = map[clean/test]",
  }
  untested = {"claim": "it learns", "paper": "y", "why": "no row"}
  monkeypatch.setattr(rows, "measured_tables", lambda: {"page": [Table("x", (MAP,), (row,))]})
  monkeypatch.setattr(rows, "claims", lambda: ([claim, untested], []))
  monkeypatch.setattr(collected, "folder", lambda: tmp_path)
  command = ["lab", "measured"]
  assert app.run([*command, "--missing"]) == 0
  assert "--workdir=runs/bm25   # about 2 h of a CPU core" in capsys.readouterr().out
  assert app.run([*command, "--missing", "--check"]) == 2
  assert "give one of --write, --missing and --check" in capsys.readouterr().err
  collecting = [*command, "--collect", f"bm25={finished_run('bm25')}"]
  assert app.run(collecting) == 0
  assert app.run([*collecting, "--check"]) == 2  # the pages are those of other rows
  assert app.run(command) == 0
  said = capsys.readouterr().out
  assert "| BM25 | ." in said and "| it ranks | x | ." in said
  assert "| it learns | y |  |  |  | open: untested | no row |" in said
  assert (tmp_path / "bm25.tar.xz").exists()
  assert app.run([*command, "--missing"]) == 0
  line = '"--config.seeds=(1,)" --workdir=runs/bm25   # about 1 h of a CPU core\n'
  assert capsys.readouterr().out.endswith(line)
  assert app.run([*command, "--collect", f"zebra={finished_run('bm25')}"]) == 2
  assert "there is no such row: name one of bm25" in capsys.readouterr().err
  with pytest.raises(InputError, match="the line <!-- end of x --> is missing"):
    measured.with_tables("<!-- measured: x -->\n", {"x": ""})
