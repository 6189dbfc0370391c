"""What a page was asked for, and the exact commands that give it again."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from etils import epath

from as2jax.report.runs import Runs


@dataclasses.dataclass(frozen=True)
class Asked:
  """The arguments of `as2jax report`.

  Attributes:
    names: folders of finished runs, tables, or TREC run files; others are compared with the first.
    output: the page.
    split: of the runs' folders.
    metrics: the first leads the page; () are those of the task.
    question_filter: see `run_scores.load`.
    deterministic: names of files whose system has no randomness.
    published: {(metric, whose): figure}, drawn as hollow marks beside those that are known.
    files: a folder for every figure as SVG and PDF and the comparison as Markdown, LaTeX, CSV and
      JSON; "" for none.
    explain: so many questions that differ most are explained, which opens the runs' weights.
    question_ids: further questions to explain.

  """

  names: Sequence[str]
  output: epath.PathLike
  split: str = "test"
  metrics: Sequence[str] = ()
  question_filter: str | None = None
  deterministic: Sequence[str] = ()
  published: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)
  files: epath.PathLike = ""
  explain: int = 0
  question_ids: Sequence[str] = ()

  def commands(self, runs: Runs, metrics: Sequence[str]) -> list[str]:
    """The command of this page, that of its tests, and those that train the runs again.

    Args:
      metrics: of the page, which `as2jax compare` would not take by itself.

    """
    said = [shlex.join(["as2jax", "report", *self.names, "-o", str(self.output), *self._options()])]
    if len(self.names) > 1:
      said.append(shlex.join(["as2jax", "compare", *self.names, *self._shared(metrics)]))
    for system in runs.systems:
      if system.config:  # an evaluation on other data, or a fused run, has none
        folder = epath.Path(system.name)  # without a slash at its end
        config = f"rerun:{folder / 'config.json'}"
        said.append(shlex.join(["as2jax", "train", config, "-o", f"{folder}-again"]))
    return said

  def _shared(self, metrics: Sequence[str]) -> list[str]:
    """The options that `as2jax compare` has, too."""
    options = [f"--split={self.split}"]
    if metrics:
      options.append(f"--metrics={','.join(metrics)}")
    if self.question_filter:
      options.append(f"--filter={self.question_filter}")
    return [*options, *(f"--deterministic={name}" for name in self.deterministic)]

  def _options(self) -> list[str]:
    """All options of `as2jax report` that say what stands in the page."""
    options = [*self._shared(self.metrics), f"--explain={self.explain}"]
    options += [f"--question={id}" for id in self.question_ids]
    options += [
      f"--published={metric}={value!r}:{whose}" for (metric, whose), value in self.published.items()
    ]
    return options + ([f"--files={self.files}"] if self.files else [])
