"""What is compared: the per-question scores of finished runs, of tables of such scores, of run files."""

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
KEYS = {
  "rerank": ("map", "clean"),
  "retrieve": ("mrr", "gold"),
}  # metric, question_filter that results have
CONTENTS = ("evaluation.json", "results.json")  # the one that was written last first


@dataclasses.dataclass(frozen=True)
class RunScores:
  """One system on the questions that a question filter counts.

  Attributes:
    name: the run folder, or the table(s), as given.
    data: `wikiqa-clean/test`; of a table, which names no dataset, the question filter alone.
    ids: of the questions, sorted.
    values: {metric: [seeds, questions]}.
    deterministic: whether another seed would give the same scores (BM25, an untrained cosine).
    pretraining: what the run's encoder is known to have seen (`encoders/pretraining.py`).
    origins: digests of the parameters with which each seed began, of a run with a warm start.
    fingerprint: SHA-256 of the questions with their labels; "" of a table, which does not say it.
    note: "best = before training" of a run that training did not improve, with the seeds where it
      is not all of them; else "".

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
    """The values [seeds, questions] of a metric; InputError where there are none."""
    if name not in self.values:
      raise InputError(f"{self.name}: no metric {name!r}: it has {', '.join(self.values)}")
    return self.values[name]

  def title(self, metric: str) -> str:
    """`map[wikiqa-clean/test]`: the metric under its question filter."""
    return f"{metric}[{self.data}]"


@dataclasses.dataclass(frozen=True)
class _Place:
  """Where a system's tables lie, with the `results.json` of a run (None for tables alone)."""

  name: str
  files: tuple[str, ...]
  tables: tuple[tuple[list[str], dict[str, np.ndarray]], ...]
  content: dict[str, Any] | None

  @property
  def of_run(self) -> dict[str, Any]:
    """The results of what is known to be a run."""
    assert self.content is not None, f"{self.name} is a table"
    return self.content


def load(
  names: Sequence[str],
  *,
  split: str = "test",
  question_filter: str | None = None,
  deterministic: Sequence[str] = (),
) -> list[RunScores]:
  """Reads systems that answered the same questions, in the order given.

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
  judge = next(iter(runs.values()), None)
  places = [runs[name] if name in runs else _place(name, judge, split) for name in names]
  known = [place for place in places if place.content is not None]
  for place in known[1:]:
    _check_same_data(known[0], place, split)
  rule, data = _rule(question_filter, known, split)
  print_of_data = _fingerprint(known[0].of_run, split) if known else ""
  compared_runs = [
    _system(place, rule, data, place.name in deterministic, print_of_data) for place in places
  ]
  first = _counts(places[0], rule)
  for place in places:
    for path, (ids, table) in zip(place.files, place.tables, strict=True):
      _check_same_questions(path, _counts_of(ids, table, rule), first)
  return compared_runs


def _rule(question_filter: str | None, known: Sequence[_Place], split: str) -> tuple[str, str]:
  """The rule of `metrics.RULES`, and how results name it."""
  pool = bool(known) and _kind(known[0].of_run) == "retrieve"
  if question_filter is None:
    question_filter = ("gold" if pool else "clean") if known else "answerable"
  of_kind = POOL if pool else tuple(x for x in QUESTION_FILTERS if x not in POOL)
  if question_filter not in of_kind:
    raise InputError(
      f"{question_filter!r} is no question filter of these: use one of {', '.join(of_kind)}"
    )
  if not known:
    if question_filter in ("clean", "official"):
      raise InputError(
        "a table of per-question scores does not say which questions of its dataset "
        f"are {question_filter}: use one of {', '.join(metrics.RULES)}"
      )
    return question_filter, question_filter
  data = known[0].of_run["data"]
  if _kind(known[0].of_run) == "retrieve":
    if question_filter == "often":
      question_filter = _often(known[0], split)
    return question_filter, f"{data['name']}-{question_filter}/{split}"
  rule = data[question_filter] if question_filter in ("clean", "official") else question_filter
  if not rule:
    raise InputError(f"{data['name']} has no official question filter: use clean or all")
  return rule, f"{data['name']}-{question_filter}/{split}"


def _kind(content: dict[str, Any]) -> str:
  return content["task"]


def _often(place: _Place, split: str) -> str:
  """`often8`, as the run's results have it."""
  filters = [
    m.group(1)
    for name in place.of_run["metrics"]
    if (m := re.fullmatch(rf"mrr\[.*-(often\d+)/{re.escape(split)}\]", name))
  ]
  if not filters:
    raise InputError(
      f"{place.name}: no answer of {split} is asked for so often that the question filter "
      "`often` has a question (evaluation.min_questions_per_answer)"
    )
  return filters[0]


