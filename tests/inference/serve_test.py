"""The service, asked by a real client over loopback: nothing is lost, mistakes are told as JSON."""

import base64
import collections
import concurrent.futures
import contextlib
import importlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tiny

import as2jax
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import calibration
from as2jax.inference import serve
from as2jax.runtime.errors import InputError

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
parser = pytest.importorskip("prometheus_client.parser", reason="it is not installed")

QUERY = "who sat on the mat"
JSON = {"content-type": "application/json"}
TEXTS = ["the cat sat on the mat", "a dog came in", "nobody was there", "glaciers melt slowly"]


@contextlib.contextmanager
def running(ranker, index=None, token=None, **limits):
  """The address of a service in another thread, and its server."""
  port = tiny.free_port()
  app = serve.application(ranker, index, limits=serve.Limits(**limits), token=token)
  server = serve.server(app, "127.0.0.1", port)
  thread = threading.Thread(target=server.run)
  thread.start()
  try:
    while not server.started:
      assert thread.is_alive()
      time.sleep(0.01)
    yield f"http://127.0.0.1:{port}", server
  finally:
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def cross(finished_run):
  return as2jax.load(finished_run("crossencoder"))


@pytest.fixture(scope="module")
def biencoder(finished_run):
  return as2jax.load(finished_run("triplet"))


@pytest.fixture(scope="module")
def index(biencoder):
  return biencoder.index(TEXTS, ids="abcd")


@pytest.fixture(scope="module")
def vectors_url(biencoder):
  with running(biencoder) as (address, _):
    yield address


@pytest.fixture(scope="module")
def held_url():
  ranker = Held()
  ranker.go.set()
  with running(ranker) as (address, _):
    yield address


@pytest.fixture(scope="module")
def url(cross, index):
  with running(cross, index, body=20_000, candidates=50) as (address, _):
    yield address


def post(url, path, body, timeout=60):
  return httpx.post(url + path, json=body, timeout=timeout)


def ask(url, query, timeout=60):
  return post(url, "/rerank", {"query": query, "texts": ["x"]}, timeout)


def metrics(url, **headers):
  """{(name, path, status): value}, as Prometheus' own parser reads them."""
  text = httpx.get(url + "/metrics", headers=headers).text
  families = parser.text_string_to_metric_families(text)
  return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


# (path, body) as cohere 5.21.1, langchain-cohere 0.6.0 and openai 3.57.0 send them.
RERANKED = {"model": "any", "query": QUERY, "documents": TEXTS}
RECORDED = [
  ("/v2/rerank", {**RERANKED, "top_n": 2}),
  ("/v1/rerank", {**RERANKED, "documents": [{"text": t} for t in TEXTS], "return_documents": True}),
  ("/v2/rerank", {**RERANKED, "top_n": 3, "max_tokens_per_doc": None}),
  ("/v1/embeddings", {"model": "any", "input": TEXTS, "encoding_format": "base64"}),
  ("/v1/embeddings", {"model": "any", "input": QUERY, "encoding_format": "float"}),
]


@pytest.mark.parametrize("path, body", RECORDED)
def test_requests_of_client_packages_are_answered(url, vectors_url, cross, biencoder, path, body):
  if path == "/v1/embeddings":
    answer = post(vectors_url, path, body).json()
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [entry["embedding"] for entry in answer["data"]]
    if body["encoding_format"] == "base64":
      vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
    np.testing.assert_allclose(vectors, biencoder.encode_document(texts), atol=1e-6)
    assert [entry["index"] for entry in answer["data"]] == list(range(len(texts)))
    assert answer["usage"] == {"prompt_tokens": biencoder.tokens(texts)} | {
      "total_tokens": sum(biencoder.tokens([text]) for text in texts)
    }
    return
  answer = post(url, path, body)
  assert answer.headers["x-score-kind"] == answer.json()["score_kind"] == "logit"
  hits = cross.rank(QUERY, TEXTS, top_k=body.get("top_n"))
  assert len(answer.json()["results"]) == len(hits)
  for entry, hit in zip(answer.json()["results"], hits, strict=True):
    assert entry["index"] == hit.index
    assert entry["relevance_score"] == pytest.approx(hit.score, abs=1e-6)
    assert entry.get("document") == ({"text": hit.text} if "return_documents" in body else None)


