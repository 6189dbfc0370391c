"""An index is kept in a folder: resumed, appended to, checked against its texts and its model."""

import json
import os
import shutil
import types

import numpy as np
import pytest
import tiny
import tiny_systems
from safetensors.numpy import load_file, save_file

import as2jax
from as2jax.data import dataset as datasets
from as2jax.evaluation import exact_search, predict
from as2jax.inference import index as indexes
from as2jax.inference.index import Index
from as2jax.inference.ranker import ParameterFreeRanker, Ranker
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.training import build

QUERY = "who sat on the mat"
TEXTS = [f"the {what} {where}" for what in ("cat", "dog", "ice") for where in ("sat", "ran", "is")]


@pytest.fixture(scope="module")
def ranker(finished_run):
  return as2jax.load(finished_run("triplet"))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
  monkeypatch.setattr(indexes, "DOCUMENTS", 4)


@pytest.fixture
def encoded(ranker, monkeypatch):
  """Counts the documents that are encoded."""
  counts, encode = [], ranker.encode_document

  def counted(texts):
    counts.append(len(texts))
    return encode(texts)

  monkeypatch.setattr(ranker, "encode_document", counted)
  return counts


def test_a_folder_searches_as_memory_does(ranker, tmp_path, encoded, capsys):
  memory = ranker.index(TEXTS, ids="abcdefghi")
  assert capsys.readouterr().err.splitlines() == ["encoded 4 of 9", "encoded 8 of 9"]
  kept = ranker.index(TEXTS, ids="abcdefghi", path=tmp_path / "index")
  assert encoded == [4, 4, 1] * 2
  expected = memory.search(QUERY, 5)
  ranked = {hit.index: hit.score for hit in ranker.rank(QUERY, TEXTS)}
  for hit in expected:
    assert hit.score == pytest.approx(ranked[hit.index], abs=1e-5)
    assert (hit.text, hit.id) == (TEXTS[hit.index], "abcdefghi"[hit.index])
  for index in (kept, Index.open(tmp_path / "index"), Index.open(kept.path, ranker=ranker)):
    assert index.search(QUERY, 5) == expected and len(index) == 9
    assert index.texts == TEXTS and index.ids == list("abcdefghi")
    vectors = index._rows.parts[0].arrays["vectors"]
    assert not vectors.flags.writeable and not vectors.flags.owndata  # a memory map
  assert encoded == [4, 4, 1] * 2


def bi_encoder(vectors, similarity):
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
    mesh=sharding.make_mesh(),
    encode_query=encode,
    encode_document=encode,
  )


def documents(kind):
  random = np.random.default_rng(0)
  vectors = random.normal(size=(300, 16)).astype(np.float32)
  if kind == "near":  # closer to one another than float32 tells
    vectors = (100 + 1e-4 * vectors).astype(np.float32)
  elif kind == "scales":
    vectors *= np.float32(10.0) ** random.integers(-30, 8, (300, 1))
    vectors[5] = 0
  elif kind == "equal":
    vectors[100:] = vectors[7]
  return vectors


PLAIN = {
  "dot": lambda q, d: d @ q,
  "euclidean": lambda q, d: -np.linalg.norm(d - q, axis=1),
  "cosine": lambda q, d: d @ q / (np.linalg.norm(d, axis=1) * np.linalg.norm(q) + 1e-300),
}


