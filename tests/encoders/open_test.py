"""Encoders as configs name them: whole runs of each kind, and what a run remembers."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import tiny
import tiny_elmo
import tiny_encoders
import tiny_systems
from safetensors.numpy import load_file, save_file
from sentence_folder_test import handmade

from as2jax.config import recipes
from as2jax.encoders import bert, hub, open_encoder, sentence_folder, transformer_folder, weights
from as2jax.encoders import family as families
from as2jax.encoders.bert import BertEncoder
from as2jax.evaluation import results
from as2jax.inference import modes
from as2jax.inference.export import export
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import digest_of_arrays
from as2jax.training import build


@pytest.fixture(scope="module")
def vectors():
  """A file of random vectors of common words."""
  return pathlib.Path(tiny_systems.config("m2snet").encoder.vectors)


def config(model, encoder=None, **overrides):
  job_config = tiny.config(
    model, "grouped", epochs=1, data__train_fraction=0.1, **overrides
  ).unlock()
  if encoder:
    encoder(job_config)
  return job_config.lock()


def untrained(job_config):
  """The config as that of a baseline: the mean of the encoder's vectors, no step."""
  with job_config.unlocked():
    job_config.epochs = 0
    job_config.model.score = "cosine"
  return job_config


@pytest.mark.parametrize("kind", ["xlnet", "deberta-v2"])
def test_a_system_trains_on_other_transformers(kind, tmp_path):
  """Rerankers on some more in `inference/published_rerankers_test.py`."""
  folder = tiny_encoders.folder(kind, tmp_path / kind)
  options = {"encoder__pretrained": str(folder), "model__pooler": True}
  modes.run(config("crossencoder", **options), str(tmp_path / "run"))
  content = results.read(tmp_path / "run")
  assert content["weights"]["family"] == kind and content["seeds"][0]["steps"] > 0
  assert content["weights"]["pooler"] == "random"  # neither has a trained one
  assert {"pooler/kernel", "head/kernel"} <= set(tiny.best_parameters(tmp_path / "run"))


def test_the_encoder_says_whose_vector_classifies(tmp_path):
  for kind, token in (("bert", "cls"), ("roberta", "cls"), ("xlnet", "cls_last")):
    folder = tiny_encoders.folder(kind, tmp_path / kind)
    job_config = config("crossencoder", encoder__pretrained=str(folder))
    assert build.load(job_config).model.token == token
  with job_config.unlocked():
    job_config.model.token = "cls"
    job_config.encoder.pretrained = str(handmade(tmp_path / "early", folder))  # below it
  assert build.load(job_config).model.token == "cls"  # as the config says


def test_a_pooler_that_was_never_trained_is_drawn(tmp_path):
  """MiniLM's published one has biases of 0, which any training moves; a run of before still goes on."""
  folder = shutil.copytree(tiny.encoder_folder(), tmp_path / "x")
  tensors = load_file(folder / "model.safetensors")
  for bias, pooler in ((tensors["pooler.dense.bias"], "pretrained"), (np.zeros(16), "random")):
    tensors["pooler.dense.bias"] = bias.astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    parts = build.load(config("crossencoder", encoder__pretrained=str(folder)))
    assert parts.provenance["pooler"] == pooler
    assert ("pooler/kernel" in parts.pretrained) == (pooler == "pretrained")
    layer = {f"pooler/{name}": value for name, value in parts.source.pooler.items()}
    assert parts.provenance["sha256"] == digest_of_arrays({**parts.pretrained, **layer})


def test_a_name_that_the_weights_contradict_is_an_error(tmp_path):
  folder = tiny_encoders.folder("xlnet", tmp_path / "xlnet")
  job_config = config("triplet", encoder__pretrained=str(folder), encoder__name="bert")
  with pytest.raises(InputError, match="'bert', but .* family 'xlnet'"):
    modes.run(job_config, str(tmp_path / "run"))


def static(path, **fields):
  def apply(job_config):
    recipes.static(job_config, str(path), lower=True)
    job_config.encoder.update(fields)

  return apply


