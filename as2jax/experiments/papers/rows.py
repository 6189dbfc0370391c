"""Describe papers' tables and our measured rows, as data: see `configs/papers`."""

import functools
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from as2jax.config import jobs as job_files
from as2jax.experiments.sweep import settings_of
from as2jax.runtime.errors import InputError

PAGES = ("asbert", "cete", "cassie", "cross_vaes", "m2snet", "recipes")


class Column(NamedTuple):
  """One column of figures, `map[wikiqa-clean/test]` in results.

  Attributes:
    heading: as the table has it.
    runs: the keys of `Row.runs` that it averages over, one where it is no average.

  """

  heading: str
  runs: tuple[str, ...] = ("",)
  metric: str = "map"
  question_filter: str = "clean"
  split: str = "test"


class Run(NamedTuple):
  """One job, once for each of its config's seeds.

  Attributes:
    config: FILE.py:ARGUMENT; settings: overrides of it.
    after: config key -> the run whose folder it names, with one seed, which is finished before.
    name: under which its results are kept; hours: about how many a CPU core trains it, 0 unknown.

  """

  config: str
  settings: Mapping[str, Any] = {}
  after: Mapping[str, "Run"] = {}
  name: str = ""
  hours: float = 0


class Peer(NamedTuple):
  """A system that is no run of ours: its command, and the name under which its results are kept."""

  command: str
  name: str


class Row(NamedTuple):
  """One system, with its published figures in the order of the columns (None where there is none).

  Attributes:
    runs: by the keys that columns name; empty where there is nothing to run.
    lacks: why nothing is run.

  """

  name: str
  published: tuple[float | None, ...] = ()
  runs: Mapping[str, Any] = {}
  lacks: str = ""


class Table(NamedTuple):
  """One table, a paper's or our own.

  Attributes:
    title: of a paper's; scale: 100 where it prints per cent.
    claims: pairs of rows of which the paper says that the second is the better one.
    searches: questions that every row's run searches in its test sentences.
    base: name of the kept run with which the others are compared by the column `main`; "" for none.
    first: rows that others begin with.

  """

  name: str
  columns: tuple[Column, ...]
  rows: tuple[Row, ...]
  title: str = ""
  scale: int = 1
  claims: tuple[tuple[str, str], ...] = ()
  searches: tuple[str, ...] = ()
  base: str = ""
  main: int = 0
  first: tuple[Row, ...] = ()


def paper_tables() -> dict[str, Table]:
  """Return the tables that `as2jax lab paper` runs, by name."""
  tables = {}
  for page in PAGES:
    for name, values in _read(page).get("tables", {}).items():
      tables[name] = _table(name, values)
  rerankers = job_files.module("papers.rerankers").TABLE
  return {**tables, rerankers.name: rerankers}


def load(name: str) -> Table:
  """Return the paper's table of that name; raise InputError where there is none."""
  tables = paper_tables()
  if name not in tables:
    raise InputError(f"there is no table {name}: name one of {', '.join(tables)}")
  return tables[name]


def measured_tables() -> dict[str, list[Table]]:
  """Return the tables of kept results, by the page on which they stand."""
  pages = {}
  for page in PAGES:
    pages[page] = [_table(name, its) for name, its in _read(page).get("measured", {}).items()]
  return pages


def claims() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """Return the rows of the papers' README and of the root README, as configs/papers/claims.toml has them."""
  content = _read("claims")
  return content["claims"], content["summary"]


@functools.cache
def _read(page: str) -> dict[str, Any]:
  path = job_files.folder() / "papers" / f"{page}.toml"
  return tomllib.loads(path.read_text(encoding="utf-8"))


def _table(name: str, values: Mapping[str, Any]) -> Table:
  values = dict(values)
  values["columns"] = tuple(map(column_of, values["columns"]))
  for key in ("rows", "first"):
    values[key] = tuple(_row(row, len(values["columns"])) for row in values.get(key, ()))
  values["claims"] = tuple(map(tuple, values.get("claims", ())))
  return Table(name, **values)


def column_of(text: str) -> Column:
  """Return the column of `HEADING = METRIC[FILTER/SPLIT] of KEY KEY`."""
  match = re.fullmatch(r"(.+) = (\S+)\[(\w+)/(\S+)\](?: of (.+))?", text)
  heading, metric, question_filter, split, keys = match.groups()
  return Column(heading, tuple((keys or "").split(" ")), metric, question_filter, split)


def _row(values: Mapping[str, Any], columns: int) -> Row:
  figures = tuple(figure or None for figure in values.get("published", [None] * columns))
  runs = values.get("runs", {})
  if "kept" in values:
    runs = {"": values}
  runs = {key: run_of(its) for key, its in runs.items()}
  return Row(values["name"], figures, runs, values.get("lacks", ""))


def run_of(values: Any) -> Run | Peer:
  """Return the run of `FILE.py:WORDS KEY=VALUE …`, or of a mapping with more than that."""
  if isinstance(values, str):
    values = {"run": values}
  name = values.get("kept", "")
  if "command" in values:
    return Peer(values["command"], name)
  config, *words = values.get("run", "").split(" ")
  after = {key: run_of(its) for key, its in values.get("after", {}).items()}
  return Run(f"configs/{config}", settings_of(words), after, name, values.get("hours", 0))
