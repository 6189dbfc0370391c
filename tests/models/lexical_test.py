import json
import math
import re
import unicodedata

import numpy as np
import pytest
import tiny
from tiny_systems import config

from as2jax.data.readers.wikiqa import read_wikiqa
from as2jax.data.record import Candidate, Question
from as2jax.data.text import words
from as2jax.evaluation import metrics, run_scores
from as2jax.inference import modes
from as2jax.models import lexical
from as2jax.runtime.errors import InputError


def question(text, *candidates, name="q"):
  return Question(name, text, tuple(Candidate(f"c{i}", c) for i, c in enumerate(candidates)))


RANKERS = (lexical.WordOverlap, lexical.IDFOverlap, lexical.BM25)
TRAIN = [question("?", "The cat sat.", "A dog ran."), question("?", "The cat sat.", "The end")]


def by_hand_bm25(query, document, corpus, k1=1.5, b=0.75):
  """Lucene's BM25 in full."""
  average = sum(map(len, corpus)) / len(corpus)
  score = 0.0
  for word in query:
    frequency = sum(word in text for text in corpus)
    count = document.count(word)
    if not count:
      continue
    idf = math.log(1 + (len(corpus) - frequency + 0.5) / (frequency + 0.5))
    score += idf * count / (count + k1 * (1 - b + b * len(document) / average))
  return score


def test_words():
  assert words.plain_words("What's  the U.S. GDP (2010)?") == "what s the u s gdp 2010".split()
  assert words.plain_words("Zürich 北京") == ["zürich", "北京"]
  decomposed = unicodedata.normalize("NFD", "Zürich 한국")
  assert words.plain_words(decomposed) == ["zürich", "한국"]
  given = words.plain_words("हिन्दी क्या है? x\u0304-ray, \u0301.")
  assert given == "हिन्दी क्या है x\u0304 ray".split()
  assert words.plain_form(decomposed) == words.plain_form("ZÜRICH, 한국!")
  quoted = "Lee (李小龍) was an actor"
  assert words.plain_words(quoted) == "lee 李小龍 was an actor".split()
  assert words.words(quoted)[2] == ("李小龍", 5, 8)  # and so where words have a place in their text
  thai = [("เ", 0, 1), ("ท", 1, 2), ("พ", 2, 3), ("iphone", 4, 10), ("ไ", 11, 12), ("ม้", 12, 14)]
  assert words.words("เทพ iPhone ไม้") == thai
  for text in ("Don't, O'Neill\u2019s 3.5", "हिन्दी क्या है?", "in Zürich 北京"):
    plain = re.finditer(r"[\w\u0900-\u0965]+(?:['\u2019]\w+)*|\S", text)
    expected = [(m.group().lower().replace("\u2019", "'"), *m.span()) for m in plain]
    assert words.words(text) == expected


UNSPACED = [  # question, the words of it, candidates of which the first is right
  (
    "北京有多少人？",
    "北京 京有 有多 多少 少人",
    ("北京市的人口是两千万。", "我喜欢在公园里看书。"),
  ),
  (
    "富士山の高さは?",
    "富士 士山 山の の高 高さ さは",
    ("富士山は3776メートルです。", "猫が好きです。"),
  ),
  ("กรุงเทพ iPhone ๒", "กรุ รุง งเ เท ทพ iphone ๒", ("สวัสดีกรุงเทพ", "แมวดำ")),
  ("ភ្នំពេញ", "ភ្នំ នំពេ ពេញ", ("រាជធានីភ្នំពេញ", "ឆ្មា")),
  ("ວຽງຈັນ", "ວຽ ຽງ ງຈັ ຈັນ", ("ນະຄອນຫຼວງວຽງຈັນ", "ແມວ")),
  ("ရန်ကုန်", "ရန် န်ကု ကုန်", ("ရန်ကုန်မြို့", "ကြောင်")),
]


@pytest.mark.parametrize("asked, expected, texts", UNSPACED)
@pytest.mark.parametrize("ranker", RANKERS)
def test_scripts_without_spaces_are_ranked(ranker, asked, expected, texts):
  assert words.plain_words(asked) == expected.split()
  [scores] = ranker().fit(TRAIN).score([question(asked, *reversed(texts))])
  assert scores[1] > scores[0] == 0


