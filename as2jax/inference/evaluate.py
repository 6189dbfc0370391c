"""`as2jax.evaluate` measures anything that ranks; `as2jax.compare` compares what was measured."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import retrieval, trec_files
from as2jax.data.dataset import Dataset, check_ids
from as2jax.data.record import Question, fingerprint
from as2jax.evaluation import compare as comparisons
from as2jax.evaluation import metrics, predict, results, run_scores, significance
from as2jax.evaluation.metrics import columns_of, tied_text
from as2jax.evaluation.run_scores import RunScores
from as2jax.inference import open as opening
from as2jax.inference.ranker import ParameterFreeRanker, Ranker
from as2jax.inference.reevaluate import note, require_labels
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.shown import Shown

if TYPE_CHECKING:
  import pandas

# From questions to one array of scores each, one a candidate in the order given; higher is better.
Scorer = Callable[[Sequence[Question]], Sequence[Sequence[float]]]
System = Ranker | Run | str | os.PathLike | Scorer
LARGEST = 4_000_000  # pairs of a question and an answer of a pool


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(Shown, RunScores):
  """Hold one system's values on the questions of a data set.

  Attributes:
    metrics: {metric: {mean, sd, half_width, seeds, questions, worst, best, tied_questions}}: the mean
      over seeds and questions, the standard deviation over seeds (None of one seed), the 95 %
      half-width over questions, and how far the order of tied candidates could move the first seed's
      mean, in how many questions. Of data that report it `avgrec`, a ratio of sums over questions:
      its half_width is None, and nothing is said of ties.
    ties: how ties were resolved.

  """

  metrics: dict[str, dict[str, float | int | None]] = dataclasses.field(default_factory=dict)
  ties: str = "expected"

  def about(self) -> dict[str, Any]:
    """Return what was measured on what, and every metric."""
    groups = significance.Groups.of(self.groups, len(self.ids)).count
    counted = significance.count_text(len(self.ids), groups)
    shown = {"Evaluation": f"{self.name} on {self.data}: {counted}; {self.note}".removesuffix("; ")}
    for metric, entry in self.metrics.items():
      shown[metric] = f"{entry['mean']:.4f}"
      if entry["half_width"] is not None:
        shown[metric] += f" ± {entry['half_width']:.4f}"
      if entry["sd"] is not None:
        shown[metric] += f" (s.d. {entry['sd']:.4f} of {entry['seeds']} seeds)"
      if said := tied_text(self.tied.get(metric), len(self.ids)):
        shown[metric] += f"; {said}"
    return shown


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Compare several systems with the first one; shown, it is a table.

  Attributes:
    rows: one a metric and system: mean, and (but for the first's) `difference`, `p_t` and
      `p_randomization` of these models, `p_methods`, `methods_half_width` and `methods_detectable`
      of these methods, or in `methods_note` why these cannot be told.

  """

  rows: list[dict[str, Any]]

  def __repr__(self) -> str:
    return comparisons.as_text(self.rows)

  def _repr_html_(self) -> str:
    return comparisons.as_html(self.rows)

  def to_latex(self) -> str:
    """Return the table of a paper, as `as2jax compare --format=latex` prints it."""
    return comparisons.for_paper(self.rows, "latex")


