"""Read what is compared: per-question scores of finished runs, of tables, of run files."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import trec_files
from as2jax.data.record import Candidate, Question
from as2jax.encoders import pretraining
from as2jax.evaluation import metrics, run_files
from as2jax.evaluation.run_files import ANY
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object

POOL = ("gold", "any", "often")  # of runs over a pool; `often`: the answer is asked for often
QUESTION_FILTERS = ("clean", "official", *metrics.RULES, *POOL)
# The metric and the question filter that results of each task have.
KEYS = {"rerank": ("map", "clean"), "retrieve": ("mrr", "gold")}
CONTENTS = ("evaluation.json", "results.json")  # the one that was written last first
COUNTS = ("candidates", "positives", "asked")  # columns of a table that are no metrics


@dataclasses.dataclass(frozen=True)
class RunScores:
  """Hold one system's values on the questions that a question filter counts.

  Attributes:
    name: the run folder, or the table(s), as given.
    data: `wikiqa-clean/test`; of a table, which names no dataset, the question filter alone.
    ids: of the questions, sorted.
    values: {metric: [seeds, questions]}.
    deterministic: whether another seed would give the same scores (BM25, an untrained cosine).
    note: "best = before training" of a run that training did not improve, with the seeds where it
      is not all of them; else "".
    pretraining: what the run's encoder is known to have seen (`encoders/pretraining.py`).
    origins: digests of the parameters with which each seed began, of a run with a warm start.
    fingerprint: SHA-256 of the questions with their labels; "" of a table, which does not say it.

  """

  name: str
  data: str
  ids: tuple[str, ...]
  values: dict[str, np.ndarray]
  deterministic: bool = False
  note: str = ""
  pretraining: tuple[str, ...] = ()
  origins: tuple[str, ...] = ()
  fingerprint: str = ""

  @property
  def shared_stage(self) -> bool:
    """Whether several seeds began with the same parameters: they are not independent runs."""
    return len(set(self.origins)) < len(self.origins)

  def metric(self, name: str) -> np.ndarray:
    """Return the values [seeds, questions] of a metric; InputError where there are none."""
    if name not in self.values:
      raise InputError(f"{self.name}: no metric {name!r}: it has {', '.join(self.values)}")
    return self.values[name]

  def title(self, metric: str) -> str:
    """Return `map[wikiqa-clean/test]`: the metric under its question filter."""
    return f"{metric}[{self.data}]"


@dataclasses.dataclass(frozen=True)
class _Source:
  """Hold a system's tables, one a seed, with the `results.json` of a run ({} of tables alone)."""

  name: str
  files: Sequence[str]
  tables: Sequence[run_files.Table]
  content: dict[str, Any] = dataclasses.field(default_factory=dict)


def load(
  names: Sequence[str],
  *,
  split: str = "test",
  question_filter: str | None = None,
  deterministic: Sequence[str] = (),
) -> list[RunScores]:
  """Read systems that answered the same questions, in the order given.

  Args:
    names: folders of finished runs, tables of per-question scores, or TREC run files of any system,
      which are measured by the judgements of the first folder; the files of one system's seeds are
      joined by commas (a name that exists is never taken apart).
    split: of run folders.
    question_filter: one of `QUESTION_FILTERS`; None is `clean`, and `answerable` where no run folder says what
      is clean.
    deterministic: those of the names that stand for systems without randomness; what a file that is
      no run's folder came from is not known otherwise.

  Raises:
    InputError: no such run, split or table; other data, other questions or another policy for ties
      than the first system's; a question filter that leaves no question.

  """
  for name in sorted(set(deterministic) - set(names))[:1]:
    raise InputError(f"{name} is said to be deterministic, but is none of {', '.join(names)}")
  runs = {name: _run(name, split) for name in names if epath.Path(name).is_dir()}
  judge: _Source | None = None
  for source in runs.values():
    if judge is None:
      judge = source
    _check_same_data(judge, source, split)
  sources = [runs[name] if name in runs else _files(name, judge, split) for name in names]
  rule, data = _rule(question_filter, judge, split)
  first = _counts(*sources[0].tables[0], rule)
  if not first:
    raise InputError(
      f"{sources[0].name}: no question is counted ({rule}): take another question filter"
    )
  loaded = []
  for source in sources:
    content = source.content
    loaded.append(
      RunScores(
        source.name,
        data,
        tuple(sorted(first)),
        _values(source, rule, first),
        source.name in deterministic or bool(content.get("deterministic")),
        content.get("note", ""),
        tuple(pretraining.statements(content)),
        content.get("origins", ()),
        _fingerprint(judge.content, split) if judge else "",
      )
    )
  return loaded


