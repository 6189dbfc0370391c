"""What the table of a paper is made of: see `configs/papers`."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Column(NamedTuple):
  """One column of figures.

  Attributes:
    heading: as the paper has it.
    runs: the keys of `Row.runs` that it averages over, one where it is no average.
    metric, question_filter, split: parts of the figure's name in results, `map[wikiqa-clean/test]`.

  """

  heading: str
  runs: tuple[str, ...]
  metric: str
  question_filter: str = "clean"
  split: str = "test"


class Run(NamedTuple):
  """One job, once for each of its config's seeds.

  Attributes:
    config: FILE.py:ARGUMENT; settings: overrides of it.
    after: config key -> the run whose folder it names, with one seed, which is finished before.

  """

  config: str
  settings: Mapping[str, Any] = {}
  after: Mapping[str, "Run"] = {}

  @classmethod
  def of(cls, config: str, **settings: Any) -> "Run":
    """The job `configs/<config>`; the keys of `settings` have two underscores for a dot."""
    return cls(f"configs/{config}", {key.replace("__", "."): v for key, v in settings.items()})


class Row(NamedTuple):
  """One row: the published figures in the order of the columns (None where there is none).

  Attributes:
    runs: by the keys that columns name; empty where there is nothing to run.
    lacks: why nothing is run.
    gain_over: of a row that is no run: two rows by name, the second's relative gain over the first
      in per cent.

  """

  name: str
  published: tuple[float | None, ...]
  runs: Mapping[str, Run] = {}
  lacks: str = ""
  gain_over: tuple[str, ...] = ()
