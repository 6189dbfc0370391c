import dataclasses
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from etils import epath

from as2jax.data import dataset
from as2jax.data.dataset import SPECS, load
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.source import Counts, Source
from as2jax.data.wikiqa import WIKIQA, read_wikiqa
from as2jax.errors import InputError

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\r\n"
OFFICIAL = os.environ.get("AS2JAX_DATA", "")
SPLITS = ("train", "dev", "test")


def split_text(split: str, questions: int = 4, word: str = "red") -> str:
  rows = [
    f"{split}{i}\twho is {i}?\tD{i}\tTitle “{i}”\tD{i}-{j}\tnumber {j} is {word} .\t{j % 2}"
    for i in range(questions)
    for j in range(i + 1)
  ]
  return HEADER + "".join(row + "\r\n" for row in rows)


def write_source(folder: Path, **options) -> Path:
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


@pytest.mark.parametrize("folder", ["wikiqa", "", "WikiQACorpus", "wikiqa/WikiQACorpus"])
def test_loads_what_the_reader_reads(tmp_path, folder):
  files = write_source(tmp_path / "root" / folder)
  data = load("wikiqa", root=str(tmp_path / "root"))
  assert (data.name, data.clean, data.source) == ("wikiqa", "answerable", str(files))
  assert tuple(data.splits) == SPLITS
  for split, questions in data.splits.items():
    assert questions == read_wikiqa(files / f"WikiQA-{split}.tsv")
    assert data.fingerprints[split] == fingerprint(questions)


def test_root_and_cache_by_environment(tmp_path, monkeypatch):
  write_source(tmp_path / "root")
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path / "root"))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "elsewhere"))
  assert load("wikiqa").source == str(tmp_path / "root")
  assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"wikiqa"}


def test_sample_is_embedded():
  data = load("sample", root="/nowhere", download=False)
  folder = Path(dataset.__file__).parent / "sample"
  assert sum(map(len, data.splits.values())) >= 150
  for split, questions in data.splits.items():
    assert questions == read_wikiqa(folder / f"sample-{split}.tsv")


def test_a_second_load_reads_the_prepared_copy(tmp_path, monkeypatch):
  write_source(tmp_path)
  first = load("wikiqa", root=str(tmp_path))
  change(monkeypatch, reader=None)  # reading the source again would fail
  assert load("wikiqa", root=str(tmp_path)) == first


def test_a_changed_source_is_read_anew(tmp_path, monkeypatch):
  write_source(tmp_path)
  first = load("wikiqa", root=str(tmp_path))
  write_source(tmp_path, word="tan")  # as long as before
  second = load("wikiqa", root=str(tmp_path))
  assert second.splits["dev"][0].candidates[0].text == "number 0 is tan ."
  assert second.fingerprints != first.fingerprints
  copies = list((tmp_path / "cache/wikiqa").iterdir())
  change(monkeypatch, version="1.0.1")  # and so is a changed reader
  load("wikiqa", root=str(tmp_path))
  assert len(list((tmp_path / "cache/wikiqa").iterdir())) == len(copies) + 1


def test_questions_without_candidates_survive_in_order(tmp_path):
  from as2jax.data.builder import prepared

  candidates = (Candidate("1", "é", 1, "p", "n", 0, -1, "t"), Candidate("0", "b"))
  questions = (
    Question("z", "no candidates", ()),
    Question("a", "ünï \n code", candidates),
    Question("m", "again none", ()),
  )
  (tmp_path / "file").write_text("content")
  spec = dataclasses.replace(
    SPECS["wikiqa"], name="made", files={"only": ("file",)}, reader=lambda path: iter(questions)
  )
  files = Source(epath.Path(tmp_path), {"only": (epath.Path(tmp_path / "file"),)})
  copy = prepared(spec, files, epath.Path(tmp_path / "cache"))
  assert tuple(copy.read("only")) == questions
  assert copy.counts == {"only": Counts(3, 2, 1)}


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
  with pytest.raises(InputError, match=r"WikiQA-test.tsv:11: .*may be cut off"):
    load("wikiqa", root=str(root))
  assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
  (root / "WikiQA-dev.tsv").unlink()
  with pytest.raises(InputError, match=r"root lacks WikiQA-dev.tsv; put all of"):
    load("wikiqa", root=str(root))
  (root / "WikiQA-dev.tsv").mkdir()
  with pytest.raises(InputError, match=r"WikiQA-dev.tsv is a directory"):
    load("wikiqa", root=str(root))


