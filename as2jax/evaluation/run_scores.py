"""Read what is compared: per-question scores of finished runs, of tables, of TREC run files.

A run file is measured by the judgements of a run, or by judgements alone (`by_judgements`). A re-ranking
must score every candidate. A retrieval from a pool lists what it found: a question whose right passages
are not listed has the value 0, so that a short list can only lower a metric.
"""

import dataclasses
import functools
import glob
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import trec_files
from as2jax.data.lines import BYTE_ORDER_MARK, opened
from as2jax.data.record import Candidate, Question
from as2jax.encoders import pretraining
from as2jax.evaluation import metrics, retrieval_metrics, significance
from as2jax.evaluation.retrieval_metrics import ANY, Standing
from as2jax.runtime import bound
from as2jax.runtime.errors import InputError

# Of runs over a pool the last three; `often`: the answer is asked for often.
QUESTION_FILTERS = ("clean", "official", *metrics.RULES, "gold", "any", "often")
MEASURES = ("nDCG@10", "AP")  # of judgements, where none is named
STRATA = {"first_right": 1, "first_wrong": 0}  # by the label of a document's first candidate
# Columns of a table that are no metrics.
COUNTS = ("candidates", "positives", "asked", "group", "first_right", "top_first", "tied")
Table = tuple[list[str], dict[str, np.ndarray]]  # as `trec_files.read_per_question` gives it
# A run's results, {} of files; a table a seed, by file.
Source = tuple[dict[str, Any], dict[str, Table]]
Run = Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class RunScores:
  """Hold one system's values on the questions that a question filter counts.

  Attributes:
    groups: the number of each question's group of dependent questions; None where all are alone.
    first_right: whether each question's first candidate is right; None where that is not known.
    top_first: [seeds, questions], how probably the first candidate is ranked first; None likewise.
    data: `wikiqa-clean/test`; of a table, which names no dataset, the question filter alone.
    tied: in how many questions a metric hangs on the order of tied candidates, at most over seeds, by metric.
    deterministic: whether another seed would give the same scores (BM25, an untrained cosine).
    pretraining: what the run's encoder is known to have seen (`encoders/pretraining.py`).
    origins: digests of the parameters with which each seed began, of a run with a warm start.

  """

  name: str  # the run folder, or the table(s), as given
  data: str
  ids: tuple[str, ...]  # of the questions, sorted
  values: dict[str, np.ndarray]  # by metric, [seeds, questions]
  deterministic: bool = False
  note: str = ""  # `results.best_before_training` of a run
  pretraining: tuple[str, ...] = ()
  origins: tuple[str, ...] = ()
  groups: np.ndarray | None = None
  first_right: np.ndarray | None = None
  top_first: np.ndarray | None = None
  tied: Mapping[str, int] = dataclasses.field(default_factory=dict)
  fingerprint: str = ""  # SHA-256 of the questions with their labels; "" of a table

  @property
  def shared_stage(self) -> bool:
    """Whether several seeds began with the same parameters: they are not independent runs."""
    return len(set(self.origins)) < len(self.origins)

  def metric(self, name: str) -> np.ndarray:
    """Return the values [seeds, questions] of a metric; InputError where there are none."""
    if name not in self.values:
      raise InputError(f"{self.name}: no metric {name!r}: it has {', '.join(self.values)}")
    return self.values[name]

  def strata(self, metric: str) -> dict[str, tuple[float, float | None, int]]:
    """Return {stratum: mean, half-width, questions} of a metric by the label of the first candidate.

    A diagnostic, always of both strata: a prior on order raises one and lowers the other. {} where the label
    is not known, or is the same of all questions.
    """
    found: dict[str, tuple[float, float | None, int]] = {}
    if self.first_right is None or len(set(self.first_right)) < len(STRATA):
      return found
    for name, label in STRATA.items():
      chosen = self.first_right == label
      values = self.metric(metric)[:, chosen]
      groups = None if self.groups is None else self.groups[chosen]
      found[name] = float(values.mean()), significance.half_width(values, groups), int(chosen.sum())
    return found

  def title(self, metric: str) -> str:
    """Return `map[wikiqa-clean/test]`: the metric under its question filter."""
    return f"{metric}[{self.data}]"


