import itertools
import math

import ir_measures
import numpy as np
import pytest
import pytrec_eval

from as2jax.data.record import Passage, Pool, Query
from as2jax.evaluation import metrics, retrieval_metrics
from as2jax.evaluation.retrieval_metrics import Standing
from as2jax.runtime.errors import InputError

TREC_NAMES = {
  "map": "map",
  "mrr": "recip_rank",
  "p@1": "P_1",
  "r@1": "recall_1",
  "r@5": "recall_5",
  "ndcg@10": "ndcg_cut_10",
}


def trec_eval(scores, labels, ids):
  """The same metrics by trec_eval's own code, {metric: [questions]}."""
  qrels, run = {}, {}
  for q, (score, label, names) in enumerate(zip(scores, labels, ids, strict=True)):
    qrels[f"q{q}"] = {c: int(x == 1) for c, x in zip(names, label, strict=True)}
    run[f"q{q}"] = {c: float(x) for c, x in zip(names, score, strict=True)}
  measures = {"map", "recip_rank", "P.1", "recall.1,5", "ndcg_cut.10"}
  result = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
  return {
    metric: np.array([result[f"q{q}"][name] for q in range(len(scores))])
    for metric, name in TREC_NAMES.items()
  }


def random_questions(count, *, levels, seed):
  """Questions whose scores take `levels` values (None: all distinct)."""
  random = np.random.default_rng(seed)
  alphabet = ["a", "B", "_", "-", "9", "10", "é", "ß", "\uffee", "\U0001f600", "z"]
  scores, labels, ids = [], [], []
  for _ in range(count):
    size = int(random.integers(1, 26))
    if levels is None:
      scores.append(random.permutation(size) / 7 - 1)
    else:
      scores.append(random.integers(0, levels, size) / 3 - 0.5)
    labels.append(random.choice([-1, 0, 1], size, p=[0.1, 0.6, 0.3]))
    names = set()
    while len(names) < size:
      names.add("".join(random.choice(alphabet, random.integers(1, 5))))
    ids.append(list(random.permutation(sorted(names))))
  return scores, labels, ids


def assert_same(actual, expected, tolerance=1e-12):
  assert set(actual) == set(expected) == set(metrics.METRICS)
  for metric in metrics.METRICS:
    np.testing.assert_allclose(
      actual[metric], expected[metric], rtol=0, atol=tolerance, err_msg=metric
    )


def all_orders(score, label):
  """Each metric's values over every order of tied candidates, each order scored untied."""
  orders = []
  for order in itertools.permutations(range(len(score))):
    if all(score[a] >= score[b] for a, b in itertools.pairwise(order)):
      orders.append(list(order))
  descending = [np.arange(len(score), 0, -1)] * len(orders)
  return metrics.per_question(descending, [label[order] for order in orders])


@pytest.mark.parametrize("levels", [1, 2, 4, 50, None])
def test_values_are_trec_evals_with_its_order_of_ties_or_without_ties(levels):
  scores, labels, ids = random_questions(1000, levels=levels, seed=levels or 7)
  expected = trec_eval(scores, labels, ids)
  for ties in metrics.TIES if levels is None else ("trec",):
    assert_same(metrics.per_question(scores, labels, ids, ties=ties), expected)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_expected_is_the_mean_over_all_orders_of_ties_and_ranges_are_theirs(levels):
  random = np.random.default_rng(levels)
  for _ in range(12):
    size = int(random.integers(1, 8))
    score, label = random.integers(0, levels, size), random.choice([-1, 0, 1], size)
    values, spread = all_orders(score, label), ranges([score], [label])
    means = {metric: [value.mean()] for metric, value in values.items()}
    assert_same(metrics.per_question([score], [label]), means)
    for metric, value in values.items():
      tied = int(np.ptp(value) > 1e-12)
      assert spread[metric] == pytest.approx((value.min(), value.max(), tied))


GRADED = "nDCG nDCG@3 AP AP@4 AP(rel=2) RR RR@2 R@100 R(rel=2)@2 P@5".split()


def test_graded_measures_are_the_mean_over_orders_of_ties():
  """Labels reach from -1 to 3, some right candidates are not ranked; each order by ir_measures."""
  measures, random = list(map(ir_measures.parse_measure, GRADED)), np.random.default_rng(5)
  for _ in range(60):
    size = int(random.integers(1, 7))
    label, score = random.integers(-1, 4, size), random.integers(0, 3, size)
    every, best_first = [*label, 1, 2], sorted(score, reverse=True)
    qrels, run = [], []  # a question an order
    for n, order in enumerate(map(list, itertools.permutations(range(size)))):
      if list(score[order]) == best_first:
        qrels += [ir_measures.Qrel(str(n), str(d), int(x)) for d, x in enumerate(every)]
        run += [ir_measures.ScoredDoc(str(n), str(d), -rank) for rank, d in enumerate(order)]
    found = metrics.judged([score], [label], [np.array(every)], GRADED)
    means = ir_measures.calc_aggregate(measures, qrels, run)
    for name, measure in zip(GRADED, measures, strict=True):
      assert found[name] == pytest.approx(means[measure], abs=1e-12), name
  for name in ("P", "R", "nDCG(rel=2)@10", "RR@0", "AP@", "ERR@10", "map@10@10"):
    with pytest.raises(InputError, match="is no measure: use nDCG"):
      metrics.Measure.of(name)


