"""The config files: all resolve and fit the code, and no key is there for nothing."""

import dataclasses
import json
import pathlib

import jax
import numpy as np
import pytest
import tiny
import tiny_cassie
from jax.sharding import AbstractMesh, AxisType, PartitionSpec
from ml_collections import ConfigDict

from as2jax import main
from as2jax.commands import train
from as2jax.config import base, check, jobs, overrides, recipes, words
from as2jax.config.overrides import LATER, differences, flatten
from as2jax.inference import modes
from as2jax.runtime import registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.training import optimizers
from as2jax.training import state as states

ROOT = pathlib.Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("in_the_repository")
# Words of a file's own, each alone and on the sample; the first kind also with every other word.
KINDS = {
  "baseline": recipes.BASELINES,
  "cete": ("", *recipes.CETE_VECTORS, "no_encoder", "no_encoder,elmo"),
  "own": recipes.NAMES,
  "wikiqa_cassie": ("", "joint", "tuned", "joint,tuned"),
  "asnq_tanda": ("", "context"),
  "recommended": ("fast", "accurate"),
  "squad_cross_vae": ("", "tuned", "mlp", "small,wide,tuned"),
  "trecqa_m2snet": ("4", "euc", "shallow,2"),
}
FILES = sorted(
  str(path.relative_to(ROOT))
  for path in [*(ROOT / "configs").glob("*.py"), *(ROOT / "configs/ablations").glob("*.py")]
  if path.stem != "__init__"
)
# Configs of every trained model, loss and sampler.
STRUCTURES = """wikiqa_cassie asnq_tanda asnq_tanda:context own:fast own:embedder own:reranker
  own:triplet own:siamese recommended:fast,ranknet
  recommended:fast,in_batch recommended:fast,distil,shared semeval_cete
  squad_cross_vae trecqa_m2snet wikiqa_cassie:joint,tuned squad_dual_gru:grouped squad_dual_vae semeval_cete:glove
  squad_cross_vae:small,wide,tuned wikiqa_triplet:shared
  trecqa_m2snet:grouped""".split()


def every_argument(file):
  """The arguments of a config file: see `KINDS`."""
  stem = pathlib.Path(file).stem
  kinds = KINDS.get(stem) or KINDS.get(stem.rpartition("_")[2], ("",))
  known = [word for word in words.WORDS if word not in words.LOSSES or stem == "recommended"]
  if not stem.endswith("crossencoder"):
    known = [word for word in known if word not in ("pooled", "position")]
  if stem == "trecqa_m2snet":  # over word vectors
    known = [word for word in known if word not in words.ENCODERS]
  if kinds == recipes.BASELINES:
    known = [word for word in known if word not in recipes.TRAINING]
  arguments = [f"{kinds[0]},{word}".strip(",") for word in known]
  return [*arguments, *kinds, *(f"{kind},sample".strip(",") for kind in kinds)]


@pytest.mark.parametrize("file", FILES)
def test_every_config_of_a_file_resolves_and_is_repeated(file, tmp_path):
  """The names in it are registered, and config.json gives the same config again."""
  own = ("model.", "loss.", "encoder.")
  shared = lambda config: {key for key in flatten(config) if not key.startswith(own)}
  for argument in every_argument(file):
    config = jobs.load(f"{file}:{argument}" if argument else file)
    check.check(config)
    assert shared(config) == shared(base.get_config()), argument
    registry.build(registry.LOSSES, config.loss, "loss")
    with config.unlocked():
      config.seeds = (3, 1)
      config.optimizer.lr_multipliers = (("encoder/", 0.0), ("head", 10.0))
    path = tmp_path / "config.json"
    path.write_text(config.to_json(indent=2) + "\n")
    again = jobs.load(f"rerun:{path}")
    assert again.to_dict() == config.to_dict() and again.is_locked, argument


def test_a_run_brings_no_key_of_the_machine(tmp_path):
  default = flatten(base.get_config())
  stored = json.loads(jobs.load("wikiqa_triplet:minilm").to_json())
  for key in base.MACHINE:
    section, _, name = key.rpartition(".")
    (stored[section] if section else stored)[name] = "/of/a/stranger"
  stored["epochs"] = stored["data"]["ranking_size"] = 7
  (tmp_path / "config.json").write_text(json.dumps(stored))
  opened = flatten(jobs.of_run(str(tmp_path / "config.json")))
  assert {key: opened[key] for key in base.MACHINE} == {key: default[key] for key in base.MACHINE}
  assert opened["epochs"] == opened["data.ranking_size"] == 7


