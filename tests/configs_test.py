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

from as2jax.config import base, baselines, cete, check, flags, losses, overrides, presets, recipes
from as2jax.config.flat import flatten
from as2jax.experiments.compile import compiled
from as2jax.inference import modes
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.training.describe import describe
from configs import rerun

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("__init__", "base", "baselines", "cete", "cross_vae", "presets", "rerun")


def every_config():
  """{file: FILE and FILE:ARGUMENT of its configs}: each preset word alone and all together, of
  encoders one, with the first kind of a file, the other kinds bare and on the sample.
  """
  configs = {}
  for path in sorted((ROOT / "configs").rglob("*.py")):
    if path.stem in LIBRARIES or path.parent.name == "papers":
      continue
    name = str(path.relative_to(ROOT))
    kinds = [""]
    if path.stem.endswith("_baseline"):
      kinds = [*baselines.LEXICAL, *baselines.ENCODERS]
    elif path.stem.endswith("_cete"):
      kinds = ["", *cete.VECTORS, "no_encoder", "no_encoder,elmo"]
    elif path.stem == "own":
      kinds = recipes.NAMES
    elif path.stem == "wikiqa_cassie":
      kinds = ["", "joint", "tuned", "joint,tuned"]
    elif path.stem == "asnq_tanda":
      kinds = ["", "context"]
    elif path.stem == "recommended":
      kinds = ["fast", "accurate"]
    elif path.stem == "squad_cross_vae":
      kinds = ["", "tuned", "small,wide,tuned"]
    known = [w for w in presets.ARGUMENTS if w not in losses.WORDS or path.stem == "recommended"]
    if path.stem == "trecqa_m2snet":  # over word vectors
      known = [w for w in known if w not in presets.ENCODERS]
    if path.stem.endswith("_baseline"):  # which are not trained
      known = [w for w in known if w not in baselines.TRAINING]
    replaced = {word for group in presets.ONE_OF for word in tuple(group)[1:]}
    replaced |= presets.ENCODERS.keys() - {"roberta", "large"}
    together = [word for word in known if word not in replaced]
    words = ["", *known, ",".join(together)]
    pairs = [*itertools.product(kinds[:1], words), *itertools.product(kinds[1:], ("", "sample"))]
    arguments = [",".join(filter(None, pair)) for pair in pairs]
    configs[name] = [f"{name}:{argument}" if argument else name for argument in arguments]
  return configs


FILES = every_config()
ALL = tuple(itertools.chain.from_iterable(FILES.values()))


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


def test_wide_is_a_size_of_small():
  wide, small = (flags.load(f"configs/squad_dual_gru.py:small{word}") for word in (",wide", ""))
  assert wide.model.hidden_size == wide.model.latent_size == 384 > small.model.hidden_size
  with pytest.raises(InputError, match="give `small,wide`"):
    flags.load("configs/squad_dual_gru.py:wide")


def test_a_first_stage_in_context_reads_what_cassie_reads():
  first = flags.load("configs/asnq_tanda.py:context,minilm")
  cassie = flags.load("configs/wikiqa_cassie.py:tuned,minilm")
  for key in ("template", "segments", "segments_start"):
    assert first.model[key] == cassie.model[key], key
  assert first.data.max_length == cassie.data.max_length
  assert first.encoder == cassie.encoder
  pairs = flags.load("configs/asnq_tanda.py:minilm")  # and is trained as the one of pairs is
  for section in ("loss", "epochs", "seeds", "evaluation"):
    assert first[section] == pairs[section], section
  changed = {key for key in first.optimizer if first.optimizer[key] != pairs.optimizer[key]}
  assert changed == {"lr_multipliers"}


