import csv
import io
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.readers.asnq import iterate_asnq
from tests.file_damage import check_refusals, damaged, read_or_refused


def read_judged(path):
  return tuple(iterate_asnq(path, judged=True))


RECORDS = (
  {"question": "who ?", "sentence": "Ann .", "label": 1, "next": "Ben .", "title": "T"},
  {"question": "who ?", "sentence": "Ben .", "label": 0, "previous": "Ann .", "url": "http://x"},
  {"question": "why ?", "sentence": "So .", "label": 0},
)


def json_lines(records=RECORDS) -> bytes:
  return "".join(json.dumps(record) + "\n" for record in records).encode()


def columns(records=RECORDS, end="\r\n") -> bytes:
  names = ("question", "answer", "label", "previous", "next", "title")
  rows = [
    [str(r.get("sentence" if name == "answer" else name, "")) for name in names] for r in records
  ]
  return "".join("\t".join(row) + end for row in [names, *rows]).encode()


def commas(records=RECORDS) -> bytes:
  out = io.StringIO()
  writer = csv.writer(out)
  writer.writerow(("doc_id", "question", "answer", "previous", "successive", "title", "label"))
  for r in records:
    cells = [r.get(n, "") for n in ("question", "sentence", "previous", "next", "title", "label")]
    writer.writerow([7, *cells])
  return out.getvalue().encode()


def written(folder: Path, data: bytes, name: str = "train.jsonl") -> Path:
  path = folder / name
  path.write_bytes(data)
  return path


def test_json_lines_and_columns_are_the_same(tmp_path):
  first, second = read_judged(written(tmp_path, json_lines()))
  assert [(c.id, c.text, c.label, c.title) for c in first.candidates] == [
    ("q1-0", "Ann .", 1, "T"),
    ("q1-1", "Ben .", 0, ""),
  ]
  assert (first.candidates[0].next, first.candidates[0].next_label) == ("Ben .", 0)
  assert first.candidates[1].previous_label == 1
  assert (second.id, second.text) == ("q2", "why ?")
  assert read_judged(written(tmp_path, columns())) == (first, second)


def test_commas_and_quotes(tmp_path):
  plain = read_judged(written(tmp_path, json_lines()))
  assert read_judged(written(tmp_path, commas(), "train.csv")) == plain
  odd = {"question": 'who is "A, B" ?', "sentence": 'One,\n"two" .', "label": 1}
  (question,) = read_judged(written(tmp_path, commas([odd]), "train.csv"))
  assert (question.text, question.candidates[0].text) == (odd["question"], odd["sentence"])


BROKEN_CSV = {
  "cut off": (commas()[:-12], 4, "columns in"),
  "not closed": (commas().replace(b",Ben", b',"Ben', 1), 2, "not a line of CSV (unexpected end"),
  "marks inside": (commas([{"question": "q", "sentence": "s", "label": 1}]).replace(b",s,", b',"s" t,'), 2, "not a line of CSV"),
  "empty line": (commas() + b"\n" + commas().splitlines(True)[-1], 5, "0 columns in"),
  "tabs": (columns(), 1, "the fields are"),
}  # fmt: skip


def test_broken_commas(tmp_path):
  check_refusals(read_judged, tmp_path / "train.csv", BROKEN_CSV)


def changed(**fields) -> bytes:
  return json_lines([RECORDS[0], {**RECORDS[1], **fields}])


BROKEN = {
  "no label": (changed(label=None), 2, "label is 'None'"),
  "empty sentence": (changed(sentence=" "), 2, "the field sentence is empty"),
  "number for a text": (changed(title=3), 2, "the field title is '3'"),
  "unknown field": (changed(score=1), 2, "the fields are"),
  "not an object": (json_lines() + b"[1]\n", 4, "is not a JSON object"),
  "cut off": (json_lines()[:-8], 3, "not a JSON object"),
  "no header": (b"a\tb\t1\n", 1, "the fields are"),
  "header only": (columns([]), 1, "nothing follows the header"),
  "no label column": (b"question\tsentence\ttitle\na\tb\tc\n", 1, "the fields are"),
}


def test_broken_file(tmp_path):
  check_refusals(read_judged, tmp_path / "train.jsonl", BROKEN)


def judge(folder, data: bytes) -> str:
  """An error that names the file, or the counts that another reader finds in `data`."""
  questions = read_or_refused(read_judged, written(folder, data))
  if questions is None:
    return "refused"
  lines = [x for x in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if x.strip()]
  is_json = lines[0].lstrip().startswith(b"{")
  assert sum(len(q.candidates) for q in questions) == len(lines) - (not is_json)
  return "read"


@given(drawn=st.data())
def test_damage_is_an_error_with_its_place_or_changes_no_count(tmp_path, drawn):
  judge(tmp_path, damaged(drawn.draw, drawn.draw(st.sampled_from((json_lines(), columns())))))
