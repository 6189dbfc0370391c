"""Published figures that stand beside a run: those of a paper's row with its model, loss and data.

The encoder may be another one, which the row's name says, but not one of toy size; what is not
trained is its encoder, so that it must be the paper's. Metric, question filter and split are those
of the paper's column.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from as2jax.experiments.papers import plan
from as2jax.experiments.papers.plan import Choice
from as2jax.experiments.papers.rows import Row, Table, paper_tables
from as2jax.runtime.errors import InputError

SMALLEST = 10_000_000  # parameters, below which an encoder is a toy
WEIGHTS = ("pretrained", "vectors", "weights")  # keys of an encoder that name what was published
Config = Mapping[str, Any]


class Published(NamedTuple):
  """One figure: of a metric such as `map`, whose row, from which table."""

  metric: str
  whose: str
  value: float
  source: str


class _Match(NamedTuple):
  """A row of a paper with a run's model, loss and data: with its very encoder, with words of the job."""

  table: Table
  row: Row
  key: str
  exact: bool
  words: bool


def figures(runs: Sequence[tuple[Config, Mapping[str, Any]]], where: str) -> list[Published]:
  """Find the published figures of the rows that runs are of.

  Args:
    runs: (config, content of `results.json`) of each.
    where: what the figures were measured on, such as `wikiqa-clean/test`.

  """
  wanted = [config for config, content in runs if not _without(config, content)]
  papers: dict[str, list[Table]] = {}
  for table in paper_tables().values() if wanted else ():
    papers.setdefault(_paper(table), []).append(table)
  found: dict[tuple[str, str], Published] = {}
  for tables in papers.values():
    for config in wanted:
      for match in _chosen(tables, config, where):
        for one in _of_row(match, where):
          found.setdefault((one.metric, one.whose), one)
  return list(found.values())


def _paper(table: Table) -> str:
  return table.title.partition(" (")[0]


def _without(config: Config, content: Mapping[str, Any]) -> bool:
  """Return whether a run has no published figure: the sample, a second stage, a toy encoder."""
  if config["data"]["name"] == "sample" or config["warm_start"]["run"]:
    return True
  named = config.get("encoder", {}).get("pretrained")
  return bool(named) and content.get("parameters", {}).get("all", 0) < SMALLEST


def _chosen(tables: Sequence[Table], config: Config, where: str) -> list[_Match]:
  """Return a config's row of a paper in its tables: that with its encoder, else the job's."""
  alike = [match for table in tables for match in _alike(table, config, where)]
  chosen = [match for match in alike if match.exact]
  trained = config["loss"]["name"] != "none" and config.get("encoder", {}).get("pretrained")
  if not chosen and trained:  # another encoder may stand beside the paper's: trained, no vectors
    chosen = sorted(alike, key=lambda match: match.words)[:1]
  return [match for match in chosen if match.row.name == chosen[0].row.name]


def _alike(table: Table, config: Config, where: str) -> Iterator[_Match]:
  """Yield rows that are one system on one data set under one protocol with a config."""
  for row in table.rows:
    for key, run in row.runs.items():
      job = pathlib.PurePath(run.config.partition(":")[0]).stem
      if run.after or not where.startswith(job.partition("_")[0]):
        continue  # its weights come from another run, or another data set
      if not any(column.runs == (key,) and _measured(column, where) for column in table.columns):
        continue
      try:
        theirs = plan.resolve(run, Choice())[0].to_dict()
      except InputError:
        continue  # a row that its job cannot state
      if _system(theirs) == _system(config):
        exact = _weights(config) == _weights(theirs)
        yield _Match(table, row, key, exact, ":" in run.config)


def _measured(column: Any, where: str) -> bool:
  return where.endswith(f"-{column.question_filter}/{column.split}")


def _system(config: Config) -> str:
  """Return what makes a config one system on one data set under one protocol, as JSON has it."""
  data = config["data"]
  facts = [config["model"], config["loss"]["name"], data["name"], data.get("prompts") or ()]
  return json.dumps([*facts, config["evaluation"]["task"]], sort_keys=True)


def _weights(config: Config) -> list[str]:
  """Return the file names of what an encoder reads."""
  encoder = config.get("encoder", {})
  return [str(encoder.get(key) or "").rpartition("/")[2] for key in WEIGHTS]


def _of_row(match: _Match, where: str) -> Iterator[Published]:
  """Yield the figures of a row under the columns that measure what `where` says."""
  table, name, paper = match.table, match.row.name, _paper(match.table)
  whose = name if paper in name else f"{name} ({paper})"
  for column, value in zip(table.columns, match.row.published, strict=True):
    if value is not None and column.runs == (match.key,) and _measured(column, where):
      value = round(value / table.scale, 9)
      yield Published(column.metric, whose, value, f"{name} in {table.title}")
