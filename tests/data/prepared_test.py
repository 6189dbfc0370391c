"""The prepared copy: killed, damaged, shared, sharded, and in bounded memory."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from synthetic_wikiqa import SPLITS, alone, prepared_of, write_source  # noqa: F401

from as2jax.data import dataset
from as2jax.data.dataset import load
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.source import Counts
from as2jax.data.wikiqa_form import read_wikiqa
from as2jax.runtime.errors import InputError
from tests.file_damage import damage_one_byte


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
  "when all but the manifest is written": """
from as2jax.data import prepared
prepared.overlap = lambda _: os.kill(os.getpid(), signal.SIGKILL)
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


def test_two_processes_prepare_at_once(tmp_path):
  root = write_source(tmp_path / "root", questions=30)
  code = "print(sorted(dataset.load('wikiqa', root=root).fingerprints.items()))"
  runs = [process(code, root) for _ in range(3)]
  printed = [run.communicate(timeout=60)[0] for run in runs]
  assert [run.returncode for run in runs] == [0, 0, 0]
  expected = {s: fingerprint(read_wikiqa(root / f"WikiQA-{s}.tsv")) for s in SPLITS}
  assert set(printed) == {f"{sorted(expected.items())}\n"}
  assert load("wikiqa", root=str(root)).fingerprints == expected


def test_no_damaged_byte_is_used(tmp_path, caplog):
  root = write_source(tmp_path / "root")
  cache, whole = tmp_path / "cache", tmp_path / "whole"
  first = load("wikiqa", root=str(root))
  splits = {split: first.splits[split] for split in SPLITS}
  (manifest,) = cache.rglob("prepared.json")
  shutil.copytree(cache, whole)
  for seed in range(30):
    shutil.rmtree(cache)
    shutil.copytree(whole, cache)
    damage_one_byte(manifest.parent, random.Random(seed))
    caplog.clear()
    again = load("wikiqa", root=str(root))
    assert again == first and {split: again.splits[split] for split in SPLITS} == splits
    lines = [line for line in caplog.messages if "damaged" in line]
    assert len(lines) == 1 and lines[0].endswith("preparing anew"), f"seed {seed}: {lines}"
  caplog.clear()
  assert load("wikiqa", root=str(root)) == first and not caplog.messages  # the new copy is whole


def test_many_shards_keep_the_order(tmp_path, monkeypatch):
  from as2jax.data import prepared

  monkeypatch.setattr(prepared, "SHARD", 4)
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
