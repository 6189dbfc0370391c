"""Figures: intervals, curves of every seed, axes, colours."""

import dataclasses
import xml.etree.ElementTree as tree

import numpy as np
import pytest

from as2jax.data import card, dataset
from as2jax.data.record import Candidate, Question
from as2jax.evaluation.run_scores import RunScores
from as2jax.report import figures, plots, verdict
from as2jax.report.runs import Runs, System


def shapes(drawing, tag):
  """The elements of a figure of one kind: [(attributes, text, what a pointer is told)]."""
  root = tree.fromstring(drawing.__html__())
  found = []
  for element in root.iter(tag):
    tip = element.find("title")
    found.append((element.attrib, element.text or "", "" if tip is None else tip.text))
  return found


def test_intervals_have_means_and_half_widths():
  marks = [plots.Mark("rate=<1e-5>", 0.6, 0.05, 1), plots.Mark("gain", 0.98, 0.1)]
  drawn = plots.intervals({"": marks, "MRR": [plots.Mark("a", 0.83)]}, "MAP on dev")
  assert [a["class"] for a, *_ in shapes(drawn, "circle")] == ["f-c1", "f-c0", "f-c0"]
  texts = {text for _, text, _ in shapes(drawn, "text")}
  assert {"rate=<1e-5>", "0.600 ± 0.050", "0.980 ± 0.100", "MRR", "0.830"} <= texts
  lines = [a["points"] for a, *_ in shapes(drawn, "polyline") if a["class"] == "d-c0"]
  assert float(lines[0].split()[1].split(",")[0]) == plots.WIDE - plots.EDGE  # the axis ends at 1
  assert "1" in texts and not {"1.05", "1.1", "1.2"} & texts


def system(label="x"):
  rows, metric = [], "map[d-clean/dev]"
  for seed in (0, 1):
    rows.append({"seed": seed, "step": 0, "epoch": 0, metric: 0.2})
    for epoch, (step, seconds) in enumerate(((10, 0.5), (30, 0.25)), 1):
      rows.append({"seed": seed, "step": step, "loss": 9.0 / step, "seconds_per_step": seconds})
      value = 0.5 - 0.1 * epoch
      rows.append({"seed": seed, "step": step, "epoch": epoch, metric: value, "kl": step})
  content = {
    "selected_on": "map, dev, clean",
    "data": {"name": "d"},
    "seeds": [{"seed": n, "best_step": 10, "steps": 30, "best_value": 0.4} for n in (0, 1)],
  }
  scores = RunScores(label, "d-clean/test", ("Q1",), {"map": np.ones((2, 1))})
  return System(label, label, scores, content, {}, tuple(rows))


def test_every_seed_has_its_curve_with_the_best_marked():
  drawn = plots.training(Runs((system(),), "test", {}, (), ""))
  assert set(drawn) == {"curve-selector", "curve-loss", "curve-kl"}
  lines = [a for a, *_ in shapes(drawn["curve-selector"], "polyline") if a["class"] == "d-c0"]
  rings = shapes(drawn["curve-selector"], "circle")
  assert len(lines) == len(rings) == 2
  attributes, _, tip = rings[0]
  assert tip == "x, seed 0, best: 0.4000"
  assert f"{attributes['cx']},{attributes['cy']}" == lines[0]["points"].split()[1]


MEANS = {"a": 0.46, "b": 0.782, "c": 0.7, "d": 0.6, "e": 0.1, "f": 0.3}
# Of models, of methods: b is better, c with other seeds perhaps not, d and e cannot be told, f has one seed.
P = {"b": (0.01, 0.02), "c": (0.01, 0.3), "d": (0.2, 0.4), "e": (0.2, 0.4), "f": (0.01, None)}
TRAINED = "larger than chance between these trained models, and not shown of other seeds"
CHANCE = "these questions cannot tell whether the difference is chance"


def rows(systems, metric, p):
  found = []
  for name in systems:
    models, methods = p.get(name, (None, None))
    row = {"metric": metric, "system": name, "mean": MEANS[name], "p_randomization": models}
    found.append(row | {"p_methods": methods, "methods_note": "one seed" * (methods is None)})
  return found


