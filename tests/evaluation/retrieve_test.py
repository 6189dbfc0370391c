"""A pool ranked by vectors, by words and by re-ranking: equal to a brute-force ranking in numpy."""

import json

import numpy as np
import pytest
import tiny

from as2jax.data import trec_files
from as2jax.data.record import Passage, Pool, Query
from as2jax.data.retrieval import with_candidates
from as2jax.evaluation import exact_search, metrics, retrieval_metrics, retrieve, run_scores, tasks
from as2jax.inference import modes
from as2jax.models import lexical
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError

WORDS = "ice snow fire water cold hot melts burns floats why what".split()


def generated_pool():
  """A pool with sentences of the same text, and queries with one to three right passages."""
  random = np.random.default_rng(0)
  text = lambda: " ".join(random.choice(WORDS, size=random.integers(1, 5)))
  held = [Passage(f"p{i}", text(), "T", "before", "after", "whole") for i in range(60)]
  held[7] = Passage("p7", held[3].text)
  asked = []
  for i in range(25):
    right = random.choice(60, size=random.integers(1, 4), replace=False)
    asked.append(
      Query(f"q{i}", f"{text()} {i} ?", tuple(f"p{p}" for p in right), (1,) * len(right))
    )
  asked[0] = Query("q0", "what is ice ?", ("p7",), (2,))
  return Pool(tuple(held), tuple(asked))


def brute(scores, pool, question_filter):
  """Metrics by `metrics.per_question` on the whole ranking of every query."""
  right = retrieval_metrics.right_entries(pool, question_filter)
  labels = [np.isin(np.arange(len(pool.passages)), x).astype(int) for x in right]
  return metrics.per_question(list(scores), labels)


def check(ranked, scores, pool):
  for question_filter in retrieval_metrics.QUESTION_FILTERS:
    expected = brute(scores, pool, question_filter)
    np.testing.assert_allclose(ranked.values[question_filter]["mrr"], expected["mrr"], atol=1e-12)
    np.testing.assert_allclose(ranked.values[question_filter]["r@1"], expected["p@1"], atol=1e-12)
  for its, entries, kept in zip(scores, ranked.entries, ranked.scores, strict=True):
    assert len(set(entries.tolist())) == len(entries) == 10
    np.testing.assert_array_equal(kept, its[entries])
    np.testing.assert_array_equal(np.sort(kept)[::-1], np.sort(its)[::-1][:10])


def test_vectors_rank_as_numpy_does():
  pool = generated_pool()
  random = np.random.default_rng(1)
  queries = random.integers(-2, 3, (25, 4)).astype(np.float32)
  passages = random.integers(-2, 3, (60, 4)).astype(np.float32)
  passages[7], passages[20:25] = passages[3], passages[10]  # one text, and equal vectors
  searcher = exact_search.Searcher(sharding.make_mesh(), k=10, rows=8, queries=8)
  ranked = retrieve.by_vectors(searcher, queries, passages, pool, "dot", ties="expected")
  scores = queries @ passages.T
  check(ranked, scores, pool)
  data = type("Data", (), {"name": "x", "pools": {"test": pool}})
  actual = retrieve.evaluate(ranked, data, "test", often=2)
  assert any(note.startswith("x-gold/test: by the order of tied") for note in actual.notes)
  often = retrieval_metrics.asked(pool) >= 2
  entry = actual.metrics["mrr[x-often2/test]"]
  assert 0 < often.sum() == entry["questions"] < 25
  assert entry["value"] == pytest.approx(actual.per_question["mrr"][often].mean())
  assert actual.metrics["r@5[x-any/test]"]["value"] == actual.per_question["any:r@5"].mean()
  labels = [np.isin(np.arange(60), r) for r in retrieval_metrics.right_entries(pool, "gold")]
  extremes = metrics.tie_extremes(list(scores), [x.astype(int) for x in labels])
  entry = actual.metrics["mrr[x-gold/test]"]
  assert entry["worst"] < entry["value"] < entry["best"] and 0 < entry["tied_questions"] <= 25
  wanted = metrics.ranges_of(*extremes, np.ones(25, bool))["mrr"]
  assert [entry[key] for key in ("worst", "best", "tied_questions")] == pytest.approx(wanted)


