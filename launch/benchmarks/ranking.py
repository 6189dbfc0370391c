"""Ranking beside sentence-transformers by the same published models, and the service beside its model.

Every block has texts of its own, so that neither side finds an earlier one's work.
"""

import argparse
import concurrent.futures
import dataclasses
import itertools
import pathlib
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import as2jax
from as2jax.config import words
from as2jax.data import dataset as datasets
from as2jax.data.record import Question
from as2jax.encoders.hub import resolve
from as2jax.runtime import devices
from as2jax.runtime.errors import InputError
from launch.benchmarks.ready import free_port

Scores = Callable[[Sequence[Question]], Sequence[np.ndarray]]
QUESTIONS, CANDIDATES, CLIENTS = 300, 10, 32
# Our ranker by OpenVINO, beside the same by XLA: dtype and backend of `as2jax.load`.
BY_OPENVINO = {
  "openvino": ("float32", "openvino"),
  "openvino-bfloat16": ("bfloat16", "openvino"),
  "openvino-int8": ("float32", "openvino-int8"),
}
SIZES = (32, 128, 512, 2048)  # of sentence-transformers' batches
DIFFERENCE = 1e-3  # between the scores of the two sides, beyond which they do not compute the same
ROUNDED = 0.1  # the same in bfloat16, and in 8 bits


def marked(questions: Sequence[Question], mark: int) -> list[Question]:
  """Return the questions with texts that no other mark has."""
  new = []
  for q in questions:
    candidates = []
    for c in q.candidates:
      candidates.append(dataclasses.replace(c, text=f"{c.text} ({mark})"))
    new.append(dataclasses.replace(q, text=f"{q.text} ({mark})", candidates=tuple(candidates)))
  return new


def requests(count: int) -> list[Question]:
  """Return so many questions of the sample, each with ten of its sentences."""
  questions = datasets.load("sample").splits["train"]
  pool = itertools.cycle(c for question in questions for c in question.candidates)
  made = []
  for i in range(count):
    candidates = tuple(itertools.islice(pool, CANDIDATES))
    question = questions[i % len(questions)]
    made += marked([dataclasses.replace(question, candidates=candidates)], i)
  return made


def theirs(source: str, cross: bool, dtype: str, questions: Sequence[Question] = ()) -> Scores:
  """Return sentence-transformers' scores: each distinct text encoded once, or all pairs scored.

  On a GPU in the best of `SIZES` for `questions`; texts go in by length.
  """
  import sentence_transformers
  import torch

  torch.set_num_threads(devices.cores())
  device = "cuda" if torch.cuda.is_available() else "cpu"
  how = {"device": device, "model_kwargs": {"dtype": getattr(torch, dtype)}}
  kind = sentence_transformers.CrossEncoder if cross else sentence_transformers.SentenceTransformer
  model = kind(str(resolve(source)), **how)

  def scores(questions: Sequence[Question], size: int) -> Sequence[np.ndarray]:
    quiet = {"show_progress_bar": False, "batch_size": size}
    pairs = [(q.text, c.text) for q in questions for c in q.candidates]
    if cross:
      order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
      by_length, values = [pairs[i] for i in order], np.zeros(len(pairs), np.float32)
      values[order] = model.predict(by_length, activation_fn=torch.nn.Identity(), **quiet)
    else:
      rows = {text: row for row, text in enumerate({text: 0 for pair in pairs for text in pair})}
      vectors = model.encode(list(rows), normalize_embeddings=True, **quiet)
      left, right = ([rows[pair[side]] for pair in pairs] for side in (0, 1))
      values = (vectors[left] * vectors[right]).sum(1)
    return np.split(np.asarray(values), np.cumsum([len(q.candidates) for q in questions])[:-1])

  seconds = {SIZES[0]: 0.0}
  if device == "cuda" and questions:
    for size in SIZES:
      scores(questions, size)
      began = time.perf_counter()
      scores(questions, size)
      seconds[size] = time.perf_counter() - began
  best = min(seconds, key=seconds.__getitem__)
  return lambda questions: scores(questions, best)


def ours(ranker: as2jax.Ranker) -> Scores:
  """Return the score of a ranker that ranks."""
  return lambda questions: next(iter(ranker.all_scores(tuple(questions)).values()))


def cross_encoder(encoder: str, folder: str) -> str:
  """Write sentence-transformers' cross-encoder over a published encoder, its head drawn at random."""
  import sentence_transformers
  import torch

  torch.manual_seed(0)
  model = sentence_transformers.CrossEncoder(str(resolve(encoder)), num_labels=1, device="cpu")
  model.save_pretrained(folder)
  return folder


def first_questions() -> Sequence[Question]:
  """Return WikiQA's first test questions."""
  return datasets.load("wikiqa", download=False).splits["test"][:QUESTIONS]


def by_selection(ranker: as2jax.Ranker, question: Question) -> np.ndarray:
  """Return the scores of the sentences of a document, which are the question's candidates."""
  texts, spans, end = [c.text for c in question.candidates], [], 0
  for text in texts:
    spans.append((end, end + len(text)))
    end += len(text) + 1
  selection = ranker.select(question.text, " ".join(texts), threshold=None, sentences=spans)
  return np.asarray([one.score for one in selection.every])