def _rule(question_filter: str | None, judge: _Source | None, split: str) -> tuple[str, str]:
  """Return the rule of `metrics.RULES`, and how results name it."""
  if judge is None:
    rule = question_filter or "answerable"
    if rule in ("clean", "official"):
      raise InputError(
        "a table of per-question scores does not say which questions of its dataset "
        f"are {rule}: use one of {', '.join(metrics.RULES)}"
      )
    _require_filter(rule, pool=False)
    return rule, rule
  data, (_, usual) = judge.content["data"], KEYS[judge.content["task"]]
  name = question_filter or usual
  pool = usual == "gold"
  _require_filter(name, pool=pool)
  if name == "often":
    name = _often(judge, split)
  rule = name
  if not pool and name in ("clean", "official"):
    rule = data[name]
  if not rule:
    raise InputError(f"{data['name']} has no official question filter: use clean or all")
  return rule, f"{data['name']}-{name}/{split}"


def _require_filter(name: str, *, pool: bool) -> None:
  known = POOL if pool else ("clean", "official", *metrics.RULES)
  if name not in known:
    raise InputError(f"{name!r} is no question filter of these: use one of {', '.join(known)}")


def _often(judge: _Source, split: str) -> str:
  """Return `often8`, as the run's results have it."""
  for name in judge.content["metrics"]:
    if found := re.fullmatch(rf"mrr\[.*-(often\d+)/{re.escape(split)}\]", name):
      return found.group(1)
  raise InputError(
    f"{judge.name}: no answer of {split} is asked for so often that the question filter "
    "`often` has a question (evaluation.min_questions_per_answer)"
  )


def _counted(table: dict[str, np.ndarray], rule: str) -> np.ndarray:
  """Return which rows of a table a rule counts, bool."""
  if rule.startswith("often"):
    return table["asked"] >= int(rule.removeprefix("often"))
  if rule in POOL:
    return np.ones(len(table["candidates"]), bool)
  return metrics.RULES[rule](table["candidates"], table["positives"])


def _files(name: str, judge: _Source | None, split: str) -> _Source:
  """Return the tables of a system's files: as they are, or of run files by a run's judgements."""
  files = [name] if epath.Path(name).exists() else name.split(",")
  tables = []
  for file in files:
    if files.count(file) > 1:
      raise InputError(f"{name}: {file} is given twice: give each seed's file once")
    if len(files) > 1 and epath.Path(file).is_dir():
      raise InputError(
        f"{name}: {file} is a folder, which holds all seeds of its run: give each "
        "run as an argument of its own"
      )
    if not epath.Path(file).exists():
      raise InputError(
        f"{file}: there is no such file or folder: give folders of finished runs, "
        "tables of per-question scores, or TREC run files"
      )
    if run_files.is_run_file(file):
      tables.append(_measured(file, judge, split))
    else:
      tables.append(trec_files.read_per_question(file))
  return _Source(name, files, tables)


def _measured(file: str, judge: _Source | None, split: str) -> run_files.Table:
  """Return the table of a run file by the judgements of a run."""
  if judge is None:
    raise InputError(
      f"{file} is a run file, which does not say what is right: compare it with the folder of a "
      "run on the same data"
    )
  folder = epath.Path(judge.files[0]).parent
  for name in ("run.trec", "qrels.trec"):
    if not (folder / name).exists():
      raise InputError(f"{file} is a run file, which is measured by {folder / name}: it is missing")
  qrels, ties = trec_files.read_qrels(folder / "qrels.trec"), judge.content["ties"]
  if judge.content["task"] == "retrieve":
    ids, table = judge.tables[0]
    right = {"gold": qrels, "any": trec_files.read_qrels(folder / "qrels-any.trec")}
    asked = dict(zip(ids, table["asked"].tolist(), strict=True))
    return run_files.of_pool(file, right, asked, int(table["candidates"][0]), ties)
  questions = []
  for name, ranked in trec_files.read_run(folder / "run.trec").items():
    labels = qrels.get(name, {})
    candidates = tuple(Candidate(id, id, labels.get(id, 0)) for id in ranked)
    questions.append(Question(name, name, candidates))
  return run_files.of_questions(file, questions, ties)


