"""Make our tables from configs/papers/results (`as2jax lab measured`, in a clone).

They stand in configs/papers/*.md, its README and the root README. A row without results is shown as not
trained yet.
"""

import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence

from as2jax.config import jobs as job_files
from as2jax.evaluation import compare, results, run_scores, significance
from as2jax.evaluation.run_scores import RunScores
from as2jax.experiments.papers import collected, rows
from as2jax.experiments.papers.rows import Column, Peer, Row, Run, Table
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

NOT_YET = "not trained yet"
Kept = Mapping[str, Run | Peer]


def kept_runs() -> Kept:
  """Return every run and peer of our tables, by the name under which its results are kept."""
  runs: dict[str, Run | Peer] = {}
  for tables in rows.measured_tables().values():
    for table in tables:
      for row in (*table.first, *table.rows):
        for run in row.runs.values():
          if isinstance(run, Peer) or run.config != "configs/":
            runs[run.name] = run
  return runs


def rendered(table: Table, folder: pathlib.Path) -> str:
  """Render a table in Markdown, with what must be said of its rows, from the unpacked rows in `folder`."""
  if all(column.runs != ("",) for column in table.columns):
    return _side_by_side(table, folder)
  scores = _of_table(table, folder)
  base = next((row for row in table.rows if row.runs and row.runs[""].name == table.base), None)
  compared = base is not None and base.name in scores
  head = ["system", *(column.heading for column in table.columns), "seeds", "test read", "hours"]
  if compared:
    head.append(f"{table.columns[table.main].heading} − {base.name}")
  cells, notes = [head], []
  for row in table.rows:
    if row.name not in scores:
      cells.append(_without_results(row, len(head)))
      continue
    of_row = scores[row.name]
    place = folder / row.runs[""].name
    line = [row.name, *map(_cell, of_row, table.columns), *_facts(place, of_row[0])]
    if compared:
      line.append(_against(scores[base.name], of_row, table))
    cells.append(line)
    if of_row[0].note:
      notes.append(f"{row.name}: {of_row[0].note}.")
  return "\n".join([_markdown(cells), *["", *notes][: 2 * bool(notes)]])


def _of_table(table: Table, folder: pathlib.Path) -> dict[str, list[RunScores]]:
  """Return the scores of each row that has results, one for each column, by the row's name."""
  there = [row for row in table.rows if row.runs and (folder / row.runs[""].name).exists()]
  places = [str(folder / row.runs[""].name) for row in there]
  scores: dict[str, list[RunScores]] = {row.name: [] for row in there}
  for column in table.columns:
    asked = {"split": column.split, "question_filter": column.question_filter}
    # Rows that are compared must have answered the same questions.
    loaded = run_scores.load(places, **asked) if places else []
    for row, one in zip(there, loaded, strict=True):
      scores[row.name].append(one)
  return scores


def _without_results(row: Row, width: int) -> list[str]:
  """Return the cells of a row of published figures, or of one that is not trained yet."""
  if row.runs:
    cells = [f"{row.name} ({NOT_YET})"]
  else:
    figures = ["" if figure is None else f"*{_short(figure)}*" for figure in row.published]
    cells = [f"*{row.name}*", *figures]
  return cells + [""] * (width - len(cells))


def _facts(place: pathlib.Path, scores: RunScores) -> list[str]:
  """Return the seeds of a row, how often each read test, and the hours that all of them trained."""
  seeds = "–" if scores.deterministic else str(len(next(iter(scores.values.values()))))
  content = results.read(place)
  assert content is not None, place
  times = results.times_evaluated(place, "test", content["data"]["name"])
  hours = collected.step_time(place) / 3600
  device = collected.accelerator(place)
  spent = f"{hours:.1f}" + (f" ({device})" if device else "") if hours else ""
  return [seeds, "not known" if times is None else str(times), spent]


