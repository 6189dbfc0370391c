"""Published figures that stand beside a run: those of a paper's row with its model, loss and data.

The encoder may be another one, which the row's name says, but not one of toy size; what is not
trained is its encoder, so that it must be the paper's. Metric, question filter and split are those
of the paper's column.
"""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from as2jax.config.overrides import flatten
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
  by_name: dict[tuple[str, str], Published] = {}
  for tables in papers.values():
    for config in wanted:
      for one in _of_paper(tables, config, where):
        by_name.setdefault((one.metric, one.whose), one)
  return list(by_name.values())


def _paper(table: Table) -> str:
  return table.title.partition(" (")[0]


def _without(config: Config, content: Mapping[str, Any]) -> bool:
  """Return whether a run has no published figure: the sample, a second stage, a toy encoder."""
  if config["data"]["name"] == "sample" or config["warm_start"]["run"]:
    return True
  named = config.get("encoder", {}).get("pretrained")
  return bool(named) and content.get("parameters", {}).get("all", 0) < SMALLEST


def _of_paper(tables: Sequence[Table], config: Config, where: str) -> list[Published]:
  """Return the figures of a config's row of a paper: that with its encoder, else the job's."""
  alike = [
    (table, row, key, _weights(config) == _weights(theirs), ":" in row.runs[key].config)
    for table in tables
    for row, key, theirs in _rows(table, where)
    if _same(config, theirs)
  ]
  exact = [match for match in alike if match[3]]
  nearest = sorted(alike, key=lambda match: match[4])[:1]
  chosen = exact or nearest * _may_differ(config)
  name = chosen[0][1].name if chosen else ""
  return [
    one
    for table, row, key, *_ in chosen
    if row.name == name
    for one in _of_row(table, row, key, where)
  ]


def _rows(table: Table, where: str) -> Iterator[tuple[Row, str, Config]]:
  """Yield rows with the key and the config of a run that a column measures as `where` says."""
  for row in table.rows:
    for key, run in row.runs.items():
      job = pathlib.PurePath(run.config.partition(":")[0]).stem
      if run.after or not where.startswith(job.partition("_")[0]):
        continue  # its weights come from another run, or another data set
      if any(column.runs == (key,) and _measured(column, where) for column in table.columns):
        try:
          yield row, key, plan.resolve(run, Choice())[0].to_dict()
        except InputError:
          continue  # a row that its job cannot state


def _measured(column: Any, where: str) -> bool:
  return where.endswith(f"-{column.question_filter}/{column.split}")


def _same(mine: Config, theirs: Config) -> bool:
  """Return whether two configs are one system on one data set under one protocol."""
  sections = lambda config: (
    flatten(config["model"]),
    config["loss"]["name"],
    config["data"]["name"],
    config["data"].get("prompts") or (),
    config["evaluation"]["task"],
  )
  return _plain(sections(mine)) == _plain(sections(theirs))


def _plain(value: Any) -> Any:
  """Return tuples as lists, as JSON has them."""
  if isinstance(value, Mapping):
    return {key: _plain(one) for key, one in value.items()}
  return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _weights(config: Config) -> tuple[str, ...]:
  """Return the file names of what an encoder reads."""
  encoder = config.get("encoder", {})
  return tuple(str(encoder.get(key) or "").rpartition("/")[2] for key in WEIGHTS)


def _may_differ(config: Config) -> bool:
  """Return whether a run with another encoder may stand beside the paper's: trained, no vectors."""
  encoder = config.get("encoder", {})
  return config["loss"]["name"] != "none" and bool(encoder.get("pretrained"))


def _of_row(table: Table, row: Row, key: str, where: str) -> Iterable[Published]:
  """Yield the figures of a row under the columns that measure what `where` says."""
  whose = row.name if _paper(table) in row.name else f"{row.name} ({_paper(table)})"
  for column, value in zip(table.columns, row.published, strict=True):
    if value is not None and column.runs == (key,) and _measured(column, where):
      value = round(value / table.scale, 9)
      yield Published(column.metric, whose, value, f"{row.name} in {table.title}")
