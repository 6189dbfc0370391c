"""Our figures, made from configs/papers/results (`as2jax lab measured`, in a clone).

Prints the tables that stand in configs/papers/README.md and in the root README; --write puts them
there. --collect FOLDER takes a finished run into configs/papers/results under the name of its
folder (NAME=FOLDER under another). --missing prints the commands of the rows without results.

A row of configs/papers/measured_rows.py without results is shown as not trained yet.
"""

import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from as2jax.config import jobs as job_files
from as2jax.encoders import pretraining
from as2jax.evaluation import compare, results, run_scores, significance
from as2jax.evaluation.run_scores import RunScores
from as2jax.experiments.papers import collected
from as2jax.experiments.papers.rows import Column, Run
from as2jax.experiments.sweeps import table as sweep_table
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

NOT_YET = "not trained yet"
LEGEND = (
  "± is the 95 % half-width of a mean over questions, the s.d. over seeds stands in brackets. The "
  "difference, its half-width and p are of methods (seeds and questions are random); `finds` is the "
  "smallest difference that would be found in 80 % of cases."
)
FEW = 3  # seeds, below which a trained row is no published figure
READMES = ("configs/papers/README.md", "README.md")


class Measured(NamedTuple):
  """One row.

  Attributes:
    system: as the table calls it.
    name: of its folder in configs/papers/results, "" of a published row.
    run: its job.
    published: the cells of the columns of a published row.

  """

  system: str
  name: str = ""
  run: Run = Run("")
  published: tuple[str, ...] = ()


class MeasuredTable(NamedTuple):
  """One table.

  Attributes:
    name: of its place in a README.
    columns: their `runs` are not looked at: the data set is that of the run.
    base: name of the row with which the others are compared by the column `main`; "" for none.
    commands: whether the table is followed by the commands of its rows.
    first: runs that rows begin with, by name.

  """

  name: str
  columns: tuple[Column, ...]
  rows: tuple[Measured, ...]
  base: str = ""
  main: int = 0
  commands: bool = True
  first: tuple[Measured, ...] = ()


class Summary(NamedTuple):
  """One row of the root README's table: a row of another table, by one of its columns.

  Attributes:
    data: the data set and the metric; "" for those of the row above.
    table, column, name: of the table's row; `column` by position.
    paper: the published figure.
    system: as this table calls it; "" as the other one does.

  """

  data: str
  table: str
  column: int
  name: str
  paper: str = ""
  system: str = ""


class Closing(NamedTuple):
  """One row of the table over all data sets, by the MAP of its runs on clean test.

  Attributes:
    system: as the table calls it.
    names: of its folders in configs/papers/results, one a data set of `CLOSING_DATA`; "" for none.
    command: of a system that is not ours, with places for {data} and {output}; "" of ours.

  """

  system: str
  names: tuple[str, ...]
  command: str = ""


def tables() -> tuple[MeasuredTable, ...]:
  """Those of configs/papers/measured_rows.py."""
  return job_files.module("papers.measured_rows").TABLES


def rendered(table: MeasuredTable, folder: pathlib.Path) -> str:
  """A table in Markdown, with what must be said of its rows."""
  there = lambda name: bool(name) and (folder / name / "results.json").exists()
  base = next((row for row in table.rows if row.name == table.base), None)
  compared = base is not None and there(base.name)
  heading = [column.heading for column in table.columns]
  difference = f"{table.columns[table.main].heading} − {base.system}" if compared else ""
  cells = [["system", *heading, "seeds", *[difference] * compared]]
  notes, seen = [], []
  trained = [row for row in table.rows if there(row.name)]
  of_questions = {
    questions: _scores(folder, trained, *questions, together=compared)
    for questions in dict.fromkeys(map(_questions, table.columns))
  }
  columns = [of_questions[_questions(column)] for column in table.columns]
  loaded = dict(zip((row.name for row in trained), zip(*columns, strict=True), strict=True))
  for row in table.rows:
    if row.name not in loaded:
      mark = f" ({NOT_YET})" if row.name else ""
      figures = row.published or [""] * len(heading)
      cells.append([row.system + mark, *figures, "", *[""] * compared])
      continue
    scores = loaded[row.name]
    notes += _notes(row, folder / row.name, scores[0], table.columns)
    seen.append(scores[0].pretraining)
    seeds = "–" if scores[0].deterministic else str(len(next(iter(scores[0].values.values()))))
    against = [_against(loaded[base.name], scores, table)] if compared else []
    cells.append([row.system, *map(_cell, scores, table.columns), seeds, *against])
  lines = sweep_table.markdown(cells, left=1)
  if trained:
    notes += _trained_on([(row.system, folder / row.name) for row in trained])
    notes += _hours([folder / row.name for row in trained])
    known = [f"{line[:1].upper()}{line[1:]}." for line in pretraining.under_table(seen)]
    lines += ["", " ".join([LEGEND, *notes, *known])]
  if table.commands:
    lines += ["", "```bash", *commands(table.rows, table.first), "```"]
  return "\n".join(lines)