def _markdown(cells: Sequence[Sequence[str]], left: int = 1) -> str:
  """Render cells that hold Markdown of their own."""
  lines = [f"| {' | '.join(row)} |" for row in cells]
  rule = ["---"] * left + ["---:"] * (len(cells[0]) - left)
  return "\n".join([lines[0], f"| {' | '.join(rule)} |", *lines[1:]])


def _side_by_side(table: Table, folder: pathlib.Path) -> str:
  """Render a table over data sets: figure, seeds, and seconds of a seed's training steps on a CPU."""
  judges = table.rows[0].runs  # they say which questions are clean
  cells = [["system", *(column.heading for column in table.columns)]]
  for row in table.rows:
    line = [row.name]
    for column in table.columns:
      (key,) = column.runs
      line.append(_counted_cell(folder, row.runs[key].name, judges[key].name, column))
    cells.append(line)
  return _markdown(cells)


def _counted_cell(folder: pathlib.Path, name: str, judge: str, column: Column) -> str:
  place = folder / name
  if not place.exists():
    return NOT_YET
  foreign = collected.peer_tables(place, column.split)
  places = [str(folder / judge), foreign] if foreign else [str(place)]
  scores = run_scores.load(places, split=column.split)[-1]
  if device := collected.accelerator(place):
    return f"{_cell(scores, column, counted=True)}, {device}"
  spent = collected.cpu_seconds_per_seed(place)
  return _cell(scores, column, counted=True) + (f", {spent:.0f} s" if spent else "")


def _cell(scores: RunScores, column: Column, counted: bool = False) -> str:
  """Return a figure with its half-width and the s.d. over seeds; `counted` adds the number of seeds."""
  if column.metric not in scores.values:  # it has no value of a question (SSE)
    entry = results.read(scores.name)["metrics"].get(scores.title(column.metric))
    if entry is None:
      return ""  # it is of vectors, which a ranker of words has not
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


def _against(base: Sequence[RunScores], other: Sequence[RunScores], table: Table) -> str:
  """Return the difference of a row to the base by the main column, of methods."""
  if other is base:
    return ""
  return _difference(base[table.main], other[table.main], table.columns[table.main])


def _difference(base: RunScores, other: RunScores, column: Column) -> str:
  tested = compare.methods(other, base, column.metric)
  if tested.why:
    return f"{_signed(tested.difference)}: {tested.why}"
  p, finds = compare.p_text(tested.p), _short(tested.detectable)
  return f"{_signed(tested.difference)} ± {_short(tested.half_width)} (p {p}, finds {finds})"


def claims(folder: pathlib.Path) -> str:
  """Render the papers' claims beside our figures, a simple baseline and their difference."""
  cells = [["claim", "paper", "ours", "simple baseline", "difference", "holds?", "why"]]
  for claim in rows.claims()[0]:
    places, column = [str(folder / name) for name in claim.runs], claim.column
    scores = run_scores.load(places, split=column.split, question_filter=column.question_filter)
    figures = [_cell(one, column) for one in scores]
    difference = _difference(scores[1], scores[0], column)
    cells.append([claim.claim, claim.paper, *figures, difference, claim.holds, claim.why])
  return _markdown(cells, left=7)


def summary(folder: pathlib.Path) -> str:
  """Render the root README's table: one figure a row."""
  cells = [["data, metric", "system", "ours", "paper"]]
  for one in rows.claims()[1]:
    place = folder / one.kept
    device = collected.accelerator(place)
    system = one.system + (f" ({device})" if device else "")
    split, question_filter = one.column.split, one.column.question_filter
    (scores,) = run_scores.load([str(place)], split=split, question_filter=question_filter)
    cells.append([one.data, system, _cell(scores, one.column), one.paper])
  return _markdown(cells, left=4)


