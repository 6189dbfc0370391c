"""Run files, judgements and per-question scores as text that trec_eval and people can read.

Each file is composed in memory and written atomically; where that fails nothing is left behind.
With several processes, only the first one writes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from etils import epath

from as2jax.data.lines import is_id, unpacked
from as2jax.data.record import UNKNOWN
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

_BOM = b"\xef\xbb\xbf"


def write_run(
  path: epath.PathLike,
  question_ids: Sequence[str],
  candidate_ids: Sequence[Sequence[str]],
  scores: Sequence[np.ndarray],
  tag: str,
) -> None:
  """Writes a TREC run: `question Q0 candidate rank score tag`, questions in the order given.

  Candidates are ranked by float32 score descending, ties by id descending, as trec_eval does;
  scores have 9 significant digits, which give back the same float32. `InputError` for ids or a tag
  that are empty or hold whitespace, for an id that occurs twice, for a NaN score.
  """
  _check_ids(path, question_ids, candidate_ids, [len(x) for x in scores])
  _check_id(path, "tag", tag)
  lines = []
  for question, candidates, values in zip(question_ids, candidate_ids, scores, strict=True):
    with np.errstate(over="ignore"):  # beyond float32 means infinite
      values = np.asarray(values).astype(np.float32)
    if np.isnan(values).any():
      raise InputError(f"{path}: question {question!r} has a NaN score: it cannot be ranked")
    ranked = sorted(zip(values.tolist(), candidates, strict=True), reverse=True)
    lines += [
      f"{question} Q0 {candidate} {rank} {score:.9g} {tag}"
      for rank, (score, candidate) in enumerate(ranked, 1)
    ]
  _write(path, lines)


def read_run(path: epath.PathLike) -> dict[str, dict[str, float]]:
  """Reads a TREC run as {question: {candidate: score}}, in the order of the file.

  The rank and the tag are not looked at, as in trec_eval. `InputError`, with file and line, for a
  line of other than six fields, a score that is no number, a pair that occurs twice.
  """
  run = {}
  for number, fields in _read(path, "question Q0 candidate rank score tag"):
    score = _number(path, number, fields[4], float, "score")
    if math.isnan(score):
      raise InputError(f"{path}:{number}: score {fields[4]!r} cannot be ranked: give a number")
    _insert(run, path, number, fields[0], fields[2], score)
  return run


def write_qrels(
  path: epath.PathLike,
  question_ids: Sequence[str],
  candidate_ids: Sequence[Sequence[str]],
  labels: Sequence[np.ndarray],
) -> None:
  """Writes TREC judgements: `question 0 candidate label`.

  Candidates of unknown label get no line (trec_eval takes them as negative), so that a question
  without any judgement is left out. `InputError` as in `write_run`.
  """
  _check_ids(path, question_ids, candidate_ids, [len(x) for x in labels])
  lines = []
  for question, candidates, values in zip(question_ids, candidate_ids, labels, strict=True):
    for candidate, label in zip(candidates, np.asarray(values).tolist(), strict=True):
      if label not in (0, 1, UNKNOWN):
        raise InputError(f"{path}: {question} {candidate}: label {label}: use 1, 0 or {UNKNOWN}")
      if label != UNKNOWN:
        lines.append(f"{question} 0 {candidate} {int(label)}")
  _write(path, lines)


def read_qrels(path: epath.PathLike) -> dict[str, dict[str, int]]:
  """Reads TREC judgements as {question: {candidate: label}}; errors as in `read_run`."""
  qrels = {}
  for number, fields in _read(path, "question 0 candidate label"):
    label = _number(path, number, fields[3], int, "label")
    _insert(qrels, path, number, fields[0], fields[2], label)
  return qrels


def write_per_question(
  path: epath.PathLike,
  question_ids: Sequence[str],
  labels: Sequence[np.ndarray],
  metrics: Mapping[str, np.ndarray],
) -> None:
  """Writes a table: question id, numbers of candidates and positives, metrics in full precision.

  Tab-separated with a header line; `metrics` is {metric: [questions]}, as from
  `metrics.per_question`. `InputError` for ids that cannot be written or lengths that differ.
  """
  write_table(
    path,
    question_ids,
    list(map(len, labels)),
    [np.count_nonzero(np.asarray(label) == 1) for label in labels],
    metrics,
  )


def write_table(
  path: epath.PathLike,
  question_ids: Sequence[str],
  candidates: Sequence[int],
  positives: Sequence[int],
  metrics: Mapping[str, np.ndarray],
) -> None:
  """As `write_per_question`, from numbers of candidates and positives."""
  _check_ids(path, question_ids, [()] * len(candidates), [0] * len(candidates))
  for metric, values in metrics.items():
    if len(values) != len(question_ids):
      raise InputError(f"{path}: {len(question_ids)} questions, but {len(values)} of {metric}")
  lines = ["\t".join(["question", "candidates", "positives", *metrics])]
  columns = [np.asarray(values, np.float64).tolist() for values in metrics.values()]
  for question, *numbers in zip(
    question_ids, map(int, candidates), map(int, positives), *columns, strict=True
  ):
    lines.append("\t".join([question, *map(repr, numbers)]))
  _write(path, lines)


def read_per_question(path: epath.PathLike) -> tuple[list[str], dict[str, np.ndarray]]:
  """Reads what `write_per_question` wrote: question ids and {column: float64 [questions]}.

  The columns include `candidates` and `positives`. `InputError`, with file and line, where the
  header is another, a row is short, a value is no finite number, or a question occurs twice.
  """
  lines = read_lines(path)
  header = lines[0].decode().split("\t") if lines else []
  if header[:3] != ["question", "candidates", "positives"]:
    raise InputError(
      f"{path}:1: not a table of per-question scores: its first line must begin "
      "with question, candidates, positives, separated by tabs"
    )
  rows = {}
  for number, line in enumerate(lines[1:], 2):
    fields = line.decode().split("\t")
    if len(fields) != len(header):
      raise InputError(
        f"{path}:{number}: {len(fields)} columns, but the header has {len(header)}: "
        "the file may be cut off; write it again"
      )
    try:
      values = list(map(float, fields[1:]))
    except ValueError:
      values = [math.nan]
    if b"_" in line or not all(map(math.isfinite, values)):
      for text in fields[1:]:
        _number(path, number, text, float, "value")
      if not all(map(math.isfinite, values)):
        raise InputError(f"{path}:{number}: a value is not finite: {line.decode()!r}")
    if fields[0] in rows:
      raise InputError(f"{path}:{number}: question {fields[0]!r} occurs twice: keep one row")
    rows[fields[0]] = values
  table = np.array(list(rows.values()), np.float64).reshape(len(rows), len(header) - 1)
  return list(rows), dict(zip(header[1:], table.T, strict=True))


def _check_ids(path, question_ids, candidate_ids, lengths):
  if not len(question_ids) == len(candidate_ids) == len(lengths):
    raise InputError(
      f"{path}: {len(question_ids)} question ids, {len(candidate_ids)} lists of "
      f"candidate ids, {len(lengths)} lists of values: give one each a question"
    )
  _check_unique(path, "question", question_ids)
  for question, candidates, length in zip(question_ids, candidate_ids, lengths, strict=True):
    if len(candidates) != length:
      raise InputError(
        f"{path}: question {question!r} has {len(candidates)} candidate ids, but "
        f"{length} values: give one a candidate"
      )
    _check_unique(path, f"question {question!r}: candidate", candidates)


def _check_unique(path, what: str, ids: Iterable[str]):
  seen = set()
  for text in ids:
    _check_id(path, f"{what} id", text)
    if text in seen:
      raise InputError(f"{path}: {what} id {text!r} occurs twice: ids must differ")
    seen.add(text)


def _check_id(path, what: str, text: str):
  if not is_id(text):
    raise InputError(
      f"{path}: {what} {text!r} is empty or holds whitespace (or no valid text), "
      "which the format cannot carry: rename it"
    )


def _insert(table, path, number, question, candidate, value):
  row = table.setdefault(question, {})
  if candidate in row:
    raise InputError(
      f"{path}:{number}: candidate {candidate!r} of question {question!r} occurs "
      "twice: keep one line"
    )
  row[candidate] = value


def _number(path, number, text, kind, what):
  try:
    if "_" in text:  # Python's digit separators are nobody else's
      raise ValueError
    return kind(text)
  except ValueError:
    raise InputError(f"{path}:{number}: {what} {text!r} is not a number: give one") from None


def _read(path, layout: str):
  """Yields (line number, fields) of a file whose lines are laid out like `layout`."""
  expected = len(layout.split())
  for number, line in enumerate(read_lines(path), 1):
    fields = line.split()  # of bytes: at ASCII whitespace alone, as trec_eval does
    if len(fields) != expected:
      raise InputError(
        f"{path}:{number}: {len(fields)} fields where there must be {expected} "
        f"({layout}): {line.decode()[:80]!r}"
      )
    yield number, [field.decode() for field in fields]


def read_lines(path: epath.PathLike) -> list[bytes]:
  """Returns a file's lines, each checked to be UTF-8, less the empty ones at its end.

  What gzip compressed is unpacked, whatever the file is called.
  """
  with unpacked(path) as stream:
    content = stream.read()
  lines = content.removeprefix(_BOM).rstrip().split(b"\n") if content.strip() else []
  for number, line in enumerate(lines, 1):
    try:
      line.decode()
    except UnicodeDecodeError as e:
      raise InputError(
        f"{path}:{number}: not UTF-8 (byte {e.start + 1} of the line): convert the file to UTF-8"
      ) from None
  return [line.removesuffix(b"\r") for line in lines]


def _write(path, lines: list[str]):
  try:
    write_whole(path, "".join(f"{line}\n" for line in lines))
  except OSError as e:
    raise InputError(
      f"{path}: cannot be written ({e.strerror or e}): make room, or write elsewhere"
    ) from e
