"""A ranker as a web service: a FastAPI application on uvicorn.

It takes what clients of Cohere, Jina, OpenAI and Text Embeddings Inference send (`forms`). `POST /search` searches
an index, `GET /health` says what is served, `GET /metrics` how it goes, in Prometheus' text form, and `GET /docs`
describes it all. Questions that wait are ranked together.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from typing import Any

import fastapi
import numpy as np
import prometheus_client
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException

from as2jax.data.record import Candidate, Question
from as2jax.evaluation import calibration
from as2jax.inference.connections import LATER, Limits, Metrics, guarded, refusal, server
from as2jax.inference.forms import EmbedBody, EmbeddingsBody, PruneBody, RerankBody, SearchBody
from as2jax.inference.index import DEPTH, Hit, Index
from as2jax.inference.ranker import Ranker
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__

TOGETHER = 1024  # candidates of waiting requests that are ranked at once
SEARCHED = (16, DEPTH)  # hits up to which a search has a program, compiled at the start
LOCAL = ("localhost", "127.0.0.1", "::1")  # names of this machine that every client may use
RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")

log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class _Job:
  """A request that waits: a question to rank, or what the model does for this request alone."""

  question: Question | None
  alone: Callable[[], Any] | None
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

  async def answer(
    self, request: Request, question: Question | None = None, alone: Callable[[], Any] | None = None
  ) -> Any:
    """Returns the hits of `question`, or what `alone` returns; refuses where no turn comes."""
    if len(self) >= self.limits.waiting:
      raise HTTPException(429, f"{len(self)} requests wait: try again later", LATER)
    job = _Job(question, alone, asyncio.get_running_loop().create_future())
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

  async def rank(self, request: Request, question: Question) -> list[Hit]:
    """Returns the hits of a question; between `TOGETHER` candidates and the next others have their turn."""
    if not self.ranker.independent:
      return await self.answer(request, question)
    hits = []
    for start in range(0, len(question.candidates), TOGETHER):
      part = question.candidates[start : start + TOGETHER]
      for hit in await self.answer(request, dataclasses.replace(question, candidates=part)):
        hits.append(dataclasses.replace(hit, index=start + hit.index))
    return sorted(hits, key=lambda hit: -hit.score)

  async def work(self, thread: concurrent.futures.Executor, programs: Iterator[bool]) -> None:
    """Answers requests for ever, and compiles `programs` while none waits.

    Cancelled, it ends at once: nobody waits any more.
    """
    loop = asyncio.get_running_loop()
    while True:
      if not self._jobs and await loop.run_in_executor(thread, _compiled, programs):
        continue
      await self._some.wait()
      jobs = self._next()
      if not jobs:
        continue
      answers = await loop.run_in_executor(thread, self._answers, jobs)
      for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Exception):
          job.fail(answer)
        elif not job.answer.done():  # cancelled
          job.answer.set_result(answer)

  def _next(self) -> list[_Job]:
    """Takes a request that is alone, or the first questions that wait, up to `TOGETHER` candidates."""
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

  def _answers(self, jobs: Sequence[_Job]) -> Sequence[Any]:
    """Returns the answer of each job, or its error; where they fail together, each alone: one spoils no other."""
    try:
      if jobs[0].alone is not None:
        return [jobs[0].alone()]
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
) -> fastapi.FastAPI:
  """Returns the ASGI application; its start compiles what common requests need, a thread the rest.

  Args:
    ranker, index: what is served.
    limits: sizes and deadlines, also of the connections of `server`.
    hosts: names by which the service may be asked, besides `LOCAL` and the address that a client connects to.
    token: where given, all paths but `OPEN` demand `Authorization: Bearer TOKEN`.

  """
  if token is not None and token.split() != [token]:
    raise InputError("the token is empty or has spaces: give one word, or no token")
  metrics = Metrics(TOGETHER)
  queue = Queue(ranker, limits, metrics.fill.observe)
  metrics.waiting.set_function(lambda: len(queue))
  run, created = _run_name(ranker), int(time.time())
  fitted = _calibration(ranker)
  about = {"seed": ranker.seed, "score_kind": ranker.similarity}

  def check_count(count: int, what: str) -> None:
    if count > limits.candidates:
      raise HTTPException(413, f"{count} {what}: at most {limits.candidates} are taken")

  @contextlib.asynccontextmanager
  async def lifespan(_: Any) -> AsyncGenerator[None, None]:
    loop, programs = asyncio.get_running_loop(), _programs(ranker, index)
    await loop.run_in_executor(None, _compiled, programs)
    log.info("requests are answered; the programs of other sizes are compiled between them")
    thread = concurrent.futures.ThreadPoolExecutor(1, "as2jax-rank")
    queue.worker = asyncio.ensure_future(queue.work(thread, programs))
    yield  # uvicorn ends it when every accepted request is answered, or the deadline has passed
    queue.worker.cancel()
    thread.shutdown(wait=False)

  app = fastapi.FastAPI(lifespan=lifespan, title="as2jax", version=__version__, redoc_url=None)
  app.state.limits = limits
  known = {name.lower() for name in (*LOCAL, *hosts)}
  app.add_middleware(guarded, limits=limits, hosts=known, token=token, metrics=metrics)

  async def rerank(body: RerankBody, request: Request) -> JSONResponse:
    texts = body.texts or body.documents or []
    check_count(len(texts), "candidates")
    if body.max_tokens_per_doc is not None and body.max_tokens_per_doc < ranker.longest:
      read = "the model reads texts whole: leave the field out"
      if ranker.longest < float("inf"):
        read = (
          f"the model reads up to {ranker.longest} tokens: leave the field out, or give as many"
        )
      raise HTTPException(422, f"max_tokens_per_doc = {body.max_tokens_per_doc}: {read}")
    candidates = tuple(Candidate(str(i), text) for i, text in enumerate(texts))
    hits = await queue.rank(request, Question("0", body.query, candidates))
    kind = ranker.similarity
    if fitted is not None and not body.raw_scores:
      kind, of_hits = "probability", fitted.probability(np.asarray([hit.score for hit in hits]))
      hits = [
        dataclasses.replace(hit, score=p) for hit, p in zip(hits, of_hits.tolist(), strict=True)
      ]
    return _scored(body.answer(hits[: body.top_n], run), kind)

  for path in RERANK:
    app.post(path)(rerank)

  @app.post("/search")
  async def search(body: SearchBody, request: Request) -> JSONResponse:
    if index is None:
      raise HTTPException(404, "this service has no index: start it with one")
    check_count(body.top_k, "hits")
    again = ranker if body.rerank else None
    find = lambda: index.search(body.query, body.top_k, rerank=again)
    hits = await queue.answer(request, alone=find)
    kind = (again or index.ranker).similarity
    return _scored({"results": [dataclasses.asdict(hit) for hit in hits]}, kind)

  @app.post("/prune")
  async def prune(body: PruneBody, request: Request) -> JSONResponse:
    check_count(len(body.documents), "documents")
    how = {"top_k": body.top_k, "threshold": body.threshold}
    find = lambda: ranker.select(body.query, body.documents, **how)
    kept = await queue.answer(request, alone=find)
    sentences = [dataclasses.asdict(one) for one in kept.sentences]
    answer = {"answered": kept.answered, "text": kept.text, "sentences": sentences}
    return _scored(answer, ranker.similarity)

  async def embedded(body: EmbedBody | EmbeddingsBody, request: Request) -> JSONResponse:
    if not ranker.has_vectors:
      raise HTTPException(404, f"{run} has no vectors of texts: serve a bi-encoder")
    check_count(len(body.texts), "texts")

    def encode() -> JSONResponse:
      encoder = ranker.encode_query if body.side == "query" else ranker.encode_document
      return JSONResponse(body.answer(encoder(body.texts), run, ranker.tokens(body.texts)))

    return await queue.answer(request, alone=encode)

  @app.post("/embed")
  async def embed(body: EmbedBody, request: Request) -> JSONResponse:
    return await embedded(body, request)

  @app.post("/v1/embeddings")
  async def embeddings(body: EmbeddingsBody, request: Request) -> JSONResponse:
    return await embedded(body, request)

  @app.get("/v1/models")
  async def models() -> JSONResponse:
    served = {"id": run, "object": "model", "created": created, "owned_by": "as2jax"}
    return JSONResponse({"object": "list", "data": [served | about]})

  @app.get("/health")
  async def health() -> JSONResponse:
    documents = None if index is None else len(index)
    state = {"status": "ok", "model": ranker.name, "run": run, **about}
    state |= {"documents": documents, "waiting": len(queue)}
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
      if problem["type"] == "extra_forbidden":
        text += "; this service would not honour the field: leave it out"
      status = 400 if problem["type"] == "json_invalid" else 422
    elif not isinstance(error, InputError):
      log.error("a request to %s failed", request.url.path, exc_info=error)
      text = f"the request failed ({type(error).__name__}); the service's log says more"
      status = 500
    if status == 400:
      text = f"the body is not JSON: {text}"
    return refusal(request.url.path, status, text, headers)

  metrics.paths = {route.path for route in app.routes}
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
  app = application(ranker, index, limits=limits, hosts=hosts, token=token)
  web = server(app, host, port)
  log.info("compiling what a common request needs")
  # Here, because uvicorn would print a traceback of what it raises.
  next(_programs(ranker, index), False)
  with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again at its end
    try:
      web.run()
    except SystemExit as error:
      raise InputError(f"cannot serve on {host}:{port}: is the port in use?") from error


def _run_name(ranker: Ranker) -> str:
  """Returns what the model is opened by, without the folders above it, which are no client's business."""
  if os.path.isabs(ranker.source) or "://" in ranker.source:
    return os.path.basename(ranker.source)
  return ranker.source or ranker.name


def _calibration(ranker: Ranker) -> calibration.Calibration | None:
  """Returns what gives probabilities; None of what is no run, or whose dev questions give none."""
  try:
    return ranker.calibration
  except InputError as error:
    log.warning("scores stay as they are: %s", error)
    return None


def _scored(answer: Any, kind: str) -> JSONResponse:
  """Returns an answer with scores; the kind of the scores is in a header, and a field where one has room."""
  if isinstance(answer, dict):
    answer["score_kind"] = kind
  return JSONResponse(answer, headers={"x-score-kind": kind})


def _programs(ranker: Ranker, index: Index | None) -> Iterator[bool]:
  """Compiles one program after another, those of common requests first; yields True after each."""
  began = time.monotonic()
  yield from ranker.programs()
  if index is not None and len(index):
    if index.ranker is not ranker:
      yield from index.ranker.programs()
    for k in SEARCHED:
      index.search("question", k)
      yield True
  log.info("all programs are compiled (after %.0f s)", time.monotonic() - began)


def _compiled(programs: Iterator[bool]) -> bool:
  """Compiles the next program; returns whether there was one."""
  try:
    return next(programs, False)
  except Exception:  # a request that needs the program tells its client
    log.exception("this program and those after it were not compiled: requests compile them")
    return False
