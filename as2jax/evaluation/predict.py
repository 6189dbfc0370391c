"""Predict a split, regroup by question, measure, write run files.

A model that encodes sentences (`encodes`) encodes each distinct sentence once and compares vectors;
any other scores each candidate's example. Each host makes its part of a batch; every host gets the
output of all of it, and measures the same.
"""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from etils import epath

from as2jax.data.batches.batcher import Batcher
from as2jax.data.batches.examples import ExampleTable, sentence_pairs
from as2jax.data.datasets import trec_files
from as2jax.data.datasets.dataset import Dataset
from as2jax.data.record import Question
from as2jax.data.text.prompts import Prompts
from as2jax.evaluation import metrics
from as2jax.evaluation.passes import passes, short_rows
from as2jax.evaluation.predict_steps import make_compare_step, make_predict_step
from as2jax.evaluation.request_sizes import sizes, smallest
from as2jax.runtime import preemption, processes, sharding
from as2jax.runtime.errors import InputError

PAIRS = 4096  # pairs of vectors compared at once
FEW_PAIRS = 64  # in a request that has no more
KEPT = 8  # batchers; three splits of a pool, queries and passages, take six
Scores = dict[str, list[np.ndarray]]  # by score name, one array a question
DIVERGED = (
  "the weights are damaged, or training has diverged; lower optimizer.rate, or take "
  "another checkpoint"
)

NO_CHOICE = (
  "no question has both a right and a wrong candidate, so that every ranking has the same metrics: add "
  "candidates with label 0, or rank one pool of all candidates (evaluation.task=retrieve)"
)


class Components(Protocol):
  """What prediction needs of a run's parts (`as2jax.training.build` makes them)."""

  @property
  def config(self) -> Any:
    """The run's config."""
    ...

  @property
  def model(self) -> Any:
    """The system."""
    ...

  @property
  def provenance(self) -> Mapping[str, Any]:
    """What results say of the weights."""
    ...

  @property
  def prompts(self) -> Prompts:
    """What is put before texts."""
    ...

  @property
  def inputs(self) -> Sequence[Any]:
    """What the model reads beside token ids."""
    ...

  def predict_batcher(
    self, questions: Sequence[Question], layout: str, *, cache: bool = True
  ) -> Batcher:
    """Batches that hold every unit (`sentences`) or every candidate of `questions` once.

    Args:
      cache: whether tokens are kept on disk, to be found the next time.

    """
    ...

  def orders(self, questions: Sequence[Question]) -> list[np.ndarray]:
    """The candidates of each question, best first, as another ranker has them."""
    ...


