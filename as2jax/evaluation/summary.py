"""What a person is told at the end of a run, in at most ten lines."""

from typing import Any

from etils import epath

from as2jax.evaluation import results

SHOWN = {"rerank": ("map", "mrr", "p@1"), "retrieve": ("mrr", "r@1", "r@5")}
LINES = 10
FILES = (
  "results.json",
  "checkpoints/best",
  "checkpoints/seed-*/best",
  "eval/*/run.trec",
  "eval/*/seed-*/run.trec",
  "tensorboard",
)


def summary(content: dict[str, Any], folder: str) -> str:
  """The figures of each reported split, seeds and best epochs, where files are, what to type next.

  Args:
    content: of `results.json`.
    folder: of the run, as it is typed.

  """
  task = content["task"]
  kept = results.QUESTION_FILTERS[task]
  lines = []
  for of in dict.fromkeys(name.partition("[")[2].rstrip("]") for name in content["metrics"]):
    data, _, split = of.rpartition("/")
    if not data.endswith(f"-{kept}"):
      continue
    metrics = {name: content["metrics"].get(f"{name}[{of}]") for name in SHOWN[task]}
    figures = [f"{name.upper()} {_figure(entry)}" for name, entry in metrics.items() if entry]
    lines.append(f"{split} ({data}): {'  '.join(figures)}")
    counts = content["data"]["splits"].get(split, {}).get("question_filters", {}).get(kept, {})
    if "positives" in counts:
      lines.append(
        f"  {counts['questions']} questions, {counts['pairs']} candidates, "
        f"{counts['positives']} of them right"
      )
  best = ", ".join(str(one["best_epoch"]) for one in content["seeds"])
  seeds = ", ".join(str(one["seed"]) for one in content["seeds"])
  if any(one["steps"] > 0 for one in content["seeds"]):
    lines.append(f"best epoch {best} (seed {seeds}), by {content['selected_on']}")
  notes = [
    f"note: seed {seed}: {results.BEFORE_TRAINING}" for seed in results.before_training(content)
  ]
  end = [
    f"files: {folder}: {', '.join(name for name in FILES if any(epath.Path(folder).glob(name)))}",
    f"next:  as2jax rank {folder} FILE",
    f"       as2jax compare OTHER_RUN {folder}{_split(content)}",
  ]
  if content.get("parameters", {}).get("all"):
    end.append(f"       as2jax export {folder} FOLDER")
  return "\n".join([*lines, *notes][: LINES - len(end)] + end)


def _split(content: dict[str, Any]) -> str:
  """The option of `compare` where the run has not reported `test`, which is its default."""
  splits = [name.rpartition("/")[2].rstrip("]") for name in content["metrics"]]
  return "" if "test" in splits or not splits else f" --split={splits[0]}"


def _figure(entry: dict[str, Any]) -> str:
  width = entry["half_width"]
  spread = f", s.d. {entry['sd']:.4f} of {entry['seeds']} seeds" if entry["sd"] else ""
  return f"{entry['mean']:.4f}" + ("" if width is None else f" ± {width:.4f}") + spread
