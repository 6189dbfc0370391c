"""What other neighbours do to trained models: the changes themselves, and what is said of a model that reads emptiness."""

import shutil

import numpy as np
import tiny_systems

from as2jax.commands import app
from as2jax.data import load, neighbours
from as2jax.data.dataset import dataset
from as2jax.evaluation import results
from as2jax.experiments import order
from as2jax.experiments.order import Changed

QUESTIONS = dataset("sample", "dev").questions


def around(question):
  return [(one.previous, one.next) for one in question.candidates]


def test_each_change_touches_what_it_names():
  filled, emptied, drawn, permuted = order.changes(QUESTIONS)
  texts = {q.id: [c.text for c in q.candidates] for q in QUESTIONS}
  of_article = {c.text: neighbours.article(q) for q in QUESTIONS for c in q.candidates}
  for number, question in enumerate(QUESTIONS):
    own, given = neighbours.article(question), around(question)
    sets = {one.title: around(one.questions[number]) for one in (filled, emptied, drawn, permuted)}
    for one in (filled, emptied, drawn, permuted):
      assert [c.text for c in one.questions[number].candidates] == texts[question.id]
    first = sets[filled.title]
    assert first[1:] == given[1:] and first[0][1] == given[0][1] and of_article[first[0][0]] != own
    place = emptied.places[number]
    assert place > 0 and sets[emptied.title][place] == ("", given[place][1])
    assert [x for x in zip(sets[emptied.title], given) if x[0] != x[1]] == [
      (("", given[place][1]), given[place])
    ]
    assert all(of_article[text] != own for both in sets[drawn.title] for text in both)
    links = dict(zip(["", *texts[question.id]], [None] * 99))
    for text, (before, after) in zip(texts[question.id], sets[permuted.title], strict=True):
      links[before] = text
      assert after in texts[question.id] or not after
    walked, text = [], ""
    while links[text]:  # from the empty place on, each candidate once
      walked.append(text := links[text])
    assert sorted(walked) == sorted(texts[question.id])
  assert order.changes(QUESTIONS)[2] == drawn


def test_a_config_names_what_is_trained_with():
  def splits(kind):
    return load.load(tiny_systems.config("bm25", data__neighbours=kind).data).splits

  plain, read = splits("given"), splits("dropped")
  assert read["dev"] == plain["dev"]
  emptied = [0, 0]
  for before, after in zip(plain["train"], read["train"], strict=True):
    for side in (0, 1):
      pairs = [(x[side], y[side]) for x, y in zip(around(before), around(after)) if x[side]]
      emptied[0] += len(pairs)
      emptied[1] += sum(not y for _, y in pairs)
      assert all(y in ("", x) for x, y in pairs)
  assert 0.25 < emptied[1] / emptied[0] < 0.35
  assert splits("drawn")["dev"] == neighbours.drawn(plain["dev"])


def test_a_model_that_reads_an_empty_place_is_found():
  """It gives 5 to a candidate without a previous sentence, and to a wrong one as to a right one."""
  sets = [Changed("as given", QUESTIONS, (0,) * len(QUESTIONS)), *order.changes(QUESTIONS)]
  score = lambda q: np.asarray([5.0 * (not c.previous) - i for i, c in enumerate(q.candidates)])
  scores = [[[score(q) for q in one.questions]] * 2 for one in sets]
  filled, emptied, drawn, _ = order.rows(QUESTIONS, sets, scores)
  assert filled["logit"] == drawn["logit"] == "-5.000 ± 0.000"
  assert emptied["logit"] == emptied["logit wrong"] == "+5.000 ± 0.000"
  assert float(emptied["rank"].split(" ")[0]) < -1 and filled["rank"] == "+0.000 ± 0.000"
  assert int(filled["n right"]) + int(filled["n wrong"]) == int(filled["n"]) == len(QUESTIONS)


def test_the_command(finished_run, tmp_path, capsys):
  run = shutil.copytree(finished_run("loct"), tmp_path / "loct")
  before = results.times_evaluated(run, "dev", "sample")
  assert app.run(["lab", "order", str(run)]) == 0
  assert capsys.readouterr().out.count(" ± ") > 12
  assert results.times_evaluated(run, "dev", "sample").most == before.most + 1
  assert app.run(["lab", "order", str(finished_run("bm25"))]) == 2
  assert "reads no sentences around a candidate" in capsys.readouterr().err
