"""Fused rankings: by hand, their weights and cross-fitted gain, a folder that `compare` reads."""

import itertools
import json
import shutil

import numpy as np
import pytest
from etils import epath

from as2jax.commands import app
from as2jax.data.datasets import trec_files
from as2jax.evaluation import metrics, run_scores
from as2jax.experiments import fuse
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError


def test_scores_of_a_question_are_standardised():
  np.testing.assert_allclose(fuse.standardised(np.asarray([1.0, 3.0], np.float32)), [-1, 1])
  assert not fuse.standardised(np.full(3, 0.1, np.float32)).any() and not len(fuse.standardised([]))


def test_weights_are_tenths_of_sum_one_and_the_even_ones_come_first():
  weights = fuse.grid(2)
  assert len(weights) == 11 and weights[0] == (0.5, 0.5) and (1.0, 0.0) in weights[-2:]
  assert len(fuse.grid(3)) == 66 and all(sum(w) == pytest.approx(1) for w in fuse.grid(3))
  every = [w for w in itertools.product(np.arange(11) / 10, repeat=3) if sum(w) == pytest.approx(1)]
  assert sorted(fuse.grid(3)) == sorted(every)
  assert len(set(fuse.grid(fuse.MOST))) == 19_448  # in a second


def oracle(source, folder):
  """A copy of a run whose scores put all right candidates first in half of the questions."""
  shutil.copytree(source, folder)
  for split in ("dev", "test"):
    place = folder / "eval" / split
    right, run = (
      trec_files.read_qrels(place / "qrels.trec"),
      trec_files.read_run(place / "run.trec"),
    )
    rows = [
      [
        float(right[q][c] if i % 2 == 0 else -right[q][c]) * 100 + k / 1000
        for k, c in enumerate(its)
      ]
      for i, (q, its) in enumerate(run.items())
    ]
    trec_files.write_run(
      place / "run.trec",
      list(run),
      [list(x) for x in run.values()],
      [np.asarray(row, np.float32) for row in rows],
      "x",
    )
  return str(folder)


def test_a_fused_run_is_the_weighted_sum_and_compare_reads_it(finished_run, tmp_path, capsys):
  first = str(finished_run("word_overlap"))
  second = oracle(first, tmp_path / "half-right")
  out = tmp_path / "fused"
  assert app.run(["lab", "fuse", first, second, "-o", str(out)]) == 0
  printed = capsys.readouterr().out
  content = json.loads((out / fuse.CARD).read_text())
  assert content["selecting"] == "dev" and sum(content["weights"].values()) == pytest.approx(1)
  assert f"{content['fused_cross_fitted']:.4f} (cross-fitted over 5 folds)" in printed
  weights = list(content["weights"].values())
  runs = [trec_files.read_run(f"{name}/eval/test/run.trec") for name in (first, second, str(out))]
  for question, ranked in runs[2].items():
    ids = list(ranked)
    parts = [np.asarray([run[question][c] for c in ids], np.float32) for run in runs[:2]]
    wanted = sum(w * fuse.standardised(x) for w, x in zip(weights, parts, strict=True))
    np.testing.assert_allclose(list(ranked.values()), wanted, atol=1e-6)
  assert app.run(["compare", first, str(out)]) == 0
  for names in ([first, str(out)], [str(out)]):  # a fused run has no model to explain
    page = tmp_path / f"{len(names)}.html"
    assert app.run(["report", *names, "-o", str(page)]) == 0
    assert 'id="systems"' in page.read_text()
  (scores,) = run_scores.load([str(out)])
  assert scores.deterministic and scores.title("map") == "map[sample-clean/test]"


