"""The comparison of runs and of tables: what is read, what is refused, what is printed."""

import collections
import csv
import io
import json
import pathlib
import random
import re
import shlex
import shutil
import sys
import types

import ir_measures
import numpy as np
import pytest
import tiny

import as2jax
from as2jax.commands import app
from as2jax.data import trec_files
from as2jax.data.dataset import dataset
from as2jax.evaluation import compare, results, run_scores, significance
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

README = pathlib.Path(run_scores.__file__).with_name("README.md")
FEW = ["--samples", "999"]
TEXT = [*FEW, "--format=text"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, finished_run):
  """Runs of three lexical rankers on the embedded data, and a made-up second dataset of theirs."""
  root = tmp_path_factory.mktemp("runs")
  for name in ("word_overlap", "idf_overlap", "bm25"):
    shutil.copytree(finished_run(name), root / name)
  return root


def three_seeds(source, target):
  """A run of three seeds around a run of one: each question's MAP as it is, one up, one down by a tenth."""
  shutil.copytree(source, target)
  content = json.loads((target / "results.json").read_text())
  split = target / "eval" / "test"
  ids, table = trec_files.read_per_question(split / "per_question.tsv")
  outcomes = []
  for seed, sign in ((3, 1), (5, -1), (7, 0)):
    (split / f"seed-{seed}").mkdir()
    values = {k: v for k, v in table.items() if k not in ("candidates", "positives")}
    values["map"] = values["map"] + sign * 0.1
    counts = table["candidates"].astype(int), table["positives"].astype(int)
    trec_files.write_table(split / f"seed-{seed}" / "per_question.tsv", ids, *counts, values)
    outcome = json.loads(json.dumps(content["seeds"][0])) | {"seed": seed}
    counted = table["positives"] > 0
    outcome["metrics"]["map[sample-clean/test]"]["value"] = values["map"][counted].mean()
    outcomes.append(outcome)
  one = {"seeds": outcomes, "deterministic": False}
  tiny.rewrite(target / "results.json", lambda content: content.update(one))
  (split / "per_question.tsv").unlink()
  return target


def changed(source, target, change):
  """A copy of a run whose results.json is changed."""
  shutil.copytree(source, target)
  tiny.rewrite(target / "results.json", change)
  return str(target)


def of_other_data(source, target):
  """A copy of a run whose results.json says that its test questions are others."""

  def other(content):
    content["data"]["splits"]["test"]["fingerprint"] = "0123456789"

  return changed(source, target, other)


def per_question(folder, metric):
  """The answerable questions' values of a run, by question id."""
  ids, table = trec_files.read_per_question(folder / "eval" / "test" / "per_question.tsv")
  return {i: v for i, v, p in zip(ids, table[metric], table["positives"]) if p > 0}


def documents(folder):
  """The documents of the answerable questions of a run on the sample: that of their first candidate."""
  table = per_question(folder, "map")
  ranked = trec_files.read_run(folder / "eval" / "test" / "run.trec")
  return [next(iter(ranked[question])).partition("-")[0] for question in table]


def compared(*arguments):
  """The exit status of `as2jax compare` with these arguments."""
  return app.run(["compare", *map(str, arguments)])


