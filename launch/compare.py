"""python -m launch.compare runs/base runs/x …: finished runs side by side, against the first.

Differences of MAP with the p-value of the paired randomization test over questions.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from etils import epath

from as2jax import results, significance
from as2jax.errors import InputError

SHOWN = ("map", "mrr", "p@1")


def table(folders: Sequence[str], split: str = "test") -> str:
  """Runs as the rows of a text table, on the clean questions of `split`.

  Raises:
    InputError: a folder without results, other data than the first's, no such split.
  """
  runs = [(folder, *_read(folder, split)) for folder in folders]
  _, first, content = runs[0]
  data = content["data"]["splits"][split]["fingerprint"]
  rule = content["data"]["clean"]
  name = _metric("map", content, split)
  rows = [("", *(m.upper() for m in SHOWN), f"MAP − {epath.Path(folders[0]).name}")]
  for folder, files, found in runs:
    if found["data"]["splits"].get(split, {}).get("fingerprint") != data:
      raise InputError(f"{folder} was evaluated on other data than {folders[0]}: compare runs of "
                       "one dataset and split")
    means = [f"{found['metrics'][_metric(m, found, split)]['mean']:.3f}" for m in SHOWN]
    against = ""
    if files != first:
      mine, base = (significance.load(x, "map", rule)[1] for x in (files, first))
      tested = significance.randomization_test(mine, base)
      against = (f"{tested.difference:+.3f} ± {tested.half_width:.3f}  "
                 f"(p {'<' if tested.p < 0.001 else '='} {max(tested.p, 0.001):.3f})")
    rows.append((epath.Path(folder).name, *means, against))
  entry = content["metrics"][name]
  width = max(len(row[0]) for row in rows)
  lines = [f"{name}: {entry['questions']} questions; ± is the 95 % half-width over them"]
  for title, *cells, last in rows:
    lines.append(f"  {title:{width}s}" + "".join(f"{cell:>8s}" for cell in cells) + f"   {last}")
  return "\n".join(line.rstrip() for line in lines)


def _metric(metric: str, content: dict, split: str) -> str:
  return f"{metric}[{content['data']['name']}-clean/{split}]"


def _read(folder: str, split: str) -> tuple[str, dict[str, Any]]:
  """The per-question tables of a run's seeds, joined by commas, and its results."""
  content = results.read(folder)
  if content is None:
    raise InputError(f"{folder} holds no results.json: give the --workdir of a finished run")
  if _metric("map", content, split) not in content["metrics"]:
    splits = [name for name in content["data"]["splits"]
              if _metric("map", content, name) in content["metrics"]]
    raise InputError(f"{folder} was not evaluated on {split}, only on {', '.join(splits)}")
  seeds = [outcome["seed"] for outcome in content["seeds"]]
  files = [str(results.folder(folder, split, seed, seeds) / "per_question.tsv") for seed in seeds]
  return ",".join(files), content


def main(arguments: Sequence[str] | None = None) -> int:
  """Prints `table`; returns the exit status."""
  parser = argparse.ArgumentParser(prog="python -m launch.compare",
                                   description=__doc__.partition(": ")[2])
  parser.add_argument("folders", nargs="+", metavar="WORKDIR", help="the first is the base")
  parser.add_argument("--split", default="test")
  given = parser.parse_args(arguments)
  try:
    print(table(given.folders, given.split))
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