@pytest.mark.parametrize(
  "job, expected",
  [
    ("squad_dual_gru:small,wide", {"model.hidden_size": 384, "model.latent_size": 384}),
    ("recommended:accurate,sample", {"optimizer.rate": 1e-4, "optimizer.warmup": 0.5}),
    ("recommended:accurate,sample,ettin17m", {"optimizer.rate": 2e-5}),
    ("recommended:accurate,minilm,adapt", {"optimizer.rate": 1e-6, "optimizer.warmup": 0.1}),
    ("recommended:fast,minilm,in_batch", {"optimizer.rate": 2e-5}),
    ("wikiqa_triplet:xlnet,large", {"encoder.pretrained": "xlnet-large-cased"}),
    ("wikiqa_triplet:sample,roberta", {"encoder.pretrained": "roberta-base"}),
    ("recommended:embedder,sample", {"encoder.pretrained": words.MINILM}),
    ("trecqa_m2snet:list_softmax,adapt", {"loss.name": "list_softmax", "optimizer.rate": 1e-6}),
    ("wikiqa_crossencoder:minilm,list_softmax", {"loss.scale": 1.0}),
    ("recommended:accurate", {"model.head": "cosine_linear", "model.pooler": False}),
    ("wikiqa_loct:minilm,position", {"model.position": True}),
    ("recommended:shared,in_batch", {"batch.sampler": "shared", "batch.examples": 2048}),
    ("trecqa_cete:no_encoder,glove", {"encoder.name": "static", "model.num_heads": 6, "epochs": 0}),
    ("wikiqa_cete:elmo,sample", {"encoder.name": "elmo", "data.name": "sample"}),
    (
      "semeval_crossencoder:semeval2017,minilm",
      {"data.name": "semeval2017", "data.rules": ["lowercase", "alphanumeric"]},
    ),
  ],
)
def test_words_are_followed(job, expected):
  config = flatten(jobs.load(job))
  assert {key: config[key] for key in expected} == expected


@pytest.mark.parametrize("job", ["own:fast", "own:accurate:grouped", "recommended:fast,minilm"])
def test_the_rate_is_that_of_the_encoder_however_it_is_set(job):
  for settings, expected in (
    ([], (1e-4, 0.5)),
    (["encoder.pretrained=/other"], (2e-5, 0.1)),
    ([f"encoder.pretrained={words.MINILM}"], (1e-4, 0.5)),
    (["optimizer.rate=3e-5", "encoder.pretrained=/other"], (3e-5, 0.1)),
  ):
    of_main, _ = main.parse([f"--config={job}", *(f"--config.{one}" for one in settings)])
    for config in (of_main, train.resolve(job, "runs/x", settings, "", "", {})[0]):
      assert (config.optimizer.rate, config.optimizer.warmup) == expected, settings


def test_a_run_that_states_no_head_is_one_of_the_first_token():
  new = flatten(jobs.load("recommended:accurate,pooled"))
  old = {key: new[key] for key in new.keys() - LATER.keys()}
  assert differences(old, new) == []
  assert len(differences(old, flatten(jobs.load("recommended:accurate")))) == 3


@pytest.mark.parametrize(
  "job, message",
  [
    ("trecqa_m2snet:4,large", "M²S-Net reads word vectors"),
    ("squad_dual_gru:wide", "give `small,wide`"),
    ("wikiqa_cassie:position", "a cross-encoder's logit, which cassie has not"),
    ("recommended:fast,pooled", "a cross-encoder's head, which biencoder has not"),
    ("wikiqa_cete:bert,large", "bert and large: name one of"),
    ("wikiqa_baseline:glove,minilm", "minilm: glove reads vectors of its own"),
    ("squad_baseline:bm25,in_batch", "in_batch: bm25 is not trained"),
    ("wikiqa_baseline:bm52,sample", "did you mean 'bm25'"),
    ("wikiqa_baseline:sample", "sbert; …_baseline.py:bm25$"),
    ("recommended:fast,accurate", "fast and accurate exclude each other"),
    ("asnq_tanda:roberta,large,xlnet", "roberta and xlnet exclude each other"),
    ("wikiqa_triplet:minilm,large", "has no larger one; it goes with bert_base, roberta, xlnet"),
  ],
)
def test_words_that_a_config_cannot_follow_are_refused(job, message):
  with pytest.raises(InputError, match=message):
    jobs.load(job)


def test_a_first_stage_in_context_reads_what_cassie_reads():
  first, cassie, pairs = map(
    jobs.load, ("asnq_tanda:context,minilm", "wikiqa_cassie:tuned,minilm", "asnq_tanda:minilm")
  )
  for key in ("template", "segments", "segments_start"):
    assert first.model[key] == cassie.model[key], key
  assert first.data.max_length == cassie.data.max_length and first.encoder == cassie.encoder
  for section in ("loss", "epochs", "seeds", "evaluation"):  # and is trained as the one of pairs is
    assert first[section] == pairs[section], section