def _counted(table: dict[str, np.ndarray], rule: str) -> np.ndarray:
  """Which rows of a table a rule counts, bool."""
  if rule.startswith("often"):
    return table["asked"] >= int(rule.removeprefix("often"))
  if rule in POOL:
    return np.ones(len(table["candidates"]), bool)
  return metrics.RULES[rule](table["candidates"], table["positives"])


def _place(name: str, judge: _Place | None, split: str) -> _Place:
  files = (name,) if epath.Path(name).exists() else tuple(name.split(","))
  for file in sorted(file for file in set(files) if files.count(file) > 1)[:1]:
    raise InputError(f"{name}: {file} is given twice: give each seed's file once")
  for file in files:
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
  return _Place(name, files, tuple(_file_table(file, judge, split) for file in files), None)


def _file_table(file: str, judge: _Place | None, split: str) -> run_files.Table:
  """A table as it is, or that of a run file by the judgements of a run."""
  if not run_files.is_run_file(file):
    return trec_files.read_per_question(file)
  if judge is None:
    raise InputError(
      f"{file} is a run file, which does not say what is right: compare it with the folder of a "
      "run on the same data"
    )
  folder = epath.Path(judge.files[0]).parent
  for name in ("run.trec", "qrels.trec"):
    if not (folder / name).exists():
      raise InputError(f"{file} is a run file, which is measured by {folder / name}: it is missing")
  qrels, ties = trec_files.read_qrels(folder / "qrels.trec"), judge.of_run["ties"]
  if _kind(judge.of_run) == "rerank":
    questions = [
      Question(name, name, tuple(Candidate(i, i, qrels.get(name, {}).get(i, 0)) for i in ranked))
      for name, ranked in trec_files.read_run(folder / "run.trec").items()
    ]
    return run_files.of_questions(file, questions, ties)
  ids, table = judge.tables[0]
  right = {"gold": qrels, "any": trec_files.read_qrels(folder / "qrels-any.trec")}
  asked = dict(zip(ids, table["asked"].tolist(), strict=True))
  return run_files.of_pool(file, right, asked, int(table["candidates"][0]), ties)


def _run(name: str, split: str) -> _Place:
  """A run's tables, beside the results that they belong to."""
  from as2jax.evaluation import results  # it takes a second, which tables alone need not wait for

  contents = {file: loaded for file in CONTENTS if (loaded := _read(epath.Path(name) / file))}
  if "results.json" not in contents:
    raise InputError(f"{name} holds no results.json: give the --workdir of a finished run")
  evaluated: dict[str, None] = {}
  for content in contents.values():
    metric, question_filter = KEYS[_kind(content)]
    mine = [
      key
      for key in content["metrics"]
      if key.startswith(f"{metric}[") and f"-{question_filter}/" in key
    ]
    evaluated |= dict.fromkeys(key.rpartition("/")[2].rstrip("]") for key in mine)
    title = f"{metric}[{content['data']['name']}-{question_filter}/{split}]"
    if title not in content["metrics"]:
      continue
    seeds = [outcome["seed"] for outcome in content["seeds"]]
    files = tuple(
      str(results.folder(name, split, seed, seeds) / "per_question.tsv") for seed in seeds
    )
    trained = contents["results.json"]  # an evaluation does not say how the run was trained
    content = content | {"deterministic": trained.get("deterministic", False)}
    content["note"] = results.best_before_training(trained)
    begun = trained.get("warm_start", {}).get("seeds", ())
    content["origins"] = tuple(one["sha256"] for one in begun)
    place = _Place(name, files, tuple(map(trec_files.read_per_question, files)), content)
    if _agrees(place, title):
      return place
  if split not in evaluated:
    raise InputError(f"{name} was not evaluated on {split}, only on {', '.join(evaluated)}")
  raise InputError(
    f"{name}: its tables under eval/{split} do not give the {metric.upper()} of its "
    "results.json: they were changed, or are those of another evaluation; evaluate "
    "it again"
  )


