"""`results.json`: the metrics of a run, its data and weights, and how it was executed."""

import dataclasses
import datetime
import importlib.metadata
import json
import logging
import math
import operator
import platform
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.datasets import holdout, mined
from as2jax.data.datasets.dataset import Dataset
from as2jax.data.datasets.dataset_card import contradictions, passport, shared_with_training
from as2jax.evaluation.predict import Evaluation, Scores, evaluate
from as2jax.evaluation.predict import write as write_files
from as2jax.evaluation.significance import ONE_SEED, half_width, mean_sd
from as2jax.runtime import regular_files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.runtime.version import __version__

log = logging.getLogger(__name__)
BEFORE_TRAINING = "best = before training"
LEDGER = "evaluations.jsonl"  # one row an evaluation of a split
MODES = ("train", "earlier training", "evaluate")  # what evaluates
QUESTION_FILTERS = {"rerank": "clean", "retrieve": "gold"}  # that selects, of a kind of evaluation
PACKAGES = (
  "jax",
  "jaxlib",
  "flax",
  "optax",
  "orbax-checkpoint",
  "transformers",
  "tokenizers",
  "numpy",
)


@dataclasses.dataclass
class Outcome:
  """What one seed came to.

  Attributes:
    best_step, best_epoch, best_value: of the selection metric.
    steps: taken in all.
    metrics: under question_filter names, of the score that ranks; `other_scores` by score name.
    values: {name of such a metric: [questions]}; not written into `results.json`.
    diagnostics: of the best checkpoint, on the split that selects; {} where a system has none.

  """

  seed: int
  best_step: int
  best_epoch: int
  best_value: float | None
  steps: int
  metrics: dict[str, dict] = dataclasses.field(default_factory=dict)
  values: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  other_scores: dict[str, dict] = dataclasses.field(default_factory=dict)
  notes: list[str] = dataclasses.field(default_factory=list)
  diagnostics: dict[str, Any] = dataclasses.field(default_factory=dict)

  def add(self, score: str, evaluation: Evaluation, *, primary: bool) -> None:
    """Takes in the evaluation of one split by one score."""
    target = self.metrics if primary else self.other_scores.setdefault(score, {})
    target.update(evaluation.metrics)
    if primary:
      self.values.update(evaluation.values)
    self.notes += [f"score {score}: {note}" for note in evaluation.notes]


def folder(
  workdir: epath.PathLike, split: str, seed: int, seeds: Sequence[int], score: str = ""
) -> epath.Path:
  """Where the run files of a split lie: `eval/<split>[/seed-<k>][/<score>]`."""
  path = epath.Path(workdir) / "eval" / split
  if len(seeds) > 1:
    path = path / f"seed-{seed}"
  return path / score if score else path


def note_evaluation(
  workdir: epath.PathLike, split: str, seeds: Sequence[int], data: str, mode: str
) -> None:
  """Adds a row to the run's ledger: this split of `data` was evaluated, once with each seed."""
  path = epath.Path(workdir) / LEDGER
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
  row = {"data": data, "split": split, "seeds": list(seeds), "mode": mode, "time": now}
  regular_files.refuse_others(path)
  before = path.read_text() if path.exists() else ""
  write_whole(path, before + json.dumps(row) + "\n")


def note_another_training(workdir: epath.PathLike) -> None:
  """Tells the rows of a training whose results and checkpoints were deleted from those to come."""
  path = epath.Path(workdir) / LEDGER
  if path.exists():
    regular_files.refuse_others(path)
    write_whole(path, path.read_text().replace('"mode": "train"', '"mode": "earlier training"'))