def _run(name: str, split: str) -> _Source:
  """Return a run's tables, beside the results that they belong to."""
  from as2jax.evaluation import results  # it takes a second, which tables alone need not wait for

  contents = {}
  for file in CONTENTS:
    path = epath.Path(name) / file
    if path.exists():
      contents[file] = read_object(path, "it was changed by hand; have it made anew")
  trained = contents.get("results.json")  # an evaluation does not say how the run was trained
  if not trained:
    raise InputError(f"{name} holds no results.json: give the --workdir of a finished run")
  evaluated: dict[str, None] = {}
  metric = ""
  for content in contents.values():
    metric, question_filter = KEYS[content["task"]]
    for key in content["metrics"]:
      if key.startswith(f"{metric}[") and f"-{question_filter}/" in key:
        evaluated[key.rpartition("/")[2].rstrip("]")] = None
    title = f"{metric}[{content['data']['name']}-{question_filter}/{split}]"
    if title not in content["metrics"]:
      continue
    seeds = [outcome["seed"] for outcome in content["seeds"]]
    folders = [results.folder(name, split, seed, seeds) for seed in seeds]
    files = [str(folder / "per_question.tsv") for folder in folders]
    tables = [trec_files.read_per_question(file) for file in files]
    if _agree(content, tables, title):
      begun = trained.get("warm_start", {}).get("seeds", ())
      content = {
        **content,
        "deterministic": trained.get("deterministic", False),
        "note": results.best_before_training(trained),
        "origins": tuple(one["sha256"] for one in begun),
      }
      return _Source(name, files, tables, content)
  if split not in evaluated:
    raise InputError(f"{name} was not evaluated on {split}, only on {', '.join(evaluated)}")
  raise InputError(
    f"{name}: its tables under eval/{split} do not give the {metric.upper()} of its "
    "results.json: they were changed, or are those of another evaluation; evaluate "
    "it again"
  )


def _agree(content: dict[str, Any], tables: Sequence[run_files.Table], title: str) -> bool:
  """Whether the tables give the figures that the results state."""
  metric, rule = KEYS[content["task"]]
  if rule == "clean":
    rule = content["data"]["clean"]
  for outcome, (_, table) in zip(content["seeds"], tables, strict=True):
    counted = _counted(table, rule)
    if metric not in table or not counted.any():
      return False
    if abs(table[metric][counted].mean() - outcome["metrics"][title]["value"]) > 1e-9:
      return False
  return True


def _fingerprint(content: dict[str, Any], split: str) -> str:
  return "+".join(content["data"]["splits"][part]["fingerprint"] for part in split.split("+"))


def _check_same_data(first: _Source, other: _Source, split: str) -> None:
  a, b = first.content, other.content
  prints = _fingerprint(a, split), _fingerprint(b, split)
  if prints[0] != prints[1]:
    raise InputError(
      f"{other.name} was evaluated on other data than {first.name}: {split} of "
      f"{b['data']['name']} ({prints[1][:8]}), not of {a['data']['name']} ({prints[0][:8]}); compare "
      "runs of one dataset and split, or groups of runs with `vs` between them"
    )
  for key, advice in (
    ("task", "compare runs of one kind"),
    ("ties", "evaluate one of them again (--config.mode=evaluate)"),
  ):
    if a[key] != b[key]:
      raise InputError(
        f"{other.name} was evaluated with evaluation.{key}={b[key]}, {first.name} with {a[key]}: "
        f"{advice}"
      )


def _counts(
  ids: Sequence[str], table: dict[str, np.ndarray], rule: str
) -> dict[str, tuple[float, float]]:
  """Return numbers of candidates and positives of the questions that the rule counts."""
  counts = {}
  for row in np.flatnonzero(_counted(table, rule)).tolist():
    counts[ids[row]] = float(table["candidates"][row]), float(table["positives"][row])
  return counts


def _values(
  source: _Source, rule: str, first: dict[str, tuple[float, float]]
) -> dict[str, np.ndarray]:
  """Return {metric: [seeds, questions]} of a system on the questions of the first one."""
  by_seed = []
  for file, (ids, table) in zip(source.files, source.tables, strict=True):
    counts = _counts(ids, table, rule)
    for name in sorted(counts.keys() ^ first.keys())[:1]:
      raise InputError(f"{file}: question {name!r} is not in both tables: compare the same split")
    for name, (candidates, positives) in counts.items():
      if (candidates, positives) != first[name]:
        raise InputError(
          f"{file}: question {name!r} has {candidates:.0f} candidates, "
          f"{positives:.0f} of them positive, but {first[name][0]:.0f} and "
          f"{first[name][1]:.0f} in the first table: compare systems on the same data"
        )
    places = {name: row for row, name in enumerate(ids)}
    rows = [places[name] for name in sorted(first)]
    columns = {}
    for metric, values in table.items():
      over_any = metric.startswith(ANY)
      if metric not in COUNTS and (rule == "any") == over_any:
        columns[metric.removeprefix(ANY)] = values[rows]
    by_seed.append(columns)
  shared = [metric for metric in by_seed[0] if all(metric in columns for columns in by_seed)]
  return {metric: np.stack([columns[metric] for columns in by_seed]) for metric in shared}
