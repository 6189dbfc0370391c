"""Read what a page shows: runs' folders, tables and TREC run files on the same questions."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import load, trec_files
from as2jax.data.dataset import Dataset
from as2jax.data.record import Candidate, Pool, Question
from as2jax.data.retrieval import Retrieval
from as2jax.evaluation import results, run_scores
from as2jax.evaluation.run_scores import RunScores
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object, refuse_others

Ranking = dict[str, dict[str, float]]  # question -> candidate -> score
RETRIEVED = 5  # passages of a pool that are shown of each system
DIGITS = 12  # of a digest
CHOSEN = (
  "model.name",
  "encoder.pretrained",
  "loss.name",
  "optimizer.name",
  "optimizer.rate",
  "epochs",
  "batch.sampler",
  "data.max_length",
)
ADVICE = "it was changed by hand; have it made anew"


@dataclasses.dataclass(frozen=True)
class System:
  """Hold one system of a page.

  Attributes:
    name: as it was given; label: short, different from that of each other system.
    scores: on the questions that are counted.
    content: of the run's `results.json`; None of a table or a run file made elsewhere.
    config: of the run, {} likewise.
    log: the rows of the run's `metrics.jsonl`, () where there are none.

  """

  name: str
  label: str
  scores: RunScores
  content: dict[str, Any] | None
  config: dict[str, Any]
  log: tuple[dict[str, Any], ...]

  @property
  def seeds(self) -> list[int]:
    """Return the seeds of the run; those of files are numbered."""
    if self.content is None:
      return list(range(len(next(iter(self.scores.values.values())))))
    return [outcome["seed"] for outcome in self.content["seeds"]]

  def rankings(self, split: str) -> list[Ranking]:
    """Return the scores of a split, one ranking a seed; [] where none were written."""
    if self.content is None:
      files = [self.name] if epath.Path(self.name).exists() else self.name.split(",")
      rankings = [trec_files.read_run(file) for file in files if run_scores.is_run_file(file)]
      # A file made elsewhere ranks one split: that of the page.
      return rankings if all(set(self.scores.ids) <= set(ranking) for ranking in rankings) else []
    folders = [results.folder(self.name, split, seed, self.seeds) for seed in self.seeds]
    paths = [folder / "run.trec" for folder in folders]
    return [trec_files.read_run(path) for path in paths] if all(p.exists() for p in paths) else []


@dataclasses.dataclass(frozen=True)
class Runs:
  """Hold the systems of a page, on one split of one data set.

  Attributes:
    systems: the first is what others are compared with.
    split: as it was given, such as `test`.
    data_record: what the first run knows of its data (`data` of results.json), {} without a run.
    questions: of the split, with texts; () where the data are not there, which `absent` explains.

  """

  systems: tuple[System, ...]
  split: str
  data_record: dict[str, Any]
  questions: tuple[Question, ...]
  absent: str
  dataset: Dataset | None = None

  @property
  def first_run(self) -> System | None:
    """Return the first system that is a run of ours."""
    return next((system for system in self.systems if system.content is not None), None)

  @property
  def task(self) -> str:
    """Return `rerank` or `retrieve`."""
    run = self.first_run
    return "rerank" if run is None or run.content is None else run.content["task"]


def read(
  names: Sequence[str],
  *,
  split: str = "test",
  question_filter: str | None = None,
  deterministic: Sequence[str] = (),
) -> Runs:
  """Read systems as `as2jax compare` does, and the texts of their questions.

  Raises:
    InputError: see `run_scores.load`.

  """
  options = {"split": split, "question_filter": question_filter, "deterministic": deterministic}
  scores = run_scores.load(names, **options)
  labels = _labels(names)
  systems = tuple(
    _system(name, label, one) for name, label, one in zip(names, labels, scores, strict=True)
  )
  first = next((system for system in systems if system.content is not None), None)
  if first is None or first.content is None:
    absent = "no run of as2jax is among the systems, so that the questions' texts are not known"
    return Runs(systems, split, {}, (), absent)
  record = first.content["data"]
  dataset, questions, absent = _texts(first, record, split)
  if isinstance(dataset, Retrieval):
    questions = _retrieved(dataset.pools[split], [system.rankings(split) for system in systems])
  return Runs(systems, split, record, questions, absent, dataset)


def _retrieved(pool: Pool, rankings: Sequence[Sequence[Ranking]]) -> tuple[Question, ...]:
  """Return each query with its right passages and those that some system found first."""
  place = pool.place()
  questions = []
  for query in pool.queries:
    ids = dict.fromkeys(query.answers[:1])
    for seeds in rankings:
      scores = seeds[0].get(query.id, {}) if seeds else {}
      ids |= dict.fromkeys(sorted(scores, key=lambda id: -scores[id])[:RETRIEVED])
    passages = [pool.passages[place[id]] for id in ids if id in place]
    candidates = tuple(
      Candidate(p.id, p.text, int(p.id in query.answers), p.previous, p.next, title=p.title)
      for p in passages
    )
    questions.append(Question(query.id, query.text, candidates))
  return tuple(questions)


def _system(name: str, label: str, scores: RunScores) -> System:
  folder = epath.Path(name)
  if not folder.is_dir():
    return System(name, label, scores, None, {}, ())
  content = results.read(folder)
  config = folder / "config.json"
  settings = read_object(config, ADVICE) if config.exists() else {}
  return System(name, label, scores, content, settings, tuple(_log(folder)))


def _log(folder: epath.Path) -> list[dict[str, Any]]:
  """Return the rows of `metrics.jsonl` and its parts, where files cannot be appended to."""
  rows = []
  for path in sorted(folder.glob("metrics*.jsonl"), key=lambda path: (len(path.name), path.name)):
    refuse_others(path)
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
      try:
        row = json.loads(line)
        rows.append({"seed": row["seed"], "step": row["step"], **row})
      except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
          f"{path}:{number}: no row of the log ({error!r:.80}); was it changed by hand? Delete the "
          "line"
        ) from None
  return rows


def _labels(names: Sequence[str]) -> list[str]:
  """Return the last part of each name, more of it where two end alike."""
  parts = [pathlib.PurePath(name.split(",")[0]).parts or (name,) for name in names]
  for count in range(1, max(map(len, parts)) + 1):
    labels = ["/".join(own[-count:]) for own in parts]
    if len(set(labels)) == len(labels):
      return labels
  return [f"{name} ({n})" for n, name in enumerate(names, 1)]


def _texts(
  run: System, record: dict[str, Any], split: str
) -> tuple[Dataset | None, tuple[Question, ...], str]:
  """Return the data set of a run and the questions of its split; or why they cannot be shown."""
  from as2jax.config import jobs

  try:
    config = jobs.of_run(str(epath.Path(run.name) / "config.json"))
    if record["name"] != config.data.name:
      said = f"the texts of {record['name']}, on which the run was evaluated later, are not read"
      return None, (), said
    config = config.copy_and_resolve_references().unlock()
    config.data.download = False  # a page is made of what is here
    dataset = load.load(config.data, config.evaluation.task)
    load.require(dataset, split.split("+"))
    if changed := results.changed_split(record, dataset, split.split("+")):
      return None, (), f"the {changed} questions of {dataset.name} that are here are not the run's"
    if isinstance(dataset, Retrieval):
      return dataset, (), ""
    return dataset, tuple(dataset.splits[split]), ""
  except (InputError, OSError, KeyError) as error:
    return None, (), " ".join(str(error).split())


def data_rows(record: dict[str, Any]) -> list[list[Any]]:
  """Return the counts of the data's splits as cells, under a head."""
  head = ["split", "questions", "candidates", "right", "clean questions", "duplicate pairs"]
  rows = [[*head, "contradictory", "against published counts", "SHA-256"]]
  for split, entry in record["splits"].items():
    clean = entry.get("question_filters", {}).get("clean", {})
    cells = [split, *(entry.get(key, "–") for key in ("questions", "pairs", "positives"))]
    cells += [clean.get("questions", "–"), entry.get("duplicate_pairs", "–")]
    cells += [entry.get("contradictory_pairs", "–"), entry.get("verdict") or "–"]
    rows.append([*cells, entry.get("fingerprint", "")[:DIGITS]])
  return rows


