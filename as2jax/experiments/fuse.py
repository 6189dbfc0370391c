"""One ranking from those of several finished runs: a weighted sum of their standardised scores.

The scores of each question's candidates are brought to mean 0 and variance 1, system by system, and added
up (CombSUM of Fox and Shaw 1994, with the normalisation by mean and variance of Montague and Aslam 2001).
The weights are those with the best MAP on the questions that select; what they gain is estimated by
cross-fitting, so that no question is measured with weights that were chosen on it.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float

from as2jax.data.datasets.dataset import Dataset
from as2jax.data.datasets.holdout import selection_split
from as2jax.data.datasets.load import load as load_dataset
from as2jax.data.datasets.trec_files import read_run
from as2jax.evaluation import metrics, results, run_files, run_scores, significance
from as2jax.experiments.distil import fold_of
from as2jax.experiments.working_folder import open_working
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

CARD = "fusion.json"
STEPS = 10  # weights are tenths
MOST = 8  # runs: of these there are 19,448 weights, which are all tried
FOLDS = 5
# By system and seed, the float32 scores of each question's candidates.
SplitScores = Sequence[Sequence[Sequence[np.ndarray]]]


@dataclasses.dataclass(frozen=True)
class _Systems:
  """Runs of re-ranking that answered the same questions.

  Attributes:
    names: their folders, as given.
    runs: opened.
    data: the questions.
    seeds: of what is written: those of the trained runs, with which a deterministic run is repeated.

  """

  names: tuple[str, ...]
  runs: tuple[Run, ...]
  data: Dataset
  seeds: tuple[int, ...]

  def scores(self, split: str) -> SplitScores:
    """What the runs' files under `eval/` say of a split."""
    of_systems = []
    for run in self.runs:
      by_seed = []
      for seed in self.seeds:
        own = seed if seed in run.seeds else run.seeds[0]
        file = results.folder(run.folder, split, own, run.seeds) / "run.trec"
        by_seed.append(run_files.scores(file, self.data.splits[split], read_run(file)))
      of_systems.append(by_seed)
    return of_systems


