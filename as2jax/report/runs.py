"""Read what a page shows: runs' folders, tables and TREC run files, and their questions one by one."""

import base64
import dataclasses
import functools
import json
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from as2jax.config.overrides import apply, flatten
from as2jax.data import dataset as datasets
from as2jax.data import load, trec_files
from as2jax.data.dataset import Dataset
from as2jax.data.record import Candidate, Pool, Question, in_order
from as2jax.data.retrieval import Retrieval
from as2jax.evaluation import calibration, compare, results, run_scores
from as2jax.evaluation.run_scores import RunScores
from as2jax.report import figures
from as2jax.runtime import bound, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object
from as2jax.training import metrics_log

Ranking = dict[str, dict[str, float]]  # question -> candidate -> score
RETRIEVED = 5  # passages of a pool that are shown of each system
DIGITS = 12  # of a digest
ROWS = 3000  # of the table; of more questions those that differ most are shown
CHUNK = 40  # questions whose candidates are unpacked together
BUDGET = 600_000  # bytes of all packed candidates
CHOSEN = "model.name encoder.pretrained loss.name optimizer.name optimizer.rate epochs".split()
CHOSEN += ["batch.sampler", "data.max_length"]
ADVICE = "it was changed by hand; have it made anew"


@dataclasses.dataclass(frozen=True)
class Options:
  """Hold the options of `as2jax report`."""

  split: str = "test"  # of the runs' folders
  metrics: Sequence[str] = ()  # the first leads the page; () are those of the task
  question_filter: str | None = None  # see `run_scores.load`
  deterministic: Sequence[str] = ()  # names of files whose system has no randomness
  explain: int = 0  # questions that differ most, which opens the runs' weights
  allow_code: bool = False  # whether classes of one's own that a run names may be imported


@dataclasses.dataclass(frozen=True)
class System:
  """Hold one system of a page."""

  name: str  # as it was given
  place: str  # the folder or the files
  scores: RunScores  # on the questions that are counted, under the label
  content: Any  # of `results.json`; None of a table or a run file made elsewhere
  config: dict[str, Any]  # of the run, {} likewise
  log: tuple[dict[str, Any], ...]  # the rows of `metrics.jsonl`

  @property
  def label(self) -> str:
    """Return its name or the end of its place, different from that of each other system."""
    return self.scores.name

  @property
  def seeds(self) -> list[int]:
    """Return the seeds of the run; those of files are numbered."""
    if self.content is None:
      return list(range(len(next(iter(self.scores.values.values())))))
    return [outcome["seed"] for outcome in self.content["seeds"]]

  @functools.cached_property
  def calibration(self) -> calibration.Calibration | None:
    """Return what makes scores of the run's first seed probabilities, read once."""
    return calibration.of_run(self.place, self.seeds[0])

  @property
  def code(self) -> str | None:
    """Return the digest of as2jax's code alone; None where own classes are in it."""
    identity = (self.content or {}).get("identity", {})
    names = [self.config.get(key, {}).get("name") for key in ("model", "loss", "encoder")]
    if any(":" in str(name) for name in names):
      return identity.get("package")
    return identity.get("code")

  def rankings(self, split: str) -> list[Ranking]:
    """Return the scores of a split, one ranking a seed; [] where none were written."""
    if self.content is None:
      files = run_scores.files_of(self.place)[1]
      rankings = [trec_files.read_run(file) for file in files if run_scores.is_run_file(file)]
      # A file made elsewhere ranks one split: that of the page.
      return rankings if all(set(self.scores.ids) <= set(ranking) for ranking in rankings) else []
    rankings = []
    for seed in self.seeds:
      path = bound.file(self.place, results.folder("", split, seed, self.seeds) / "run.trec")
      if not path.exists():
        return []
      rankings.append(trec_files.read_run(path))
    return rankings


