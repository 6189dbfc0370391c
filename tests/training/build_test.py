"""From a config to batches: what a model that reads words gets, in training and in ranking."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import tiny
import tiny_encoders
from flax import linen as nn
from ml_collections import ConfigDict

from as2jax.data.inputs.protocol import Input
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords
from as2jax.data.record import UNKNOWN
from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.words import is_kept
from as2jax.models.system import System
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.training.build import load
from as2jax.training.describe import describe


class Reader(System):
  """Reads words and sentences in context; the least of such models."""

  encoder: nn.Module

  template: ClassVar[str] = "context"
  layout: ClassVar[str] = "single"
  score_names: ClassVar[tuple[str, ...]] = ("logit",)

  @property
  def inputs(self):
    return (DocumentFrequency(), StopWords())


@pytest.fixture
def config(monkeypatch):
  monkeypatch.setitem(registry.MODELS, "reader", f"{__name__}:Reader")
  job_config = tiny.config("crossencoder", "grouped", data__max_length=96, batch__row_lengths=(96,))
  with job_config.unlocked():
    job_config.model = {"name": "reader"}
    job_config.batch.predict_rows = 16
  return job_config.lock()


def batches(batcher):
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  return [(plan.steps[i][0], batcher.batch(plan, i)) for i in range(len(plan))]


def check(experiment, questions, batcher):
  """Every word of every batch: its place, role, frequency and filter, from the texts anew."""
  frequencies, units = experiment.fitted["document_frequency"], batcher.units
  seen = set()
  for shards, batch in batches(batcher):
    words, examples = batch.words, batch.examples
    assert words.unit.shape[-1] == batch.tokens.ids.shape[-1] * batcher.sampler.limits.rows
    for s, shard in enumerate(shards):
      if shard is None:
        assert not words.length[0, s].any()
        continue
      used = np.flatnonzero(words.length[0, s])
      unit = batch.units.id[0, s][words.unit[0, s, used]]
      form = np.asarray(units.forms)[words.form[0, s, used]]
      role = words.role[0, s, used]
      table = [frequencies["questions" if r == 0 else "sentences"] for r in role]
      np.testing.assert_array_equal(
        batch.inputs["document_frequency"][0, s, used],
        [t.get(str(f), 1) for t, f in zip(table, form)],
      )
      plain = np.asarray([is_kept(f) for f in form])
      for u, r in set(zip(unit.tolist(), role.tolist())):
        mine = (unit == u) & (role == r)
        wanted = plain[mine] if plain[mine].any() else np.ones(mine.sum())
        np.testing.assert_array_equal(1 - batch.inputs["stop_words"][0, s, used][mine], wanted)
      assert not batch.inputs["document_frequency"][0, s][len(used) :].any()
      for e, number in enumerate(shard.examples):
        q, c = batcher.examples.question[number], batcher.examples.candidate[number]
        candidate = questions[q].candidates[c]
        assert examples.labels[0, s, e].tolist() == [
          candidate.label,
          candidate.previous_label,
          candidate.next_label,
        ]
        seen.add((int(q), int(c)))
      assert (examples.labels[0, s, len(shard.examples) :] == UNKNOWN).all()
  return seen


def test_words_and_labels_of_the_context_reach_the_batches(config, tmp_path):
  experiment = load(config, workdir=tmp_path)
  train = experiment.train_questions()
  whole = experiment.dataset.splits["train"]
  assert experiment.fitted["document_frequency"] == DocumentFrequency().fit(whole)
  judged = {(i, j) for i, q in enumerate(train) for j in range(len(q.candidates))}
  assert check(experiment, train, experiment.train_batcher()) == judged
  test = experiment.dataset.splits["test"][:9]
  batcher = experiment.predict_batcher(test, "single")
  assert len(check(experiment, test, batcher)) == sum(len(q.candidates) for q in test)
  assert set(np.unique(batcher.units.word_role)) == set(ROLES.values())


def test_fitted_values_are_the_run_s_for_ever(config, tmp_path):
  """They come from all training questions left after holding out, and then from the folder."""
  with config.unlocked():
    config.data.train_fraction, config.data.train_filter = 0.5, "answerable"
  first = load(config, workdir=tmp_path)
  whole = first.dataset.splits["train"]
  assert len(first.train_questions()) < len(whole)
  assert first.fitted == {"document_frequency": DocumentFrequency().fit(whole), "stop_words": None}
  with config.unlocked():
    config.data.holdout = 0.3
  assert load(config, workdir=tmp_path).fitted == first.fitted
  assert load(config, data=False, workdir=tmp_path).fitted == first.fitted
  other = load(config, workdir=tmp_path / "other")
  rest = other.dataset.splits["train"]
  assert len(rest) < len(whole)
  assert other.fitted["document_frequency"] == DocumentFrequency().fit(rest)
  with pytest.raises(InputError, match="document_frequency.json.*train first"):
    load(config, data=False, workdir=tmp_path / "none")


@dataclasses.dataclass(frozen=True)
class Lengths(Input):
  """An input of this test's own: the characters of each unit's texts, over the longest question."""

  name: ClassVar[str] = "lengths"
  level: ClassVar[str] = "unit"

  def fit(self, questions):
    return {"longest": max(len(question.text) for question in questions)}

  def columns(self, fitted, questions, tables):
    text = {}
    for e, (unit,) in enumerate(tables.examples.members):
      question = questions[tables.examples.question[e]]
      text[unit] = question.text + question.candidates[tables.examples.candidate[e]].text
    lengths = [len(text[u]) / fitted["longest"] for u in range(len(tables.units))]
    return np.asarray(lengths, np.float32)[:, None]

  def spec(self):
    return (1,), np.float32

  def statistics(self, column, units):
    return {"mean": float(column.values.mean())}


class OwnInput(Reader):
  """Reads that input alone."""

  template: ClassVar[str] = "pair"
  inputs: ClassVar[tuple[Input, ...]] = (Lengths(),)


def test_an_input_of_ones_own_needs_no_edit(config, monkeypatch, tmp_path):
  monkeypatch.setitem(registry.MODELS, "own_input", f"{__name__}:OwnInput")
  with config.unlocked():
    config.model.name = "own_input"
  parts = load(config, workdir=tmp_path)
  longest = max(len(question.text) for question in parts.dataset.splits["train"])
  assert parts.fitted == {"lengths": {"longest": longest}}
  assert (tmp_path / "inputs" / "lengths.json").exists()
  batcher = parts.train_batcher()
  values = batcher.inputs["lengths"].values
  assert parts.statistics(batcher) == {"lengths": {"mean": pytest.approx(values.mean())}}
  for _, batch in batches(batcher):
    ids = batch.units.id
    wanted = np.where(ids[..., None] >= 0, values[np.maximum(ids, 0)], 0)
    np.testing.assert_array_equal(batch.inputs["lengths"], wanted)
    assert batch.words is None
  test = parts.dataset.splits["test"][:9]
  _, batch = batches(load(config, data=False, workdir=tmp_path).predict_batcher(test, "single"))[0]
  first = test[0].text + test[0].candidates[0].text
  assert batch.inputs["lengths"][0, 0, 0] == np.float32(len(first) / longest)
  described = describe(config)
  shard = described.batch(described.train_batcher())
  assert shard.inputs["lengths"].shape[2:] == (1,)
  assert shard.inputs["lengths"].dtype == batch.inputs["lengths"].dtype


def test_cls_of_an_encoder_whose_cls_is_the_last_token_starts_no_run(tmp_path):
  folder = str(tiny_encoders.folder("xlnet", tmp_path / "xlnet"))
  job = lambda pooling: tiny.config(
    encoder__pretrained=folder, encoder__name="xlnet", model__pooling=pooling
  )
  with pytest.raises(InputError, match="model.pooling = 'cls' .* the last: .*pooling.: .cls_last"):
    load(job("cls"))


def test_a_loss_over_the_whole_batch_is_not_added_up_from_parts():
  config = tiny.config("fast", batch__accumulate=2)
  with config.unlocked():
    config.loss = ConfigDict({"name": "in_batch_softmax", "scale": 20.0, "similarity": "cosine"})
  with pytest.raises(InputError, match="batch.accumulate = 2: loss.name = 'in_batch_softmax'"):
    load(config)
