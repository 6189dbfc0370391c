"""Loading a data set: where it is found, its counts, its splits."""

import dataclasses
import os
import pathlib
import random
import shutil
import sys
import tracemalloc

import pytest
import tensorflow_datasets as tfds
from etils import epath

import as2jax
from as2jax.data import dataset
from as2jax.data.dataset import SPECS, load
from as2jax.data.load import require
from as2jax.data.prepared import Prepared, prepared
from as2jax.data.readers.wikiqa import read_wikiqa
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.source import Counts, Source
from as2jax.data.statistics import KEEPS
from as2jax.runtime import cache as caches
from as2jax.runtime.errors import InputError
from tests.file_damage import flip_bit

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\r\n"
SPLITS = ("train", "dev", "test")


def split_text(split: str, questions: int = 4, word: str = "red") -> str:
  rows = [
    f"{split}{i}\twho is {i}?\tD{i}\tTitle “{i}”\tD{i}-{j}\tnumber {j} is {word} .\t{j % 2}"
    for i in range(questions)
    for j in range(i + 1)
  ]
  return HEADER + "".join(row + "\r\n" for row in rows)


def write_source(folder: pathlib.Path, **options) -> pathlib.Path:
  folder.mkdir(parents=True, exist_ok=True)
  for split in SPLITS:
    (folder / f"WikiQA-{split}.tsv").write_bytes(split_text(split, **options).encode())
  return folder


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
  """Keeps a test off the user's folders, the network and the official counts."""
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  monkeypatch.delenv("AS2JAX_DATA", raising=False)
  change(monkeypatch, published={}, url="http://127.0.0.1:9/WikiQACorpus.zip")


def change(monkeypatch, name="wikiqa", **fields):
  monkeypatch.setitem(SPECS, name, dataclasses.replace(SPECS[name], **fields))


def prepared_of(folder: pathlib.Path, questions):
  """The prepared copy of a made-up data set whose one split is what `questions` yields."""
  (folder / "file").write_text("content")
  changes = {"name": "made", "files": {"only": ("file",)}, "reader": lambda path: questions()}
  files = Source(epath.Path(folder), {"only": (epath.Path(folder / "file"),)})
  spec = dataclasses.replace(SPECS["wikiqa"], **changes)
  return prepared(spec, files, epath.Path(folder / "cache"))


def test_loads_what_the_reader_reads(tmp_path, monkeypatch):
  files = write_source(tmp_path / "root" / "WikiQACorpus")
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path / "root"))
  data = load("wikiqa")
  assert (data.name, data.clean, data.source) == ("wikiqa", "answerable", str(files))
  assert tuple(data.splits) == SPLITS
  for split, questions in data.splits.items():
    assert questions == read_wikiqa(files / f"WikiQA-{split}.tsv")
    assert data.fingerprints[split] == fingerprint(questions)