@pytest.mark.parametrize(
  "systems, metric, by_mrr, said",
  [
    ("ab", "p@1", P, "in 78 of 100 questions, a in 46; the difference is larger than chance."),
    ("ad", "p@1", P, f"d ranks a right answer first in 60 of 100 questions, a in 46; {CHANCE}."),
    ("af", "p@1", P, f"of 100 questions, f in 30; the difference is {TRAINED}."),
    ("ab", "p@1", {"b": (0.5, 0.6)}, f"; the difference is larger than chance; by MRR, {CHANCE}."),
    ("ab", "map", P, "b has MAP 78 %, a 46 %; the difference is larger than chance."),
    ("b", "p@1", P, "; its MAP on dev was 0.200 before training and is 0.400 at its best."),
    (
      "abcde",
      "p@1",
      P,
      "c in 70, d in 60, a in 46, e in 10; the difference of b from a is larger than chance; the difference of "
      f"c from a is {TRAINED}; these "
      "questions cannot tell whether the difference of d and of e from a is chance.",
    ),
  ],
)
def test_the_verdict_is_one_plain_sentence(systems, metric, by_mrr, said):
  runs = Runs(tuple(map(system, systems)), "test", {}, (), "")
  measured = rows(systems, f"{metric}[d-clean/test]", P)
  assert verdict.plain(runs, measured, rows(systems, "mrr[d-clean/test]", by_mrr)).endswith(said)


def test_code_of_ones_own_is_no_other_version_of_ours_and_data_are_doubted_as_in_their_card():
  def caveats(record={}, **identity):
    own = dataclasses.replace(system("own"), config={"model": {"name": "mine:Bag"}})
    own.content["identity"] = {"code": "ours and mine", **identity}
    ours = system("ours")
    ours.content["identity"] = {"code": "ours"}
    for one in (own, ours):
      one.content["seeds"] = ()
    same = {"seeds": 2, "note": "", "groups_note": "", "metric": "map[d]"}
    return verdict.caveats(Runs((own, ours), "dev", record, (), ""), [same, same])

  assert caveats() == caveats(package="ours") == []  # runs of before do not tell the two apart
  assert caveats(package="older") == ["the runs were made by different versions of the code"]
  twice = Question("q", "who", (Candidate("a", "Ann", 1), Candidate("b", "Ann", 0)))
  mine = card.data_card(dataset.of_questions("mine", {"dev": (twice,)}, "mine.csv"))
  assert "labelled both 0 and 1" in caveats(mine, package="ours")[0]
  for split in mine["splits"].values():  # as results of earlier versions have it
    del split["contradictory_pairs"], split["content"]
  del mine["missing"]
  assert [line for line in caveats(mine, package="ours") if "repeat" not in line] == []


def test_runs_that_other_metrics_select_are_not_said_to_share_one():
  first, second = system("x"), system("y")
  for one, metric in ((first, "map"), (second, "mrr")):
    one.content.update(selected_on=f"{metric}, dev, clean", ties="by position", task="rerank")
  runs = Runs((first, second), "test", {}, (), "")
  said = verdict.protocol(runs, {"metric": "map[d-clean/test]"})
  assert "was chosen by map, dev, clean (x) and mrr, dev, clean (y); ±" in said


@pytest.mark.parametrize(
  "low, high",
  [(9.9e-4, 9.9001e-4), (0.9, 0.90001), (1e5, 1e5 + 3), (0, 1), (-2e-9, 3e-9), (123456, 123457)],
)
def test_no_two_ticks_have_one_label(low, high):
  values = figures.ticks(low, high)
  said = figures.labels(values)
  assert len(set(said)) == len(values) > 2
  numbers = [float(text.replace("−", "-")) for text in said]
  assert numbers == pytest.approx(values, abs=(high - low) / 50)


def test_texts_of_a_figure_stay_texts():
  drawn = figures.Drawing(120, 60, 'a <b> & "c"')
  drawn.text(4, 30, "words & <i>", turn=30, anchor="end", bold=True)
  drawn.circle(5, 5, 2, "c1", hollow=True, tip="<script>")
  drawn.squares([(1, 2), (7.5, 2)], 4, "c1", opacity=0.25)
  root = tree.fromstring(drawn.__html__())
  assert root.attrib["aria-label"] == 'a <b> & "c"' and root.find("text").text == "words & <i>"
  assert root.find("circle/title").text == "<script>"
  assert root.find("path").attrib["d"] == "M1 2h4v4h-4zM7.5 2h4v4h-4z"


def test_colours_can_be_read_in_both_themes():
  def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

  for theme in (0, 1):
    ink, paper, first = (figures.COLOURS[name][theme] for name in ("ink", "paper", "c0"))
    behind = "#"  # a sentence whose probability is 1
    for at in (1, 3, 5):
      mixed = [int(colour[at : at + 2], 16) for colour in (first, paper)]
      behind += f"{np.dot(mixed, [figures.DARKEST, 100 - figures.DARKEST]) // 100:02x}"
    low, high = sorted((luminance(ink), luminance(behind)))
    assert (high + 0.05) / (low + 0.05) >= 4.5 and figures.DARKEST >= 40
    paper = luminance(paper)
    for name, pair in figures.COLOURS.items():
      if name not in ("paper", "grid"):
        low, high = sorted((paper, luminance(pair[theme])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (name, theme)