def rows_of(capsys, *arguments):
  capsys.readouterr()
  assert not compared(*arguments, *FEW, "--format=json")
  return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_runs_against_the_first(folders, capsys):
  names = [folders / n for n in ("word_overlap", "idf_overlap", "bm25")]
  rows = rows_of(capsys, *names, "--metrics=mrr")
  base, p_values = per_question(names[0], "mrr"), []
  for name, row in zip(names, rows, strict=True):
    assert row["metric"] == "mrr[sample-clean/test]" and row["system"] == str(name)
    results = json.loads((name / "results.json").read_text())["metrics"][row["metric"]]
    for key in ("mean", "half_width", "questions", "sd"):
      assert row[key] == pytest.approx(results[key], abs=1e-12), key
    if name == names[0]:
      assert "p_t" not in row
      continue
    actual = per_question(name, "mrr")
    a, b = np.array([actual[i] for i in base]), np.array(list(base.values()))
    groups = documents(name)
    assert (row["questions"], row["groups"]) == (len(groups), len(set(groups))) == (54, 17)
    t = significance.paired_t_test(a, b, groups)
    assert (row["p_t"], row["difference_half_width"]) == pytest.approx((t.p, t.half_width))
    assert row["relative_gain"] == pytest.approx(a.mean() / b.mean() - 1)
    assert row["p_randomization"] == significance.randomization_test(a, b, groups, samples=999).p
    p_values.append(row["p_t"])
  np.testing.assert_allclose([r["p_t_holm"] for r in rows[1:]], significance.holm(p_values))


def test_strata_by_the_first_candidate_stand_as_a_pair_and_are_not_tested(
  folders, tmp_path, capsys
):
  """By another road: labels and order of the sample's file, ranks of the run file."""
  name = folders / "bm25"
  ranked = trec_files.read_run(name / "eval/dev/run.trec")
  ids, table = trec_files.read_per_question(name / "eval/dev/per_question.tsv")
  values, first = {}, {}
  for one in dataset("sample", "dev").questions:
    first[one.id] = one.candidates[0]
    if one.positives:
      values[one.id] = table["map"][ids.index(one.id)]
  right = [question for question in values if first[question].label == 1]
  wrong = [question for question in values if first[question].label != 1]
  top = 0.0
  for question in values:
    best = [id for id, s in ranked[question].items() if s == max(ranked[question].values())]
    top += (first[question].id in best) / len(best)
  (row,) = rows_of(capsys, name, "--metrics=map", "--split=dev")
  for stratum, questions in (("first_right", right), ("first_wrong", wrong)):
    assert row[f"{stratum}_questions"] == len(questions) > 1
    assert row[stratum] == pytest.approx(np.mean([values[question] for question in questions]))
  assert row["top_first"] == pytest.approx(top / len(values))
  said = {
    f"{one}{of}"
    for one in ("first_right", "first_wrong")
    for of in ("", "_half_width", "_questions")
  }
  assert {key for key in row if "first" in key} == {"top_first", *said}  # no test of them
  assert not compared(name, "--split=dev", *TEXT)
  said = capsys.readouterr().out
  pair = [
    f"{row[key]:.4f} ± {row[key + '_half_width']:.4f}" for key in ("first_right", "first_wrong")
  ]
  assert "first right" not in said.splitlines()[1]  # they have a table of their own
  said = " ".join(said.split())
  assert f"first right ({len(right)}) first wrong ({len(wrong)})" in said and " ".join(pair) in said
  assert not compared(name, "--split=test", *TEXT)  # where the first sentence is never right
  assert "first" not in capsys.readouterr().out.replace("with the first", "")
  assert compared(name, "--filter=first_right") == 2  # no stratum alone
  capsys.readouterr()
  train = ["train", "wikiqa_baseline:bm25,sample", "-o", str(tmp_path / "x")]
  assert app.run([*train, "--set", "select=first_right"]) == 2
  assert "select = 'first_right'" in capsys.readouterr().err


def test_few_groups_are_warned_of(folders, tmp_path, capsys):
  """Questions of nine articles: the warning stands below each table, and the groups in a paper's head."""
  tables = []
  for name in ("word_overlap", "bm25"):
    ids, table = trec_files.read_per_question(folders / name / "eval/test/per_question.tsv")
    counts = [table.pop(column).astype(int) for column in ("candidates", "positives")]
    table["group"] %= 9
    tables.append(str(tmp_path / f"{name}.tsv"))
    trec_files.write_table(tables[-1], ids, *counts, table)
  assert not compared(*tables, *TEXT)
  assert capsys.readouterr().out.count("\nWarning: 54 questions from 9 groups") == 1
  assert not compared(*tables, *FEW, "--format=markdown")
  printed = capsys.readouterr().out
  assert "54 questions of 9 groups" in printed and printed.count("Warning: 54 questions") == 1