def test_a_missing_split_leaves_the_others(tmp_path):
  root = write_source(tmp_path / "root")
  (root / "WikiQA-train.tsv").unlink()
  (root / "WikiQA-dev.tsv").unlink()
  data = load("wikiqa", root=str(root))
  assert tuple(data.splits) == ("test",) == tuple(data.fingerprints)
  assert data.missing == {split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev")}
  with pytest.raises(InputError, match="no split 'train' .*root lacks WikiQA-train.tsv; put it"):
    require(data, ["train"])
  root.joinpath("WikiQA-dev.tsv").write_bytes(split_text("dev").encode())
  assert tuple(load("wikiqa", root=str(root)).splits) == ("dev", "test")


def test_a_prepared_copy_is_read_until_source_or_reader_change(tmp_path, monkeypatch):
  write_source(tmp_path)
  first = load("wikiqa", root=str(tmp_path))
  with monkeypatch.context() as patch:
    change(patch, reader=None)  # reading the source again would fail
    assert load("wikiqa", root=str(tmp_path)) == first
  write_source(tmp_path, word="tan")  # as long as before
  second = load("wikiqa", root=str(tmp_path))
  assert second.splits["dev"][0].candidates[0].text == "number 0 is tan ."
  assert second.fingerprints != first.fingerprints
  copies = list((tmp_path / "cache/wikiqa").glob("*/"))
  change(monkeypatch, version="1.0.1")
  load("wikiqa", root=str(tmp_path))
  assert len(list((tmp_path / "cache/wikiqa").glob("*/"))) == len(copies) + 1


def test_questions_without_candidates_survive_in_order(tmp_path):
  candidates = (Candidate("1", "é", 1, "p", "n", 0, -1, "t"), Candidate("0", "b"))
  questions = (
    Question("z", "no candidates", ()),
    Question("a", "ünï \n code", candidates),
    Question("m", "again none", ()),
  )
  copy = prepared_of(tmp_path, lambda: iter(questions))
  assert tuple(copy.read("only")) == questions
  assert copy.statistics["only"]["question_filters"]["all"] == Counts(3, 2, 1).asdict()


def test_other_counts_than_published_are_an_error(tmp_path, monkeypatch):
  root = write_source(tmp_path / "root")
  change(monkeypatch, published={"dev": {"all": Counts(4, 11, 4)}})
  for _ in range(2):  # a prepared copy does not hide it
    with pytest.raises(InputError, match=r"WikiQA-dev.tsv: 4/10/4 .* split has 4/11/4") as error:
      load("wikiqa", root=str(root))
    assert "get it again" in str(error.value)
  assert len(load("wikiqa", root=str(root), check=False).splits["dev"]) == 4


def test_a_broken_source_names_its_line_and_leaves_nothing(tmp_path):
  root = write_source(tmp_path / "root")
  file = root / "WikiQA-test.tsv"
  file.write_bytes(file.read_bytes()[:-4])
  with pytest.raises(InputError, match=r"WikiQA-test.tsv:11: 6 columns .*get the official file$"):
    load("wikiqa", root=str(root))
  assert {path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()} <= {".lock"}


def test_absent_data_is_one_message_and_no_other_data(tmp_path):
  places = ("root/wikiqa", "root", "root/WikiQACorpus", "cache/downloads/wikiqa")
  told = ["WikiQA-train.tsv", SPECS["wikiqa"].url, "AS2JAX_DATA", ":sample"]
  for download, reason in ((True, "the download failed"), (False, "downloading is switched off")):
    with pytest.raises(InputError) as error:
      load("wikiqa", root=str(tmp_path / "root"), download=download)
    for words in (*told, reason, *(str(tmp_path / place) for place in places)):
      assert words in str(error.value)


def test_splits_are_read_when_they_are_asked_for(tmp_path):
  write_source(tmp_path)
  read = []
  original = Prepared.read
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Prepared, "read", lambda self, *a: read.append(a) or original(self, *a))
    data = load("wikiqa", root=str(tmp_path))
    assert list(data.splits) == list(SPLITS) and read == []
    assert data.splits["dev"] is data.splits["dev"] and read == [("dev", "questions")]
    with pytest.raises(KeyError):
      data.splits["validation"]


def test_splits_are_joined_under_a_name_of_both():
  questions = {}
  for split, names in (("dev", ("Q1", "Q2")), ("test", ("Q3",)), ("train", ("Q3",))):
    questions[split] = tuple(Question(name, "what", (Candidate("a", "x", 1),)) for name in names)
  splits = dataset.Splits(questions, questions.__getitem__)
  joined = splits["dev+test"]
  assert joined == questions["dev"] + questions["test"] and joined is splits["dev+test"]
  assert list(splits) == list(questions) and splits["dev"] is questions["dev"]
  assert "dev+test" in splits and "dev+other" not in splits
  with pytest.raises(KeyError):
    splits["dev+other"]
  with pytest.raises(InputError, match="'train.test'.*two of them have the id 'Q3'"):
    splits["train+test"]


ROWS = ("question\tcandidate\tlabel", "who\tme\t1", "who\tyou\t0", "why\tso\t0")


def test_questions_under_a_filter():
  whole = dataset.load("sample")
  data = as2jax.dataset("sample", "dev")
  assert tuple(data.splits) == ("dev",) and data.splits["dev"] == whole.splits["dev"]
  assert data.questions == whole.splits["dev"]  # the sample has no official filter
  for rule in KEEPS:
    kept = as2jax.dataset("sample", "dev", filter=rule)
    assert kept.questions == tuple(filter(KEEPS[rule], whole.splits["dev"]))
    assert kept.splits["dev"] == whole.splits["dev"]
  clean = as2jax.dataset("sample", filter="clean").questions
  assert len(clean) == sum(bool(q.positives) for its in whole.splits.values() for q in its)
  assert as2jax.dataset("sample", "dev+test").reported == ("dev+test",)


def test_a_file_gives_labels_and_pairs(tmp_path):
  (tmp_path / "sample").write_text("question,candidate,label\nwho,me,1\n")
  assert as2jax.dataset(tmp_path / "sample").name == "files"  # not as a data set is called
  path = tmp_path / "faq.tsv"
  path.write_text("\n".join(ROWS) + "\n")
  data = as2jax.dataset(path)
  assert (data.name, tuple(data.splits)) == ("faq", ("test",))
  assert data.pairs() == [("who", "me", 1), ("who", "you", 0), ("why", "so", 0)]
  assert data.qrels == {"q1": {"q1-0": 1, "q1-1": 0}, "q2": {"q2-0": 0}}
  assert [q.text for q in as2jax.dataset(path, "train", filter="both").questions] == ["who"]