class Predictor:
  """Scores questions with the model of a run, for each seed of its variables `{"params": …, …}`, `[seed, …]`.

  The compiled steps are kept: a second split, or a later epoch, compiles nothing. Threads may share
  a predictor; one at a time uses it.
  """

  def __init__(self, components: Components, mesh: jax.sharding.Mesh, seeds: int):
    self.components, self.mesh, self.seeds = components, mesh, seeds
    model = self.model = components.model
    self.step = make_predict_step(
      model, "encode" if model.encodes else "__call__", mesh=mesh, seeds=seeds
    )
    self.compare = make_compare_step(model, mesh=mesh, seeds=seeds) if model.encodes else None
    self._lock = threading.RLock()
    # ((questions, layout, request), batcher), least recently used first. They are compared by
    # content: the `id` of a list is given to another one once it is freed.
    self._batchers: list[tuple[tuple[tuple[Question, ...], str, bool], Batcher]] = []

  @property
  def _on_cpu(self) -> bool:
    """Whether it computes on CPUs, where attention over long rows is what costs."""
    return self.mesh.devices.flat[0].platform == "cpu"

  @property
  def compilations(self) -> int:
    """Programs compiled so far."""
    return self.step._cache_size() + (self.compare._cache_size() if self.compare else 0)

  def __call__(
    self, variables: Any, questions: Sequence[Question], *, request: bool = False
  ) -> list[Scores]:
    """Scores of every candidate, one entry a seed; the first name is the one that ranks.

    Args:
      variables: the model's, `[seed, …]`.
      request: whether the questions are a request in place of a split: batches then shrink to what
        they hold, to one of a few sizes, and their tokens are kept in no cache on disk.

    Raises:
      InputError: a vector or a score is not finite.

    """
    with self._lock:
      if self.model.encodes:
        by_name = self._by_vectors(variables, questions, request)
      else:
        by_name = self._by_examples(variables, questions, request)
    sizes = np.cumsum([len(q.candidates) for q in questions])[:-1]
    scores = [
      {name: np.split(values[seed], sizes) for name, values in by_name.items()}
      for seed in range(self.seeds)
    ]
    for its in scores:
      for name, values in its.items():
        check_finite(values, questions, name)
    return scores

  def batcher(
    self, questions: Sequence[Question], layout: str, *, request: bool = False
  ) -> Batcher:
    """The batches of `questions`; the `KEPT` that were used last are not made again."""
    key = tuple(questions), layout, request
    entry = next((kept for kept in self._batchers if kept[0] == key), None)
    if entry is None:
      entry = key, self._new_batcher(*key)
    others = [kept for kept in self._batchers if kept is not entry]
    self._batchers = [*others, entry][-KEPT:]
    return entry[1]

  def _new_batcher(self, questions: Sequence[Question], layout: str, request: bool) -> Batcher:
    if not request:
      return self.components.predict_batcher(questions, layout)
    return smallest(self.components.predict_batcher(questions, layout, cache=False))

  def warm_up(self, variables: Any, questions: Sequence[Question]) -> None:
    """Compiles the programs of every size that a request's batches may have.

    Args:
      questions: any that the model can read.

    """
    model = self.model
    layout = "sentences" if model.encodes else model.layout
    output = None
    whole = self.components.predict_batcher(questions, layout, cache=False)
    short = short_rows(whole) if self._on_cpu else None
    for batcher in [*sizes(whole), *([short] if short else [])]:
      plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
      lengths = batcher.row_lengths[-1:] if batcher.sampler.limits.packed else batcher.row_lengths
      mine = sharding.local_shards(self.mesh, batcher.shards)
      for length in lengths:
        batch = batcher.batch(plan, len(plan), (batcher.rows[-1], length), mine)
        output = self.step(
          variables, sharding.place_predict(batch, self.mesh, shards=batcher.shards)
        )
    if self.compare is not None and output is not None:
      width = output.units.shape[-1]
      for count in (FEW_PAIRS, PAIRS):
        vectors = np.ones((self.seeds, count, width), np.float32)
        output = self.compare(variables, (vectors, vectors))
    jax.block_until_ready(output)

  def _run(self, variables: Any, batcher: Batcher, request: bool):
    """Yields (shards, output) of each batch."""
    mine = sharding.local_shards(self.mesh, batcher.shards)
    for its, plan in passes(batcher, apart=self._on_cpu, request=request):
      for i in range(len(plan)):
        preemption.check()
        batch = its.batch(plan, i, only=mine)
        placed = sharding.place_predict(batch, self.mesh, shards=its.shards)
        yield plan.steps[i][0], self.step(variables, placed)

  def embed(
    self, variables: Any, questions: Sequence[Question], *, request: bool = False
  ) -> tuple[np.ndarray, Batcher]:
    """The vector of each distinct sentence, `[seed, sentence, d]`, by its number in the table.

    Raises:
      InputError: one is not finite.

    """
    with self._lock:
      return self._embed(variables, questions, request)

  def _embed(self, variables, questions, request) -> tuple[np.ndarray, Batcher]:
    batcher = self.batcher(questions, "sentences", request=request)
    vectors: np.ndarray | None = None
    for shards, output in self._run(variables, batcher, request):
      unit_vectors = np.asarray(output.units)
      if vectors is None:
        vectors = np.zeros(
          (self.seeds, len(batcher.units.lengths), unit_vectors.shape[-1]), np.float32
        )
      for s, shard in enumerate(shards):
        if shard is not None:
          vectors[:, shard.units] = unit_vectors[:, s, : len(shard.units)]
    assert vectors is not None, "a table of questions has texts"
    finite = np.isfinite(vectors).all(axis=(0, 2))
    if not finite.all():
      texts = [text for (text,) in sentence_pairs(questions)[0].units()]
      raise InputError(
        f"the model's vectors of {np.count_nonzero(~finite)} of {len(texts)} "
        "sentences are not finite, the first that of "
        f"{texts[np.argmin(finite)]!r:.200}, so that nothing can be ranked by them: "
        f"{DIVERGED}"
      )
    return vectors, batcher

  def _by_vectors(self, variables, questions, request) -> dict[str, np.ndarray]:
    vectors, _ = self.embed(variables, questions, request=request)
    _, pairs = sentence_pairs(questions)
    count = FEW_PAIRS if request and len(pairs) <= FEW_PAIRS else PAIRS
    assert self.compare is not None, "the model encodes"
    chunks: dict[str, list[np.ndarray]] = {}
    for at in range(0, len(pairs), count):
      part = pairs[at : at + count]
      padded = np.concatenate([part, np.zeros((count - len(part), 2), part.dtype)])
      scores = self.compare(variables, (vectors[:, padded[:, 0]], vectors[:, padded[:, 1]]))
      for name, values in scores.items():
        chunks.setdefault(name, []).append(np.asarray(values, np.float32)[:, : len(part)])
    first = self.model.ranking_score
    order = [first] + [name for name in chunks if name != first]
    return {name: np.concatenate(chunks[name], axis=1) for name in order}

  def _by_examples(self, variables, questions, request) -> dict[str, np.ndarray]:
    batcher = self.batcher(questions, self.model.layout, request=request)
    table = batcher.examples
    several = () if table.candidates is None else table.candidates.shape[1:]
    scores = np.zeros((self.seeds, len(table), *several), np.float32)
    for shards, output in self._run(variables, batcher, request):
      example_scores = np.asarray(output.scores, np.float32)
      for s, shard in enumerate(shards):
        if shard is not None:
          scores[:, shard.examples] = example_scores[:, s, : len(shard.examples)]
    if several:
      scores = above_the_rest(scores, table, self.components.orders(questions))
    return {self.model.score_names[0]: scores}


