import json
from pathlib import Path

import file_damage
import pytest
import tiny

from as2jax.commands import app
from as2jax.data.card import data_card, text_of
from as2jax.data.dataset import load
from as2jax.data.readers import asnq
from as2jax.data.readers.squad import (
  REQA,
  SQUAD,
  asnq_rows,
  held_out,
  read_paragraphs,
  read_parts,
  read_rerank,
  read_squad,
)
from as2jax.data.record import Passage
from as2jax.data.retrieval import one_per_text
from as2jax.data.source import PoolCounts
from as2jax.data.statistics import PoolStatistics
from as2jax.runtime.errors import InputError

ICE = "Ice is “frozen” water. It floats.  Why? Ice is light. It floats."


def question(id, text, *answers, context):
  return {
    "id": id,
    "question": text,
    "answers": [{"answer_start": context.index(a), "text": a} for a in answers],
  }


def paragraph(context, *asked):
  return {"context": context, "qas": [question(*one, context=context) for one in asked]}


def squad():
  ice = paragraph(ICE, ("a1", "What floats?", "It", "It", "light"), ("a2", "Why?", "light"))
  snow = paragraph("Snow is ice. It is light.", ("a3", "Why?", "light"))
  fire = paragraph("Fire burns.", ("b1", "Who?", "Fire"))
  articles = [("The_ice", [ice, snow]), ("Fire", [fire])]
  return {"version": "1.1", "data": [{"title": t, "paragraphs": its} for t, its in articles]}


def encoded(content) -> bytes:
  return content if isinstance(content, bytes) else json.dumps(content).encode()


def written(folder: Path, content) -> Path:
  return file_damage.written(folder, encoded(content), "dev-v1.1.json")


def test_the_pool_holds_each_sentence_of_a_paragraph_once(tmp_path):
  pool = list(read_squad(written(tmp_path, squad()), "pool", "test"))
  assert [p.id for p in pool] == ["0-0-0", "0-0-1", "0-0-2", "0-0-3", "0-1-0", "0-1-1", "1-0-0"]
  assert pool[1] == Passage("0-0-1", "It floats.", "The ice", "Ice is “frozen” water.", "Why?", ICE)
  assert (pool[3].previous, pool[3].next) == ("Why?", "It floats.")
  assert (pool[4].previous, pool[6].paragraph) == ("", "Fire burns.")


def counted(records) -> PoolCounts:
  statistics = PoolStatistics()
  for record in records:
    statistics.take(record)
  return statistics.counts["pool"]


def test_right_sentences_are_where_answers_begin(tmp_path):
  path = written(tmp_path, squad())
  first, second, third, last = read_squad(path, "queries", "test")
  assert (first.id, first.answers, first.votes) == ("a1", ("0-0-1", "0-0-3"), (2, 1))
  assert (second.answers, third.answers, last.answers) == (("0-0-3",), ("0-1-1",), ("1-0-0",))
  counts = counted([*read_squad(path, "pool", "test"), first, second, third, last])
  assert counts == PoolCounts(entries=7, sentences=7, queries=5, questions=4, texts=3)


def test_articles_are_held_out_whole(tmp_path):
  titles = [f"article {i}" for i in range(2000)]
  dev = [title for title in titles if held_out(title)]
  assert 130 < len(dev) < 230
  content = squad()
  content["data"][0]["title"] = dev[0]
  path = written(tmp_path, content)
  records = {split: list(read_squad(path, "queries", split)) for split in ("train", "dev", "test")}
  assert [len(records[split]) for split in ("train", "dev", "test")] == [1, 3, 4]


def broken(change):
  content = squad()
  change(content["data"][0]["paragraphs"][0])
  return content


def answer(**fields):
  return lambda p: p["qas"][1]["answers"][0].update(fields)


BROKEN = {
  "no data": ({"version": "1.1"}, "", "no field 'data'"),
  "no articles": ({"data": []}, "", "there are no questions"),
  "no context": (broken(lambda p: p.pop("context")), " article 1 ('The_ice'), paragraph 1", "no field 'context'"),
  "empty context": (broken(lambda p: p.update(context=" ")), " article 1 ('The_ice'), paragraph 1", "the field context is"),
  "empty question": (broken(lambda p: p["qas"][1].update(question="")), " article 1 ('The_ice'), paragraph 1, question 2", "the field question is"),
  "no answers": (broken(lambda p: p["qas"][1].update(answers=[])), "question 2", "no answers"),
  "id twice": (broken(lambda p: p["qas"][1].update(id="a1")), "question 2", "already that of"),
  "white space in an id": (broken(lambda p: p["qas"][1].update(id="a 1")), "question 2", "'a 1'"),
  "answer elsewhere": (broken(answer(answer_start=3)), "question 2", "does not stand at 3"),
  "offset is text": (broken(answer(answer_start="3")), "question 2", "does not stand at '3'"),
  "half a surrogate": (json.dumps(broken(lambda p: p["qas"][1].update(question="\ud800"))).encode(), "", "surrogate"),
  "cut off": (json.dumps(squad()).encode()[:-30], "", "not in SQuAD 1.1's form"),
  "not UTF-8": (json.dumps(squad(), ensure_ascii=False).encode("latin-1", "replace") + b"\xff", ":1:", "not UTF-8"),
  "nested": (b"[" * 100_000, "", "recursion"),
}  # fmt: skip


