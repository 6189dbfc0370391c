"""A synthetic ASNQ file of any size: `python -m tests.data.synthetic FILE ROWS`."""

import random
import sys
from pathlib import Path


def write_synthetic_asnq(path: Path, rows: int, *, per_question: int = 350, seed: int = 0) -> int:
  """Writes about `rows` lines in ASNQ's format and size; returns the number of questions.

  A sentence has 8 to 40 words of a made-up vocabulary. One sentence of a question in a hundred is
  of class 4; classes 2 and 3 are as rare.
  """
  draw = random.Random(seed)
  vocabulary = [
    "".join(draw.choices("abcdefghijklmnoprstuvw", k=draw.randint(2, 9))) for _ in range(20_000)
  ]
  written = questions = 0
  with path.open("w", encoding="utf-8", newline="\n") as file:
    while written < rows:
      questions += 1
      question = f"question {questions} about {' '.join(draw.choices(vocabulary, k=6))}"
      count = min(draw.randint(1, 2 * per_question - 1), rows - written)
      for _ in range(count):
        sentence = " ".join(draw.choices(vocabulary, k=draw.randint(8, 40)))
        label = draw.choices((1, 2, 3, 4), weights=(97, 1, 1, 1))[0]
        file.write(f"{question}\t{sentence} .\t{label}\n")
      written += count
  return questions


if __name__ == "__main__":
  print(write_synthetic_asnq(Path(sys.argv[1]), int(sys.argv[2])), "questions")
