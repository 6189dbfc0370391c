"""The page of runs: its numbers, its sections, what it refuses, and that no text becomes markup."""

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import shlex
import shutil
import zlib

import numpy as np
import pytest
import tiny_systems

from as2jax.commands import app
from as2jax.data import dataset as datasets
from as2jax.data import trec_files
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import calibration
from as2jax.inference import modes
from as2jax.inference.open import open_run
from as2jax.report import make, runs
from as2jax.report.runs import licence

SECTIONS = ["verdict", "answering", "questions", "explanations", "identity"]
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'& שלום 🧊"


class Page(html.parser.HTMLParser):
  """The elements of a page: [(tag, attributes, text up to the next tag)]."""

  def __init__(self, text):
    super().__init__(convert_charrefs=True)
    self.elements, self.text = [], text
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, dict(attrs), []))

  def handle_data(self, data):
    if self.elements:
      self.elements[-1][2].append(data)

  def handle_endtag(self, tag):
    if tag in ("script", "style"):
      self.elements.append(("", {}, []))  # takes the text between elements

  def of(self, tag, **wanted):
    return [
      (attributes, text[0] if tag in ("script", "style") else "".join(text).strip())
      for name, attributes, text in self.elements
      if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
    ]

  def candidates(self):
    """What the packed chunks hold, one entry a question."""
    listed = []
    for attributes, text in self.of("script", type="text/plain"):
      assert attributes["id"] == f"chunk-{len(listed) // runs.CHUNK}"
      listed += json.loads(zlib.decompress(base64.b64decode(text)))
    return listed


def hostile_run(folder):
  """A run on questions whose texts and ids are hostile."""
  rows = ["question_id\tquestion\tcandidate_id\tcandidate\tlabel\tprevious\tnext\ttitle"]
  for n in range(4):
    # The sentences of a document, in order.
    around = ["", *(f"{c} {HOSTILE}" for c in range(3)), ""]
    for c in range(3):
      rows.append(
        f"Q{n}\t{n} {HOSTILE}\t{HOSTILE.replace(' ', '_')}{c}\t{around[c + 1]}\t{int(c == n % 3)}\t"
        f"{around[c]}\t{around[c + 2]}\t{HOSTILE}"
      )
  file = folder / "own.tsv"
  file.write_text("\n".join(rows) + "\n")
  files = {f"data__{split}": str(file) for split in ("train", "dev", "test")}
  splits = {"evaluation__splits": ("dev", "test")}
  config = tiny_systems.config("word_overlap", data__name="files", **files, **splits)
  target = folder / "<img src=x onerror=alert(2)>"
  modes.run(config, str(target))
  return target


@pytest.fixture(scope="module")
def page_of_two(finished_run, tmp_path_factory):
  """The page of two rankers without parameters, and their folders."""
  folders = [str(finished_run(name)) for name in ("bm25", "word_overlap")]
  target = tmp_path_factory.mktemp("page") / "report.html"
  make.make(folders, target)
  return Page(target.read_text()), folders


def results(folder):
  return json.loads((pathlib.Path(folder) / "results.json").read_text())["metrics"]


def figures(shown):
  """The cells of the rows of the tables of `as2jax compare`, which come first."""
  section = next(n for n, (tag, a, _) in enumerate(shown.elements) if a.get("id") == "verdict")
  rows = []
  for tag, attributes, text in shown.elements[section:]:
    if tag == "tr":
      rows.append([])
    elif tag in ("th", "td") and rows:
      rows[-1].append("".join(text))
    elif tag == "section" and rows:
      break
  return [row for row in rows if row[0]]  # without heads


def best(questions, ranking):
  """The best candidates by the questions themselves."""
  rows = []
  for question in questions:
    scores = np.float32([ranking[question.id][c.id] for c in question.candidates])
    right = np.array([c.label == 1 for c in question.candidates])
    rows.append((scores.max(), right[scores == scores.max()].mean(), right.any()))
  score, right, answerable = np.array(rows, np.float64).T
  return calibration.Best(score, right, answerable > 0, np.arange(len(rows)))


def test_it_says_how_well_systems_know_when_to_stay_silent(page_of_two):
  shown, folders = page_of_two
  at = next(n for n, (_, a, _) in enumerate(shown.elements) if a.get("id") == "answering")
  cells = ["".join(text) for tag, _, text in shown.elements[at:] if tag in ("th", "td")][:21]
  dev, test = (datasets.load("sample").splits[split] for split in ("dev", "test"))
  run = {s: trec_files.read_run(f"{folders[1]}/eval/{s}/run.trec") for s in ("dev", "test")}
  measured = calibration.measure(best(dev, run["dev"]), best(test, run["test"]))
  assert cells[:4] == ["system", "precision", "recall", "F1"]
  assert cells[15:18] == [f"{x:.3f}" for x in map(measured.get, ("precision", "recall", "f1"))]


def test_its_numbers_are_those_of_the_results(page_of_two):
  shown, folders = page_of_two
  expected = []
  for metric in make.METRICS["rerank"]:
    for folder in folders:
      entry = results(folder)[f"{metric}[sample-clean/test]"]
      figure = f"{entry['mean']:.4f} ± {entry['half_width']:.4f}"
      expected.append([folder.rpartition("/")[2], figure])
  assert [row[:2] for row in figures(shown)] == expected