def _trained_on(rows: Sequence[tuple[str, pathlib.Path]]) -> list[str]:
  """A sentence for each accelerator that trained some of the rows, given as (name, folder)."""
  names: dict[str, list[str]] = {}
  for name, place in rows:
    if place.exists() and (device := collected.accelerator(place)):
      names.setdefault(device, []).append(name)
  return [f"Trained on {device}: {'; '.join(its)}." for device, its in names.items()]


def _hours(places: Sequence[pathlib.Path]) -> list[str]:
  """A sentence: how long the training steps of all seeds of the runs took, by what trained them."""
  spent: dict[str, float] = {}
  for place in places:
    if seconds := collected.step_time(place):
      device = collected.accelerator(place) or "a CPU"
      spent[device] = spent.get(device, 0.0) + seconds / 3600
  parts = [f"{hours:.1f} hours on {device}" for device, hours in spent.items()]
  return [f"All training steps took {' and '.join(parts)}."] * bool(parts)


def summary(folder: pathlib.Path) -> str:
  """The root README's table: one figure a row."""
  known = {table.name: table for table in tables()}
  cells = [["data, metric", "system", "ours", "paper"]]
  for one in job_files.module("papers.measured_rows").SUMMARY:
    table = known[one.table]
    row = next(row for row in table.rows if row.name == one.name)
    there = (folder / row.name / "results.json").exists()
    column = table.columns[one.column]
    figure = _cell(*_scores(folder, [row], *_questions(column)), column) if there else NOT_YET
    device = collected.accelerator(folder / row.name) if there else ""
    system = (one.system or row.system) + (f" ({device})" if device else "")
    cells.append([one.data, system, figure, one.paper])
  return "\n".join(sweep_table.markdown(cells, left=4))


def closing(folder: pathlib.Path) -> str:
  """The table over all data sets: MAP on clean test, seeds, and seconds of a seed's training steps."""
  module = job_files.module("papers.measured_rows")
  judges = module.CLOSING[0].names  # they say which questions are clean
  cells = [["system", *module.CLOSING_DATA]]
  for row in module.CLOSING:
    of_row = zip(row.names, judges, strict=True)
    cells.append([row.system, *(_closing_cell(folder, *names) for names in of_row)])
  lines = sweep_table.markdown(cells, left=1)
  places = [
    (f"{row.system} ({data})", folder / name)
    for row in module.CLOSING
    for name, data in zip(row.names, module.CLOSING_DATA, strict=True)
    if name
  ]
  said = _trained_on(places)
  lines += ["", " ".join(said)] if said else []
  commands = []
  for name, command in peers().items():
    seeds = collected.peer_seeds(folder / name)
    commands.append(f"{command} --seeds={seeds}" if seeds else command)
  return "\n".join([*lines, "", "```bash", *dict.fromkeys(commands), "```"])


def _closing_cell(folder: pathlib.Path, name: str, judge: str) -> str:
  if not (name and (folder / name).exists()):
    return NOT_YET if name else ""
  column = Column("MAP", (), "map")
  foreign = collected.peer_tables(folder / name, column.split)
  names = [str(folder / judge), foreign] if foreign else [str(folder / name)]
  scores = run_scores.load(names, split=column.split)[-1]
  spent = collected.cpu_seconds_per_seed(folder / name)
  figure = _cell(scores, column, counted=True)
  return figure + (f", {spent:.0f} s" if spent else "")


def _questions(column: Column) -> tuple[str, str]:
  """Split and question filter."""
  return column.split, column.question_filter


def _scores(
  folder: pathlib.Path, rows: Sequence[Measured], split: str, rule: str, together: bool = False
) -> list[RunScores]:
  """Those of the rows; of rows `together`, which must have answered the same questions."""
  names = [str(folder / row.name) for row in rows]
  load = lambda its: run_scores.load(its, split=split, question_filter=rule)
  return load(names) if together else [one for name in names for one in load([name])]


def _cell(scores: RunScores, column: Column, counted: bool = False) -> str:
  """A figure with its half-width and the s.d. over seeds; `counted` adds the number of seeds."""
  if column.metric not in scores.values:  # it has no value of a question (SSE)
    content, title = results.read(scores.name), scores.title(column.metric)
    if title not in content["metrics"] and not content.get("parameters", {}).get("all"):
      return ""  # it is of vectors, which a ranker without parameters has not
    entry = content["metrics"][title]
    return _short(entry["mean"]) + (f" ({_short(entry['sd'])})" if entry["sd"] is not None else "")
  values = scores.metric(column.metric)
  mean, sd = significance.mean_sd(values.mean(1))
  number = f"; {len(values)}" if counted else ""
  spread = "" if sd is None or scores.deterministic else f" ({_short(sd)}{number})"
  return f"{_short(mean)} ± {_short(significance.half_width(values))}{spread}"


def _short(value: float) -> str:
  return f"{value:.3f}".removeprefix("0")


def _signed(value: float) -> str:
  return ("−" if value < 0 else "+") + _short(abs(value))


