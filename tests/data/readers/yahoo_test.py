from file_damage import joined, written

from as2jax.data.readers.yahoo import BLOCK, iterate_yahoo


def read(path):
  return tuple(iterate_yahoo(path))


def rows(question: str, at: int = 0) -> list[str]:
  return [f'{question}\tthe "answer" &amp; {i}\t{int(i == at)}' for i in range(BLOCK)]


HEADER = "question\tanswer\tlabel"
ROWS = [*rows("how to make ice"), *rows("how to make ice", 3), *rows("how to sell it", 4)]


def test_five_rows_are_a_question(tmp_path):
  first, second, third = read(written(tmp_path, joined(ROWS)))
  assert (first.id, first.text, second.text) == ("q1", "how to make ice", "how to make ice")
  assert [c.id for c in second.candidates] == ["q2-0", "q2-1", "q2-2", "q2-3", "q2-4"]
  assert [c.label for c in second.candidates] == [0, 0, 0, 1, 0]
  assert third.candidates[4].text == 'the "answer" &amp; 4'


def changed(number: int, line: str) -> bytes:
  return joined([*ROWS[:number], line, *ROWS[number + 1 :]])


BROKEN = {
  "too few columns": (changed(2, "how to make ice\tno"), 3, "is not question, answer, label"),
  "empty answer": (changed(2, "how to make ice\t \t0"), 3, "is not question, answer, label"),
  "unknown label": (changed(2, "how to make ice\ta\tyes"), 3, "(0 or 1)"),
  "another question in a block": (changed(2, "who\ta\t0"), 3, "row 3 of 5 of a question"),
  "two positives": (changed(2, "how to make ice\ta\t1"), 5, "rows have 2 labels 1"),
  "no positive": (changed(0, "how to make ice\ta\t0"), 5, "rows have 0 labels 1"),
  "cut off": (joined(ROWS[:-1]), 14, "the last question has 4 rows of 5"),
  "cut in a row": (joined(ROWS)[:-3], 15, "may be cut off"),
  "header only": (joined([HEADER]), 1, "has 0 rows of 5"),
}  # fmt: skip


JUNK, WHOLE = (b"\t", b"1", b"0"), (joined(ROWS),)


def check_counts(questions, data: bytes):
  assert len(questions) * BLOCK == sum(bool(line.strip()) for line in data.split(b"\n"))
  assert all(len(q.candidates) == BLOCK and len(q.positives) == 1 for q in questions)
