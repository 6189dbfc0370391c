"""Curves of training: every seed, the best marked, seconds that are summed from steps."""

import dataclasses

import numpy as np
import pytest

from as2jax.evaluation.run_scores import RunScores
from as2jax.report import axes, curves, verdict
from as2jax.report.asked import Asked
from as2jax.report.runs import Runs, System


def system(label="x"):
  rows, metric = [], "map[d-clean/dev]"
  for seed in (0, 1):
    rows.append({"seed": seed, "step": 0, "epoch": 0, metric: 0.2})
    for epoch, (step, seconds) in enumerate(((10, 0.5), (30, 0.25)), 1):
      rows.append({"seed": seed, "step": step, "loss": 9.0 / step, "seconds_per_step": seconds})
      rows.append(
        {"seed": seed, "step": step, "epoch": epoch, metric: 0.5 - 0.1 * epoch, "kl": step}
      )
  content = {
    "selected_on": "map, dev, clean",
    "data": {"name": "d"},
    "seeds": [{"seed": seed, "best_step": 10, "steps": 30} for seed in (0, 1)],
  }
  scores = RunScores(label, "d-clean/test", ("Q1",), {"map": np.ones((2, 1))})
  return System(label, label, scores, content, {}, tuple(rows))


def test_every_seed_has_its_curve_with_the_best_marked():
  figures = curves.drawings(Runs((system(),), "test", {}, (), ""))
  assert set(figures) == {
    "dev-step", "dev-seconds", "loss-step", "loss-seconds", "curve-kl", "curve-throughput"
  }  # fmt: skip
  dev = figures["dev-step"]
  lines = [s for s in dev.shapes if s.tag == "polyline" and s.attributes["class"] == "d-c0"]
  rings = [s for s in dev.shapes if s.tag == "circle"]
  assert len(lines) == len(rings) == 2
  assert rings[0].tip == "x, seed 0, best: 0.4000"
  middle = lines[0].attributes["points"].split()[1]
  assert f"{rings[0].attributes['cx']},{rings[0].attributes['cy']}" == middle


def test_runs_that_other_metrics_select_are_not_said_to_share_one():
  first, second = system("x"), system("y")
  second.content["selected_on"] = "mrr, dev, clean"
  runs = Runs((first, second), "test", {}, (), "")
  titles = lambda runs: {figure.title for figure in curves.drawings(runs).values()}
  assert "map[d-clean/dev] by step" in titles(Runs((first,), "test", {}, (), ""))
  assert "each run's selecting metric by step" in titles(runs)
  content = {"ties": "by position", "task": "rerank"}
  for one in (first, second):
    one.content.update(content)
  said = verdict.protocol(runs, {"metric": "map[d-clean/test]"})
  assert "was chosen by map, dev, clean (x) and mrr, dev, clean (y); ±" in said


def test_what_has_no_config_is_not_trained_again():
  trained, evaluated = system("runs/x"), system("runs/x/evaluations/y")
  trained = dataclasses.replace(trained, config={"model": {"name": "triplet"}})
  names = [trained.name, evaluated.name]
  lines = Asked(names, "x.html").commands(Runs((trained, evaluated), "test", {}, (), ""), ("map",))
  assert [line for line in lines if " train " in line] == [
    "as2jax train rerun:runs/x/config.json -o runs/x-again"
  ]


def test_seconds_are_those_of_steps():
  (curve, _) = curves._curves(0, system(), "loss", "seconds")
  assert curve.x == pytest.approx((10 * 0.5, 10 * 0.5 + 20 * 0.25))
  (curve, _) = curves._selected(0, system(), "seconds")
  assert curve.x == pytest.approx((0.0, 5.0, 10.0)) and curve.best == pytest.approx(5.0)


def test_long_curves_are_thinned_to_means():
  points = [(float(n), float(n % 2)) for n in range(1000)]
  thin = curves._thinned(points)
  assert len(thin) <= curves.MOST
  assert np.mean([x for x, _ in thin]) == pytest.approx(499.5, abs=1.5)


@pytest.mark.parametrize(
  "low, high, expected",
  [(0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.0, 0.0, [0.0]), (-3.0, 7.0, [-2, 0, 2, 4, 6])],
)
def test_ticks_are_round_and_within(low, high, expected):
  assert axes.ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
  "low, high",
  [(9.9e-4, 9.9001e-4), (0.9, 0.90001), (1e5, 1e5 + 3), (0, 1), (-2e-9, 3e-9), (123456, 123457)],
)
def test_no_two_ticks_have_one_label(low, high):
  values = axes.ticks(low, high)
  said = axes.labels(values)
  assert len(set(said)) == len(values) > 2
  numbers = [float(text.replace("−", "-")) for text in said]
  assert numbers == pytest.approx(values, abs=(high - low) / 50)


@pytest.mark.parametrize(
  "value, text", [(0.0, "0"), (0.25, "0.25"), (-2.0, "−2"), (2e-5, "2e−5"), (1.5e6, "1.5e6")]
)
def test_labels(value, text):
  assert axes.label(value) == text