def test_every_form_says_the_same(folders, capsys):
  names = [str(folders / n) for n in ("word_overlap", "bm25")]
  rows = rows_of(capsys, *names, "--metrics=map")
  printed = {}
  for form in ("text", "csv", "markdown", "latex"):
    assert not compared(*names, *FEW, "--metrics=map", f"--format={form}")
    printed[form] = capsys.readouterr().out
  table = list(csv.DictReader(io.StringIO(printed["csv"])))
  assert [r["system"] for r in table] == names and table[0]["p_t"] == ""
  assert float(table[1]["p_randomization"]) == rows[1]["p_randomization"]
  for_excel = [f"@a={names[0]}", names[1], *FEW, "--metrics=map", "--excel"]
  assert compared(*for_excel) == 2 and "--excel is for --format=csv" in capsys.readouterr().err
  assert not compared(*for_excel, "--format=csv")
  assert capsys.readouterr().out == f"\ufeff{printed['csv'].replace(names[0], chr(39) + '@a', 1)}"
  title, head, first, second, *_ = printed["text"].splitlines()
  assert title == "map[sample-clean/test], 54 questions of 17 groups"
  assert head.split()[:2] == ["mean", "difference"]  # no s.d. of one seed
  assert "Holm" not in printed["text"]
  mean = [f"{rows[0]['mean']:.4f}", "±", f"{rows[0]['half_width']:.4f}"]
  assert first.split()[0] == names[0]
  assert " ".join(mean) in " ".join(first.split())
  gain = f"{100 * rows[1]['relative_gain']:+.1f}"
  assert {f"{rows[1]['difference']:+.4f}", gain, compare.p_text(rows[1]["p_t"])} <= set(
    second.split()
  )
  for row in rows:
    assert f"{row['mean']:.3f}" in printed["markdown"] and f"{row['mean']:.3f}" in printed["latex"]
  assert not compared(*names, names[0], *TEXT)
  assert "adjusted by Holm's method" in capsys.readouterr().out


def test_seeds_of_a_run_are_averaged_per_question(folders, tmp_path, capsys):
  twin = three_seeds(folders / "bm25", tmp_path / "a,b")  # a comma in a folder's name is no joint
  alone = rows_of(capsys, folders / "word_overlap", folders / "bm25", "--metrics=map")
  pair = rows_of(capsys, folders / "word_overlap", twin, "--metrics=map")
  assert pair[1]["seeds"] == 3 and pair[1]["sd"] == pytest.approx(0.1)
  for key in ("mean", "difference", "p_t", "p_randomization", "half_width"):
    assert pair[1][key] == pytest.approx(alone[1][key]), key
  assert not compared(str(folders / "bm25"), str(twin), *TEXT)
  assert "0.1000 (3)" in capsys.readouterr().out


def test_a_later_evaluation_is_what_its_tables_say(folders, tmp_path, capsys):
  """`--config.mode=evaluate` writes the tables anew: results.json no longer describes them."""
  twin = tmp_path / "again"
  shutil.copytree(folders / "bm25", twin)
  content = json.loads((twin / "results.json").read_text())
  bound.write(twin, "evaluation.json", json.dumps(content))
  for outcome in content["seeds"]:
    outcome["metrics"]["map[sample-clean/test]"]["value"] = 0.5
  bound.write(twin, "results.json", json.dumps(content))
  rows = rows_of(capsys, folders / "bm25", twin)
  assert rows[1]["difference"] == 0 and rows[1]["p_t"] == 1
  (twin / "evaluation.json").unlink()
  with pytest.raises(InputError, match="again: its tables under eval/test do not give the figures"):
    run_scores.load([str(twin)])


