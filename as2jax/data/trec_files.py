"""Run files, judgements and per-question scores as text that trec_eval and people can read.

Each file is composed in memory and written atomically; where that fails nothing is left behind.
With several processes, only the first one writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.lines import BYTE_ORDER_MARK, ID, decoded, is_id, opened
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

BEIR = [b"query-id", b"corpus-id", b"score"]  # the first line of its judgements
TABLE = ["question", "candidates", "positives"]  # the first columns of per-question scores


def float32(scores: Sequence[float] | np.ndarray) -> np.ndarray:
  """Return scores as float32; what is beyond it is infinite, as to trec_eval."""
  with np.errstate(over="ignore"):
    return np.asarray(scores).astype(np.float32)


def write_run(
  path: epath.PathLike,
  question_ids: Sequence[str],
  candidate_ids: Sequence[Sequence[str]],
  scores: Sequence[np.ndarray],
  tag: str,
) -> None:
  """Write a TREC run: `question Q0 candidate rank score tag`, questions in the order given.

  Candidates are ranked by float32 score descending, ties by id descending, as trec_eval does;
  scores have 9 significant digits, which give back the same float32. `InputError` for an id or a tag
  that the format cannot hold, for an id that occurs twice, for a NaN score.
  """
  _check_ids(path, "tag", [tag])
  _check_pairs(path, question_ids, candidate_ids)
  lines = []
  for question, candidates, values in zip(question_ids, candidate_ids, scores, strict=True):
    values = float32(values)
    if np.isnan(values).any():
      raise InputError(f"{path}: question {question!r} has a NaN score: it cannot be ranked")
    ranked = sorted(zip(values.tolist(), candidates, strict=True), reverse=True)
    for rank, (score, candidate) in enumerate(ranked, 1):
      lines.append(f"{question} Q0 {candidate} {rank} {score:.9g} {tag}")
  _write(path, lines)


def read_run(path: epath.PathLike) -> dict[str, dict[str, float]]:
  """Read a TREC run as {question: {candidate: score}}, in the order of the file.

  The rank and the tag are not looked at, as in trec_eval. `InputError`, with file and line, for a
  line of other than six fields, a score that is no number, a pair that occurs twice.
  """
  return _read(path, read_lines(path), 1, "question Q0 candidate rank score tag", 4, float)


def write_qrels(
  path: epath.PathLike,
  question_ids: Sequence[str],
  candidate_ids: Sequence[Sequence[str]],
  labels: Sequence[np.ndarray],
) -> None:
  """Write TREC judgements: `question 0 candidate label`.

  Candidates of unknown label get no line (trec_eval takes them as negative), so that a question
  without any judgement is left out. `InputError` as in `write_run`.
  """
  _check_pairs(path, question_ids, candidate_ids)
  lines = []
  for question, candidates, values in zip(question_ids, candidate_ids, labels, strict=True):
    for candidate, label in zip(candidates, np.asarray(values).tolist(), strict=True):
      if label != UNKNOWN:
        lines.append(f"{question} 0 {candidate} {int(label)}")
  _write(path, lines)


def read_qrels(path: epath.PathLike) -> dict[str, dict[str, int]]:
  """Read judgements in TREC's or BEIR's form as {question: {candidate: label}}; errors as in `read_run`."""
  lines = read_lines(path)
  if lines and lines[0].split() == BEIR:
    return _read(path, lines[1:], 2, "question candidate label", 2, int)
  return _read(path, lines, 1, "question 0 candidate label", 3, int)


def open_qrels(address: str, split: str = "test") -> dict[str, dict[str, int]]:
  """Open judgements: a file, the split of a BEIR folder, or `irds:ID` for an id of ir_datasets.

  >>> open_qrels("irds:beir/scifact/test")  # doctest: +SKIP

  Raises InputError: ir_datasets is not installed, or has no judgements of this id; see `read_qrels`.
  """
  kind, _, name = address.partition(":")
  if kind != "irds":
    path = epath.Path(address).expanduser()
    return read_qrels(path / "qrels" / f"{split}.tsv" if path.is_dir() else path)
  try:
    import ir_datasets
  except ImportError as error:
    raise InputError(
      f"{address} needs ir_datasets, which is not installed: pip install 'as2jax[irds]'"
    ) from error
  try:
    judged = ir_datasets.load(name).qrels_iter()
  except (KeyError, AttributeError) as error:
    raise InputError(
      f"{address}: ir_datasets knows no such data set with judgements: take an id of https://ir-datasets.com"
    ) from error
  table: dict[str, dict[str, int]] = {}
  for one in judged:
    table.setdefault(one.query_id, {})[one.doc_id] = one.relevance
  return table


def of_beir(address: str) -> bool:
  """Tell whether judgements, as `open_qrels` takes them, are BEIR's: a folder, a file or `irds:beir/…`."""
  kind, _, name = address.partition(":")
  path = epath.Path(address).expanduser()
  if kind == "irds" or path.is_dir():
    return path.is_dir() or name.startswith("beir/")
  with opened(path) as file:
    return file.readline().removeprefix(BYTE_ORDER_MARK).split() == BEIR