def test_a_run_keeps_types_and_references(tmp_path):
  """A value that JSON left without a type can be set; the annealing's epochs are the run's."""
  path = tmp_path / "config.json"
  path.write_text(jobs.load("wikiqa_crossencoder:minilm").to_json())
  again = jobs.load(f"rerun:{path}")
  values = overrides.parse(again, ["model.token=first", "encoder.attention=plain"])
  changed = overrides.apply(overrides.apply(again, values), {"epochs": 2})
  assert (changed.model.token, changed.encoder.attention) == ("first", "plain")
  config = jobs.load("squad_cross_vae:small")
  path.write_text(config.to_json())
  epochs = lambda changed: (changed.epochs, changed.loss.epochs)
  for one in (config, overrides.apply(config, {}), jobs.load(f"rerun:{path}")):
    assert epochs(overrides.apply(one, {"epochs": 3})) == (3, 3)
  assert epochs(overrides.apply(config, {"loss.epochs": 4})) == (config.epochs, 4)


def test_defaults_live_in_configs_alone():
  for table in (registry.MODELS, registry.LOSSES):
    for name in table:
      for field in dataclasses.fields(registry.find(table, name, "name")):
        if field.name not in ("parent", "name"):
          absent = field.default is field.default_factory is dataclasses.MISSING
          # By keyword alone: fields that runs of earlier versions do not state.
          assert absent or field.kw_only, (name, field.name)


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

  def copy_and_resolve_references(self):
    return Recorder(self._config.copy_and_resolve_references(), self._read, self._prefix)

  def unlock(self):
    return self

  lock = unlock

  def to_json(self, **options):
    return self._config.to_json(**options)  # writes all down, which is no use of any


def test_every_key_is_read(tmp_path, monkeypatch):
  """A run and a ranking read every key of the base; one that nothing reads is found."""
  monkeypatch.setattr(check, "check", lambda config: None)
  read, questions = set(), tmp_path / "questions.tsv"
  questions.write_text("question\tcandidate\nwhat is it\tIt is this.\nwhat is it\tThat.\n")
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


P = PartitionSpec
# What each leaf of a state must be split by, said once more, by the names of layers.
MESH = AbstractMesh((2, 2, 2, 1), sharding.AXES, axis_types=(AxisType.Auto,) * 4)
READ = ("query", "key", "value", "relative", "intermediate")  # read the hidden vectors


def wanted(path: str, transformer: bool) -> tuple:
  """The axes of the last two dimensions of a leaf whose sizes are even."""
  *_, above, name = ("", *path.split("/"))
  if not transformer:
    return ()
  if path.endswith("encoder/embeddings/word"):
    return ("tensor", "fsdp")
  if "encoder/layers/" in path and name == "kernel":
    assert above in (*READ, "output"), path
    return ("fsdp", "tensor") if above in READ else ("tensor", "fsdp")
  if path.endswith("pooler/kernel"):
    return ("fsdp", None)
  return ()


def assert_rules(state, *, transformer: bool) -> int:
  """Checks every leaf, moments like their parameters; returns how many are split."""
  shapes = jax.eval_shape(lambda: state)
  actual = jax.tree_util.tree_flatten_with_path(sharding.tree_shardings(shapes, MESH))[0]
  leaves, specs = dict(jax.tree_util.tree_flatten_with_path(shapes)[0]), {}
  for path, leaf in actual:
    name = "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
    axes = wanted(name, transformer)
    assert all(size % 2 == 0 for size in leaves[path].shape[-len(axes) :] if axes), name
    lead = (None,) * (len(leaves[path].shape) - len(axes)) if axes else ()
    assert leaf.spec == P(*lead, *axes), (name, leaf.spec)
    specs[name] = leaf.spec
  parameters = {
    name.partition("/")[2]: spec for name, spec in specs.items() if name.startswith("trainable/")
  }
  moments = {name: spec for name, spec in specs.items() if "/mu/" in name or "/nu/" in name}
  for name, spec in moments.items():
    assert spec == parameters[name.partition("u/")[2]], name
  assert len(moments) in (0, 2 * len(parameters))
  return sum(spec != P() for spec in specs.values())


def test_every_leaf_of_a_state_has_its_rule():
  """XLNet under CASSIE; the test below walks the states of all configs."""
  net = tiny_cassie.model(encoder=tiny_cassie.xlnet())
  state = states.shapes(
    net,
    tiny_cassie.batch([[tiny_cassie.case(0, (2,) * 4, (1,) * 3)]]),
    seeds=(0,),
    mesh=sharding.make_mesh(),
    lr_multipliers=(),
    optimizer=optimizers.from_config(base.get_config().optimizer),
  )
  assert assert_rules(state, transformer=True) >= 3 * 7


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_passes_the_shapes_of_its_step(name):
  from as2jax.experiments import compile as compiled
  from as2jax.experiments.compile import describe

  config, mesh = jobs.load(name), sharding.make_mesh()
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
  assert bool(assert_rules(state, transformer=transformer)) == transformer
  new, scalars = traced.out_info
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert shapes(new) == shapes(state)
  seeds = len(config.seeds) if config.seeds_parallel else 1
  assert scalars["loss"].shape == (seeds,) and scalars["loss"].dtype == np.float32