def test_groups_are_compared_per_dataset_and_on_average(folders, tmp_path):
  datasets = []
  for name in ("word_overlap", "bm25"):
    of_other_data(folders / name, tmp_path / name)
  for root in (folders, tmp_path):
    datasets.append(run_scores.load([str(root / name) for name in ("word_overlap", "bm25")]))
  rows = compare.compare_groups(datasets, ["map"], samples=999, seed=0)
  assert [r["scope"] for r in rows] == ["sample-clean/test"] * 2 + ["macro average", "datasets"]
  single, twice, macro, average = rows
  assert twice["questions"] * 2 == macro["questions"]
  for row in (macro, average):
    assert row["difference"] == pytest.approx(single["difference"])
    assert row["relative_gain"] == pytest.approx(single["mean"] / single["base_mean"] - 1)
  assert average["questions"] is None  # its unit is another
  # Two equal differences of means have no spread, which is what a test over datasets looks at.
  assert average["p_t"] == 0 and average["p_randomization"] == 0.5
  text = compare.as_text(rows)
  assert f"{folders / 'bm25'} against {folders / 'word_overlap'}" in text
  assert "macro average" in text and f"{100 * macro['relative_gain']:+.1f} %" in text


ROWS = [
  {"system": "runs/a_b", "metric": "map[x-clean/test]", "mean": 0.5, "half_width": 0.04},
  {
    "system": "100 % & #1",
    "metric": "map[x-clean/test]",
    "mean": 0.6,
    "half_width": None,
    "p_randomization": 0.001,
    "p_randomization_holm": 0.03,
    "p_methods": 0.04,
  },
]
SAME = {"questions": 54, "groups": 54, "seeds": 3, "sd": None, "note": "", "groups_note": ""}
ROWS = [SAME | row for row in ROWS]


def test_a_table_for_a_paper_marks_the_best_and_what_is_significant():
  lines = compare.for_paper(ROWS, "markdown").splitlines()
  assert lines[:6] == [
    "x-clean/test, 54 questions",
    "",
    "| system | seeds | MAP |",
    "| --- | ---: | ---: |",
    "| runs/a\\_b | 3 | 0.500 ± 0.040 |",
    "| 100 % & #1 | 3 | **0.600†\\*** |",
  ]
  assert "Holm" not in lines[-1]  # of two systems: nothing to adjust
  third = {**ROWS[1], "system": "c"}
  assert "Holm-adjusted" in compare.for_paper([*ROWS, third], "markdown")
  text = compare.for_paper(ROWS, "latex")
  assert r"runs/a\_b & 3 & 0.500 $\pm$ 0.040 \\" in text
  assert r"100 \% \& \#1 & 3 & \textbf{0.600$^{\dagger}$*} \\" in text
  assert compare.marks({"p_randomization": 0.001, "p_methods": None}) == "‡"
  assert compare.marks({"p_randomization": 0.05, "p_methods": 0.05}) == compare.marks(ROWS[0]) == ""


def test_what_a_run_was_trained_from_and_did_not_improve_is_said(folders, tmp_path, capsys):
  def worse(content):
    content["seeds"][0] |= {"steps": 7, "best_epoch": 0}
    content["weights"] = {"pretrained": "bert-base-uncased"}

  same = changed(folders / "bm25", tmp_path / "same", worse)
  rows = rows_of(capsys, folders / "bm25", same, "--metrics=map")
  assert [row["note"] for row in rows] == ["", "best = before training"]
  assert not compared(str(folders / "bm25"), same, *TEXT)
  text = capsys.readouterr().out
  assert f"{same}: best = before training" in text
  for form in ("markdown", "latex"):
    named = [f"{folders / 'bm25'}=BM 25", f"{same}=Later #2"]
    assert not compared(*named, *FEW, f"--format={form}")
    made = capsys.readouterr().out.replace("\\#", "#")
    assert "Later #2: best = before training." in made and str(same) not in made, made
  says = "pretraining of bert-base-uncased: BookCorpus, English Wikipedia (https://"
  assert says in " ".join(text.split())
  content = json.loads((tmp_path / "same" / "results.json").read_text())
  assert "note, seed 0: best = before training" in results.table(content)
  assert "times that test was evaluated with each seed: " in text