def _agrees(place: _Place, title: str) -> bool:
  """Whether the tables give the figures that the results state."""
  metric, rule = KEYS[_kind(place.of_run)]
  if rule == "clean":
    rule = place.of_run["data"]["clean"]
  for outcome, (_, table) in zip(place.of_run["seeds"], place.tables, strict=True):
    counted = _counted(table, rule)
    if metric not in table or not counted.any():
      return False
    if abs(table[metric][counted].mean() - outcome["metrics"][title]["value"]) > 1e-9:
      return False
  return True


def _read(path: epath.Path) -> dict[str, Any] | None:
  if not path.exists():
    return None
  return read_object(path, "it was changed by hand; have it made anew")


def _fingerprint(content: dict[str, Any], split: str) -> str:
  return "+".join(content["data"]["splits"][part]["fingerprint"] for part in split.split("+"))


def _check_same_data(first: _Place, other: _Place, split: str) -> None:
  a, b = (_fingerprint(place.of_run, split) for place in (first, other))
  if a != b:
    name = lambda place: place.of_run["data"]["name"]
    raise InputError(
      f"{other.name} was evaluated on other data than {first.name}: {split} of "
      f"{name(other)} ({b[:8]}), not of {name(first)} ({a[:8]}); compare runs of "
      "one dataset and split, or groups of runs with `vs` between them"
    )
  a, b = (_kind(place.of_run) for place in (first, other))
  if a != b:
    raise InputError(
      f"{other.name} was evaluated with evaluation.task={b}, {first.name} with {a}: "
      "compare runs of one kind"
    )
  a, b = (place.of_run["ties"] for place in (first, other))
  if a != b:
    raise InputError(
      f"{other.name} was evaluated with evaluation.ties={b}, {first.name} with {a}: "
      "evaluate one of them again (--config.mode=evaluate)"
    )


def _counts(place: _Place, rule: str) -> dict[str, tuple[float, float]]:
  counts = _counts_of(*place.tables[0], rule)
  if not counts:
    raise InputError(f"{place.name}: no question is counted ({rule}): take another question filter")
  return counts


def _counts_of(ids, table, rule) -> dict[str, tuple[float, float]]:
  """Numbers of candidates and positives of the questions that the rule counts."""
  counted = _counted(table, rule)
  pairs = zip(table["candidates"].tolist(), table["positives"].tolist(), strict=True)
  return {name: pair for name, pair, keep in zip(ids, pairs, counted, strict=True) if keep}


def _check_same_questions(path: str, counts: dict, first: dict) -> None:
  for name in sorted(counts.keys() ^ first.keys())[:1]:
    raise InputError(f"{path}: question {name!r} is not in both tables: compare the same split")
  for name, (candidates, positives) in counts.items():
    if (candidates, positives) != first[name]:
      raise InputError(
        f"{path}: question {name!r} has {candidates:.0f} candidates, "
        f"{positives:.0f} of them positive, but {first[name][0]:.0f} and "
        f"{first[name][1]:.0f} in the first table: compare systems on the same data"
      )


def _system(
  place: _Place, rule: str, data: str, deterministic: bool, fingerprint: str
) -> RunScores:
  ids = tuple(sorted(_counts(place, rule)))
  seeds = []
  for path, (names, table) in zip(place.files, place.tables, strict=True):
    at = {name: i for i, name in enumerate(names)}
    for name in sorted(set(ids) - set(at))[:1]:
      raise InputError(f"{path}: question {name!r} is not in both tables: compare the same split")
    rows = np.array([at[name] for name in ids])
    columns = {
      metric: values
      for metric, values in table.items()
      if metric not in ("candidates", "positives", "asked")
    }
    if rule == "any":
      columns = {
        metric.removeprefix(ANY): values
        for metric, values in columns.items()
        if metric.startswith(ANY)
      }
    elif rule == "gold" or rule.startswith("often"):
      columns = {metric: values for metric, values in columns.items() if not metric.startswith(ANY)}
    seeds.append({metric: values[rows] for metric, values in columns.items()})
  shared = [metric for metric in seeds[0] if all(metric in seed for seed in seeds)]
  values = {metric: np.stack([seed[metric] for seed in seeds]) for metric in shared}
  content = place.content or {}
  return RunScores(
    place.name,
    data,
    ids,
    values,
    deterministic or bool(content.get("deterministic")),
    content.get("note", ""),
    tuple(pretraining.statements(content)),
    content.get("origins", ()),
    fingerprint,
  )
