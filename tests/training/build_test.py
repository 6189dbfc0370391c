"""From a config to a run's parts: what is fitted is kept, what does not fit each other is refused."""

from typing import ClassVar

import pytest
import tiny
import tiny_encoders
from flax import linen as nn
from ml_collections import ConfigDict

from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords
from as2jax.models.system import System
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.training.build import load


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
