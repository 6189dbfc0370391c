"""A user's files whose candidates make a small pool, and configs of runs over it."""

import pathlib

import numpy as np
import tiny

WORDS = "ice snow fire water cold hot melts burns floats why what stone river cloud".split()


def write(folder: pathlib.Path, questions: int = 24) -> dict[str, str]:
  """Paths by config key: each split has questions in pairs that share their right sentence."""
  paths = {}
  for n, split in enumerate(("train", "dev", "test")):
    random = np.random.default_rng(n)
    text = lambda random=random: " ".join(random.choice(WORDS, size=random.integers(3, 7)))
    lines = ["question\tcandidate\tlabel"]
    for i in range(0, questions, 2):
      right = f"{text()} {i}"
      for j in (i, i + 1):
        asked = f"{text()} {j} ?"
        lines += [f"{asked}\t{right}\t1", f"{asked}\t{text()} {j} .\t0", f"{asked}\t{text()}\t0"]
    path = folder / f"{split}.tsv"
    path.write_text("\n".join(lines) + "\n")
    paths[f"data__{split}"] = str(path)
  return paths


def config(folder: pathlib.Path, preset: str, **overrides):
  """A run of a preset over the pool; `write` must have been called for the folder."""
  settings = {
    "evaluation__task": "retrieve",
    "select": "mrr",
    "data__negatives": "paragraph",
    "evaluation__depth": 20,
    "evaluation__min_questions_per_answer": 2,
    "data__name": "files",
    **{f"data__{split}": str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
  }
  return tiny.config(preset, **{**settings, **overrides})


def words(folder: pathlib.Path, name: str = "bm25"):
  """The config of a ranker of words over the pool."""
  job_config = config(folder, "triplet")
  with job_config.unlocked():
    job_config.model = {"name": name}
  return job_config
