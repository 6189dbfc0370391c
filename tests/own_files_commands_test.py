"""The `as2jax` command on files of a person's own, whose columns have other names."""

import csv
import json
import pathlib

import pytest

from as2jax.commands import app, documents
from as2jax.config import jobs
from as2jax.data import user_files
from as2jax.inference import reevaluate
from as2jax.runtime.errors import InputError

OWN = [
  {"ask": "who sat", "reply": "a\tdog\ncame", "good": "no", "team": "x"},
  {"ask": "who sat", "reply": 'the "cat" sat', "good": "yes", "team": "y"},
  {"ask": "what is ice", "reply": "frozen water", "good": "1.0", "team": "z"},
  {"ask": "what is ice", "reply": "warm, as we know", "good": "false", "team": ""},
]
MAPPED = "--columns=question=ask,candidate=reply,label=good"


@pytest.fixture
def own(tmp_path):
  """A file of one's own, with columns of other names."""
  path = tmp_path / "faq.csv"
  with path.open("w", newline="", encoding="utf-8-sig") as file:
    writer = csv.DictWriter(file, list(OWN[0]), delimiter=";")
    writer.writeheader()
    writer.writerows(OWN)
  return str(path)


def test_rank_maps_columns_and_carries_the_others(finished_run, own, tmp_path, capsys):
  run = str(finished_run("bm25"))
  for suffix in (".csv", ".tsv", ".jsonl"):
    target = str(tmp_path / f"ranked{suffix}")
    assert app.run(["rank", run, own, "-o", target, MAPPED]) == 0
    actual = user_files.read(target, labelled=False)
    kept = {(row["candidate"], row["team"], row["good"]) for row in user_files.rows(actual)}
    assert kept == {(row["reply"], row["team"], row["good"]) for row in OWN}
  again = str(tmp_path / "again.jsonl")  # a ranking is ranked again
  assert app.run(["rank", run, target, "-o", again]) == 0
  with open(again) as file:
    rows = list(map(json.loads, file))
  assert {row["rank"] for row in rows} == {1, 2} and all(row["input_rank"] for row in rows)
  capsys.readouterr()


def test_own_files_have_a_card(own, capsys, tmp_path):
  assert app.run(["data", "check", own, MAPPED, "--format=json"]) == 0
  card = json.loads(capsys.readouterr().out)
  counts = card["splits"]["faq"]["question_filters"]["all"]
  assert counts == {"questions": 2, "pairs": 4, "positives": 2}
  other = tmp_path / "dev.jsonl"
  rows = [{"question": "who sat", "candidate": "I"}, {"question": "x", "candidate": ""}]
  other.write_text("".join(json.dumps(row) + "\n" for row in rows))
  assert app.run(["data", "convert", own, str(tmp_path / "train.tsv"), MAPPED]) == 0
  capsys.readouterr()
  arguments = ["data", "check", str(tmp_path / "train.tsv"), str(other)]
  assert app.run(arguments) == 2
  assert "2 rows, of these 1 without" in capsys.readouterr().err
  assert app.run([*arguments, "--drop"]) == 0
  text = capsys.readouterr().out
  for part in (
    "1 question texts of dev stand in train",
    "2 rows, of these 1 without",
    "dev: no labels",
    "50.00%",
  ):
    assert part in text


def test_the_file_that_is_read_is_not_written(finished_run, own, tmp_path, capsys):
  content = pathlib.Path(own).read_bytes()
  other = tmp_path / "other.csv"
  other.symlink_to(own)
  run = str(finished_run("bm25"))
  for target in (own, str(other), f"{tmp_path}/./faq.csv"):
    for arguments in (["data", "convert", own, target], ["rank", run, own, "-o", target]):
      assert app.run([*arguments, MAPPED]) == 2
      assert f"={target} is the file that is read: name another" in capsys.readouterr().err
  config = jobs.of_run(f"{run}/config.json").unlock()
  config.predict.input = config.predict.output = own
  with pytest.raises(InputError, match="predict.output=.* is the file that is read"):
    reevaluate.predict(config, run)
  assert pathlib.Path(own).read_bytes() == content


def test_a_table_of_documents(tmp_path, caplog):
  path = tmp_path / "answers.csv"
  path.write_text('number,reply\n7,"a, b"\n8,c\n')
  assert documents.read(str(path), "text=reply,id=number") == (["7", "8"], ["a, b", "c"])
  path.write_text("number,reply\n7,b\n8,c\n\n9,b\n10,d\n")
  assert documents.read(str(path), "text=reply,id=number", drop=True)[1] == ["b", "c", "d"]
  path.write_text("number,reply\n7,b\n8,c\n9,b\n10,\n")
  assert documents.read(str(path), "text=reply,id=number", drop=True) == (["7", "8"], ["b", "c"])
  assert f"{path}: 1 document(s) have no text, 1 repeat one: which are left out" in caplog.text
  with pytest.raises(InputError, match=r"answers.csv:5: 1 document\(s\) have no text; .*drop=True"):
    documents.read(str(path), "text=reply")
  with pytest.raises(InputError, match='there is no column text .*columns={"text": "COLUMN"}'):
    documents.read(str(path), "id=number")
  path.write_text("number,reply\n7,b\n8,c\n7,b\n")
  assert documents.read(str(path), "text=reply,id=number", drop=True) == (["7", "8"], ["b", "c"])
  with pytest.raises(InputError, match="answers.csv:4: line 2 has the id '7', too"):
    documents.read(str(path), "text=reply,id=number")
  path.write_text("number,reply\n7,b\n8,c\n7,d\n")
  with pytest.raises(InputError, match="answers.csv:4: line 2 has the id '7', too"):
    documents.read(str(path), "text=reply,id=number", drop=True)


def test_the_list_says_which_splits_are_here(tmp_path, capsys):
  (tmp_path / "wikiqa").mkdir()
  (tmp_path / "wikiqa/WikiQA-test.tsv").touch()
  where = [f"--root={tmp_path}", f"--cache={tmp_path / 'cache'}"]
  assert app.run(["data", "list", *where]) == 0
  told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
  assert told["wikiqa"] == "here: test; not here: WikiQA-train.tsv, WikiQA-dev.tsv"
  assert told["sample"] == "here" and told["trecqa_json"].startswith("not here: train.jsonl")