@pytest.mark.parametrize("similarity", exact_search.SIMILARITIES)
@pytest.mark.parametrize("kind", ["random", "near", "scales", "equal"])
def test_hits_are_the_best_in_float64(kind, similarity, monkeypatch):
  """Equal scores in the documents' order, whatever float32 rounds; a query alone or with others."""
  monkeypatch.setattr(indexes, "DOCUMENTS", 128)
  vectors, texts = documents(kind), list(map(str, range(300)))
  index = Index.make(bi_encoder(vectors, similarity), texts)
  pool = exact_search.prepared(vectors, similarity, side="pool")
  wanted = []
  for query in vectors[:9]:
    scores = indexes._scores(query, pool, similarity)  # of prepared vectors, which are rounded
    plain = PLAIN[similarity](query.astype(np.float64), vectors.astype(np.float64))
    np.testing.assert_allclose(scores, plain, rtol=1e-6, atol=1e-6 * np.abs(plain).max())
    best = np.lexsort((np.arange(300), -scores))[:10]
    wanted.append([as2jax.Hit(int(i), float(scores[i]), str(i), str(i)) for i in best])
  assert index.search_many(texts[:9], 10) == wanted
  assert index.search(texts[3], np.int64(10)) == wanted[3]
  if similarity == "euclidean" and kind == "near":
    assert [hits[0].index for hits in wanted] == list(range(9)) and wanted[0][0].score == 0


def test_the_same_call_goes_on_where_it_was_stopped(ranker, tmp_path, encoded, monkeypatch):
  path, write = tmp_path / "index", indexes.Part.write

  def killed(part, folder):
    if folder.name == "part-000001":
      (folder.parent / "part-000001.unfinished-0").mkdir()  # what a killed process leaves
      raise KeyboardInterrupt
    return write(part, folder)

  monkeypatch.setattr(indexes.Part, "write", killed)
  with pytest.raises(KeyboardInterrupt):
    ranker.index(TEXTS, path=path)
  monkeypatch.setattr(indexes.Part, "write", write)
  assert len(Index.open(path, ranker=ranker)) == 0
  done = []
  index = ranker.index(TEXTS, path=path, progress=lambda *counts: done.append(counts))
  assert encoded == [4, 4, 4, 1] and done == [(0, 9), (4, 9), (8, 9), (9, 9)]
  assert index.search(QUERY) == ranker.index(TEXTS).search(QUERY)
  before = len(encoded)
  assert ranker.index(TEXTS, path=path).search(QUERY) == index.search(QUERY)
  assert len(encoded) == before  # complete: nothing is encoded again
  with pytest.raises(InputError, match="an index of 9 other documents"):
    ranker.index(TEXTS[:-1], path=path)


def test_two_processes_lose_nothing_that_the_other_has_added(ranker, tmp_path):
  path = tmp_path / "index"
  first = ranker.index(TEXTS[:5], path=path)
  second = Index.open(path, ranker=ranker)
  during = []

  def progress(*_):
    with pytest.raises(InputError, match=r"the index .* is in use by another process"):
      second.add(["while the first one adds"])
    during.append(True)

  first.add(TEXTS[5:], progress=progress)
  assert during
  with pytest.raises(InputError, match="another process has added .*: open the index again"):
    second.add(["after the first one has added"])
  assert Index.open(path, ranker=ranker).texts == TEXTS
  assert [entry.name for entry in path.iterdir() if entry.name.startswith(".")] == [".lock"]


def test_documents_are_appended(ranker, tmp_path, encoded):
  path = tmp_path / "index"
  index = ranker.index(TEXTS[:5], path=path)
  index.add(TEXTS[5:])
  assert index.ids == [str(i) for i in range(9)] and encoded == [4, 1, 4]
  expected = ranker.index(TEXTS).search(QUERY, 9)
  hits = index.search(QUERY, 9)
  assert hits == Index.open(path, ranker=ranker).search(QUERY, 9)
  assert [hit.id for hit in hits] == [hit.id for hit in expected]
  # A row that is alone is multiplied in another order than among others.
  scores = [hit.score for hit in expected]
  np.testing.assert_allclose([hit.score for hit in hits], scores, rtol=0, atol=1e-6)
  for texts, ids, message in (
    (["x"], ["3"], "the id '3' occurs twice"),
    (["x", " "], None, "document '10' is ' ': give a text"),
    ("text", None, "'text' is no list of texts: give one"),
    ({"x": "a text"}, None, "is no list of texts: give one"),
    ([], None, "0 texts and 0 ids"),
  ):
    with pytest.raises(InputError, match=message):
      index.add(texts, ids=ids)
  assert len(Index.open(path, ranker=ranker)) == 9


