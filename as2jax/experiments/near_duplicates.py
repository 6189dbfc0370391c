"""Test texts that the training data hold, too (`as2jax data near-duplicates`).

Counts the questions, sentences and right sentences of a split that stand in the training data, too:
`exact`ly, `normalised` (same letters and digits in any case), or nearly, which is a cosine above
a threshold between their vectors by an encoder. Beside them, MAP and MRR of the runs on all
questions of the split, and on those that have no near-duplicate in the training data. The runs have
one data set, whose texts are taken under the first run's rules; the held-out questions are not
counted as training data.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.data.inputs.word_overlap import sentences
from as2jax.data.load import load as load_dataset
from as2jax.data.load import require
from as2jax.data.record import Question
from as2jax.data.text.words import plain_form
from as2jax.evaluation import exact_search, results, run_scores, significance
from as2jax.inference.open import load as open_ranker
from as2jax.inference.run import Run
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError

KINDS = ("exact", "normalised", "vector")  # each counts what the one before counts, too
THRESHOLD = 0.95
NEAREST = 16  # training texts that a text is compared with, of greatest cosine
METRICS = ("map", "mrr")
Embed = Callable[[Sequence[str]], np.ndarray]
Near = Mapping[Any, int]  # training text (or pair) near to one -> index into `KINDS`


class NearDuplicates(NamedTuple):
  """What a split shares with the training data.

  Attributes:
    texts: of the rows (`questions`, `sentences`, `right sentences`, `pairs`), how many there are;
      sentences are distinct texts, pairs are a question with one of its sentences.
    counts: {row: {kind: how many have a near-duplicate of that kind or of an earlier one}}; of a
      pair, one training question is near to its question and has a sentence near to its sentence.
    questions: ids of the questions that have a near-duplicate of any kind.
    right: ids of the questions with a right sentence that has one.

  """

  texts: dict[str, int]
  counts: dict[str, dict[str, int]]
  questions: set[str]
  right: set[str]


def near_duplicates(
  test: Sequence[Question], train: Sequence[Question], embed: Embed, *, threshold: float = THRESHOLD
) -> NearDuplicates:
  """Find the texts of `test` that have a near-duplicate in `train`: a cosine of vectors above `threshold`."""
  asked = (list({question.text: None for question in part}) for part in (test, train))
  near_question = _matches(*asked, embed, threshold)
  near_sentence = _matches(sentences(test), sentences(train), embed, threshold)
  answers = defaultdict(set)
  for question in train:
    answers[question.text].update(c.text for c in question.candidates)
  found = NearDuplicates({}, {}, set(), set())
  asked, pairs, right = [], [], {}
  for question in test:
    near = near_question[question.text]
    asked.append(near)
    if near:
      found.questions.add(question.id)
    for candidate in question.candidates:
      told = near_sentence[candidate.text]
      pairs.append(_near_pairs(near, told, answers))
      if candidate.label == 1:
        right[candidate.text] = told
        if told:
          found.right.add(question.id)
  rows = {"questions": asked, "sentences": near_sentence.values()}
  for row, its in {**rows, "right sentences": right.values(), "pairs": pairs}.items():
    nearest = [min(near.values(), default=len(KINDS)) for near in its]
    found.texts[row] = len(nearest)
    found.counts[row] = {kind: sum(k <= n for k in nearest) for n, kind in enumerate(KINDS)}
  return found


def _matches(
  texts: Sequence[str], train: Sequence[str], embed: Embed, threshold: float
) -> dict[str, Near]:
  """Return for each text the training texts near to it, at most `NEAREST` by vectors."""
  same = defaultdict(list)
  for text in train:
    same[plain_form(text)].append(text)
  matches: dict[str, dict[str, int]] = {}
  for text in texts:
    matches[text] = {other: int(other != text) for other in same.get(plain_form(text), ())}
  if texts and train:
    asked = exact_search.prepared(embed(texts), "cosine", side="query")
    pool = exact_search.prepared(embed(train), "cosine", side="pool")
    found = exact_search.Searcher(sharding.make_mesh(), k=NEAREST)(asked, pool)
    for n, i in np.argwhere(found.scores > threshold):
      matches[texts[n]].setdefault(train[found.entries[n, i]], KINDS.index("vector"))
  return matches


def _near_pairs(question: Near, sentence: Near, answers: Mapping[str, set[str]]) -> Near:
  """Return the kinds of the training pairs that are near: each that of the looser of its two texts."""
  kinds = {}
  for asked, kind in question.items():
    for text in sentence.keys() & answers[asked]:
      kinds[asked, text] = max(kind, sentence[text])
  return kinds


def embedder(source: str, allow_code: bool = False) -> Embed:
  """Open a published sentence encoder, or a run, whose text rules its vectors follow."""
  ranker = open_ranker(source, allow_code=allow_code)
  if not ranker.has_vectors:
    raise InputError(
      f"--encoder={source}: {ranker.name} has no vectors of texts; give a bi-encoder"
    )
  return ranker.encode_document


def report(
  folders: Sequence[str],
  *,
  split: str,
  encoder: str,
  threshold: float = THRESHOLD,
  allow_code: bool = False,
) -> dict[str, Any]:
  """Report the near-duplicates of a split of the runs' data set, and metrics without them."""
  runs = run_scores.load(folders, split=split)
  first = Run(folders[0], allow_code=allow_code)
  dataset = load_dataset(first.config.data)
  results.require_unchanged(folders[0], first.results, dataset)
  parts = split.split("+")
  require(dataset, ("train", *parts))
  test = [question for part in parts for question in dataset.splits[part]]
  train = dataset.splits["train"]
  found = near_duplicates(test, train, embedder(encoder, allow_code), threshold=threshold)
  without = {
    "all questions": set(),
    "without near-duplicate questions": found.questions,
    "without near-duplicate questions or right sentences": found.questions | found.right,
  }
  rows = []
  for run in runs:
    for metric in METRICS:
      for title, left_out in without.items():
        kept = [name not in left_out for name in run.ids]
        values = run.metric(metric)[:, kept]
        groups = None if run.groups is None else run.groups[kept]
        row = {"run": run.name, "metric": run.title(metric), "questions": title}
        row |= {"count": values.shape[1], "mean": None, "half_width": None}
        if values.size:
          row |= {
            "mean": float(values.mean()),
            "half_width": significance.half_width(values, groups),
          }
        rows.append(row)
  return {
    "data": first.config.data.name,
    "split": split,
    "train": len(train),
    "encoder": encoder,
    "threshold": threshold,
    "texts": found.texts,
    "counts": found.counts,
    "metrics": rows,
  }