def write_per_question(
  path: epath.PathLike,
  question_ids: Sequence[str],
  labels: Sequence[np.ndarray],
  metrics: Mapping[str, np.ndarray],
) -> None:
  """Write a table: question id, numbers of candidates and positives, metrics in full precision.

  Tab-separated with a header line; `metrics` is {metric: [questions]}, as from
  `metrics.per_question`. `InputError` for ids that cannot be written.
  """
  positives = [np.count_nonzero(np.asarray(label) == 1) for label in labels]
  write_table(path, question_ids, list(map(len, labels)), positives, metrics)


def write_table(
  path: epath.PathLike,
  question_ids: Sequence[str],
  candidates: Sequence[int],
  positives: Sequence[int],
  metrics: Mapping[str, np.ndarray],
) -> None:
  """Write the table of `write_per_question` from numbers of candidates and positives."""
  _check_ids(path, "question", question_ids)
  columns = [list(map(int, candidates)), list(map(int, positives))]
  columns += [np.asarray(values, np.float64).tolist() for values in metrics.values()]
  lines = ["\t".join([*TABLE, *metrics])]
  for question, *numbers in zip(question_ids, *columns, strict=True):
    lines.append("\t".join([question, *map(repr, numbers)]))
  _write(path, lines)


def read_per_question(path: epath.PathLike) -> tuple[list[str], dict[str, np.ndarray]]:
  """Read what `write_per_question` wrote: question ids and {column: float64 [questions]}.

  The columns include `candidates` and `positives`. `InputError`, with file and line, where the
  header is another, a row is short, a value is no finite number, or a question occurs twice.
  """
  header, *lines = [line.decode().split("\t") for line in read_lines(path)] or [[]]
  if header[:3] != TABLE:
    expected = f"its first line must begin with {', '.join(TABLE)}, separated by tabs"
    raise InputError(f"{path}:1: not a table of per-question scores: {expected}")
  rows: dict[str, list[float]] = {}
  for number, (question, *fields) in enumerate(lines, 2):
    if len(fields) != len(header) - 1 or question in rows:
      raise InputError(
        f"{path}:{number}: {len(fields) + 1} columns, but the header has {len(header)}, or question "
        f"{question!r} occurs twice: write the file again"
      )
    rows[question] = [_number(path, number, text, float) for text in fields]
  table = np.array(list(rows.values()), np.float64).reshape(len(rows), len(header) - 1)
  if not np.isfinite(table).all():
    raise InputError(f"{path}: a value is not finite: write the file again")
  return list(rows), dict(zip(header[1:], table.T, strict=True))


def _check_pairs(
  path: epath.PathLike, question_ids: Sequence[str], candidate_ids: Sequence[Sequence[str]]
) -> None:
  _check_ids(path, "question", question_ids)
  for question, candidates in zip(question_ids, candidate_ids, strict=True):
    _check_ids(path, f"question {question!r}: candidate", candidates)


def _check_ids(path: epath.PathLike, what: str, ids: Sequence[str]) -> None:
  """Refuse ids that a file cannot hold, or that occur twice."""
  seen = set()
  for text in ids:
    if not is_id(text) or text in seen:
      problem = f"occurs twice or cannot be written: {ID}; rename it"
      raise InputError(f"{path}: {what} {text!r} {problem}")
    seen.add(text)


def _number(path: epath.PathLike, number: int, text: str, kind: type) -> Any:
  try:
    if "_" in text:  # which Python alone reads as a number
      raise ValueError
    return kind(text)
  except ValueError:
    what = {float: "number", int: "whole number"}[kind]
    raise InputError(f"{path}:{number}: {text!r} is not a {what}: give one") from None


def _read(
  path: epath.PathLike, lines: Sequence[bytes], first: int, layout: str, place: int, kind: type
) -> dict[str, dict[str, Any]]:
  """Read {question: {candidate: value}} of lines like `layout`, the value at one `place` of it."""
  expected, table = layout.split(), {}
  at = expected.index("candidate")
  for number, line in enumerate(lines, first):
    fields = [field.decode() for field in line.split()]  # at ASCII whitespace alone, as trec_eval
    if len(fields) != len(expected):
      raise InputError(
        f"{path}:{number}: {len(fields)} fields where there must be {len(expected)} ({layout}): "
        f"{line.decode()[:80]!r}; give all of them, with no space in an id or a tag"
      )
    value = _number(path, number, fields[place], kind)
    row = table.setdefault(fields[0], {})
    if value != value or fields[at] in row:
      problem = f"occurs twice, or its {fields[place]!r} cannot be ranked"
      raise InputError(
        f"{path}:{number}: candidate {fields[at]!r} of question {fields[0]!r} {problem}"
      )
    row[fields[at]] = value
  return table


def read_lines(path: epath.PathLike) -> list[bytes]:
  """Return a file's lines (unpacked from gzip), each checked to be UTF-8, less empty ones at its end."""
  with opened(path) as stream:
    content = stream.read().removeprefix(BYTE_ORDER_MARK).rstrip()
  decoded(content, path)
  return [line.removesuffix(b"\r") for line in content.split(b"\n")] if content else []


def _write(path: epath.PathLike, lines: Sequence[str]) -> None:
  try:
    write_whole(path, "".join(f"{line}\n" for line in lines))
  except OSError as e:
    raise InputError(
      f"{path}: cannot be written ({e.strerror or e}): make room, or write elsewhere"
    ) from e