def _against(first: Sequence[RunScores], other: Sequence[RunScores], table: MeasuredTable) -> str:
  """The difference of a row to the base by the main column, of methods."""
  if other is first:
    return ""
  main = table.main
  comparison = compare.methods(other[main], first[main], table.columns[main].metric)
  if comparison.why:
    return f"{_signed(comparison.difference)}: {comparison.why}"
  return (
    f"{_signed(comparison.difference)} ± {_short(comparison.half_width)} (p {compare.p_text(comparison.p)}, "
    f"finds {_short(comparison.detectable)})"
  )


def _notes(
  row: Measured, place: pathlib.Path, scores: RunScores, columns: Sequence[Column]
) -> list[str]:
  notes = []
  seeds = len(next(iter(scores.values.values())))
  if not scores.deterministic and seeds < FEW:
    notes.append(f"{row.system}: fewer than {FEW} seeds.")
  if scores.note:
    notes.append(f"{row.system}: {scores.note}.")
  count = results.times_evaluated(place, "test", results.read(place)["data"]["name"])
  shown = any("test" in column.split.split("+") for column in columns)
  if count != 1 and (shown or count != 0):  # a table of other questions leaves test unread
    notes.append(f"{row.system}: {results.ledger_note(count)}.")
  return notes


def commands(rows: Sequence[Measured], first: Sequence[Measured] = ()) -> list[str]:
  """The command of each row, whose folder has the row's name; what comes `first` first."""
  lines = []
  for row in (*first, *rows):
    if row.name:
      settings = [f"--config.{k}={v}".replace(", ", ",") for k, v in row.run.settings.items()]
      words = [f"--config={row.run.config}", *settings, f"--workdir=runs/{row.name}"]
      quoted = [word if word == shlex.quote(word) else _quoted(word) for word in words]
      lines.append(" ".join(["python -m as2jax.main", *quoted]))
  return lines


def _quoted(word: str) -> str:
  """A word for a shell; within "…" an interactive bash would take ! for one of its history."""
  return "'" + word.replace("'", '"') + "'" if "!" in word else f'"{word}"'


def place(name: str) -> tuple[str, str]:
  """The lines between which a table stands in a README."""
  return f"<!-- measured: {name} -->", f"<!-- end of {name} -->"


def with_tables(text: str, made: Mapping[str, str]) -> str:
  """The text of a README with the tables in `made`, by name, in their places.

  Raises:
    InputError: a place that has no end.

  """
  for name, markdown in made.items():
    begin, end = place(name)
    if begin not in text:
      continue
    before, _, rest = text.partition(begin)
    _, separator, after = rest.partition(end)
    if not separator:
      raise InputError(f"the line {end} is missing after {begin}")
    text = f"{before}{begin}\n{markdown}\n{end}{after}"
  return text


def every(folder: pathlib.Path) -> dict[str, str]:
  """Every table, with `closing` and the `summary` of the root README, by name."""
  made = {table.name: rendered(table, folder) for table in tables()}
  return {**made, "closing": closing(folder), "summary": summary(folder)}


def peers() -> dict[str, str]:
  """The command that makes it, for each folder of a system that is not ours."""
  module = job_files.module("papers.measured_rows")
  return {
    name: row.command.format(data=data, output=f"runs/{name}")
    for row in module.CLOSING
    for name, data in zip(row.names, module.CLOSING_DATA.values(), strict=True)
    if row.command and name
  }


def rows() -> dict[str, Measured]:
  """Every row that has a run, by name."""
  return {row.name: row for table in tables() for row in (*table.first, *table.rows) if row.name}


def _collect(argument: str, folder: pathlib.Path) -> None:
  name, equals, source = argument.rpartition("=")
  name = name or pathlib.Path(source).name
  if name in peers():
    print(collected.collect_peer(pathlib.Path(source), name, folder))
    return
  if name not in rows():
    raise InputError(f"{argument}: there is no row {name!r}: name one of {', '.join(rows())}")
  print(collected.collect(pathlib.Path(source), name, rows()[name].run, folder))


def run(
  wanted: Sequence[str], *, collect: Sequence[str] = (), write: bool = False, missing: bool = False
) -> str:
  """What `as2jax lab measured` does; returns what it prints.

  Args:
    wanted: names of tables; all where there are none.
    collect: folders of finished runs to be taken in, as `NAME=FOLDER` under another name.
    write: whether the tables are put into the READMEs.
    missing: whether the commands of the rows without results are told in place of the tables.

  Raises:
    InputError: no such table or row, a run that is not that row's.

  """
  folder = collected.folder()
  for one in collect:
    _collect(one, folder)
  if collect and not write:
    return ""
  if missing:
    lacks = [
      row for row in rows().values() if not (folder / f"{row.name}{collected.PACKED}").exists()
    ]
    return "\n".join(dict.fromkeys(commands(lacks)))
  with collected.unpacked(folder) as place:
    markdown = every(place)
  if write:
    for name in READMES:
      path = job_files.folder().parent / name
      write_whole(path, with_tables(path.read_text(encoding="utf-8"), markdown))
    return "\n".join(f"written: {name}" for name in READMES)
  for name in wanted:
    if name not in markdown:
      raise InputError(f"there is no table {name!r}: name one of {', '.join(markdown)}")
  return "\n\n".join(f"{name}\n\n{markdown[name]}" for name in wanted or markdown)
