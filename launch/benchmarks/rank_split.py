"""python -m launch.benchmarks.rank_split: ranking a test split beside sentence-transformers.

Both open one published bi-encoder, or one cross-encoder (`--kind=cross`: random head over the same
encoder), and score all candidates of the first `--questions` of a split in one call, in float32 on
the CPU with the same number of threads, in alternating blocks. Each block's texts are its own, so
that nothing is found again. Prints the sentences (the pairs) a second of each, and their ratio.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np

import as2jax
from as2jax.config import words
from as2jax.data import dataset as datasets
from as2jax.data.record import Question
from as2jax.encoders.checkpoints.pretrained import resolve
from as2jax.runtime.errors import InputError
from launch.benchmarks import machine
from launch.benchmarks.rank import result

Scores = Callable[[Sequence[Question]], Sequence[np.ndarray]]
DIFFERENCE = 1e-3  # between the scores of the two sides, beyond which they do not compute the same


def marked(questions: Sequence[Question], block: int) -> list[Question]:
  """The questions with texts that no other block has."""
  return [
    dataclasses.replace(
      q,
      text=f"{q.text} ({block})",
      candidates=tuple(dataclasses.replace(c, text=f"{c.text} ({block})") for c in q.candidates),
    )
    for q in questions
  ]


def make_cross_encoder(encoder: str, folder: str) -> str:
  """Writes sentence-transformers' cross-encoder over a published encoder, its head drawn at random."""
  import sentence_transformers
  import torch

  torch.manual_seed(0)
  sentence_transformers.CrossEncoder(
    str(resolve(encoder)), num_labels=1, device="cpu"
  ).save_pretrained(folder)
  return folder


def ours(source: str) -> Scores:
  """as2jax's scores of each question's candidates, in the order given."""
  ranker = as2jax.load(source)

  def scores(questions: Sequence[Question]) -> Sequence[np.ndarray]:
    return next(iter(ranker.all_scores(tuple(questions)).values()))

  return scores


def theirs(source: str, kind: str) -> Scores:
  """The same with sentence-transformers: each distinct text encoded once, or all pairs scored."""
  import sentence_transformers
  import torch

  torch.set_num_threads(machine.cores())
  path, options = str(resolve(source)), {"show_progress_bar": False}
  if kind == "cross":
    scorer = sentence_transformers.CrossEncoder(path, device="cpu")
    options["activation_fn"] = torch.nn.Identity()  # ours ranks by logits

    def scores(questions: Sequence[Question]) -> Sequence[np.ndarray]:
      pairs = [(q.text, c.text) for q in questions for c in q.candidates]
      ends = np.cumsum([len(q.candidates) for q in questions])[:-1]
      return np.split(np.asarray(scorer.predict(pairs, **options)), ends)

    return scores
  model = sentence_transformers.SentenceTransformer(path, device="cpu")

  def similarities(questions: Sequence[Question]) -> Sequence[np.ndarray]:
    texts = [q.text for q in questions] + [c.text for q in questions for c in q.candidates]
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    vectors = model.encode(list(rows), normalize_embeddings=True, **options)
    row = lambda text: vectors[rows[text]]
    return [np.stack([row(c.text) for c in q.candidates]) @ row(q.text) for q in questions]

  return similarities


def timed(
  sides: dict[str, Scores], questions: Sequence[Question], blocks: int
) -> dict[str, list[float]]:
  """Seconds of each side's blocks, after one that nobody times.

  Raises:
    InputError: the sides do not score alike.

  """
  seconds: dict[str, list[float]] = {name: [] for name in sides}
  for block in range(blocks + 1):
    part, scores = marked(questions, block), []
    for name, side in sides.items():
      started = time.perf_counter()
      scores.append(np.concatenate(side(part)))
      seconds[name].append(time.perf_counter() - started)
    apart = float(np.abs(scores[0] - scores[-1]).max())
    if not apart <= DIFFERENCE:
      raise InputError(f"the two sides' scores are up to {apart:.3g} apart: they do unlike work")
    print(f"block {block}: " + ", ".join(f"{n} {s[-1]:.1f} s" for n, s in seconds.items()))
  return {name: own[1:] for name, own in seconds.items()}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--kind", choices=("bi", "cross"), default="bi")
  parser.add_argument("--source", help="what both open; of bi, MiniLM unless given")
  parser.add_argument("--data", default="wikiqa")
  parser.add_argument("--questions", type=int, default=300, help="of the test split, its first")
  parser.add_argument("--blocks", type=int, default=3, help="of each")
  parser.add_argument("--json", metavar="FILE", help="write the results as one line of JSON")
  flags = parser.parse_args()
  questions = datasets.load(flags.data, download=False).splits["test"][: flags.questions]
  count = sum(len(q.candidates) for q in questions)
  with tempfile.TemporaryDirectory(prefix="as2jax-rank-split-") as folder:
    source = flags.source or words.MINILM
    if flags.kind == "cross" and not flags.source:
      source = make_cross_encoder(source, folder)
    sides = {"as2jax": ours(source), "sentence-transformers": theirs(source, flags.kind)}
  others = machine.Others()
  seconds = timed(sides, questions, flags.blocks)
  content = result(seconds, others.busy())
  for name, own in seconds.items():
    content[name]["speed"] = count / statistics.median(own)
  (_, our), (_, other) = ((name, content[name]) for name in content["sides"])
  print(
    f"{count:,} candidates of {len(questions)} questions: as2jax {our['speed']:.1f} a second, "
    f"sentence-transformers {other['speed']:.1f}, {other['ratio']:.2f} × "
    f"(blocks {', '.join(f'{r:.2f}' for r in other['ratio_of_each_block'])})"
  )
  if flags.json:
    pathlib.Path(flags.json).write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
  main()
