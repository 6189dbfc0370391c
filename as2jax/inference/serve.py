"""A ranker as a web service: a FastAPI application on uvicorn.

`POST /rerank` answers a body with `texts` as Hugging Face's Text Embeddings Inference does, one with `documents`
as Cohere's and Jina's rerank endpoints. `POST /search` searches an index, `GET /health` says what is served,
`GET /metrics` how it goes, in Prometheus' text form, and `GET /docs` describes it all. Questions that wait are
ranked together.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import hmac
import logging
import re
import resource
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import fastapi
import numpy as np
import prometheus_client
import pydantic
import uvicorn
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as AnyHTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from as2jax.data.record import Candidate, Question
from as2jax.inference.index import DEPTH, Hit, Index
from as2jax.inference.ranker import Ranker
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__

TOGETHER = 1024  # candidates of waiting requests that are ranked at once
SEARCHED = (16, DEPTH)  # hits up to which a search has a program, compiled at the start
KINDS = {429: "Overloaded", 503: "Overloaded", 500: "Backend"}  # `error_type`; else Validation
LOCAL = ("localhost", "127.0.0.1", "::1")  # names of this machine that every client may use
OPEN = ("/health", "/docs", "/openapi.json")  # which need no token
PATHS = ("/rerank", "/search", "/metrics", *OPEN)  # by which requests are counted
LATER = {"retry-after": "1"}

log = logging.getLogger(__name__)


def _half_of_the_descriptors() -> int:
  most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
  return 2048 if most == resource.RLIM_INFINITY else min(2048, most // 2)


@dataclasses.dataclass(frozen=True)
class Limits:
  """What the service takes, and for how long it waits.

  Attributes:
    body: bytes of a request; more are answered by 413.
    candidates: of a request, likewise; also the greatest `k` of a search.
    waiting: requests in the queue; one more is answered by 429.
    queue: seconds in the queue; a request that is not begun by then is answered by 503.
    client: seconds that a client may take to send a request, or to read its answer.
    shutdown: seconds for the requests under way when the service is to end; others are answered by 503.
    connections: for one more, the client that has kept the service waiting longest is cut off.

  """

  body: int = 1 << 20
  candidates: int = 1000
  waiting: int = 512
  queue: float = 30
  client: float = 20
  shutdown: float = 20
  connections: int = dataclasses.field(default_factory=_half_of_the_descriptors)


def _check_text(text: str) -> str:
  text.encode()  # a ValueError for half a surrogate pair, which JSON can hold
  if not text.strip():
    raise ValueError("the text is empty")
  return text


def _text_of(document: Any) -> Any:
  return document.get("text") if isinstance(document, dict) else document


Text = Annotated[str, pydantic.AfterValidator(_check_text)]
Texts = Annotated[
  list[Annotated[Text, pydantic.BeforeValidator(_text_of)]], pydantic.Field(min_length=1)
]
Count = Annotated[int, pydantic.Field(ge=1)]
Flag = bool | None


class _Body(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(strict=True, extra="forbid")

  query: Text


class RerankBody(_Body):
  """The body of `/rerank`: `texts` or `documents`; `model` is answered, and one model is served."""

  texts: Texts | None = None
  documents: Texts | None = None
  top_n: Count | None = None
  raw_scores: Flag = None
  return_text: Flag = None
  return_documents: Flag = None
  model: Text | None = None
  # Texts are always cut to what the model reads, at their end.
  truncate: Literal[True] | None = None
  truncation_direction: Literal["Right", "right"] | None = None

  @pydantic.model_validator(mode="after")
  def _of_one_form(self) -> "RerankBody":
    if (self.texts is None) == (self.documents is None):
      raise ValueError("give the candidates as `texts` or as `documents`")
    return self

  def answer(self, hits: Sequence[Hit], model: str) -> Any:
    """Returns the answer in the form of the service that the body is of; scores are sigmoids."""
    score_name = "score" if self.documents is None else "relevance_score"
    results = []
    for hit in hits:
      score = hit.score if self.raw_scores else 0.5 * (1 + float(np.tanh(0.5 * hit.score)))
      result: dict[str, Any] = {"index": hit.index, score_name: score}
      if self.return_text:
        result["text"] = hit.text
      if self.return_documents:
        result["document"] = {"text": hit.text}
      results.append(result)
    return results if self.documents is None else {"model": self.model or model, "results": results}


class SearchBody(_Body):
  """The body of `/search`."""

  k: Count | None = None
  rerank: Flag = None


@dataclasses.dataclass(eq=False)
class _Job:
  """A request that waits: a question to rank, or a search."""

  question: Question | None
  search: Callable[[], list[Hit]] | None
  answer: asyncio.Future
  deadline: Any = None  # an asyncio.Timeout, for its turn to come

  def fail(self, error: Exception) -> None:
    if not self.answer.done():
      self.answer.set_exception(error)


class Queue:
  """Requests in the order of arrival; one thread ranks the questions that wait, together."""

  def __init__(self, ranker: Ranker, limits: Limits, observe: Callable[[float], None]):
    """Takes the function that is told of each batch how full it is."""
    self.ranker, self.limits, self._observe = ranker, limits, observe
    self.worker: Any = None  # the task of `work`
    self._jobs: list[_Job] = []
    self._some = asyncio.Event()

  def __len__(self) -> int:
    return len(self._jobs)

  async def hits(
    self,
    request: Request,
    question: Question | None = None,
    search: Callable[[], list[Hit]] | None = None,
  ) -> list[Hit]:
    """Returns the hits of a request; refuses it where the queue is full or its turn does not come."""
    if len(self) >= self.limits.waiting:
      raise HTTPException(429, f"{len(self)} requests wait: try again later", LATER)
    job = _Job(question, search, asyncio.get_running_loop().create_future())
    gone = asyncio.ensure_future(_fail_without_client(request, job))
    try:
      async with asyncio.timeout(self.limits.queue) as job.deadline:
        self._jobs.append(job)
        self._some.set()
        return await job.answer
    except TimeoutError:
      text = f"the request waited {self.limits.queue:g} s for its turn: try again later"
      raise HTTPException(503, text, LATER) from None
    finally:
      gone.cancel()
      if job in self._jobs:
        self._jobs.remove(job)

  async def work(self, thread: concurrent.futures.Executor) -> None:
    """Answers requests for ever; cancelled, it ends at once: nobody waits any more."""
    while True:
      await self._some.wait()
      jobs, loop = self._next(), asyncio.get_running_loop()
      if not jobs:
        continue
      answers = await loop.run_in_executor(thread, self._answers, jobs)
      for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Exception):
          job.fail(answer)
        elif not job.answer.done():  # cancelled
          job.answer.set_result(answer)

  def _next(self) -> list[_Job]:
    """Takes a search, or the first questions that wait, up to `TOGETHER` candidates."""
    taken, size = [], 0
    while self._jobs:
      job = self._jobs[0]
      count = len(job.question.candidates) if job.question else TOGETHER
      if taken and size + count > TOGETHER:
        break
      self._jobs.pop(0)
      if not job.answer.done():  # too late, or its client is gone
        job.deadline.reschedule(None)
        taken.append(job)
        size += count
    if not self._jobs:
      self._some.clear()
    if taken and taken[0].question:
      self._observe(min(1, size / TOGETHER))
    return taken

  def _answers(self, jobs: Sequence[_Job]) -> Sequence[list[Hit] | Exception]:
    """Returns the hits of each job; where they fail together, each alone: one spoils no other."""
    try:
      if jobs[0].search is not None:
        return [jobs[0].search()]
      # Ids tell the questions of different requests apart.
      asked = [dataclasses.replace(job.question, id=str(i)) for i, job in enumerate(jobs)]
      return self.ranker.rank_each(asked)
    except BaseException as error:  # the service goes on, also after a panic in native code
      if len(jobs) > 1:
        return [self._answers([job])[0] for job in jobs]
      if isinstance(error, InputError):
        return [error]
      log.error("a request failed (%s)", type(error).__name__, exc_info=error)
      name = type(error).__name__
      return [HTTPException(500, f"the request failed ({name}); the service's log says more")]


async def _fail_without_client(request: Request, job: _Job) -> None:
  while (await request.receive())["type"] != "http.disconnect":
    pass
  job.fail(HTTPException(499, "the client is gone"))


class _Metrics:
  """What `/metrics` tells."""

  def __init__(self):
    self.registry = prometheus_client.CollectorRegistry()
    new = functools.partial(prometheus_client.Counter, registry=self.registry)
    self.requests = new("as2jax_requests", "Requests answered", ("path", "status"))
    new = functools.partial(prometheus_client.Histogram, registry=self.registry)
    self.seconds = new("as2jax_request_seconds", "From a request's head to its answer", ("path",))
    shares = [2.0**-i for i in range(8, -1, -1)]
    about = f"Candidates of a batch, as a share of {TOGETHER}"
    self.fill = new("as2jax_batch_fill_ratio", about, buckets=shares)
    about = "Requests in the queue"
    self.waiting = prometheus_client.Gauge("as2jax_queue_length", about, registry=self.registry)


def application(
  ranker: Ranker,
  index: Index | None = None,
  *,
  limits: Limits = Limits(),
  hosts: Collection[str] = (),
  token: str | None = None,
  warm_up: bool = True,
) -> fastapi.FastAPI:
  """Returns the ASGI application; its start compiles the programs where `warm_up`.

  Args:
    ranker, index: what is served.
    limits: sizes and deadlines, also of the connections of `server`.
    hosts: names by which the service may be asked, besides `LOCAL` and the address that a client connects to.
    token: where given, all paths but `OPEN` demand `Authorization: Bearer TOKEN`.
    warm_up: whether to compile.

  """
  if token is not None and token.split() != [token]:
    raise InputError("the token is empty or has spaces: give one word, or no token")
  metrics = _Metrics()
  queue = Queue(ranker, limits, metrics.fill.observe)
  metrics.waiting.set_function(lambda: len(queue))

  @contextlib.asynccontextmanager
  async def lifespan(_: Any) -> AsyncGenerator[None, None]:
    if warm_up:
      await asyncio.get_running_loop().run_in_executor(None, _warm_up, ranker, index)
    thread = concurrent.futures.ThreadPoolExecutor(1, "as2jax-rank")
    queue.worker = asyncio.ensure_future(queue.work(thread))
    yield  # uvicorn ends it when every accepted request is answered, or the deadline has passed
    queue.worker.cancel()
    thread.shutdown(wait=False)

  app = fastapi.FastAPI(lifespan=lifespan, title="as2jax", version=__version__, redoc_url=None)
  app.state.limits = limits
  known = {name.lower() for name in (*LOCAL, *hosts)}
  app.add_middleware(_guarded, most=limits.body, hosts=known, token=token, metrics=metrics)

  @app.post("/rerank")
  async def rerank(body: RerankBody, request: Request) -> JSONResponse:
    texts = body.texts or body.documents or []
    if len(texts) > limits.candidates:
      raise HTTPException(413, f"{len(texts)} candidates: at most {limits.candidates} are taken")
    candidates = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    hits = await queue.hits(request, Question("0", body.query, candidates))
    return JSONResponse(body.answer(hits[: body.top_n], ranker.name))

  @app.post("/search")
  async def search(body: SearchBody, request: Request) -> JSONResponse:
    if index is None:
      raise HTTPException(404, "this service has no index: start it with one")
    count = body.k or 10
    if count > limits.candidates:
      raise HTTPException(413, f"`k` is {count}: at most {limits.candidates} are given")
    again = ranker if body.rerank else None
    hits = await queue.hits(request, search=lambda: index.search(body.query, count, rerank=again))
    return JSONResponse({"results": [dataclasses.asdict(hit) for hit in hits]})

  @app.get("/health")
  async def health() -> JSONResponse:
    documents = None if index is None else len(index)
    state = {"status": "ok", "model": ranker.name, "documents": documents, "waiting": len(queue)}
    if not queue.worker.done():
      return JSONResponse(state)
    return JSONResponse({**state, "status": "nothing ranks any more: start the service again"}, 503)

  @app.get("/metrics")
  async def tell_metrics() -> Response:
    text = prometheus_client.generate_latest(metrics.registry)
    return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

  @app.exception_handler(InputError)
  @app.exception_handler(AnyHTTPException)
  @app.exception_handler(RequestValidationError)
  @app.exception_handler(Exception)
  async def error_of(request: fastapi.Request, error: Exception) -> JSONResponse:
    status, text, headers = 422, str(error), None
    if isinstance(error, AnyHTTPException):
      status, text, headers = error.status_code, error.detail, error.headers
    elif isinstance(error, RequestValidationError):
      problem = error.errors()[0]
      text = f"{' '.join(map(str, problem['loc']))}: {problem['msg']}"
      status = 400 if problem["type"] == "json_invalid" else 422
    elif not isinstance(error, InputError):
      log.error("a request to %s failed", request.url.path, exc_info=error)
      text = f"the request failed ({type(error).__name__}); the service's log says more"
      status = 500
    if status == 400:
      text = f"the body is not JSON: {text}"
    return _refusal(status, text, headers)

  return app


def serve(
  ranker: Ranker,
  index: Index | None = None,
  *,
  host: str = "127.0.0.1",
  port: int = 8080,
  limits: Limits = Limits(),
  allow_hosts: Collection[str] = (),
  token: str | None = None,
) -> None:
  """Serves until SIGINT or SIGTERM comes; what was accepted is answered within `limits.shutdown`."""
  hosts = (host, *allow_hosts)
  app = application(ranker, index, limits=limits, hosts=hosts, token=token, warm_up=False)
  web = server(app, host, port)
  _warm_up(ranker, index)  # here, because uvicorn would print a traceback of what it raises
  with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again at its end
    try:
      web.run()
    except SystemExit as error:
      raise InputError(f"cannot serve on {host}:{port}: is the port in use?") from error


def server(app: fastapi.FastAPI, host: str, port: int) -> uvicorn.Server:
  """Returns the server that `serve` runs; `should_exit` ends it as a signal does."""
  limits: Limits = app.state.limits
  options: dict[str, Any] = {
    "http": functools.partial(_Connection, limits),
    "ws": "none",
    "loop": "asyncio",
    "lifespan": "on",
    "log_level": "info",
    "access_log": False,
    "timeout_keep_alive": limits.client,
    "timeout_graceful_shutdown": limits.shutdown,
    # As many are accepted at once; a connection that makes room is closed four turns of the loop later.
    "backlog": max(16, limits.connections // 8),
  }
  return uvicorn.Server(uvicorn.Config(app, host=host, port=port, **options))


class _Connection(H11Protocol):
  """uvicorn's connection, with a deadline for what its client does, and a limit of their number."""

  late: asyncio.TimerHandle  # cancelled while it is the service's turn

  def __init__(self, limits: Limits, **options: Any):
    super().__init__(**options)
    self.limits = limits

  def connection_made(self, transport: Any) -> None:
    super().connection_made(transport)
    self._await_client()
    if len(self.connections) > self.limits.connections:
      _say_full(self.limits.connections)
      waited_for: Any = [one for one in self.connections if not one.late.cancelled()]
      min(waited_for, key=lambda one: one.late.when()).cut()

  def connection_lost(self, exc: Exception | None) -> None:
    self.late.cancel()
    super().connection_lost(exc)

  def handle_events(self) -> None:
    super().handle_events()
    if self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete):
      self.late.cancel()

  def on_response_complete(self) -> None:
    self.late.cancel()
    self._await_client()
    super().on_response_complete()

  def cut(self) -> None:
    self.late.cancel()
    self.transport.abort()

  def _await_client(self) -> None:
    self.late = self.loop.call_later(self.limits.client, self.cut)


