"""Tables of a comparison in every form, and the files of a page."""

import csv
import io
import json
import shutil
import subprocess
import xml.etree.ElementTree as tree

import pytest

from as2jax.commands import app
from as2jax.report import make, tables

ROWS = [
  {"system": "runs/a_b", "metric": "map[x-clean/test]", "mean": 0.5, "half_width": 0.04},
  {
    "system": "100 % & #1",
    "metric": "map[x-clean/test]",
    "mean": 0.6,
    "half_width": None,
    "p_randomization": 0.001,
    "p_randomization_holm": 0.03,
    "p_methods": 0.04,
  },
]
ROWS = [{"questions": 54, "seeds": 1, "sd": None, "note": "", **row} for row in ROWS]


def test_marks_follow_the_adjusted_p():
  assert tables.marks(ROWS[0]) == ""
  assert tables.marks(ROWS[1]) == "†*"
  assert tables.marks({"p_randomization": 0.001, "p_methods": None}) == "‡"
  assert tables.marks({"p_randomization": 0.05, "p_methods": 0.05}) == ""


def test_markdown():
  lines = tables.written(ROWS, "markdown").splitlines()
  assert lines[0] == "x-clean/test, 54 questions"
  assert lines[2:6] == [
    "| system | MAP |",
    "| --- | ---: |",
    "| runs/a\\_b | 0.500 ± 0.040 |",
    "| 100 % & #1 | **0.600**†\\* |",
  ]
  assert "Holm-adjusted" in lines[-1]
  alone = [ROWS[0], {**ROWS[1], "p_randomization_holm": 0.001}]  # of two systems: nothing to adjust
  assert "Holm" not in tables.written(alone, "markdown")


def test_latex_is_booktabs_with_everything_escaped(tmp_path):
  text = tables.written(ROWS, "latex")
  assert r"runs/a\_b & 0.500 $\pm$ 0.040 \\" in text
  assert r"100 \% \& \#1 & \textbf{0.600}$^{\dagger}$* \\" in text
  for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\usepackage{booktabs}"):
    assert text.count(rule) == 1
  assert tables.escaped("\\~^{}$") == (r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}\$")
  if shutil.which("pdflatex"):
    source = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + text
    (tmp_path / "x.tex").write_text(source + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "x.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_the_command_prints_each_form(finished_run, capsys):
  runs = [str(finished_run(name)) for name in ("bm25", "word_overlap")]
  printed = {}
  for form in ("markdown", "latex", "csv", "json"):
    assert app.run(["compare", *runs, f"--format={form}", "--metrics=map"]) == 0
    printed[form] = capsys.readouterr().out
  means = [json.loads(line)["mean"] for line in printed["json"].splitlines()]
  assert [float(row["mean"]) for row in csv.DictReader(io.StringIO(printed["csv"]))] == means
  for mean in means:
    assert f"{mean:.3f}" in printed["markdown"] and f"{mean:.3f}" in printed["latex"]
  assert app.run(["compare", runs[0], "vs", runs[1], "--format=latex"]) == 2
  assert "for systems on one data set" in capsys.readouterr().err


def test_a_page_leaves_its_figures_and_tables_as_files(finished_run, tmp_path, capsys):
  pytest.importorskip("matplotlib")
  runs = [str(finished_run(name)) for name in ("bm25", "triplet")]
  folder = tmp_path / "files"
  assert (
    app.run(["report", *runs, "-o", str(tmp_path / "x.html"), f"--files={folder}", "--explain=0"])
    == 0
  )
  names = {path.name for path in folder.iterdir()}
  figures = {name.removesuffix(".svg") for name in names if name.endswith(".svg")}
  assert {"forest", "dev-step", "loss-step", "waterfall-1"} <= figures
  assert names == {f"{one}{suffix}" for one in figures for suffix in (".svg", ".pdf")} | {
    f"systems{suffix}" for suffix in tables.FORMS.values()
  }
  shown = (tmp_path / "x.html").read_text()
  assert figures == set(part.split('"')[0] for part in shown.split('data-figure="')[1:])
  for name in figures:
    assert tree.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")
    pdf = (folder / f"{name}.pdf").read_bytes()
    assert b"/Font" in pdf and b"/Subtype /Image" not in pdf
  rows = json.loads((folder / "systems.json").read_text())
  assert {row["metric"].partition("[")[0] for row in rows} == set(make.METRICS["rerank"])
