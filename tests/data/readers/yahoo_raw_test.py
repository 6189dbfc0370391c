import gzip
import html
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from file_damage import damaged, has_place
from hypothesis import given
from hypothesis import strategies as st

from as2jax.commands import app
from as2jax.data.readers.yahoo import Pair, build, iterate_raw, iterate_yahoo
from as2jax.runtime.errors import InputError


def read_yahoo(*arguments, **options):
  return tuple(iterate_yahoo(*arguments, **options))


DOCUMENT = """<vespaadd><document type="wisdom">
<uri>{0}</uri>
<subject>{1}</subject>
<content>more</content>
<bestanswer>{2}</bestanswer>
<nbestanswers><answer_item>{2}</answer_item><answer_item>another</answer_item></nbestanswers>
<maincat>Home</maincat>
</document></vespaadd>
"""
THINGS = ("ice", "bread", "soap", "paper", "glass", "cheese", "candles", "bricks", "ink", "wine")
SETTINGS = {"seed": 3, "negatives": 4, "top": 8, "shortest": 5, "longest": 50}
EMPTY = DOCUMENT.format(99, "how do I do that at home?", "")


def raw(*documents: str) -> bytes:
  text = '<?xml version="1.0" encoding="UTF-8"?>\n<ystfeed>\n' + "".join(documents) + "</ystfeed>\n"
  return text.encode()


def documents(n: int = len(THINGS)) -> list[str]:
  return [
    DOCUMENT.format(i, f"how do I make {thing} at home?",
                    f"take {thing} powder&lt;br /&gt;and make it &amp;amp; wait at home")
    for i, thing in enumerate(THINGS[:n])
  ]  # fmt: skip


def written(folder: Path, data: bytes) -> Path:
  path = folder / "manner.xml"
  path.write_bytes(data)
  return path


def pairs(n: int = len(THINGS)) -> list[Pair]:
  return [Pair(f"how do I make {t} at home", f"take {t} powder and make it") for t in THINGS[:n]]


def test_reads_best_answers_and_reports_skips(tmp_path, caplog):
  data, skipped = raw(*documents(2), EMPTY), []
  actual = list(iterate_raw(written(tmp_path, data), skipped=skipped))
  assert [pair.question for pair in actual] == [
    "how do I make ice at home?",
    "how do I make bread at home?",
  ]
  assert actual[0].answer == "take ice powder and make it & wait at home"
  assert len(skipped) == 1 and data.split(b"\n")[skipped[0] - 1].startswith(b"<vespaadd><document")
  assert "skipped 1 documents" in caplog.text
  assert list(iterate_raw(written(tmp_path, gzip.compress(data)))) == actual


def test_blocks_of_one_right_answer_and_sampled_wrong_ones():
  originals = pairs()
  splits = build(originals, **SETTINGS)
  assert {split: len(questions) for split, questions in splits.items()} == {
    "train": 8,
    "dev": 1,
    "test": 1,
  }
  right = {pair.question: pair.answer for pair in originals}
  for question in (question for questions in splits.values() for question in questions):
    texts = [c.text for c in question.candidates]
    assert len(texts) == len(set(texts)) == 5 and set(texts) <= set(right.values())
    assert [c.text for c in question.candidates if c.label] == [right[question.text]]
  assert len({q.positives for q in splits["train"]}) > 1  # not always the first


def test_negatives_come_from_the_best_finds():
  near = [
    Pair(f"how can {w} people make ice today", f"ice ice is made by {w} people")
    for w in ("cold", "young", "some", "many", "few", "old")
  ]
  far = [
    Pair(f"what about thing number {i} then", f"nothing here at all people {i}") for i in range(30)
  ]
  splits = build([*near, *far], **SETTINGS | {"top": 5})
  answers = {pair.answer for pair in near}
  asked = {pair.question for pair in near}
  actual = [q for questions in splits.values() for q in questions if q.text in asked]
  assert len(actual) == 6
  assert all(c.text in answers for question in actual for c in question.candidates)