@dataclasses.dataclass(frozen=True)
class Runs:
  """Hold the systems of a page, on one split of one data set."""

  systems: tuple[System, ...]  # the first is what others are compared with
  split: str  # as it was given, such as `test`
  data_record: dict[str, Any]  # `data` of the first run's results.json, {} without a run
  questions: tuple[Question, ...]  # of the split, with texts; () where the data are not there
  absent: str  # why they are not, ""
  dataset: Dataset | None = None

  @property
  def first_run(self) -> System | None:
    """Return the first system that is a run of ours."""
    return next((system for system in self.systems if system.content is not None), None)

  @property
  def task(self) -> str:
    """Return `rerank` or `retrieve`."""
    return "rerank" if self.first_run is None else self.first_run.content["task"]

  @property
  def labels(self) -> list[str]:
    """Return the label of each system."""
    return [system.label for system in self.systems]

  @functools.cached_property
  def rankings(self) -> list[list[Ranking]]:
    """Return the rankings of each system, one a seed."""
    return [system.rankings(self.split) for system in self.systems]


def read(names: Sequence[str], asked: Options = Options()) -> Runs:
  """Read systems as `as2jax compare` does, and the texts of their questions.

  InputError: a run names a class of one's own, without `allow_code`.
  """
  split = asked.split
  scores = compare.read(
    names, asked.deterministic, split=split, question_filter=asked.question_filter
  )
  systems = tuple(map(_system, names, _labels(names), scores))
  for system in systems:
    registry.allow_code(system.config, system.place, said=asked.allow_code)
  absent = "no run of as2jax is among the systems, so that the questions' texts are not known"
  runs = Runs(systems, split, {}, (), absent)
  if runs.first_run is None:
    return runs
  record = runs.first_run.content["data"]
  dataset, questions, absent = _texts(runs.first_run, record, split)
  if isinstance(dataset, Retrieval):
    questions = _retrieved(dataset.pools[split], runs.rankings)
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
    candidates = []
    for id in filter(place.__contains__, ids):
      p = pool.passages[place[id]]
      candidates.append(Candidate(id, p.text, int(id in query.answers), p.previous, p.next))
    questions.append(Question(query.id, query.text, tuple(candidates)))
  return tuple(questions)


def _system(name: str, label: str, scores: RunScores) -> System:
  place, scores = run_scores.named(name)[1], dataclasses.replace(scores, name=label)
  folder = epath.Path(place)
  if not folder.is_dir():
    return System(name, place, scores, None, {}, ())
  content = results.read(folder)
  config = bound.file(folder, "config.json")
  settings = read_object(config, ADVICE) if config.exists() else {}
  log = [row for _, row in metrics_log.rows(bound.file(folder, metrics_log.NAME))]
  return System(name, place, scores, content, settings, tuple(log))


def _labels(names: Sequence[str]) -> list[str]:
  """Return the name of each system, or the last part of its place, more of it where two end alike."""
  for count in range(1, 9):
    labels = []
    for name, place in map(run_scores.named, names):
      end = "/".join(pathlib.PurePath(place.split(",")[0]).parts[-count:])
      labels.append(end if name == place else name)
    if len(set(labels)) == len(labels):
      return labels
  return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _texts(
  run: System, record: dict[str, Any], split: str
) -> tuple[Dataset | None, tuple[Question, ...], str]:
  """Return the data set of a run and the questions of its split; or why they cannot be shown."""
  from as2jax.config import jobs

  try:
    config = jobs.of_run(str(epath.Path(run.place) / "config.json"))
    if record["name"] != config.data.name:
      said = f"the texts of {record['name']}, on which the run was evaluated later, are not read"
      return None, (), said
    config = apply(config, {"data.download": False})  # a page is made of what is here
    dataset = load.load(config.data, config.evaluation.task)
    load.require(dataset, split.split("+"))
    if changed := results.changed_split(record, dataset, split.split("+")):
      return None, (), f"the {changed} questions of {dataset.name} that are here are not the run's"
    if isinstance(dataset, Retrieval):
      return dataset, (), ""
    return dataset, tuple(dataset.splits[split]), ""
  except (InputError, OSError, KeyError) as error:
    return None, (), " ".join(str(error).split())


class Row(NamedTuple):
  """Hold one question of the table."""

  id: str
  text: str
  candidates: int
  positives: int  # how many of them are right
  values: tuple[float, ...]  # each system's mean over seeds, () of a question that is not counted

  @property
  def difference(self) -> float:
    """Return the last system's value less the first one's; 0 where there is no second."""
    return self.values[-1] - self.values[0] if len(self.values) > 1 else 0.0

  @property
  def sign(self) -> str:
    """Return `up`, `down`, or "" where nothing differs."""
    if abs(self.difference) <= 1e-12:
      return ""
    return "up" if self.difference > 0 else "down"


