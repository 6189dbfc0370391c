"""The renderer of tables: five forms of the same rows, and nothing in a cell is markup."""

import csv
import io

import pytest

from as2jax.evaluation.tables import render

CELLS = [["", "mean", ""], ["a|b_*", "0.1 ± 0.2", None], ["<i>", "0.71", "x"]]
FORMS = {
  "text": "            mean\na|b_*  0.1 ± 0.2\n<i>         0.71  x",
  "markdown": "|  | mean |  |\n| --- | ---: | ---: |\n| a\\|b\\_\\* | **0.1 ± 0.2** |  |\n"
  "| \\<i\\> | 0.71 | x |",
  "csv": ",mean,\na|b_*,0.1 ± 0.2,\n<i>,0.71,x",
}


@pytest.mark.parametrize("form", FORMS)
def test_cells_in_each_form(form):
  assert render(CELLS, form, bold={(0, 1)}) == FORMS[form]


def test_latex_escapes_what_is_markup_and_has_booktabs():
  text = render(CELLS, "latex", left=1, caption="5 % of a_b", bold={(0, 1)})
  assert r"\begin{tabular}{lrr}" in text and r"\caption{5 \% of a\_b}" in text
  assert r"a|b\_* & \textbf{0.1 $\pm$ 0.2} &  \\" in text
  assert text.count(r"\\") == 3 and r"\midrule" in text


def test_html_escapes_what_is_markup():
  text = render(CELLS, "html", caption="a < b", bold={(0, 1)})
  assert '<tr><th scope="row">&lt;i&gt;</th><td class="n">0.71</td>' in text
  assert "<b>0.1 ± 0.2</b>" in text and "<caption>a &lt; b</caption>" in text and "<i>" not in text


def test_csv_gives_every_digit_and_text_back():
  rows = [{"x": 0.1 + 0.2, "said": 'a "b",\nc'}]
  (read,) = csv.DictReader(io.StringIO(render(rows, "csv")))
  assert float(read["x"]) == 0.1 + 0.2 and read["said"] == 'a "b",\nc'
