"""Tables of users: CSV, TSV, JSON-lines, Parquet, pandas frames, of the Hugging Face hub; and writing them.

Every cell of CSV and TSV stays text (`NA`, `null` and `007` too). A cell in quotation marks may hold
delimiters, line breaks and doubled quotation marks. Of tab-separated files some quote cells so, and in
others a quotation mark is a character: `is_quoted` tells them apart.
"""

import dataclasses
import difflib
import functools
import importlib.util
import io
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.data.lines import csv_records, decoded, json_object, opened, quoted
from as2jax.data.record import right_class
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

DELIMITERS = {".csv": ",", ".tsv": "\t"}  # of a written file
# What a spreadsheet would compute; a number with a sign is none.
_FORMULA = re.compile(r"(?![-+][\d.,]+\Z)[=+\-@\t\r]")
MARK = "\ufeff"  # by which Excel knows UTF-8
JSON = (".jsonl", ".json", ".ndjson")
SUFFIXES = (*JSON, ".parquet", *DELIMITERS)
PYARROW = "Parquet needs pyarrow, which is not installed: pip install 'as2jax[parquet]'"
HUB = "hub:"  # how the address of a data set of the hub begins
# What the hub calls splits -> what they are here.
SPLITS = dict.fromkeys(("dev", "validation", "valid", "val"), "dev")
SPLITS |= {"train": "train", "test": "test"}
ASNQ_CLASSES = {1: 0, 2: 0, 3: 0, 4: 1}  # its class -> label, see `readers/asnq.py`
SHOWN = 10  # rows that a refusal names
log = logging.getLogger(__name__)
# Field -> the column names by which it is known, without case, blanks, hyphens and underscores.
NAMES: dict[str, tuple[str, ...]] = {
  "question": ("question", "query", "questiontext", "querytext", "anchor"),
  "candidate": (
    "candidate", "sentence", "answer", "text", "passage", "document", "response", "candidatetext",
    "answertext", "positive",
  ),
  "label": (
    "label", "iscorrect", "correct", "isrelevant", "relevant", "relevance", "isanswer", "target",
  ),
  "previous": ("previous", "previoussentence"),
  "next": ("next", "nextsentence", "successive"),
  "title": ("title", "documenttitle"),
  "question_id": ("questionid", "qid", "queryid"),
  "group": (),  # only where it is named: a column of that name may be anything
  "candidate_id": ("candidateid", "sentenceid", "answerid", "passageid", "docno"),
}  # fmt: skip
DOCUMENT_NAMES = {  # of a table of documents, which `as2jax index` reads
  "text": NAMES["candidate"],
  "id": ("id", *NAMES["candidate_id"]),
}
Fields = Mapping[str, Sequence[str]]  # field -> its column names, as in `NAMES`


@dataclasses.dataclass
class Table:
  """The rows of a table.

  Attributes:
    source: the path, or what a frame is called.
    columns: of the header; None of JSON, whose rows have columns of their own.
    rows: (number, {column: value}) of each row; {} where all cells are empty.
    unit: what `number` counts: "line" (from 1) or "row" (from 0; Parquet, frames).
    faults: (number, kind, what is wrong) of rows, those that could not be read among them.

  """

  source: str
  columns: tuple[str, ...] | None
  rows: list[tuple[int, dict[str, Any]]]
  unit: str = "line"
  faults: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)

  def place(self, number: int) -> str:
    """Name a row for a message."""
    return f"{self.unit} {number}"

  def error(self, problem: str, number: int | None = None) -> InputError:
    """Make the error for a problem of the whole table, or of row `number`."""
    if self.unit == "line" and self.columns is not None:
      number = number or 1  # the header's
    if number is None:
      return InputError(f"{self.source}: {problem}")
    place = f" row {number}" if self.unit == "row" else str(number)
    return InputError(f"{self.source}:{place}: {problem}")

  def refuse(self, summary: str = "") -> None:
    """Raise one InputError for all `faults`, the first of them by row; none where there is none."""
    if not self.faults:
      return
    self.faults.sort(key=lambda fault: fault[0])
    (number, _, problem), *others = self.faults
    told = [problem, *(f"{self.place(n)}: {what}" for n, _, what in others[: SHOWN - 1])]
    if len(self.faults) > SHOWN:
      told.append(f"{len(self.faults) - SHOWN} more")
    raise self.error("; ".join(told) + summary, number)