@pytest.mark.long
def test_client_packages_see_what_the_model_says(url, vectors_url, cross, biencoder, monkeypatch):
  """They send what is recorded above; installed for this test alone."""
  why = "pip install cohere openai langchain-cohere"
  cohere = pytest.importorskip("cohere", reason=why)
  openai = pytest.importorskip("openai", reason=why)
  langchain = pytest.importorskip("langchain_cohere", reason=why)
  sent, body_of = [], serve.Request.json

  async def recorded(request):
    sent.append((request.url.path, await body_of(request)))
    return await body_of(request)

  monkeypatch.setattr(serve.Request, "json", recorded)
  hits, key = cross.rank(QUERY, TEXTS), "any"
  best = [(hit.index, pytest.approx(hit.score, abs=1e-6)) for hit in hits]
  reranker = langchain.CohereRerank(cohere_api_key=key, base_url=url, model="any", top_n=3)
  with (
    cohere.ClientV2(key, base_url=url) as second,
    cohere.Client(key, base_url=url) as first,
    openai.OpenAI(api_key=key, base_url=vectors_url + "/v1") as client,
    reranker.client,
  ):
    reranked = second.rerank(**RECORDED[0][1])
    assert [(one.index, one.relevance_score) for one in reranked.results] == best[:2]
    reranked = first.rerank(**RECORDED[1][1])
    assert [(one.index, one.relevance_score) for one in reranked.results] == best
    assert [one.document.text for one in reranked.results] == [hit.text for hit in hits]
    document = importlib.import_module("langchain_core.documents").Document
    found = reranker.compress_documents([document(text) for text in TEXTS], QUERY)
    found = [(TEXTS.index(one.page_content), one.metadata["relevance_score"]) for one in found]
    assert found == best[:3]
    vectors = [one.embedding for one in client.embeddings.create(model="any", input=TEXTS).data]
    np.testing.assert_allclose(vectors, biencoder.encode_document(TEXTS), atol=1e-6)
    (vector,) = client.embeddings.create(model="any", input=QUERY, encoding_format="float").data
    expected = biencoder.encode_document([QUERY])[0]
    np.testing.assert_allclose(vector.embedding, expected, atol=1e-6)
    assert [model.id for model in client.models.list()] == ["triplet"]
    assert sent == RECORDED
    with pytest.raises(openai.UnprocessableEntityError, match="dimensions.*would not honour"):
      client.embeddings.create(model="any", input=TEXTS, dimensions=8)
    with pytest.raises(cohere.UnprocessableEntityError, match="the model reads up to"):
      second.rerank(**RECORDED[0][1], max_tokens_per_doc=2)


def test_texts_are_answered_as_text_embeddings_inference_does(url, cross):
  hits = cross.rank(QUERY, TEXTS)
  body = {"query": QUERY, "texts": TEXTS, "raw_scores": True, "return_text": True}
  actual = post(url, "/rerank", body).json()
  assert [(e["index"], e["text"]) for e in actual] == [(h.index, h.text) for h in hits]
  np.testing.assert_allclose([e["score"] for e in actual], [h.score for h in hits], atol=1e-6)
  plain = post(url, "/rerank", {"query": QUERY, "texts": TEXTS, "truncate": True, "model": "any"})
  # On its dev questions no probability follows from a score.
  assert plain.headers["x-score-kind"] == "logit"
  assert plain.json() == [{"index": e["index"], "score": e["score"]} for e in actual]
  body = {"query": QUERY, "documents": TEXTS, "max_tokens_per_doc": 4096, "top_n": 1}
  (best,) = post(url, "/rerank", body).json()["results"]
  assert best == {"index": hits[0].index, "relevance_score": actual[0]["score"]}


