"""A run opened from its folder ranks, scores, encodes and searches, and its programs are kept."""

import concurrent.futures
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import tiny_systems
from ml_collections import ConfigDict

from as2jax.data import dataset as datasets
from as2jax.data.inputs.rankings import FirstStageRanking, OrderGiven, Ranking
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import predict
from as2jax.inference import modes
from as2jax.inference.evaluate import evaluate
from as2jax.inference.open import load
from as2jax.inference.ranker import Ranker
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError

TEXTS = ("the cat sat on the mat", "a dog came in", "nobody was there", "glaciers melt slowly")
SYSTEMS = ("triplet", "crossencoder", "word_overlap", "idf_overlap", "bm25")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, finished_run):
  """The folders of finished runs, by system; the vectors have two seeds."""
  folder = tmp_path_factory.mktemp("runs")
  modes.run(tiny.config("triplet", epochs=0, seeds=(3, 5)), str(folder / "triplet"))
  for system in SYSTEMS[1:]:
    (folder / system).symlink_to(finished_run(system))
  return folder


def joint(ranking, **fields):
  """A joint model, or one with other fields, which has scored nothing."""
  config = ConfigDict({"model": {"name": "cassie"}, "encoder": {}})
  parts = SimpleNamespace(config=config, inputs=(FirstStageRanking(ranking),))
  model = SimpleNamespace(**{"layout": "joint", "encodes": False, "ranking_score": "p", **fields})
  return Ranker(SimpleNamespace(components=parts, model=model), {}, seed=0)


def test_a_joint_model_has_no_score_of_a_pair_and_measures_nothing_in_the_order_of_the_data():
  joint(Ranking()).require_ranking()
  asked = [Question("q", "who", (Candidate("c", "Ann", 1),))]
  no_ranking = "cassie ranks .* no ranking of these .*predict.ranking"
  by_place = joint(Ranking(), layout="single", position=True)
  assert not any("scores" in repr(one) or one.independent for one in (joint(Ranking()), by_place))
  together = "cassie scores .* together.*: use rank_many$"
  for use, message in (
    (lambda: joint(Ranking()).scores([("who", "Ann")]), together),
    (lambda: by_place.scores([("who", "Ann")]), together),
    (joint(OrderGiven()).require_ranking, no_ranking),
    (lambda: evaluate(joint(OrderGiven()), asked), no_ranking),
  ):
    with pytest.raises(InputError, match=message):
      use()


def test_a_run_is_known_by_its_folder(runs, tmp_path, monkeypatch):
  moved = tmp_path / "elsewhere"
  shutil.copytree(runs / "triplet", moved)
  monkeypatch.chdir(tmp_path)
  run = Run("elsewhere")
  assert run.config.model.name == "triplet" and run.seeds == (3, 5)
  name = f"map[{run.config.data.name}-clean/test]"
  assert 0 < run.metrics[name]["mean"] < 1
  values = {seed["seed"]: seed["best_value"] for seed in run.results["seeds"]}
  assert run.ranker().seed == max(values, key=values.get)
  before = sorted(path.relative_to(moved) for path in moved.rglob("*"))
  run.ranker(3).rank("who sat", TEXTS)
  assert sorted(path.relative_to(moved) for path in moved.rglob("*")) == before
  with pytest.raises(InputError, match="seed = 4: the run has 3, 5"):
    run.ranker(4)
  with pytest.raises(InputError, match="none holds no run"):
    Run(tmp_path / "none")


@pytest.mark.parametrize("key, value", [("prompts", ("query: ", "")), ("rules", ("lowercase",))])
def test_a_config_that_reads_texts_otherwise_is_refused(key, value, tmp_path):
  config = tiny.config("triplet", mode="evaluate", data__rules=(), data__prompts=())
  content = json.loads(config.to_json())
  for there in (content, content | {"data": {**content["data"], key: "absent"}}):
    there["data"] = {name: its for name, its in there["data"].items() if its != "absent"}
    (tmp_path / "config.json").write_text(json.dumps(there))
    Run(tmp_path, config)  # a run that is older than the key has its default
    with pytest.raises(InputError, match=rf"another model:\n  data.{key}: \[\] there, \['.*now"):
      Run(tmp_path, tiny.config("triplet", mode="evaluate", **{f"data__{key}": value}))


