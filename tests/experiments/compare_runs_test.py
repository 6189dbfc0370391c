"""Finished runs side by side."""

import pytest

from as2jax.commands import app
from as2jax.experiments import compare_runs
from as2jax.experiments.papers import collected
from as2jax.runtime.errors import InputError


@pytest.fixture(scope="module")
def runs(finished_run):
  """The folder of finished runs, two of which are compared."""
  first, second = (finished_run(name) for name in ("word_overlap", "bm25"))
  assert first.parent == second.parent
  return first.parent


def test_the_second_is_tested_against_the_first(runs):
  title, _, base, other = compare_runs.table(
    [str(runs / n) for n in ("word_overlap", "bm25")]
  ).splitlines()
  assert title.startswith("map[sample-clean/test]: ") and "questions" in title
  name, *values = base.split()
  assert name == "word_overlap" and len(values) == 3
  name, *values = other.split()
  assert name == "bm25" and "±" in values and "(p" in values
  difference = float(values[0]) - float(base.split()[1])
  assert float(values[3]) == pytest.approx(difference, abs=0.0011)


def test_what_the_encoders_have_seen_is_said(finished_run):
  names = [str(finished_run(name)) for name in ("bm25", "triplet")]
  *_, last = compare_runs.table(names).splitlines()
  assert last.startswith("pretraining of ") and last.endswith(": unknown")  # a folder of the tests


def test_runs_over_a_pool_have_their_own_metrics():
  with collected.unpacked(collected.folder(), "squad-parts-*") as rows:
    places = [str(rows / f"squad-parts-{name}") for name in ("bm25", "mean")]
    title, head, base, other = compare_runs.table(places).splitlines()[:4]
  assert title.startswith("mrr[squad_parts-gold/test]: 7022 questions")
  assert head.split() == ["MRR", "R@1", "R@5", "MRR", "−", "squad-parts-bm25"]
  assert base.split()[:2] == ["squad-parts-bm25", "0.697"] and "-0.024" in other


def test_what_cannot_be_compared(runs, capsys):
  with pytest.raises(InputError, match="zebra holds no results.json"):
    compare_runs.table([str(runs / "bm25"), str(runs / "zebra")])
  with pytest.raises(InputError, match="was not evaluated on train, only on dev, test"):
    compare_runs.table([str(runs / "bm25")], split="train")
  brief = ["compare", "--brief", str(runs / "bm25"), str(runs / "word_overlap")]
  for option in ("--metrics=map", "--filter=all", "--format=json", "--samples=9", "--seed=1"):
    assert app.run([*brief, option]) == 2
    assert f"--brief takes no {option.partition('=')[0]}" in capsys.readouterr().err
  assert app.run(["compare", "--brief", str(runs / "zebra")]) == 2
  assert capsys.readouterr().err.startswith("as2jax: ")
