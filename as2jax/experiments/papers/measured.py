"""Make our tables from configs/papers/results (`as2jax lab measured`, in a clone).

They stand in configs/papers/*.md, its README and the root README. A row without results is shown as not
trained yet.
"""

import itertools
import pathlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from as2jax.config import jobs as job_files
from as2jax.evaluation import compare, results, run_scores, significance
from as2jax.evaluation import tables as forms
from as2jax.evaluation.run_scores import RunScores
from as2jax.experiments import figures
from as2jax.experiments.papers import collected, rows
from as2jax.experiments.papers.rows import Column, Peer, Run, Table
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

NOT_YET = "not trained yet"
# A figure in prose, behind the comment that says whose: the mean of a run, a run's difference of methods to another
# (`RUN,BASE`), or that of these models (`RUN|BASE`); in which column; perhaps with its p in the words that follow.
FIGURE = re.compile(
  r"(?P<source><!--(?P<run>[\w-]+)(?:(?P<of>[,|])(?P<base>[\w-]+))?:(?P<column>\S+?)-->)"
  r"(?P<sign>[+−]?)(?:\.\d{3}|1\.000)(?P<width> ± \.\d{3})?(?:(?P<before_p>[^±\d<>]{1,80}?\bp )(?:< )?(?:\.\d+|1\b))?"
)


def kept_runs() -> dict[str, Run | Peer]:
  """Return every run and peer of our tables, by the name under which its results are kept."""
  runs: dict[str, Run | Peer] = {}
  for tables in rows.measured_tables().values():
    for run in _runs(tables):
      if isinstance(run, Peer) or run.config != "configs/":  # a row may name another's results
        runs[run.name] = run
  return runs


def _runs(tables: Sequence[Table]) -> list[Run | Peer]:
  """Return the runs of all rows, those that others begin with first."""
  every = [row for table in tables for row in table.first]
  every += [row for table in tables for row in table.rows]
  return [run for row in every for run in row.runs.values()]


def rendered(table: Table, folder: pathlib.Path) -> str:
  """Render a table in Markdown, with what must be said of its rows, from the unpacked rows in `folder`."""
  if table.columns[0].runs != ("",):
    return _side_by_side(table, folder)
  places = {}  # of the rows that have results
  for row in table.rows:
    if row.runs and (folder / row.runs[""].name).exists():
      places[row.name] = folder / row.runs[""].name
  # The row with which the others are compared.
  base = next((name for name, place in places.items() if place.name == table.base), "")
  scores: dict[str, list[RunScores]] = {name: [] for name in places}  # one a column
  for column in table.columns if places else ():
    # Rows that are compared must have answered the same questions.
    for name, one in zip(places, _loaded(places.values(), column), strict=True):
      scores[name].append(one)
  main = table.columns[table.main]
  lines, notes = [], []
  every: dict[str, RunScores] = {}  # on all questions, where candidates have their documents' order
  counted = next(iter(scores.values()))[table.main] if scores else None
  if counted is not None and counted.strata(main.metric):
    of_all = _loaded(places.values(), main._replace(question_filter="all"))
    every = dict(zip(places, of_all, strict=True))
    right = 100 * of_all[0].first_right.mean()
    notes.append(f"Of all questions the first candidate is right in {right:.0f} %.")
  headings = {column: column.heading for column in table.columns}
  for column, one in zip(table.columns, next(iter(scores.values()), ())):
    headings[column] += figures.groups_of(one)
    if rough := significance.Groups.of(one.groups, len(one.ids)).warning():
      notes.append(f"{column.heading}: {rough}.")
  for row in table.rows:
    line = {"system": row.name}
    if row.name in scores:
      for column, one in zip(table.columns, scores[row.name], strict=True):
        line[headings[column]] = figures.cell(one, column.metric)
      first, of_main = scores[row.name][0], scores[row.name][table.main]
      if row.name in every:
        line |= figures.strata(of_main, every[row.name], main.metric)
      line |= _facts(places[row.name], first)
      if base and row.name != base:
        of_base = scores[base][table.main]
        line[f"{main.heading} − {base}"] = figures.difference(of_base, of_main, main.metric)
      if first.note:
        notes.append(f"{row.name}: {first.note}.")
    elif row.runs:
      line["system"] += f" ({NOT_YET})"
    else:
      line["system"] = f"*{row.name}*"
      for column, figure in zip(table.columns, row.published, strict=True):
        line[headings[column]] = "" if figure is None else f"*{figures.short(figure)}*"
    lines.append(line)
  text = forms.render(lines, "markdown", raw=True)
  return "\n".join([text, "", *notes]) if notes else text


