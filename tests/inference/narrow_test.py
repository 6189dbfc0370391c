"""Vectors in 32, 16 and 8 bits: the best hits, whatever narrowing and rounding have changed."""

import types

import numpy as np
import pytest

from as2jax.evaluation import exact_search
from as2jax.inference import index as indexes
from as2jax.inference import index_part, narrow
from as2jax.inference.hit import Hit
from as2jax.inference.index import Index
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError

MESH = sharding.make_mesh()
WIDTH = 16


def ranker(vectors, similarity):
  """A bi-encoder whose texts are the numbers of these vectors."""
  encode = lambda texts: np.stack([vectors[int(text)] for text in texts])
  return types.SimpleNamespace(
    source="",
    name="numbers",
    seed=None,
    dtype="float32",
    fingerprint="f" * 64,
    has_vectors=True,
    similarity=similarity,
    mesh=MESH,
    encode_query=encode,
    encode_document=encode,
  )


def documents(kind):
  random = np.random.default_rng(0)
  vectors = random.normal(size=(300, WIDTH)).astype(np.float32)
  if kind == "near":  # closer to one another than a narrow number tells
    vectors[:] = vectors[0] + 1e-5 * vectors
  elif kind == "scales":
    vectors *= np.float32(10.0) ** random.integers(-30, 8, (300, 1))
    vectors[5] = 0
  elif kind == "equal":
    vectors[100:] = vectors[7]
  return vectors


@pytest.mark.parametrize("similarity", exact_search.SIMILARITIES)
@pytest.mark.parametrize("kind", ["random", "near", "scales", "equal"])
def test_hits_are_the_best_in_float64(kind, similarity, tmp_path, monkeypatch):
  monkeypatch.setattr(index_part, "DOCUMENTS", 128)
  vectors, texts = documents(kind), list(map(str, range(300)))
  model, wanted = ranker(vectors, similarity), []
  pool = exact_search.prepared(vectors, similarity, side="pool")
  for query in vectors[:9]:
    scores = indexes._scores(query, pool, similarity)
    best = np.lexsort((np.arange(300), -scores))[:10]
    wanted.append([Hit(int(i), float(scores[i]), str(i), str(i)) for i in best])
  for storage in narrow.STORAGE:
    Index.make(model, texts, None, tmp_path / storage, None, storage)
    opened = Index.open(tmp_path / storage, ranker=model)
    assert opened.storage == storage
    assert opened.search_many(texts[:9], 10) == wanted, storage
    assert opened.search(texts[3], 10) == wanted[3]


@pytest.mark.parametrize("storage", narrow.STORAGE[1:])
@pytest.mark.parametrize("kind", ["random", "near", "scales"])
@pytest.mark.parametrize("similarity", exact_search.SIMILARITIES)
def test_no_score_is_off_by_more_than_is_said(kind, storage, similarity):
  vectors = documents(kind)
  pool = exact_search.prepared(vectors, similarity, side="pool")
  queries = exact_search.prepared(vectors[::10], similarity, side="query")
  rows, error = narrow.narrowed(pool, storage, similarity)
  assert rows.values.dtype == storage and rows.values.shape == (300, WIDTH)
  result = exact_search.Searcher(MESH, k=300, rows=300, queries=32)(
    queries, _Pool(rows, pool.shape)
  )
  exact = queries.astype(np.float64) @ pool.T.astype(np.float64)
  actual = np.take_along_axis(exact, result.entries, 1)
  gap = np.abs(actual - result.scores) / np.linalg.norm(queries.astype(np.float64), axis=1)[:, None]
  assert np.nanmax(gap) <= error
  if kind != "scales":  # nor is much more said than there is
    assert np.nanmax(gap) > 1e-3 * error


class _Pool:
  def __init__(self, rows, shape):
    self.rows, self.shape = rows, shape

  def __getitem__(self, chosen):
    return exact_search.Narrow(*(column[chosen] for column in self.rows))


def test_where_the_bound_does_not_decide_more_are_scored_and_then_all(monkeypatch):
  model, texts = ranker(documents("near"), "cosine"), list(map(str, range(300)))
  index, asked = Index.make(model, texts, None, None, None, "int8"), []
  searcher = exact_search.Searcher

  def noted(mesh, **options):
    of = searcher(mesh, **options)
    return lambda queries, rows: (
      asked.append((options["k"], type(rows).__name__)) or of(queries, rows)
    )

  monkeypatch.setattr(exact_search, "Searcher", noted)
  index.search("3", 10)
  assert asked == [(32, "NarrowRows"), (256, "NarrowRows"), (2048, "NarrowRows")]
  asked.clear()
  monkeypatch.setattr(indexes, "DEEPEST", 100)
  hits = index.search("3", 10)
  assert asked == [(32, "NarrowRows")] and len(hits) == 10
  assert hits == Index.make(model, texts, None, None, None).search("3", 10)
  asked.clear()
  index.ranker = ranker(documents("random"), "cosine")
  of_random = Index.make(index.ranker, texts, None, None, None, "int8")
  of_random.search("3", 10)
  assert asked == [(32, "NarrowRows")], "the bound decides"


def test_bad_storage_is_refused(tmp_path, finished_run):
  import as2jax

  model, texts = ranker(documents("random"), "cosine"), list(map(str, range(300)))
  with pytest.raises(
    InputError, match="storage 'int4': vectors are kept as one of float32, float16"
  ):
    Index.make(model, texts, None, None, None, "int4")
  Index.make(model, texts, None, tmp_path / "x", None, "int8")
  with pytest.raises(InputError, match="searched in int8, not float32: give another path"):
    Index.make(model, texts, None, tmp_path / "x", None)
  with pytest.raises(InputError, match="bm25 ranks by words and keeps no vectors"):
    as2jax.load(finished_run("bm25")).index(["a text"], storage="int8")


def test_the_number_of_hits_is_any_whole_number():
  index = Index.make(ranker(documents("random"), "dot"), ["1", "2", "3"], None, None, None)
  assert index.search("2", np.int64(2)) == index.search("2", 2)
  with pytest.raises(TypeError, match="float"):
    index.search("2", 2.0)