@pytest.mark.parametrize("download", [True, False])
def test_absent_data_is_one_message_and_no_other_data(tmp_path, download):
  start = time.monotonic()
  with pytest.raises(InputError) as error:
    load("wikiqa", root=str(tmp_path / "root"), download=download)
  assert time.monotonic() - start < 5
  message = str(error.value)
  for place in ("root/wikiqa", "root", "root/WikiQACorpus", "cache/downloads/wikiqa"):
    assert f"{tmp_path / place}" in message
  for words in ("WikiQA-train.tsv", SPECS["wikiqa"].url, "AS2JAX_DATA", "--config.data.root"):
    assert words in message
  assert "--config=configs/wikiqa_triplet.py:sample" in message
  reason = "the download failed" if download else "downloading is switched off"
  assert reason in message and "\n" not in message


def process(code: str, root: Path) -> subprocess.Popen:
  start = (
    "import dataclasses, os, signal\nfrom as2jax.data import dataset\n"
    "def change(**f):\n"
    "  dataset.SPECS['wikiqa'] = dataclasses.replace(dataset.SPECS['wikiqa'], **f)\n"
    f"change(published={{}})\nroot = {str(root)!r}\n"
  )
  repository = str(Path(dataset.__file__).parents[2])
  return subprocess.Popen(
    [sys.executable, "-c", start + code], cwd=repository, stdout=subprocess.PIPE, text=True
  )


KILLS = {
  "while reading": """
reader = dataset.SPECS['wikiqa'].reader
def killed(path):
  for number, question in enumerate(reader(path)):
    if path.name == 'WikiQA-test.tsv' and number == 2:
      os.kill(os.getpid(), signal.SIGKILL)
    yield question
change(reader=killed)
""",
  "when all but the pointer is written": """
from as2jax.data import builder
builder.fingerprint = lambda _: os.kill(os.getpid(), signal.SIGKILL)
""",
}


@pytest.mark.parametrize("when", KILLS)
def test_a_killed_preparation_is_not_taken_for_whole(tmp_path, when):
  root = write_source(tmp_path / "root")
  run = process(KILLS[when] + "dataset.load('wikiqa', root=root)", root)
  run.communicate(timeout=60)
  assert run.returncode == -signal.SIGKILL
  assert list((tmp_path / "cache").rglob("*train.array_record*"))  # it had begun
  data = load("wikiqa", root=str(root))
  assert data.splits["test"] == read_wikiqa(root / "WikiQA-test.tsv")


def test_an_interrupted_preparation_cleans_up(tmp_path, monkeypatch):
  def interrupted(path):
    raise KeyboardInterrupt

  write_source(tmp_path / "root")
  change(monkeypatch, reader=interrupted)
  with pytest.raises(KeyboardInterrupt):
    load("wikiqa", root=str(tmp_path / "root"))
  assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_two_processes_prepare_at_once(tmp_path):
  root = write_source(tmp_path / "root", questions=30)
  code = "print(sorted(dataset.load('wikiqa', root=root).fingerprints.items()))"
  runs = [process(code, root) for _ in range(3)]
  printed = [run.communicate(timeout=60)[0] for run in runs]
  assert [run.returncode for run in runs] == [0, 0, 0]
  expected = {s: fingerprint(read_wikiqa(root / f"WikiQA-{s}.tsv")) for s in SPLITS}
  assert set(printed) == {f"{sorted(expected.items())}\n"}
  assert load("wikiqa", root=str(root)).fingerprints == expected


@pytest.mark.parametrize("damage", ["cut", "gone", "pointer cut", "pointer empty"])
def test_a_damaged_copy_is_prepared_anew(tmp_path, damage):
  root = write_source(tmp_path / "root")
  first = load("wikiqa", root=str(root))
  assert set(first.splits.values())  # read before the copy is damaged
  (record,) = (tmp_path / "cache").rglob("*dev.array_record*")
  (pointer,) = (tmp_path / "cache").rglob("prepared.json")
  if damage == "cut":
    os.truncate(record, record.stat().st_size // 2)
  elif damage == "gone":
    record.unlink()
  else:
    os.truncate(pointer, 30 if damage == "pointer cut" else 0)
  assert load("wikiqa", root=str(root)) == first


def test_a_cache_that_cannot_be_written(tmp_path):
  write_source(tmp_path / "root")
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match=r"file cannot hold a prepared copy .* AS2JAX_CACHE"):
    load("wikiqa", root=str(tmp_path / "root"), cache=str(tmp_path / "file"))


