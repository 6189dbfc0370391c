"""The config files: all resolve and fit the code, and no key is there for nothing."""

import dataclasses
import itertools
import json
import pathlib

import jax
import numpy as np
import pytest
import sharding_rules
import tiny
from ml_collections import ConfigDict

from as2jax.config import base, baselines, cete, check, flags, presets
from as2jax.config.flat import flatten
from as2jax.data.datasets import load, trec_files
from as2jax.inference import modes
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.training import build, optimizers, step
from configs import rerun

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("__init__", "base", "baselines", "cete", "cross_vae", "presets", "rerun")


def every_config():
  """FILE and FILE:ARGUMENT of all config files: each word alone and all together with the first
  kind of a file, the other kinds bare and on the sample."""
  for path in sorted((ROOT / "configs").rglob("*.py")):
    if path.stem in LIBRARIES or path.parent.name == "papers":
      continue
    name = str(path.relative_to(ROOT))
    kinds = [""]
    if path.stem.endswith("_baseline"):
      kinds = [*baselines.LEXICAL, *baselines.ENCODERS]
    elif path.stem.endswith("_cete"):
      kinds = ["", *cete.VECTORS, "no_encoder", "no_encoder,elmo"]
    elif path.stem == "wikiqa_cassie":
      kinds = ["", "joint"]
    words = ["", *presets.ARGUMENTS, ",".join(presets.ARGUMENTS)]
    pairs = [*itertools.product(kinds[:1], words), *itertools.product(kinds[1:], ("", "sample"))]
    for argument in (",".join(filter(None, pair)) for pair in pairs):
      yield f"{name}:{argument}" if argument else name


ALL = tuple(every_config())


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
  monkeypatch.chdir(ROOT)


def test_there_are_configs():
  assert {
    "configs/wikiqa_triplet.py",
    "configs/wikiqa_siamese.py:sample",
    "configs/wikiqa_crossencoder.py:grouped",
    "configs/wikiqa_baseline.py:bm25,sample",
  } <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_config_resolves(name):
  config = flags.load(name)
  check.check(config)
  assert set(base.get_config()) == set(config)
  registry.find(registry.MODELS, config.model.name, "model.name")
  registry.build(registry.LOSSES, config.loss, "loss")


@pytest.mark.parametrize("name", ALL)
def test_a_run_is_repeated_from_its_config(name, tmp_path):
  config = flags.load(name)
  with config.unlocked():
    config.seeds = (3, 1)
    config.optimizer.lr_multipliers = (("encoder/", 0.0), ("head", 10.0))
    if "hidden_dropout" in config.encoder:
      config.encoder.hidden_dropout = 0.25
  path = tmp_path / "config.json"
  path.write_text(config.to_json(indent=2) + "\n")
  again = flags.load(f"configs/rerun.py:{path}")
  assert again.to_json() == config.to_json() and again.is_locked
  old, new = (c.to_dict() for c in (config, again))
  assert new == old
  assert rerun.get_config(str(path)).to_dict() == old


def test_a_config_refuses_what_it_does_not_know():
  config = flags.load("configs/wikiqa_triplet.py:sample")
  for section in (config, config.model, config.optimizer):
    with pytest.raises(AttributeError, match="zebra"):
      section.zebra = 1
  for section, key in (
    (config, "epochs"),
    (config.optimizer, "rate"),
    (config, "seeds"),
    (config.loss, "margin"),
    (config.encoder, "hidden_dropout"),
  ):
    with pytest.raises(TypeError):
      section[key] = "many"


def test_feature_based_rankers_read_one_kind_of_vectors():
  made = flags.load("configs/trecqa_cete.py:no_encoder,glove")
  assert made.encoder.name == "static" and made.model.num_heads == 6
  assert made.model.encoder_layers == made.epochs == 0
  assert tuple(made.data.rules) == ("lowercase", "alphanumeric")
  made = flags.load("configs/wikiqa_cete.py:elmo,sample")
  assert made.encoder.name == "elmo" and made.data.name == "sample"
  with pytest.raises(InputError, match="elmo and minilm: name one of"):
    flags.load("configs/wikiqa_cete.py:elmo,minilm")


def test_an_unknown_field_or_a_missing_one_is_named():
  with pytest.raises(InputError, match="loss.zebra is not a field of TripletLoss.*margin"):
    registry.build(registry.LOSSES, {"name": "triplet", "zebra": 1}, "loss")
  with pytest.raises(InputError, match=r"TripletLoss wants values for \['margin'"):
    registry.build(registry.LOSSES, {"name": "triplet"}, "loss")


@pytest.mark.parametrize("table", ["MODELS", "LOSSES"])
def test_defaults_live_in_configs_alone(table):
  table = getattr(registry, table)
  for name in table:
    for field in dataclasses.fields(registry.find(table, name, "name")):
      if field.name in ("parent", "name"):
        continue
      assert field.default is field.default_factory is dataclasses.MISSING, (name, field.name)