def test_word_overlap_counts_types():
  scorer = lexical.WordOverlap().fit(TRAIN).score
  [scores] = scorer([question("the cat and The dog?", "The CAT, the cat!", "a dog", "x", "...")])
  assert scores.dtype == np.float32
  np.testing.assert_array_equal(scores, [2, 1, 0, 0])


def test_idf_overlap_by_hand():
  # Three distinct training sentences: `the` is in two, `cat` in one; `zebra` is unseen.
  scorer = lexical.IDFOverlap().fit(TRAIN).score
  [scores] = scorer([question("The cat, the zebra", "the cat", "zebra the", "the the", "dog")])
  the, one = math.log(3 / 2), math.log(3)
  np.testing.assert_allclose(scores, [the + one, the + one, the, 0], rtol=1e-6)
  assert scores[0] == scores[1]  # equal in exact arithmetic: tied


def test_idf_overlap_ties_do_not_hang_on_word_order():
  words = [f"w{i}" for i in range(40)]
  train = [question("?", *(" ".join(words[i:]) for i in range(40)))]
  random = np.random.default_rng(0)
  candidates = [" ".join(random.permutation(words)) for _ in range(20)]
  [scores] = lexical.IDFOverlap().fit(train).score([question(" ".join(words), *candidates)])
  assert len(set(scores.tolist())) == 1


def judged(n=60):
  """Questions of two candidates; words that are shared make an answer likely, not certain."""
  rng, questions = np.random.default_rng(0), []
  for i in range(n):
    asked = rng.choice(40, 5, replace=False)
    texts = (np.concatenate([asked[:k], rng.choice(40, 4)]) for k in (rng.integers(1, 5), 0))
    write = lambda numbers: " ".join(f"w{j}" for j in numbers)
    labels = (1, 0) if rng.random() < 0.8 else (0, 1)
    candidates = (Candidate(f"{j}", write(t), y) for j, (t, y) in enumerate(zip(texts, labels)))
    questions.append(Question(f"q{i}", write(asked), tuple(candidates)))
  return questions


@pytest.mark.parametrize("form", ["by_length", "counts", "shares"])
def test_the_regression_is_the_maximum_of_the_likelihood(form):
  linear_model = pytest.importorskip("sklearn.linear_model")
  questions = judged()
  scorer = lexical.OverlapRegression(overlap=form).fit(questions)
  pairs = [(q.text, c.text) for q in questions for c in q.candidates]
  labels = [c.label for q in questions for c in q.candidates]
  x = scorer.features.features(pairs, scorer.fitted)
  theirs = linear_model.LogisticRegression(C=1e6 / len(x), tol=1e-9).fit(x, labels)
  np.testing.assert_allclose(scorer.weights, theirs.coef_[0], rtol=1e-3, atol=1e-3)
  scores = scorer.score(questions)
  assert [s.dtype for s in scores] == [np.float32] * len(questions)
  np.testing.assert_allclose(np.concatenate(scores), x @ scorer.weights, rtol=1e-5, atol=1e-5)
  pool = scorer.over_pool([c.text for c in questions[0].candidates])
  np.testing.assert_allclose(pool(questions[0].text), scores[0], rtol=1e-4, atol=1e-5)
  assert scorer.score([]) == []


def test_a_regression_on_one_label_is_refused():
  with pytest.raises(InputError, match="no candidates of both labels"):
    lexical.OverlapRegression("counts").fit(TRAIN)


def test_bm25_by_hand():
  # "the cat sat on the mat" occurs twice, and counts once in the corpus.
  questions = [
    question("the cat the unicorn", "the cat sat on the mat", "a dog", "cat cat the ..."),
    question("A dog?", "the cat sat on the mat", "dog dog dog a long story of a dog", "!"),
  ]
  corpus = list(dict.fromkeys(c.text for q in questions for c in q.candidates))
  corpus = {text: words.plain_words(text) for text in corpus}
  assert len(corpus) == 5
  scores = lexical.BM25().fit(()).score(questions)
  for q, actual in zip(questions, scores, strict=True):
    asked = words.plain_words(q.text)
    expected = [by_hand_bm25(asked, corpus[c.text], corpus.values()) for c in q.candidates]
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("ranker", RANKERS)
def test_nothing_to_compare_scores_zero(ranker):
  scorer = ranker().fit(TRAIN).score
  scores = scorer([question("???", "...", "a cat"), question("cat")])
  np.testing.assert_array_equal(scores[0], [0, 0])
  assert scores[1].shape == (0,) and scores[1].dtype == np.float32
  np.testing.assert_array_equal(scorer([question("a cat", "...", "!")])[0], [0, 0])
  assert scorer([]) == []