def test_a_run_file_is_measured_by_the_judgements_of_a_run(folders, tmp_path, capsys):
  """One seed of whatever made it, unless it is said to be without randomness."""
  file = tmp_path / "other.trec"
  shutil.copy(folders / "bm25/eval/test/run.trec", file)
  run = rows_of(capsys, folders / "word_overlap", folders / "bm25")
  actual = rows_of(capsys, folders / "word_overlap", file)
  for key in ("mean", "half_width", "difference", "p_t", "p_randomization", "questions"):
    assert [row.get(key) for row in actual] == pytest.approx([row.get(key) for row in run]), key
  assert actual[1]["methods_note"] == "cannot be told from one seed"
  (outcome,) = json.loads((folders / "word_overlap/results.json").read_text())["seeds"]
  tied = outcome["metrics"]["map[sample-clean/test]"]["tied_questions"]
  flat = tmp_path / "flat.trec"  # all candidates have one score
  flat.write_text(re.sub(r" \S+ (\S+)$", r" 0 \1", file.read_text(), flags=re.MULTILINE))
  assert actual[0]["tied_questions"] == tied and 5 < tied < 54
  other = rows_of(capsys, folders / "word_overlap", "--filter=both", "--metrics=map")
  assert other[0]["tied_questions"] is None  # results have no such filter
  for form in ("text", "markdown"):
    names = [str(folders / "word_overlap"), str(flat)]
    assert not compared(*names, *FEW, "--metrics=map", f"--format={form}")
    text = capsys.readouterr().out
    assert f"candidates are tied in {tied} of 54 questions" in text
    assert "candidates are tied in 54 of 54 questions" in text
  said = rows_of(capsys, folders / "word_overlap", file, f"--deterministic={file}")
  assert said[1]["p_methods"] == pytest.approx(run[1]["p_methods"])
  copy = shutil.copy(file, tmp_path / "copy.trec")
  third = shutil.copy(file, tmp_path / "third.trec")
  several = rows_of(capsys, folders / "word_overlap", f"{file},{copy},{third}")
  assert several[1]["seeds"] == 3 and several[1]["sd"] == 0 and several[1]["methods_note"] == ""
  for arguments, message in (
    ([file], "is a run file, which does not say what is right"),
    ([folders / "bm25", file, "--deterministic=zebra"], "zebra: it is none of the systems"),
    ([folders / "bm25", folders / "bm25/eval/dev/run.trec"], "it lacks the candidate"),
  ):
    assert compared(*arguments) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.fixture
def run_files(tmp_path, monkeypatch):
  """Judgements with grades and run files as anybody has them, in the working folder: {file: run}."""
  draw, runs = random.Random(0), {}
  grades = {(f"q{q}", f"d{d}"): draw.choice([0, 0, 0, 1, 2]) for q in range(40) for d in range(30)}
  monkeypatch.chdir(tmp_path)
  (tmp_path / "beir/qrels").mkdir(parents=True)
  judged = [(*pair, grade) for pair, grade in grades.items() if grade or draw.random() < 0.5]
  (tmp_path / "qrels.txt").write_text("".join(f"{q} 0 {d} {x}\n" for q, d, x in judged))
  lines = ["query-id\tcorpus-id\tscore\n", *(f"{q}\t{d}\t{x}\n" for q, d, x in judged)]
  (tmp_path / "beir/qrels/test.tsv").write_text("".join(lines))
  for name in ("bm25", "ours-0", "ours-1", "ours-2", "flat"):
    run, noise = runs.setdefault(f"{name}.run", {}), 2 if name == "bm25" else 1.4
    for (q, d), grade in grades.items():
      if (name, q) != ("bm25", "q7"):  # which BM25 finds nothing for
        run.setdefault(q, {})[d] = 0.0 if name == "flat" else grade + draw.gauss(0, noise)
    lines = [f"{q} Q0 {d} 0 {s!r} x\n" for q, of in run.items() for d, s in of.items()]
    (tmp_path / f"{name}.run").write_text("".join(lines))
  return judged, runs