def times_evaluated(workdir: epath.PathLike, split: str, data: str) -> int | None:
  """How often a split of `data` was evaluated with the seed for which it was most often.

  None where the run has no ledger. An evaluation of `dev+test` is one of `test`, too. What a training
  evaluates at its end counts once, as a run that goes on evaluates the same parameters again.

  Raises:
    InputError: a line of the ledger is no row of it.

  """
  path = epath.Path(workdir) / LEDGER
  if not path.exists():
    return None
  regular_files.refuse_others(path)
  count: Counter[int] = Counter()
  trained: set[tuple[str, int]] = set()
  for number, line in enumerate(path.read_bytes().splitlines(), 1):
    try:
      row = json.loads(line.decode())
      if row["data"] == data and set(split.split("+")) & set(row["split"].split("+")):
        seeds = {operator.index(seed) for seed in row["seeds"]}
        if row["mode"] not in MODES:
          raise ValueError(f"mode {row['mode']!r:.20}")
        if row["mode"] == "train":
          seeds = {seed for seed in seeds if (row["split"], seed) not in trained}
          trained |= {(row["split"], seed) for seed in seeds}
        count.update(seeds)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
      raise InputError(
        f"{path}:{number}: no row of the ledger of evaluations ({error!r:.100}); it was changed by "
        "hand, or damaged: delete the line"
      ) from None
  return max(count.values(), default=0)


def record(
  workdir: epath.PathLike, outcome: Outcome, scores: Scores, data: Dataset, split: str, config: Any
) -> None:
  """Measures every score of a split (the first ranks), writes its files, adds it to `outcome`."""
  for k, (name, values) in enumerate(scores.items()):
    evaluation = evaluate(values, data, split, ties=config.evaluation.ties)
    outcome.add(name, evaluation, primary=k == 0)
    write_files(
      folder(workdir, split, outcome.seed, config.seeds, "" if k == 0 else name),
      evaluation,
      values,
      data.splits[split],
      tag=f"as2jax-{name}",
    )


def versions() -> dict[str, str]:
  """Versions of as2jax, Python and the packages that numbers depend on."""
  by_package = {"as2jax": __version__, "python": platform.python_version()}
  for package in PACKAGES:
    by_package[package] = importlib.metadata.version(package)
  return by_package


def data_record(dataset: Dataset, section: Any) -> dict:
  """What results say of the data: its passport, the text rules, the part that was trained on.

  The log names splits with pairs labelled both 0 and 1, those that share questions with train, and files
  that are not the official ones.
  """
  statistics = passport(dataset)
  others = [name for name, its in statistics["splits"].items() if its["content"] == "other"]
  for line in (*contradictions(statistics), *shared_with_training(statistics)):
    log.warning("%s", line)
  if others:
    log.warning(
      "%s: the files of %s in %s have the official counts, but not the SHA-256 of the official files",
      dataset.name,
      ", ".join(others),
      dataset.source,
    )
  splits = {
    name: {**its["question_filters"].get("all", its["question_filters"].get("pool")), **its}
    for name, its in statistics["splits"].items()
  }
  return {
    **statistics,
    "splits": splits,
    "rules": list(section.rules),
    "mined": mined.described(section.mined),
    "labelled_negatives": section.labelled_negatives,
    "train_filter": section.train_filter,
    "holdout": section.holdout,
    "train_fraction": section.train_fraction,
  }


def changed_split(record: dict, dataset: Any, splits: Collection[str] = ()) -> str | None:
  """The first split that is no longer what results were made of; None where none has changed.

  Args:
    record: `data` of `results.json`.
    dataset: what its config reads now; splits that either lacks are not compared.
    splits: which are compared; all where empty.

  """
  for split, its in record["splits"].items():
    now = dataset.fingerprints.get(split, its["fingerprint"])
    if now != its["fingerprint"] and (not splits or split in splits):
      return split
  return None


def require_unchanged(folder: str, content: dict, dataset: Any) -> None:
  """Raises InputError where the data at hand are no longer those of the run in `folder`."""
  if split := changed_split(content["data"], dataset):
    raise InputError(
      f"{folder}: the {split} questions or labels of {dataset.name} have changed since this run: put "
      "the old files back, or train and evaluate it anew"
    )


def over_seeds(outcomes: Sequence[Outcome]) -> dict[str, dict]:
  """Mean and s.d. over seeds of every metric, with the half-width over questions of the mean.

  The half-width is that of the questions' means over seeds, as in a comparison.
  """
  summary = {}
  for name in outcomes[0].metrics:
    entries = [o.metrics[name] for o in outcomes]
    mean, sd = mean_sd(np.asarray([e["value"] for e in entries]))
    values = [o.values[name] for o in outcomes if name in o.values]
    summary[name] = {
      "mean": mean,
      "sd": None if sd is None or math.isnan(sd) else sd,
      "seeds": len(entries),
      "questions": entries[0]["questions"],
      "half_width": half_width(np.stack(values)) if values else None,
    }
  return summary