def test_one_question_text_is_in_one_split_and_its_answers_are_no_negatives():
  originals = pairs()
  again = [Pair(pair.question, pair.answer + " twice at home") for pair in originals]
  splits = build([*originals, *again, *originals], **SETTINGS | {"top": 20})
  assert sum(map(len, splits.values())) == 20  # a repeated pair counts once
  texts = [{question.text for question in questions} for questions in splits.values()]
  assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]
  right = {}
  for pair in [*originals, *again]:
    right.setdefault(pair.question, set()).add(pair.answer)
  for question in (question for questions in splits.values() for question in questions):
    assert not {c.text for c in question.candidates if not c.label} & right[question.text]


def test_length_and_finds_are_filtered(caplog):
  long = Pair("how do I make very long things at home", "word " * 51)
  short = Pair("how do I", "take it and make it at home")
  alone = Pair("quo usque tandem abutere patientia", "nostra etiam furor iste tuus eludet")
  splits = build([*pairs(), long, short, alone], **SETTINGS)
  texts = {question.text for questions in splits.values() for question in questions}
  assert texts == {pair.question for pair in pairs()}
  assert "left out 1 questions for which BM25 found fewer than 4" in caplog.text
  with pytest.raises(InputError, match="no question and best answer of 5 to 50 words"):
    build([long, short], **SETTINGS)


def test_the_command(tmp_path, capsys):
  path = written(tmp_path, raw(*documents()))
  run = lambda file, folder: app.run(["data", "yahoo", str(file), "-o", str(folder), "--seed=0"])
  assert run(path, tmp_path / "built") == 0
  assert "train.tsv: 8 questions" in capsys.readouterr().out
  assert len(read_yahoo(tmp_path / "built" / "train.tsv")) == 8
  (tmp_path / "other" / "dev.tsv" / "inside").mkdir(parents=True)
  for file, folder, told in (
    (tmp_path / "no.xml", tmp_path, "no.xml does not exist"),
    (path, path / "built", f"--output={path / 'built'} cannot be written"),
    (path, tmp_path / "other", "cannot be written"),
  ):
    assert run(file, folder) == 2 and told in capsys.readouterr().err
  assert sorted(p.name for p in (tmp_path / "other").iterdir()) == ["dev.tsv", "train.tsv"]


BROKEN = {
  "cut off": (raw(*documents(2))[:-60], 16, "cut off"),
  "no subject": (raw(EMPTY.replace("subject", "title")), 3, "has no subject"),
  "two answers": (
    raw(EMPTY.replace("<bestanswer>", "<bestanswer/><bestanswer>")), 7, "2 elements bestanswer"),
  "unescaped": (raw(EMPTY.replace("<subject>", "<subject><b/>")), 5, "or an element inside it"),
  "another file": (b"<root>\n</root>", 2, "holds no document, its outermost element is root"),
  "not UTF-8": (raw(*documents(1)).replace(b"powder", b"p\xe9"), 7, "not well-formed"),
}  # fmt: skip


@pytest.mark.parametrize("data, line, words", BROKEN.values(), ids=BROKEN)
def test_broken_file(tmp_path, data, line, words):
  path = written(tmp_path, data)
  with pytest.raises(InputError) as error:
    list(iterate_raw(path))
  assert words in str(error.value)
  assert str(error.value).startswith(f"{path}:{line}: ")


def judge(folder, data: bytes) -> str:
  """An error that names its place, or the counts that another reader finds in `data`."""
  path, skipped = written(folder, data), []
  try:
    actual = list(iterate_raw(path, skipped=skipped))
  except InputError as error:
    assert has_place(error, path)
    return "refused"
  assert len(actual) + len(skipped) == len(list(ET.fromstring(data).iter("document")))
  assert all(html.unescape(pair.answer).strip() and pair.question for pair in actual)
  return "read"


@given(drawn=st.data())
def test_damage_is_an_error_with_its_place_or_a_reported_skip(tmp_path, drawn):
  judge(
    tmp_path, damaged(drawn.draw, raw(*documents(2), EMPTY), (b"&lt;", b"<br>", b"</document>"))
  )