def with_figures(text: str, folder: pathlib.Path) -> str:
  """Return a page whose figures in prose are those of the unpacked rows in `folder`."""

  def figure(found: re.Match) -> str:
    column = rows.column_of(f"x = {found['column']}")
    kept = [folder / name for name in (found["run"], found["base"]) if name]
    run, *other = _loaded([collected.peer_tables(one, column.split) or one for one in kept], column)
    values, p = run.metric(column.metric), None
    value, width = values.mean(), significance.half_width(values, run.groups)
    if found["of"] == ",":
      tested = compare.methods(run, *other, column.metric)
      value, width, p = tested.difference, tested.half_width, tested.p
    elif found["of"]:
      means = [significance.question_means(one.metric(column.metric)) for one in (run, *other)]
      of_models = significance.paired_t_test(*means, run.groups)
      value, width, p = of_models.difference, of_models.half_width, of_models.p
    if width is None and (found["width"] or found["before_p"]):
      raise InputError(f"{found['source']}: {tested.why}: state it without ± and p")
    text = found["source"]
    if found["sign"]:
      text += "−" if value < 0 else "+"
    text += figures.short(abs(value))
    if found["width"]:
      text += f" ± {figures.short(width)}"
    if found["before_p"]:
      text += found["before_p"] + compare.p_text(p).replace("<", "< ").replace("0.", ".")
    return text

  return FIGURE.sub(figure, text)


def _loaded(places: Iterable[pathlib.Path | str], column: Column) -> list[RunScores]:
  """Return the scores of the runs at some places by the split and question filter of a column."""
  asked = {"split": column.split, "question_filter": column.question_filter}
  return run_scores.load(list(map(str, places)), **asked)


def _facts(place: pathlib.Path, scores: RunScores) -> dict[str, str]:
  """Return the seeds of a row, how often each read test, and the hours that all of them trained."""
  seeds = "–" if scores.deterministic else str(len(next(iter(scores.values.values()))))
  if collected.changed_code(place):
    seeds += ", code changed"
  times = results.times_evaluated(place, "test", results.read(place)["data"]["name"])
  trained, hours = collected.training(place), ""
  if trained.seconds:
    hours = f"{trained.seconds / 3600:.1f}" + _of_device(trained.device)
  return {"seeds": seeds, "test read": str(times or "not known"), "hours": hours}


def _of_device(device: str) -> str:
  return f" ({device})" if device else ""


def _side_by_side(table: Table, folder: pathlib.Path) -> str:
  """Render a table over data sets: figure, seeds, and seconds of a seed's training steps on a CPU."""
  judges = table.rows[0].runs  # they say which questions are clean
  lines = []
  for row in table.rows:
    line = {"system": row.name}
    for column in table.columns:
      (key,) = column.runs
      if key not in row.runs:  # this system cannot rank that data set
        continue
      place, judge = folder / row.runs[key].name, folder / judges[key].name
      if not place.exists():
        line[column.heading] = NOT_YET
        continue
      foreign = collected.peer_tables(place, column.split)
      places = [str(judge), foreign] if foreign else [str(place)]
      scores = run_scores.load(places, split=column.split)[-1]
      figure, trained = figures.cell(scores, column.metric, counted=True), collected.training(place)
      figure += figures.groups_of(scores)
      if trained.device:
        figure += f", {trained.device}"
      elif trained.seconds:
        figure += f", {trained.seconds / trained.seeds:.0f} s"
      if changed := collected.changed_code(place):
        figure += f"; {changed}"
      line[column.heading] = figure
    lines.append(line)
  return forms.render(lines, "markdown", raw=True)


def claims(folder: pathlib.Path) -> str:
  """Render the papers' claims beside our figures, a simple baseline and their difference."""
  lines = []
  for claim in rows.claims()[0]:
    line = {"claim": claim["claim"], "paper": claim["paper"]}
    if "runs" not in claim:
      lines.append(line | {"holds?": "open: untested", "why": claim["why"]})
      continue
    column = rows.column_of(claim["column"])
    ours, base = _loaded([folder / name for name in claim["runs"]], column)
    line["ours"] = figures.cell(ours, column.metric) + figures.groups_of(ours)
    line["simple baseline"] = figures.cell(base, column.metric)
    line["difference"] = figures.difference(base, ours, column.metric)
    why = [claim["why"], collected.changed_code(folder / claim["runs"][0])]
    lines.append(line | {"holds?": claim["holds"], "why": "; ".join(filter(None, why))})
  return forms.render(lines, "markdown", left=7, raw=True)