def test_anybodys_run_files_by_judgements(run_files, capsys, monkeypatch):
  """The means by ir_measures, the tests by `significance`; the same from BEIR, ir_datasets and Python."""
  judged, runs = run_files
  command = "bm25.run ours=ours-*.run --qrels=qrels.txt --deterministic=bm25.run".split()
  names = "nDCG@10 nDCG AP AP@4 AP(rel=2) RR RR@2 R@5 R(rel=2)@9 P@5".split()
  rows = rows_of(capsys, *command, f"--metrics={','.join(names)}")
  judgements = [ir_measures.Qrel(*one) for one in judged]
  for number, name in enumerate(names):
    values = {}
    for file, run in runs.items():
      listed = [ir_measures.ScoredDoc(q, d, s) for q, of in run.items() for d, s in of.items()]
      found = ir_measures.iter_calc([ir_measures.parse_measure(name)], judgements, listed)
      values[file] = {one.query_id: one.value for one in found}
    ids = sorted({q for q, *_ in judged})
    seeds = np.array([[values[f"ours-{k}.run"][q] for q in ids] for k in range(3)])
    base = np.array([values["bm25.run"].get(q, 0.0) for q in ids])
    first, second = rows[2 * number : 2 * number + 2]
    assert second["metric"] == f"{name}[qrels.txt-all]" and second["system"] == "ours"
    assert (first["mean"], second["mean"]) == pytest.approx((base.mean(), seeds.mean()), abs=1e-12)
    assert first["note"] == "lacks 1 of 40 questions" and second["note"] == ""
    expected = significance.methods_test(seeds, base, fixed=(False, True))
    assert second["p_methods"] == pytest.approx(expected.p)
    assert second["methods_detectable"] == pytest.approx(expected.detectable)
    assert second["p_t"] == pytest.approx(significance.paired_t_test(seeds, base).p)
  pattern = r"```bash\nas2jax ([^\n]*)\n```\n\n```text\n(.*?)```"
  (shown,) = re.findall(pattern, README.read_text(), re.DOTALL)
  assert app.run([*shlex.split(shown[0]), "--format=text"]) == 0
  assert capsys.readouterr().out == shown[1]
  wide = compare.as_text([row | {"system": "runs/wikiqa_triplet"} for row in rows])
  assert max(map(len, wide.splitlines())) <= 120 and "0.0069 (3)" in wide
  assert not compared(*command, "--format=markdown", *FEW)
  assert "| system | seeds | nDCG@10 | AP |" in capsys.readouterr().out
  plain = rows_of(capsys, *command)
  assert [row["metric"].partition("[")[0] for row in plain[::2]] == ["nDCG@10", "AP"]
  assert plain[:2] == rows[:2]
  stored = types.SimpleNamespace(qrels_iter=lambda: iter(map(Stored._make, judged)))
  monkeypatch.setitem(
    sys.modules, "ir_datasets", types.SimpleNamespace(load={"a/b": stored}.__getitem__)
  )
  for address in ("beir", "beir/qrels/test.tsv", "irds:a/b"):
    other = rows_of(capsys, "BM25=bm25.run", command[1], f"--qrels={address}", command[3])
    called = {"metric": "", "system": ""}
    assert [row | called for row in other] == [row | called for row in plain]
  (asked, right), *_ = [judgement[:2] for judgement in judged if judgement[-1] > 0]
  pathlib.Path("own.run").write_text(
    f"{asked} Q0 {asked} 1 9 x\n{asked} Q0 {right} 2 8 x\n"
  )  # as of ArguAna, where a query is a document
  for qrels, first in (("beir", 1), ("beir/qrels/test.tsv", 1), ("irds:a/b", 0), ("qrels.txt", 0)):
    found = as2jax.evaluate("own.run", qrels=qrels, measures="P@1")
    assert found.values["P@1"].sum() == first and ("as BEIR's, in 1" in found.note) == first
  ours = as2jax.evaluate("ours=ours-*.run", qrels="beir", name="theirs", measures="nDCG@10,AP")
  bm25 = as2jax.evaluate("bm25.run", qrels="qrels.txt", deterministic=True)
  assert "theirs on beir-all: 40 questions" in str(ours)
  assert ours.metrics["AP"]["mean"] == plain[3]["mean"]
  verb = ["evaluate", "ours=ours-*.run", "--qrels=qrels.txt"]
  assert app.run([*verb, "--format=json"]) == 0
  printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  metrics = [{"metric": f"{name}[qrels.txt-all]", **of} for name, of in ours.metrics.items()]
  assert printed == [{**one, "note": ""} for one in metrics]
  assert app.run([*verb[::2], "bm25.run", "--metrics=AP"]) == 0
  assert "bm25.run on qrels.txt-all: 40 questions; lacks 1 of 40" in capsys.readouterr().out
  found = as2jax.compare(bm25, ours).rows
  assert [row["p_methods"] for row in found[1::2]] == [row["p_methods"] for row in plain[1::2]]
  # Of 30 equal scores the first is right by chance.
  flat = as2jax.evaluate("flat.run", qrels="qrels.txt", measures="P@1,RR")
  assert str(flat).count("candidates are tied in 40 of 40 questions") == 2
  assert "tied" not in str(bm25) and not any(row["tied_questions"] for row in plain)
  flat = flat.metrics
  right = sum(x > 0 for *_, x in judged) / 1200
  assert flat["P@1"]["mean"] == pytest.approx(right) and right < flat["RR"]["mean"] < 0.75


