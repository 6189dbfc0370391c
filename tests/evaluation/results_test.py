"""Results: means over seeds with their half-width, notes, the ledger, what a run says at its end, tables."""

import json
import logging

import numpy as np
import pytest

from as2jax.config.base import get_config
from as2jax.data.dataset import Dataset
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import results, significance
from as2jax.evaluation.results import Evaluation, Outcome
from as2jax.evaluation.tables import render
from as2jax.runtime.errors import InputError

TITLE = "map[x-clean/test]"
VALUES = np.asarray([[0.2, 0.9, 1.0, 0.4], [0.6, 0.1, 1.0, 0.0]])


def outcomes():
  """Two seeds whose values of one question lie far apart, with a metric that has no question's."""
  generated = []
  for seed, values in enumerate(VALUES):
    width = significance.half_width(values)
    entry = {"value": values.mean(), "half_width": width, "questions": 4}
    metrics = {TITLE: entry, "avgrec[x]": {"value": 0.5, "half_width": None, "questions": 4}}
    one = Outcome(seed, 3, 1, 0.5, 6)
    one.add("cosine", Evaluation(metrics, {TITLE: (values, None)}, {}, []), primary=True)
    generated.append(one)
  return generated


def test_the_half_width_of_a_mean_over_seeds_is_that_of_a_comparison():
  actual = results.over_seeds(outcomes())
  means = VALUES.mean(0)  # .4, .5, 1, .2; t(0.975, 3) = 3.182446
  wanted = 3.182446 * means.std(ddof=1) / 2
  assert actual[TITLE]["half_width"] == pytest.approx(wanted, rel=1e-6)
  assert actual[TITLE]["half_width"] == significance.half_width(VALUES)
  assert actual[TITLE]["mean"] == pytest.approx(0.525)
  assert actual[TITLE]["sd"] == pytest.approx(np.std([0.625, 0.425], ddof=1))
  assert actual["avgrec[x]"]["half_width"] is None


def content(seeds, **fields):
  entries = [{"seed": s, "steps": 6, "best_epoch": 1, "notes": []} for s in seeds]
  return {"metrics": {}, "task": "rerank", "data": {"name": "x"}, "seeds": entries, **fields}


def test_one_seed_of_a_trained_system_is_said_to_tell_nothing_of_the_method():
  told = "cannot be told from one seed; as2jax train RUN --seeds=3,4,5 adds two to it"
  assert told in results.table(content([3]))
  assert "one seed" not in results.table(content([0, 1]))
  assert "one seed" not in results.table(content([0], deterministic=True))


def test_the_ledger_counts_evaluations_of_a_split_by_seed(tmp_path):
  """Also what a training evaluates at its end again, as it was stopped or seeds were added."""
  assert results.times_evaluated(tmp_path, "test", "x") is None
  assert "not known" in results.table(content([0]), tmp_path)
  for split, seeds, data, mode, count in (
    ("dev", (0,), "x", "train", "0"),
    ("test", (0,), "x", "train", "1"),
    ("test", (0, 1), "x", "train", "1 to 2"),
    ("dev+test", (1,), "x", "evaluate", "2"),
    ("test", (1,), "other", "evaluate", "2"),
  ):
    results.note_evaluation(tmp_path, split, seeds, data, mode)
    assert str(results.times_evaluated(tmp_path, "test", "x")) == count
  assert results.times_evaluated(tmp_path, "heldout", "x") == (0, 0)
  assert "evaluated" not in results.table(content([0], data={"name": "y"}), tmp_path)
  results.note_another_training(tmp_path)
  results.note_evaluation(tmp_path, "test", (1,), "x", "train")
  assert results.times_evaluated(tmp_path, "test", "x") == (2, 3)
  assert "test was evaluated 2 to 3 times with each seed" in results.table(content([0]), tmp_path)


@pytest.mark.parametrize("line", [b"\xff", b"[]", b'{"data": "x"}'])
def test_a_line_of_the_ledger_that_is_no_row_is_named(tmp_path, line):
  results.note_evaluation(tmp_path, "test", (0,), "x", "train")
  path = tmp_path / "evaluations.jsonl"
  path.write_bytes(path.read_bytes() + line + b"\n")
  with pytest.raises(InputError, match="evaluations.jsonl:2: no row of the ledger"):
    results.times_evaluated(tmp_path, "test", "x")


def test_the_log_names_odd_pairs_and_questions_of_train_elsewhere(caplog):
  candidates = (Candidate("a", "yes", 1), Candidate("b", "yes", 0), Candidate("c", "no", 0))
  splits = {"train": (Question("1", "who ?", candidates),), "test": (Question("7", "who ?", ()),)}
  contents = {"train": "other", "test": "official"}
  hashes = {"train": "aa", "test": "bb"}
  dataset = Dataset("made", splits, "both", "here", hashes, contents=contents)
  with caplog.at_level(logging.WARNING):
    statistics = results.data_record(dataset, get_config().data)
  assert statistics["splits"]["train"]["contradictory_pairs"] == 1
  assert [record.getMessage() for record in caplog.records] == [
    "made train: 1 (question, sentence) pairs are labelled both 0 and 1",
    "made: 1 question texts of test stand in train, too, so that figures on test say less of new questions",
  ]


@pytest.mark.parametrize("system", ["bm25", "triplet", "cosine"])
def test_the_end_says_what_to_type_next(finished_run, system):
  content = json.loads((finished_run(system) / "results.json").read_text())
  told = results.summary(content, str(finished_run(system))).splitlines()
  assert told[0].startswith("map[sample-clean/") and "-all/" not in "".join(told)
  assert any(line.startswith("best epoch ") for line in told) == (system != "bm25")
  assert any("as2jax export" in line for line in told) == (system == "triplet")


CELLS = [["", "mean", ""], ["a|b_*", "0.1 ± 0.2", None], ["<i>", "0.71", "x"]]
FORMS = {
  "text": "            mean\na|b_*  0.1 ± 0.2\n<i>         0.71  x",
  "markdown": "|  | mean |  |\n| --- | ---: | ---: |\n| a\\|b\\_\\* | **0.1 ± 0.2** |  |\n"
  "| \\<i\\> | 0.71 | x |",
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
