"""python -m launch.benchmarks.serve --model=runs/x: latency and throughput of the service.

Starts the service on a free port of this machine, and asks it by `--clients` connections that each
send one request after another. Prints requests and candidates a second and percentiles of latency.
"""

import argparse
import concurrent.futures
import os
import socket
import threading
import time

import httpx
import numpy as np

import as2jax
from as2jax.config import words
from as2jax.inference import serve
from launch.benchmarks.rank import requests


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--model", default=words.MINILM, help="whatever as2jax.load opens")
  parser.add_argument("--candidates", type=int, default=10, help="of a request")
  parser.add_argument("--requests", type=int, default=200, help="for each number of clients")
  parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32], help="at once")
  flags = parser.parse_args()
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  server = serve.server(serve.application(as2jax.load(flags.model)), "127.0.0.1", port)
  thread = threading.Thread(target=server.run)
  thread.start()
  while not server.started:
    if not thread.is_alive():
      raise SystemExit("the service did not start")
    time.sleep(0.05)
  url = f"http://127.0.0.1:{port}/rerank"
  bodies = [{"query": q, "texts": t} for q, t in requests(flags.requests, flags.candidates)]
  try:
    for clients in flags.clients:
      with httpx.Client(timeout=600, limits=httpx.Limits(max_connections=clients)) as client:

        def ask(body: dict) -> float:
          started = time.perf_counter()
          client.post(url, json=body).raise_for_status()
          return 1e3 * (time.perf_counter() - started)

        ask(bodies[0])
        started = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
          times = list(pool.map(ask, bodies))
        seconds = time.perf_counter() - started
      half, most = np.percentile(times, (50, 95))
      print(
        f"{clients} clients: {len(bodies) / seconds:.1f} requests/s, "
        f"{len(bodies) * flags.candidates / seconds:.0f} candidates/s, latency {half:.0f} ms "
        f"(median), {most:.0f} ms (95 %); load {os.getloadavg()[0]:.1f}"
      )
  finally:
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
  main()
