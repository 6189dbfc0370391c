"""Kinds of questions, and the section on answering: what they part, and figures that can be redone."""

import dataclasses

import numpy as np
import pytest

from as2jax.data.record import Candidate, Question
from as2jax.evaluation import answer_triggering
from as2jax.report import answering, runs, strata


def question(text, *right, previous=""):
  wrong = Candidate("D0", "nothing of that", 0)
  its = (Candidate(f"D{n}", t, 1, previous=previous) for n, t in enumerate(right, 1))
  return Question(text, text, (wrong, *its))


@pytest.mark.parametrize(
  "text, word",
  [
    ("Who wrote it?", "who"),
    ("in which year did he die", "which"),
    ("how many legs has a spider", "how many …"),
    ("how are glaciers made", "how"),
    ("name the capital", "other"),
    ("whatever happened", "other"),
  ],
)
def test_question_words(text, word):
  assert strata.question_word(question(text, "x")) == word


def test_overlap_counts_content_words_of_the_nearest_right_sentence():
  one = question("what is the capital of Peru", "Peru is large", "Lima is the capital of Peru")
  assert strata.overlap(one) == 1.0
  assert strata.overlap(question("what is the capital of Peru", "Peru is large")) == 0.5
  assert strata.overlap(question("what is the capital of Peru")) == 0.0


def test_each_way_of_parting_takes_every_question_once():
  questions = [question("who " + "x " * n, "a", previous="b" * (n % 2)) for n in range(20)]
  actual = strata.strata(questions)
  for by in {part.by for part in actual}:
    places = np.concatenate([part.at for part in actual if part.by == by])
    assert sorted(places.tolist()) == list(range(20)), by
  around = {part.name: len(part.at) for part in actual if part.by == "sentences around the answer"}
  assert around == {"with": 10, "without": 10}
  words = {part.name: len(part.at) for part in actual if part.by == "words of the question"}
  assert words == {"up to 7": 7, "8 to 14": 7, "more than 14": 6}


@pytest.fixture(scope="module")
def two(finished_run):
  return runs.read([str(finished_run(name)) for name in ("bm25", "word_overlap")])


def test_a_stratum_has_the_mean_of_its_questions(two):
  section, figures = strata.section(two, "map")
  by_id = {question.id: question for question in two.questions}
  ids = two.systems[0].scores.ids
  chosen = [n for n, id in enumerate(ids) if strata.question_word(by_id[id]) == "what"]
  values = [system.scores.metric("map").mean(0)[chosen] for system in two.systems]
  expected = f"{np.mean(values[1] - values[0]):+.3f}".replace("-", "−")
  assert f"what  ({len(chosen)})" in figures["strata"].svg()
  assert f">{expected} ±" in figures["strata"].svg() and f">{expected} ±" in section


def test_the_section_on_answering_counts_all_questions(two):
  section, figures = answering.section(two, "platt")
  assert "68 questions, 54 of them with an answer" in section
  more = dataclasses.replace(two, questions=(*two.questions, Question("none", "who", ())))
  assert answering.section(more, "platt")[0] == section, "a question without candidates counts not"
  assert set(figures) == {"reliability", "risk-coverage"}
  questions = {split: two.dataset.splits[split] for split in ("dev", "test")}
  before, after = (
    answer_triggering.best(questions[split], two.systems[0].rankings(split)[0])
    for split in ("dev", "test")
  )
  actual = answer_triggering.measure(before, after)
  assert f'data-value="{actual.f1!r}"' in section


def test_what_cannot_be_measured_is_said(finished_run, tmp_path):
  file = tmp_path / "other.trec"
  file.write_text((finished_run("word_overlap") / "eval/test/run.trec").read_text())
  read = runs.read([str(finished_run("bm25")), str(file)])
  section, _ = answering.section(read, "isotonic")
  assert "other.trec is not measured: its scores on dev are not known" in section
  alone = runs.read([str(finished_run("triplet"))])  # evaluated on test alone
  section, figures = answering.section(alone, "platt")
  assert "it has no run.trec of dev" in section and not figures
