"""A ranker as a web service: an ASGI application on uvicorn.

`POST /rerank` answers as two services in use do: a body with `texts` as Hugging Face's Text
Embeddings Inference, one with `documents` as Cohere's and Jina's rerank endpoints. Scores are
sigmoids of the ranker's unless the body says `raw_scores`. `POST /search` searches an index, `GET
/health` tells whether the service takes requests. Requests that wait are ranked together.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.inference.index import DEPTH, Index
from as2jax.inference.index_part import Hit
from as2jax.inference.ranker import Ranker
from as2jax.runtime.errors import InputError

if TYPE_CHECKING:
  import uvicorn
  from starlette.applications import Starlette
  from starlette.requests import Request

TOGETHER = 1024  # candidates of waiting requests that are ranked at once
SEARCHED = (16, 32, 64, 128)  # hits up to which a search has a program, compiled at the start
FIELDS = {  # of a body with `texts`, of one with `documents`
  "texts": ("query", "texts", "raw_scores", "return_text"),
  "documents": ("query", "documents", "raw_scores", "return_documents", "top_n"),
}
# Further fields of the two services, without effect on the ranking: one model is served, and texts are
# cut to what it reads.
PASSED = ("model", "truncate", "truncation_direction", "max_tokens_per_doc", "priority")
SURROGATE = re.compile("[\ud800-\udfff]")
CLOSED = 499  # what nginx calls a request whose client has gone; nobody reads it

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Limits:
  """What the service takes.

  Attributes:
    body: bytes of a request; more are answered by 413.
    candidates: of a request, likewise; also the greatest `k` of a search.
    waiting: requests in the queue; one more is answered by 429.

  """

  body: int = 1 << 20
  candidates: int = 1000
  waiting: int = 512


class _Refused(Exception):
  """An answer that is an error: its status, the kind of error, and what is wrong."""

  def __init__(self, status: int, kind: str, text: str):
    super().__init__(text)
    self.status, self.kind = status, kind


def _failed(error: Exception) -> _Refused:
  """The answer to a request that an error of ours ended, which the log has."""
  text = f"the request failed ({type(error).__name__}); the service's log says more"
  return _Refused(500, "Backend", text)


@dataclasses.dataclass(frozen=True, eq=False)
class _Job:
  """A request that waits: a question to rank, or a query with the number of hits wanted."""

  kind: str  # rank | search | search again: what is done together
  question: Question
  count: int
  answer: asyncio.Future


class Queue:
  """Requests in the order of arrival; one thread works on all of a kind that wait, together.

  A request whose client has gone, so that its answer is cancelled, is skipped.
  """

  def __init__(self, ranker: Ranker, index: Index | None, limits: Limits):
    self.ranker, self.index, self.limits = ranker, index, limits
    self._jobs: list[_Job] = []
    self._some = asyncio.Event()
    self._thread = concurrent.futures.ThreadPoolExecutor(1, "as2jax-rank")

  def __len__(self) -> int:
    return sum(not job.answer.done() for job in self._jobs)

  def put(self, kind: str, question: Question, count: int) -> asyncio.Future:
    """The answer to a request, a list of hits; it raises where the queue is full."""
    if len(self) >= self.limits.waiting:
      raise _Refused(429, "Overloaded", f"{len(self)} requests wait: try again later")
    job = _Job(kind, question, count, asyncio.get_running_loop().create_future())
    self._jobs.append(job)
    self._some.set()
    return job.answer

  async def work(self) -> None:
    """Answers requests for ever; cancelled, it ends at once: nobody waits any more."""
    loop = asyncio.get_running_loop()
    while True:
      await self._some.wait()
      if not (jobs := self._next()):
        continue
      try:
        answers = await loop.run_in_executor(self._thread, self._answers, jobs)
      except Exception as error:  # the service goes on
        log.exception("%d requests failed", len(jobs))
        answers = [_failed(error)] * len(jobs)
      for job, answer in zip(jobs, answers, strict=True):
        if job.answer.done():  # cancelled
          continue
        if isinstance(answer, Exception):
          job.answer.set_exception(answer)
        else:
          job.answer.set_result(answer)

  def _next(self) -> list[_Job]:
    """The first that waits and those of its kind behind it, up to `TOGETHER` candidates."""
    waiting = [job for job in self._jobs if not job.answer.done()]
    taken, size = [], 0
    for job in waiting:
      size += max(len(job.question.candidates), 1)
      if job.kind == waiting[0].kind and (not taken or size <= TOGETHER):
        taken.append(job)
    self._jobs = [job for job in waiting if job not in taken]
    if not self._jobs:
      self._some.clear()
    return taken

  def _answers(self, jobs: Sequence[_Job]) -> Sequence[list[Hit] | Exception]:
    """The hits of each job; where they fail together, each alone, so that one spoils no other."""
    try:
      return self._together(jobs)
    except InputError as error:
      if len(jobs) == 1:
        return [error]
      return [self._answers([job])[0] for job in jobs]

  def _together(self, jobs: Sequence[_Job]) -> list[list[Hit]]:
    if jobs[0].kind == "rank":
      # Ids tell the questions of different requests apart.
      asked = [dataclasses.replace(job.question, id=str(i)) for i, job in enumerate(jobs)]
      rankings = self.ranker.rank_each(asked)
    else:
      assert self.index is not None, "without an index no search is put into the queue"
      again = self.ranker if jobs[0].kind == "search again" else None
      queries = [job.question.text for job in jobs]
      rankings: list[list[Hit]] = [[]] * len(jobs)
      for depth in {max(job.count, DEPTH) for job in jobs} if again else {0}:
        its = [i for i, job in enumerate(jobs) if not again or max(job.count, DEPTH) == depth]
        count = max(jobs[i].count for i in its)
        found = self.index.search_many([queries[i] for i in its], count, rerank=again)
        for i, hits in zip(its, found, strict=True):
          rankings[i] = hits
    return [hits[: job.count] for job, hits in zip(jobs, rankings, strict=True)]

  def close(self) -> None:
    """Ends the thread."""
    self._thread.shutdown()


def application(
  ranker: Ranker, index: Index | None = None, *, limits: Limits = Limits(), warm_up: bool = True
) -> "Starlette":
  """The ASGI application; its start compiles the programs, those of searches with `k` up to 128.

  Args:
    ranker: ranks for `/rerank`, and what `/search` found where a body says `rerank`.
    index: searched by `/search`; limits: of requests.
    warm_up: whether the start compiles; False where that has been done.

  Raises:
    InputError: the extra `serve` is not installed.

  """
  try:
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route
  except ImportError as error:
    raise InputError(f"serving needs {error.name}: pip install 'as2jax[serve]' adds it") from error
  queue = Queue(ranker, index, limits)

  @contextlib.asynccontextmanager
  async def lifespan(_: Any) -> AsyncGenerator[None, None]:
    if warm_up:
      await asyncio.get_running_loop().run_in_executor(None, _warm_up, ranker, index)
    worker = asyncio.ensure_future(queue.work())
    try:
      yield  # uvicorn ends it when every accepted request is answered
    finally:
      worker.cancel()
      queue.close()

  async def rerank(request: "Request", body: Mapping[str, Any]) -> Any:
    question, wanted = _rerank_request(body, limits)
    hits = await _answered(request, queue.put("rank", question, wanted))
    return _rerank_answer(body, hits, ranker.name)

  async def search(request: "Request", body: Mapping[str, Any]) -> Any:
    if index is None:
      raise _Refused(404, "Validation", "this service has no index: start it with one")
    _check_fields(body, ("query", "k", "rerank"))
    query, count = _text(body, "query"), _number(body, "k", 10, limits.candidates)
    kind = "search again" if _flag(body, "rerank") else "search"
    hits = await _answered(request, queue.put(kind, Question("0", query, ()), count))
    return {"results": [dataclasses.asdict(hit) for hit in hits]}

  async def health(_: "Request") -> JSONResponse:
    documents = None if index is None else len(index)
    state = {"status": "ok", "model": ranker.name, "documents": documents}
    return JSONResponse({**state, "waiting": len(queue)})

  routes = [
    Route("/rerank", _endpoint(rerank, limits), methods=["POST"]),
    Route("/search", _endpoint(search, limits), methods=["POST"]),
    Route("/health", health, methods=["GET"]),
  ]
  return Starlette(
    routes=routes, lifespan=lifespan, exception_handlers={404: _no_route, 405: _no_route}
  )


async def _no_route(_: "Request", problem: Any) -> Any:
  """The answer to another path or method, in the form of the other errors."""
  from starlette.responses import JSONResponse

  content = {"error": problem.detail, "error_type": "Validation"}
  return JSONResponse(content, problem.status_code, problem.headers)


def _endpoint(respond: Callable[["Request", Mapping[str, Any]], Any], limits: Limits) -> Callable:
  """The endpoint that answers a request's body as `respond` does, and an error as JSON."""
  from starlette.requests import ClientDisconnect
  from starlette.responses import JSONResponse

  async def answer(request: "Request") -> JSONResponse:
    try:
      return JSONResponse(await respond(request, await _body(request, limits)))
    except _Refused as error:
      refused = error
    except InputError as error:
      refused = _Refused(422, "Validation", str(error))
    except ClientDisconnect:
      refused = _Refused(CLOSED, "Validation", "the client has gone")
    except Exception as error:
      log.exception("a request to %s failed", request.url.path)
      refused = _failed(error)
    headers = {"retry-after": "1"} if refused.status == 429 else None
    content = {"error": str(refused), "error_type": refused.kind}
    return JSONResponse(content, refused.status, headers)

  return answer