def test_documents_are_pruned_to_what_answers(url, cross):
  documents = ["The cat sat. It rained.\n\n- Ice melts.", "A dog ran."]
  asked = {"query": QUERY, "documents": documents, "threshold": None, "top_k": 3}
  answer = post(url, "/prune", asked).json()
  kept = cross.select(QUERY, documents, threshold=None, top_k=3)
  assert answer.pop("score_kind") == cross.similarity and answer["answered"] is None
  assert answer["text"] == kept.text and len(answer["sentences"]) == 3
  for one, expected in zip(answer["sentences"], kept.sentences, strict=True):
    assert documents[one["document"]][one["start"] : one["end"]] == one["text"] == expected.text
    assert one["score"] == pytest.approx(expected.score, abs=1e-6)
  nothing = post(url, "/prune", {**asked, "documents": "Ice. ", "threshold": 1e9}).json()
  assert nothing["sentences"] == []
  refused = post(url, "/prune", {**asked, "documents": ["---"]})
  assert refused.status_code == 422 and "no sentence" in refused.text


@pytest.mark.parametrize(
  "path, body, expected",
  [
    ("/embed", {"inputs": "x"}, [[0.6, 0.8]]),
    ("/embed", {"inputs": ["x", "y"], "normalize": False}, [[3, 4], [3, 4]]),
    ("/embed", {"inputs": "x", "prompt_name": "query", "truncate": True}, [[1, 0]]),
    ("/embed", {"inputs": "zero"}, [[0, 0]]),
    ("/v1/embeddings", {"input": ["x"]}, [[3, 4]]),
    ("/v1/embeddings", {"input": "x", "input_type": "query", "user": "me"}, [[2, 0]]),
  ],
)
def test_vectors_are_of_the_side_and_length_that_are_asked_for(held_url, path, body, expected):
  answer = post(held_url, path, body).json()
  if path == "/v1/embeddings":
    answer = [entry["embedding"] for entry in answer["data"]]
  np.testing.assert_allclose(answer, expected, atol=1e-6)


def test_ten_thousand_documents_are_ranked(finished_run):
  words = as2jax.load(finished_run("bm25"))
  documents = [f"cat {i} sat on {i % 97}" + " mats" * (i % 3) for i in range(10_000)]
  body = {"query": "cat 77 on 42 mats", "documents": documents}
  with running(words) as (url, _):
    cut = post(url, "/v2/rerank", RERANKED | {"max_tokens_per_doc": 512})
    assert "reads texts whole" in cut.json()["error"]
    answer = post(url, "/v2/rerank", body).json()
    raw = post(url, "/v2/rerank", {**body, "raw_scores": True}).json()
    assert post(url, "/v2/rerank", body | {"documents": ["x"] * 10_001}).status_code == 413
    asked = {"query": "cat 7", "documents": documents[:3]}
    pruned = [post(url, "/prune", asked | more).json() for more in ({}, {"threshold": None})]
  assert pruned[0]["answered"] is not None and pruned[1]["answered"] is None
  assert len(pruned[1]["sentences"]) == 3
  hits = words.rank(body["query"], documents)
  assert (answer["score_kind"], raw["score_kind"]) == ("probability", words.similarity)
  of = lambda results: [(e["index"], e["relevance_score"]) for e in results["results"]]
  assert of(raw) == [(h.index, h.score) for h in hits]
  probability = calibration.of_run(words.source, 0).probability(np.asarray([h.score for h in hits]))
  assert of(answer) == list(zip([h.index for h in hits], probability.tolist(), strict=True))


def test_an_index_is_searched(url, cross, index):
  actual = post(url, "/search", {"query": QUERY, "k": 3}).json()["results"]
  expected = index.search(QUERY, 3)
  found = [(e["index"], e["id"], e["text"]) for e in actual]
  assert found == [(h.index, h.id, h.text) for h in expected]
  np.testing.assert_allclose([e["score"] for e in actual], [h.score for h in expected], atol=1e-6)
  actual = post(url, "/search", {"query": QUERY, "rerank": True}).json()["results"]
  assert [e["index"] for e in actual] == [h.index for h in cross.rank(QUERY, TEXTS)]
  state = httpx.get(url + "/health").json()
  served = {"seed": 0, "score_kind": "logit"}
  known = {"status": "ok", "model": "crossencoder", "run": "crossencoder", "documents": 4}
  assert state == {**known, **served, "waiting": 0}
  (model,) = httpx.get(url + "/v1/models").json()["data"]
  assert model.items() >= {"id": "crossencoder", "object": "model", **served}.items()