def test_another_model_or_damage_is_told(ranker, tmp_path):
  path = tmp_path / "index"
  ranker.index(TEXTS, path=path)
  with pytest.raises(InputError, match="made with other parameters"):
    Index.open(path, ranker=(other := as2jax.load(ranker.source, dtype="bfloat16")))
  assert Index.open(path, beside=ranker).ranker is ranker  # else it is loaded a second time
  assert Index.open(path, beside=other).ranker.fingerprint == ranker.fingerprint
  with pytest.raises(InputError, match="none is no index"):
    Index.open(tmp_path / "none")
  shutil.copytree(path, tmp_path / "copy")
  vectors = tmp_path / "copy" / "part-000001" / "vectors.npy"
  content = bytearray(vectors.read_bytes())
  content[-1] ^= 1
  vectors.write_bytes(content)
  with pytest.raises(InputError, match="part-000001 is damaged"):
    Index.open(tmp_path / "copy", ranker=ranker)
  index_content = json.loads((path / "index.json").read_text())
  for damage in ("{}", json.dumps({**index_content, "parts": 3})):
    (path / "index.json").write_text(damage)
    with pytest.raises(InputError, match=r"index.json: .*put it back, or make the index anew"):
      Index.open(path, ranker=ranker)
  (path / "index.json").unlink()
  with pytest.raises(InputError, match="is not empty and holds no index: give a new folder"):
    ranker.index(TEXTS, path=path)
  with pytest.raises(InputError, match="on a local disk"):
    ranker.index(TEXTS, path="gs://bucket/x")


def test_an_index_knows_the_weights_of_a_frozen_encoder(tmp_path):
  """Which are no parameters of CETE's ablation: it has none."""
  others, fingerprints = tmp_path / "others", []
  shutil.copytree(tiny.encoder_folder(), others)
  file = others / "model.safetensors"
  save_file({name: np.roll(value, 1, 0) for name, value in load_file(file).items()}, file)
  for folder in (tiny.encoder_folder(), others):
    parts = build.load(tiny_systems.feature_based(folder, tmp_path, "no_encoder"), data=False)
    model = predict.Predictor(parts, sharding.make_mesh(), 1)
    fingerprints.append(Ranker(model, {"params": {}}, seed=None).fingerprint)
  assert fingerprints[0] != fingerprints[1]


def test_a_crossencoder_ranks_the_best_again(ranker, finished_run):
  cross, index = as2jax.load(finished_run("crossencoder")), ranker.index(TEXTS)
  first = index.search(QUERY, 4)
  hits = index.search(QUERY, 2, rerank=cross, depth=4)
  scores = cross.scores([(QUERY, hit.text) for hit in first])
  best = np.argsort(-scores, kind="stable")[:2]
  assert [hit.index for hit in hits] == [first[i].index for i in best]
  np.testing.assert_allclose([hit.score for hit in hits], scores[best], atol=2e-6)
  assert {hit.text for hit in hits} <= {hit.text for hit in first}


def test_words_are_kept_and_searched_too(finished_run, tmp_path):
  ranker = as2jax.load(finished_run("bm25"))
  index = ranker.index(TEXTS, path=tmp_path / "index")
  expected = ranker.rank("cat sat", TEXTS)[:3]
  assert index.search("cat sat", 3) == expected
  assert Index.open(tmp_path / "index").search("cat sat", 3) == expected
  with pytest.raises(InputError, match="'cat' is no list of texts: give one"):
    index.search_many("cat")
  index.add(["a cat sat"])
  assert index.search("cat sat", 1)[0].index in (0, 9)
  assert "vectors.npy" not in os.listdir(tmp_path / "index" / "part-000000")
  train = datasets.load("sample").splits["train"]
  for name, counts in (("bm25", False), ("idf_overlap", True)):  # in the training questions
    model = registry.build(registry.MODELS, {"name": name}, "model")
    fitted = [predict.FittedRanker(model, part) for part in (train, train[1:])]
    first, second = (ParameterFreeRanker(f, ranker.config, seed=0).fingerprint for f in fitted)
    assert (first != second) == counts