def serve(
  ranker: Ranker,
  index: Index | None = None,
  *,
  host: str = "127.0.0.1",
  port: int = 8080,
  limits: Limits = Limits(),
) -> None:
  """Serves until SIGINT or SIGTERM comes; what was accepted before is answered.

  Raises:
    InputError: the extra `serve` is not installed, the index is damaged, or the port cannot be used.

  """
  web = server(application(ranker, index, limits=limits, warm_up=False), host, port)
  _warm_up(ranker, index)  # here, because uvicorn would print a traceback of what it raises
  with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again at its end
    try:
      web.run()
    except SystemExit as error:
      raise InputError(f"cannot serve on {host}:{port}: is the port in use?") from error


def server(app: "Starlette", host: str, port: int) -> "uvicorn.Server":
  """The server that `serve` runs; `should_exit` ends it as a signal does."""
  try:
    import uvicorn
  except ImportError as error:
    raise InputError(f"serving needs {error.name}: pip install 'as2jax[serve]' adds it") from error
  return uvicorn.Server(
    uvicorn.Config(
      app, host=host, port=port, ws="none", lifespan="on", log_level="info", access_log=False
    )
  )


def _warm_up(ranker: Ranker, index: Index | None) -> None:
  ranker.warm_up()
  if index is not None and len(index):
    index.ranker.warm_up()
    for k in sorted({min(size, len(index)) for size in SEARCHED}):
      for queries in (1, 2):  # one query has a program of its own
        index.search_many(["question"] * queries, k)