@pytest.mark.parametrize("file", ["recommended", "own"])
@pytest.mark.parametrize(
  "words,rate,warmup",
  [
    ("accurate", 2e-5, 0.1),
    ("accurate,minilm", 1e-4, 0.5),
    ("minilm,accurate", 1e-4, 0.5),
    ("accurate,sample", 1e-4, 0.5),
    ("accurate,sample,ettin17m", 2e-5, 0.1),
    ("accurate,minilm,transfer", 2e-5, 0.1),
    ("accurate,minilm,adapt", 1e-6, 0.1),
    ("accurate,minilm,ranknet", 2e-5, 0.1),
    ("fast,minilm", 1e-4, 0.5),
    ("fast,minilm,in_batch", 2e-5, 0.1),
    ("fast,minilm,distil", 2e-5, 0.1),
    ("fast,ettin17m", 2e-5, 0.1),
    ("reranker,minilm", 2e-5, 0.1),
  ],
)
def test_a_recommended_rate_is_that_of_its_encoder(file, words, rate, warmup):
  optimizer = flags.load(f"configs/{file}.py:{words}").optimizer
  assert (optimizer.rate, optimizer.warmup) == (rate, warmup)


@pytest.mark.parametrize(
  "job,message",
  [
    ("trecqa_m2snet:minilm", "M²S-Net reads word vectors"),
    ("trecqa_m2snet:4,large", "M²S-Net reads word vectors"),
    ("wikiqa_cete:bert,large", "bert and large: name one of"),
    ("wikiqa_cete:modernbert,elmo", "elmo and modernbert: name one of"),
    ("wikiqa_baseline:glove,minilm", "minilm: glove reads vectors of its own"),
    ("trecqa_baseline:elmo,roberta,large", "roberta and large: elmo reads vectors of its own"),
    ("wikiqa_baseline:infersent,minilm", "minilm: infersent reads vectors of its own"),
    ("squad_baseline:bm25,in_batch", "in_batch: bm25 is not trained"),
    ("wikiqa_baseline:mean,minilm,adapt", "adapt: mean is not trained"),
  ],
)
def test_words_that_a_config_cannot_follow_are_refused(job, message):
  with pytest.raises(InputError, match=message):
    flags.load(job)


@pytest.mark.parametrize(
  "job,message",
  [
    ("wikiqa_triplet:smple", "'smple' is not known; did you mean 'sample'"),
    ("wikiqa_cassie:jiont,minilm", "did you mean 'joint'"),
    ("squad_cross_vae:squad_45", "did you mean 'squad_44'"),
    ("wikiqa_triplet:zebra", "use sample, minilm, .*, adapt, .*, joined by commas"),
    ("own:triplt,minilm", "name one recipe of .*; did you mean 'triplet'"),
    ("wikiqa_baseline:bm52,sample", "did you mean 'bm25'"),
    ("own:zebra", "such as own:triplet,minilm$"),
    ("own:triplet,bm25", "such as own:triplet,minilm$"),
    ("wikiqa_baseline:sample", "sbert: …_baseline.py:bm25$"),
  ],
)
def test_an_unknown_word_is_refused_with_the_nearest(job, message):
  with pytest.raises(InputError, match=message):
    flags.load(job)


@pytest.mark.parametrize(
  "job,message",
  [
    ("wikiqa_triplet:roberta,minilm", "roberta and minilm each set the encoder: name one$"),
    ("wikiqa_triplet:large,sample", "large and sample each set the encoder"),
    ("wikiqa_triplet:roberta,sample", "name one, `sample` before it"),
    ("asnq_tanda:roberta,large,xlnet", "roberta,large and xlnet each"),
    ("own:mean,xlnet,roberta", "xlnet and roberta each"),
  ],
)
def test_a_second_encoder_is_refused(job, message):
  with pytest.raises(InputError, match=message):
    flags.load(job)


@pytest.mark.parametrize(
  "job,pretrained",
  [
    ("asnq_tanda:minilm", presets.MINILM),
    ("asnq_tanda:large", "roberta-large"),
    ("wikiqa_triplet:xlnet,large", "xlnet-large-cased"),
    ("wikiqa_triplet:sample,roberta", "roberta-base"),
    ("wikiqa_triplet:minilm,sample", presets.MINILM),
    ("recommended:embedder,sample", presets.MINILM),
  ],
)
def test_one_encoder_takes_the_place_of_the_jobs_own(job, pretrained):
  assert flags.load(job).encoder.pretrained == pretrained