@pytest.mark.parametrize("system", SYSTEMS)
def test_texts_are_ranked_and_scored_alike(runs, system):
  ranker = Run(runs / system).ranker()
  hits = ranker.rank("who sat on the mat", TEXTS, top_k=3)
  assert len(hits) == 3 and [hit.id for hit in hits] == [str(hit.index) for hit in hits]
  again = ranker.rank("who sat on the mat", [Candidate(f"c{i}", t) for i, t in enumerate(TEXTS)])
  assert [hit.id for hit in again][:3] == [f"c{hit.index}" for hit in hits]
  scores = ranker.scores([("who sat on the mat", text) for text in TEXTS])
  assert scores.dtype == np.float32
  if system != "bm25":  # whose scores depend on what is ranked beside
    for hit in again:
      assert scores[hit.index] == pytest.approx(hit.score, abs=2e-6)
  assert ranker.rank("who", []) == [] and ranker.scores([]).shape == (0,)
  for question, candidates in ((" ", TEXTS), ("who", ["", "x"])):
    with pytest.raises(InputError, match="give a text"):
      ranker.rank(question, candidates)
  for candidates, message in (
    ("abc", "'abc' is no list of texts: give one"),
    ({"a": 1.0, "b": 2.0}, r"\{'a': 1.0, 'b': 2.0\} is no list of texts: give one"),
    ({"a"}, r"\{'a'\} is no list of texts: give one"),
    (["a", None], "is None: give a text"),
    ([float("nan"), "a"], "is nan: give a text"),
  ):
    with pytest.raises(InputError, match=message):
      ranker.rank("who", candidates)
  for wrong in (("who", "a", "b"), "ab", None):
    with pytest.raises(InputError, match="pair 1 is .*: give a question and a candidate"):
      ranker.scores([("who", "a"), wrong])
  np.testing.assert_array_equal(
    ranker.predict([("who sat", "a cat")]), ranker.scores([("who sat", "a cat")])
  )


def test_vectors_and_their_index(runs):
  ranker = Run(runs / "triplet").ranker()
  queries, documents = ranker.encode_query(["who sat"] * 2), ranker.encode_document(TEXTS)
  assert queries.shape == (2, 16) and documents.shape == (4, 16)
  np.testing.assert_array_equal(queries[0], queries[1])
  assert ranker.encode_document([]).shape == (0, 16)
  np.testing.assert_array_equal(ranker.encode(TEXTS), documents)
  for encode in (ranker.encode_query, ranker.encode_document):
    with pytest.raises(InputError, match="'who' is no list of texts"):
      encode("who")
  scores = [hit.score for hit in ranker.rank("who sat", TEXTS)]
  distances = -np.linalg.norm(documents - queries[:1], axis=1)
  np.testing.assert_allclose(scores, np.sort(distances)[::-1], atol=1e-5)
  index = ranker.index(TEXTS, ids="abcd")
  assert index.search_many(["who sat", "x"], 2)[0] == index.search("who sat", top_k=2)
  assert index.search("who sat", k=2) == index.search("who sat", 2)
  assert index.search_many([]) == []
  with pytest.raises(InputError, match="top_k = 0"):
    index.search("x", k=0)


def test_a_ranker_is_saved_and_opened_again(trained, tmp_path):
  folder, _ = trained("bert", "triplet", data__prompts=("ask: ", ""), epochs=0)
  ranker = Run(folder).ranker()
  ranker.save(tmp_path / "saved")
  saved = load(tmp_path / "saved")
  actual, expected = saved.rank("who sat", TEXTS), ranker.rank("who sat", TEXTS)
  assert [hit.text for hit in actual] == [hit.text for hit in expected]
  assert actual[0].score == pytest.approx(expected[0].score, abs=1e-5)
  with pytest.raises(InputError, match="saved is no run: .* copy that"):
    saved.save(tmp_path / "again")
  with pytest.raises(InputError, match="use encode_query and encode_document"):
    ranker.encode(TEXTS)


def test_words_are_searched_under_the_runs_rules(tmp_path):
  config = tiny_systems.config("bm25", data__rules=("html", "alphanumeric"))
  modes.run(config, str(tmp_path / "x"))
  ranker = Run(tmp_path / "x").ranker()
  texts = ["ice &amp; snow", "the ice-cream", "snow"]
  asked = "ice&amp;snow?"
  assert ranker.index(texts).search(asked, 3) == ranker.rank(asked, texts)


def test_models_without_vectors_say_so(runs):
  ranker = Run(runs / "crossencoder").ranker()
  for function in (ranker.encode_query, ranker.encode_document, ranker.index):
    with pytest.raises(TypeError, match="no vectors of texts"):
      function(TEXTS)


@pytest.mark.parametrize("system", ["triplet", "crossencoder"])
def test_nothing_compiles_after_warm_up(runs, system):
  ranker = Run(runs / system).ranker()
  assert next(ranker.programs())
  before = tiny.compilations()
  words = {"triplet": 12, "crossencoder": 8}[system]  # two texts or pairs in each of the eight rows
  ranker.rank("which", [f"{'ice ' * words}number {i}" for i in range(15)])
  assert tiny.compilations() == before > 0  # it waits for no other program
  ranker.warm_up()
  before = tiny.compilations()
  for count in (1, 2, 5, 40, 300):
    words = [f"{'word ' * (i % 9)}number {i}" for i in range(count)]
    assert len(ranker.rank("which number", words)) == count
  assert tiny.compilations() == before


def test_threads_share_a_ranker(runs):
  ranker = Run(runs / "triplet").ranker()
  asked = [q for q in datasets.load("sample").splits["test"] if q.candidates][:16]
  expected = [ranker.rank_many([question]) for question in asked]
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    actual = list(pool.map(lambda question: ranker.rank_many([question]), asked * 4))
  assert actual == expected * 4
  assert len(ranker.predictor._batchers) <= predict.KEPT
