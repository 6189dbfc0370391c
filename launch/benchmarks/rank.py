"""python -m launch.benchmarks.rank: warm `Ranker.rank` beside sentence-transformers, one question.

Both open the same published bi-encoder and rank the embedded sample's candidates, in float32 on the
CPU with the same number of threads, in alternating blocks. Every call has texts of its own, so that
neither finds an earlier call's work. Prints the median milliseconds a call, and their ratio.
"""

import argparse
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence

import as2jax
from as2jax.config import words
from as2jax.data import dataset as datasets
from as2jax.encoders.checkpoints.pretrained import resolve
from launch.benchmarks import machine

Request = tuple[str, list[str]]


def requests(count: int, candidates: int) -> list[Request]:
  """Questions of the sample, each with as many of its sentences, no two alike."""
  questions = datasets.load("sample").splits["train"]
  texts = [c.text for q in questions for c in q.candidates]
  generated = []
  for i in range(count):
    at = [(i * candidates + j) % len(texts) for j in range(candidates)]
    turn = f"({i})"
    question = f"{questions[i % len(questions)].text} {turn}"
    generated.append((question, [f"{texts[j]} {turn}" for j in at]))
  return generated


def timed(rank: Callable[[str, list[str]], object], asked: Sequence[Request]) -> list[float]:
  """Milliseconds of each call."""
  times = []
  for question, texts in asked:
    started = time.perf_counter()
    rank(question, texts)
    times.append(1e3 * (time.perf_counter() - started))
  return times


def theirs(source: str) -> Callable[[str, list[str]], object]:
  """The same with sentence-transformers."""
  import sentence_transformers
  import torch

  torch.set_num_threads(machine.cores())
  model = sentence_transformers.SentenceTransformer(str(resolve(source)), device="cpu")
  model.eval()

  def rank(question: str, texts: list[str]) -> object:
    options = {"show_progress_bar": False}
    asked, held = (model.encode(x, **options) for x in ([question], texts))
    return model.similarity(asked, held).argsort(descending=True)

  return rank


def result(medians: dict[str, list[float]], busy: bool) -> dict:
  """What `--json` writes: milliseconds of each side; its ratios say how many times as fast ours is."""
  ours, *others = medians
  content = {"sides": list(medians), "busy": busy, "notes": []}
  for name, times in medians.items():
    content[name] = {"speed": statistics.median(times)}
  for name in others:
    ratios = [b / a for a, b in zip(medians[ours], medians[name], strict=True)]
    content[name] |= {"ratio": statistics.median(ratios), "ratio_of_each_block": ratios}
  return content


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--source", default=words.MINILM, help="a published bi-encoder")
  parser.add_argument("--candidates", type=int, default=10, help="of a question")
  parser.add_argument("--calls", type=int, default=20, help="in a block")
  parser.add_argument("--blocks", type=int, default=5, help="of each")
  parser.add_argument("--json", metavar="FILE", help="write the results as one line of JSON")
  flags = parser.parse_args()
  ranker = as2jax.load(flags.source)
  ranker.warm_up()
  sides = {"as2jax": ranker.rank, "sentence-transformers": theirs(flags.source)}
  asked = requests(flags.calls * (flags.blocks + 1), flags.candidates)
  for rank in sides.values():
    timed(rank, asked[: flags.calls])
  medians: dict[str, list[float]] = {name: [] for name in sides}
  others = machine.Others()
  for block in range(1, flags.blocks + 1):
    part = asked[block * flags.calls : (block + 1) * flags.calls]
    for name, rank in sides.items():
      medians[name].append(statistics.median(timed(rank, part)))
    load = os.getloadavg()[0]
    print(f"block {block}: " + ", ".join(f"{n} {m[-1]:.1f} ms" for n, m in medians.items()), end="")
    print(f"; load {load:.1f}")
  ours, other = (statistics.median(m) for m in medians.values())
  ratios = [a / b for a, b in zip(*medians.values())]
  print(
    f"rank of {flags.candidates}: as2jax {ours:.1f} ms, sentence-transformers {other:.1f} ms, "
    f"{statistics.median(ratios):.2f} × (blocks {', '.join(f'{r:.2f}' for r in ratios)})"
  )
  if flags.json:
    content = json.dumps(result(medians, others.busy()))
    pathlib.Path(flags.json).write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
  main()