def test_words_are_followed_whatever_the_config_sets():
  m2snet = flags.load("trecqa_m2snet:list_softmax,adapt")
  assert (m2snet.loss.name, m2snet.batch.sampler, m2snet.batch.examples) == (
    "list_softmax",
    "grouped",
    1024,
  )
  assert m2snet.optimizer.rate == 1e-6
  cosines = ("wikiqa_cete:minilm", "squad_cross_vae:small", "recommended:fast")
  for job, scale in [*((job, 20.0) for job in cosines), ("wikiqa_crossencoder:minilm", 1.0)]:
    assert flags.load(f"{job},list_softmax").loss.scale == scale, job


def test_the_order_of_words_changes_nothing_and_no_word_replaces_another():
  for words in ("in_batch,shared", "shared,in_batch"):
    batch = flags.load(f"recommended:fast,minilm,{words}").batch
    assert (batch.sampler, batch.examples) == ("shared", 2048), words
  for job in (
    "recommended:fast,grouped,shared",
    "recommended:accurate,listnet,ranknet",
    "squad_triplet:squad_parts,squad_44",
    "wikiqa_crossencoder:adapt,transfer",
  ):
    with pytest.raises(InputError, match="replace one another: name one"):
      flags.load(job)


def test_a_value_that_json_left_without_a_type_can_be_set(tmp_path):
  (tmp_path / "config.json").write_text(flags.load("wikiqa_crossencoder:minilm").to_json())
  again = flags.load(f"rerun:{tmp_path / 'config.json'}")
  values = overrides.parse(again, ["model.token=first", "encoder.attention=plain"])
  changed = overrides.apply(overrides.apply(again, values), {"epochs": 2})
  assert (changed.model.token, changed.encoder.attention) == ("first", "plain")


def test_the_epochs_of_annealing_are_those_of_the_run(tmp_path):
  config = flags.load("squad_cross_vae:small")
  epochs = lambda changed: (changed.epochs, changed.loss.epochs)
  assert epochs(overrides.apply(config, {"epochs": 3})) == (3, 3)
  assert epochs(overrides.apply(config, {"loss.epochs": 4})) == (config.epochs, 4)
  assert epochs(config) == (config.epochs, config.epochs)  # as before
  assert epochs(overrides.apply(overrides.apply(config, {}), {"epochs": 3})) == (3, 3)
  (tmp_path / "config.json").write_text(config.to_json())
  again = flags.load(f"rerun:{tmp_path / 'config.json'}")
  assert epochs(overrides.apply(again, {"epochs": 3})) == (3, 3)
  again.epochs = 5
  assert epochs(again) == (5, 5)


def shared_keys(config):
  """The keys that every config has: all but those of a kind of model, loss or encoder."""
  own = ("model.", "loss.", "encoder.")
  return {key for key in flatten(config) if not key.startswith(own)}


@pytest.mark.parametrize("file", FILES)
def test_every_config_of_a_file_resolves_and_is_repeated(file, tmp_path):
  """The names in it are registered, and config.json gives the same config again."""
  keys = shared_keys(base.get_config())
  for name in FILES[file]:
    config = flags.load(name)
    check.check(config)
    assert shared_keys(config) == keys, name
    registry.find(registry.MODELS, config.model.name, "model.name")
    registry.build(registry.LOSSES, config.loss, "loss")
    with config.unlocked():
      config.seeds = (3, 1)
      config.optimizer.lr_multipliers = (("encoder/", 0.0), ("head", 10.0))
      if "hidden_dropout" in config.encoder:
        config.encoder.hidden_dropout = 0.25
    path = tmp_path / "config.json"
    path.write_text(config.to_json(indent=2) + "\n")
    again = flags.load(f"configs/rerun.py:{path}")
    assert again.to_json() == config.to_json() and again.is_locked, name
    old, new = (c.to_dict() for c in (config, again))
    assert new == old, name
    assert rerun.get_config(str(path)).to_dict() == old, name