def test_real_wikiqa():
  questions = read_wikiqa(tiny.real_data("wikiqa", "WikiQA-test.tsv"))
  labels = [np.array([c.label for c in q.candidates]) for q in questions]
  mask = metrics.filter_mask("answerable", labels)
  assert mask.sum() == 243
  mean = lambda scores: metrics.per_question(scores, labels)["map"][mask].mean()
  values = {ranker: mean(ranker().fit(questions).score(questions)) for ranker in RANKERS}
  random = mean([np.zeros(len(x)) for x in labels])
  assert values[lexical.WordOverlap] == pytest.approx(0.6166, abs=5e-4)
  assert min(values.values()) > random + 0.15


def test_document_order_wants_the_order_of_a_document():
  scorer = lexical.DocumentOrder().fit(())
  one, two, three = "ice", "snow", "rain"
  candidates = (Candidate("a", one, next=two), Candidate("b", two, previous=one))
  whole = Question("q", "?", (*candidates, Candidate("c", three)))
  apart = question("?", one, two, name="r")
  scores = scorer.score([whole, apart])
  assert [of_one.tolist() for of_one in scores] == [[0, -1, -2], [0, -1]]
  assert len(scorer.score([question("?", one)])[0]) == 1 and scorer.score([]) == []
  with pytest.raises(InputError, match="no candidate is the neighbour of another"):
    scorer.score([apart])
  with pytest.raises(InputError, match="a pool has no order"):
    scorer.over_pool([one])


HEADER = ("question", "candidate", "label")
OWN = [(f"q{i} word", f"answer {i} word {j}", int(j == 0)) for i in range(30) for j in range(3)]


def own(tmp_path, system, *, split, **overrides):
  """Ranks a person's own file, which is all the data there are; the names of the metrics."""
  path = tmp_path / "own.tsv"
  path.write_text("\n".join("\t".join(map(str, row)) for row in [HEADER, *OWN]) + "\n")
  paths = {f"data__{split}": str(path), "data__name": "files", "data__rules": ()}
  modes.run(config(system, **paths, **overrides), str(tmp_path / "run"))
  return json.loads((tmp_path / "run/results.json").read_text())["metrics"]


def test_a_test_file_alone_is_evaluated(tmp_path):
  metrics = own(tmp_path, "bm25", split="test")
  assert metrics and {name.rpartition("/")[2] for name in metrics} == {"test]"}
  with pytest.raises(InputError, match="files has no split 'train'"):
    (tmp_path / "counts").mkdir()
    own(tmp_path / "counts", "idf_overlap", split="test")


def test_training_questions_alone_are_parted(tmp_path):
  metrics = own(tmp_path, "idf_overlap", split="train", data__holdout=0.2)
  assert metrics["map[files-all/heldout]"]["questions"] == 6
  assert {name.rpartition("/")[2] for name in metrics} == {"heldout]"}
  (tmp_path / "again").mkdir()
  with pytest.raises(InputError, match=r"no split 'dev' .*hold training questions out"):
    own(tmp_path / "again", "idf_overlap", split="train")


def test_a_ranker_has_one_seed_and_gives_the_same_figures_again(tmp_path):
  run = tmp_path / "run"
  modes.run(config("idf_overlap", seeds=(0, 1, 2)), str(run))
  results = json.loads((run / "results.json").read_text())
  assert run_scores.load([str(run)])[0].metric("map").shape[0] == 1
  said = modes.run(config("idf_overlap", mode="evaluate"), str(run))
  assert "note: test was evaluated 2 times with each seed" in said and "one seed" not in said
  again = json.loads((run / "evaluation.json").read_text(), parse_constant=pytest.fail)
  tests = [name for name in results["metrics"] if name.endswith("/test]")]
  assert again["deterministic"] is True
  assert tests and all(again["metrics"][name] == results["metrics"][name] for name in tests)
  best = results["seeds"][0]["best_value"]
  assert best == results["metrics"]["map[sample-clean/dev]"]["mean"] > 0.3