def commands(runs: Sequence[Run | Peer], folder: pathlib.Path | None = None) -> list[str]:
  """Return the command of each run, whose folder has the name of its results."""
  lines = []
  for run in runs:
    if isinstance(run, Peer):
      seeds = collected.peer_seeds(folder / run.name) if folder else 0
      lines.append(run.command + (f" --seeds={seeds}" if seeds else ""))
      continue
    settings = [f"--config.{key}={value}".replace(", ", ",") for key, value in run.settings.items()]
    words = [f"--config={run.config}", *settings, f"--workdir=runs/{run.name}"]
    lines.append(" ".join(["python -m as2jax.main", *map(_quoted, words)]))
  return lines


def _quoted(word: str) -> str:
  """Quote a word for a shell; within "…" an interactive bash would take ! for one of its history."""
  if word == shlex.quote(word):
    return word
  return "'" + word.replace("'", '"') + "'" if "!" in word else f'"{word}"'


def _page_commands(tables: Sequence[Table], folder: pathlib.Path) -> str:
  """Return the commands of all rows of a page, each once, as a block of code."""
  every = kept_runs()
  names: dict[str, None] = {}
  for first in (True, False):
    for table in tables:
      for row in table.first if first else table.rows:
        names |= dict.fromkeys(run.name for run in row.runs.values())
  return "\n".join(["```bash", *commands([every[name] for name in names], folder), "```"])


def blocks(folder: pathlib.Path) -> dict[str, str]:
  """Return every table and every page's commands by name, from the unpacked rows in `folder`."""
  made = {"claims": claims(folder), "summary": summary(folder)}
  for page, tables in rows.measured_tables().items():
    made |= {table.name: rendered(table, folder) for table in tables}
    made[f"commands of {page}"] = _page_commands(tables, folder)
  return made


def pages() -> Iterator[pathlib.Path]:
  """Yield the files in which tables stand."""
  yield job_files.folder().parent / "README.md"
  yield from sorted((job_files.folder() / "papers").glob("*.md"))


def place(name: str) -> tuple[str, str]:
  """Return the lines between which a table stands in a page."""
  return f"<!-- measured: {name} -->", f"<!-- end of {name} -->"


def with_tables(text: str, made: Mapping[str, str]) -> str:
  """Return a page with the blocks in `made`, by name, in their places; InputError where a place has no end."""
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


def _collect(argument: str, folder: pathlib.Path) -> None:
  name, _, source = argument.rpartition("=")
  name = name or pathlib.Path(source).name
  known = kept_runs()
  if name not in known:
    raise InputError(f"{argument}: there is no row {name!r}: name one of {', '.join(known)}")
  run = known[name]
  if isinstance(run, Peer):
    print(collected.collect_peer(pathlib.Path(source), name, folder))
  else:
    print(collected.collect(pathlib.Path(source), name, run, folder))


def run(
  wanted: Sequence[str], *, collect: Sequence[str] = (), write: bool = False, missing: bool = False
) -> str:
  """Do what `as2jax lab measured` does, and return what it prints.

  Args:
    wanted: names of tables; all where there are none.
    collect: folders of finished runs to be taken in, as `NAME=FOLDER` under another name.
    write: whether the tables are put into the pages.
    missing: whether the commands of the rows without results are told in place of the tables.

  Raises:
    InputError: no such table or row, a run that is not that row's.

  """
  folder = collected.folder()
  for one in collect:
    _collect(one, folder)
  if missing:
    lacks = [r for n, r in kept_runs().items() if not (folder / f"{n}{collected.PACKED}").exists()]
    return "\n".join(commands(lacks))
  if collect and not write:
    return ""
  with collected.unpacked(folder) as unpacked:
    made = blocks(unpacked)
  if write:
    for path in pages():
      write_whole(path, with_tables(path.read_text(encoding="utf-8"), made))
    return "\n".join(f"written: {path.name}" for path in pages())
  for name in wanted:
    if name not in made:
      raise InputError(f"there is no table {name!r}: name one of {', '.join(made)}")
  return "\n\n".join(f"{name}\n\n{made[name]}" for name in wanted or made)