def rows(runs: Runs, metric: str) -> list[Row]:
  """Return the first `ROWS` questions: those that are counted first, which differ most first."""
  means = np.stack([system.scores.metric(metric).mean(0) for system in runs.systems], 1)
  values = dict(zip(runs.systems[0].scores.ids, means.tolist(), strict=True))
  listed = []
  for question in runs.questions or [Question(id, "", ()) for id in values]:
    counts = len(question.candidates), len(question.positives)
    listed.append(Row(question.id, question.text, *counts, tuple(values.get(question.id, ()))))
  if len(runs.systems) == 1:
    listed.sort(key=lambda row: row.values)
  listed.sort(key=lambda row: (not row.values, -abs(row.difference)))
  return listed[:ROWS]


def packed(runs: Runs, listed: Sequence[Row]) -> tuple[list[str], int]:
  """Return the candidates of the questions in chunks, and how many questions they hold.

  A chunk is JSON (`shown`) of `CHUNK` questions, compressed (deflate) and written in base64.
  """
  by_id = {question.id: question for question in runs.questions}
  if not by_id:
    return [], 0
  chunks: list[str] = []
  for start in range(0, len(listed), CHUNK):
    part = [shown(by_id[row.id], runs.rankings) for row in listed[start : start + CHUNK]]
    written = json.dumps(part, ensure_ascii=False).encode()
    chunk = base64.b64encode(zlib.compress(written, 9)).decode()
    if sum(map(len, chunks)) + len(chunk) > BUDGET:
      return chunks, start
    chunks.append(chunk)
  return chunks, len(listed)


def shown(question: Question, rankings: Sequence[Sequence[Ranking]]) -> dict[str, Any]:
  """Return what the page shows of one question.

  `c` are its candidates: id, text, label; `s` of each system, null where it wrote no ranking: `v`,
  the scores of its first seed (infinite ones as texts, for which JSON has no numbers), and `r`, the
  ranks of each seed, a tied one as "2–4", null of what it did not list.
  """
  candidates = [[one.id, one.text, one.label] for one in question.candidates]
  ids, systems = [candidate.id for candidate in question.candidates], []
  for seeds in rankings:
    if not seeds or not all(question.id in seed for seed in seeds):
      systems.append(None)
      continue
    first = seeds[0][question.id]
    scores = [_score(first[id]) if id in first else None for id in ids]
    systems.append({"v": scores, "r": [ranks(seed[question.id], ids) for seed in seeds]})
  return {"c": candidates, "s": systems}


class Sentence(NamedTuple):
  """Hold a sentence of a document, with what a run says of it."""

  text: str
  right: bool
  probability: float | None  # that it answers
  kept: bool  # at or above the threshold

  @property
  def said(self) -> str:
    """Return what a pointer is told."""
    said = ["right"] * self.right + ["kept"] * self.kept
    if self.probability is not None:
      said.append(f"probability {self.probability:.2f}")
    return ", ".join(said)

  @property
  def shade(self) -> int:
    """Return the number of the class of its shade, 0 of none."""
    return round(figures.SHADES * (self.probability or 0))


class Document(NamedTuple):
  """Hold the candidates of a question, in the order of their document, as a run shades them."""

  system: str
  said: str  # the threshold, or why nothing is shaded
  sentences: list[Sentence]


def documents(runs: Runs, question: Question) -> list[Document]:
  """Return the document of a question by each run's first seed; [] where its candidates stand in no order."""
  found: list[Document] = []
  for system, seeds in zip(runs.systems, runs.rankings, strict=True):
    listed = system.content and seeds and question.id in seeds[0]
    if not listed or not in_order([question]) or runs.task != "rerank":
      continue
    scores = [seeds[0][question.id][candidate.id] for candidate in question.candidates]
    values = np.asarray(scores, np.float32).astype(np.float64)
    probabilities: list[Any] = [None] * len(scores)
    kept = np.zeros(len(scores), bool)
    said = "not shaded: it did not rank the questions by which scores become probabilities"
    try:
      if fitted := system.calibration:
        least, probabilities = fitted.threshold(), fitted.probability(values).tolist()
        kept = values >= least
        said = (
          f"kept at a probability of {float(fitted.probability(np.asarray(least))):.2f} or more"
        )
    except InputError as error:
      said = f"not shaded: {str(error).partition(':')[0]}"
    sentences = []
    for one, probability, keep in zip(
      question.candidates, probabilities, kept.tolist(), strict=True
    ):
      sentences.append(Sentence(one.text, one.label == 1, probability, keep))
    label = f"{system.label}, seed {system.seeds[0]}" if len(seeds) > 1 else system.label
    found.append(Document(label, said, sentences))
  return found