def summary(folder: pathlib.Path) -> str:
  """Render the root README's table: one figure a row."""
  lines = []
  for one in rows.claims()[1]:
    place, column = folder / one["kept"], rows.column_of(one["column"])
    (scores,) = _loaded([place], column)
    line = {"data, metric": one["data"]}
    named = [one["system"] + _of_device(collected.training(place).device)]
    line["system"] = "; ".join(filter(None, [*named, collected.changed_code(place)]))
    line["ours"] = figures.cell(scores, column.metric) + figures.groups_of(scores)
    lines.append(line | {"paper": one["paper"]})
  return forms.render(lines, "markdown", left=4, raw=True)


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


def blocks(folder: pathlib.Path) -> dict[str, str]:
  """Return every table and every page's commands by name, from the unpacked rows in `folder`."""
  made = {"claims": claims(folder), "summary": summary(folder)}
  every = kept_runs()
  for page, tables in rows.measured_tables().items():
    for table in tables:
      made[table.name] = rendered(table, folder)
    names = dict.fromkeys(run.name for run in _runs(tables))
    lines = commands([every[name] for name in names], folder)
    made[f"commands of {page}"] = "\n".join(["```bash", *lines, "```"])
  return made


def pages() -> Iterator[pathlib.Path]:
  """Yield the files in which tables stand."""
  yield job_files.folder().parent / "README.md"
  yield from sorted((job_files.folder() / "papers").glob("*.md"))


def place(name: str) -> str:
  """Return the line after which a table stands in a page."""
  return f"<!-- measured: {name} -->\n"


def with_tables(text: str, made: Mapping[str, str]) -> str:
  """Return a page with the blocks in `made`, by name, in their places; InputError where a place has no end."""
  for name, markdown in made.items():
    begin, end = place(name), f"\n<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    if found and end not in rest:
      raise InputError(f"the line {end.strip()} is missing after {begin.strip()}")
    if found:
      text = before + begin + markdown + rest[rest.index(end) :]
  return text


def run(
  *, collect: Sequence[str] = (), write: bool = False, missing: bool = False, check: bool = False
) -> str:
  """Do what `as2jax lab measured` does, and return what it prints.

  Args:
    collect: folders of finished runs to be taken in, as `NAME=FOLDER` under another name.
    write: whether the tables are put into the pages.
    missing: whether the commands of what rows lack, or of their seeds, are told in place of the tables.
    check: whether the pages are compared with what is computed; InputError names the first that differs.

  """
  if write + missing + check > 1:
    raise InputError("give one of --write, --missing and --check")
  folder = collected.folder()
  for one in collect:
    name, _, source = one.rpartition("=")
    source, known = pathlib.Path(source), kept_runs()
    name = name or source.name
    if name not in known:
      raise InputError(f"{one}: there is no such row: name one of {', '.join(known)}")
    print(collected.collect(source, known[name], folder))
  if missing:
    with collected.unpacked(folder) as unpacked:
      lacks = [run for n, r in kept_runs().items() if (run := collected.lacking(r, unpacked / n))]
    lines = []
    for one, line in zip(lacks, commands(lacks), strict=True):
      if hours := getattr(one, "hours", 0):
        line += f"   # about {hours:.2g} h of a CPU core"
      lines.append(line)
    return "\n".join(lines)
  if collect and not (write or check):
    return ""
  pages_renewed = []
  with collected.unpacked(folder) as unpacked:
    made = blocks(unpacked)
    if not (check or write):
      return "\n\n".join(f"{name}\n\n{table}" for name, table in made.items())
    for path in pages():
      text = path.read_text(encoding="utf-8")
      pages_renewed.append((path, text, with_tables(with_figures(text, unpacked), made)))
  if write:
    for path, _, renewed in pages_renewed:
      write_whole(path, renewed)
    return f"written: {', '.join(str(path) for path, *_ in pages_renewed)}"
  for path, text, renewed in pages_renewed:
    for number, lines in enumerate(itertools.zip_longest(text.split("\n"), renewed.split("\n")), 1):
      if len(set(lines)) > 1:
        raise InputError(
          f"{path}:{number} differs: as2jax lab measured --write renews it to {lines[1]}"
        )
  return f"{len(made)} tables and lists of commands, and figures in prose, are those of the values in {folder}"
