"""Selecting sentences of documents: what is kept, its offsets, probabilities and thresholds."""

import itertools
import json
import shutil
import types

import numpy as np
import pytest

import as2jax
from as2jax.commands import app
from as2jax.data.load import load
from as2jax.evaluation import calibration
from as2jax.evaluation.calibration import Calibration
from as2jax.runtime.errors import InputError

PAGE = "# Cats\nThe cat sat on the mat. It was red.\n\n- A dog ran.\n- Ice melts in spring.\n"


@pytest.fixture
def ranker(finished_run):
  return as2jax.load(finished_run("bm25"))


def test_what_is_kept_is_in_order_and_equals_its_slice(ranker):
  documents = [PAGE, "Who sat? The cat sat."]
  every = ranker.select("who sat on the mat", documents, threshold=None).every
  assert [one.document for one in every] == [0] * 5 + [1] * 2
  assert all(documents[one.document][one.start : one.end] == one.text for one in every)
  ranked = ranker.rank("who sat on the mat", [one.text for one in every])
  assert all(every[hit.index].score == hit.score for hit in ranked) and len(ranked) == len(every)
  least = ranked[2].score
  kept = ranker.select("who sat on the mat", documents, threshold=least)
  assert kept.sentences == tuple(one for one in every if one.score >= least) and kept.answered
  best = ranker.select("who sat on the mat", documents, threshold=least, top_k=1)
  assert [one.text for one in best.sentences] == [ranked[0].text]
  none = ranker.select("who sat on the mat", documents, threshold=1e9)
  assert none.sentences == () and none.answered is False and none.text == ""
  spans = [(2, 6), (7, 30)]
  given = ranker.select("cats", PAGE, sentences=spans, threshold=None)
  assert [(one.start, one.end) for one in given.sentences] == spans and given.answered is None
  assert given.text == "Cats The cat sat on the mat."


def test_sentences_have_their_neighbours(ranker, monkeypatch):
  seen = []
  scores = lambda questions: seen.extend(questions) or {ranker.similarity: [np.arange(6.0)]}
  monkeypatch.setattr(ranker, "all_scores", scores)
  ranker.select("who", [PAGE, "One."], threshold=None)
  around = [(one.previous, one.next) for one in seen[0].candidates]
  assert around[0] == ("", "The cat sat on the mat.") and around[4] == ("A dog ran.", "")
  assert around[5] == ("", "")


def test_nothing_is_cut_in_silence(ranker, monkeypatch, caplog):
  words = lambda texts: types.SimpleNamespace(lengths=np.asarray([len(t.split()) for t in texts]))
  source = types.SimpleNamespace(tokenizer_of=lambda texts: types.SimpleNamespace(encode=words))
  monkeypatch.setattr(
    ranker.predictor, "components", types.SimpleNamespace(source=source), raising=False
  )
  monkeypatch.setattr(type(ranker), "longest", 3)
  ranker.select("who sat on it", PAGE, threshold=None)
  assert "1 of 1 questions have more than 3 tokens" in caplog.text
  assert "2 of 5 sentences have more than 3 tokens" in caplog.text