def test_two_hundred_at_once_are_all_answered(url, cross):
  """Raw scores equal those of `rank`, whatever else was ranked in the same batch."""
  asked = [
    (f"who is number {i}", [f"number {i % 7} is {what}" for what in TEXTS[: 1 + i % 4]])
    for i in range(200)
  ]
  before = metrics(url)["as2jax_batch_fill_ratio_count",]
  # A connection that expires may be closed while another thread takes it (httpcore #1110).
  limits = httpx.Limits(max_connections=200, keepalive_expiry=None)
  with httpx.Client(timeout=300, limits=limits) as client:
    send = lambda one: client.post(
      url + "/rerank", json={"query": one[0], "texts": one[1], "raw_scores": True}
    )
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
      answers = list(pool.map(send, asked))
  assert [answer.status_code for answer in answers] == [200] * 200
  assert metrics(url)["as2jax_batch_fill_ratio_count",] - before < 100  # batched together
  for (query, texts), answer in zip(asked, answers, strict=True):
    expected = {hit.index: hit.score for hit in cross.rank(query, texts)}
    actual = {entry["index"]: entry["score"] for entry in answer.json()}
    assert actual.keys() == expected.keys()
    for at, score in expected.items():
      assert actual[at] == pytest.approx(score, abs=2e-6)


@pytest.mark.parametrize(
  "path, body, status, message",
  [
    ("/rerank", b"{not json", 400, "not JSON"),
    ("/rerank", [1], 422, "body: Input should be a valid dictionary"),
    ("/rerank", {"texts": TEXTS}, 422, "query: Field required"),
    ("/rerank", {"query": " ", "texts": TEXTS}, 422, "query: Value error, the text is empty"),
    ("/rerank", {"query": QUERY}, 422, "`texts` or as `documents`"),
    ("/rerank", {"query": QUERY, "texts": []}, 422, "texts: List should have at least 1"),
    ("/rerank", {"query": QUERY, "documents": [{"body": "x"}]}, 422, "documents 0"),
    ("/rerank", {"query": QUERY, "texts": TEXTS, "raw_scores": 1}, 422, "raw_scores"),
    ("/rerank", {"query": QUERY, "texts": TEXTS, "truncate": False}, 422, "truncate"),
    ("/rerank", {"query": QUERY, "texts": TEXTS, "truncation_direction": "Left"}, 422, "direction"),
    ("/v2/rerank", RERANKED | {"max_tokens_per_doc": 9}, 422, "the model reads up to"),
    ("/v1/rerank", RERANKED | {"rank_fields": ["title"]}, 422, "rank_fields 0"),
    ("/v2/rerank", RERANKED | {"priority": 1}, 422, "priority: Extra inputs"),
    ("/embed", {"inputs": "x"}, 404, "crossencoder has no vectors"),
    ("/v1/embeddings", {"input": [[5, 7]]}, 422, "input 0: Value error, numbers of tokens"),
    ("/v1/embeddings", {"input": "x", "dimensions": 8}, 422, "would not honour the field"),
    ("/rerank", {"query": QUERY, "texts": ["\ud83d"]}, 422, "texts 0"),
    ("/rerank", {"query": QUERY, "texts": ["x"] * 51}, 413, "at most 50"),
    ("/rerank", {"query": QUERY, "texts": ["x" * 20_000]}, 413, "longer than 20000 bytes"),
    ("/search", {"query": QUERY, "k": 51}, 413, "at most 50"),
    ("/health", {}, 405, "Method Not Allowed"),
  ],
)
def test_a_mistake_is_answered_with_what_is_wrong(url, path, body, status, message):
  content = body if isinstance(body, bytes) else json.dumps(body).encode()
  answer = httpx.post(url + path, content=content, headers=JSON, timeout=60)
  error, kind = answer.json()["error"], answer.json().get("error_type")
  if path == "/v1/embeddings":
    error, kind = error["message"], error["type"]
  assert answer.status_code == status and message in error and kind == "Validation"