def test_expected_depends_on_neither_order_nor_ids():
  scores, labels, ids = random_questions(300, levels=3, seed=1)
  random = np.random.default_rng(2)
  orders = [random.permutation(len(x)) for x in scores]
  shuffled = metrics.per_question(
    [x[o] for x, o in zip(scores, orders, strict=True)],
    [x[o] for x, o in zip(labels, orders, strict=True)],
  )
  for metric, value in metrics.per_question(scores, labels, ids).items():
    np.testing.assert_array_equal(value, shuffled[metric])  # to the bit


def test_questions_without_positives_or_candidates_score_zero():
  scores = [np.zeros(2), np.zeros(0), np.array([1.0, 0.0]), np.zeros(0)]
  labels = [np.array([0, -1]), np.zeros(0, int), np.array([1, 0]), np.zeros(0, int)]
  for ties in metrics.TIES:
    ids = [["a", "b"], [], ["a", "b"], []]
    for value in metrics.per_question(scores, labels, ids, ties=ties).values():
      np.testing.assert_array_equal(value, [0, 0, 1, 0])
  assert all(v.shape == (0,) for v in metrics.per_question([], []).values())


def test_scores_are_compared_in_float32_where_infinite_ones_tie():
  inf = np.inf
  assert metrics.per_question([np.array([1 + 1e-9, 1.0])], [np.array([1, 0])])["mrr"] == 0.75
  scores, labels = [np.array([-inf, inf, 0, inf])], [np.array([0, 1, 0, 0])]
  assert metrics.per_question(scores, labels)["mrr"] == pytest.approx(0.75)
  assert metrics.per_question([np.array([1e300, 1.0])], [np.array([0, 1])])["mrr"] == 0.5


@pytest.mark.parametrize(
  "change, message",
  [
    ({"scores": [[1.0], [0.5, np.nan]]}, r"'q2', candidate 2 .*a score is not a number"),
    ({"scores": [[1.0], [0.5]]}, "scores and labels differ"),
    ({"labels": [[1], [0, 3]]}, r"'q2', candidate 2 .*label 3.*use the labels 1"),
    ({"labels": [["1"], ["0", "1"]]}, r"'q1', candidate 1 .*use the labels 1"),
    ({"labels": [[1], [0, None]]}, r"'q2', candidate 2 .*use the labels 1"),
    ({"ties": "optimistic"}, r"ties='optimistic'.*expected, trec, pessimistic"),
    ({"ties": "trec"}, "give one id a candidate"),
    ({"ties": "trec", "ids": [["a"], ["b"]]}, "give one id a candidate"),
  ],
)
def test_bad_input(change, message):
  arguments = {"scores": [[1.0], [0.5, 0.5]], "labels": [[1], [0, 1]], "names": ["q1", "q2"]}
  with pytest.raises(InputError, match=message):
    metrics.per_question(**(arguments | change))


def test_protocol_masks():
  labels = [np.array([1, 0]), np.array([1, 1]), np.array([0]), np.zeros(0, int), np.array([1, -1])]
  masks = {name: metrics.filter_mask(name, labels).tolist() for name in metrics.RULES}
  assert masks == {
    "all": [True, True, True, False, True],
    "answerable": [True, True, False, False, True],
    "both": [True, False, False, False, True],
  }


def test_summary_has_protocol_names_and_counts():
  values = {"map": np.array([0.5, 1.0, 0.0, 0.75])}
  mask, where = np.array([True, True, False, True]), "wikiqa-clean/test"
  how = {"where": where, "ranges": {"map": (0.7, 0.8, 1)}, "groups": None}
  # Three values: t(0.975, 2) = 4.302653, standard deviation 0.25.
  width = pytest.approx(4.302653 * 0.25 / math.sqrt(3), rel=1e-6)
  ties = {"worst": 0.7, "best": 0.8, "tied_questions": 1}
  entry = {"value": 0.75, "half_width": width, "questions": 3, **ties}
  assert metrics.summarize(values, mask, **how) == {"map[wikiqa-clean/test]": entry}
  (one,) = metrics.summarize(values, np.arange(4) == 1, **how).values()
  assert one == {"value": 1.0, "half_width": None, "questions": 1, **ties}