@pytest.mark.parametrize("system, size", [("bm25", 10_000_000), ("triplet", 200_000)])
def test_what_is_large_gets_the_right_answer(system, size, finished_run, caplog):
  ranker, asked = as2jax.load(finished_run(system)), "who sat on the mat"
  lines = [f"The number {i} is {'very ' * 40}odd.\n" for i in range(size // 230)]
  lines.insert(len(lines) // 2, "The cat sat on the mat.\n")
  document = "".join(lines)
  found = ranker.select(asked, document, threshold=None, top_k=1)
  assert [one.text for one in found.every] == [line.strip() for line in lines]
  assert all(document[one.start : one.end] == one.text for one in found.every)
  assert found.text == ranker.rank(asked, [one.text for one in found.every], top_k=1)[0].text
  of_page = ranker.select(document, PAGE, threshold=None, top_k=1)  # a question as long
  if system == "bm25":
    assert found.text == of_page.text == "The cat sat on the mat."
  else:
    assert len(of_page.every) == 5 and "1 of 1 questions have more than" in caplog.text


@pytest.mark.parametrize(
  ("document", "options", "said"),
  [
    ("", {}, "no sentence"),
    (" \n--- \n", {}, "no sentence"),
    ("a\0b", {}, "document 0"),
    ([PAGE, 3], {}, "document 1 is 3"),
    (PAGE, {"top_k": 0}, "top_k = 0"),
    (PAGE, {"top_k": 1.5}, "top_k = 1.5: give a whole number"),
    (PAGE, {"threshold": "best"}, "'best': give calibrated, precision=0.9 or a score"),
    (PAGE, {"sentences": [(0, 5), (4, 9)]}, r"\(4, 9\)"),
    (PAGE, {"sentences": [(0, 999)]}, r"\(0, 999\)"),
    ([PAGE], {"sentences": []}, "of 0 documents were given for 1"),
    (PAGE, {"question": " "}, "^the question is ' ': give a text$"),
  ],
)
def test_what_cannot_be_selected_from_is_refused(ranker, document, options, said):
  with pytest.raises(InputError, match=said):
    ranker.select(**{"question": "who sat", "document": document, **options})


def made(seed=0, count=200):
  """Scores of candidates that are right as a logistic function of their score says, in groups."""
  rng = np.random.default_rng(seed)
  score = rng.normal(size=count).round(1)
  right = rng.random(count) < 1 / (1 + np.exp(1 - 3 * score))
  question = np.arange(count)
  return Calibration(score, right.astype(float), question, question // 5)


def test_probabilities_are_those_of_the_data_and_thresholds_the_best():
  one = made(count=20_000)
  np.testing.assert_allclose(one.probability(np.asarray([0.0, 1.0])), [0.27, 0.88], atol=0.02)
  assert max(calibration.errors(one.cross_fitted, one.right)) < 0.15
  few = made()
  f1 = {}
  for least in few.score:
    kept = few.score >= least
    f1[least] = 2 * few.right[kept].sum() / (kept.sum() + few.right.sum())
  assert f1[few.threshold()] == max(f1.values())
  at = few.threshold("precision=0.8")
  assert at > few.threshold("precision=0.5") and bound_over_groups(few, at) >= 0.79
  assert few.threshold("precision=1") == np.inf  # a few right ones do not prove it


def bound_over_groups(one, least):
  """The lower bound of precision, in plain loops over groups drawn by another generator."""
  rng, found = np.random.default_rng(1), []
  groups = [np.flatnonzero(one.group == g) for g in np.unique(one.group)]
  for _ in range(1000):
    drawn = np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])
    kept = drawn[one.score[drawn] >= least]
    found.append(one.right[kept].mean() if len(kept) else 0.0)
  return np.quantile(found, 0.025)


def test_a_score_that_says_nothing_is_refused(ranker, monkeypatch):
  one = made()
  for right in (1 - one.right, 0 * one.right):
    with pytest.raises(InputError, match="no probability follows from it"):
      Calibration(one.score, right, one.question, one.group)
  asked = "who sat on the mat", PAGE
  monkeypatch.setattr(
    calibration, "of_run", lambda *_: Calibration(one.score, 0 * one.right, one.question, one.group)
  )
  with pytest.raises(InputError, match="give a score as threshold, or None"):
    ranker.select(*asked)
  assert ranker.select(*asked, threshold=-1.0).answered


def test_a_run_is_calibrated_on_all_of_its_dev_candidates(ranker, caplog):
  of_dev = calibration.of_run(ranker.source, ranker.seed)
  dev = load(ranker.config.data).splits["dev"]
  labels = itertools.chain.from_iterable([c.label == 1 for c in q.candidates] for q in dev)
  assert sum(labels) == of_dev.right.sum()
  assert len(of_dev.score) == sum(len(q.candidates) for q in dev)
  every = ranker.select("who sat on the mat", PAGE).every
  np.testing.assert_array_equal(
    [one.probability for one in every], of_dev.probability(np.asarray([one.score for one in every]))
  )
  ranker.calibration = None  # as of a published model
  assert ranker.select("who sat on the mat", PAGE).answered is None
  assert "no dev questions by which to calibrate" in caplog.text
  with pytest.raises(InputError, match="'best': give calibrated, precision=0.9 or a score"):
    ranker.select("who sat on the mat", PAGE, threshold="best")


def test_another_run_in_the_same_folder_is_calibrated_anew(finished_run, tmp_path):
  rankers, found = [], []
  for system in ("bm25", "word_overlap"):
    shutil.copytree(finished_run(system), tmp_path / "run", dirs_exist_ok=True)
    rankers.append(as2jax.load(tmp_path / "run"))
    found.append(rankers[-1].calibration.score.tolist())
  assert found[0] != found[1] and rankers[0].calibration.score.tolist() == found[0]


def test_the_verb_marks_prunes_and_lists(ranker, tmp_path, capsys):
  page = tmp_path / "page.md"
  page.write_text(PAGE)
  asked = ["answer", ranker.source, "who sat on the mat", str(page), "--threshold=none", "--top=1"]
  assert app.run(asked) == 0
  assert capsys.readouterr().out == PAGE.replace("The cat", ">> The cat")
  assert app.run([*asked, "--prune"]) == 0
  assert capsys.readouterr().out == "The cat sat on the mat.\n"
  assert app.run([*asked, "--format=json"]) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  kept = [row["text"] for row in rows if row["kept"]]
  assert kept == ["The cat sat on the mat."] and len(rows) == 5
  assert app.run(["answer", str(ranker.source), "who", str(tmp_path / "none")]) == 2
  assert "none: there is no such file" in capsys.readouterr().err
  page.write_bytes(b"Ice.\0")
  assert app.run(asked) == 2 and "page.md holds NUL, as no text" in capsys.readouterr().err