async def _body(request: "Request", limits: Limits) -> Mapping[str, Any]:
  """The JSON object of a request, which is read no further than the limit."""
  content = bytearray()
  async for piece in request.stream():
    content += piece
    if len(content) > limits.body:
      raise _Refused(413, "Validation", f"the body is longer than {limits.body} bytes")
  try:
    body = json.loads(content)
  except (ValueError, RecursionError) as error:
    raise _Refused(400, "Validation", f"the body is not JSON: {error}") from error
  if not isinstance(body, dict):
    raise _Refused(422, "Validation", "the body is no JSON object")
  return body


async def _answered(request: "Request", answer: asyncio.Future) -> list[Hit]:
  """The answer of the queue, which is cancelled where the client goes before."""
  gone = asyncio.ensure_future(_gone(request))
  try:
    await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
      answer.cancel()
      raise _Refused(CLOSED, "Validation", "the client has gone")
    return answer.result()
  finally:
    gone.cancel()


async def _gone(request: "Request") -> None:
  while (await request.receive())["type"] != "http.disconnect":
    pass


def _check_fields(
  body: Mapping[str, Any], names: Sequence[str], passed: Sequence[str] = ()
) -> None:
  """Refuses a field that would be ignored, such as a misspelt `top_n`."""
  for field in body:
    if field not in (*names, *passed):
      text = f"there is no field {field!r:.100}: name one of {', '.join(names)}"
      raise _Refused(422, "Validation", text)