def load(
  names: Sequence[str],
  *,
  split: str = "test",
  question_filter: str | None = None,
  deterministic: Sequence[str] = (),
  seeds: Collection[int] = (),
) -> list[RunScores]:
  """Read systems that answered the same questions, in the order given.

  Args:
    names: folders of finished runs, tables of per-question scores, or TREC run files of any system,
      which are measured by the judgements of the first folder; the files of one system's seeds are
      joined by commas (a name that exists is never taken apart).
    split: of run folders; `dev+test` joins both where they were not evaluated as one.
    question_filter: one of `QUESTION_FILTERS`; None is `clean`, of files alone `answerable`.
    deterministic: those of the names, or their places, that stand for systems without randomness.
    seeds: of run folders, which have them; all where none is given.

  """
  fixed = _fixed(names, deterministic)
  folders = [name for name in names if epath.Path(name).is_dir()]
  if folders and "+" in split and not any(_evaluated(name, split) for name in folders):
    alike = functools.partial(
      load, names, question_filter=question_filter, deterministic=deterministic, seeds=seeds
    )
    parts = [alike(split=part) for part in split.split("+")]
    return [_joined(of_system, split) for of_system in zip(*parts, strict=True)]
  sources = {name: _run(name, split, seeds) for name in folders}
  judge = next(iter(sources.values()), None)
  first, facts = next(iter(sources), ""), {}
  for name, (content, _) in sources.items():
    facts[name] = _facts(content, split)
    for what, value in facts[name].items():
      if value != facts[first][what]:
        raise InputError(
          f"{name} was evaluated with other {what} than {first}: {value:.10}, not "
          f"{facts[first][what]:.10}; compare runs of one dataset, split, task and policy for ties"
        )
  for name in names:
    if name not in sources:
      sources[name] = {}, _files(name, judge)
  rule, data = _rule(question_filter, judge[0] if judge else {}, split)
  fingerprint = facts[first][f"data ({split})"] if judge else ""
  loaded, counted = [], []
  for name in names:
    content, tables = sources[name]
    counted, values, of_questions = _values(name, tables, rule, counted)
    tied = of_questions.setdefault("tied", {})
    for outcome in content.get("seeds", ()):
      for metric in values:
        entry = outcome["metrics"].get(f"{metric}[{data}]", {})
        if "tied_questions" in entry:  # of a filter that the results have
          tied[metric] = max(entry["tied_questions"], tied.get(metric, 0))
    one = RunScores(
      name,
      data,
      tuple(question for question, *_ in counted),
      values,
      named(name)[1] in fixed or bool(content.get("deterministic")),
      content.get("note", ""),
      tuple(pretraining.statements(content)),
      content.get("origins", ()),
      fingerprint=fingerprint,
      **of_questions,
    )
    loaded.append(one)
  shared = {}  # what one system's table says of the questions holds for all systems
  for one in loaded:
    for field in ("groups", "first_right"):
      if shared.get(field) is None:
        shared[field] = getattr(one, field)
  return [dataclasses.replace(one, **shared) for one in loaded]


def _evaluated(folder: str, split: str) -> bool:
  """Whether a run evaluated a split by this name."""
  from as2jax.evaluation import results

  contents = results.read(folder, "evaluation.json"), results.read(folder)
  return any(split in results.splits_of(content) for content in contents if content)


def _joined(parts: Sequence[RunScores], split: str) -> RunScores:
  """Return a system's scores on several splits as of one; groups of different splits are apart."""
  first, tied, groups, number = parts[0], Counter(), [], 0
  for part in parts:
    tied.update(part.tied)
    own = significance.Groups.of(part.groups, len(part.ids))
    groups.append(own.number + number)
    number += own.count

  def together(name: str) -> np.ndarray | None:
    columns = [getattr(part, name) for part in parts]
    return None if any(column is None for column in columns) else np.concatenate(columns, -1)

  values = {}
  for metric in first.values:
    values[metric] = np.concatenate([part.metric(metric) for part in parts], -1)
  notes = dict.fromkeys(part.note for part in parts if part.note)
  return dataclasses.replace(
    first,
    note="; ".join(notes),
    data=first.data.rpartition("/")[0] + f"/{split}",
    ids=sum((part.ids for part in parts), ()),
    values=values,
    groups=np.concatenate(groups),
    first_right=together("first_right"),
    top_first=together("top_first"),
    tied=tied,
    fingerprint="+".join(part.fingerprint for part in parts),
  )