class Recorder:
  """A config that notes which of its keys are read."""

  def __init__(self, config, read, prefix=""):
    self.__dict__.update(_config=config, _read=read, _prefix=prefix)

  def __getitem__(self, key):
    value, path = self._config[key], self._prefix + key
    if isinstance(value, ConfigDict):
      return Recorder(value, self._read, path + ".")
    self._read.add(path)
    return value

  def __getattr__(self, key):
    try:
      return self[key]
    except KeyError as error:
      raise AttributeError(key) from error

  def get(self, key, default=None):
    return self[key] if key in self._config else default

  def keys(self):
    return list(self._config)

  def items(self):
    return [(key, self[key]) for key in self._config]

  def to_json(self, **options):
    return self._config.to_json(**options)  # writes all down, which is no use of any


def test_every_key_is_read(tmp_path, monkeypatch):
  """A run and a ranking read every key of the base; one that nothing reads is found."""
  monkeypatch.setattr(check, "check", lambda config: None)
  read, questions = set(), tmp_path / "questions.tsv"
  questions.write_text("what is it\tIt is this.\nwhat is it\tThat.\n")
  settings = {
    "data__train_fraction": 0.1,
    "predict__input": str(questions),
    "evaluation__task": "retrieve",
    "select": "mrr",
    "data__negatives": "paragraph",
  }
  for mode in ("train", "predict"):
    config = tiny.config("triplet", "grouped", mode=mode, **settings)
    with config.unlocked():
      config.batch.zebra = 1
    modes.run(Recorder(config, read), str(tmp_path / "x"))
  assert set(flatten(config)) - read == {"batch.zebra"}
  config = tiny.config("crossencoder", **settings)
  with pytest.raises(InputError, match="data.ranking is missing"):
    modes.run(Recorder(config, read), str(tmp_path / "y"))
  assert set(flatten(base.get_config())) - read == set()


STRUCTURES = sorted(
  {
    json.dumps([c.model.to_dict(), c.loss.to_dict(), c.batch.to_dict()]): name
    for name in ALL
    for c in [flags.load(str(ROOT / name))]
    if registry.has_parameters(c.model.name) and c.loss.name != "none"
  }.values()
)


def ranking_files(folder, config) -> str:
  """Run files that rank the candidates of the config's data at random, for every split."""
  data, rng = load.load(config.data), np.random.default_rng(0)
  for split, questions in data.splits.items():
    ids = [[c.id for c in q.candidates] for q in questions]
    trec_files.write_run(
      folder / f"{split}.trec",
      [q.id for q in questions],
      ids,
      [rng.random(len(i)) for i in ids],
      "random",
    )
  return f"{folder}/{{split}}.trec"


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_passes_the_shapes_of_its_step(name, tmp_path):
  config = flags.load(name)
  with config.unlocked():
    if config.model.name == "feature_based":  # which knows the vectors' width, not the encoder
      config.encoder, config.model.num_heads = base.get_config().encoder, 2
    config.data.name = "sample"
    if "vectors" in config.encoder:
      config.encoder.vectors = str(tmp_path / "vectors.txt")
      (tmp_path / "vectors.txt").write_text("the 1 2 3 4\nof 4 3 2 2\n")
    else:
      config.encoder.pretrained = tiny.encoder_folder()
    config.data.train_fraction = 0.2
    config.data.max_length = min(config.data.max_length, 128)  # positions of the tiny encoder
    if config.model.get("template") == "joint":
      sample = flags.load("configs/wikiqa_cassie.py:sample")
      config.data.ranking = ranking_files(tmp_path, sample)
    config.batch.shards = 2
  parts = build.build(config)
  batcher = parts.train_batcher()
  batch = batcher.batch(batcher.plan(batcher.sampler.blocks(), 0, 0), 0)
  o = config.optimizer
  optimizer = optimizers.from_config(o)
  rate = optimizers.schedule(o.schedule, rate=o.rate, warmup=o.warmup, epochs=config.epochs)
  state = parts.fresh_state(
    jax.tree.map(lambda x: x[0], batch), (0,), optimizer, sharding.make_mesh()
  )
  transformer = config.encoder.name in ("auto", "sentence_bert") and (
    config.model.name != "feature_based"
  )
  assert bool(sharding_rules.assert_rules(state, transformer=transformer)) == transformer
  function = step.make_train_step(
    parts.model, parts.loss, optimizer, rate, mesh=sharding.make_mesh(), state=state, seeds=1
  )
  new, scalars = jax.eval_shape(
    function,
    state,
    jax.tree.map(lambda x: x[None], batch),
    np.zeros(1, np.uint32),
    np.full(1, 0.5, np.float32),
    np.ones(1, bool),
  )
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert shapes(new) == shapes(state)
  assert scalars["loss"].shape == (1,) and scalars["loss"].dtype == np.float32