class Held:
  """A ranker whose work waits until it is let go."""

  name, source, seed, calibration, similarity, longest = "held", "", None, None, "cosine", 9
  has_vectors = independent = True

  def __init__(self):
    self.go, self.began, self.asked = threading.Event(), threading.Event(), []
    self.sizes, self.compile, self.compiled = 1, threading.Semaphore(0), []

  def programs(self):
    for number in range(self.sizes):
      assert number == 0 or self.compile.acquire(timeout=60)
      self.compiled.append(number)
      yield True

  def encode_query(self, texts):
    return np.array([[2, 0]] * len(texts), np.float32)

  def encode_document(self, texts):
    return np.array([[0, 0] if text == "zero" else [3, 4] for text in texts], np.float32)

  def tokens(self, texts):
    return len(texts)

  def rank_each(self, questions):
    self.began.set()
    assert self.go.wait(60)
    self.asked += [question.text for question in questions]
    if any(question.text == "bad" for question in questions):
      raise InputError("a score of 'bad' is not finite")
    if any(question.text == "broken" for question in questions):
      raise SystemExit("the device is gone")  # as a panic of native code, no Exception
    if len(questions) > 1 and any(question.text == "large" for question in questions):
      raise MemoryError
    return [[as2jax.Hit(0, 0.5, "x", "0")] for _ in questions]


def waiting(url, count):
  """Waits until so many requests are in the queue."""
  for _ in range(1000):
    if httpx.get(url + "/health").json()["waiting"] == count:
      return
    time.sleep(0.01)
  raise AssertionError(f"never {count} requests in the queue")


def test_requests_are_answered_between_programs(caplog):
  ranker = Held()
  ranker.sizes = 3
  ranker.go.set()
  with (
    caplog.at_level("INFO"),
    concurrent.futures.ThreadPoolExecutor(1) as pool,
    running(ranker) as (url, _),
  ):
    assert ranker.compiled == [0]
    first = pool.submit(ask, url, "first")
    waiting(url, 1)
    ranker.compile.release()
    assert first.result(60).status_code == 200 and ranker.compiled == [0, 1]
    assert "other sizes are compiled between" in caplog.text and "all " not in caplog.text
    ranker.compile.release()
    while "all programs are compiled" not in caplog.text:
      time.sleep(0.01)


def test_a_full_queue_and_a_shutdown():
  """What was accepted is answered after the end has begun."""
  ranker = Held()
  with (
    running(ranker, waiting=2) as (url, server),
    concurrent.futures.ThreadPoolExecutor(8) as pool,
  ):
    first = pool.submit(ask, url, "first")
    assert ranker.began.wait(60)
    others = [pool.submit(ask, url, query) for query in ("second", "third")]
    waiting(url, 2)
    refused = ask(url, "fourth")
    assert refused.status_code == 429 and refused.json()["error_type"] == "Overloaded"
    assert refused.headers["retry-after"] == "1"
    server.should_exit = True
    time.sleep(0.3)
    assert not first.done()
    ranker.go.set()
    for future in (first, *others):
      assert future.result(60).json() == [{"index": 0, "score": 0.5}]
  assert ranker.asked[0] == "first" and sorted(ranker.asked[1:]) == ["second", "third"]
  with pytest.raises(httpx.ConnectError):
    httpx.get(url + "/health")


