"""The page of many runs: points, the choice, published figures, and the ledger of test."""

import page_cases

from as2jax.report import many

MARKS = [
  many.Mark("base", 0.5, 0.05),
  many.Mark("rate=<1e-5>", 0.6, None, 0.7, chosen=True),
  many.Mark("not run", None),
]


def page(marks=MARKS):
  return many.make(
    "Sweep <x>",
    "a heading",
    result=["result: rate=<1e-5>, chosen by MAP on dev", "map[x-clean/test] 0.6"],
    marks=marks,
    axis="MAP on dev",
    cells=[["", "", "MAP"], ["*", "rate=<1e-5>", "0.6000"]],
    left=2,
    ledger=[["run", "folder", "times"], ["rate=<1e-5>, seed 0", "abc", "2"]],
    notes=["a note"],
  )


def test_it_names_the_choice_and_counts_who_looked_at_test():
  shown = page_cases.Page(page())
  assert [a["id"] for a, _ in shown.of("section")] == ["verdict", "points", "notes", "ledger"]
  assert "chosen by MAP on dev" in shown.of("p", **{"class": "verdict"})[0][1]
  cells = [text for tag in ("th", "td") for _, text in shown.of(tag)]
  assert {"rate=<1e-5>, seed 0", "2", "0.6000"} <= set(cells)
  assert not shown.of("1e-5") and shown.of("title")[0][1] == "Sweep <x>"


def test_the_figure_has_ours_and_the_published():
  figure = many.drawing(MARKS, "MAP on dev")
  circles = [s.attributes["class"] for s in figure.shapes if s.tag == "circle"]
  assert circles == ["f-c0", "f-c1", "h-muted"]
  assert [s.text for s in figure.shapes if "published" in s.text] == ["0.600; published 0.700"]
  drawn = many.drawing([many.Mark("gain", 12.34, 1.0, -0.7), many.Mark("a", 0.83)], "x")
  assert {"12.3 ± 1.0; published −0.700", "0.830"} <= {s.text for s in drawn.shapes}
  assert not many.drawing([many.Mark("not run", None)], "MAP").shapes
  assert "<svg" not in page([many.Mark("not run", None)])


def test_a_sweep_leaves_its_page(tmp_path):
  from as2jax.experiments.sweeps import sweep

  points = [{}, {"data.rules": ("lowercase",)}]
  assert (
    sweep.sweep(*sweep.planned("wikiqa_baseline:word_overlap,sample", points, str(tmp_path / "s")))
    == 0
  )
  shown = page_cases.Page((tmp_path / "s" / "report.html").read_text())
  assert "chosen by MAP on dev" in shown.of("p", **{"class": "verdict"})[0][1]
  ledger = [text for _, text in shown.of("td", **{"class": "n"})][-2:]
  assert ledger == ["1", "1"]
  names = {path.name for path in (tmp_path / "s").iterdir()}
  assert {f"table.{suffix}" for suffix in ("txt", "md", "tex", "csv", "json")} <= names