def test_word_vectors_rank_and_the_run_keeps_its_vocabulary(vectors, tmp_path):
  path = tmp_path / "own.txt"
  path.write_text(vectors.read_text())
  job_config = untrained(config("triplet", static(path)))
  run = tmp_path / "run"
  modes.run(job_config, str(run))
  content = results.read(run)
  statistics = content["weights"]["words"]
  assert content["weights"]["family"] == "static" and statistics["oov_tokens"] > 0
  assert content["seeds"][0]["steps"] == 0 and content["deterministic"] is True
  # Ranking other texts takes the vocabulary of the run: the file may be gone.
  path.unlink()
  questions = tmp_path / "questions.tsv"
  questions.write_text(
    "question\tcandidate\nwhat is a glacier\tA glacier is ice.\nwhat is a glacier\tZzz yyy.\n"
  )
  with job_config.unlocked():
    job_config.mode, job_config.predict.input = "predict", str(questions)
  modes.run(job_config, str(run))
  ranked = (run / "predictions.tsv").read_text().splitlines()
  assert len(ranked) == 3 and ranked[1].endswith("A glacier is ice.")
  (run / open_encoder.ENCODER_FOLDER / "vectors.safetensors").write_bytes(b"cut off")
  with pytest.raises(InputError, match="vectors.safetensors.*do not belong together"):
    modes.run(job_config, str(run))


def test_a_run_that_never_began_takes_the_vectors_anew(vectors, tmp_path):
  broken = static(vectors, markers=("<s>", "</s>"))
  run = tmp_path / "run"
  with pytest.raises(InputError, match="marker '<s>' is no word"):
    modes.run(untrained(config("triplet", broken)), str(run))
  (run / open_encoder.ENCODER_FOLDER).mkdir(exist_ok=True)
  (run / open_encoder.ENCODER_FOLDER / "vectors.json").write_text("{}")  # of another config
  modes.run(untrained(config("triplet", static(vectors))), str(run))
  assert results.read(run)["weights"]["words"]["markers"] == []


def test_elmo_reads_every_word_by_its_characters(tmp_path):
  run = tmp_path / "run"
  modes.run(untrained(config("triplet", tiny_elmo.recipe(tmp_path / "elmo"))), str(run))
  assert 0 < results.read(run)["metrics"]["map[sample-clean/test]"]["mean"] < 1
  assert not (run / open_encoder.ENCODER_FOLDER).exists()  # any word will do


def test_what_is_not_there_is_named(tmp_path, monkeypatch):
  """Before the data are read, which are not there either."""
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  (tmp_path / "glove.txt").touch()

  words = lambda job_config: setattr(job_config, "encoder", recipes.word_table())
  for encoder, changes, message in (
    (static("glove/glove.6B.300d.txt"), {}, "glove.6B.300d.txt.*encoder.vectors=.*lab vectors"),
    (
      recipes.infersent,
      {"vectors": "glove.txt"},
      "infersent1.pkl' is neither here nor .*encoder.weights=/data/FILE$",
    ),
    (recipes.elmo, {}, "'elmo': no such folder.*options.json"),
    (words, {"pretrained": "./bert"}, "^./bert is not here .*no such folder.*; name a BERT"),
  ):
    job_config = config("triplet", encoder, data__name="files", data__train="absent.tsv")
    job_config.encoder.update(changes)
    with pytest.raises(InputError, match=message):
      build.load(job_config, workdir=tmp_path / "run")


def sentence_model(folder, **changes):
  """A tiny bi-encoder of sentence-transformers in `folder`, whose transformer is made once."""
  if not folder.exists():
    tiny_encoders.folder("bert", folder)
  shutil.rmtree(folder / "1_Pooling", ignore_errors=True)
  settings = {
    "max_length": 20,
    "lower_case": True,
    "prompts": ("query: ", ""),
    "pooling": ("mean",),
  }
  sentence_folder.write_modules(
    folder, width=16, layers=(), similarity="cosine", version="x", **settings | changes
  )
  return str(folder)


