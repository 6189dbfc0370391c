"""A ranker as a web service: a FastAPI application on uvicorn.

`POST /rerank` answers a body with `texts` as Hugging Face's Text Embeddings Inference does, one with `documents`
as Cohere's and Jina's rerank endpoints. `POST /search` searches an index, `GET /health` says what is served.
Questions that wait are ranked together.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import fastapi
import numpy as np
import pydantic
import uvicorn
from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from as2jax.data.record import Candidate, Question
from as2jax.inference.index import DEPTH, Hit, Index
from as2jax.inference.ranker import Ranker
from as2jax.runtime.errors import InputError

TOGETHER = 1024  # candidates of waiting requests that are ranked at once
SEARCHED = (16, DEPTH)  # hits up to which a search has a program, compiled at the start
KINDS = {429: "Overloaded", 500: "Backend"}  # `error_type` by status; others: Validation

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
  truncate: Literal[True] | None = None  # texts are always cut to what the model reads

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


class _Job(NamedTuple):
  """A request that waits: a question to rank, or a search."""

  question: Question | None
  search: Callable[[], list[Hit]] | None
  answer: asyncio.Future


class Queue:
  """Requests in the order of arrival; one thread ranks the questions that wait, together."""

  def __init__(self, ranker: Ranker, most: int):
    self.ranker, self.most = ranker, most
    self._jobs: list[_Job] = []
    self._some = asyncio.Event()

  def __len__(self) -> int:
    return len(self._jobs)

  async def hits(
    self, question: Question | None = None, search: Callable[[], list[Hit]] | None = None
  ) -> list[Hit]:
    """Returns the hits of a request; refuses it where the queue is full."""
    if len(self) >= self.most:
      raise HTTPException(429, f"{len(self)} requests wait: try again later", {"retry-after": "1"})
    job = _Job(question, search, asyncio.get_running_loop().create_future())
    self._jobs.append(job)
    self._some.set()
    return await job.answer

  async def work(self, thread: concurrent.futures.Executor) -> None:
    """Answers requests for ever; cancelled, it ends at once: nobody waits any more."""
    while True:
      await self._some.wait()
      jobs, loop = self._next(), asyncio.get_running_loop()
      answers = await loop.run_in_executor(thread, self._answers, jobs)
      for job, answer in zip(jobs, answers, strict=True):
        if job.answer.done():  # cancelled
          continue
        if isinstance(answer, Exception):
          job.answer.set_exception(answer)
        else:
          job.answer.set_result(answer)

  def _next(self) -> list[_Job]:
    """Takes a search, or the first questions that wait, up to `TOGETHER` candidates."""
    taken, size = [self._jobs.pop(0)], 0
    while taken[0].search is None and self._jobs and (question := self._jobs[0].question):
      size += len(question.candidates)
      if size > TOGETHER:
        break
      taken.append(self._jobs.pop(0))
    if not self._jobs:
      self._some.clear()
    return taken

  def _answers(self, jobs: Sequence[_Job]) -> Sequence[list[Hit] | Exception]:
    """Returns the hits of each job; where they fail together, each alone: one spoils no other."""
    try:
      if jobs[0].search is not None:
        return [jobs[0].search()]
      # Ids tell the questions of different requests apart.
      asked = [dataclasses.replace(job.question, id=str(i)) for i, job in enumerate(jobs)]
      return self.ranker.rank_each(asked)
    except Exception as error:  # the service goes on
      if len(jobs) == 1:
        return [error]
      return [self._answers([job])[0] for job in jobs]


def application(
  ranker: Ranker, index: Index | None = None, *, limits: Limits = Limits(), warm_up: bool = True
) -> fastapi.FastAPI:
  """Returns the ASGI application; its start compiles the programs where `warm_up`."""
  queue = Queue(ranker, limits.waiting)

  @contextlib.asynccontextmanager
  async def lifespan(_: Any) -> AsyncGenerator[None, None]:
    if warm_up:
      await asyncio.get_running_loop().run_in_executor(None, _warm_up, ranker, index)
    with concurrent.futures.ThreadPoolExecutor(1, "as2jax-rank") as thread:
      worker = asyncio.ensure_future(queue.work(thread))
      yield  # uvicorn ends it when every accepted request is answered
      worker.cancel()

  app = fastapi.FastAPI(lifespan=lifespan, openapi_url=None, strict_content_type=False)
  app.add_middleware(_limited, most=limits.body)

  @app.post("/rerank")
  async def rerank(body: RerankBody) -> JSONResponse:
    texts = body.texts or body.documents or []
    if len(texts) > limits.candidates:
      raise HTTPException(413, f"{len(texts)} candidates: at most {limits.candidates} are taken")
    candidates = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    hits = await queue.hits(Question("0", body.query, candidates))
    return JSONResponse(body.answer(hits[: body.top_n], ranker.name))

  @app.post("/search")
  async def search(body: SearchBody) -> JSONResponse:
    if index is None:
      raise HTTPException(404, "this service has no index: start it with one")
    count = body.k or 10
    if count > limits.candidates:
      raise HTTPException(413, f"`k` is {count}: at most {limits.candidates} are given")
    again = ranker if body.rerank else None
    hits = await queue.hits(search=lambda: index.search(body.query, count, rerank=again))
    return JSONResponse({"results": [dataclasses.asdict(hit) for hit in hits]})

  @app.get("/health")
  async def health() -> JSONResponse:
    documents = None if index is None else len(index)
    state = {"status": "ok", "model": ranker.name, "documents": documents}
    return JSONResponse({**state, "waiting": len(queue)})

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
    text = text.encode("utf-8", "backslashreplace").decode()  # a field's name may be any
    content = {"error": text, "error_type": KINDS.get(status, "Validation")}
    return JSONResponse(content, status, headers)

  return app


def serve(
  ranker: Ranker,
  index: Index | None = None,
  *,
  host: str = "127.0.0.1",
  port: int = 8080,
  limits: Limits = Limits(),
) -> None:
  """Serves until SIGINT or SIGTERM comes; what was accepted before is answered."""
  web = server(application(ranker, index, limits=limits, warm_up=False), host, port)
  _warm_up(ranker, index)  # here, because uvicorn would print a traceback of what it raises
  with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again at its end
    try:
      web.run()
    except SystemExit as error:
      raise InputError(f"cannot serve on {host}:{port}: is the port in use?") from error


def server(app: Any, host: str, port: int) -> uvicorn.Server:
  """Returns the server that `serve` runs; `should_exit` ends it as a signal does."""
  options = {"ws": "none", "lifespan": "on", "log_level": "info", "access_log": False}
  return uvicorn.Server(uvicorn.Config(app, host=host, port=port, **options))


def _warm_up(ranker: Ranker, index: Index | None) -> None:
  ranker.warm_up()
  if index is not None and len(index):
    index.ranker.warm_up()
    for k in SEARCHED:
      index.search("question", k)


def _limited(app: Any, most: int) -> Any:
  """Returns an ASGI application that reads no more than so many bytes of a request's body."""

  async def with_limit(scope: Any, receive: Any, send: Any) -> None:
    size = 0

    async def received() -> Any:
      nonlocal size
      message = await receive()
      size += len(message.get("body", b""))
      if size > most:
        raise HTTPException(413, f"the body is longer than {most} bytes")
      return message

    await app(scope, received, send)

  return with_limit