@pytest.mark.parametrize("ranker", [lexical.WordOverlap, lexical.IDFOverlap, lexical.BM25])
def test_words_rank_as_the_reranker_does(ranker):
  pool = generated_pool()
  whole = with_candidates(pool, [np.arange(60)] * 25)
  train = whole[:5]
  scorer = ranker().fit(train)
  expected, score = scorer.score(whole), scorer.over_pool([p.text for p in pool.passages])
  ranked = retrieve.by_scores(score, pool, depth=10, ties="expected")
  np.testing.assert_allclose([score(q.text) for q in pool.queries], expected, rtol=1e-6)
  check(ranked, [score(q.text) for q in pool.queries], pool)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A bi-encoder and BM25 over one pool, and a cross-encoder that re-ranks the latter."""
  folder = tmp_path_factory.mktemp("runs")
  tiny.write_pool(folder)
  modes.run(tiny.pool_config(folder, "triplet"), str(folder / "triplet"))
  modes.run(tiny.pool_config(folder, ranker="bm25"), str(folder / "bm25"))
  modes.run(
    tiny.pool_config(folder, "crossencoder", epochs=0, data__ranking=str(folder / "bm25")),
    str(folder / "cross"),
  )
  return folder


def results_of(folder, name):
  return json.loads((folder / name / "results.json").read_text())


def test_runs_over_a_pool_write_all_files(folder):
  for name in ("triplet", "bm25", "cross"):
    content = results_of(folder, name)
    assert content["task"] == "retrieve" and content["selected_on"] == "mrr, dev, gold"
    place = folder / name / "eval" / "test"
    run, gold = (
      trec_files.read_run(place / "run.trec"),
      trec_files.read_qrels(place / "qrels.trec"),
    )
    assert set(run) == set(gold) and all(len(x) == 20 for x in run.values())
    ids, table = trec_files.read_per_question(place / "per_question.tsv")
    mean = content["metrics"]["mrr[files-gold/test]"]["mean"]
    assert set(ids) == set(run) and table["mrr"].mean() == pytest.approx(mean, abs=1e-12)
    assert 0 < content["metrics"]["mrr[files-any/test]"]["mean"] <= 1


def test_what_is_not_reranked_keeps_its_rank(folder):
  tables = {}
  for name in ("bm25", "cross"):
    ids, table = trec_files.read_per_question(folder / name / "eval" / "test" / "per_question.tsv")
    tables[name] = dict(zip(ids, table["mrr"]))
  gold = trec_files.read_qrels(folder / "bm25" / "eval" / "test" / "qrels.trec")
  run = trec_files.read_run(folder / "bm25" / "eval" / "test" / "run.trec")
  missed = [id for id in gold if not set(gold[id]) & set(run[id])]
  assert 0 < len(missed) < len(gold)
  assert all(tables["cross"][id] == tables["bm25"][id] <= 1 / 20 for id in missed)


def test_reranking_by_hand():
  passages = tuple(Passage(f"p{i}", f"text {i}") for i in range(6))
  queries = tuple(Query(f"q{i}", f"{i} ?", (f"p{i}",), (1,)) for i in range(3))
  pool = Pool(passages, queries)
  entries = tuple(np.asarray(x) for x in ([5, 0, 4], [1, 2, 3], [0, 1, 3]))
  actual = retrieve.Retrieved(
    entries,
    with_candidates(pool, entries),
    {"gold": np.asarray([0.5, 1.0, 0.2]), "any": np.asarray([0.5, 1.0, 0.2])},
  )
  scores = [np.float32([0, 9, 1]), np.float32([1, 1, 2]), np.float32([1, 2, 3])]
  ranked = retrieve.reranked(scores, actual, pool, ties="expected")
  np.testing.assert_allclose(ranked.values["gold"]["mrr"], [1, (1 / 2 + 1 / 3) / 2, 0.2])
  assert ranked.values["gold"]["r@1"].tolist() == [1, 0, 0]
  assert ranked.values["any"]["r@5"].tolist() == [1, 1, 0]
  assert [x.tolist() for x in ranked.entries] == [[0, 4, 5], [3, 1, 2], [3, 1, 0]]
  assert "gold: 2 of 3 queries have a right passage" in ranked.notes[0]
  worst, best = (x["mrr"].tolist() for x in ranked.extremes["gold"])
  assert worst == pytest.approx([1, 1 / 3, 0.2]) and best == pytest.approx([1, 1 / 2, 0.2])


def test_a_run_file_over_a_pool_counts_what_it_lists(folder):
  """A right passage below the depth of the file counts as not found."""
  file = folder / "triplet/eval/test/run.trec"
  names = [str(folder / "bm25"), str(folder / "triplet"), str(file)]
  for question_filter in ("gold", "any", "often"):
    _, whole, listed = run_scores.load(names, question_filter=question_filter)
    inside = whole.metric("mrr") >= 1 / 20
    assert 0 < inside.sum() < inside.size
    for metric in whole.values:
      np.testing.assert_allclose(
        listed.metric(metric)[inside], whole.metric(metric)[inside], atol=1e-12
      )
      assert not listed.metric(metric)[~inside].any()
    mean = results_of(folder, "triplet")["metrics"][whole.title("mrr")]["mean"]
    assert whole.metric("mrr").mean() == pytest.approx(mean)
  with pytest.raises(InputError, match="'clean' is no question filter of files, test"):
    run_scores.load(names, question_filter="clean")


def task_of(folder, empty="", **changes):
  """The task of a config over made-up pools, of which one has no query."""
  pool = generated_pool()
  pools = {"dev": pool, "test": pool}
  if empty:
    pools[empty] = Pool(pool.passages, ())
  data = type("Data", (), {"name": "x", "pools": pools})
  settings = {"mode": "train", "evaluation__splits": ("test",), **changes}
  return tasks.Retrieve(tiny.pool_config(folder, "triplet", **settings), data, None)


def run_file(path, listed):
  """A run file over a pool of three, measured."""
  ids, scores = list(map(list, listed.values())), [range(len(x)) for x in listed.values()]
  trec_files.write_run(path / "run.trec", list(listed), ids, scores, "t")
  right = {"gold": {"x": {"a"}, "y": {"a"}}, "any": {"x": {"a", "b"}, "y": {"a"}}}
  return run_scores.of_pool(
    path, trec_files.read_run(path / "run.trec"), right, {"x": 2, "y": 2}, 3, "expected"
  )


REFUSED = [
  (
    lambda path: retrieve.best(np.float32([1, -np.inf, 2]), 2),
    "score of passage 2 of the pool is -inf",
  ),
  (
    lambda path: retrieve.retrieved(path, generated_pool(), "test", depth=9),
    "there is no .*run.tr",
  ),
  (lambda path: task_of(path, select="map"), "select = 'map': over a pool use one of mrr"),
  (lambda path: task_of(path, evaluation__ties="trec"), "'trec': over a pool use one of expected"),
  (lambda path: task_of(path, "test"), "test has a right answer .*leave it out of evaluation.spl"),
  (lambda path: task_of(path, "dev"), "split dev has a right answer .*data.holdout=0.1"),
  (
    lambda path: run_file(path, {"x": "abcd", "y": "a"}),
    "'x' is missing, or has more passages than the pool .3.",
  ),
  (
    lambda path: run_file(path, {"x": "d", "y": "ef"}),
    "no question lists any of its right passages",
  ),
  (lambda path: run_file(path, {"x": "a"}), "question 'y' is missing"),
]


@pytest.mark.parametrize("act, message", REFUSED)
def test_what_is_refused_over_a_pool(act, message, tmp_path):
  with pytest.raises(InputError, match=message):
    act(tmp_path)
