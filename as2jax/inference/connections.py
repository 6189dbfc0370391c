"""What stands between a service and its clients: limits, deadlines, strangers, counts.

`server` runs an application on connections with a deadline for their client, `guarded` refuses strangers and
long bodies before the application reads them, and counts the requests.
"""

import asyncio
import dataclasses
import functools
import hmac
import re
import resource
import time
from collections.abc import Collection, Mapping
from typing import Any

import fastapi
import prometheus_client
import uvicorn
from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from as2jax.runtime import files

KINDS = {429: "Overloaded", 503: "Overloaded", 500: "Backend"}  # `error_type`; else Validation
OPENAI = ("/v1/embeddings", "/v1/models")  # whose errors have OpenAI's form
LATER = {"retry-after": "1"}
OPEN = ("/health", "/docs", "/openapi.json")  # which need no token


def _half_of_the_descriptors() -> int:
  most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
  return 2048 if most == resource.RLIM_INFINITY else min(2048, most // 2)


@dataclasses.dataclass(frozen=True)
class Limits:
  """What the service takes, and for how long it waits.

  Attributes:
    body: bytes of a request; more are answered by 413.
    bodies: bytes of all requests under way; more are answered by 503.
    candidates: of a request, by 413; also texts to encode, and the greatest `top_k` of a search.
    waiting: requests in the queue; one more is answered by 429.
    queue: seconds in the queue; a request that is not begun by then is answered by 503.
    client: seconds that a client may take to send a request, or to read its answer.
    shutdown: seconds for the requests under way when the service is to end; others are answered by 503.
    connections: for one more, the client that has kept the service waiting longest is cut off.

  """

  body: int = 32 << 20
  bodies: int = 256 << 20
  candidates: int = 10_000
  waiting: int = 512
  queue: float = 30
  client: float = 20
  shutdown: float = 20
  connections: int = dataclasses.field(default_factory=_half_of_the_descriptors)


class Metrics:
  """What `/metrics` tells, of requests by their path, where that is one of `paths`."""

  paths: Collection[str] = ()

  def __init__(self, together: int):
    """Takes how many candidates are ranked at once."""
    self.registry = prometheus_client.CollectorRegistry()
    new = functools.partial(prometheus_client.Counter, registry=self.registry)
    self.requests = new("as2jax_requests", "Requests answered", ("path", "status"))
    new = functools.partial(prometheus_client.Histogram, registry=self.registry)
    self.seconds = new("as2jax_request_seconds", "From a request's head to its answer", ("path",))
    shares = [2.0**-i for i in range(8, -1, -1)]
    about = f"Candidates of a batch, as a share of {together}"
    self.fill = new("as2jax_batch_fill_ratio", about, buckets=shares)
    about = "Requests in the queue"
    self.waiting = prometheus_client.Gauge("as2jax_queue_length", about, registry=self.registry)


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
      files.warn_once(
        f"{self.limits.connections} connections are open, the most that the service holds: for each new one, the "
        "client that has kept it waiting longest is cut off (this is said once)"
      )
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


def refusal(
  path: str, status: int, text: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
  """Returns an error as JSON; OpenAI's client shows a message only where it finds it in an object."""
  text = text.encode("utf-8", "backslashreplace").decode()  # a field's name may be any
  kind = KINDS.get(status, "Validation")
  content: dict[str, Any] = {"error": text, "error_type": kind}
  if path in OPENAI:
    content = {"error": {"message": text, "type": kind}}
  return JSONResponse(content, status, headers)


def guarded(
  app: Any, limits: Limits, hosts: Collection[str], token: str | None, metrics: Metrics
) -> Any:
  """Returns an ASGI application that refuses strangers and long bodies, and counts."""
  held = 0  # bytes of all requests under way

  async def guarded(scope: Any, receive: Any, send: Any) -> None:
    nonlocal held
    if scope["type"] != "http":
      await app(scope, receive, send)
      return
    size, status, began = 0, 0, time.perf_counter()

    async def received() -> Any:
      nonlocal held, size
      message = await receive()
      length = len(message.get("body", b""))
      held, size = held + length, size + length
      if size > limits.body:
        raise HTTPException(413, f"the body is longer than {limits.body} bytes")
      if held > limits.bodies:
        raise HTTPException(503, f"requests under way have {held} bytes: try again later", LATER)
      return message

    async def sent(message: Any) -> None:
      nonlocal status
      status = message.get("status", status)
      await send(message)

    try:
      await (_refused(scope, hosts, token) or app)(scope, received, sent)
    except asyncio.CancelledError:  # the deadline of a shutdown
      if not status:
        text = "the service ends: ask again elsewhere or later"
        await refusal(scope["path"], 503, text)(scope, receive, sent)
    finally:
      held -= size
      path = scope["path"] if scope["path"] in metrics.paths else "other"
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
    return refusal(
      scope["path"], 400, f"this service is not known as {host!r}: name it by --allow-host"
    )
  if token is not None and scope["path"] not in OPEN:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    equal = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
    if scheme.lower() != "bearer" or not equal:
      text = "this service demands its token: send `Authorization: Bearer TOKEN`"
      return refusal(scope["path"], 401, text, {"www-authenticate": "Bearer"})
  kind = headers.get("content-type", "").partition(";")[0].strip().lower()
  if scope["method"] == "POST" and kind != "application/json":
    return refusal(
      scope["path"], 415, f"the body is said to be {kind!r}: send `Content-Type: application/json`"
    )
  return None