@functools.cache  # once is enough
def _say_full(most: int) -> None:
  log.warning(
    "%d connections are open, the most that the service holds: for each new one, the client that has "
    "kept it waiting longest is cut off (this is said once)",
    most,
  )


def _warm_up(ranker: Ranker, index: Index | None) -> None:
  ranker.warm_up()
  if index is not None and len(index):
    index.ranker.warm_up()
    for k in SEARCHED:
      index.search("question", k)


def _refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
  text = text.encode("utf-8", "backslashreplace").decode()  # a field's name may be any
  content = {"error": text, "error_type": KINDS.get(status, "Validation")}
  return JSONResponse(content, status, headers)


def _guarded(
  app: Any, most: int, hosts: Collection[str], token: str | None, metrics: _Metrics
) -> Any:
  """Returns an ASGI application that refuses strangers and bodies over `most` bytes, and counts."""

  async def guarded(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
      await app(scope, receive, send)
      return
    size, status, began = 0, 0, time.perf_counter()

    async def received() -> Any:
      nonlocal size
      message = await receive()
      size += len(message.get("body", b""))
      if size > most:
        raise HTTPException(413, f"the body is longer than {most} bytes")
      return message

    async def sent(message: Any) -> None:
      nonlocal status
      status = message.get("status", status)
      await send(message)

    try:
      await (_refused(scope, hosts, token) or app)(scope, received, sent)
    except asyncio.CancelledError:  # the deadline of a shutdown
      if not status:
        await _refusal(503, "the service ends: ask again elsewhere or later")(scope, receive, sent)
    finally:
      path = scope["path"] if scope["path"] in PATHS else "other"
      metrics.requests.labels(path, status or 500).inc()
      metrics.seconds.labels(path).observe(time.perf_counter() - began)

  return guarded


def _refused(scope: Any, hosts: Collection[str], token: str | None) -> JSONResponse | None:
  """Returns the answer to a request under another name, without the token, or of no JSON.

  A page of another site can send neither our names (DNS rebinding) nor, unasked, this content type.
  """
  headers = Headers(scope=scope)
  host = re.sub(r":\d+$", "", headers.get("host", "")).strip("[]").lower()
  if host not in hosts and host != (scope["server"] or [None])[0]:
    return _refusal(400, f"this service is not known as {host!r}: name it by --allow-host")
  if token is not None and scope["path"] not in OPEN:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    equal = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
    if scheme.lower() != "bearer" or not equal:
      text = "this service demands its token: send `Authorization: Bearer TOKEN`"
      return _refusal(401, text, {"www-authenticate": "Bearer"})
  kind = headers.get("content-type", "").partition(";")[0].strip().lower()
  if scope["method"] == "POST" and kind != "application/json":
    return _refusal(415, f"the body is said to be {kind!r}: send `Content-Type: application/json`")
  return None