def evaluate(
  system: System,
  data: "Dataset | Sequence[Question] | str | os.PathLike | pandas.DataFrame | None" = None,
  *,
  qrels: str | os.PathLike = "",
  measures: str | Sequence[str] = run_scores.MEASURES,
  ties: str = "expected",
  name: str = "",
  deterministic: bool | None = None,
  columns: Mapping[str, str] | str | None = None,
  drop: bool = False,
  allow_code: bool = False,
  label: str | int | None = None,
) -> Evaluation:
  """Measure a system on labelled questions, or run files by judgements.

  Args:
    system: a `Ranker`; a `Run`, all of whose seeds are measured; the folder of a run; a published model,
      as `as2jax.load` takes it; a TREC run file; or a function from questions to one array of scores
      each (`pairwise` adapts a function of pairs).
    data: from `as2jax.dataset`, whose `filter` says which questions count (never one without
      candidates); a name such as `wikiqa:test`, a file, a pandas frame, or questions.
    qrels: in place of data, what is right in a run file, or in those of a system's seeds
      (`a=a-*.run`): a file or folder of TREC or BEIR, or `irds:` and an id of ir_datasets.
    measures: by `qrels`, such as `nDCG@10,R@100`; every judged question counts.
    ties: `expected`, `trec` or `pessimistic`.
    name: what the system is called; by default its folder, file or model.
    deterministic: whether another seed would give the same scores. A run says so itself; of anything
      else it is unknown where None, so that one of them tells no methods apart.
    columns, drop: of a file or frame; see `as2jax.dataset`.
    allow_code: of a folder, label: of a published model; see `as2jax.load`.

  The ledger of a run (`evaluations.jsonl` in its folder) has a row more for each split of a data set.

  """
  if (data is None) != bool(qrels):
    raise InputError("give labelled questions as data, or qrels for what run files rank, not both")
  if measures != run_scores.MEASURES and not qrels:
    raise InputError(f"measures = {measures!r}: they are for qrels; of data all metrics are given")
  if qrels and (columns or drop or label is not None):
    raise InputError("columns, drop and label are for labelled questions as data, not for qrels")
  said = {"name": name} if name else {}
  said |= {} if deterministic is None else {"deterministic": deterministic}
  if qrels:
    if not isinstance(system, (str, os.PathLike)):
      raise InputError(
        "qrels are for run files: to measure a ranker, give labelled questions as data"
      )
    asked = _names(measures)
    (one,) = run_scores.by_judgements([os.fspath(system)], os.fspath(qrels), asked, ties=ties)
    return Evaluation(**{**vars(one), **said}, metrics=_entries(one.values, None), ties=ties)
  if isinstance(data, (str, os.PathLike)):
    data = datasets.by_address(os.fspath(data), columns=columns, drop=drop)
  elif hasattr(data, "columns"):
    data = datasets.dataset(data, columns=columns, drop=drop)
  elif columns or drop:
    raise InputError("columns and drop are for a file or a frame, which data is not")
  questions = labelled(data)
  by_seed, description = scores_of(system, questions, data, allow_code, label)
  names, ids, labels = columns_of(questions)
  tables = [metrics.per_question(one, labels, ids, ties=ties, names=names) for one in by_seed]
  groups = metrics.with_groups({}, questions).get("group")
  first = [metrics.of_first(one, questions) for one in by_seed]
  every = np.ones(len(names), bool)
  ranges = metrics.ranges_of(*metrics.tie_extremes(by_seed[0], labels, names=names), every)
  values = {name: np.stack([table[name] for table in tables]) for name in tables[0]}
  entries = _entries(values, groups)
  for metric, entry in entries.items():
    entry |= dict(zip(("worst", "best", "tied_questions"), ranges[metric]))
  if (
    isinstance(data, Dataset) and data.average_recall and data.filter in ("official", data.official)
  ):
    recalls = [metrics.average_recall(scores, labels, mask=every) for scores in by_seed]
    mean, sd = significance.mean_sd(np.asarray(recalls))
    counts = {"seeds": len(tables), "questions": len(names)}
    entries["avgrec"] = {"mean": mean, "sd": sd, "half_width": None, **counts}
  return Evaluation(
    **description | said,
    data=_title(data),
    ids=tuple(names),
    values=values,
    metrics=entries,
    groups=groups,
    first_right=first[0].get("first_right"),
    top_first=np.stack([one["top_first"] for one in first]) if first[0] else None,
    tied={metric: ranges[metric][2] for metric in values},
    fingerprint=fingerprint(questions),
    ties=ties,
  )


def _entries(values: Mapping[str, np.ndarray], groups: np.ndarray | None) -> dict[str, dict]:
  """Return {metric: what is said of its [seeds, questions] values}."""
  entries: dict[str, dict] = {}
  for metric, of_metric in values.items():
    mean, sd = significance.mean_sd(of_metric.mean(1))
    entries[metric] = {
      "mean": mean,
      "sd": sd,
      "half_width": significance.half_width(of_metric, groups),
      "seeds": len(of_metric),
      "questions": of_metric.shape[1],
    }
  return entries


def _names(metrics: str | Sequence[str]) -> list[str]:
  if isinstance(metrics, str):
    metrics = metrics.split(",")
  return [name.strip() for name in metrics]


def compare(
  *systems: Evaluation | str | os.PathLike, metrics: str | Sequence[str] = (), split: str = "test"
) -> Comparison:
  """Compare systems that answered the same questions with the first of them.

  >>> compare("BM25=runs/bm25", "ours=runs/x")  # doctest: +SKIP

  Args:
    systems: two or more, of the same questions and policy for ties: what `evaluate` gave; or the folders
      of finished runs, beside which tables and run files may stand, `NAME=` before one names its rows.
    metrics: names, or a text of names joined by commas; MAP and MRR where not given, or all measures
      of run files.
    split: of folders.

  """
  places = [os.fspath(one) for one in systems if isinstance(one, (str, os.PathLike))]
  evaluations: Sequence[Any] = [one for one in systems if isinstance(one, Evaluation)]
  if len(systems) < 2 or len(systems) not in (len(places), len(evaluations)):
    raise InputError(
      "compare takes two or more systems: the folders of finished runs, or the evaluations that "
      "as2jax.evaluate gives, not some of each"
    )
  if places:
    evaluations = comparisons.read(places, split=split)
  base = evaluations[0]
  for one in () if places else evaluations:  # what is read was checked then
    if (one.fingerprint, one.ties) != (base.fingerprint, base.ties):
      raise InputError(
        f"{one.name} was measured on {one.data} with ties={one.ties}, {base.name} on {base.data} with "
        f"ties={base.ties}: compare systems on the same questions and labels"
      )
  asked = _names(metrics or [name for name in ("map", "mrr") if name in base.values] or base.values)
  return Comparison(comparisons.compare(evaluations, asked))