def _score(score: float) -> float | str:
  if np.isfinite(score):
    return float(f"{score:.6g}")
  return "∞" if score > 0 else "−∞"


def ranks(scores: Mapping[str, float], ids: Sequence[str]) -> list[int | str | None]:
  """Return the rank of each candidate among those that are listed, the greatest score 1.

  Those of equal scores share the range of their ranks, "2–4"; what is not listed has None.
  """
  values = np.asarray(list(scores.values()), np.float64).astype(np.float32)
  said: dict[str, int | str] = {}
  for id, value in zip(scores, values):
    first, last = int((values > value).sum()) + 1, int((values >= value).sum())
    said[id] = first if first == last else f"{first}–{last}"
  return [said.get(id) for id in ids]


def data_rows(record: dict[str, Any]) -> list[list[Any]]:
  """Return the counts of the data's splits as cells, under a head."""
  columns = {"questions": "questions", "pairs": "candidates", "positives": "right"}
  columns |= {"verdict": "against published counts"}
  rows: list[list[Any]] = [["split", *columns.values(), "SHA-256"]]
  for split, entry in record["splits"].items():
    cells = [entry.get(key) or "–" for key in columns]
    rows.append([split, *cells, entry.get("fingerprint", "")[:DIGITS]])
  return rows


def data_notes(record: dict[str, Any]) -> list[str]:
  """Return what else is to be known of the data: licence, source, text rules."""
  facts = {"licence": licence(record["name"]), "source": ""}
  if spec := datasets.SPECS.get(record["name"]):
    facts["source"] = spec.citation
  facts["against published counts"] = record.get("why")
  facts["text rules"] = ", ".join(record.get("rules", ()))
  return [f"{name}: {fact}" for name, fact in facts.items() if fact]


def licence(name: str) -> str:
  """Return what the distributors of a data set state, or that they state none."""
  spec = datasets.SPECS.get(name)
  if spec is None:
    return "its card states it" if name.startswith("hub-") else "that of your own files"
  return spec.licence or "not stated by its distributors"


def identity_rows(runs: Runs) -> list[list[str]]:
  """Return a row a fact and a column a system, under a head; facts that no system has are left out."""
  facts: dict[str, list[str]] = {"": runs.labels}
  for number, system in enumerate(runs.systems):
    for name, value in _identity(system).items():
      facts.setdefault(name, ["–"] * len(runs.systems))[number] = value
  return [[name, *values] for name, values in facts.items()]


def _identity(system: System) -> dict[str, str]:
  content = system.content
  if content is None:
    return {"made": "elsewhere"}
  execution, found = content.get("execution", {}), {"folder": system.place}
  settings = flatten(system.config)
  for key in CHOSEN if content.get("parameters") else CHOSEN[:1]:
    if settings.get(key) not in (None, ""):
      found[key] = str(settings[key])
  found["seeds"] = ", ".join(map(str, system.seeds))
  trained = [outcome for outcome in content["seeds"] if outcome["steps"] > 0]
  if trained:
    found["best epoch"] = ", ".join(str(outcome["best_epoch"]) for outcome in trained)
  if counts := content.get("parameters"):
    found["parameters"] = f"{counts['all']:,} ({counts['trainable']:,} trained)"
  if execution:
    name = execution.get("device") or execution.get("backend", "")
    found["device"] = f"{execution.get('devices', 0)} × {name}"
    found["time"] = f"{execution.get('seconds', 0):,.0f} s"
  for name in ("weights", "tokenizer", "code"):
    if digest := content.get("identity", {}).get(name):
      found[f"{name} (SHA-256)"] = str(digest)[:DIGITS]
  versions = content.get("versions", {}).items()
  found["versions"] = ", ".join(f"{name} {version}" for name, version in versions)
  return found