def test_a_long_request_lets_others_go_between():
  ranker, most = Held(), serve.TOGETHER
  long = {"query": "long", "texts": ["x"] * (2 * most + 1)}
  with running(ranker) as (url, _), concurrent.futures.ThreadPoolExecutor() as pool:
    first = pool.submit(post, url, "/rerank", long)
    assert ranker.began.wait(60)
    second = pool.submit(ask, url, "short")
    waiting(url, 1)
    ranker.go.set()
    assert [entry["index"] for entry in first.result().json()] == [0, most, 2 * most]
    assert second.result().status_code == 200 and ranker.asked == ["long", "short", "long", "long"]


def test_one_bad_request_spoils_no_other():
  ranker = Held()
  with running(ranker) as (url, _), concurrent.futures.ThreadPoolExecutor(8) as pool:
    first = pool.submit(ask, url, "first")
    assert ranker.began.wait(60)
    others = [pool.submit(ask, url, query) for query in ("good", "large", "broken", "bad")]
    waiting(url, 4)
    ranker.go.set()
    *whole, broken, bad = [future.result() for future in (first, *others)]
    assert [answer.status_code for answer in whole] == [200] * 3
    assert bad.status_code == 422 and "'bad' is not finite" in bad.json()["error"]
    assert broken.status_code == 500 and broken.json()["error_type"] == "Backend"
    assert "SystemExit" in broken.json()["error"] and ask(url, "again").status_code == 200
    answer = post(url, "/search", {"query": QUERY})
    assert answer.status_code == 404 and "no index" in answer.json()["error"]


def test_who_is_late_or_gone_is_not_ranked(monkeypatch):
  """Nor does anyone rank after a defect of ours, which `/health` tells."""
  ranker = Held()
  with running(ranker, queue=2) as (url, _), concurrent.futures.ThreadPoolExecutor(8) as pool:
    first = pool.submit(ask, url, "first")
    assert ranker.began.wait(60)
    with pytest.raises(httpx.ReadTimeout):
      ask(url, "gone", timeout=0.3)
    waiting(url, 0)
    assert metrics(url)["as2jax_requests_total", "/rerank", "499"] == 1
    late = ask(url, "late")
    assert late.status_code == 503 and late.headers["retry-after"] == "1"
    ranker.go.set()
    assert first.result().status_code == ask(url, "next").status_code == 200
    assert ranker.asked == ["first", "next"] and httpx.get(url + "/health").status_code == 200
    monkeypatch.setattr(serve.Queue, "_next", lambda _: 1 / 0)
    assert ask(url, "nobody").status_code == httpx.get(url + "/health").status_code == 503


def test_strangers_are_refused_and_everyone_is_counted():
  ranker, known = Held(), {"authorization": "Bearer secret"}
  ranker.go.set()
  foreign = {"content-type": "text/plain", "origin": "http://evil.example"}
  cases = [
    ("/health", {}, 200),
    ("/health", {"host": "evil.example"}, 400),
    ("/health", {"host": "[::1]:8080"}, 200),
    ("/docs", {}, 200),
    ("/metrics", {}, 401),
    ("/none", {}, 401),
    ("/none", known, 404),
    ("/rerank", JSON, 401),
    ("/rerank", JSON | {"authorization": "Bearer secre"}, 401),
    ("/rerank", JSON | {"authorization": "Basic secret"}, 401),
    ("/rerank", JSON | known, 200),
    ("/rerank", foreign | known, 415),
    ("/rerank", JSON | known | {"host": "evil.example"}, 400),
  ]
  expected = collections.defaultdict(int)
  with running(ranker, token="secret") as (url, _):
    for path, headers, status in cases:
      method = "POST" if path == "/rerank" else "GET"
      body = b'{"query": "who", "texts": ["x"]}'
      answer = httpx.request(method, url + path, headers=headers, content=body)
      assert answer.status_code == status, (path, headers)
      known_path = "other" if path == "/none" else path
      expected["as2jax_requests_total", known_path, str(status)] += 1
      expected["as2jax_request_seconds_count", known_path] += 1
    expected |= {("as2jax_batch_fill_ratio_sum",): 1 / serve.TOGETHER, ("as2jax_queue_length",): 0}
    assert expected.items() <= metrics(url, **known).items()
  with pytest.raises(InputError, match="the token is empty"):
    serve.application(ranker, token="")