Stored = collections.namedtuple("Stored", "query_id doc_id relevance")  # as ir_datasets gives one
QRELS = [  # what is given, the words of the refusal
  ("compare bm25.run", "or by judgements: as2jax compare FILE --qrels=FILE"),
  ("compare bm25.run --qrels=absent", "absent does not exist"),
  ("compare bm25.run --qrels=bm25.run", "bm25.run:1: 6 fields where there must be 4"),
  ("compare bm25.run --qrels=irds:a/b", r"needs ir_datasets, .*pip install 'as2jax\[irds\]'"),
  ("compare beir --qrels=qrels.txt", "beir is no file"),
  ("compare ours=our-*.run --qrels=qrels.txt", r"our-\*.run is no file"),
  ("compare x=ours-*.run,ours-1.run --qrels=qrels.txt", "ours-1.run is no file, or is given twice"),
  ("compare five.run --qrels=qrels.txt", "five.run:1: 5 fields where there must be 6"),
  ("compare other.run --qrels=qrels.txt", "other.run: nothing that it ranks is judged"),
  ("compare bm25.run --qrels=qrels.txt --metrics=ERR", "'ERR' is no measure: use nDCG"),
  ("compare bm25.run --qrels=qrels.txt --filter=clean", "use one of all, answerable, both"),
  ("compare bm25.run --qrels=qrels.txt --deterministic=a.run", "a.run: it is none of the systems"),
  ("evaluate bm25.run --metrics=AP", "as2jax evaluate FILE --qrels=FILE"),
  ("evaluate bm25.run --qrels=qrels.txt --label=1", "without what is for other systems"),
]