def test_it_has_its_sections_and_says_how_to_repeat_it(page_of_two):
  shown, folders = page_of_two
  assert [a["id"] for a, _ in shown.of("section")] == SECTIONS
  assert [a["href"] for a, _ in shown.of("a")][1:6] == [f"#{id}" for id in SECTIONS]
  (_, code), *_ = shown.of("code")
  assert code.startswith(f"as2jax report {folders[0]} {folders[1]} -o ")
  (_, verdict), *_ = shown.of("p", **{"class": "behind"})
  p = re.search(r"These models: p [=<] ?[\d.]+ by the randomization test", verdict)
  for attributes, _ in shown.of("svg"):
    assert attributes["role"] == "img" and attributes["aria-label"].strip(". ")
  assert p and "54 questions" in verdict


def test_the_verdict_names_the_better_system_and_what_speaks_against_it(
  finished_run, tmp_path, capsys
):
  folders = [str(finished_run(name)) for name in ("word_overlap", "triplet")]
  shown = Page(make.make(folders, tmp_path / "x.html").read_text())
  (_, verdict), *_ = shown.of("p", **{"class": "behind"})
  mean = [results(folder)["map[sample-clean/test]"]["mean"] for folder in folders]
  capsys.readouterr()
  assert app.run(["compare", *folders, "--metrics=p@1,map", "--format=json"]) == 0
  rows = list(map(json.loads, capsys.readouterr().out.splitlines()))
  told = []
  for row in rows[1::2]:
    told.append(  # of one seed
      "the difference is larger than chance between these trained models, and not shown of other seeds"
      if row["p_randomization"] < 0.05
      else "these questions cannot tell whether the difference is chance"
    )
  first, second = sorted(rows[:2], key=lambda row: -row["mean"])
  named = [pathlib.Path(row["system"]).name for row in (first, second)]
  assert shown.of("p", **{"class": "verdict"})[0][1] == (
    f"{named[0]} ranks a right answer first in {100 * first['mean']:.0f} of 100 questions, {named[1]} in "
    f"{100 * second['mean']:.0f}; {'; by MAP, '.join(dict.fromkeys(told))}."
  )
  tags = [tag if tag != "p" else a.get("class") for tag, a, _ in shown.elements]
  places = [tags.index(name) for name in ("verdict", "svg", "details", "behind", "table")]
  assert places == sorted(places) and "note" not in tags[: places[1]]
  assert f"{abs(mean[1] - mean[0]):.3f} ±" in verdict
  assert "(54 questions of 17 groups; seeds: 1 against 1)" in verdict
  assert "cannot be told from one seed" in verdict
  against = [text for _, text in shown.of("li")]
  assert any("ties touch" in line for line in against)
  assert any(line.startswith("triplet: one seed") for line in against)
  named = {a["data-figure"] for a, _ in shown.of("figure")}
  assert {"forest", "curve-selector", "curve-loss", "curve-learning-rate"} <= named


def test_the_card_says_what_data_and_runs_are(finished_run, tmp_path):
  run = finished_run("triplet")
  shown = Page(make.make([str(run)], tmp_path / "x.html").read_text())
  content = json.loads((run / "results.json").read_text())
  cells = [text for _, text in shown.of("td")]
  assert content["data"]["splits"]["test"]["fingerprint"][:12] in cells
  assert content["identity"]["weights"][:12] in cells
  assert any("licence: Apache-2.0" in text for _, text in shown.of("li"))
  assert licence("files") == "that of your own files"
  assert licence("trecqa") == "not stated by its distributors"


def test_the_commands_of_the_verdict_repeat_the_page(finished_run, tmp_path, monkeypatch):
  """A folder with a slash, as a shell completes it, one with a name, a metric that is named twice."""
  monkeypatch.chdir(tmp_path)
  runs = [f"{finished_run('bm25')}/", f"Shared words={finished_run('word_overlap')}"]
  options = ["--metrics=mrr,map", "--filter=answerable", "--split=test", "--explain=0"]
  options.append("--allow-code")
  twice = [option.replace("map", "map,mrr") for option in options]
  assert app.run(["report", *runs, "-o", "a page.html", *twice]) == 0
  page_text = pathlib.Path("a page.html").read_text()
  (_, code), *_ = Page(page_text).of("code")
  report = shlex.split(code)
  assert {*runs, *twice} <= set(report)
  assert Page(page_text).of("title")[0][1] == "bm25 · Shared words"
  pathlib.Path("a page.html").unlink()
  assert app.run(report[1:]) == 0
  assert pathlib.Path("a page.html").read_text() == page_text
  assert "was chosen by" not in page_text  # nothing was trained


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


