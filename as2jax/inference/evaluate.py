"""`as2jax.evaluate` measures anything that ranks; `as2jax.compare` compares what was measured."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from etils import epath

from as2jax.data.datasets import named, trec_files
from as2jax.data.datasets.dataset import Dataset, check_ids
from as2jax.data.record import UNKNOWN, Question, fingerprint
from as2jax.evaluation import compare as comparisons
from as2jax.evaluation import metrics, predict, results, run_files, significance
from as2jax.evaluation.run_scores import RunScores
from as2jax.inference import open as opening
from as2jax.inference.apply import note
from as2jax.inference.ranker import ParameterFreeRanker, Ranker
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError

if TYPE_CHECKING:
  import pandas

# From questions to one array of scores each, one a candidate in the order given; higher is better.
Scorer = Callable[[Sequence[Question]], Sequence[Sequence[float]]]
System = Ranker | Run | str | os.PathLike | Scorer
SAMPLES = 100_000  # of the randomization test


@dataclasses.dataclass(frozen=True)
class Evaluation(RunScores):
  """One system on the questions of a data set.

  Attributes:
    metrics: {metric: {mean, sd, half_width, seeds, questions, worst, best, tied_questions}}: the mean
      over seeds and questions, the standard deviation over seeds (None of one seed), the 95 %
      half-width over questions, and how far the order of tied candidates could move the first seed's
      mean, in how many questions. Of data that report it `avgrec`, a ratio of sums over questions:
      its half_width is None, and nothing is said of ties.
    worst, best: {metric: [questions]} of the first seed, under the worst and the best order of ties.
    fingerprint: SHA-256 of the questions with their labels; ties: how ties were resolved.

  """

  metrics: dict[str, dict[str, float | int | None]] = dataclasses.field(default_factory=dict)
  worst: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  best: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  fingerprint: str = ""
  ties: str = "expected"

  def __str__(self) -> str:
    lines = [
      f"{self.name} on {self.data}: {len(self.ids)} questions" + f" ({self.note})" * bool(self.note)
    ]
    for metric, its in self.metrics.items():
      spread = "" if its["sd"] is None else f" (s.d. {its['sd']:.4f} of {its['seeds']} seeds)"
      width = "" if its["half_width"] is None else f" ± {its['half_width']:.4f}"
      lines.append(f"  {metric:8s} {its['mean']:.4f}{width}{spread}")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Several systems, each compared with the first of `rows`.

  Attributes:
    rows: one a metric and system: mean, and (but for the baseline's) `difference`, `p_t` and
      `p_randomization` of these models, `p_methods`, `methods_half_width` and `methods_detectable`
      of these methods, or in `methods_note` why these cannot be told.
    text: the same as a table.

  """

  rows: list[dict[str, Any]]
  text: str

  def __str__(self) -> str:
    return self.text

  def to_pandas(self) -> Any:
    """A pandas frame of `rows`."""
    try:
      import pandas
    except ImportError as error:
      raise InputError("a frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(self.rows)


def evaluate(
  system: System,
  data: "Dataset | Sequence[Question] | str | os.PathLike | pandas.DataFrame",
  *,
  ties: str = "expected",
  name: str = "",
  deterministic: bool | None = None,
  columns: Mapping[str, str] | str | None = None,
  drop: bool = False,
) -> Evaluation:
  """Measures a system on labelled questions.

  Args:
    system: a `Ranker`; a `Run`, all of whose seeds are measured; the folder of a run; a published model,
      as `as2jax.load` takes it; a TREC run file; or a function from questions to one array of scores
      each (`pairwise` adapts a function of pairs).
    data: from `as2jax.dataset`, whose `filter` says which questions count (never one without
      candidates); a name such as `wikiqa:test`, a file, a pandas frame, or questions. Of a data set
      a ranker by words reads every question, so that its scores are the same under each filter.
    ties: `expected`, `trec` or `pessimistic`.
    name: what the system is called; by default its folder, file or model.
    deterministic: whether another seed would give the same scores. A run says so itself; of anything
      else it is unknown where None, so that one of them tells no methods apart.
    columns, drop: of a file or frame; see `as2jax.dataset`.

  The ledger of a run (`evaluations.jsonl` in its folder) has a row more for each split of a data set.

  Raises:
    InputError: a joint run whose first-stage ranking of these questions is not known (name it by
      `Run.rerank`), no questions, two with one id, a candidate without label, nothing of the system's name,
      scores of another number than candidates or (but for a run file's) that are not finite.

  """
  data = _read(data, columns, drop)
  questions = _labelled(data)
  system = _opened(system)
  by_seed, description = _scores(system, questions, data)
  labels = [np.asarray([c.label for c in q.candidates]) for q in questions]
  ids = [[c.id for c in q.candidates] for q in questions]
  names = [q.id for q in questions]
  if not isinstance(system, (str, os.PathLike)):  # a run file may hold infinities, as for `compare`
    for its in by_seed:
      predict.check_finite(its, questions, description["name"])
  tables = [metrics.per_question(its, labels, ids, ties=ties, names=names) for its in by_seed]
  values = {metric: np.stack([table[metric] for table in tables]) for metric in tables[0]}
  worst, best = metrics.tie_extremes(by_seed[0], labels, names=names)
  ranges = metrics.ranges_of(worst, best, np.ones(len(names), bool))
  description |= {"name": name} if name else {}
  description |= {} if deterministic is None else {"deterministic": deterministic}
  return Evaluation(
    **description,
    data=_title(data),
    ids=tuple(names),
    values=values,
    metrics={metric: _summary(its, ranges[metric]) for metric, its in values.items()}
    | _average_recall(by_seed, labels, data),
    worst=worst,
    best=best,
    fingerprint=fingerprint(questions),
    ties=ties,
  )


def _opened(system: System) -> System:
  """A run or a ranker for its name; the name of a run file stays as it is."""
  if not isinstance(system, (str, os.PathLike)):
    return system
  name = os.path.expanduser(system)
  if epath.Path(name).is_file():
    return name
  return Run(name) if opening.is_run(name) else opening.load(name)


def compare(
  *evaluations: Evaluation,
  baseline: int = 0,
  metrics: str | Sequence[str] = ("map", "mrr"),
  correction: Literal["holm", "none"] = "holm",
) -> Comparison:
  """Compares systems that answered the same questions, each with the baseline.

  Args:
    evaluations: two or more, from `evaluate`.
    baseline: position of the one that the others are compared with.
    metrics: names, as a text joined by commas.
    correction: `holm` adds p-values adjusted for the number of systems, within a metric.

  Raises:
    InputError: fewer than two, other questions or another policy for ties, no such metric.

  """
  if len(evaluations) < 2 or not all(isinstance(one, Evaluation) for one in evaluations):
    raise InputError("compare takes two or more evaluations: make them by as2jax.evaluate")
  if not -len(evaluations) <= baseline < len(evaluations):
    raise InputError(f"baseline = {baseline}: there are {len(evaluations)} evaluations")
  if correction not in ("holm", "none"):
    raise InputError(f"correction = {correction!r}: use holm or none")
  others = list(evaluations)
  base = others.pop(baseline)
  for one in others:
    if (one.fingerprint, one.ties) != (base.fingerprint, base.ties):
      raise InputError(
        f"{one.name} was measured on {one.data} with ties={one.ties}, {base.name} on {base.data} with "
        f"ties={base.ties}: compare systems on the same questions and labels"
      )
  if isinstance(metrics, str):
    metrics = [name.strip() for name in metrics.split(",")]
  rows = comparisons.compare([base, *others], metrics, samples=SAMPLES, seed=0)
  if correction == "none":
    rows = [{k: v for k, v in row.items() if not k.endswith("_holm")} for row in rows]
  return Comparison(rows, comparisons.as_text(rows))


def pairwise(function: Callable[[list[tuple[str, str]]], Sequence[float]]) -> Scorer:
  """A system for `evaluate` from a function of (question, candidate) pairs to one score each.

  Such as `CrossEncoder.predict` of sentence-transformers, or `Ranker.scores`.
  """

  def system(questions: Sequence[Question]) -> list[np.ndarray]:
    pairs = [(q.text, c.text) for q in questions for c in q.candidates]
    scores = np.asarray(function(pairs))
    if scores.shape != (len(pairs),):
      raise InputError(
        f"{_called(function)} gave scores of shape {scores.shape} for {len(pairs)} pairs: a "
        "function of pairs gives one number each"
      )
    return np.split(scores, np.cumsum([len(q.candidates) for q in questions])[:-1])

  system.__name__ = _called(function)
  return system


def _read(
  data: Any, columns: Mapping[str, str] | str | None, drop: bool
) -> Dataset | Sequence[Question]:
  """The data of an address or a frame; other data as they are."""
  if isinstance(data, (str, os.PathLike)):
    return named.by_address(os.fspath(data), columns=columns, drop=drop)
  return named.dataset(data, columns=columns, drop=drop) if hasattr(data, "columns") else data


def _labelled(data: Dataset | Sequence[Question]) -> tuple[Question, ...]:
  """The questions that have candidates.

  Raises:
    InputError: there is none, two have one id, or a candidate has no label.

  """
  asked = data.questions if isinstance(data, Dataset) else data
  questions = tuple(question for question in asked if question.candidates)
  if not questions:
    raise InputError("there are no questions to evaluate on: check the data and its filter")
  several = "evaluate one split at a time"
  advice = several if isinstance(data, Dataset) else "give each an id of its own"
  check_ids(questions, _title(data), advice)
  for question in questions:
    if any(candidate.label == UNKNOWN for candidate in question.candidates):
      raise InputError(
        f"a candidate of question {question.id!r} has no label, without which nothing can be "
        "evaluated: add a column label with 0 or 1"
      )
  return questions


def _scores(
  system: Any, questions: Sequence[Question], data: Any
) -> tuple[list[list[np.ndarray]], dict]:
  """The float32 scores of each seed, one array a question, and what is known of the system."""
  if isinstance(system, Run):
    content = system.results
    seeds = [outcome["seed"] for outcome in content["seeds"]]
    scores_by_seed = [_ranked(system.ranker(seed), questions, data) for seed in seeds]
    if isinstance(data, Dataset):
      note(system, data, seeds)
    return scores_by_seed, _description(system, content)
  if isinstance(system, Ranker):
    fixed = isinstance(system, ParameterFreeRanker)
    return [_ranked(system, questions, data)], {"name": system.name, "deterministic": fixed}
  if isinstance(system, (str, os.PathLike)):
    path = os.fspath(system)
    return [run_files.scores(path, questions, trec_files.read_run(path))], {"name": path}
  if not callable(system):
    raise InputError(
      f"{type(system).__name__} is no system: give a Ranker, a Run, a run file or a function"
    )
  outputs = system(questions)
  if not hasattr(outputs, "__iter__"):
    raise InputError(f"{_called(system)} gave {outputs!r:.40}: give one array of scores a question")
  outputs = list(outputs)
  if len(outputs) != len(questions):
    raise InputError(f"{_called(system)} gave {len(outputs)} arrays for {len(questions)} questions")
  scores = []
  for question, values in zip(questions, outputs, strict=True):
    try:
      with np.errstate(over="ignore"):  # beyond float32 means infinite, which is refused
        values = np.asarray(values).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
      raise InputError(
        f"{_called(system)}: the scores of question {question.id!r} are no numbers ({error})"
      ) from error
    if values.shape != (len(question.candidates),):
      raise InputError(
        f"{_called(system)}: question {question.id!r} has {len(question.candidates)} candidates, but "
        f"scores of shape {values.shape}: give one a candidate"
      )
    scores.append(values)
  return [scores], {"name": _called(system)}


def _ranked(ranker: Ranker, questions: Sequence[Question], data: Any) -> list[np.ndarray]:
  """The scores of each question; a ranker by words has them from its whole split, as in a run."""
  ranker.require_ranking()
  if not isinstance(ranker, ParameterFreeRanker) or not isinstance(data, Dataset):
    return next(iter(ranker.all_scores(questions).values()))
  kept: list[np.ndarray] = []
  for split in data.reported:
    every = data.splits[split]
    scores = next(iter(ranker.all_scores(every).values()))
    kept += [its for q, its in zip(every, scores, strict=True) if q.candidates and data.keeps(q)]
  return kept


def _description(run: Run, content: dict) -> dict[str, Any]:
  seeds = results.before_training(content)
  all_of_them = len(seeds) == len(content["seeds"])
  which = "" if all_of_them or not seeds else f" (seed {', '.join(map(str, seeds))})"
  return {
    "name": str(run.folder),
    "deterministic": bool(content.get("deterministic")),
    "note": results.BEFORE_TRAINING + which if seeds else "",
    "origins": tuple(one["sha256"] for one in content.get("warm_start", {}).get("seeds", ())),
  }


def _called(function: Any) -> str:
  return getattr(function, "__name__", type(function).__name__)


def _title(data: Any) -> str:
  if not isinstance(data, Dataset):
    return "questions"
  counted = "all" if data.filter == "official" and not data.official else data.filter
  return f"{data.name}-{counted}/{data.split or '+'.join(data.splits)}"


def _summary(values: np.ndarray, ties: metrics.TieRange) -> dict[str, float | int | None]:
  mean, sd = significance.mean_sd(values.mean(1))
  return {
    "mean": mean,
    "sd": sd,
    "half_width": significance.half_width(values),
    "seeds": len(values),
    "questions": values.shape[1],
    "worst": ties.worst,
    "best": ties.best,
    "tied_questions": ties.questions,
  }


def _average_recall(
  by_seed: Sequence[Sequence[np.ndarray]], labels: Sequence[np.ndarray], data: Any
) -> dict[str, dict]:
  """The entry `avgrec` of data whose official questions are measured by it; else none."""
  if not isinstance(data, Dataset) or not data.average_recall:
    return {}
  if data.filter not in ("official", data.official):
    return {}
  every = np.ones(len(labels), bool)
  recalls = [metrics.average_recall(its, labels, mask=every) for its in by_seed]
  mean, sd = significance.mean_sd(np.asarray(recalls))
  entry = {"mean": mean, "sd": sd, "half_width": None}
  return {"avgrec": entry | {"seeds": len(recalls), "questions": len(labels)}}