def test_the_gain_is_measured_on_questions_that_did_not_choose(finished_run, tmp_path):
  """By brute force over the folds, with the metric's own function."""
  first = str(finished_run("word_overlap"))
  second = oracle(first, tmp_path / "half-right")
  content = fuse.fuse([first, second], tmp_path / "fused")
  questions = [q for q in fuse.load_dataset(Run(first).config.data).splits["dev"] if q.positives]
  files = [trec_files.read_run(f"{name}/eval/dev/run.trec") for name in (first, second)]

  def value(question, w):
    ids = [c.id for c in question.candidates]
    parts = [np.asarray([f[question.id][i] for i in ids], np.float32) for f in files]
    a, b = map(fuse.standardised, parts)
    labels = [np.asarray([c.label for c in question.candidates])]
    score = np.asarray(w[0] * a + w[1] * b, np.float32)
    return metrics.per_question([score], labels, [ids], ties="expected", names=[question.id])[
      "map"
    ][0]

  fused, best = [], []
  for fold in range(fuse.FOLDS):
    others = [q for q in questions if fuse.fold_of(q, fuse.FOLDS) != fold]
    mean = lambda w: np.mean([value(q, w) for q in others])
    chosen, alone = max(fuse.grid(2), key=mean), max([(1.0, 0.0), (0.0, 1.0)], key=mean)
    here = [q for q in questions if fuse.fold_of(q, fuse.FOLDS) == fold]
    fused += [value(q, chosen) for q in here]
    best += [value(q, alone) for q in here]
  assert content["fused_cross_fitted"] == pytest.approx(np.mean(fused))
  assert content["gain"] == pytest.approx(np.mean(fused) - np.mean(best))
  assert list(content["map"].values())[0] == pytest.approx(
    np.mean([value(q, (1.0, 0.0)) for q in questions])
  )


def trained(source, folder, seeds):
  """A copy of a run without randomness, as if each seed had been trained and come to the same."""
  shutil.copytree(source, folder)
  config = json.loads((folder / "config.json").read_text()) | {"seeds": seeds}
  (folder / "config.json").write_text(json.dumps(config))
  content = json.loads((folder / "results.json").read_text()) | {"deterministic": False}
  content["seeds"] = [content["seeds"][0] | {"seed": seed} for seed in seeds]
  content["weights"] = {"pretrained": folder.name}
  content["warm_start"] = {"data": "x", "seeds": [{"sha256": f"{folder.name}"} for _ in seeds]}
  (folder / "results.json").write_text(json.dumps(content))
  for split in ("dev", "test"):
    files = list((folder / "eval" / split).iterdir())
    for seed in seeds:
      (folder / "eval" / split / f"seed-{seed}").mkdir()
      for file in files:
        shutil.copy(file, folder / "eval" / split / f"seed-{seed}")
  return str(folder)


def test_seed_goes_with_seed_and_a_fixed_run_with_every_seed(finished_run, tmp_path):
  fixed = str(finished_run("bm25"))
  first = trained(finished_run("word_overlap"), tmp_path / "a", [0, 1, 2])
  second = trained(finished_run("word_overlap"), tmp_path / "b", [1, 2, 3])
  content = fuse.fuse([first, fixed, second], tmp_path / "fused")
  assert set(content["weights"]) == {first, fixed, second}
  (scores,) = run_scores.load([str(tmp_path / "fused")])
  assert not scores.deterministic and scores.metric("map").shape[0] == 2  # seeds 1 and 2
  assert scores.shared_stage  # each run's seeds began with the same parameters
  assert {f"pretraining of {name}: unknown" for name in "ab"} < set(scores.pretraining)
  other = trained(finished_run("word_overlap"), tmp_path / "c", [7, 8])
  with pytest.raises(InputError, match="have no seed in common"):
    fuse.fuse([first, other], tmp_path / "never")


def test_labels_that_have_changed_since_are_not_used(finished_run, tmp_path):
  first = tmp_path / "first"
  shutil.copytree(finished_run("word_overlap"), first)
  second = oracle(first, tmp_path / "second")
  for folder in (first, second):  # both runs, so that they can be compared
    content = json.loads((epath.Path(folder) / "results.json").read_text())
    content["data"]["splits"]["dev"]["fingerprint"] = "0" * 64
    (epath.Path(folder) / "results.json").write_text(json.dumps(content))
  with pytest.raises(InputError, match="first: the dev questions or labels of sample have changed"):
    fuse.fuse([str(first), second], tmp_path / "fused")


def test_what_cannot_be_fused(finished_run, tmp_path):
  run = str(finished_run("bm25"))
  for folders, message in (
    ([run], "give two runs or more"),
    ([run, run], "each once"),
    ([f"{run}-{i}" for i in range(9)], "9 runs: at most 8 are fused"),
    ([run, str(tmp_path / "none")], "none holds no run"),
  ):
    with pytest.raises(InputError, match=message):
      fuse.fuse(folders, tmp_path / "fused")
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "x").touch()
  with pytest.raises(InputError, match="is not empty"):
    fuse.fuse([run, str(finished_run("word_overlap"))], tmp_path / "full")
  assert not (tmp_path / "fused").exists()