def by_judgements(
  names: Sequence[str],
  qrels: str,
  measures: Sequence[str],
  *,
  split: str = "test",
  question_filter: str | None = None,
  deterministic: Sequence[str] = (),
  ties: str = "expected",
) -> list[RunScores]:
  """Measure run files of any origin by judgements, as trec_eval does but for ties.

  A judged question that a file lacks counts 0; what is not judged is not right. By BEIR's judgements a query's own
  document, which has its id, is left out of a run (as by its `ignore_identical_ids`).

  Args:
    names: run files, those of one system's seeds joined by commas or as `NAME=PATTERN`.
    qrels: as `trec_files.open_qrels` takes it; split: of a BEIR folder.
    measures: names, see `metrics.Measure`.
    question_filter: one of `metrics.RULES`, over the judged candidates; None is `all`.
    deterministic: as in `load`; ties: as in `metrics.per_question`.

  """
  fixed = _fixed(names, deterministic)
  rule = question_filter or "all"
  if rule not in metrics.RULES:
    raise InputError(
      f"judgements do not say which questions are {rule}: use one of {', '.join(metrics.RULES)}"
    )
  judgements = trec_files.open_qrels(qrels, split)
  fingerprint = hashlib.sha256(json.dumps(judgements, sort_keys=True).encode()).hexdigest()
  loaded, counted, of_beir = [], [], trec_files.of_beir(qrels)
  for name in names:
    called, files = files_of(name)
    tables, lacking, own = {}, 0, 0
    for file in files:
      run = trec_files.read_run(file)
      if of_beir:
        own = max(own, sum(ranked.pop(query, None) is not None for query, ranked in run.items()))
      lacking = max(lacking, len(judgements.keys() - run.keys()))
      tables[file] = _judged(file, run, judgements, measures, ties)
    counted, values, fields = _values(called, tables, rule, counted)
    notes = [f"lacks {lacking} of {len(judgements)} questions"] * bool(lacking)
    notes += [f"without the query's own document, as BEIR's, in {own}"] * bool(own)
    one = RunScores(
      called,
      f"{epath.Path(qrels).name}-{rule}",
      tuple(question for question, *_ in counted),
      values,
      named(name)[1] in fixed,
      "; ".join(notes),
      fingerprint=fingerprint,
      **fields,
    )
    loaded.append(one)
  return loaded


def _fixed(names: Sequence[str], deterministic: Sequence[str]) -> set[str]:
  """Return the places of the systems without randomness."""
  fixed = {named(name)[1] for name in deterministic}
  for place in sorted(fixed - {named(name)[1] for name in names})[:1]:
    raise InputError(f"--deterministic={place}: it is none of the systems that are compared")
  return fixed


def _judged(
  file: str,
  run: Run,
  judgements: Mapping[str, Mapping[str, int]],
  measures: Sequence[str],
  ties: str,
) -> Table:
  """Return the table of a run file by judgements, whose candidates are those that are judged."""
  scores, labels, every, ids, found = [], [], [], [], 0
  for question, judged in judgements.items():
    ranked = run.get(question, {})
    ids.append(list(ranked))
    scores.append(trec_files.float32(list(ranked.values())))
    labels.append(np.asarray([judged.get(id, 0) for id in ranked], np.int64))
    every.append(np.asarray(list(judged.values()), np.int64))
    found += len(ranked.keys() & judged.keys())
  if not found:
    raise InputError(
      f"{file}: nothing that it ranks is judged: check that its questions and candidates have the ids of "
      "the judgements"
    )
  counts = {
    "candidates": np.asarray(list(map(len, every)), np.float64),
    "positives": np.asarray([np.sum(of_question > 0) for of_question in every], np.float64),
  }
  values, mean, worst = (
    metrics.judged(scores, labels, every, measures, ids, ties=order)
    for order in (ties, "expected", "pessimistic")
  )
  tied = np.any([mean[name] - worst[name] > 1e-9 for name in measures], axis=0)
  return list(judgements), counts | {"tied": tied} | values


