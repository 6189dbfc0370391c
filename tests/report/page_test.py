"""The page of runs: its numbers, its sections, what it refuses, and that no text becomes markup."""

import base64
import hashlib
import json
import pathlib
import re
import shlex
import shutil
import xml.etree.ElementTree as tree

import page_cases
import pytest

from as2jax.commands import app
from as2jax.data.record import Candidate, Question
from as2jax.experiments.papers import published
from as2jax.inference import modes
from as2jax.inference.open import open_run
from as2jax.report import cards, drawing, make, page, questions
from as2jax.report.verdict import _of_data
from configs import wikiqa_baseline


@pytest.fixture(scope="module")
def page_of_two(finished_run, tmp_path_factory):
  """The page of two rankers without parameters, and their folders."""
  folders = [str(finished_run(name)) for name in ("bm25", "word_overlap")]
  target = tmp_path_factory.mktemp("page") / "report.html"
  make.make(folders, target, published={("map", "ASBERT"): 0.795})
  return page_cases.Page(target.read_text()), folders


def results(folder):
  return json.loads((pathlib.Path(folder) / "results.json").read_text())["metrics"]


def test_a_metric_named_twice_is_shown_once(page_of_two, tmp_path):
  _, folders = page_of_two
  for name, metrics in (("twice", ("map", "map")), ("once", ("map",))):
    make.make(folders, tmp_path / f"{name}.html", metrics=metrics)
  twice, once = (page_cases.Page((tmp_path / f"{n}.html").read_text()) for n in ("twice", "once"))
  assert twice.of("td") == once.of("td")


def test_a_question_that_no_system_explains_is_said_so(page_of_two, tmp_path):
  _, folders = page_of_two
  text = make.make(folders, tmp_path / "x.html", explain=1).read_text()
  assert 'id="explanations"' not in text
  (id, *_) = [text for _, text in page_cases.Page(text).of("small")]
  shown = page_cases.Page(make.make(folders, tmp_path / "x.html", question_ids=[id]).read_text())
  assert "No question is explained: no system of the page has parameters." in shown.text


def test_its_numbers_are_those_of_the_results(page_of_two):
  shown, folders = page_of_two
  cells = [(a["data-value"], text) for a, text in shown.of("td") if "data-value" in a]
  expected = []
  for metric in make.METRICS["rerank"]:
    for folder in folders:
      entry = results(folder)[f"{metric}[sample-clean/test]"]
      expected += [entry["mean"], entry["half_width"]]
  cells = cells[: len(expected)]  # the table of systems comes first
  assert [float(value) for value, _ in cells] == pytest.approx(expected, abs=1e-12)
  assert [text for _, text in cells] == [f"{value:.4f}" for value in expected]


def test_it_has_its_sections_and_says_how_to_repeat_it(page_of_two):
  shown, folders = page_of_two
  assert [a["id"] for a, _ in shown.of("section")] == [
    "verdict",
    "systems",
    "questions",
    "identity",
  ]
  (_, code), *_ = shown.of("code")
  assert f"as2jax compare {folders[0]} {folders[1]} --split=test" in code
  assert "--metrics=map,mrr,p@1,ndcg@10" in code  # of the page; `compare` alone takes two
  (_, verdict), *_ = shown.of("p", **{"class": "verdict"})
  p = re.search(r"These models: p [=<] ?[\d.]+ by the randomization test", verdict)
  assert p and "54 questions" in verdict
  assert "ASBERT" in shown.text and "0.795 published" in shown.text


def test_the_verdict_names_the_better_system_and_what_speaks_against_it(finished_run, tmp_path):
  folders = [str(finished_run(name)) for name in ("word_overlap", "triplet")]
  make.make(folders, tmp_path / "x.html")
  shown = page_cases.Page((tmp_path / "x.html").read_text())
  (_, verdict), *_ = shown.of("p", **{"class": "verdict"})
  mean = [results(folder)["map[sample-clean/test]"]["mean"] for folder in folders]
  assert f"{abs(mean[1] - mean[0]):.3f} ±" in verdict
  assert "(54 questions; seeds: 1 against 1)" in verdict
  assert "cannot be told from one seed" in verdict
  against = [text for _, text in shown.of("li")]
  assert any("ties touch" in line for line in against)
  assert any(line.startswith("triplet: one seed") for line in against)
  assert {"dev-step", "loss-step", "loss-seconds", "curve-learning-rate", "curve-throughput"} <= {
    a["data-figure"] for a, _ in shown.of("figure")
  }