def test_judgements_that_cannot_be_used(run_files, tmp_path, capsys, monkeypatch):
  monkeypatch.setitem(sys.modules, "ir_datasets", None)
  (tmp_path / "five.run").write_text("q1 Q0 d1 1 0.5\n")
  (tmp_path / "other.run").write_text("1 Q0 d1 1 0.5 x\n")
  for line, message in QRELS:
    assert app.run(line.split()) == 2, line
    assert re.search(message, capsys.readouterr().err), line
  monkeypatch.setitem(sys.modules, "ir_datasets", types.SimpleNamespace(load={}.__getitem__))
  for system, qrels, message in (
    ("bm25.run", "irds:a/c", "irds:a/c: ir_datasets knows no such data set with judgements"),
    (len, "qrels.txt", "qrels are for run files: to measure a ranker, give labelled questions"),
    ("bm25.run", "", "give labelled questions as data, or qrels"),
  ):
    with pytest.raises(InputError, match=message):
      as2jax.evaluate(system, qrels=qrels)


def test_seeds_that_share_a_first_stage_are_not_independent(folders, tmp_path, capsys):
  twin = three_seeds(folders / "bm25", tmp_path / "twin")

  def begun(*digests):
    began = {"seeds": [{"sha256": digest} for digest in digests]}
    tiny.rewrite(twin / "results.json", lambda content: content.update(warm_start=began))
    return rows_of(capsys, folders / "word_overlap", twin, "--metrics=map")[1]

  assert begun("a", "b", "c")["p_methods"] is not None
  shared = begun("a", "b", "a")
  assert shared["p_methods"] is None and "began with one first stage" in shared["methods_note"]


def copies(folders, tmp_path):
  """What cannot be compared with a run: {name: path}."""
  table = folders / "bm25/eval/test/per_question.tsv"
  ids, columns = trec_files.read_per_question(table)
  sizes, right = columns["candidates"].astype(int), columns["positives"].astype(int)
  values = {"map": columns["map"]}
  found = {name: str(tmp_path / name) for name in ("few", "unlike", "none")}
  few = {"map": columns["map"][1:]}
  trec_files.write_table(found["few"], ids[1:], sizes[1:], right[1:], few)
  trec_files.write_table(found["unlike"], ids, sizes + 1, right, values)
  trec_files.write_table(found["none"], ids, sizes, 0 * right, values)
  found["foreign"] = of_other_data(folders / "bm25", tmp_path / "foreign")
  found["tied"] = changed(folders / "bm25", tmp_path / "tied", lambda c: c.update(ties="trec"))
  pop = lambda content: content["metrics"].pop("map[sample-clean/test]")  # as without an answer
  found["unanswered"] = changed(folders / "bm25", tmp_path / "unanswered", pop)
  return found | {
    "base": str(folders / "word_overlap"),
    "bm25": str(folders / "bm25"),
    "table": table,
  }


REFUSED = [
  ("{base} {foreign}", r"foreign was evaluated with other data \(test\) .*: 0123456789, not "),
  ("{base} {tied}", "tied was evaluated with other evaluation.ties .*trec, not expected"),
  ("{unanswered}", "unanswered: no question of test counts in map.*: label right candidates 1"),
  ("{base} zebra", "zebra is no file, or is given twice"),
  ("{base} {bm25} --split=train", "was not evaluated on train, only on dev, test"),
  ("{base} {base},{bm25}", "word_overlap is no file.* each as an argument of its own"),
  ("{few} {table}", "question .* is not in both tables"),
  ("{base} {unlike} --filter=answerable", "unlike: question .* numbers of candidates.*same data"),
  ("{none}", "none: no question is counted"),
  ("{base} {table} --metrics=recall", "no metric 'recall': it has map, mrr"),
  ("{table} --filter=clean", "does not say which questions of its dataset are clean"),
]


def test_what_cannot_be_compared(folders, tmp_path, capsys):
  found = copies(folders, tmp_path)
  for line, message in REFUSED:
    assert compared(*line.format(**found).split()) == 2, line
    captured = capsys.readouterr()
    assert not captured.out and captured.err.startswith("as2jax: "), line
    assert re.search(message, captured.err), captured.err