def _facts(content: dict[str, Any], split: str) -> dict[str, str]:
  """Return what runs must have in common."""
  parts = content["data"]["splits"]
  prints = "+".join(parts[part]["fingerprint"] for part in split.split("+"))
  return {
    f"data ({split})": prints,
    "evaluation.task": content["task"],
    "evaluation.ties": content["ties"],
  }


def _rule(question_filter: str | None, content: dict[str, Any], split: str) -> tuple[str, str]:
  """Return the rule of `metrics.RULES` or of a pool, and how results name it."""
  if not content:
    name = question_filter or "answerable"
    if name not in metrics.RULES:
      raise InputError(
        f"a table of per-question scores does not say which questions of its dataset are {name}: use one "
        f"of {', '.join(metrics.RULES)}"
      )
    return name, name
  data, name = content["data"], question_filter or metrics.KEYS[content["task"]][1]
  rules = {"clean": data.get("clean"), "official": data.get("official")}
  rules |= dict(zip(metrics.RULES, metrics.RULES))
  if content["task"] == "retrieve":
    title = rf"mrr\[[^\]]*-(often\d+)/{re.escape(split)}\]"
    found = re.search(title, " ".join(content["metrics"]))
    rules = {"gold": "gold", "any": "any", "often": found and found.group(1)}
  rule = rules.get(name)
  if not rule:
    raise InputError(
      f"{name!r} is no question filter of {data['name']}, {split}: use one of "
      f"{', '.join(known for known, of in rules.items() if of)}"
    )
  return rule, f"{data['name']}-{rule if name == 'often' else name}/{split}"


def _counted(table: dict[str, np.ndarray], rule: str) -> np.ndarray:
  """Return which rows of a table a rule counts, bool."""
  if rule.startswith("often"):
    return table["asked"] >= int(rule.removeprefix("often"))
  if rule in ("gold", "any"):
    return np.ones(len(table["candidates"]), bool)
  return metrics.RULES[rule](table["candidates"], table["positives"])


def _files(name: str, judge: Source | None) -> dict[str, Table]:
  """Return the tables of a system's files: as they are, or of run files by a run's judgements."""
  tables: dict[str, Table] = {}
  for file in files_of(name)[1]:
    of_run = is_run_file(file)
    tables[file] = _measured(file, judge) if of_run else trec_files.read_per_question(file)
  return tables


def named(system: str) -> tuple[str, str]:
  """Return what a system is called and where it lies, of `ours=runs/x`, `runs/x=ours` or a place alone."""
  place, _, name = system.rpartition("=")
  if not place or not name or epath.Path(system).exists():
    return system, system
  if not epath.Path(place).exists():
    name, _, place = system.partition("=")
  return name, place


def files_of(name: str) -> tuple[str, list[str]]:
  """Return what a system is called and the files of its seeds: `a.run`, `0.run,1.run`, `a=a-*.run`."""
  called, patterns = named(name)
  files: list[str] = []
  for pattern in [patterns] if epath.Path(patterns).exists() else patterns.split(","):
    files += sorted(glob.glob(pattern)) or [pattern]
  for file in files:
    if not epath.Path(file).is_file() or files.count(file) > 1:
      raise InputError(
        f"{name}: {file} is no file, or is given twice: give folders of finished runs, each as an "
        "argument of its own, or tables and TREC run files, those of a system's seeds joined by commas "
        "or as NAME=PATTERN"
      )
  return called, files


def is_run_file(path: epath.PathLike) -> bool:
  """Whether a file is no table of per-question scores, which begins with its first column's name."""
  with opened(path) as stream:
    return not stream.readline().removeprefix(BYTE_ORDER_MARK).startswith(b"question\t")