def test_the_card_says_what_data_and_runs_are(finished_run, tmp_path):
  run = finished_run("triplet")
  shown = page_cases.Page(make.make([str(run)], tmp_path / "x.html").read_text())
  content = json.loads((run / "results.json").read_text())
  cells = [text for _, text in shown.of("td")]
  assert content["data"]["splits"]["test"]["fingerprint"][:12] in cells
  assert content["identity"]["weights"][:12] in cells
  memory = content["execution"]["peak_memory_bytes"]
  assert memory > 1e8 and f"{memory / 2**30:.2f} GiB at most" in cells
  assert any("licence: Apache-2.0" in text for _, text in shown.of("li"))


@pytest.mark.parametrize(
  "name, stated",
  [("wikiqa", "Microsoft Research Data License Agreement"), ("squad_44_as2", "CC BY-SA 4.0")],
)
def test_a_licence_is_what_the_distributors_state(name, stated):
  assert cards.licence(name).startswith(stated)
  assert cards.licence("trecqa") == "not stated by its distributors"
  assert cards.licence("files") == "that of your own files"


def test_the_commands_of_the_verdict_repeat_the_page(finished_run, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  runs = [str(finished_run(name)) for name in ("bm25", "word_overlap")]
  options = ["--metrics=mrr,map", "--filter=answerable", "--split=test"]
  options += ["--published=mrr=0.7:a paper's", "--explain=0"]
  assert app.run(["report", *runs, "-o", "a page.html", *options]) == 0
  page_text = pathlib.Path("a page.html").read_text()
  (_, code), *_ = page_cases.Page(page_text).of("code")
  report, compare, *train = [shlex.split(line) for line in code.splitlines()]
  assert set(options) <= set(report)
  pathlib.Path("a page.html").unlink()
  assert app.run(report[1:]) == 0
  assert pathlib.Path("a page.html").read_text() == page_text
  capsys.readouterr()
  assert app.run([*compare[1:], "--format=json"]) == 0
  means = [json.loads(line)["mean"] for line in capsys.readouterr().out.splitlines()]
  cells = [a["data-value"] for a, _ in page_cases.Page(page_text).of("td") if "data-value" in a]
  assert [float(value) for value in cells[: 2 * len(means) : 2]] == means
  assert [line[2] for line in train] == [f"rerun:{run}/config.json" for run in runs]


def test_published_figures_are_drawn_with_where_they_stand(finished_run, tmp_path, monkeypatch):
  """Of the sample's run nothing is known; here it is, so that the page can be looked at."""
  one = published.Published("map", "Triplet-BERT (ASBERT)", 0.795, "Triplet-BERT in a table")
  text = make.make([str(finished_run("bm25"))], tmp_path / "a.html").read_text()
  assert "published" not in page_cases.Page(text).of("section", id="systems")[0][1]
  assert "Hollow marks" not in text and " published<" not in text
  monkeypatch.setattr(published, "figures", lambda runs, where: [one])
  text = make.make([str(finished_run("bm25"))], tmp_path / "b.html").read_text()
  assert "0.795 published" in text
  assert "Hollow marks are published figures: Triplet-BERT in a table." in text


def test_each_question_has_its_values_and_packed_candidates(page_of_two, finished_run):
  shown, folders = page_of_two
  actual = shown.candidates()
  assert len(actual) == 68  # of test, those without an answer among them
  rows = [a for a, _ in shown.of("tr") if "data-q" in a]
  assert len(rows) == 68 and sum("data-rest" in a for a in rows) == 14
  lines = (finished_run("bm25") / "eval/test/run.trec").read_text().splitlines()
  ranks = {tuple(line.split()[0:3:2]): line.split()[3:5] for line in lines}
  ids = [text for _, text in shown.of("small")]
  for id, question in zip(ids, actual, strict=True):
    scores, shown_ranks = question["s"][0]["v"], question["s"][0]["r"][0]
    for (candidate, *_), score, rank in zip(question["c"], scores, shown_ranks, strict=True):
      place, value = ranks[id, candidate]
      assert score == pytest.approx(float(value), rel=1e-5)
      low, _, high = str(rank).partition("–")
      assert int(low) <= int(place) <= int(high or low)


def test_equal_scores_share_their_ranks():
  listed = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 2.0}
  assert questions.ranks(listed, "dxab") == ["2–3", None, 4, 1]
  tied = {"a": 0.1 + 0.2, "b": 0.3}  # equal as float32, as metrics see it
  assert questions.ranks(tied, "ab") == ["1–2", "1–2"]