HEAD = b"POST /rerank HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
HALF = [HEAD, HEAD + b"content-length: 99\r\n\r\n{"]  # requests


def test_requests_under_way_hold_no_more_than_the_limit():
  ranker, long = Held(), {"query": QUERY, "texts": ["x" * 3000]}
  with running(ranker, bodies=4000) as (url, _), concurrent.futures.ThreadPoolExecutor() as pool:
    first = pool.submit(post, url, "/rerank", long)
    assert ranker.began.wait(60)
    refused = post(url, "/rerank", long)
    assert refused.status_code == 503 and "have 6" in refused.json()["error"]
    ranker.go.set()
    assert first.result().status_code == post(url, "/rerank", long).status_code == 200


def test_half_a_request_is_not_waited_for():
  with running(Held(), client=0.5) as (url, _):
    for part in HALF:
      with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 9) as one:
        one.sendall(part)
        assert one.recv(1) == b""


def test_no_descriptor_that_others_hold_is_closed(tmp_path):
  """Files take the numbers of connections that ended, were cut or came late."""
  ranker, body = Held(), b'{"query": "who", "texts": ["x"]}'
  ranker.go.set()
  requests = *HALF, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, b"?\r\n\r\n"
  files = []
  with contextlib.ExitStack() as stack:
    with running(ranker, connections=8, client=0.1) as (url, _):
      for i in range(120):
        address = "127.0.0.1", int(url.rpartition(":")[2])
        one = stack.enter_context(socket.create_connection(address, 9))
        with contextlib.suppress(ConnectionError):
          one.sendall(requests[i % 4])
        files.append(stack.enter_context((tmp_path / str(i)).open("w")))
        if i % 3:
          one.close()
      time.sleep(0.3)
    assert all(os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)) for file in files)


FEW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
sys.path += sys.argv[2:]
import serve_test as test
ranker = test.Held()
ranker.go.set()
test.serve.serve(ranker, port=int(sys.argv[1]), limits=test.serve.Limits(client=600, shutdown=1))
"""


def test_half_open_connections_shut_nobody_out(tmp_path):
  """Nor do they keep the service from its end; a process of 256 descriptors, over the wire."""
  port, log = tiny.free_port(), tmp_path / "log"
  url = f"http://127.0.0.1:{port}"
  command = [sys.executable, "-c", FEW, str(port), *map(str, pathlib.Path(__file__).parents[:2])]
  with log.open("w") as out, subprocess.Popen(command, stderr=out) as process:
    with contextlib.ExitStack() as stack:
      stack.callback(process.kill)
      while "running on" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
      join = lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
      opened = [join() for _ in range(300)]
      for i, one in enumerate(opened):
        with contextlib.suppress(ConnectionError):
          one.sendall(HALF[i % 2])
      held = join()
      held.sendall(HALF[1])
      assert ask(url, QUERY).status_code == 200
      process.send_signal(signal.SIGINT)
      assert process.wait(20) == 0 and b" 503 " in held.recv(99)
  assert log.read_text().count("kept it waiting longest is cut off") == 1
  assert "out of system resource" not in log.read_text()


def test_a_neighbour_changes_no_score_by_words(finished_run):
  """BM25 counts words in the candidates of one request alone."""
  words = as2jax.load(finished_run("bm25"))
  others = tuple(Candidate(str(i), f"cat {i} on a mat") for i in range(9))
  asked = Question("q", "cat dog", tuple(Candidate(str(i), text) for i, text in enumerate(TEXTS)))
  beside, _ = words.rank_each([asked, Question("p", "who is", others)])
  assert [beside] == words.rank_each([asked])
  index = words.index(TEXTS)
  queries, how = ["cat dog", "ice melts"], {"rerank": words, "depth": 2}
  alone = [index.search(query, 1, **how) for query in queries]
  assert index.search_many(queries, 1, **how) == alone


def test_a_port_in_use_is_told():
  with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    with pytest.raises(InputError, match="is the port in use"):
      serve.serve(Held(), port=taken.getsockname()[1])
