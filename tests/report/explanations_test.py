"""Explanations in the page: what the model computes, by words, of the questions that are flagged."""

import json
import re
import shutil
import xml.etree.ElementTree as tree

import numpy as np
import pytest

from as2jax.data import trec_files
from as2jax.data.record import Question
from as2jax.evaluation import calibration
from as2jax.inference.explain import Words
from as2jax.inference.run import Run
from as2jax.report import explanations, make, runs
from as2jax.runtime import bound

SYSTEMS = ("triplet", *(pytest.param(s, marks=pytest.mark.slow) for s in ("m2snet", "cassie")))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_of_each_kind_is_explained(finished_run, system):
  read = runs.read([str(finished_run("bm25")), str(finished_run(system))])
  (pairs,) = explanations.explain(read, runs.rows(read, "map")[:1]).values()
  assert pairs[0][0].label == 1
  for _, shown in pairs:  # of the run with parameters alone
    assert len(shown) == {"triplet": 1, "m2snet": 2, "cassie": 2}[system]
    for picture in shown:
      assert picture.system == system and picture.drawing is not None, picture.said
    assert "the strongest is" in shown[0].said
    assert (explanations.EDGES in shown[-1].said) == (system == "cassie")
    assert ("mode 2" in shown[-1].drawing.title) == (system == "m2snet")


def test_cells_below_zero_are_grey():
  values = np.array([[1.0, -0.5], [0.25, 0.0]])
  root = tree.fromstring(explanations.grid("grid", ["a", "b"], ["c", "d"], values, 0).__html__())
  cells = {path.attrib["class"]: path.attrib for path in root.iter("path")}
  assert {"f-c0", "f-muted"} <= set(cells) and cells["f-muted"]["opacity"] == "0.5"
  assert explanations.caption("grid", values).endswith("is 1.00; grey: below 0")
  nothing = np.zeros((2, 0))  # of a sentence of a joint run that has no word
  assert explanations.grid("grid", ["a", "b"], [], nothing, 0).description == "no word"
  assert explanations.caption("grid", nothing) == "grid; the strongest is 0.00"


def test_cells_are_the_cosines_of_words(finished_run):
  read = runs.read([str(finished_run("triplet"))])
  ((id, pairs),) = explanations.explain(read, runs.rows(read, "map")[:1]).items()
  candidate, (picture,) = pairs[0]
  run = Run(finished_run("triplet"))
  (text,) = [question.text for question in read.questions if question.id == id]
  pair = Question(id, text, (candidate,))
  (actual,) = Words(run, pair).similarities(run.ranker())
  root = tree.fromstring(picture.drawing.__html__())
  tips = [title.text for title in root.iter("title")]
  for word, values in zip(actual.question, actual.values, strict=True):
    best = int(values.argmax())
    assert f"{word} – {actual.candidate[best]}: {values[best]:.3f}" in tips


def test_a_document_is_shaded_in_the_page_or_it_says_why_not(finished_run, tmp_path):
  names = ("bm25", "no dev", "no slope")
  folders = [tmp_path / name for name in names]
  for folder in folders:
    shutil.copytree(finished_run("bm25"), folder)
  content = json.loads((folders[1] / "results.json").read_text())
  for name in [name for name in content["metrics"] if "/dev]" in name]:
    content["metrics"].pop(name)
  bound.write(folders[1], "results.json", json.dumps(content))
  run = trec_files.read_run(folders[2] / "eval/dev/run.trec")
  lines = [f"{q} Q0 {c} 0 {-s!r} x" for q, of in run.items() for c, s in of.items()]
  bound.write(folders[2], "eval/dev/run.trec", "\n".join(lines) + "\n")
  text = make.make(list(map(str, folders)), tmp_path / "x.html").read_text()
  notes = re.findall(
    r'<p class="note">([^<]*)</p>\s*<p class="document" dir="auto">(.*?)</p>', text, re.DOTALL
  )
  said = [
    "kept at a probability of 0.",
    "not shaded: it did not rank",
    "not shaded: on the questions that selected it",
  ]
  assert len(notes) == 6  # of the first question and the one in the middle
  for (note, spans), start, name in zip(notes, said, names):
    assert note.startswith(f"{name}: {start}") and ("title=" in spans)
    assert ("probability 0." in spans) == (name == "bm25") == ('class="p1' in spans)
    assert "✓ " in spans and (' kept"' in spans) == (name == "bm25")
  # By another road: the scores of the run file, with the probabilities that `select` gives.
  fitted, read = calibration.of_run(folders[0], 0), runs.read([str(folders[0])])
  ranked = trec_files.read_run(folders[0] / "eval/test/run.trec")
  for asked in read.questions[:9]:
    (shaded,) = runs.documents(read, asked)
    for one, candidate in zip(shaded.sentences, asked.candidates, strict=True):
      score = float(np.float32(ranked[asked.id][candidate.id]))
      assert (one.text, one.right) == (candidate.text, candidate.label == 1)
      assert one.probability == fitted.probability(np.array(score))
      assert one.kept == (score >= fitted.threshold())
      assert one.said.endswith(f"probability {one.probability:.2f}")


def test_the_page_links_a_question_to_its_explanation(finished_run, tmp_path):
  """Without checkpoints it says why there is none."""
  text = make.make([str(finished_run("triplet"))], tmp_path / "x.html", explain=1).read_text()
  assert 'href="#explained-0"' in text and 'id="explained-0"' in text
  folder, left_out = tmp_path / "collected", shutil.ignore_patterns("checkpoints", "report.html")
  shutil.copytree(finished_run("triplet"), folder, ignore=left_out)
  text = make.make([str(folder)], tmp_path / "y.html", explain=1).read_text()
  assert "collected is not explained: " in text and "has no checkpoint" in text
