"""What rankers keep of documents: against plain loops over questions, and of run files as of the run that wrote them."""

import pathlib

import numpy as np
import pytest

from as2jax.commands import app
from as2jax.evaluation.calibration import Calibration, Candidates
from as2jax.experiments import pruning


def made(seed, cls=Candidates, questions=40):
  """Questions of up to 8 candidates with coarse scores; a third of the questions has no right one."""
  rng = np.random.default_rng(seed)
  question = np.repeat(np.arange(questions), rng.integers(1, 9, questions))
  right = (rng.random(len(question)) < 0.3) & (question % 3 > 0)
  score = np.round(rng.normal(size=len(question)) + 1.5 * right, 1)
  return cls(score, right.astype(np.float64), question, question // 4)


def test_measures_are_those_of_loops_over_questions():
  dev, test = made(0, Calibration), made(1)
  kept = right = kept_right = answers = answerable = told = told_right = 0.0
  best = {}
  for q in np.unique(dev.question):
    ranked = dev.question == q
    first = ranked & (dev.score == dev.score[ranked].max())
    best[dev.score[ranked].max(), q] = dev.right[first].mean()
  due = len(set(dev.question[dev.right > 0]))
  f1 = {}
  for least, _ in best:
    answered = [of for (score, _), of in best.items() if score >= least]
    f1[least] = 2 * sum(answered) / (len(answered) + due)
  least = max(f1, key=f1.__getitem__)
  for q in np.unique(test.question):
    ranked = [(s, r) for s, r, of in zip(test.score, test.right, test.question) if of == q]
    kept += sum(s >= dev.threshold() for s, _ in ranked)
    right += sum(r for _, r in ranked)
    kept_right += sum(r for s, r in ranked if s >= dev.threshold())
    answerable += any(r for _, r in ranked)
    answers += any(r and s >= dev.threshold() for s, r in ranked)
    top = max(s for s, _ in ranked)
    if top >= least:
      told += 1
      told_right += np.mean([r for s, r in ranked if s == top])
  actual = {name: a.sum() / b.sum() for name, (a, b) in pruning.ratios(dev, test).items()}
  assert actual == pytest.approx(
    {
      "precision": kept_right / kept,
      "recall": kept_right / right,
      "F1": 2 * kept_right / (kept + right),
      "kept": kept / len(test.score),
      "answers": answers / answerable,
      "triggering": 2 * told_right / (told + answerable),
    }
  )


def test_the_curve_passes_through_what_each_threshold_keeps():
  test = made(2)
  for least in np.unique(test.score):
    kept = test.score >= least
    answers = len(set(test.question[kept & (test.right > 0)]))
    share = answers / len(set(test.question[test.right > 0]))
    assert pruning.curve(test, [kept.mean()]) == pytest.approx([share])


def test_run_files_have_the_figures_of_the_run_that_wrote_them(finished_run, tmp_path, capsys):
  run, less = finished_run("bm25"), tmp_path / "less.run"
  dev, test = (f"{run}/eval/{split}/run.trec" for split in ("dev", "test"))
  asked = ["lab", "pruning", f"Ours={run}", "--format=csv"]
  assert app.run([*asked, f"Theirs={dev},{test}"]) == 0
  head, ours, theirs = capsys.readouterr().out.splitlines()
  assert head.startswith("system,seeds,precision") and theirs == ours.replace("Ours", "Theirs")
  assert app.run(["lab", "pruning", f"Ours={run}", "--format=json"]) == 0
  assert capsys.readouterr().out.startswith('{"system": "Ours", "seeds": "1", "precision": ')
  assert (
    app.run([*asked, "--split=dev"]) == 2 and "measure another split" in capsys.readouterr().err
  )
  less.write_text(pathlib.Path(test).read_text().partition("\n")[2])
  assert app.run([*asked, f"{dev},{less}"]) == 2
  assert f"{less} does not rank candidate" in capsys.readouterr().err
  for wrong, said in (
    (finished_run("triplet"), "runs that evaluate both"),
    (tmp_path, "is no finished run"),
  ):
    assert app.run([*asked, str(wrong)]) == 2 and said in capsys.readouterr().err