def data_notes(record: dict[str, Any]) -> list[str]:
  """Return what else is to be known of the data: overlaps, licence, source, text rules."""
  spec, said = datasets.SPECS.get(record["name"]), []
  overlaps = (record.get("overlap") or {}).items()
  if overlaps:
    shared = ", ".join(f"{pair.replace('+', ' and ')}: {count}" for pair, count in overlaps)
    said.append(f"question texts in two splits: {shared}")
  said.append(f"licence: {licence(record['name'])}")
  if spec:
    said.append(f"source: {spec.citation}")
  if record.get("why"):
    said.append(f"against published counts: {record['why']}")
  if record.get("rules"):
    said.append(f"text rules: {', '.join(record['rules'])}")
  return said


def licence(name: str) -> str:
  """Return what the distributors of a data set state, or that they state none."""
  spec = datasets.SPECS.get(name)
  if spec is None:
    return "that of your own files"
  return spec.licence or "not stated by its distributors"


def identity_rows(runs: Runs) -> list[list[str]]:
  """Return a row a fact and a column a system, under a head; facts that no system has are left out."""
  columns = [_identity(system) for system in runs.systems]
  rows = [["", *(system.label for system in runs.systems)]]
  for name in dict.fromkeys(name for column in columns for name in column):
    rows.append([name, *(column.get(name, "–") for column in columns)])
  return rows


def _identity(system: System) -> dict[str, str]:
  content, found = system.content, {}
  if content is None:
    return {"made": "elsewhere"}
  execution, counts = content.get("execution", {}), content.get("parameters")
  found["folder"] = system.name
  for key in CHOSEN if counts else CHOSEN[:1]:
    value: Any = system.config
    for part in key.split("."):
      value = value.get(part) if isinstance(value, dict) else None
    if value not in (None, ""):
      found[key] = str(value)
  found["seeds"] = ", ".join(map(str, system.seeds))
  trained = [outcome for outcome in content["seeds"] if outcome["steps"] > 0]
  if trained:
    found["best epoch"] = ", ".join(str(outcome["best_epoch"]) for outcome in trained)
    found["steps"] = ", ".join(str(outcome["steps"]) for outcome in trained)
  if counts:
    found["parameters"] = f"{counts['all']:,} ({counts['trainable']:,} trained)"
  if "padding" in content:
    found["padding"] = f"{100 * content['padding']:.1f} %"
  if execution:
    name = execution.get("device") or execution.get("backend", "")
    found["device"] = f"{execution.get('devices', 0)} × {name}"
    found["time"] = f"{execution.get('seconds', 0):,.0f} s"
  if execution.get("peak_memory_bytes"):
    found["memory"] = f"{execution['peak_memory_bytes'] / 2**30:.2f} GiB at most"
  for name in ("weights", "tokenizer", "code"):
    if digest := content.get("identity", {}).get(name):
      found[f"{name} (SHA-256)"] = str(digest)[:DIGITS]
  versions = content.get("versions", {}).items()
  found["versions"] = ", ".join(f"{name} {version}" for name, version in versions)
  return found