BROKEN = {
  name: (encoded(data), f"*{place}", words) for name, (data, place, words) in BROKEN.items()
}
JUNK, WHOLE = (), (encoded(squad()), json.dumps(squad(), indent=1).encode())


def read(path):
  return list(read_paragraphs(path))


def check_counts(paragraphs, data: bytes):
  expected = [p for a in json.loads(data.decode("utf-8-sig"))["data"] for p in a["paragraphs"]]
  assert [p.text for p in paragraphs] == [p["context"] for p in expected]
  asked = sum(len(p.questions) for p in paragraphs)
  assert asked == sum(len(p["qas"]) for p in expected)


def test_prepared_and_read_back(tmp_path):
  content = squad()
  for i in range(60):  # articles, of which some are held out
    paragraphs = [paragraph("Fire burns.", (f"t{i}", "Who?", "Fire"))]
    content["data"].append({"title": f"t{i}", "paragraphs": paragraphs})
  for name in ("train-44-articles.json", "dev-v1.1.json"):
    written(tmp_path, content).rename(tmp_path / name)
  options = dict(root=str(tmp_path), cache=str(tmp_path / "cache"))
  with pytest.raises(InputError, match=r"dev-v1.1.json: .* the official squad_44 test split has"):
    load("squad_44", pool=True, **options)
  data = load("squad_44", pool=True, **options, check=False)
  for split in ("train", "dev", "test"):
    path = tmp_path / SQUAD.files[split][0].replace("train-v1.1", "train-44-articles")
    assert data.splits[split].passages == tuple(read_squad(path, "pool", split))
    assert data.splits[split].queries == tuple(read_squad(path, "queries", split))
  text = text_of(data_card(data))
  assert "10250/10246/11426/10570/10539  DIFFERS" in text and "answers" in text
  assert data.overlap["train+test"] == len({q.text for q in data.splits["train"].queries})


def test_dev_by_reqas_construction():
  path = tiny.real_data("squad", "dev-v1.1.json")
  queries = tuple(read_squad(path, "queries", "test"))
  actual = counted([*read_squad(path, "pool", "test"), *queries])
  assert actual == SQUAD.documented["test"]["pool"]
  assert not REQA.agrees(actual)
  assert (actual.questions, actual.texts) == (REQA.questions, REQA.texts)
  assert abs(actual.entries - REQA.entries) <= 23 and abs(actual.queries - REQA.queries) <= 1
  assert len(one_per_text(queries)) == 10539
  assert len({query.group for query in one_per_text(queries)}) == 48  # articles
  parts = one_per_text(tuple(read_parts(path, "queries", "test")))
  assert len({query.group for query in parts}) == 29


def test_rows_in_asnqs_classes(tmp_path):
  rows = list(asnq_rows(written(tmp_path, squad())))
  floats = [(row.text, row.label) for row in rows if row.question == "What floats?"]
  assert floats == [
    ("Ice is “frozen” water.", 3),
    ("It floats.", 4),
    ("Why?", 3),
    ("Ice is light.", 4),
    ("Snow is ice.", 1),
    ("It is light.", 2),
  ]
  assert sum(row.question == "Why?" for row in rows) == 6  # the second question of that text: none
  assert rows[1].previous == "Ice is “frozen” water." and rows[1].title == "The ice"
  asnq.write_asnq(tmp_path / "made.tsv", rows)
  questions = list(asnq.iterate_asnq(tmp_path / "made.tsv"))
  assert [(len(q.candidates), len(q.positives)) for q in questions] == [(6, 2), (6, 1), (1, 1)]
  assert questions[0].candidates[0].next_label == 1


def test_the_command(tmp_path, capsys):
  path, target = written(tmp_path, squad()), tmp_path / "new" / "made.tsv"
  command = ["data", "squad", str(path)]
  assert app.run([*command, str(target)]) == 0
  assert capsys.readouterr().out == f"{target}: 13 rows\n"
  assert target.read_text().splitlines()[2].startswith("What floats?\tIt floats.\t4\t")
  before = path.read_bytes()
  assert app.run([*command, str(path)]) == 2
  assert "is the file that is read: name another" in capsys.readouterr().err
  assert path.read_bytes() == before


def test_dev_articles_of_the_real_training_part():
  path = tiny.real_data("squad", "train-44-articles.json")
  questions = list(read_rerank(path, "dev"))
  assert len(questions) == 1020 and all(q.positives and q.negatives for q in questions)
  titles = {c.title for q in questions for c in q.candidates}
  train = {row.title for row in asnq_rows(path, split="train")}
  assert titles and not titles & train and len(titles | train) == 44