def test_infinite_scores_are_texts_which_json_can_hold():
  question = Question("Q", "?", (Candidate("a", "x", 1), Candidate("b", "y", 0)))
  packed = questions._candidates(question, [[{"Q": {"a": 1e400, "b": -1e400}}]])
  assert json.loads(json.dumps(packed, allow_nan=False))["s"] == [{"v": ["∞", "−∞"], "r": [[1, 2]]}]


def test_hostile_texts_stay_texts(tmp_path):
  run = page_cases.hostile_run(tmp_path)
  shown = page_cases.Page((run / make.NAME).read_text())
  scripts = shown.of("script")
  assert [a.get("type") for a, _ in scripts] == ["application/json", "text/plain", None]
  assert scripts[-1][1] == page.resource("page.js")
  assert not shown.of("img")
  assert not [name for _, a, _ in shown.elements for name in a if name.startswith("on")]
  texts = [text for question in shown.candidates() for text in question["t"]]
  assert page_cases.HOSTILE in texts
  buttons = [text for _, text in shown.of("button")]
  assert f"0 {page_cases.HOSTILE}" in buttons
  assert shown.of("title")[0][1] == run.name


def test_a_metrics_name_stays_a_text(tmp_path):
  for name in ("x", "y"):
    rows = "Q1\t2\t1\t0.5\nQ2\t2\t1\t0.25\n"
    head = f"question\tcandidates\tpositives\t{page_cases.HOSTILE}\n"
    (tmp_path / f"{name}.tsv").write_text(head + rows)
  files = [str(tmp_path / f"{name}.tsv") for name in ("x", "y")]
  make.make(files, tmp_path / "x.html", metrics=[page_cases.HOSTILE])
  assert not page_cases.Page((tmp_path / "x.html").read_text()).of("img")


def test_the_policy_allows_this_style_and_program_alone(page_of_two):
  shown, _ = page_of_two
  (policy,) = [a["content"] for a, _ in shown.of("meta") if "http-equiv" in a]
  parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
  digest = lambda text: (
    f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
  )
  (program,) = [text for a, text in shown.of("script") if not a.get("type")]
  ((_, style),) = shown.of("style")
  assert parts["default-src"] == "'none'"
  assert parts["script-src"] == digest(program) and parts["style-src"] == digest(style)
  for _, attributes, _ in shown.elements:  # nothing that the policy would refuse
    assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
    for name in ("src", "href"):
      assert attributes.get(name, "#").startswith("#")


def test_the_program_is_short_and_writes_no_markup():
  program = page.resource("page.js")
  assert program.count("\n") < 400
  for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
    assert word not in program