@pytest.mark.parametrize(
  "changes, key",
  [
    ({"prompts": ("", "")}, "prompts"),
    ({"pooling": ("cls",)}, "fields"),
    ({"max_length": 9}, "max"),
  ],
)
def test_a_published_model_that_has_changed_since_a_run_began_is_refused(changes, key, tmp_path):
  source = sentence_model(tmp_path / "published")
  section = {"name": "sentence_bert", "pretrained": source, "dtype": "float32"}
  section |= {"unroll": 0, "remat": False}
  opened = lambda: open_encoder.open_encoder(
    section, texts=lambda *_: (), workdir=tmp_path / "run", root=""
  )
  assert opened().prompts == ("query: ", "")
  sentence_model(tmp_path / "published", **changes)
  with pytest.raises(InputError, match=f"not what the run in .*began with: {key}.*then, "):
    opened()
  sentence_model(tmp_path / "published")
  assert opened().prompts == ("query: ", "")


class TinyEncoder(BertEncoder):
  """BERT's network, whose published files call everything otherwise."""


FAMILY = families.Transformer(
  name="tiny_family",
  module=TinyEncoder,
  token="cls",
  keys=tuple(dataclasses.replace(key, name=f"my_{key.name}") for key in (*bert.KEYS, bert.TYPES)),
  names={ours: f"mine.{theirs}" for ours, theirs in bert.NAMES.items()},
  classes="Tiny",
  prefix="tiny.",
  ignored=bert.IGNORED,
  special=bert.BERT.special,
  typed=True,
  head={"pooler": "tiny.pooler", "head": "tiny.head"},
  published={"me/tiny": {f"my_{k}": v or 100 for k, v in tiny.SIZES.items() if k != "model_type"}},
)


@pytest.fixture
def family(monkeypatch):
  families.transformers()  # a module registers its own once a process
  monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))
  monkeypatch.setitem(registry.ENCODERS, FAMILY.name, f"{__name__}:TinyEncoder")
  return families.register(FAMILY)


@pytest.fixture
def folder(family, tmp_path):
  """A folder of the family with the weights of a tiny BERT."""
  base, path = tiny_encoders.folder("bert", tmp_path / "bert"), tmp_path / "mine"
  encoder = tiny_encoders.encoder(base)
  params = transformer_folder.load_params(base, encoder)
  path.mkdir()
  (path / "vocab.txt").write_text((base / "vocab.txt").read_text())
  mine = TinyEncoder(**transformer_folder.read_family(base)[1])
  config = family.config(mine)
  (path / "config.json").write_text(json.dumps(config))
  weights.write_tensors(weights.to_tensors(params, mine), path)
  return path


def test_a_family_of_a_users_file_is_read_trains_ranks_and_is_exported(family, folder, tmp_path):
  found, fields = transformer_folder.read_family(folder)
  assert found is family and families.of(TinyEncoder(**fields)) is family
  assert families.of(BertEncoder(**fields)) is bert.BERT
  config = tiny.config(
    "siamese", "grouped", epochs=1, data__train_fraction=0.1, encoder__pretrained=str(folder)
  )
  modes.run(config, str(tmp_path / "run"))
  content = results.read(tmp_path / "run")
  assert content["weights"]["family"] == family.name and content["seeds"][0]["steps"] > 0
  exported = export(tmp_path / "run", tmp_path / "exported")
  stated = json.loads((exported / hub.CONFIG).read_text())
  assert (stated["model_type"], stated["architectures"]) == (family.name, ["TinyModel"])
  again = transformer_folder.load_params(exported, TinyEncoder(**fields))
  moved = tiny.best_parameters(tmp_path / "run")
  for path, value in weights.flat(again).items():
    if f"encoder/{path}" in moved:
      np.testing.assert_allclose(value, np.squeeze(moved[f"encoder/{path}"]), rtol=1e-6)


def test_what_is_published_by_name_is_described(family):
  section = {"name": "auto", "pretrained": "me/tiny", "dtype": "float32"}
  source = open_encoder.describe(section)
  assert (source.module.hidden_size, source.max_length) == (16, 128)
  assert source.model_fields == {"token": "cls"}
  section = {"name": "static", "vectors": "run3d/crawl-300d-2M.vec", "hidden_dropout": 0.0}
  assert open_encoder.describe(section).module.hidden_size == 300
