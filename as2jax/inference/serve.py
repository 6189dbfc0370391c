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
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Annotated, Any, Literal

import fastapi
import numpy as np
import prometheus_client
import pydantic
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException

from as2jax.data.record import Candidate, Question
from as2jax.inference.connections import OPEN, Limits, Metrics, guarded, refusal, server
from as2jax.inference.index import DEPTH, Hit, Index
from as2jax.inference.ranker import Ranker
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__

TOGETHER = 1024  # candidates of waiting requests that are ranked at once
SEARCHED = (16, DEPTH)  # hits up to which a search has a program, compiled at the start
LOCAL = ("localhost", "127.0.0.1", "::1")  # names of this machine that every client may use
PATHS = ("/rerank", "/search", "/metrics", *OPEN)  # by which requests are counted
LATER = {"retry-after": "1"}

log = logging.getLogger(__name__)


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
  metrics = Metrics(PATHS, TOGETHER)
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
  app.add_middleware(guarded, most=limits.body, hosts=known, token=token, metrics=metrics)

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
    return refusal(status, text, headers)

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


def _warm_up(ranker: Ranker, index: Index | None) -> None:
  ranker.warm_up()
  if index is not None and len(index):
    index.ranker.warm_up()
    for k in SEARCHED:
      index.search("question", k)