def suffix_of(path: epath.PathLike) -> str:
  """Return the suffix of a file's name in lower case, of a packed one that before `.gz`."""
  return epath.Path(os.fspath(path).lower().removesuffix(".gz")).suffix


def open_table(source: Any, *, first: bool = False) -> Table:
  """Read the table in a file (also packed by gzip), of a pandas frame, or `hub:NAME`, with its `faults`.

  `first`: only the first row of the hub, and only the header of cells that a delimiter separates.

  Raises InputError: no such file, no table, a library is not installed; names file and lines.
  """
  if hasattr(source, "columns") and hasattr(source, "to_dict"):
    return _frame(source)
  if is_hub(source):
    return _of_hub(os.fspath(source), first)
  path, suffix = epath.Path(source).expanduser(), suffix_of(source)
  if suffix == ".parquet":
    return _parquet(path)
  with opened(path) as file:
    data = b""
    while first and not data.strip() and (line := file.readline()):
      data += line
    text = decoded(data, path)
    # With an odd number of quotation marks the header goes on in the next line.
    if text.strip() and text.count('"') % 2 == 0 and not _is_json(suffix, text):
      return _delimited(path, text, suffix)
    text = decoded(data + file.read(), path)
  if not text.strip():
    raise InputError(f"{path} is empty; get the file again")
  if _is_json(suffix, text):
    return _json_lines(path, text)
  return _delimited(path, text, suffix)


def _is_json(suffix: str, text: str) -> bool:
  return suffix in JSON or (suffix not in DELIMITERS and text.lstrip()[:1] in ("{", "["))


def is_hub(address: Any) -> bool:
  """Tell whether an address is `hub:NAME[:CONFIG][:SPLIT]`, a data set of the Hugging Face hub."""
  return isinstance(address, (str, os.PathLike)) and os.fspath(address).startswith(HUB)


def hub_parts(address: str) -> tuple[str, str, str]:
  """Return name, config and split of `hub:NAME[:CONFIG][:SPLIT]`, "" for what it leaves open."""
  name, *rest = address.removeprefix(HUB).split(":")
  if not name or len(rest) > 2:
    raise InputError(
      f"{address}: write hub:NAME, hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT, such as hub:asnq:test"
    )
  if len(rest) == 1 and set(rest[0].split("+")) <= set(SPLITS):
    rest.insert(0, "")
  config, split, *_ = [*rest, "", ""]
  return name, config, split


def hub_address(address: str, split: str) -> str:
  """Return the address of a split of the hub; what names one, or is another address, as it is."""
  if not is_hub(address):
    return address
  name, config, named = hub_parts(address)
  if config or (named or split) not in SPLITS:
    return f"{HUB}{name}:{config}:{named or split}"
  return f"{HUB}{name}:{named or split}"


def hub_splits(address: str) -> list[str]:
  """Return the splits of a data set of the hub by our names, or by its own."""
  name, config, split = hub_parts(address)
  there = [split] if split else list(_hub_streams(name, config))
  ours = {SPLITS[split] for split in there if split in SPLITS}
  return sorted(ours, key=("train", "dev", "test").index) or there


