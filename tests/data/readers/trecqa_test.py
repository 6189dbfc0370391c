import itertools
import json
import re

import pytest
import tiny
from file_damage import joined, written

from as2jax.data.readers.trecqa import TRECQA, TRECQA_ALL, TRECQA_JSON, iterate_trecqa


def read(path):
  return tuple(iterate_trecqa(path))


def block(kind: str, *lines: str) -> tuple[str, ...]:
  return (f"<{kind}>", *("\t".join(line.split(" ")) for line in lines), f"</{kind}>")


BARE = (
  "<QApairs id='1'>",
  *block("question", "Who sold `` ice '' ?"),
  *block("positive", "Tudor -LRB- a merchant -RRB- did & it < paid ."),
  *block("negative", "It is cold ."),
  *block("negative", "Ice does n't burn ."),
  "</QApairs>",
  "<QApairs id='32.1'>",
  *block("question", "Where is ice ?"),
  "</QApairs>",
  "<QApairs id='7'>",
  *block("question", "What is ice ?"),
  *block("negative", "It is cold ."),
  "</QApairs>",
)
FULL = (
  "<QApairs id='1'>",
  *block("question", "Who sold ice", "WP VBD NN", "SUB ROOT OBJ", "2 0 2", "- - -"),
  *block("positive", "Tudor did", "NNP VBD", "SUB ROOT", "2 0", "P -", "Tudor", "1"),
  *block("negative", "It melts", "PRP VBZ", "SUB ROOT", "2 0", "- -"),
  "</QApairs>",
)


def test_reads_questions_in_treebank_spelling(tmp_path):
  first, empty, last = read(written(tmp_path, joined(BARE)))
  assert (first.id, first.text) == ("1", "Who sold `` ice '' ?")
  assert [c.id for c in first.candidates] == ["1-0", "1-1", "1-2"]
  assert [c.label for c in first.candidates] == [1, 0, 0]
  assert first.candidates[0].text == "Tudor -LRB- a merchant -RRB- did & it < paid ."
  assert (empty.id, empty.text, empty.candidates) == ("32.1", "Where is ice ?", ())
  assert [c.id for c in last.candidates] == ["7-0"]


def test_a_candidate_without_text_is_skipped_and_reported(tmp_path, caplog):
  lines = joined((*BARE[:8], "", *BARE[9:]))  # of 1-1
  (first, _, _) = read(written(tmp_path, lines))
  assert [c.id for c in first.candidates] == ["1-0", "1-2"]  # the others keep their ids
  assert "skipped 1 candidates without text (the first on line 8)" in caplog.text


def changed(old: str, *new: str) -> bytes:
  at = BARE.index(old)
  return joined((*BARE[:at], *new, *BARE[at + 1 :]))


BROKEN = {
  "not UTF-8": (joined(BARE).replace(b"merchant", b"m\xe9rchant"), 6, "not UTF-8"),
  "another file": (b"question\tcandidate\tlabel\n", 1, "where <QApairs id='1'> should begin"),
  "no question": (joined((*BARE[:1], *BARE[4:])), 2, "has no text first"),
  "empty question": (changed("Where\tis\tice\t?", " "), 16, "has no text first"),
  "two questions": (joined((*BARE[:4], *BARE[1:])), 5, "has no text first, or two"),
  "id twice": (
    changed("<QApairs id='7'>", "<QApairs id='1'>"),
    20,
    "question '1' was already there",
  ),
  "an id of two": (changed("<QApairs id='7'>", "<QApairs id='7 8'>"), 20, "> is '7 8'; an id is"),
  "unknown label": (
    changed("<positive>", "<neutral>"),
    5,
    "where <question>, <positive>, <negative> or </QApairs> should begin",
  ),
  "no end": (changed("</positive>"), 7, "<negative> inside the <positive>"),
  "cut between blocks": (joined(BARE[:-1]), 26, "the file ends inside a <QApairs>"),
}


JUNK = (b"<negative>\n", b"</positive>\n", b"\t")
WHOLE = (joined(BARE), joined(FULL))


def check_counts(questions, data: bytes):
  marks = [line.strip() for line in data.decode("utf-8-sig").split("\n")]
  assert len(questions) == sum(bool(re.match("<QApairs ", mark)) for mark in marks)
  pairs = 0
  for mark, text in itertools.pairwise(marks):
    pairs += mark in ("<positive>", "<negative>") and text not in ("", mark.replace("<", "</"))
  assert sum(len(question.candidates) for question in questions) == pairs


SERIES = {"dev": 31, "test": 34}  # of questions about one thing


@pytest.mark.parametrize("spec", [TRECQA, TRECQA_ALL], ids=lambda spec: spec.name)
def test_official_files_lose_no_candidate(spec, caplog):
  folder = tiny.real_data(spec.folders[0])
  for split, (name,) in spec.files.items():
    questions = read(folder / name)
    assert "skipped" not in caplog.text
    if split != "train":
      assert len({question.group for question in questions}) == SERIES[split]
    assert all(c.text for question in questions for c in question.candidates)


TANDA = (
  {"question": 'who sold "ice"?', "candidates": [
    {"label": 1, "sentence": "Tudor did &amp; paid."}, {"label": 0, "sentence": "It is cold."}]},
  {"question": "where is ice?", "candidates": []},
  {"question": 'who sold "ice"?', "candidates": [{"label": "0", "sentence": "It is cold."}]},
)  # fmt: skip


def test_a_line_of_tandas_form_is_a_question(tmp_path):
  path = tmp_path / "train.jsonl"
  path.write_text("".join(json.dumps(record) + "\n" for record in TANDA))
  first, empty, again = TRECQA_JSON.reader(path)
  assert (first.id, first.text) == ("q1", 'who sold "ice"?')
  assert [(c.id, c.label) for c in first.candidates] == [("q1-0", 1), ("q1-1", 0)]
  assert first.candidates[0].text == "Tudor did &amp; paid."
  assert (empty.id, empty.candidates) == ("q2", ())
  assert (again.id, again.text, len(again.candidates)) == ("q3", first.text, 1)
