"""Finished runs side by side, a line a run, against the first (`as2jax compare --brief`).

Differences of MAP with the p-value of the paired randomization test over questions.
"""

from collections.abc import Sequence

from etils import epath

from as2jax.encoders import pretraining
from as2jax.evaluation import run_scores, significance
from as2jax.runtime.errors import InputError

SHOWN, OF_POOL = ("map", "mrr", "p@1"), ("mrr", "r@1", "r@5")


def table(folders: Sequence[str], split: str = "test") -> str:
  """Render runs as the rows of a text table, on the clean questions of `split`.

  Raises:
    InputError: a folder without results, other data than the first's, no such split.

  """
  for folder in folders:
    if not epath.Path(folder).is_dir():
      raise InputError(f"{folder} holds no results.json: give the --workdir of a finished run")
  runs = run_scores.load(folders, split=split)  # clean questions; over a pool all of them
  shown = SHOWN if "map" in runs[0].values else OF_POOL
  main = shown[0]
  first = runs[0].metric(main)
  head = f"{main.upper()} − {epath.Path(folders[0]).name}"
  rows = [("", *(m.upper() for m in shown), head)]
  for n, run in enumerate(runs):
    means = [f"{run.metric(m).mean():.3f}" for m in shown]
    against = ""
    if n:
      tested = significance.randomization_test(run.metric(main), first)
      against = (
        f"{tested.difference:+.3f} ± {tested.half_width:.3f}  "
        f"(p {'<' if tested.p < 0.001 else '='} {max(tested.p, 0.001):.3f})"
      )
    title = epath.Path(run.name).name + (f" ({run.note})" if run.note else "")
    rows.append((title, *means, against))
  width = max(len(row[0]) for row in rows)
  lines = [f"{runs[0].title(main)}: {first.shape[1]} questions; ± is the 95 % half-width over them"]
  for title, *cells, last in rows:
    lines.append(f"  {title:{width}s}" + "".join(f"{cell:>8s}" for cell in cells) + f"   {last}")
  lines += pretraining.under_table(run.pretraining for run in runs)
  return "\n".join(line.rstrip() for line in lines)