@functools.lru_cache(maxsize=4)
def _hub_streams(name: str, config: str) -> Mapping[str, Any]:
  """Return {split: its rows, which are streamed} of a data set of the hub, or of a folder of its files."""
  try:
    import datasets

    if int(datasets.__version__.partition(".")[0]) < 4:  # runs scripts of data sets
      raise ImportError
  except ImportError as error:
    raise InputError(
      f"{HUB}{name} needs datasets from 4.0 on, which is not installed: pip install 'as2jax[hub]'"
    ) from error
  datasets.disable_progress_bars()
  try:
    return datasets.load_dataset(os.path.expanduser(name), config or None, streaming=True)
  except Exception as error:  # of four libraries
    text = " ".join(str(error).split()).rstrip(".")
    raise InputError(
      f"{HUB}{name} cannot be opened ({text}): check the name and its config, hub:NAME:CONFIG:SPLIT; where the hub "
      "is out of reach, or wants a token (HF_TOKEN), copy its files to this machine: hub:FOLDER"
    ) from error


def _of_hub(address: str, first: bool) -> Table:
  """Read one split of a data set of the hub, or only its first row; its number of rows is checked and logged."""
  name, config, wanted = hub_parts(address)
  streams = _hub_streams(name, config)
  there = list(streams)
  found = [split for split in there if wanted in (split, SPLITS.get(split, split))]
  if not wanted and (first or len(there) == 1):
    found = there
  if not found:
    raise InputError(
      f"{address}: its splits are {', '.join(there)}: name one, {hub_address(f'{HUB}{name}', there[0])}"
    )
  split = wanted if wanted in there else found[0]
  stream, rows = streams[split], []
  try:
    for row in stream:
      rows.append(row)
      if first:
        break
  except Exception as error:  # of the network, or of a file
    raise InputError(f"{address} broke off after {len(rows)} rows ({error}): try again") from error
  rows = [_labelled(row, stream.features or {}) for row in rows]
  columns = tuple(dict.fromkeys(column for row in rows for column in row))
  if not first:
    told = _counted(address, len(rows), (stream.info.splits or {}).get(split))
    labels, classes = [row.get("label") for row in rows], list(ASNQ_CLASSES)
    of_asnq = labels and "asnq" in name.lower() and all(label in classes for label in labels)
    if of_asnq and min(labels) < max(labels):
      told += "; its labels are ASNQ's classes: 4 answers, 1 to 3 do not"
      for row in rows:
        row["label"] = ASNQ_CLASSES[row["label"]]
    log.info("%s: %s", address, told)
  return _rows(address, columns, rows)


def _counted(address: str, count: int, stated: Any) -> str:
  """Compare a number of rows with that of the data set's card."""
  number = getattr(stated, "num_examples", None)
  if not number:
    return f"{count:,} rows; its card states no number"
  if number != count:
    raise InputError(
      f"{address}: {count:,} rows came, and its card states {number:,}: try again, or copy its files to this "
      "machine: hub:FOLDER"
    )
  return f"{count:,} rows, as its card states"


