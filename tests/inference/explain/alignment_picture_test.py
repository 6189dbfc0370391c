"""Pictures of alignments: the words, POT's plan on them, the run's score, files, refusals."""

import json
import shutil

import numpy as np
import ot
import pytest
import tiny
from tiny_cassie import run_config

from as2jax.commands import app
from as2jax.config import flags
from as2jax.data.datasets import dataset, trec_files
from as2jax.inference.explain import alignment_picture
from as2jax.runtime.errors import InputError
from as2jax.training.loop import train_and_evaluate
from configs import wikiqa_baseline

QUESTION = "What is the cause of a melting glacier?"
CANDIDATE = "Warm water, so it is said, melts the glacier."
PREVIOUS = "The Fjord's water is warm."
WORDS = ("cause", "melting", "glacier")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Runs that never trained: `context`, `mean` (the same weights), `joint` after `bm25`."""
  root = tmp_path_factory.mktemp("runs")
  train_and_evaluate(run_config("cassie", epochs=0, evaluation__splits=("test",)), root / "context")
  shutil.copytree(root / "context", root / "mean")
  kept = json.loads((root / "mean" / "config.json").read_text())
  kept["model"]["alignment"] = "mean"
  (root / "mean" / "config.json").write_text(json.dumps(kept))
  first = wikiqa_baseline.get_config("bm25,sample")
  first.evaluation.splits, first.log.tensorboard = ("train", "dev", "test"), False
  train_and_evaluate(first.lock(), root / "bm25")
  train_and_evaluate(
    run_config(
      "cassie", "joint", epochs=0, data__ranking=str(root / "bm25"), evaluation__splits=("test",)
    ),
    root / "joint",
  )
  return root


def test_plans_are_pots_over_the_words(folder, tmp_path):
  view = alignment_picture.make(
    folder / "context",
    tmp_path / "x.png",
    question=QUESTION,
    candidate=[CANDIDATE],
    previous=PREVIOUS,
  )
  candidate, previous, following = view.sentences
  assert view.words == WORDS and view.transported
  assert candidate.words == ("Warm", "water", "said", "melts", "glacier")
  assert previous.words == ("Fjord's", "water", "warm") and previous.text == PREVIOUS
  assert (following.words, following.text, following.logit) == ((), "", None)
  path = folder / "context" / "inputs" / "document_frequency.json"
  counts = json.loads(path.read_text())["values"]
  of = lambda table, words: np.asarray([counts[table].get(w.lower(), 1) for w in words], float)
  for sentence in (candidate, previous):
    a, b = of("questions", view.words), of("sentences", sentence.words)
    expected = ot.sinkhorn(
      a / a.sum(),
      b / b.sum(),
      sentence.cost,
      0.1 * sentence.cost.mean(),
      method="sinkhorn_log",
      numItermax=10,
      stopThr=0,
      warn=False,
    )
    np.testing.assert_allclose(sentence.plan, expected, atol=1e-5)
    chosen = set(expected.argmax(1))
    assert set(np.flatnonzero(sentence.relevant)) == chosen
    assert sentence.distance == pytest.approx((expected * sentence.cost).sum(), rel=1e-4)
  np.testing.assert_allclose(view.edges.sum(1), [1, 1, 0], atol=1e-6)
  assert (view.edges[:2, :2] > 0).all() and not view.edges[:, 2].any()


def test_a_question_of_the_data_has_the_runs_score(folder, tmp_path):
  question = next(q for q in dataset.load("sample").splits["test"] if len(q.candidates) > 2)
  scores = trec_files.read_run(folder / "context" / "eval" / "test" / "run.trec")[question.id]
  one = question.candidates[1]
  view = alignment_picture.make(
    folder / "context", tmp_path / "x.png", question_id=question.id, candidate_id=one.id
  )
  assert view.sentences[0].logit == pytest.approx(scores[one.id], abs=1e-4)
  assert [s.text for s in view.sentences] == [one.text, one.previous, one.next]
  right = alignment_picture.make(folder / "context", tmp_path / "x.png", question_id=question.id)
  assert right.sentences[0].text == question.candidates[question.positives[0]].text


@pytest.mark.slow
def test_a_joint_run_shows_its_candidates_in_the_rankers_order(folder, tmp_path):
  question = next(q for q in dataset.load("sample").splits["test"] if len(q.candidates) > 3)
  scores = trec_files.read_run(folder / "joint" / "eval" / "test" / "run.trec")[question.id]
  first = trec_files.read_run(folder / "bm25" / "eval" / "test" / "run.trec")[question.id]
  text = {c.id: c.text for c in question.candidates}
  best = sorted(first, key=lambda c: (np.float32(first[c]), c), reverse=True)[:3]
  view = alignment_picture.make(folder / "joint", tmp_path / "x.png", question_id=question.id)
  assert [s.text for s in view.sentences] == [text[c] for c in best]
  np.testing.assert_allclose(
    [s.logit for s in view.sentences], [scores[c] for c in best], atol=1e-4
  )
  same = alignment_picture.make(
    folder / "joint", tmp_path / "x.png", question=question.text, candidate=[text[c] for c in best]
  )
  np.testing.assert_array_equal(same.edges, view.edges)
  np.testing.assert_allclose(same.edges.sum(1), 1, atol=1e-6)
  two = alignment_picture.make(
    folder / "joint",
    tmp_path / "x.png",
    question=question.text,
    candidate=[text[c] for c in best[:2]],
  )
  assert [s.name for s in two.sentences] == ["candidate 1", "candidate 2", "candidate 3"]
  assert two.sentences[2].words == () and not two.edges[2].any()


def test_the_files(folder, tmp_path, capsys):
  output = tmp_path / "deep" / "x.png"
  arguments = [
    f"--text-question={QUESTION}",
    f"--text-candidate={CANDIDATE}",
    f"--previous={PREVIOUS}",
    f"--output={output}",
  ]
  assert app.run(["explain", f"{folder / 'context'}", *arguments, "--format=text"]) == 0
  printed = capsys.readouterr().out
  view = alignment_picture.make(
    folder / "context", output, question=QUESTION, candidate=[CANDIDATE], previous=PREVIOUS
  )
  candidate = view.sentences[0]
  chosen = candidate.words[candidate.plan[0].argmax()]
  assert f"candidate (cost {candidate.distance:.3f}, logit " in printed
  assert f"cause → {chosen}" in printed and "next" not in printed
  from matplotlib.image import imread

  picture = imread(output)
  assert picture.shape[0] > 400 and picture.shape[1] > 600
  assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 50  # cells of many colours
  head, *lines = (output.parent / "x.tsv").read_text().splitlines()
  assert head.split("\t") == ["sentence", "question_word", "word", "plan", "cost", "relevant"]
  assert len(lines) == 3 * (5 + 3)
  rows = [line.split("\t") for line in lines]
  of = [row for row in rows if row[0] == "candidate"]
  np.testing.assert_allclose([float(row[3]) for row in of], candidate.plan.ravel(), atol=1e-6)
  assert [row[1:3] for row in of[:6]] == [["cause", w] for w in candidate.words] + [
    ["melting", "Warm"]
  ]
  assert {row[2] for row in of if row[5] == "1"} == {
    w for w, relevant in zip(candidate.words, candidate.relevant) if relevant
  }
  edges = [line.split("\t") for line in (output.parent / "x.edges.tsv").read_text().splitlines()]
  assert edges[0] == ["", "candidate", "previous", "next"]
  np.testing.assert_allclose(
    [[float(x) for x in row[1:]] for row in edges[1:]], view.edges, atol=1e-6
  )

  assert app.run(["explain", f"{folder / 'mean'}", *arguments, "--format=text"]) == 0
  assert "every word" in capsys.readouterr().out
  lines = (output.parent / "x.tsv").read_text().splitlines()[1:]
  assert all(line.endswith("\t1") for line in lines)


def test_what_is_refused(folder, tmp_path, capsys, request):
  other = flags.load(f"{request.config.rootpath}/configs/wikiqa_loct.py:sample")
  for name, job_config in (("loct", other), ("begun", tiny.config("triplet"))):
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(job_config.to_json())
  (tmp_path / "bare").mkdir()
  shutil.copy(folder / "context" / "config.json", tmp_path / "bare")
  run, joint = f"{folder / 'context'}", f"{folder / 'joint'}"
  png, texts = (
    f"--output={tmp_path / 'x.png'}",
    ["--text-question=a cat", "--text-candidate=the mat"],
  )
  for arguments, message in [
    ([f"{tmp_path / 'zebra'}", *texts, png], "zebra holds no run"),
    ([f"{tmp_path / 'bare'}", *texts, png], "document_frequency.json"),
    ([run, *texts, "--output=x.jpg"], "ends in .png"),
    ([run, *texts, png, "--seed=1"], "seed = 1: the run has 0"),
    ([run, "--text-question=a", png], "give --text-question and --text-candidate"),
    ([run, *texts, "--question-id=Q1", png], "give --text-question and --text-candidate"),
    ([run, "--question-id=Q1", "--previous=a", png], "give --text-question and --text-candidate"),
    ([run, "--text-question= ", "--text-candidate=a", png], "--text-question is empty"),
    ([run, *texts, "--text-candidate=twice", png], "given 2 times; the run reads 1"),
    ([joint, *texts, "--next=b", png], "reads no context"),
    ([joint, *texts, *["--text-candidate=more"] * 3, png], "given 4 times; the run reads 3"),
    ([joint, "--question-id=zebra", "--candidate-id=C", png], "no such question"),
    ([run, "--question-id=zebra", png], "no such question in its split 'test'"),
    ([run, "--question-id=zebra", "--split=none", png], "has no split 'none'"),
  ]:
    assert app.run(["explain", *arguments]) == 2, arguments
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out, captured.err
  for path, model in ((tmp_path / "loct", "loct"), (folder / "bm25", "bm25")):
    with pytest.raises(InputError, match=f"a run of {model}, which aligns no words"):
      alignment_picture.make(path, tmp_path / "x.png", question="a cat", candidate=["the mat"])
  test = dataset.load("sample").splits["test"][0]
  for arguments, message in [
    ([run, "--candidate-id=zebra"], f"question {test.id} has {test.candidates[0].id}"),
    ([joint, "--candidate-id=zebra"], "reads the best 3 candidates together"),
  ]:
    assert app.run(["explain", *arguments, f"--question-id={test.id}", png]) == 2
    assert message in capsys.readouterr().err
  assert not (tmp_path / "x.png").exists()
