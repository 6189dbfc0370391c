import pytest

from as2jax.data.datasets.dataset import load, load_pool
from as2jax.data.datasets.pool import (
  Pool,
  PoolCounts,
  aligned,
  make_query,
  often_asked,
  one_per_text,
  tally,
)
from as2jax.data.record import Passage, Query
from as2jax.runtime.errors import InputError

PASSAGES = (
  Passage("p0", "One.", "T", "", "Two.", "One. Two."),
  Passage("p1", "Two.", "T", "One.", "", "One. Two."),
  Passage("p2", "One.", "U", "", "", "One."),
)


def test_counts():
  queries = (Query("a", "who ?", ("p0", "p1"), (2, 1)), Query("b", "who ?", ("p2",), (3,)))
  assert tally(PASSAGES, queries) == PoolCounts(3, 2, 3, 2, 1)
  assert PoolCounts(3, None, 3).agrees(PoolCounts(3, 2, 3, 2, 1))
  assert not PoolCounts(3, 3).agrees(PoolCounts(3, 2, 3, 2, 1))
  assert str(PoolCounts(3, None, 3, 2, 1)) == "3/–/3/2/1"


def test_most_votes_first_ties_by_first_named():
  assert make_query("a", "?", {"p2": 1, "p1": 2, "p0": 2}) == Query(
    "a", "?", ("p1", "p0", "p2"), (2, 2, 1)
  )


def test_one_query_a_text():
  queries = (
    Query("a", "who ?", ("p0", "p1"), (2, 1)),
    Query("b", "why ?", ("p2",), (1,)),
    Query("c", "who ?", ("p1",), (1,)),
    Query("d", "who ?", ("p2", "p1"), (2, 1)),
  )
  who, why = one_per_text(queries)
  assert who == Query("a", "who ?", ("p1", "p0", "p2"), (3, 2, 2))
  assert why == queries[1]


def test_often_asked_looks_at_the_gold_passage():
  queries = tuple(Query(str(i), f"{i} ?", ("p0", "p1"), (2, 1)) for i in range(3))
  queries += (Query("3", "3 ?", ("p1", "p0"), (2, 1)),)
  assert often_asked(queries, 3) == queries[:3]
  assert often_asked(queries, 4) == ()
  assert often_asked(queries, 1) == queries


def test_aligned_questions():
  pool = Pool(PASSAGES, (Query("a", "who ?", ("p1", "p2"), (2, 1)),))
  (question,) = aligned(pool)
  assert [(c.id, c.text, c.label, c.previous, c.title) for c in question.candidates] == [
    ("p1", "Two.", 1, "One.", "T")
  ]
  (question,) = aligned(pool, any_gold=True)
  assert [c.id for c in question.candidates] == ["p1", "p2"]


def test_the_two_kinds_are_not_mixed_up():
  with pytest.raises(InputError, match="'squad' is a retrieval dataset"):
    load("squad")
  with pytest.raises(InputError, match="'sample' has no pool .* use one of .*squad"):
    load_pool("sample")
