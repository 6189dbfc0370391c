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
from as2jax.experiments.papers.rows import Column, Peer, Run, Table
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

NOT_YET = "not trained yet"
FACTS = ("seeds", "test read", "hours")  # columns of each run's table, see `_facts`


def kept_runs() -> dict[str, Run | Peer]:
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
  if table.columns[0].runs != ("",):
    return _side_by_side(table, folder)
  places = {}  # of the rows that have results
  base = ""  # the row with which the others are compared
  for row in table.rows:
    if row.runs and (folder / row.runs[""].name).exists():
      places[row.name] = folder / row.runs[""].name
      if row.runs[""].name == table.base:
        base = row.name
  scores: dict[str, list[RunScores]] = {name: [] for name in places}  # one a column
  for column in table.columns if places else ():
    # Rows that are compared must have answered the same questions.
    for name, one in zip(places, _loaded(places.values(), column), strict=True):
      scores[name].append(one)
  main = table.columns[table.main]
  cells = [["system", *(column.heading for column in table.columns), *FACTS]]
  notes = []
  if base:
    cells[0].append(f"{main.heading} − {base}")
  for row in table.rows:
    if row.name in scores:
      of_row = scores[row.name]
      line = [row.name, *map(cell, of_row, table.columns), *_facts(places[row.name], of_row[0])]
      if base:
        other = of_row[table.main]
        compared = row.name != base
        line.append(_difference(scores[base][table.main], other, main) if compared else "")
      if of_row[0].note:
        notes.append(f"{row.name}: {of_row[0].note}.")
    elif row.runs:
      line = [f"{row.name} ({NOT_YET})"]
    else:
      line = [f"*{row.name}*"]
      for figure in row.published:
        line.append("" if figure is None else f"*{short(figure)}*")
    cells.append(line + [""] * (len(cells[0]) - len(line)))
  text = _markdown(cells)
  return "\n".join([text, "", *notes]) if notes else text


def _loaded(places, column: Column) -> list[RunScores]:
  """Return the scores of the runs at some places by the split and question filter of a column."""
  asked = {"split": column.split, "question_filter": column.question_filter}
  return run_scores.load(list(map(str, places)), **asked)


def _facts(place: pathlib.Path, scores: RunScores) -> list[str]:
  """Return the seeds of a row, how often each read test, and the hours that all of them trained."""
  seeds = "–" if scores.deterministic else str(len(next(iter(scores.values.values()))))
  content = results.read(place)
  times = results.times_evaluated(place, "test", content["data"]["name"])
  trained, spent = collected.training(place), ""
  if trained.seconds:
    spent = f"{trained.seconds / 3600:.1f}" + _of_device(trained.device)
  return [seeds, "not known" if times is None else str(times), spent]


def _of_device(device: str) -> str:
  return f" ({device})" if device else ""


def _markdown(cells: Sequence[Sequence[str]], left: int = 1) -> str:
  rule = ["---"] * left + ["---:"] * (len(cells[0]) - left)
  return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:]))


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
  figure = cell(run_scores.load(places, split=column.split)[-1], column, counted=True)
  trained = collected.training(place)
  if trained.device:
    return f"{figure}, {trained.device}"
  return f"{figure}, {trained.seconds / trained.seeds:.0f} s" if trained.seconds else figure


def cell(scores: RunScores, column: Column, counted: bool = False) -> str:
  """Return a figure with its half-width and the s.d. over seeds; `counted` adds the number of seeds."""
  width = number = ""
  if column.metric in scores.values:
    values = scores.metric(column.metric)
    mean, sd = significance.mean_sd(values.mean(1))
    width = f" ± {short(significance.half_width(values))}"
    if counted:
      number = f"; {len(values)}"
    if scores.deterministic:
      sd = None
  else:  # it has no value of a question (SSE), or is of vectors, which a ranker of words has not
    entry = results.read(scores.name)["metrics"].get(scores.title(column.metric))
    if entry is None:
      return ""
    mean, sd = entry["mean"], entry["sd"]
  return short(mean) + width + ("" if sd is None else f" ({short(sd)}{number})")


def short(value: float) -> str:
  """Return three decimals, without a zero before the point."""
  return f"{value:.3f}".removeprefix("0")


def _difference(base: RunScores, other: RunScores, column: Column) -> str:
  """Return the difference of methods of a row to the base."""
  tested = compare.methods(other, base, column.metric)
  difference = ("−" if tested.difference < 0 else "+") + short(abs(tested.difference))
  if tested.why:
    return f"{difference}: {tested.why}"
  p, finds = compare.p_text(tested.p), short(tested.detectable)
  return f"{difference} ± {short(tested.half_width)} (p {p}, finds {finds})"


def claims(folder: pathlib.Path) -> str:
  """Render the papers' claims beside our figures, a simple baseline and their difference."""
  cells = [["claim", "paper", "ours", "simple baseline", "difference", "holds?", "why"]]
  for claim in rows.claims()[0]:
    column = rows.column_of(claim["column"])
    ours, base = _loaded([folder / name for name in claim["runs"]], column)
    figures = [cell(ours, column), cell(base, column), _difference(base, ours, column)]
    cells.append([claim["claim"], claim["paper"], *figures, claim["holds"], claim["why"]])
  return _markdown(cells, left=7)


def summary(folder: pathlib.Path) -> str:
  """Render the root README's table: one figure a row."""
  cells = [["data, metric", "system", "ours", "paper"]]
  for one in rows.claims()[1]:
    place, column = folder / one["kept"], rows.column_of(one["column"])
    (scores,) = _loaded([place], column)
    system = one["system"] + _of_device(collected.training(place).device)
    cells.append([one["data"], system, cell(scores, column), one.get("paper", "")])
  return _markdown(cells, left=4)


def commands(runs: Sequence[Run | Peer], folder: pathlib.Path | None = None) -> list[str]:
  """Return the command of each run, whose folder has the name of its results."""
  lines = []
  for run in runs:
    if isinstance(run, Peer):
      seeds = collected.training(folder / run.name).seeds if folder else 0
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
  every = kept_runs()
  names: dict[str, None] = {}
  begun = [row for table in tables for row in table.first]
  for row in (*begun, *(row for table in tables for row in table.rows)):
    for run in row.runs.values():
      names[run.name] = None
  return "\n".join(["```bash", *commands([every[name] for name in names], folder), "```"])


def blocks(folder: pathlib.Path) -> dict[str, str]:
  """Return every table and every page's commands by name, from the unpacked rows in `folder`."""
  made = {"claims": claims(folder), "summary": summary(folder)}
  for page, tables in rows.measured_tables().items():
    for table in tables:
      made[table.name] = rendered(table, folder)
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
  source = pathlib.Path(source)
  known = kept_runs()
  run = known.get(name or source.name)
  if run is None:
    raise InputError(f"{argument}: there is no such row: name one of {', '.join(known)}")
  if isinstance(run, Peer):
    print(collected.collect_peer(source, run.name, folder))
  else:
    print(collected.collect(source, run.name, run, folder))


def run(*, collect: Sequence[str] = (), write: bool = False, missing: bool = False) -> str:
  """Do what `as2jax lab measured` does, and return what it prints.

  Args:
    collect: folders of finished runs to be taken in, as `NAME=FOLDER` under another name.
    write: whether the tables are put into the pages.
    missing: whether the commands of the rows without results are told in place of the tables.

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
  if not write:
    return "\n\n".join(f"{name}\n\n{table}" for name, table in made.items())
  written = list(pages())
  for path in written:
    write_whole(path, with_tables(path.read_text(encoding="utf-8"), made))
  return f"written: {', '.join(map(str, written))}"
