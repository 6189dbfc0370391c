"""Configs described without weights and data: shapes are a run's, sizes as published."""

import re

import jax
import pytest
import tiny
import tiny_encoders
from ml_collections import ConfigDict

from as2jax.config import jobs
from as2jax.data.inputs.word_overlap import DocumentFrequency
from as2jax.experiments import compile as compiled
from as2jax.experiments.compile import describe
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.training import build, optimizers
from as2jax.training import state as states
from as2jax.training.build import load

IN_BATCH = {"scale": 1.0, "similarity": "cosine"}


@pytest.mark.parametrize(
  "words",
  [("triplet",), ("triplet", "grouped"), ("cassie",), ("accurate", "grouped")],
  ids="-".join,
)
def test_shapes_are_those_of_a_run(words):
  """All but the numbers of rows and slots, which the lengths of the texts decide."""
  config = tiny.config(*words, data__max_length=64, encoder__hidden_dropout=0.2)
  real, described = build.load(config), describe(config)
  batchers = [parts.train_batcher() for parts in (real, described)]
  batch = batchers[0].batch(batchers[0].plan(batchers[0].sampler.blocks(), 0, 0), 0)
  shard = described.batch(batchers[1])
  kinds = lambda tree: jax.tree.map(lambda x: (x.ndim, x.dtype), tree)
  assert kinds(jax.tree.map(lambda x: x[0], batch)) == kinds(shard)
  assert batch.tokens.ids.shape[-1] == shard.tokens.ids.shape[-1]
  assert batch.examples.members.shape[2:] == shard.examples.members.shape[1:]


@pytest.mark.parametrize("name", ["files", "asnq_files"])
def test_a_config_with_files_of_ones_own_is_described_without_them(name):
  """They may lie on another machine; so may what was mined in them and what teachers scored."""
  own = {"train": "gone.tsv", "dev": "gone.tsv", "test": "gone.tsv", "mined": ("gone",)}
  own |= {"labelled_negatives": False, "teachers": ("gone",)}
  own |= {"columns": "question=ask", "drop": True} if name == "files" else {}
  changes = {f"data__{key}": value for key, value in own.items()}
  described = describe(tiny.config("fast", data__name=name, **changes))
  plain = describe(tiny.config("fast"))
  assert described.config.data.train == "gone.tsv"
  kinds = [parts.batch(parts.train_batcher()) for parts in (described, plain)]
  assert jax.tree.map(lambda x: x.shape, kinds[0]) == jax.tree.map(lambda x: x.shape, kinds[1])


def test_the_state_is_that_of_a_run():
  config = tiny.config("triplet", "grouped")
  real, described = build.load(config), describe(config)
  shard = described.batch(described.train_batcher())
  mesh, optimizer = sharding.make_mesh(), optimizers.from_config(config.optimizer)
  state = states.abstract(real.fresh_state(shard, (0,), optimizer, mesh))
  spec = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding.spec), tree)
  assert spec(state) == spec(described.state(shard, (0,), optimizer, mesh))


PAPERS = """wikiqa_siamese wikiqa_triplet:roberta,large wikiqa_loct:xlnet wikiqa_crossencoder:roberta
  squad_cross_vae squad_dual_vae squad_dual_gru:mlp trecqa_cete:bert_large trecqa_m2snet
  wikiqa_cassie:joint wikiqa_cete:elmo wikiqa_baseline:infersent wikiqa_baseline:elmo""".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_paper_sizes_pass_the_shapes_of_their_steps(name):
  """Of how many parameters an encoder is stands in encoders/parity_test.py and elmo_test.py."""
  config, mesh = jobs.load(name), sharding.make_mesh()
  described = describe(compiled.scaled(config, 2))
  steps = {step: trace() for step, trace in compiled.steps(described, mesh)}
  assert ("train" in steps) == (config.loss.name != "none")
  for step in steps.values():  # one program: every loop has a length, no host takes part
    primitives = " ".join(re.findall(r"\w+(?=\[)", str(step.jaxpr)))
    assert primitives and "while" not in primitives and "callback" not in primitives


@pytest.mark.parametrize(
  "name, message",
  [
    ("configs/wikiqa_baseline.py:bm25", "has no step to compile"),
    ("configs/wikiqa_baseline.py:glove,sample", "has none: give a number"),
  ],
)
def test_what_cannot_be_compiled_is_said(name, message):
  config = jobs.load(name)
  with config.unlocked():
    config.data.max_length = 0
  with pytest.raises(InputError, match=message):
    describe(config)


def test_a_sentence_bert_is_described_by_its_published_shapes():
  """Its texts are cut where its folder says, not at the default of other systems."""
  config = jobs.load("configs/wikiqa_baseline.py:sbert")
  described = describe(config)
  assert (config.data.max_length, described.config.data.max_length) == (0, 128)
  model = described.model
  assert (model.pooling, model.dense, model.normalize) == (("mean",), (), False)
  assert model.encoder.hidden_size == 768
  with config.unlocked():
    config.data.max_length = 200
  with pytest.raises(InputError, match="200 exceeds the 128 positions of sentence-transformers/b"):
    describe(config)


@pytest.mark.parametrize("word, hidden", [("modernbert", 768), ("ettin17m", 256), ("deberta", 768)])
def test_every_system_of_the_papers_takes_todays_encoders(word, hidden):
  for job in ("triplet", "siamese", "crossencoder", "cete", "cassie", "loct"):
    module = describe(jobs.load(f"wikiqa_{job}:{word}")).source.module
    name = "DebertaEncoder" if word == "deberta" else "ModernBertEncoder"
    assert (type(module).__name__, module.hidden_size) == (name, hidden)
  static = describe(jobs.load(f"squad_cross_vae:{word}")).source.module
  assert type(static).__name__ == "StaticEncoder"  # over the vectors of its word pieces
  assert static.hidden_size == hidden


@pytest.mark.parametrize(
  "system, loss, message",
  [
    ("crossencoder", {"name": "bce"}, "the layout single; .* = siamese or m2snet$"),
    ("siamese", {"name": "ranknet", "scale": 1.0}, ""),
    ("siamese", {"name": "in_batch_softmax", **IN_BATCH}, "it reads units, .* = biencoder or se"),
    ("cassie", {"name": "cross_entropy"}, "it reads logits, which that system does not give"),
    ("fast", {"name": "bce"}, "it reads logits, .* model.name = siamese or m2snet$"),
    ("fast", {"name": "cassie", "gamma": 0.3, "mi_self_pairs": True}, "reads node_logits, pair_"),
  ],
)
def test_a_loss_that_cannot_read_a_systems_outputs_is_refused(system, loss, message):
  config = tiny.config(system)
  with config.unlocked():
    config.loss = ConfigDict(loss)
  if not message:
    assert describe(config).loss is not None
    return
  with pytest.raises(InputError, match=f"'{loss['name']}' does not fit model.name = .*{message}"):
    describe(config)


def test_fitted_values_are_the_run_s_for_ever(tmp_path):
  """They come from all training questions left after holding out, and then from the folder."""
  half = {"data__train_fraction": 0.5, "data__train_filter": "answerable"}
  config = tiny.config("cassie", **half)
  first = load(config, workdir=tmp_path)
  whole = first.dataset.splits["train"]
  assert len(first.train_questions()) < len(whole)
  assert first.fitted == {"document_frequency": DocumentFrequency().fit(whole), "stop_words": None}
  config = tiny.config("cassie", data__holdout=0.3, **half)
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