def fuse(folders: Sequence[str], output: epath.PathLike) -> dict[str, Any]:
  """Writes the fused rankings of finished runs into a folder that `compare` reads like a run's.

  Args:
    folders: two to `MOST` runs of re-ranking, on the same questions; seed goes with seed.
    output: a new folder.

  Returns:
    What `fusion.json` there says: `weights` by run; `selecting`: the split that chose them; there
    `map` of each run and `fused_cross_fitted`; `gain` over the run that is best on the other folds,
    with `half_width`, 95 % over questions (of the models at hand).

  Raises:
    InputError: a run that is not finished, ranks a pool, or answered other questions; runs that are
      selected on different splits, or have no seed in common; too few questions to choose by.

  """
  with open_working(output) as (folder, _):
    systems = _opened(folders)
    config, data = systems.runs[0].config, systems.data
    selecting = selection_split(config.data)
    standardised = _standardised(systems.scores(selecting))
    weights, estimate = _chosen(standardised, data, selecting, config.evaluation.ties)
    splits = [split for split in _splits(systems) if split in data.splits]
    outcomes = [results.Outcome(seed, -1, -1, None, -1) for seed in systems.seeds]
    written = config.copy_and_resolve_references().unlock()
    written.seeds = systems.seeds
    for split in splits:
      sums = _sums(_standardised(systems.scores(split)), weights)
      for outcome, scores in zip(outcomes, sums, strict=True):
        results.record(folder, outcome, {"fused": scores}, data, split, written)
      results.note_evaluation(folder, split, systems.seeds, data.name, "fuse")
    deterministic = all(run.results.get("deterministic") for run in systems.runs)
    results.write(
      folder,
      written,
      results.data_record(data, config.data),
      {},
      outcomes,
      {"deterministic": deterministic, "before_training": [], **_origin(systems)},
    )
    content = {
      "weights": dict(zip(systems.names, weights, strict=True)),
      "selecting": selecting,
      "map": dict(zip(systems.names, estimate.single, strict=True)),
      "fused_cross_fitted": estimate.fused,
      "gain": estimate.gain,
      "half_width": estimate.half_width,
    }
    write_whole(folder / CARD, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
  return content


def _opened(folders: Sequence[str]) -> _Systems:
  if len(folders) < 2 or len(set(folders)) < len(folders):
    raise InputError(f"{', '.join(folders) or 'nothing'}: give two runs or more, each once")
  if len(folders) > MOST:
    raise InputError(
      f"{len(folders)} runs: at most {MOST} are fused, as all weights in tenths are tried; leave out "
      "those with the lowest MAP"
    )
  runs = tuple(map(Run, folders))
  for name, run in zip(folders, runs, strict=True):
    if run.results["task"] != "rerank":
      raise InputError(
        f"{name} ranks a pool; what is fused are scores of a question's own candidates"
      )
  first, selecting = runs[0], selection_split(runs[0].config.data)
  for name, run in zip(folders, runs, strict=True):
    if selection_split(run.config.data) != selecting:
      raise InputError(
        f"{name} is selected on {selection_split(run.config.data)}, {folders[0]} on {selecting}: "
        "fuse runs that hold out the same questions"
      )
  run_scores.load(folders, split=selecting)  # says where questions or data differ
  trained = [set(run.seeds) for run in runs if not run.results.get("deterministic")]
  seeds = set.intersection(*trained) if trained else {first.seeds[0]}
  if not seeds:
    raise InputError(
      f"{', '.join(folders)} have no seed in common: train one with the seeds of another"
    )
  data = load_dataset(first.config.data)
  for name, run in zip(folders, runs, strict=True):
    results.require_unchanged(name, run.results, data)
  return _Systems(tuple(folders), runs, data, tuple(sorted(seeds)))


def _origin(systems: _Systems) -> dict[str, Any]:
  """What the runs' encoders are, and the first stage where one run's seeds share it: it is the sum's, too."""
  known = ("weights", "warm_start", "data")
  parts = [{key: run.results[key] for key in known if key in run.results} for run in systems.runs]
  loaded = run_scores.load(systems.names, split=selection_split(systems.runs[0].config.data))
  shared = [part["warm_start"] for part, its in zip(parts, loaded, strict=True) if its.shared_stage]
  named = [part | {"data": {"name": part["data"]["name"]}} for part in parts]
  return {"fused": named, **({"warm_start": shared[0]} if shared else {})}


def _splits(systems: _Systems) -> list[str]:
  """The splits that every run has evaluated."""
  by_run = [results.splits_of(run.results) for run in systems.runs]
  return [split for split in by_run[0] if all(split in others for others in by_run)]


def _standardised(scores: SplitScores) -> list[list[list[np.ndarray]]]:
  return [[list(map(standardised, seed)) for seed in system] for system in scores]


def standardised(scores: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
  """The scores of one question, float64, of mean 0 and variance 1; zeros where all are equal."""
  values = np.asarray(scores, np.float64)
  if not len(values) or (values == values[0]).all():
    return np.zeros_like(values)
  return (values - values.mean()) / values.std()


def _sums(scores: SplitScores, weights: Sequence[float]) -> list[list[np.ndarray]]:
  """By seed, the weighted sums of each question, float32."""
  by_seed = []
  for of_systems in zip(*scores, strict=True):
    questions = zip(*of_systems, strict=True)
    total = lambda its: sum(w * x for w, x in zip(weights, its, strict=True))
    by_seed.append([np.asarray(total(its), np.float32) for its in questions])
  return by_seed


def grid(systems: int) -> list[tuple[float, ...]]:
  """All weights of sum 1 in tenths, the most even first: of equals, that one is taken."""
  weights = []
  # Of a row of tenths and bars, each system has the tenths between two bars.
  for bars in itertools.combinations(range(STEPS + systems - 1), systems - 1):
    ends = (-1, *bars, STEPS + systems - 1)
    weights.append(tuple((b - a - 1) / STEPS for a, b in itertools.pairwise(ends)))
  return sorted(weights, key=lambda one: sum(w * w for w in one))


@dataclasses.dataclass(frozen=True)
class _Estimate:
  single: tuple[float, ...]
  fused: float
  gain: float
  half_width: float


def _chosen(
  scores: SplitScores, data: Dataset, split: str, ties: str
) -> tuple[tuple[float, ...], _Estimate]:
  """The weights with the best MAP, and what they are worth, by cross-fitting."""
  labels = [np.asarray([c.label for c in q.candidates]) for q in data.splits[split]]
  mask = metrics.filter_mask(data.clean, labels)
  questions = [q for q, counts in zip(data.splits[split], mask, strict=True) if counts]
  folds = np.asarray([fold_of(question, FOLDS) for question in questions])
  if len(set(folds.tolist())) < 2:
    raise InputError(
      f"{split} has {len(questions)} questions that count, too few to choose weights by"
    )
  choices = grid(len(scores))
  average_precision = lambda sums: metrics.per_question(
    sums,
    labels,
    [[c.id for c in q.candidates] for q in data.splits[split]],
    ties=ties,
    names=[q.id for q in data.splits[split]],
  )["map"][mask]
  values = np.stack(
    [
      np.mean([average_precision(of_seed) for of_seed in _sums(scores, one)], axis=0)
      for one in choices
    ]
  )  # [choices, questions]
  alone = [
    choices.index(tuple(float(i == k) for i in range(len(scores)))) for k in range(len(scores))
  ]
  fused, best = np.zeros(len(questions)), np.zeros(len(questions))
  for fold in sorted(set(folds.tolist())):
    here, others = folds == fold, folds != fold
    means = values[:, others].mean(1)
    fused[here] = values[means.argmax(), here]
    best[here] = values[alone[int(means[alone].argmax())], here]
  width = significance.half_width((fused - best)[None])
  assert width is not None, "two folds hold two questions"
  estimate = _Estimate(
    tuple(float(values[k].mean()) for k in alone),
    float(fused.mean()),
    float((fused - best).mean()),
    width,
  )
  return choices[int(values.mean(1).argmax())], estimate


def report(content: Mapping[str, Any], output: str) -> str:
  """`fusion.json` as text."""
  width = max(map(len, content["weights"]))
  lines = [f"{'run':{width}s}  weight  MAP on {content['selecting']}"]
  for name, weight in content["weights"].items():
    lines.append(f"{name:{width}s}  {weight:6.1f}  {content['map'][name]:.4f}")
  lines += [
    f"{'fused':{width}s}          {content['fused_cross_fitted']:.4f} (cross-fitted over {FOLDS} folds)",
    f"gain over the best alone: {content['gain']:+.4f} ± {content['half_width']:.4f} (95 % over questions, "
    "these models)",
    f"as2jax compare {next(iter(content['weights']))} {output}",
  ]
  return "\n".join(lines)