def test_unknown_name():
  with pytest.raises(InputError, match="data.name = 'wikqa' is no dataset; did you mean 'wikiqa'"):
    load("wikqa")
  with pytest.raises(InputError, match="use one of wikiqa, sample"):
    load("imagenet")


def test_the_official_data_load_with_their_counts(monkeypatch):
  if not OFFICIAL or not Path(OFFICIAL, "wikiqa").exists():
    pytest.skip("needs WikiQA: set AS2JAX_DATA to the folder that holds wikiqa/")
  monkeypatch.setitem(SPECS, "wikiqa", WIKIQA)
  data = load("wikiqa", root=OFFICIAL)
  assert [len(data.splits[split]) for split in SPLITS] == [2118, 296, 633]
  start = time.monotonic()
  load("wikiqa", root=OFFICIAL)
  assert time.monotonic() - start < 5  # 0.6 s on an idle machine


def test_splits_are_read_when_they_are_asked_for(tmp_path):
  from as2jax.data.builder import Prepared

  write_source(tmp_path)
  read = []
  original = Prepared.read
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Prepared, "read", lambda self, *a: read.append(a) or original(self, *a))
    data = load("wikiqa", root=str(tmp_path))
    assert list(data.splits) == list(SPLITS) and read == []
    assert data.splits["dev"] is data.splits["dev"] and read == [("dev",)]
    with pytest.raises(KeyError):
      data.splits["validation"]


def test_many_shards_keep_the_order(tmp_path, monkeypatch):
  from as2jax.data import shards

  monkeypatch.setattr(shards, "SHARD_BYTES", 1000)
  root = write_source(tmp_path / "root", questions=30)
  data = load("wikiqa", root=str(root))
  files = sorted(path.name for path in (tmp_path / "cache").rglob("*train.array_record*"))
  assert len(files) > 5 and files[0].endswith(f"-00000-of-{len(files):05d}")
  assert data.splits["train"] == read_wikiqa(root / "WikiQA-train.tsv")


def test_documented_counts_are_no_error(tmp_path, monkeypatch):
  root = write_source(tmp_path / "root")
  published = {"dev": {"all": Counts(4, 11, 4)}}
  change(monkeypatch, published=published, documented={"dev": {"all": Counts(4, 10, 4)}})
  load("wikiqa", root=str(root))
  change(monkeypatch, published=published, documented={"dev": {"all": Counts(4, 9, 4)}})
  with pytest.raises(InputError, match="split has 4/11/4"):
    load("wikiqa", root=str(root))


def test_a_long_preparation_says_how_it_goes(tmp_path, monkeypatch, capsys):
  from as2jax.data import shards

  monkeypatch.setattr(shards, "SECONDS", 0.0)
  root = write_source(tmp_path / "root", questions=70)
  load("wikiqa", root=str(root))
  lines = capsys.readouterr().err.splitlines()
  # 64 questions with 1, 2 … 64 candidates
  assert any(line.startswith("preparing wikiqa train: 2,080 candidates in") for line in lines)
  assert any(line.startswith("reading back wikiqa test: 2,080 candidates in") for line in lines)


def test_reading_a_copy_that_was_damaged_meanwhile(tmp_path):
  root = write_source(tmp_path / "root")
  data = load("wikiqa", root=str(root))
  (record,) = (tmp_path / "cache").rglob("*dev.array_record*")
  os.truncate(record, record.stat().st_size // 2)
  with pytest.raises(InputError, match="changed while it was in use .* run again"):
    data.splits["dev"]


def test_preparing_holds_one_question_at_a_time(tmp_path):
  from as2jax.data.builder import prepared

  def questions(path):
    for i in range(150):
      text = f"{i} " * 2000
      yield Question(f"q{i}", text, tuple(Candidate(f"{i}-{j}", text, 0) for j in range(8)))

  (tmp_path / "file").write_text("content")
  spec = dataclasses.replace(SPECS["wikiqa"], name="large", files={"train": ("file",)},
                             reader=questions)
  source = Source(epath.Path(tmp_path), {"train": (epath.Path(tmp_path / "file"),)})
  tracemalloc.start()
  try:
    copy = prepared(spec, source, epath.Path(tmp_path / "cache"))
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  texts = 9 * sum(len(f"{i} " * 2000) for i in range(150))
  assert copy.counts["train"] == Counts(150, 1200, 0)
  assert texts > 8e6 and peak < texts / 4, f"{peak / 1e6:.1f} MB for {texts / 1e6:.1f} MB of text"
