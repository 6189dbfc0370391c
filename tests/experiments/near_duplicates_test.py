"""Near-duplicates of test texts in the training data, and metrics without them."""

import json
import zlib

import numpy as np
import pytest

from as2jax.commands import app
from as2jax.data.load import load as load_dataset
from as2jax.data.record import Candidate, Question
from as2jax.evaluation import run_scores
from as2jax.experiments import near_duplicates
from as2jax.inference.run import Run

AXES = {"near": (1.0, 0.2), "far": (1.0, 0.5), "train": (1.0, 0.0)}


def vectors(texts):
  """Cosines with "train …": .98 of "near …", .89 of "far …"; of other texts they are small."""
  rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=64) for text in texts]
  for row, text in zip(rows, texts):
    if text.split()[0] in AXES:
      row[:] = (*AXES[text.split()[0]], *np.zeros(62))
  return np.asarray(rows, np.float32)


def question(name, text, right, *wrong):
  texts = [(right, 1), *((other, 0) for other in wrong)]
  return Question(name, text, tuple(Candidate(str(i), t, y) for i, (t, y) in enumerate(texts)))


TRAIN = [
  question("t1", "who wrote it", "Mary wrote it.", "It rained."),
  question("t2", "train question", "It was cold.", "It snowed."),
]
TEST = [
  question("same", "who wrote it", "mary WROTE it", "It snowed."),
  question("near", "near question", "It was cold.", "something else"),
  question("far", "far question", "what nobody said", "It rained."),
]


def test_each_kind_is_found():
  actual = near_duplicates.near_duplicates(TEST, TRAIN, vectors)
  assert actual.texts == {"questions": 3, "sentences": 6, "right sentences": 3, "pairs": 6}
  assert actual.counts == {
    "questions": {"exact": 1, "normalised": 1, "vector": 2},
    "sentences": {"exact": 3, "normalised": 4, "vector": 4},
    "right sentences": {"exact": 1, "normalised": 2, "vector": 2},
    # "It snowed." is a sentence of another question than the one that is asked again.
    "pairs": {"exact": 0, "normalised": 1, "vector": 2},
  }
  assert actual.questions == {"same", "near"} and actual.right == {"same", "near"}


def test_the_threshold_counts():
  actual = near_duplicates.near_duplicates(TEST, TRAIN, vectors, threshold=0.8)
  assert actual.counts["questions"] == {"exact": 1, "normalised": 1, "vector": 3}
  alone = near_duplicates.near_duplicates(TEST, [], vectors)
  assert not any(any(its.values()) for its in alone.counts.values()) and not alone.questions


class Copied:
  """The embedded sample, whose first training question is the first one that test counts."""

  def __init__(self, section):
    its = load_dataset(section)
    first = next(q for q in its.splits["test"] if q.positives)
    self.splits = {"train": (first, *its.splits["train"]), "test": its.splits["test"]}
    self.name, self.fingerprints = its.name, dict(its.fingerprints)  # as the run recorded them


@pytest.fixture
def copied(finished_run, monkeypatch):
  monkeypatch.setattr(near_duplicates, "load_dataset", Copied)
  monkeypatch.setattr(near_duplicates, "require", lambda *arguments: None)
  monkeypatch.setattr(near_duplicates, "embedder", lambda name, allow_code: vectors)
  return finished_run("bm25")


def test_metrics_without_them(copied, capsys):
  (run,) = run_scores.load([str(copied)])
  assert app.run(["data", "near-duplicates", str(copied), "--format=json"]) == 0
  content = json.loads(capsys.readouterr().out)
  rows = [row for row in content["metrics"] if row["metric"] == run.title("map")]
  first = next(q for q in Copied(Run(copied).config.data).splits["train"])
  kept = [value for name, value in zip(run.ids, run.metric("map")[0]) if name != first.id]
  assert rows[0]["mean"] == pytest.approx(run.metric("map").mean())
  assert (rows[0]["count"], rows[1]["count"]) == (len(run.ids), len(run.ids) - 1)
  assert rows[1]["mean"] == pytest.approx(np.mean(kept)) != rows[0]["mean"]
  assert content["counts"]["questions"]["exact"] == 1
  assert content["counts"]["pairs"]["exact"] == len(first.candidates)


def test_the_vectors_follow_the_text_rules_of_the_run(finished_run, monkeypatch):
  """Of which two texts may become one."""
  folder = str(finished_run("triplet"))
  ranker = near_duplicates.open_ranker(folder)
  plain = ranker.encode_document(["It rained 3 times"])
  ranker.config.data.rules = ("mask_numbers",)
  monkeypatch.setattr(near_duplicates, "open_ranker", lambda source, allow_code: ranker)
  vectors = near_duplicates.embedder(folder)(["It rained 3 times", "It rained 1,200.50 times"])
  np.testing.assert_array_equal(vectors[0], vectors[1])
  assert np.abs(vectors[0] - plain[0]).max() > 1e-3
