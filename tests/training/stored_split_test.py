"""The training split in arrays: a second run starts without its questions, and on the same numbers."""

import dataclasses
import pathlib

import jax
import numpy as np
import pytest
import tiny

from as2jax.data import mined
from as2jax.data.dataset import Splits
from as2jax.data.record import Candidate
from as2jax.runtime.errors import InputError
from as2jax.training import build, record, stored_split
from as2jax.training.describe import describe


@pytest.fixture
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path))
  return tmp_path / "splits"


def config(model="crossencoder", **changes):
  return tiny.config(model, data__cache="", **changes)


def batch_of(parts):
  batcher = parts.train_batcher()
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  return plan, [batcher.batch(plan, i) for i in range(3)]


@pytest.mark.parametrize("model", ["crossencoder", "triplet"])
def test_a_second_run_makes_the_same_batches_without_the_questions(cache, monkeypatch, model):
  parts = build.load(config(model))
  plan, batches = batch_of(parts)
  digest = record._of_data(parts, (record.TRAINING,))
  assert len([path for path in cache.iterdir() if path.is_dir()]) == 2  # examples and digest
  read = Splits.__getitem__

  def refused(self, name):
    assert name != "train", "the training questions are decoded"
    return read(self, name)

  monkeypatch.setattr(Splits, "__getitem__", refused)
  again = build.load(config(model))
  other_plan, others = batch_of(again)
  assert len(plan) == len(other_plan) and np.array_equal(plan.seen, other_plan.seen)
  assert jax.tree.all(jax.tree.map(np.array_equal, batches, others))
  assert record._of_data(again, (record.TRAINING,)) == digest
  with pytest.raises(AssertionError, match="decoded"):
    again.train_questions()


@pytest.mark.parametrize(
  "changes",
  [
    {"data__train_fraction": 0.2},
    {"data__train_filter": "both"},
    {"data__rules": ("lowercase",)},
    {"data__holdout": 0.5},
    {"data__max_length": 32},
    {"data__prompts": ("query: ", "")},
  ],
)
def test_other_data_or_texts_are_another_split(cache, changes):
  first, other = build.load(config()), build.load(config(**changes))
  assert stored_split.folder(first) != stored_split.folder(other)
  first.train_batcher()
  assert stored_split.read(other) is None and stored_split.read(first) is not None


def test_negatives_that_were_mined_anew_are_another_split(cache, tmp_path):
  folder = tmp_path / "mined"
  folder.mkdir()
  (folder / mined.CARD).write_text("{}")
  question = build.load(config()).train_questions()[0]
  folders = []
  for texts in (["one"], ["one", "two"]):
    lines = [mined.line(question, Candidate(mined.candidate_id(text), text, 0)) for text in texts]
    (folder / mined.FILE).write_text("".join(lines))
    parts = build.load(config(data__mined=(str(folder),)))
    assert stored_split.read(parts) is None
    parts.train_batcher()
    folders.append(stored_split.folder(parts))
  assert folders[0] != folders[1]
  with pytest.raises(InputError, match="data.mined: .*none holds no negatives.jsonl"):
    stored_split.folder(build.load(config(data__mined=(str(tmp_path / "none"),))))


def test_what_reads_questions_has_none(cache):
  """Models whose inputs read texts, own files, rankers without parameters, described runs."""
  assert stored_split.folder(build.load(config("cassie"))) is None
  assert stored_split.folder(describe(config())) is None
  own = config(data__name="files", data__train=str(cache / "x.tsv"))
  parts = build.load(config())
  assert stored_split.folder(parts) is not None
  assert stored_split.folder(dataclasses.replace(parts, config=own)) is None


def test_a_copied_cache_is_used(cache, tmp_path, monkeypatch):
  parts = build.load(config())
  _, batches = batch_of(parts)
  copy = tmp_path.with_name(tmp_path.name + "-copied")
  tmp_path.rename(copy)  # what was in the first place is gone
  monkeypatch.setenv("AS2JAX_CACHE", str(copy))
  again = build.load(config())
  units, _ = stored_split.read(again)
  assert pathlib.Path(units.folder).parent == copy / "units"
  _, others = batch_of(again)
  np.testing.assert_array_equal(batches[0].tokens.ids, others[0].tokens.ids)


def test_a_damaged_or_vanished_part_is_made_again(cache):
  parts = build.load(config())
  _, batches = batch_of(parts)
  place = stored_split.folder(parts)
  digest = record._of_data(parts, (record.TRAINING,))["data"][record.TRAINING]
  manifest = place / "manifest.json"
  manifest.write_text(manifest.read_text().replace("units", "unitz"))
  again = build.load(config())
  assert stored_split.read(again) is None
  _, others = batch_of(again)
  np.testing.assert_array_equal(batches[0].tokens.ids, others[0].tokens.ids)
  assert stored_split.read(again) is not None
  assert record._of_data(again, (record.TRAINING,))["data"][record.TRAINING] == digest