def _rerank_request(body: Mapping[str, Any], limits: Limits) -> tuple[Question, int]:
  """The question of a body with its candidates, and how many of them are wanted."""
  names = [name for name in FIELDS if name in body]
  if len(names) != 1:
    raise _Refused(422, "Validation", "give the candidates as `texts` or as `documents`")
  _check_fields(body, FIELDS[names[0]], PASSED)
  texts = body[names[0]]
  if not isinstance(texts, list) or not texts:
    raise _Refused(422, "Validation", f"`{names[0]}` is a list of one text or more")
  if len(texts) > limits.candidates:
    text = f"{len(texts)} candidates: at most {limits.candidates} are taken"
    raise _Refused(413, "Validation", text)
  candidates = []
  for i, one in enumerate(texts):
    text = one.get("text") if isinstance(one, dict) else one
    if not _is_text(text) or not text.strip():
      raise _Refused(422, "Validation", f"{names[0]}[{i}] is {one!r:.100}: give a text")
    candidates.append(Candidate(str(i), text))
  wanted = _number(body, "top_n", len(texts), None) if names[0] == "documents" else len(texts)
  for name in ("raw_scores", "return_text", "return_documents"):
    _flag(body, name)
  if (model := body.get("model")) is not None and not _is_text(model):
    raise _Refused(422, "Validation", f"`model` is {model!r:.100}: give a text")
  return Question("0", _text(body, "query"), tuple(candidates)), wanted


def _rerank_answer(body: Mapping[str, Any], hits: Sequence[Hit], model: str) -> Any:
  raw = _flag(body, "raw_scores")
  score = lambda hit: hit.score if raw else float(_sigmoid(hit.score))
  if "texts" in body:
    extra = lambda hit: {"text": hit.text} if _flag(body, "return_text") else {}
    return [{"index": hit.index, "score": score(hit), **extra(hit)} for hit in hits]
  extra = lambda hit: {"document": {"text": hit.text}} if _flag(body, "return_documents") else {}
  results = [{"index": hit.index, "relevance_score": score(hit), **extra(hit)} for hit in hits]
  return {"model": body.get("model") or model, "results": results}


def _sigmoid(x: float) -> float:
  return 0.5 * (1 + np.tanh(0.5 * x))  # never overflows


def _is_text(value: object) -> TypeGuard[str]:
  """Whether a value is a text that can be answered; JSON's half of a surrogate pair is none."""
  return isinstance(value, str) and not SURROGATE.search(value)


def _text(body: Mapping[str, Any], name: str) -> str:
  value = body.get(name)
  if not _is_text(value) or not value.strip():
    raise _Refused(422, "Validation", f"`{name}` is {value!r:.100}: give a text")
  return value


def _number(body: Mapping[str, Any], name: str, default: int, most: int | None) -> int:
  value = body.get(name)
  value = default if value is None else value
  if not isinstance(value, int) or isinstance(value, bool) or value < 1:
    raise _Refused(422, "Validation", f"`{name}` is {value!r:.100}: give a number from 1")
  if most is not None and value > most:
    raise _Refused(413, "Validation", f"`{name}` is {value}: at most {most} are given")
  return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
  value = body.get(name)
  if not isinstance(value, bool | None):  # 1 equals True
    raise _Refused(422, "Validation", f"`{name}` is {value!r:.100}: give true or false")
  return bool(value)