@pytest.mark.parametrize("word", presets.ARGUMENTS)
def test_every_preset_word_changes_a_config(word):
  plain, changed = (
    flags.load("configs/wikiqa_triplet.py"),
    flags.load(f"configs/wikiqa_triplet.py:{word}"),
  )
  assert flatten(plain) != flatten(changed)


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
  job_config = flags.load("configs/trecqa_cete.py:no_encoder,glove")
  assert job_config.encoder.name == "static" and job_config.model.num_heads == 6
  assert job_config.model.encoder_layers == job_config.epochs == 0
  assert tuple(job_config.data.rules) == ("lowercase", "alphanumeric")
  job_config = flags.load("configs/wikiqa_cete.py:elmo,sample")
  assert job_config.encoder.name == "elmo" and job_config.data.name == "sample"
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


def structures():
  """The first config of each model, loss and sampler; slow but for the first with a new name."""
  names = {}
  for name in ALL:
    config = flags.load(str(ROOT / name))
    if not registry.has_parameters(config.model.name) or config.loss.name == "none":
      continue
    loss = {key: value for key, value in config.loss.items() if key != "epochs"}
    part = json.dumps([config.model.to_dict(), loss])
    known = {f"model {config.model.name}", f"loss {config.loss.name}"}
    names.setdefault((part, config.batch.sampler), (name, known))
  seen = set()
  for name, known in names.values():
    yield pytest.param(name, marks=pytest.mark.slow if known <= seen else ())
    seen |= known


@pytest.mark.parametrize("name", tuple(structures()))
def test_every_structure_passes_the_shapes_of_its_step(name):
  config, mesh = flags.load(name), sharding.make_mesh()
  with config.unlocked():
    if config.model.name == "feature_based":  # which knows the vectors' width, not the encoder
      config.encoder, config.model.num_heads = base.get_config().encoder, 2
    if "vectors" in config.encoder:
      config.encoder.vectors = "glove.4d.txt"
    elif config.encoder.name not in ("sentence_bert", "reranker"):  # whose head the folder tells
      config.encoder.pretrained = tiny.encoder_folder()
    config.data.max_length = min(config.data.max_length, 128)  # positions of the tiny encoder
  config = compiled.scaled(config, 2)
  traced = dict(compiled.steps(describe(config), mesh))["train"]()
  state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), traced.in_avals[0][0])
  transformer = config.encoder.name in ("auto", "sentence_bert", "reranker") and (
    config.model.name != "feature_based"
  )
  assert bool(sharding_rules.assert_rules(state, transformer=transformer)) == transformer
  new, scalars = traced.out_info
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert shapes(new) == shapes(state)
  seeds = len(config.seeds) if config.seeds_parallel else 1
  assert scalars["loss"].shape == (seeds,) and scalars["loss"].dtype == np.float32


@pytest.mark.parametrize("kind", ["cete", "crossencoder"])
def test_cetes_text_rules_of_a_year(kind):
  """Its authors' files of 2015 keep upper case, those of 2016 and 2017 do not."""
  of = lambda words: flags.load(f"configs/semeval_{kind}.py{words}").data
  assert (of("").name, of("").rules) == ("semeval2015", ("alphanumeric",))
  for year in ("semeval2016", "semeval2017"):
    section = of(f":{year},minilm")
    assert (section.name, section.rules) == (year, ("lowercase", "alphanumeric"))
  with pytest.raises(InputError, match="semeval2015 and semeval2016: name one of"):
    of(":semeval2015,semeval2016")


def test_lengths_and_splits_out_of_range_are_refused():
  with pytest.raises(InputError, match=r"evaluation.splits = \(1,\): give some of train"):
    check.check(tiny.config("triplet", evaluation__splits=(1,)))
  for length, right in ((0, True), (4, True), (3, False), (-1, False)):
    config = tiny.config("triplet", data__max_length=length)
    if right:
      check.check(config)
    else:
      with pytest.raises(InputError, match=f"data.max_length = {length}: give 4 or more, or 0"):
        check.check(config)