def above_the_rest(
  scores: np.ndarray, table: ExampleTable, orders: Sequence[np.ndarray]
) -> np.ndarray:
  """Scores of all candidates: those that a joint model scored first, the rest below them.

  The rest keeps the order of the ranker that chose the first: a step of 1 below the lowest score
  and below one another.

  Args:
    scores: `[seed, e, K]` of the examples of `table` (the layout `joint`).
    orders: positions of every question's candidates, best first.

  Returns:
    `[seed, candidates of all questions]`.

  """
  candidates = table.candidates
  assert candidates is not None, "the layout `joint` has candidates"
  sizes = [len(order) for order in orders]
  starts = np.cumsum([0, *sizes])
  all_scores = np.zeros((len(scores), starts[-1]), np.float32)
  for e, question in enumerate(table.question.tolist()):
    top = candidates[e][candidates[e] >= 0]
    values = scores[:, e, : len(top)]
    rest = orders[question][len(top) :]
    all_scores[:, starts[question] + top] = values
    below = values.min(axis=1, keepdims=True) - np.arange(1, len(rest) + 1, dtype=np.float32)
    all_scores[:, starts[question] + rest] = below
  return all_scores


def check_finite(scores: Sequence[np.ndarray], questions: Sequence[Question], name: str) -> None:
  """Raises InputError where a score of the `questions`' candidates is not finite.

  Args:
    scores: one array a question; name: of the score, for the message.

  """
  for question, values in zip(questions, scores, strict=True):
    if not np.isfinite(values).all():
      at = int(np.argmin(np.isfinite(values)))
      raise InputError(
        f"question {question.id!r}: the score {name!r} of candidate "
        f"{question.candidates[at].id!r} is {values[at]}, which cannot be ranked: "
        f"{DIVERGED}"
      )


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """Metrics of one ranking of one split.

  Attributes:
    metrics: {`map[wikiqa-clean/test]`: {value, half_width, questions}}.
    values: {`map[wikiqa-clean/test]`: [questions that are counted]}.
    per_question: {metric: [questions]}.
    notes: what a reader must know (ties that move a metric).
    scalars: for the log, by name.

  """

  metrics: dict[str, dict]
  values: dict[str, np.ndarray]
  per_question: dict[str, np.ndarray]
  notes: list[str]
  scalars: dict[str, float] = dataclasses.field(default_factory=dict)


