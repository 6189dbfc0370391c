"""Test texts that the training data hold, too (`as2jax data near-duplicates`).

Counts the questions, sentences and right sentences of a split that stand in the training data, too:
`exact`ly, `normalised` (same letters and digits in any case), or nearly, which is a cosine above
a threshold between their vectors by an encoder. Beside them, MAP and MRR of the runs on all
questions of the split, and on those that have no near-duplicate in the training data. The runs have
one data set, whose texts are taken under the first run's rules; the held-out questions are not
counted as training data.
"""

import dataclasses
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from as2jax.data.load import load as load_dataset
from as2jax.data.load import require
from as2jax.data.record import Question
from as2jax.data.text.words import plain_form
from as2jax.evaluation import exact_search, results, run_scores, significance, tables
from as2jax.inference.open import load as open_ranker
from as2jax.inference.run import Run
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError

KINDS = ("exact", "normalised", "vector")  # each counts what the one before counts, too
THRESHOLD = 0.95
NEAREST = 16  # training texts that a text is compared with, of greatest cosine
METRICS = ("map", "mrr")
Embed = Callable[[Sequence[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
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
  questions: frozenset[str]
  right: frozenset[str]


def near_duplicates(
  test: Sequence[Question], train: Sequence[Question], embed: Embed, *, threshold: float = THRESHOLD
) -> NearDuplicates:
  """Find the texts of `test` that have a near-duplicate in `train`.

  Args:
    embed: the vectors `[n, d]` of texts.
    threshold: of the cosine.

  """
  sentences = lambda questions: dict.fromkeys(c.text for q in questions for c in q.candidates)
  asked = lambda questions: dict.fromkeys(q.text for q in questions)
  near_questions = _matches(list(asked(test)), list(asked(train)), embed, threshold)
  near_sentences = _matches(list(sentences(test)), list(sentences(train)), embed, threshold)
  answers = defaultdict(set)
  for question in train:
    answers[question.text].update(c.text for c in question.candidates)
  kinds: dict[str, list[str]] = {
    "questions": [_kind(near_questions[q.text]) for q in test],
    "sentences": [_kind(neighbours) for neighbours in near_sentences.values()],
    "right sentences": [
      _kind(near_sentences[text])
      for text in dict.fromkeys(q.candidates[i].text for q in test for i in q.positives)
    ],
    "pairs": [
      _pair_kind(near_questions[q.text], near_sentences[c.text], answers)
      for q in test
      for c in q.candidates
    ],
  }
  return NearDuplicates(
    {row: len(its) for row, its in kinds.items()},
    {
      row: {kind: sum(k in KINDS[: n + 1] for k in its) for n, kind in enumerate(KINDS)}
      for row, its in kinds.items()
    },
    frozenset(q.id for q in test if near_questions[q.text]),
    frozenset(q.id for q in test if any(near_sentences[q.candidates[i].text] for i in q.positives)),
  )


def _matches(
  texts: Sequence[str], train: Sequence[str], embed: Embed, threshold: float
) -> dict[str, dict[str, str]]:
  """Return for each text {training text near to it: kind}, at most `NEAREST` by vectors."""
  known, same = set(train), defaultdict(list)
  for text in train:
    same[plain_form(text)].append(text)
  matches: dict[str, dict[str, str]] = {}
  for text in texts:
    matches[text] = dict.fromkeys(same.get(plain_form(text), ()), "normalised")
    if text in known:
      matches[text][text] = "exact"
  if texts and train:
    vectors = [
      exact_search.prepared(embed(its), "cosine", side=side)
      for its, side in ((texts, "query"), (train, "pool"))
    ]
    nearest = exact_search.Searcher(sharding.make_mesh(), k=NEAREST)(*vectors)
    for n, i in np.argwhere(nearest.scores > threshold):
      matches[texts[n]].setdefault(train[nearest.entries[n, i]], "vector")
  return matches


def _kind(near: dict[str, str]) -> str:
  return min(near.values(), key=KINDS.index, default="")


def _pair_kind(question: dict[str, str], sentence: dict[str, str], answers: Any) -> str:
  """Return the kind of the nearest training pair: that of the looser of its two texts."""
  kinds = [
    max(asked, its, key=KINDS.index)
    for near, asked in question.items()
    for text, its in sentence.items()
    if text in answers[near]
  ]
  return min(kinds, key=KINDS.index, default="")


def embedder(source: str) -> Embed:
  """Open a published sentence encoder, or a run, as `as2jax.load` does.

  A run has text rules of its own, which its vectors follow.

  Raises:
    InputError: no such encoder, or a model that has no vectors.

  """
  ranker = open_ranker(source)
  if not ranker.has_vectors:
    raise InputError(
      f"--encoder={source}: {ranker.name} has no vectors of texts; give a bi-encoder"
    )

  return ranker.encode_document


def report(
  folders: Sequence[str], *, split: str, encoder: str, threshold: float = THRESHOLD
) -> dict[str, Any]:
  """Report the near-duplicates of a split of the runs' data set, and metrics without them.

  Returns:
    `data`, `split`, `train`, `encoder`, `threshold`; `texts` and `counts` of `NearDuplicates`; and
    `metrics`, a row for each run, metric and part of the questions.

  Raises:
    InputError: runs that cannot be compared, no such split or encoder.

  """
  runs = run_scores.load(folders, split=split)
  first = Run(folders[0])
  section = first.config.data
  dataset = load_dataset(section)
  results.require_unchanged(folders[0], first.results, dataset)
  parts = split.split("+")
  require(dataset, ("train", *parts))
  test = [question for part in parts for question in dataset.splits[part]]
  duplicates = near_duplicates(
    test, dataset.splits["train"], embedder(encoder), threshold=threshold
  )
  without = {
    "all questions": frozenset(),
    "without near-duplicate questions": duplicates.questions,
    "without near-duplicate questions or right sentences": duplicates.questions | duplicates.right,
  }
  rows = []
  for run in runs:
    for metric in METRICS:
      for title, left_out in without.items():
        kept = np.array([name not in left_out for name in run.ids])
        values = run.metric(metric)[:, kept]
        rows.append(
          {
            "run": run.name,
            "metric": run.title(metric),
            "questions": title,
            "count": int(kept.sum()),
            "mean": float(values.mean()) if kept.any() else None,
            "half_width": significance.half_width(values) if kept.any() else None,
          }
        )
  return {
    "data": section.name,
    "split": split,
    "train": len(dataset.splits["train"]),
    "encoder": encoder,
    "threshold": threshold,
    "texts": duplicates.texts,
    "counts": duplicates.counts,
    "metrics": rows,
  }


def text_of(content: dict[str, Any]) -> str:
  """Render a report as text."""
  cells = [["", "all", *KINDS]]
  for row, its in content["counts"].items():
    cells.append([row, str(content["texts"][row]), *(str(its[kind]) for kind in KINDS)])
  lines = [
    f"{content['data']}: what {content['split']} shares with the {content['train']} training "
    f"questions; `vector`: a cosine above {content['threshold']:g} by {content['encoder']}",
    textwrap.indent(tables.render(cells), "  "),
    "",
  ]
  cells = [["", "", "questions", "", "± 95 %"]]
  for row in content["metrics"]:
    figures = ("mean", "half_width")
    shown = ["–" if row[key] is None else f"{row[key]:.4f}" for key in figures]
    cells.append([f"{row['run']}, {row['metric']}", row["questions"], str(row["count"]), *shown])
  return "\n".join([*lines, textwrap.indent(tables.render(cells, left=2), "  ")])