def test_labels_by_question_need_ids_that_differ_between_splits(tmp_path):
  (tmp_path / "faq.tsv").write_text("\n".join(ROWS) + "\n")
  questions = as2jax.dataset(tmp_path / "faq.tsv").splits["test"]
  data = dataset.of_questions("files", {"train": questions, "test": questions}, "here")
  assert len(data.questions) == 4
  with pytest.raises(InputError, match="files: train.test .* have the id 'q1'; open"):
    data.qrels  # noqa: B018
  with pytest.raises(InputError, match="files-all/train.test .* have the id 'q1'"):
    as2jax.evaluate(lambda questions: [range(2)] * len(questions), data)


def test_what_is_wrong_is_named(tmp_path):
  for arguments, how, words in (
    (("sampel",), {}, "did you mean 'sample'"),
    (("imagenet",), {}, "use one of wikiqa, sample"),
    (("sample", "tset"), {}, "no split 'tset'; it has train, dev, test"),
    (("sample", "dev+dev"), {}, "split = 'dev.dev' would count questions twice; name each"),
    (("sample",), {"filter": "gold"}, "filter = 'gold': use one of official, clean, all"),
    (("sample",), {"columns": "label=good"}, "columns = 'label=good' are for your own files"),
    (("sample",), {"drop": True}, "drop = True is for your own files; leave it out for .* sample"),
    ((str(tmp_path / "nothing.tsv"),), {}, "nothing.tsv"),
  ):
    with pytest.raises(InputError, match=words):
      as2jax.dataset(*arguments, **how)


def test_without_tensorflow_datasets_own_files_are_read(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "as2jax.data.prepared", None)
  with pytest.raises(InputError, match=r"sample needs .*pip install 'as2jax\[train\]'"):
    as2jax.dataset("sample")
  path = tmp_path / "faq.tsv"
  path.write_text("\n".join(ROWS) + "\n")
  assert len(as2jax.dataset(path).questions) == 2


def test_no_damaged_byte_is_used(tmp_path, caplog):
  root = write_source(tmp_path / "root")
  cache, whole = tmp_path / "cache", tmp_path / "whole"
  first = load("wikiqa", root=str(root))
  splits = {split: first.splits[split] for split in SPLITS}
  (manifest,) = cache.rglob(caches.MANIFEST)
  shutil.copytree(cache, whole)
  for seed in range(5):
    shutil.rmtree(cache)
    shutil.copytree(whole, cache)
    flip_bit(manifest.parent, random.Random(seed))
    caplog.clear()
    caches.warn_once.cache_clear()
    again = load("wikiqa", root=str(root))
    assert again == first and {split: again.splits[split] for split in SPLITS} == splits
    lines = [line for line in caplog.messages if "is damaged" in line]
    assert len(lines) == 1 and lines[0].endswith("it is made anew"), f"seed {seed}: {lines}"
  caplog.clear()
  assert load("wikiqa", root=str(root)) == first and not caplog.messages  # the new copy is whole


def test_many_shards_keep_the_order(tmp_path, monkeypatch):
  monkeypatch.setattr("as2jax.data.prepared.SHARD", 4)
  root = write_source(tmp_path / "root", questions=30)
  data = load("wikiqa", root=str(root))
  assert len(list((tmp_path / "cache").rglob("*train.array_record*"))) == 8
  assert data.splits["train"] == read_wikiqa(root / "WikiQA-train.tsv")
  (features,) = (tmp_path / "cache").rglob("features.json")
  builder = tfds.builder_from_directory(features.parent)  # as others read it
  (first, *_) = builder.as_data_source("train")
  assert first["text"].decode() == data.splits["train"][0].text


def test_reading_a_copy_that_was_damaged_meanwhile(tmp_path):
  root = write_source(tmp_path / "root")
  data = load("wikiqa", root=str(root))
  (record,) = (tmp_path / "cache").rglob("*dev.array_record*")
  os.truncate(record, record.stat().st_size // 2)
  with pytest.raises(InputError, match="changed while it was in use .* run again"):
    data.splits["dev"]


def test_preparing_holds_one_question_at_a_time(tmp_path):
  def questions():
    for i in range(150):
      text = f"{i} " * 2000
      yield Question(f"q{i}", text, tuple(Candidate(f"{i}-{j}", text, 0) for j in range(8)))

  tracemalloc.start()
  try:
    copy = prepared_of(tmp_path, questions)
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  texts = 9 * sum(len(f"{i} " * 2000) for i in range(150))
  assert copy.statistics["only"]["question_filters"]["all"] == Counts(150, 1200, 0).asdict()
  assert texts > 8e6 and peak < texts / 4, f"{peak / 1e6:.1f} MB for {texts / 1e6:.1f} MB of text"