def ranges(scores, labels, mask=None):
  every = np.ones(len(scores), bool)
  return metrics.ranges_of(*metrics.tie_extremes(scores, labels), every if mask is None else mask)


def test_a_note_says_what_ties_move():
  scores, labels = [np.zeros(2), np.array([1.0, 0.0])], [np.array([1, 0])] * 2
  # Positive first or last: 1 or 1/2 in the first question, 1 in the second.
  tied = ranges(scores, labels, mask=np.array([True, False]))
  assert tied["map"] == (0.5, 1.0, 1)
  assert metrics.tie_note(ranges(scores, labels, mask=np.array([False, True])), "x") == []
  (note,) = metrics.tie_note(tied, "demo-clean/test")
  assert note.startswith("demo-clean/test: ") and "map from 0.5000 to 1.0000 (1 questions)" in note


def test_average_recall_by_the_organisers_definition():
  scores = [np.float32([3, 2, 1]), np.float32([1, 2, 3, 4]), np.float32([1])]
  labels = [np.array([1, 0, 1]), np.array([1, 0, 0, 1]), np.array([0])]
  # Relevant by rank: (1, 0, 1), (1, 0, 0, 1), (0).
  taken = [2, 2, 3] + [4] * 7
  perfect = [2, 4] + [4] * 8
  wanted = np.mean(np.divide(taken, perfect))
  every = np.ones(3, bool)
  assert metrics.average_recall(scores, labels, mask=every) == pytest.approx(wanted)
  # Tied candidates count by their chance of being among the first k.
  tied = metrics.average_recall([np.zeros(2, np.float32)], [np.array([1, 0])], mask=every[:1])
  assert tied == pytest.approx((0.5 + 9) / 10)


def test_no_rule_stands_under_two_names():
  names = {"clean": "answerable", "official": "both", "all": "all"}
  assert metrics.filters("answerable", "both") == names
  assert metrics.filters("both", "both").keys() == {"clean", "answerable", "all"}
  assert metrics.filters("answerable", "all").keys() == {"clean", "official"}


def test_ties_are_exact_expectations_between_the_worst_and_the_best_order():
  cases = list(itertools.product(range(7), range(6), range(1, 4)))
  counts = Standing(*map(np.asarray, zip(*cases)))
  actual = retrieval_metrics.per_query(counts)
  worst, best = (retrieval_metrics.per_query(counts, ties=o) for o in retrieval_metrics.ORDERS)
  for i, (above, wrong, right) in enumerate(cases):
    orders = itertools.combinations(range(wrong + right), right)
    rank = np.asarray([above + places[0] + 1 for places in orders])
    for name, values in (("mrr", 1 / rank), ("r@1", rank <= 1), ("r@5", rank <= 5)):
      assert actual[name][i] == pytest.approx(values.mean(), abs=1e-12)
      assert (worst[name][i], best[name][i]) == (values.min(), values.max())


def pool():
  passages = [Passage(f"p{i}", text) for i, text in enumerate(("one", "two", "one", "three"))]
  queries = [
    Query("a", "A?", ("p0", "p3"), (2, 1)),
    Query("b", "B?", ("p0",), (1,)),
    Query("c", "C?", ("p1",), (1,)),
  ]
  return Pool(tuple(passages), tuple(queries))


def test_a_sentence_of_the_same_text_is_right():
  assert retrieval_metrics.right_entries(pool(), "gold") == [[0, 2], [0, 2], [1]]
  assert retrieval_metrics.right_entries(pool(), "any") == [[0, 2, 3], [0, 2], [1]]
  assert retrieval_metrics.asked(pool()).tolist() == [2, 2, 1]


def test_spread_of_the_queries_of_one_answer():
  # a and b lie at a right angle: ‖a − b‖² = 2, whatever their lengths.
  actual = retrieval_metrics.spread(np.asarray([[3.0, 0], [0, 2], [5, 0]]), pool())
  assert actual["sse"] == pytest.approx(2) and actual["sse_answers"] == 1
  # Of the pairs a-b, b-c, a-c two are at a right angle, one is at distance 0.
  assert actual["sse_random"] == pytest.approx(4 / 3, abs=0.1)
  assert actual["sse_relative"] == pytest.approx(actual["sse"] / actual["sse_random"])
  random = np.random.default_rng(0).normal(size=(3, 4))
  unit = random / np.linalg.norm(random, axis=1, keepdims=True)
  actual = retrieval_metrics.spread(random, pool())
  assert actual["sse"] == pytest.approx(((unit[0] - unit[1]) ** 2).sum())
  alone = Pool(pool().passages, pool().queries[1:])
  assert retrieval_metrics.spread(random[1:], alone) == {}