def _measured(file: str, judge: Source | None) -> Table:
  """Return the table of a run file by the judgements of a run."""
  if judge is None:
    raise InputError(
      f"{file} is a run file, which does not say what is right: compare it with the folder of a run on the "
      "same data, or by judgements: as2jax compare FILE --qrels=FILE"
    )
  content, tables = judge
  judged, (table_ids, table) = next(iter(tables.items()))
  place, ties = epath.Path(judged).parent.relative_to(content["folder"]), content["ties"]
  own, gold = (bound.file(content["folder"], place / f"{of}.trec") for of in ("run", "qrels"))
  if not own.exists() or not gold.exists():
    raise InputError(f"{file} is measured by {own} and {gold}: one is missing")
  qrels, run = trec_files.read_qrels(gold), trec_files.read_run(file)
  if content["task"] == "retrieve":
    either = bound.file(content["folder"], place / "qrels-any.trec")
    right = {"gold": qrels, "any": trec_files.read_qrels(either)}
    asked = dict(zip(table_ids, table["asked"].tolist(), strict=True))
    return of_pool(file, run, right, asked, int(table["candidates"][0]), ties)
  questions = []
  for name, ranked in trec_files.read_run(own).items():
    right = qrels.get(name, {})
    candidates = tuple(Candidate(id, id, right.get(id, 0)) for id in ranked)
    questions.append(Question(name, name, candidates))
  names, ids, labels = metrics.columns_of(questions)
  scores = scores_of(file, questions, run)
  values = metrics.per_question(scores, labels, ids, ties=ties, names=names)
  sizes = np.asarray(list(map(len, labels)), np.float64)
  positives = np.asarray([np.sum(of_question == 1) for of_question in labels], np.float64)
  worst, best = metrics.tie_extremes(scores, labels, names=names)
  tied = np.any([worst[metric] != best[metric] for metric in worst], axis=0)
  return names, {"candidates": sizes, "positives": positives, "tied": tied, **values}


def scores_of(path: epath.PathLike, questions: Sequence[Question], run: Run) -> list[np.ndarray]:
  """Return the float32 scores that a run has of every candidate, one array a question."""
  found = []
  for question in questions:
    ids = [candidate.id for candidate in question.candidates]
    ranked = run.get(question.id, {})
    for id in sorted(set(ids) ^ set(ranked))[:1]:
      raise InputError(
        f"{path}: question {question.id!r}: it {'ranks' if id in ranked else 'lacks'} the candidate "
        f"{id!r}: a run file must rank each question's candidates, all of them and no others"
      )
    found.append(trec_files.float32([ranked[id] for id in ids]))
  return found


def of_pool(
  path: epath.PathLike,
  run: Run,
  right: Mapping[str, Mapping[str, Collection[str]]],
  asked: Mapping[str, int],
  size: int,
  ties: str,
) -> Table:
  """Return the table of a retrieval from a pool.

  Args:
    right: question filter (`gold`, `any`) -> {question: ids of the right passages}.
    asked: question -> number of questions with its answer; size: of the pool.

  """
  names = list(right["gold"])
  for name in names:
    if name not in run or len(run[name]) > size:
      raise InputError(
        f"{path}: question {name!r} is missing, or has more passages than the pool ({size}): it ranks "
        "other questions or another pool"
      )
  columns = {
    "candidates": np.full(len(names), float(size)),
    "positives": np.asarray(list(map(len, right["gold"].values())), np.float64),
    "asked": np.asarray(list(map(asked.__getitem__, names)), np.float64),
  }
  found = False
  for question_filter, prefix in (("gold", ""), ("any", ANY)):
    listed, places = np.zeros(len(names), bool), np.tile([0, 0, 1], (len(names), 1))
    for q, name in enumerate(names):
      ids = right[question_filter][name]
      at = [i for i, id in enumerate(run[name]) if id in ids]
      if at:
        listed[q] = True
        places[q] = retrieval_metrics.standing(trec_files.float32(list(run[name].values())), at)
    found = found or listed.any()
    for metric, values in retrieval_metrics.per_query(Standing(*places.T), ties=ties).items():
      columns[prefix + metric] = np.where(listed, values, 0.0)
  if not found:
    raise InputError(
      f"{path}: no question lists any of its right passages: check that the ids are those of the "
      "pool, as in the run.trec of the run that it is compared with"
    )
  return names, columns