def spread_within(scores: Sequence[np.ndarray]) -> float:
  """The part of the scores' standard deviation that lies within questions, 0 to 1.

  √(mean over candidates of (s − its question's mean)²) over the standard deviation of all scores; 0
  where all are equal. Near 0, a ranker tells questions apart in place of their candidates.
  """
  within = np.concatenate([its - its.mean() for its in scores if len(its)] or [np.zeros(1)])
  every = np.concatenate([*scores, np.zeros(0)]).astype(np.float64)
  total = every.std() if len(every) else 0.0
  return float(np.sqrt(np.mean(np.square(within, dtype=np.float64))) / total) if total else 0.0


def has_no_choice(questions: Sequence[Question]) -> bool:
  """Whether questions with a right candidate have right ones alone, so that all rankings are equal."""
  answered = False
  for question in questions:
    right = len(question.positives)
    if 0 < right < len(question.candidates):
      return False
    answered = answered or right > 0
  return answered


def evaluate(scores: Sequence[np.ndarray], data: Dataset, split: str, *, ties: str) -> Evaluation:
  """Measures one ranking of a split under every question filter that leaves a question.

  Args:
    scores: one array a question, higher is better.
    ties: policy of `metrics.per_question`.

  """
  questions = data.splits[split]
  for question, its_scores in zip(questions, scores, strict=True):
    metrics.require_float32(its_scores, question.id)
  labels = [np.asarray([c.label for c in q.candidates]) for q in questions]
  ids = [[c.id for c in q.candidates] for q in questions]
  names = [q.id for q in questions]
  values = metrics.per_question(scores, labels, ids, ties=ties, names=names)
  summary: dict[str, dict] = {}
  counted: dict[str, np.ndarray] = {}
  notes: list[str] = []
  for question_filter, rule in metrics.filters(data.clean, data.official).items():
    mask = metrics.filter_mask(rule, labels)
    if not mask.any():
      continue
    where = f"{data.name}-{question_filter}/{split}"
    ranges = metrics.tie_ranges(scores, labels, mask=mask)
    summary |= metrics.summarize(
      values, mask, dataset=data.name, question_filter=question_filter, split=split, ranges=ranges
    )
    counted |= {f"{metric}[{where}]": its[mask] for metric, its in values.items()}
    if question_filter == "clean":
      notes += metrics.tie_note(ranges, where)
      notes += [f"{where}: {NO_CHOICE}"] * has_no_choice(questions)
    if data.average_recall and rule == data.official:
      recall = metrics.average_recall(scores, labels, mask=mask)
      summary[f"avgrec[{where}]"] = {
        "value": recall,
        "half_width": None,  # a ratio of sums over questions
        "questions": int(mask.sum()),
      }
  answerable = [its for its, right in zip(scores, labels, strict=True) if (right == 1).any()]
  scalars = {f"spread_within_questions[{split}]": spread_within(answerable)}
  return Evaluation(summary, counted, values, notes, scalars)


def write(
  folder: epath.PathLike,
  evaluation: Evaluation,
  scores: Sequence[np.ndarray],
  questions: Sequence[Question],
  *,
  tag: str,
) -> None:
  """Writes `run.trec`, `qrels.trec` and `per_question.tsv` into `folder`."""
  folder = epath.Path(folder)
  if processes.first():
    folder.mkdir(parents=True, exist_ok=True)
  full = [i for i, q in enumerate(questions) if q.candidates]
  ids = [questions[i].id for i in full]
  candidates = [[c.id for c in questions[i].candidates] for i in full]
  labels = [np.asarray([c.label for c in questions[i].candidates]) for i in full]
  trec_files.write_run(folder / "run.trec", ids, candidates, [scores[i] for i in full], tag)
  trec_files.write_qrels(folder / "qrels.trec", ids, candidates, labels)
  trec_files.write_per_question(
    folder / "per_question.tsv",
    [q.id for q in questions],
    [np.asarray([c.label for c in q.candidates]) for q in questions],
    evaluation.per_question,
  )