def check_alike(
  sides: dict[str, Scores], questions: Sequence[Question], most: float = DIFFERENCE
) -> None:
  """Score by both sides; InputError where they do not score alike."""
  first, second = (np.concatenate(side(questions)) for side in sides.values())
  apart = float(np.abs(first - second).max())
  if not apart <= most:
    raise InputError(f"the two sides' scores are up to {apart:.3g} apart: they do unlike work")


def run(row: str, flags: argparse.Namespace, measure: Callable, unit: str) -> dict[str, Any]:
  """Measure a row of the kinds `rank`, `score` and `serve`."""
  source, cross = words.MINILM, row == "rank-split-cross"
  if row == "serve":
    return served(source, flags.blocks, measure, unit)
  dtype = "bfloat16" if jax.default_backend() == "gpu" else "float32"
  if row in BY_OPENVINO:
    dtype, backend = BY_OPENVINO[row]
    rankers = as2jax.load(source, dtype=dtype, backend=backend), as2jax.load(source)
    sides = dict(zip(("as2jax", "XLA, float32"), map(ours, rankers), strict=True))
  else:
    with tempfile.TemporaryDirectory() as folder:
      source = cross_encoder(source, folder) if cross else source
      ranker = as2jax.load(source, dtype=dtype)
      other = theirs(source, cross, dtype, () if row == "rank10" else first_questions())
    sides = {"as2jax": ours(ranker), "sentence-transformers": other}
  if row == "rank10":
    questions = requests(20)
    one = lambda q: ranker.rank(q.text, [c.text for c in q.candidates])
    sides = {
      "as2jax": lambda questions: [one(q) for q in questions],
      "sentence-transformers": lambda questions: [other([q]) for q in questions],
    }
    for side in sides.values():
      side(questions)
  elif row == "select":
    questions = first_questions()[:100]
    sides = {
      "as2jax": lambda questions: [by_selection(ranker, q) for q in questions],
      "sentence-transformers": lambda questions: [other([q])[0] for q in questions],
    }
    check_alike(sides, questions, DIFFERENCE)
  else:
    questions = first_questions()
    exact = dtype == "float32" and row != "openvino-int8"
    check_alike(sides, questions, DIFFERENCE if exact else ROUNDED)
  count = sum(len(q.candidates) for q in questions)

  def block(side: Scores, number: int) -> dict[str, float]:
    asked, began = marked(questions, number), time.perf_counter()
    side(asked)
    spent = time.perf_counter() - began
    return {"speed": 1e3 * spent / len(asked) if unit == "ms" else count / spent}

  measured = measure(sides, block, flags.blocks, unit)
  if row in BY_OPENVINO:
    fast, exact = (as2jax.evaluate(one, "wikiqa:test").metrics["map"]["mean"] for one in rankers)
    measured["as2jax"]["map_change"] = fast - exact
  return measured


def served(source: str, blocks: int, measure: Callable, unit: str) -> dict[str, Any]:
  """Ask the service by several clients, and its model by as many threads, in turn.

  Return requests a second, latencies, and how much this process grew after the first block.
  """
  import httpx

  from as2jax.inference import serve

  port, ranker = free_port(), as2jax.load(source)
  patient = serve.Limits(queue=600)  # a slow machine is measured, too
  server = serve.server(serve.application(ranker, limits=patient), "127.0.0.1", port)
  thread = threading.Thread(target=server.run)
  thread.start()
  while thread.is_alive() and not server.started:
    time.sleep(0.05)
  asked, sizes = requests(200), []
  # A pool that may keep fewer closes connections that it has given to another thread (httpcore #1110).
  kept = httpx.Limits(max_keepalive_connections=CLIENTS, keepalive_expiry=None)
  with (
    httpx.Client(timeout=600, limits=kept) as client,
    concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool,
  ):

    def by_service(question: Question) -> None:
      body = {"query": question.text, "texts": [c.text for c in question.candidates]}
      client.post(f"http://127.0.0.1:{port}/rerank", json=body).raise_for_status()

    def by_model(question: Question) -> None:
      ranker.rank(question.text, question.candidates)

    def block(side: Callable, number: int) -> dict[str, float]:
      def ask(question: Question) -> float:
        began = time.perf_counter()
        side(question)
        return 1e3 * (time.perf_counter() - began)

      own = marked(asked, 2 * number + (side is by_model))
      began = time.perf_counter()
      spent = list(pool.map(ask, own))
      speed = len(asked) / (time.perf_counter() - began)
      half, most = np.percentile(spent, (50, 99))
      if side is by_service:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * resource.getpagesize() / 2**20)
      return {"speed": speed, "median_ms": half, "ms_99": most}

    try:
      sides = measure({"as2jax": by_service, "the model alone": by_model}, block, blocks, unit)
      sides["as2jax"] |= {"requests": blocks * len(asked), "growth_mib": sizes[-1] - sizes[0]}
      return sides
    finally:
      server.should_exit = True
      thread.join()