def pairwise(function: Callable[[list[tuple[str, str]]], Sequence[float]]) -> Scorer:
  """Return a system for `evaluate` from a function of (question, candidate) pairs to scores.

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


def labelled(data: Dataset | Sequence[Question]) -> tuple[Question, ...]:
  """Return the questions that have candidates; of pairs, each has the answers of all.

  InputError: an id or a label is wrong, or there are too many pairs for that.
  """
  asked, advice = data, "give each an id of its own"
  if isinstance(data, Dataset):
    asked, advice = data.questions, "evaluate one split at a time"
  if not isinstance(asked, Sequence) or not all(isinstance(one, Question) for one in asked):
    raise InputError(
      f"data = {data!r:.100}: give a data set, its name, a file, a pandas frame or a list of questions"
    )
  questions = tuple(question for question in asked if question.candidates)
  if not questions:
    raise InputError("there are no questions to evaluate on: check the data and its filter")
  check_ids(questions, _title(data), advice)
  require_labels(questions)
  if not (isinstance(data, Dataset) and retrieval.of_pairs(data)):
    return questions
  pool = retrieval.pool_of(questions, merge=True)
  size = len(pool.queries) * len(pool.passages)
  if size > LARGEST:
    raise InputError(
      f"{_title(data)}: each question would rank the answers of all, which are {size} pairs; evaluate a "
      "run of a bi-encoder, which searches them, or give fewer pairs"
    )
  return retrieval.with_candidates(pool, [range(len(pool.passages))] * len(pool.queries))


def scores_of(
  system: System,
  questions: Sequence[Question],
  data: Any,
  allow_code: bool = False,
  label: str | int | None = None,
) -> tuple[list[list[np.ndarray]], dict[str, Any]]:
  """Return the float32 scores of each seed, one array a question, and what is known of the system."""
  name = os.path.expanduser(system) if isinstance(system, (str, os.PathLike)) else ""
  is_file = bool(name) and epath.Path(name).is_file()
  if label is not None and (is_file or not name):
    raise InputError(
      f"label = {label!r}: only a published classifier has classes, and it is given by its name"
    )
  if name:
    if is_file:  # a run file may hold infinities, as for `compare`
      return [run_scores.scores_of(name, questions, trec_files.read_run(name))], {"name": name}
    if opening.is_run(name) and label is None:
      system = Run(name, allow_code=allow_code)
    else:  # which refuses a run with a label
      system = opening.load(name, allow_code=allow_code, label=label)
  if isinstance(system, Run):
    content = system.results
    seeds = [outcome["seed"] for outcome in content["seeds"]]
    by_seed = [_ranked(system.ranker(seed), questions, data) for seed in seeds]
    if isinstance(data, Dataset):
      note(system, data, seeds)
    description = {
      "name": str(system.folder),
      "deterministic": bool(content.get("deterministic")),
      "note": results.best_before_training(content),
      "origins": tuple(one["sha256"] for one in content.get("warm_start", {}).get("seeds", ())),
    }
  elif isinstance(system, Ranker):
    by_seed = [_ranked(system, questions, data)]
    fixed = isinstance(system, ParameterFreeRanker)
    description = {"name": system.name, "deterministic": fixed}
  elif callable(system):
    by_seed, description = [_by_function(system, questions)], {"name": _called(system)}
  else:
    raise InputError(
      f"{type(system).__name__} is no system: give a Ranker, a Run, a run file or a function"
    )
  for scores in by_seed:
    predict.check_finite(scores, questions, description["name"])
  return by_seed, description


def _by_function(system: Scorer, questions: Sequence[Question]) -> list[np.ndarray]:
  name, outputs, scores = _called(system), system(questions), []
  try:
    for question, values in zip(questions, list(outputs), strict=True):
      values = trec_files.float32(values)  # infinite is refused
      if values.shape != (len(question.candidates),):
        raise ValueError(
          f"of question {question.id!r} with {len(question.candidates)} candidates, shape {values.shape}"
        )
      scores.append(values)
  except (TypeError, ValueError, OverflowError) as error:
    raise InputError(
      f"{name} gives no scores of the questions ({error}): give one array of numbers a question, one "
      "number a candidate"
    ) from error
  return scores


def _ranked(ranker: Ranker, questions: Sequence[Question], data: Any) -> list[np.ndarray]:
  """Return the scores of each question; a ranker by words reads its whole split, as in a run."""
  ranker.require_ranking()
  in_splits = isinstance(data, Dataset) and not retrieval.of_pairs(data)
  if not isinstance(ranker, ParameterFreeRanker) or not in_splits:
    return next(iter(ranker.all_scores(questions).values()))
  counted = []
  for split in data.reported:
    every = data.splits[split]
    scores = next(iter(ranker.all_scores(every).values()))
    for question, values in zip(every, scores, strict=True):
      if question.candidates and data.keeps(question):
        counted.append(values)
  return counted


def _called(function: Any) -> str:
  return getattr(function, "__name__", type(function).__name__)


def _title(data: Any) -> str:
  if not isinstance(data, Dataset):
    return "questions"
  counted = "all" if data.filter == "official" and not data.official else data.filter
  return f"{data.name}-{counted}/{data.split or '+'.join(data.splits)}"
