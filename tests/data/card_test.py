import dataclasses
import json

import pytest
import tiny

from as2jax.commands import app
from as2jax.data import card, dataset
from as2jax.data.card import data_card, text_of
from as2jax.data.dataset import SPECS, Dataset
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts


def question(text: str, *labels: int, words: str = "a b c") -> Question:
  candidates = tuple(Candidate(str(i), words, label) for i, label in enumerate(labels))
  return Question(text, text, candidates)


TRAIN = (question("who is it ?", 1, 0, 0), question("what ?", 0), question("when ?", 1))
TEST = (question("what ?", -1, -1, words="one"), question("none"))


def data_set(clean="both") -> Dataset:
  splits, hashes = {"train": TRAIN, "test": TEST}, {"train": "aa", "test": "bb"}
  return Dataset("made", splits, clean, "here", hashes)


def publish(monkeypatch, documented=(), **counts):
  spec = dataclasses.replace(SPECS["sample"], name="made", published={"train": counts})
  spec = dataclasses.replace(spec, documented={"train": dict(documented)})
  monkeypatch.setitem(SPECS, "made", spec)


def test_counts_by_protocol():
  train = data_card(data_set())["splits"]["train"]
  counts = {name: tuple(numbers.values()) for name, numbers in train["question_filters"].items()}
  both = (1, 3, 1)
  assert counts == {"all": (3, 5, 2), "answerable": (2, 4, 2), "both": both, "clean": both}
  clean = data_card(data_set(clean="answerable"))["splits"]["train"]["question_filters"]["clean"]
  assert tuple(clean.values()) == (2, 4, 2)


def test_lengths_duplicates_balance_overlap():
  its = data_card(data_set())
  train, test = its["splits"]["train"], its["splits"]["test"]
  assert train["positive_share"] == 0.4
  assert test["positive_share"] is None  # nobody judged them
  assert (train["duplicate_pairs"], test["duplicate_pairs"]) == (2, 1)
  assert (train["contradictory_pairs"], test["contradictory_pairs"]) == (1, 0)
  assert text_of(its).partition("to look at:\n")[2].splitlines() == [
    "  made train: 1 (question, sentence) pairs are labelled both 0 and 1",
    "  made: 1 question texts of test stand in train, too, so that figures on test say less of new questions",
    "  made train: 2 (question, sentence) pairs repeat an earlier one",
    "  made test: 1 (question, sentence) pairs repeat an earlier one",
  ]
  clean = (question("who ?", 1, words="x"), question("where ?", 0, words="y"))
  clean = Dataset("fine", {"train": clean}, "both", "here", {"train": "aa"})
  assert text_of(data_card(clean)).splitlines()[-1] == "nothing is wrong"
  assert train["question_words"] == {"median": 2, "largest": 4}
  assert train["candidate_words"] == {"median": 3, "largest": 3}
  assert its["overlap"] == {"train+test": 1}
  assert train["fingerprint"] == "aa"
  assert json.loads(json.dumps(its)) == its


def test_published_counts_are_compared(monkeypatch):
  assert data_card(data_set())["verdict"] == ""
  publish(monkeypatch, all=Counts(3, 5, 2), both=Counts(1, 3))
  assert data_card(data_set())["verdict"] == "match"
  publish(monkeypatch, {"all": Counts(3, 5, 2)}, all=Counts(3, 4, 2))
  assert data_card(data_set())["verdict"] == "documented"
  publish(monkeypatch, all=Counts(3, 5, 2), both=Counts(1, 4))
  its = data_card(data_set())
  assert its["verdict"] == "differs"
  assert "1/4/–" in text_of(its) and text_of(its).count("DIFFERS") == 1
  said = "train: not the published number of questions, pairs or positives (both)"
  assert f"  made {said}" in text_of(its).splitlines()


def test_what_the_content_was_compared_with():
  its = data_card(dataclasses.replace(data_set(), contents={"train": "other"}))
  assert [its["splits"][split]["content"] for split in ("train", "test")] == ["other", "unknown"]
  said = "  made train: the files differ from the official ones (SHA-256)"
  assert said in text_of(its).splitlines()


def test_command(tmp_path, capsys):
  cache = ["--cache", str(tmp_path)]
  assert app.run(["data", "check", "sample", *cache]) == 0
  assert "clean (= answerable)" in capsys.readouterr().out
  assert app.run(["data", "check", "sample", "--format=json", *cache]) == 0
  assert json.loads(capsys.readouterr().out)["name"] == "sample"
  arguments = ["check", "wikiqa", "--root", str(tmp_path), "--no-download", *cache]
  assert app.run(["data", *arguments]) == 2
  output = capsys.readouterr()
  assert not output.out and "downloading is switched off" in output.err


def test_check_all(tmp_path, monkeypatch, capsys):
  few = {name: SPECS[name] for name in ("sample", "wikiqa", "asnq")}
  for module in (dataset, card):
    monkeypatch.setattr(module, "SPECS", few)
  root, cache = tmp_path / "root", str(tmp_path / "cache")
  arguments = ["check", "all", "--root", str(root), "--cache", cache]
  assert app.run(["data", *arguments]) == 0
  output = capsys.readouterr().out
  assert "counts of sample: there are no published ones\nnothing is wrong\n" in output
  assert "absent: asnq (no train.tsv, dev.tsv)" in output
  (root / "asnq").mkdir(parents=True)
  (root / "asnq/train.tsv").write_text("q ?\ts .\t4\n")
  assert app.run(["data", *arguments]) == 1
  assert "asnq dev: dev.tsv is missing" in capsys.readouterr().out
  (root / "asnq/dev.tsv").write_text("q ?\ts .\t4\n")
  assert app.run(["data", *arguments]) == 1
  output = capsys.readouterr().out
  assert "counts of asnq: not as published\n" in output and "57242/20377568/61186" in output
  (root / "asnq/dev.tsv").write_text("q ?\ts .\t5\n")
  assert app.run(["data", *arguments, "--format=json"]) == 2
  output = capsys.readouterr()
  assert "dev.tsv:1: the line is" in output.err
  assert list(json.loads(output.out)["absent"]) == ["wikiqa"]


@pytest.mark.slow
def test_the_whole_table_of_the_real_data(tmp_path, monkeypatch, capsys):
  root = str(tiny.real_data("squad").parent)
  stated = {name: spec for name, spec in SPECS.items() if spec.published}
  for module in (dataset, card):
    monkeypatch.setattr(module, "SPECS", stated)
  assert app.run(["data", "check", "all", "--root", root, "--cache", str(tmp_path)]) == 0
  output = capsys.readouterr().out
  assert "DIFFERS" not in output
  assert "53417" in output and "20360" in output
  assert "10250/10246/11426/10570/10539  documented" in output
