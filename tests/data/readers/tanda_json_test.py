import json
from pathlib import Path

import pytest
from file_damage import damaged, has_place
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.readers.trecqa import read_tanda_json
from as2jax.data.record import UNKNOWN
from as2jax.data.user_files import read_labelled, read_unlabelled
from as2jax.runtime.errors import InputError

RECORDS = (
  {"question": 'who sold "ice"?', "candidates": [
    {"label": 1, "sentence": "Tudor did &amp; paid."}, {"label": 0, "sentence": "It is cold."}]},
  {"question": "where is ice?", "candidates": []},
  {"question": 'who sold "ice"?', "candidates": [{"label": "0", "sentence": "It is cold."}]},
)  # fmt: skip


def content(*records, end="\n") -> bytes:
  lines = (r if isinstance(r, str) else json.dumps(r) for r in records or RECORDS)
  return "".join(line + end for line in lines).encode()


def written(folder: Path, data: bytes, name="train.jsonl") -> Path:
  path = folder / name
  path.write_bytes(data)
  return path


def test_a_line_is_a_question(tmp_path):
  first, empty, again = read_tanda_json(written(tmp_path, content()))
  assert (first.id, first.text) == ("q1", 'who sold "ice"?')
  assert [(c.id, c.label) for c in first.candidates] == [("q1-0", 1), ("q1-1", 0)]
  assert first.candidates[0].text == "Tudor did &amp; paid."
  assert (empty.id, empty.candidates) == ("q2", ())
  assert (again.id, again.text, len(again.candidates)) == ("q3", first.text, 1)


def test_ids_context_and_alias(tmp_path):
  entry = {"candidate": "c", "label": 1, "candidate_id": 5, "previous": "p", "title": "t"}
  path = written(tmp_path, content({"question_id": "a", "question": "q", "candidates": [entry]}))
  (question,) = read_tanda_json(path)
  (actual,) = question.candidates
  assert (question.id, actual.id, actual.text) == ("a", "5", "c")
  assert (actual.previous, actual.next, actual.title, actual.label) == ("p", "", "t", 1)


def test_context_has_the_label_of_the_candidate_with_its_text(tmp_path):
  texts = {"a": 0, "b": 1, "c": 0}
  entries = [{"sentence": x, "label": label} for x, label in texts.items()]
  entries[0] |= {"next": "b"}
  entries[1] |= {"previous": "a", "next": "c"}
  entries[2] |= {"previous": "b", "next": "d"}
  path = written(tmp_path, content({"question": "q", "candidates": entries}))
  (question,) = read_tanda_json(path)
  around = [(c.previous_label, c.next_label) for c in question.candidates]
  assert around == [(UNKNOWN, 1), (0, 0), (1, UNKNOWN)]
  (twice,) = read_tanda_json(
    written(
      tmp_path, content({"question": "q", "candidates": [*entries, {"sentence": "b", "label": 0}]})
    )
  )
  assert twice.candidates[0].next_label == UNKNOWN  # the candidates with its text disagree


@pytest.mark.parametrize(
  "data", [content(end="\r\n"), b"\xef\xbb\xbf" + content(), content()[:-1], content() + b"\n\n"]
)
def test_the_wrapping_changes_nothing(tmp_path, data):
  expected = read_tanda_json(written(tmp_path, content()))
  assert read_tanda_json(written(tmp_path, data)) == expected


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.json", "mine.txt"])
def test_a_users_file_is_known_by_its_content(tmp_path, name):
  path = written(tmp_path, content(), name)
  assert read_labelled(path) == read_tanda_json(path)
  labels = {c.label for q in read_unlabelled(path) for c in q.candidates}
  assert labels == {UNKNOWN}


def one(**fields) -> dict:
  return {"question": "q", "candidates": [{"label": 1, "sentence": "c"} | fields]}


GOOD = one()
NESTED = {"question": "q", "candidates": [{"candidates": []}]}
BROKEN = {
  "not JSON": (content(GOOD, "{question"), 2, "not a JSON object"),
  "another kind": (content(GOOD, "[]"), 2, "is not a JSON object"),
  "cut off": (content(GOOD, GOOD)[:-9], 2, "may be cut off"),
  "blank line": (content(GOOD, "", GOOD), 2, "the line is empty"),
  "no question": (content({"candidates": []}), 1, "question is missing"),
  "empty question": (content(GOOD | {"question": " "}), 1, "question is empty"),
  "no candidates": (content(GOOD, {"question": "q"}), 2, "candidates is 'null'"),
  "candidates no list": (content({"question": "q", "candidates": "c"}), 1, "expected a list"),
  "candidate no object": (content({"question": "q", "candidates": ["c"]}), 1, "candidate 1 is"),
  "unknown field": (content(GOOD | {"answers": 1}), 1, "'answers' is not a known field"),
  "unknown field inside": (content(one(lable=1)), 1, "'lable' is not a known field"),
  "nested": (content(NESTED), 1, "'candidates' is not a known field"),
  "no label": (content(one(label=None)), 1, "label is missing; every candidate"),
  "unknown label": (content(one(label=2)), 1, "label is '2'; expected 0 or 1"),
  "label true": (content(one(label=True)), 1, "label is 'True'"),
  "empty sentence": (content(GOOD, one(sentence="")), 2, "sentence is empty"),
  "a number for a text": (content(one(sentence=3)), 1, "the field sentence is '3'"),
  "sentence and candidate": (
    content(one(candidate="d")),
    1,
    "sentence is given twice (by `candidate`, too)",
  ),
  "field twice": (content('{"question": "q", "question": "r"}'), 1, "twice"),
  "half a surrogate pair": (content(one(sentence="\ud800")), 1, "surrogate"),
  "id on some lines": (content(GOOD, GOOD | {"question_id": "a"}), 2, "on all or on none"),
  "id twice": (content(*[GOOD | {"question_id": "a"}] * 2), 2, "already on line 1"),
  "white space in an id": (content(one(candidate_id="a b")), 1, "candidate_id is 'a b'"),
  "not UTF-8": (content(GOOD) + b'{"question": "\xe9"}\n', 2, "not UTF-8"),
}


@pytest.mark.parametrize("data, line, words", BROKEN.values(), ids=BROKEN)
def test_broken_file(tmp_path, data, line, words):
  path = written(tmp_path, data)
  with pytest.raises(InputError) as error:
    read_tanda_json(path)
  assert words in str(error.value)
  assert str(error.value).startswith(f"{path}:{line}: ")


def test_candidate_id_twice(tmp_path):
  entry = {"sentence": "c", "label": 0, "candidate_id": "a"}
  path = written(tmp_path, content({"question": "q", "candidates": [entry, entry]}))
  with pytest.raises(InputError, match=r":1: candidate_id 'a' occurs twice"):
    read_tanda_json(path)


def judge(folder, data: bytes) -> str:
  """An error that names its place, or the counts that another reader finds in `data`."""
  path = written(folder, data)
  try:
    questions = read_tanda_json(path)
  except InputError as error:
    assert has_place(error, path)
    return "refused"
  records = [json.loads(line) for line in data.decode("utf-8-sig").split("\n") if line.strip()]
  assert len(questions) == len(records)
  assert [len(q.candidates) for q in questions] == [len(r["candidates"]) for r in records]
  return "read"


@given(drawn=st.data())
def test_damage_is_an_error_with_its_place_or_changes_no_count(tmp_path, drawn):
  judge(tmp_path, damaged(drawn.draw, content(), (b'"', b"{}", b"\\", b"[]")))