def test_colours_can_be_read_in_both_themes():
  def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

  for theme in (0, 1):
    paper = luminance(drawing.COLOURS["paper"][theme])
    for name, pair in drawing.COLOURS.items():
      if name not in ("paper", "grid"):
        low, high = sorted((paper, luminance(pair[theme])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (name, theme)


def test_figures_are_described_and_tables_have_heads(page_of_two):
  shown, _ = page_of_two
  for attributes, _ in shown.of("svg"):
    assert attributes["role"] == "img" and attributes["aria-label"].strip(". ")
  assert all(a.get("scope") in ("col", "row") for a, _ in shown.of("th"))
  assert shown.of("html")[0][0]["lang"] == "en"


def test_the_command_and_the_run_write_it(finished_run, tmp_path, capsys):
  run, target = str(finished_run("bm25")), tmp_path / "a.html"
  other = f"{finished_run('word_overlap')}"
  assert app.run(["report", run, other, "-o", str(target), "--metrics=mrr,map"]) == 0
  assert f"written: {target}" in capsys.readouterr().out
  first, *_ = [
    t for a, t in page_cases.Page(target.read_text()).of("p") if a.get("class") == "verdict"
  ]
  assert "MRR" in first
  again = open_run(other).report(tmp_path / "b.html", against=[run], metrics=("mrr", "map"))
  assert page_cases.Page(again.read_text()).of("p", **{"class": "verdict"})[0][1] == first


def test_a_run_file_made_elsewhere_stands_beside_a_run(finished_run, tmp_path):
  run, other = finished_run("bm25"), tmp_path / "llm.trec"
  shutil.copy(finished_run("word_overlap") / "eval/test/run.trec", other)
  make.make([str(run), str(other)], tmp_path / "x.html")
  shown = page_cases.Page((tmp_path / "x.html").read_text())
  values = [float(a["data-value"]) for a, _ in shown.of("td") if "data-value" in a]
  assert values[2] == pytest.approx(
    results(finished_run("word_overlap"))["map[sample-clean/test]"]["mean"]
  )
  assert all(question["s"][1] for question in shown.candidates())
  assert "made elsewhere" in shown.text


def test_a_run_leaves_its_page_unless_told_not_to(finished_run, tmp_path):
  config = wikiqa_baseline.get_config("word_overlap,sample")
  config.log.report = False
  modes.run(config.lock(), str(tmp_path / "without"))
  assert not (tmp_path / "without" / make.NAME).exists()
  config = config.copy_and_resolve_references().unlock()
  config.log.report = True
  modes.run(config.lock(), str(tmp_path / "with"))
  assert page_cases.Page((tmp_path / "with" / make.NAME).read_text()).of("section", id="verdict")


def test_a_page_that_cannot_be_made_does_not_undo_the_run(tmp_path, caplog):
  (tmp_path / "results.json").write_text("{")
  make.automatic(tmp_path)
  assert "no report was written" in caplog.text
  assert not (tmp_path / make.NAME).exists()


@pytest.mark.parametrize(
  "arguments, part",
  [
    (["{run}", "-o", "x.pdf"], "name a file that ends in .html"),
    (["{run}", "--published", "map=high:X"], "METRIC=FIGURE:WHOSE"),
    (["{run}", "--published", "map=1.795:X"], "--published=map=1.795:X: write METRIC=FIGURE"),
    (["{run}", "--published", "map=nan:X"], "a figure from 0 to 1"),
    (["{run}", "--published", "map=0.795"], "METRIC=FIGURE:WHOSE"),
    (["{run}", "--published", "mapp=0.795:X", "-o", "x.html"], "figure of X is of 'mapp', which"),
    (["{run}", "--metrics=map,foo", "-o", "x.html"], "no metric 'foo': it has map"),
    (["{run}", "--filter=zebra", "-o", "x.html"], "--filter=zebra"),
    (["{run}", "--metrics=zebra", "-o", "x.html"], "no metric 'zebra'"),
    (
      ["{run}", "-o", "x.html", "--files={run}/config.json"],
      "config.json is a file: name a folder",
    ),
    (["x.trec"], "name the page"),
  ],
)
def test_mistakes_are_one_line(finished_run, arguments, part, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  run = str(finished_run("bm25"))
  assert app.run(["report", *(a.format(run=run) for a in arguments)]) == 2
  error = capsys.readouterr().err
  assert part in error and error.count("\n") == 1
  assert not list(tmp_path.iterdir())


def test_a_drawing_is_written_as_a_file_of_its_own_and_as_pdf():
  pytest.importorskip("matplotlib")
  figure = drawing.Drawing(120, 60, "a <b>")
  figure.line([(0, 0), (10, 10)], "c0", dash="2 2")
  figure.circle(5, 5, 2, "c1", hollow=True)
  figure.rect(5, 5, 9, 9, "c2", opacity=0.5)
  figure.squares([(1, 2), (7.5, 2)], 4, "c1", opacity=0.25)
  figure.text(4, 30, "words & $x$", turn=30, anchor="end", bold=True)
  alone = figure.svg(alone=True)
  root = tree.fromstring(alone)
  assert root.attrib["aria-label"] == "a <b>" and "#0b5fa5" in alone and "var(" not in alone
  assert ' d="M1 2h4v4h-4zM7.5 2h4v4h-4z"' in alone
  squares = drawing._squares("M1 2h4v4h-4zM7.5 2h4v4h-4z").vertices
  assert squares[:5].tolist() == [[1, 2], [5, 2], [5, 6], [1, 6], [1, 2]] and squares[
    5
  ].tolist() == [7.5, 2]
  assert {drawing._artist(shape).get_zorder() for shape in figure.shapes} == {1}
  pdf = figure.pdf()
  assert pdf.startswith(b"%PDF") and b"/Font" in pdf and b"/Subtype /Image" not in pdf


def test_documented_counts_do_not_speak_against_the_data():
  of = lambda told, content: _of_data({"verdict": told, "splits": {"test": {"content": content}}})
  assert of("documented", "official") == of("match", "unknown") == []
  assert len(of("differs", "other")) == 2


def test_an_untrained_system_was_not_chosen(finished_run, tmp_path):
  folders = [f"{finished_run(name)}/" for name in ("word_overlap", "bm25")]  # as a shell completes
  make.make(folders, tmp_path / "x.html", explain=0)
  text = (tmp_path / "x.html").read_text()
  assert "was chosen by" not in text and "/-again" not in text and "bm25-again" in text