def write(
  workdir: epath.PathLike,
  config: Any,
  data: dict,
  weights: dict,
  outcomes: Sequence[Outcome],
  summary: dict,
  name: str = "results.json",
) -> dict:
  """Writes `results.json` into a finished run's folder and returns its content."""
  summary = dict(summary)
  content = {
    "metrics": over_seeds(outcomes),
    "seeds": [_written(o) for o in outcomes],
    "task": config.evaluation.task,
    "ties": config.evaluation.ties,
    "selected_on": f"{config.select}, {holdout.selection_split(config.data)}, "
    f"{QUESTION_FILTERS[config.evaluation.task]}",
    "data": data,
    "weights": weights,
    "versions": versions(),
    "execution": summary.pop("execution", {}),
    **summary,
  }
  content.setdefault("before_training", before_training(content))
  write_whole(epath.Path(workdir) / name, json.dumps(content, indent=2) + "\n")
  return content


def _written(outcome: Outcome) -> dict[str, Any]:
  entry = dataclasses.asdict(dataclasses.replace(outcome, values={}))
  del entry["values"]
  return entry


def read(workdir: epath.PathLike) -> dict | None:
  """The results of a finished run, None where it has not finished."""
  path = epath.Path(workdir) / "results.json"
  if not path.exists():
    return None
  advice = "it was changed by hand; delete it and run again to have it made anew"
  return regular_files.read_object(path, advice)


def splits_of(content: dict) -> list[str]:
  """The splits whose metrics results hold, in their order."""
  return list(dict.fromkeys(title.rpartition("/")[2].rstrip("]") for title in content["metrics"]))


def before_training(content: dict) -> list[int]:
  """The seeds of a run that trained, but whose best checkpoint is the one of epoch 0."""
  if any(o["steps"] < 0 for o in content["seeds"]):  # an evaluation, which did not train
    return content.get("before_training", [])
  return [o["seed"] for o in content["seeds"] if o["steps"] > 0 and o["best_epoch"] == 0]


def ledger_note(count: int | None, split: str = "test") -> str:
  """What a reader is told of how often a split was evaluated."""
  if count is None:
    return f"how often {split} was evaluated is not known (no {LEDGER})"
  times = "once" if count == 1 else f"{count} times"
  return f"{split} was evaluated {times} with each seed"


def table(content: dict, workdir: epath.PathLike | None = None) -> str:
  """The main figures as text, with the notes of the run's ledger where its folder is given."""
  lines = []
  shown = ("map[", "mrr[", "p@1[", "avgrec[")
  if content["task"] == "retrieve":
    shown = ("mrr[", "r@1[", "r@5[", "sse[", "sse_relative[")
  for name, entry in content["metrics"].items():
    if name.startswith(shown):
      width, count = entry["half_width"], entry["questions"]
      counted = f"{count} question{'' if count == 1 else 's'}"
      spread = f" ± {entry['sd']:.4f} (sd of {entry['seeds']} seeds)" if entry["sd"] else ""
      lines.append(
        f"{name:34s} {entry['mean']:.4f}{spread}"
        + (f"   ({counted})" if width is None else f"   ± {width:.4f} (95 %, {counted})")
      )
  lines += [f"note, seed {seed}: {BEFORE_TRAINING}" for seed in before_training(content)]
  if len(content["seeds"]) == 1 and not content.get("deterministic"):
    seed = content["seeds"][0]["seed"]
    lines.append(
      f"note: one seed: whether this method differs from another {ONE_SEED}; "
      f"as2jax train {workdir or 'RUN'} --seeds={seed},{seed + 1},{seed + 2} adds two to it"
    )
  for outcome in content["seeds"]:
    lines += [f"note, seed {outcome['seed']}: {note}" for note in outcome["notes"]]
  if workdir is not None:
    count = times_evaluated(workdir, "test", content["data"]["name"])
    lines.append(f"note: {ledger_note(count)}")
  return "\n".join(lines)