def test_a_pools_questions_have_what_both_systems_found(tmp_path):
  folders = []
  for name in ("bm25", "word_overlap"):
    over_pool = {"evaluation__task": "retrieve", "select": "mrr", "log__report": name == "bm25"}
    folders.append(tmp_path / name)
    modes.run(tiny_systems.config(name, **over_pool), str(folders[-1]))
  assert [(folder / make.NAME).exists() for folder in folders] == [True, False]
  make.make(list(map(str, folders)), tmp_path / "x.html")
  shown = Page((tmp_path / "x.html").read_text())
  assert "MRR" in shown.of("p", **{"class": "behind"})[0][1]
  assert "ranks a right answer first in" in shown.of("p", **{"class": "verdict"})[0][1]
  ids = [text for _, text in shown.of("small")]
  actual = [trec_files.read_run(folder / "eval/test/run.trec") for folder in folders]
  for id, question in zip(ids, shown.candidates(), strict=True):
    assert any(label == 1 for _, _, label in question["c"])
    for run, system in zip(actual, question["s"], strict=True):
      listed = zip(question["c"], system["r"][0], system["v"], strict=True)
      for (candidate, *_), rank, score in listed:
        assert (rank is None) == (score is None) == (candidate not in run[id])
        if rank is not None:
          above = sum(np.float32(x) > np.float32(run[id][candidate]) for x in run[id].values())
          assert int(str(rank).split("–")[0]) == above + 1
  assert any(None in system["r"][0] for q in shown.candidates() for system in q["s"])


def test_ranks_and_scores_of_a_question():
  """Equal scores, as float32, share their ranks; infinite ones are texts, which JSON can hold."""
  assert runs.ranks({"a": 1.0, "b": 3.0, "c": 2.0, "d": 2.0}, "dxab") == ["2–3", None, 4, 1]
  assert runs.ranks({"a": 0.1 + 0.2, "b": 0.3}, "ab") == ["1–2", "1–2"]
  question = Question("Q", "?", (Candidate("a", "x", 1), Candidate("b", "y", 0)))
  packed = runs.shown(question, [[{"Q": {"a": 1e400, "b": -1e400}}]])
  assert json.loads(json.dumps(packed, allow_nan=False))["s"] == [{"v": ["∞", "−∞"], "r": [[1, 2]]}]


def test_hostile_texts_stay_texts(tmp_path):
  run = hostile_run(tmp_path)
  shown = Page((run / make.NAME).read_text())
  scripts = shown.of("script")
  assert [a.get("type") for a, _ in scripts] == ["application/json", "text/plain", None]
  assert scripts[-1][1] == make.resource("page.js")
  assert not shown.of("img")
  assert not [name for _, a, _ in shown.elements for name in a if name.startswith("on")]
  texts = [text for question in shown.candidates() for _, text, _ in question["c"]]
  assert any(HOSTILE in text for text in texts)
  assert any(HOSTILE in text for a, text in shown.of("span") if "title" in a)
  assert f"0 {HOSTILE}" in [text for _, text in shown.of("button")]
  assert shown.of("title")[0][1] == run.name


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
  for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
    assert word not in program


def test_the_command_and_the_run_write_it(finished_run, tmp_path, monkeypatch):
  run, other = str(finished_run("bm25")), str(finished_run("word_overlap"))
  monkeypatch.chdir(tmp_path)
  assert app.run(["report", run, other, "-o", "a.html", "--metrics=mrr,map"]) == 0
  verdict = lambda path: Page(path.read_text()).of("p", **{"class": "behind"})[0][1]
  again = open_run(other).report(tmp_path / "b.html", against=[run], metrics=("mrr", "map"))
  assert "MRR" in verdict(again) and verdict(again) == verdict(tmp_path / "a.html")


def test_a_run_file_made_elsewhere_stands_beside_a_run(finished_run, tmp_path):
  run, other = finished_run("bm25"), tmp_path / "llm.trec"
  shutil.copy(finished_run("word_overlap") / "eval/test/run.trec", other)
  shown = Page(make.make([str(run), str(other)], tmp_path / "x.html").read_text())
  entry = results(finished_run("word_overlap"))["map[sample-clean/test]"]
  assert figures(shown)[1][1].startswith(f"{entry['mean']:.4f} ± ")
  assert all(question["s"][1] for question in shown.candidates())
  assert "made elsewhere" in shown.text


def test_a_page_that_cannot_be_made_does_not_undo_the_run(tmp_path, caplog):
  (tmp_path / "results.json").write_text("{")
  make.automatic(tmp_path)
  assert "no report was written" in caplog.text
  assert not (tmp_path / make.NAME).exists()


@pytest.mark.parametrize(
  "arguments, part",
  [
    (["{run}", "-o", "x.pdf"], "name a file that ends in .html"),
    (["{run}", "--metrics=map,foo", "-o", "x.html"], "no metric 'foo': it has map"),
    (["{run}", "--filter=zebra", "-o", "x.html"], "--filter=zebra"),
    (["x.trec"], "name the page"),
  ],
)
def test_mistakes_are_one_line(finished_run, arguments, part, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  datasets.load("sample")  # else a line says that it is prepared
  run = str(finished_run("bm25"))
  assert app.run(["report", *(a.format(run=run) for a in arguments)]) == 2
  error = capsys.readouterr().err
  assert part in error and error.count("\n") == 1
  assert not list(tmp_path.iterdir())
