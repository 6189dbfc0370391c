"""The notebooks run from the wheel in an empty folder: their code in order, in one namespace of a fresh process."""

import json
import pathlib

import pytest

pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "launch" / "notebooks"
# What Jupyter does without its packages: the last expression of a cell is shown. Then the checks are made.
PROGRAM = """
import ast, json, sys
shown, names = [], {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
  if cell["cell_type"] != "code":
    continue
  tree = ast.parse("".join(cell["source"]))
  last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
  exec(compile(tree, f"cell {number}", "exec"), names)
  if last is not None:
    value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    shown.append(getattr(value, "_repr_html_", value.__repr__)())
names["shown"] = shown
exec(sys.argv[2], names)
"""
CHECKS = {
  "faq": """
right = "Open the settings, choose security, and press reset."
assert hits[0].text == right and [hit["text"] for hit in found["results"]] == [hit.text for hit in hits]
assert answers[ranked["results"][0]["index"]] == right and len(ranked["results"]) == 3
assert [one.text for one in selection.sentences] == ["Our shop stands beside the town hall."]
assert "mrr[files-gold/heldout]" in shown[0] and service.returncode == -15
""",
  "own_model": """
rows = {(row["metric"].split("[")[0], row["system"]): row for row in comparison.rows}
assert {key[1] for key in rows} == {"BM25", "untrained", "ours"}
assert len(mine.seeds) == 3 and "p_methods" in rows["map", "ours"] and "<table" in shown[1]
assert r"\\begin{tabular}" in comparison.to_latex() and "ours" in comparison.to_latex()
assert [hit.text for hit in hits][0] == "A cave is formed within the ice."
assert "my_ranker:WeightedCosine" in str(mine.config)
""",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_runs_from_the_first_cell_to_the_last(installed, name):
  path = FOLDER / f"{name}.ipynb"
  for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
    assert not cell.get("outputs") and cell.get("execution_count") is None, "clear its outputs"
  installed("-c", PROGRAM, str(path), CHECKS[name])