def _labelled(row: dict[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
  """Return a row of the hub whose classes have their names, or 0 and 1, and whose passages are candidates."""
  row = dict(row)
  for column, feature in features.items():
    names, value = getattr(feature, "names", None), row.get(column)
    if names and isinstance(value, int) and 0 <= value < len(names):
      full = {"pos": "positive", "neg": "negative"}
      right = right_class([full.get(name, name) for name in names])
      row[column] = names[value] if right is None else int(value == right)
  passages = row.get("passages")
  if isinstance(passages, dict) and all(isinstance(field, list) for field in passages.values()):
    passages = [dict(zip(passages, values)) for values in zip(*passages.values())]
  if not isinstance(passages, list) or not all(isinstance(one, dict) for one in passages):
    return row
  if not passages and any(_simple(column) in NAMES["candidate"] for column in row):
    return row  # none of the texts that stand beside an answer
  del row["passages"]
  row["candidates"] = []
  for passage in passages:
    entry = dict(passage)
    if "passage_text" in entry:  # MS MARCO's
      entry["candidate"] = entry.pop("passage_text")
      entry["label"] = entry.pop("is_selected", None)
    row["candidates"].append(entry)
  return row


def _json_lines(path: epath.Path, text: str) -> Table:
  table = Table(str(path), None, [])
  for number, line in enumerate(text.rstrip().split("\n"), 1):
    row, problem = json_object(line) if line.strip() else ({}, "")
    if problem:
      table.faults.append((number, "that are no JSON object", problem))
    else:
      table.rows.append((number, row))
  return table


def _delimiter(text: str) -> str:
  return max(",;\t", key=text.partition("\n")[0].count)


def separator(source: str) -> str:
  """Tell what separates the cells of a CSV file that is read; a comma of anything else."""
  path = epath.Path(source).expanduser()
  if suffix_of(path) in (".parquet", ".tsv", *JSON) or not path.exists():
    return ","
  with opened(path) as file:
    return _delimiter(decoded(file.readline(), path))


def _delimited(path: epath.Path, text: str, suffix: str) -> Table:
  """Read CSV, or cells between tabs; what the first line has most of separates cells."""
  delimiter = "\t" if suffix == ".tsv" else _delimiter(text)
  plain = delimiter == "\t" and suffix != ".csv" and not is_quoted(text, path)
  table = Table(str(path), (), [])
  records: Iterable[tuple[int, list[str]]]
  if plain:
    lines = text.removesuffix("\n").split("\n")
    records = enumerate((line.removesuffix("\r").split("\t") for line in lines), 1)
  else:
    records = csv_records(io.StringIO(text, newline="\n"), delimiter, table.error)
  for number, cells in records:
    if not table.columns:
      table.columns = tuple(cells)
      if len(set(cells)) < len(cells):
        shown = quoted(", ".join(cells), 120)
        raise table.error(f"the header {shown} names a column twice; rename one", number)
    elif not any(cell.strip() for cell in cells):
      table.rows.append((number, {}))
    elif len(cells) != len(table.columns):
      problem = f"{len(cells)} columns in {quoted(', '.join(cells))}; expected {len(table.columns)}"
      told = f"{problem}: {', '.join(table.columns)}"
      table.faults.append((number, "with another number of cells than the header", told))
    else:
      table.rows.append((number, dict(zip(table.columns, cells))))
  while table.rows and not table.rows[-1][1]:  # empty lines at the end are none
    del table.rows[-1]
  return table


_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^\t\n"]*?))(?:\t|\r?\n|\r?\Z)')


def is_quoted(text: str, path: epath.PathLike = "") -> bool:
  """Tell whether a tab-separated text quotes cells as CSV does.

  It does where each cell that holds a quotation mark stands in quotation marks, with those inside
  doubled, for a reason that a writer has: the cell holds a quotation mark, a tab or a line break; or
  all cells with a comma are quoted (Excel's), or all that are no numbers. But where lines as they
  are have equal numbers of cells, a quotation mark does not make one cell of two lines.
  """
  if '"' not in text:
    return False
  cells = list(_CELL.finditer(text))
  if sum(len(cell[0]) for cell in cells) < len(text):  # some quotation mark is in the way
    return False
  inside = [cell[1] for cell in cells if cell[1] is not None]
  outside = [cell[2] for cell in cells if cell[1] is None]
  widths = {line.count("\t") for line in text.removesuffix("\n").split("\n")}
  plain = len(widths) == 1 and not re.search(r"\r(?!\n)", text)  # which no line may hold
  if plain and any(re.search(r"[\t\r\n]", cell) for cell in inside):
    return False
  inside = [cell for cell in inside if not re.search(r'["\t\r\n]', cell)]
  with_commas = all("," in cell for cell in inside) and not any("," in cell for cell in outside)
  all_words = not any(re.search(r"[^-+.\d]", cell) for cell in outside)
  if not inside or with_commas or all_words:
    return True
  log.warning(
    "%s: some cells are in quotation marks, such as %s, and most are not: quotation marks are "
    "taken as part of the text", path, quoted(f'"{inside[0]}"'),
  )  # fmt: skip
  return False


def _parquet(path: epath.Path) -> Table:
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise InputError(f"{path}: {PYARROW}") from error
  try:
    with opened(path) as file:
      content = parquet.ParquetFile(file, page_checksum_verification=True).read()
    return _rows(str(path), tuple(content.column_names), content.to_pylist())
  except (pyarrow.ArrowException, OSError, UnicodeError) as error:
    text = " ".join(str(error).split())
    raise InputError(f"{path} cannot be read as Parquet ({text}); get the file again") from error


def _frame(frame: Any) -> Table:
  frame = frame.rename(columns=str).astype(object)
  columns = tuple(frame.columns)
  if len(set(columns)) < len(columns):
    raise InputError(f"the frame names a column twice ({', '.join(columns)}); rename one")
  rows = frame.where(frame.notna(), None).to_dict("records")
  for row in rows:
    for name, value in row.items():
      if hasattr(value, "tolist"):  # an array, as pandas reads the lists of Parquet
        row[name] = value.tolist()
  return _rows("the frame", columns, rows)


def _rows(source: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
  """Return a table without lines; where rows list candidates, columns are those of each."""
  for row in rows:
    if isinstance(row.get("candidates"), list) or isinstance(row.get("positive"), list):
      return Table(source, None, list(enumerate(rows)), unit="row")
  return Table(source, columns, list(enumerate(rows)), unit="row")


def named_columns(columns: Mapping[str, str] | str, names: Fields = NAMES) -> dict[str, str]:
  """Return {field: column} of a mapping, or of a text `question=query,candidate=answer`.

  `label=` says that no column is the label.

  Raises InputError: another text, a field that there is not, or one column for two fields.
  """
  where = f"columns {columns!r}"
  if isinstance(columns, str):
    pairs = [item.partition("=")[::2] for item in columns.split(",") if item.strip()]
  else:
    pairs = list(columns.items())
  named: dict[str, str] = {}
  for field, column in pairs:
    field, column = field.strip(), column.strip()
    if field not in names or not (column or field == "label"):
      near = difflib.get_close_matches(field, names, 1)
      hint = f"did you mean {near[0]!r}? " if near else ""
      raise InputError(
        f"{where}: {field!r} with {column!r} is no FIELD=COLUMN; {hint}fields are {', '.join(names)}"
      )
    if field in named or column in named.values():
      raise InputError(f"{where}: the field {field} or the column {column} is given twice")
    named[field] = column
  return named


def _simple(name: str) -> str:
  """Write a column's name as `NAMES` has it."""
  return re.sub("[ _-]", "", name.strip().lower())


def resolve_columns(
  columns: Sequence[str],
  named: Mapping[str, str],
  table: Table,
  number: int | None = None,
  names: Fields = NAMES,
  needed: Sequence[str] = (),
) -> dict[str, str]:
  """Find the column of each field: {field: column}.

  A field that was named is that column; else it is the column that has its own name, else the only
  one that has another of its names.

  Raises InputError: a column that was named or is `needed` is not there, or two may be one field;
  names row `number`.
  """
  there = f"there are {quoted(', '.join(map(str, columns)), 120)}"
  resolved: dict[str, str] = {}
  for field, column in named.items():
    if not column:
      continue
    same = [c for c in columns if _simple(c) == _simple(column)]
    if not same:
      problem = f"there is no column {column!r}, which was named for {field}; {there}"
      raise table.error(problem, number)
    resolved[field] = column if column in same else same[0]
  for field, known in names.items():
    if field in resolved or field in named:
      continue
    found = [c for c in columns if _simple(c) in known and c not in resolved.values()]
    exact = [c for c in found if c.strip().lower() == field]
    if len(exact or found) > 1:
      shown = " and ".join(f"`{column}`" for column in found)
      problem = f"the columns {shown} may both be the {field}"
      raise table.error(f"{problem}; keep one, or name it: --columns {field}={found[0]}", number)
    if found:
      resolved[field] = (exact or found)[0]
  for field in needed:
    if field not in resolved:
      near, hint = difflib.get_close_matches(field, columns, 1), ""
      if near:
        hint = f"did you mean {near[0]!r}? "
      how = f"{hint}name it: --columns {field}={(near or ['COLUMN'])[0]}"
      raise table.error(f"there is no column {field} ({there}); {how}", number)
  return resolved


def check_target(
  target: str, option: str = "--output", *, source: str = "", forms: Sequence[str] = SUFFIXES
) -> None:
  """Raise InputError where no table can be written to `target`; make its folder where it can.

  `option` is what the message calls it; `source` the file whose rows will be written, which must be
  another; `forms` the suffixes that it may have ("" for any).
  """
  suffix = os.path.splitext(target)[1].lower()
  if not target.lower().endswith(tuple(forms)):
    raise InputError(f"{option}={target}: name a file that ends in {', '.join(forms)}")
  there = os.path.exists(source) and os.path.exists(target)
  if source == target or (there and os.path.samefile(source, target)):
    raise InputError(f"{option}={target} is the file that is read: name another")
  if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
    raise InputError(f"{option}={target}: {PYARROW}")
  if "://" in target:
    return
  path = epath.Path(target)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
      raise OSError("it is a folder, or in one that you may not write to")
  except OSError as error:
    raise InputError(
      f"{option}={target} cannot be written ({error}): name a file in a folder of yours"
    ) from error


def write(
  target: str, rows: Iterable[Mapping[str, Any]], option: str = "--output", excel: str = ""
) -> None:
  """Write rows in the form that the file's suffix asks for; see `check_target`.

  Columns are those of all rows, in the order of first sight. In TSV and CSV a missing value is
  empty, and dicts and lists are JSON text. So are those of a Parquet column, all of which becomes
  text, as does one of several types or of numbers that no type holds. For Excel, CSV has the separator
  `excel`, and a byte order mark, and no cell is a formula, see `neutral`.
  """
  rows = list(rows)
  path, suffix = epath.Path(target), os.path.splitext(target)[1].lower()
  try:
    if suffix == ".parquet":
      _write_parquet(path, rows)
    elif suffix in DELIMITERS:
      delimiter = excel if excel and suffix == ".csv" else DELIMITERS[suffix]
      write_whole(path, delimited(rows, delimiter, bool(excel)))
    else:
      lines = [json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows]
      write_whole(path, "".join(lines))
  except OSError as error:
    raise InputError(f"{option}={target} cannot be written: {error}") from error


def _cell(value: Any) -> Any:
  """Return a value as a cell holds it: dicts and lists are JSON text."""
  if isinstance(value, (dict, list)):
    return json.dumps(value, ensure_ascii=False, default=str)
  return value


def neutral(cell: str) -> str:
  """Put an apostrophe before a cell that a spreadsheet would compute."""
  return f"'{cell}" if _FORMULA.match(cell) else cell


def delimited(rows: Sequence[Mapping[str, Any]], delimiter: str, excel: bool) -> str:
  """Format rows with a header: cells are quoted as RFC 4180 says, lines end in LF; for `excel` see `write`."""
  columns = dict.fromkeys(name for row in rows for name in row)
  special = re.compile(f'[{delimiter}"\\n\\r]')
  lines = []
  for row in (dict(zip(columns, columns)), *rows):
    cells = []
    for name in columns:
      value = row.get(name)
      cell = "" if value is None else str(_cell(value))
      if excel and isinstance(value, str):
        cell = neutral(cell)
      if special.search(cell):
        cell = '"' + cell.replace('"', '""') + '"'
      cells.append(cell)
    lines.append(delimiter.join(cells) + "\n")
  return MARK * excel + "".join(lines)


def _write_parquet(path: epath.Path, rows: Sequence[Mapping]) -> None:
  import pyarrow
  from pyarrow import parquet

  arrays = {}
  for name in dict.fromkeys(name for row in rows for name in row):
    values = [_cell(row.get(name)) for row in rows]
    try:
      arrays[name] = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):  # several types, or beyond 64 bits
      arrays[name] = pyarrow.array([None if value is None else str(value) for value in values])
  content = io.BytesIO()
  parquet.write_table(pyarrow.table(arrays), content)
  write_whole(path, content.getvalue())
