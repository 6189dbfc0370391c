"""What a model wants watched at each evaluation, beside the metrics: a table of watchers by model.

The loop asks the watcher for one `Seen` a seed of the variables: on the split that selects after each
epoch, and of the best checkpoint at the end. Most models have none, and nothing is seen.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import jax
from etils import epath

from as2jax.runtime import registry
from as2jax.runtime.files import write_whole


@dataclasses.dataclass(frozen=True)
class Seen:
  """What was seen of one seed.

  Attributes:
    scalars: for the log and the results, under names that hold the split.
    files: text by name, for a folder of the evaluation.
    facts: for the results alone.

  """

  scalars: dict[str, float] = dataclasses.field(default_factory=dict)
  files: dict[str, str] = dataclasses.field(default_factory=dict)
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)


class Watcher(Protocol):
  """Looks at a split with every seed of the variables."""

  def __call__(self, variables: Any, split: str) -> list[Seen]: ...


def make(experiment: Any, mesh: jax.sharding.Mesh, seeds: int) -> Watcher:
  """The watcher of the experiment's model, for variables of so many seeds."""
  name = experiment.config.model.name
  if name not in registry.WATCHERS:
    return lambda variables, split: [Seen()] * seeds
  return registry.find(registry.WATCHERS, name, "model.name")(experiment, mesh, seeds)


def write(
  workdir: epath.PathLike, seen: Seen, *, epoch: int, seed: int, seeds: Sequence[int]
) -> None:
  """Writes the files of an evaluation: `watched/[seed-<k>/]epoch-<n>/<name>`."""
  folder = epath.Path(workdir) / "watched"
  if len(seeds) > 1:
    folder = folder / f"seed-{seed}"
  for name, text in seen.files.items():
    write_whole(folder / f"epoch-{epoch:03d}" / name, text)