def _run(name: str, split: str, wanted: Collection[int]) -> Source:
  """Return a run's tables, beside the results whose figures they give, of the seeds that are wanted."""
  from as2jax.evaluation import results  # it takes a second, which tables alone need not wait for

  trained, evaluated, counted = results.read(name), [], False
  if not trained:
    raise InputError(f"{name} holds no results.json: give the folder of a finished run")
  for content in (results.read(name, "evaluation.json"), trained):  # the later one first
    if not content:
      continue
    evaluated += results.splits_of(content)
    metric, rule = metrics.KEYS[content["task"]]
    title = f"{metric}[{content['data']['name']}-{rule}/{split}]"
    if title not in content["metrics"]:
      continue
    counted = True
    rule = content["data"]["clean"] if rule == "clean" else rule
    seeds = [outcome["seed"] for outcome in content["seeds"]]
    tables, agree = {}, True
    for outcome in content["seeds"]:
      place = results.folder("", split, outcome["seed"], seeds) / "per_question.tsv"
      file = str(bound.file(name, place))
      ids, table = trec_files.read_per_question(file)
      if outcome["seed"] in (wanted or seeds):
        tables[file] = ids, table
      rows = _counted(table, rule)
      told = outcome["metrics"][title]["value"]
      measured = metric in table and rows.any()
      agree = agree and measured and abs(table[metric][rows].mean() - told) <= 1e-9
    if agree:
      begun = trained.get("warm_start", {"seeds": []})
      for of_seeds in (content, trained, begun) if wanted else ():
        of_seeds["seeds"] = [one for one in of_seeds["seeds"] if one["seed"] in wanted]
      content["folder"] = name
      content["deterministic"] = trained.get("deterministic", False)
      content["note"] = results.best_before_training(trained)
      content["origins"] = tuple(one["sha256"] for one in begun["seeds"])
      return content, tables
  if split not in evaluated:
    raise InputError(
      f"{name} was not evaluated on {split}, only on {', '.join(dict.fromkeys(evaluated))}"
    )
  if not counted:
    raise InputError(f"{name}: no question of {split} counts in {title}: label right candidates 1")
  raise InputError(
    f"{name}: its tables under eval/{split} do not give the figures of its results.json: they were "
    "changed, or are those of another evaluation; evaluate it again"
  )


def _values(
  name: str, tables: Mapping[str, Table], rule: str, first: list[tuple[str, float, float]]
) -> tuple[list[tuple[str, float, float]], dict[str, np.ndarray], dict[str, Any]]:
  """Return the questions counted (those of the `first`), {metric: [seeds, questions]}, fields of `RunScores`."""
  by_seed: list[dict[str, np.ndarray]] = []
  fields: dict[str, Any] = {}
  tops, tied = [], []
  for file, (ids, table) in tables.items():
    rows = sorted(np.flatnonzero(_counted(table, rule)).tolist(), key=ids.__getitem__)
    if not rows:
      raise InputError(f"{name}: no question is counted ({rule}): take another filter")
    counted = []
    for row in rows:
      counted.append((ids[row], float(table["candidates"][row]), float(table["positives"][row])))
    first = first or counted
    for question, *_ in sorted(set(counted) ^ set(first))[:1]:
      raise InputError(
        f"{file}: question {question!r} is not in both tables, or has other numbers of candidates or "
        "positives in the first: compare systems on the same data and split"
      )
    for field, column in (("groups", "group"), ("first_right", "first_right")):
      if column in table:
        fields[field] = table[column][rows]
    if "tied" in table:
      tied.append(int(table["tied"][rows].sum()))
    if "top_first" in table:
      tops.append(table["top_first"][rows])
    columns = {}
    for metric, values in table.items():
      if metric not in COUNTS and (rule == "any") == metric.startswith(ANY):
        columns[metric.removeprefix(ANY)] = values[rows]
    by_seed.append(columns)
  values = {}
  for metric in by_seed[0]:
    if all(metric in columns for columns in by_seed):
      values[metric] = np.stack([columns[metric] for columns in by_seed])
  if tops:
    fields["top_first"] = np.stack(tops)
  if tied:
    fields["tied"] = dict.fromkeys(values, max(tied))
  return first, values, fields
