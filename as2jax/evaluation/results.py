"""Keep what an evaluation came to: `results.json`, the ledger of evaluations, summaries in text."""

import dataclasses
import datetime
import importlib.metadata
import json
import logging
import platform
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from as2jax.data import holdout, mined
from as2jax.data.card import data_card, misleading
from as2jax.data.dataset import Dataset
from as2jax.evaluation import metrics
from as2jax.evaluation.significance import ONE_SEED, Groups, count_text, half_width, mean_sd
from as2jax.runtime import bound, processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object
from as2jax.runtime.version import __version__

log = logging.getLogger(__name__)
BEFORE_TRAINING = "best = before training"
# One row an evaluation of a split; its mode is `train`, `earlier training` or `evaluate`.
LEDGER = "evaluations.jsonl"
PACKAGES = "jax jaxlib flax optax orbax-checkpoint transformers tokenizers numpy".split()
TABLE = {
  "rerank": ("map", "mrr", "p@1", "avgrec"),
  "retrieve": ("mrr", "r@1", "r@5", "sse", "sse_relative"),
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """Hold the metrics of one ranking of one split.

  Attributes:
    metrics: {`map[wikiqa-clean/test]`: {value, half_width, questions, worst, best, tied_questions}}.
    values: {`map[wikiqa-clean/test]`: those of the questions that are counted, and their groups}.
    per_question: by metric, and as `group` the number of each question's group where not all are alone.
    notes: what a reader must know; scalars: for the log.

  """

  metrics: dict[str, dict]
  values: dict[str, tuple[np.ndarray, np.ndarray | None]]
  per_question: dict[str, np.ndarray]
  notes: list[str]
  scalars: dict[str, float] = dataclasses.field(default_factory=dict)

  def add(
    self,
    where: str,
    mask: np.ndarray,
    values: Mapping[str, np.ndarray],
    extremes: Sequence[Mapping[str, np.ndarray]],
    *,
    noted: bool,
  ) -> None:
    """Add the means over the questions in `mask`; where `noted`, say what ties move."""
    ranges = metrics.ranges_of(*extremes, mask)
    every = self.per_question.get("group")
    self.metrics.update(metrics.summarize(values, mask, where=where, ranges=ranges, groups=every))
    groups = None if every is None else every[mask]
    for metric, of_metric in values.items():
      self.values[f"{metric}[{where}]"] = of_metric[mask], groups
    if noted:
      self.notes.extend(metrics.tie_note(ranges, where))
      if rough := Groups.of(groups, int(mask.sum())).warning():
        self.notes.append(f"{where}: {rough}")


@dataclasses.dataclass
class Outcome:
  """Hold what one seed came to.

  Attributes:
    best_step, best_epoch, best_value: of the selection metric; `steps` were taken in all.
    metrics, values: as in `Evaluation`, of the score that ranks; `other_scores` by score name.
    diagnostics: of the best checkpoint, on the split that selects.

  """

  seed: int
  best_step: int
  best_epoch: int
  best_value: float | None
  steps: int
  metrics: dict[str, dict] = dataclasses.field(default_factory=dict)
  values: dict[str, tuple] = dataclasses.field(default_factory=dict)
  other_scores: dict[str, dict] = dataclasses.field(default_factory=dict)
  notes: list[str] = dataclasses.field(default_factory=list)
  diagnostics: dict[str, Any] = dataclasses.field(default_factory=dict)

  def add(self, score: str, evaluation: Evaluation, *, primary: bool) -> None:
    """Add the evaluation of one split by one score."""
    target = self.metrics if primary else self.other_scores.setdefault(score, {})
    target.update(evaluation.metrics)
    if primary:
      self.values.update(evaluation.values)
    self.notes += [f"score {score}: {note}" for note in evaluation.notes]


def folder(
  workdir: epath.PathLike, split: str, seed: int, seeds: Sequence[int], score: str = ""
) -> epath.Path:
  """Return the folder of a split's run files: `eval/<split>[/seed-<k>][/<score>]`."""
  path = epath.Path(workdir) / "eval" / split
  if len(seeds) > 1:
    path /= f"seed-{seed}"
  return path / score if score else path


def note_evaluation(
  workdir: epath.PathLike, split: str, seeds: Sequence[int], data: str, mode: str
) -> None:
  """Add a row to the run's ledger: this split of `data` was evaluated, once with each seed."""
  if not processes.first():
    return
  path = bound.file(workdir, LEDGER)
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
  row = {"data": data, "split": split, "seeds": list(seeds), "mode": mode, "time": now}
  before = path.read_text() if path.exists() else ""
  bound.write(workdir, LEDGER, before + json.dumps(row) + "\n")


def note_another_training(workdir: epath.PathLike) -> None:
  """Mark the rows of a training whose results were deleted, before another one begins."""
  path = bound.file(workdir, LEDGER)
  if path.exists():
    text = path.read_text().replace('"mode": "train"', '"mode": "earlier training"')
    bound.write(workdir, LEDGER, text)


class Looks(NamedTuple):
  """Hold how often a split was evaluated, with the seed that has the fewest and that with the most."""

  least: int
  most: int

  def __str__(self) -> str:
    return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"


def times_evaluated(workdir: epath.PathLike, split: str, data: str) -> Looks | None:
  """Count the evaluations of a split of `data` with each seed, repeats included; None without ledger.

  An evaluation of `dev+test` is one of `test`, too.
  """
  path = bound.file(workdir, LEDGER)
  if not path.exists():
    return None
  looks: Counter[int] = Counter()
  for number, line in enumerate(path.read_bytes().splitlines(), 1):
    try:
      row = json.loads(line)
      parts = set(row["split"].split("+")) & set(split.split("+"))
      if parts and row["data"] == data:
        looks.update(row["seeds"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
      raise InputError(
        f"{path}:{number}: no row of the ledger of evaluations ({error!r:.100}): delete the line"
      ) from None
  return Looks(min(looks.values(), default=0), max(looks.values(), default=0))


def versions() -> dict[str, str]:
  """Return the versions of as2jax, Python and the packages that numbers depend on."""
  own = {"as2jax": __version__, "python": platform.python_version()}
  return own | {package: importlib.metadata.version(package) for package in PACKAGES}


def data_record(dataset: Dataset, section: Any) -> dict:
  """Return what results say of the data: statistics, text rules, the part trained on.

  The log names splits with pairs labelled both 0 and 1, and those that share questions with train.
  """
  statistics = data_card(dataset)
  for line in misleading(statistics):
    log.warning("%s", line)
  splits = {}
  for name, entry in statistics["splits"].items():
    counts = entry["question_filters"].get("all", entry["question_filters"].get("pool"))
    splits[name] = {**counts, **entry}
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
  """Return the first of `splits` (or all) that differs from the results' `data`, None of none."""
  for split, its in record["splits"].items():
    now = dataset.fingerprints.get(split, its["fingerprint"])
    if now != its["fingerprint"] and (not splits or split in splits):
      return split
  return None


def require_unchanged(folder: str, content: dict, dataset: Any) -> None:
  """Raise InputError where the data at hand are no longer those of the run in `folder`."""
  if split := changed_split(content["data"], dataset):
    raise InputError(
      f"{folder}: the {split} questions or labels of {dataset.name} have changed since this run: put "
      "the old files back, or train and evaluate it anew"
    )


def over_seeds(outcomes: Sequence[Outcome]) -> dict[str, dict]:
  """Return mean and s.d. over seeds of every metric, with the half-width over questions' means."""
  summary = {}
  for name, first in outcomes[0].metrics.items():
    mean, sd = mean_sd(np.asarray([outcome.metrics[name]["value"] for outcome in outcomes]))
    values, groups = zip(*(outcome.values.get(name, (None, None)) for outcome in outcomes))
    summary[name] = {
      "mean": mean,
      "sd": sd,
      "seeds": len(outcomes),
      "questions": first["questions"],
      "half_width": half_width(np.stack(values), groups[0]) if name in outcomes[0].values else None,
    }
    if "groups" in first:
      summary[name]["groups"] = first["groups"]
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
  """Write `results.json` into a finished run's folder and return its content."""
  task, seeds = config.evaluation.task, []
  for outcome in outcomes:
    seeds.append({k: v for k, v in vars(outcome).items() if k != "values"})
  selection = holdout.selection_split(config.data)
  content = {
    "metrics": over_seeds(outcomes),
    "seeds": seeds,
    "task": task,
    "ties": config.evaluation.ties,
    "selected_on": f"{config.select}, {selection}, {metrics.KEYS[task][1]}",
    "data": data,
    "weights": weights,
    "versions": versions(),
    "execution": {},
    **summary,
  }
  content.setdefault("before_training", before_training(content))
  bound.write(workdir, name, json.dumps(content, indent=2) + "\n")
  return content


def read(workdir: epath.PathLike, name: str = "results.json") -> dict | None:
  """Return the results of a finished run, None where it has not finished."""
  path = bound.file(workdir, name)
  if not path.exists():
    return None
  return read_object(path, "it was changed by hand; delete it and run again to have it made anew")


def splits_of(content: dict) -> list[str]:
  """Return the splits whose metrics results hold, in their order."""
  return list(dict.fromkeys(title.rpartition("/")[2].rstrip("]") for title in content["metrics"]))


def before_training(content: dict) -> list[int]:
  """Return the seeds of a run that trained, but whose best checkpoint is the one of epoch 0."""
  seeds = []
  for outcome in content["seeds"]:
    if outcome["steps"] < 0:  # an evaluation, which did not train
      return content.get("before_training", [])
    if outcome["steps"] > 0 and outcome["best_epoch"] == 0:
      seeds.append(outcome["seed"])
  return seeds


def best_before_training(content: dict) -> str:
  """Say that training did not improve a run, with the seeds where it is not all; "" where it did."""
  seeds = before_training(content)
  if not seeds or len(seeds) == len(content["seeds"]):
    return BEFORE_TRAINING if seeds else ""
  return f"{BEFORE_TRAINING} (seed {', '.join(map(str, seeds))})"


def ledger_note(looks: Looks | None) -> str:
  """Say how often test was evaluated."""
  if looks is None:
    return f"how often test was evaluated is not known (no {LEDGER})"
  times = "once" if looks == (1, 1) else f"{looks} times"
  return f"test was evaluated {times} with each seed"


def main_figures(content: dict, selecting: bool) -> Iterator[tuple[str, str]]:
  """Yield the main metrics of results with their figures as text; only those of the filter that selects."""
  part = f"-{metrics.KEYS[content['task']][1]}/" if selecting else ""
  for name, entry in content["metrics"].items():
    if name.partition("[")[0] not in TABLE[content["task"]] or part not in name:
      continue
    text = f"{entry['mean']:.4f}"
    if entry["sd"]:
      text += f" ± {entry['sd']:.4f} (sd of {entry['seeds']} seeds)"
    counted = count_text(entry["questions"], entry.get("groups"))
    if entry["half_width"] is not None:
      text += f"   ± {entry['half_width']:.4f} (95 %, {counted})"
    else:
      text += f"   ({counted})"
    tied = entry.get("tied_questions")
    for outcome in content["seeds"]:
      tied = max(tied or 0, outcome["metrics"].get(name, {}).get("tied_questions", 0))
    if said := metrics.tied_text(tied, entry["questions"]):
      text += f"; {said}"
    yield name, text


def table(content: dict, workdir: epath.PathLike | None = None, selecting: bool = False) -> str:
  """Return the main figures as text, with the notes of the run's ledger where its folder is given."""
  lines = [f"{name:34s} {text}" for name, text in main_figures(content, selecting)]
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
    looks = times_evaluated(workdir, "test", content["data"]["name"])
    if looks != (0, 0):
      lines.append(f"note: {ledger_note(looks)}")
  return "\n".join(lines)


def summary(content: dict[str, Any], folder: str) -> str:
  """Return the end of a run: the figures that select, best epochs, what to type next."""
  lines = [table(content, folder, selecting=True)]
  for outcome in content["seeds"]:
    if outcome["steps"] > 0:
      epoch, seed = outcome["best_epoch"], outcome["seed"]
      lines.append(f"best epoch {epoch} (seed {seed}), by {content['selected_on']}")
  splits, option = splits_of(content), ""
  if splits and "test" not in splits:  # the default of `compare`
    option = f" --split={splits[0]}"
  lines.append(f"next:  as2jax rank {folder} FILE")
  if content["task"] == "retrieve":
    lines.append(f"       as2jax index {folder} FILE -o ANSWERS.index")
  lines.append(f"       as2jax compare OTHER_RUN {folder}{option}")
  if content.get("exportable"):
    lines.append(f"       as2jax export {folder} FOLDER")
  return "\n".join(lines)
