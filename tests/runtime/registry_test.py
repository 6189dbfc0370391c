"""Names of classes, those of the tables and `module:Class`; ranges beside fields.

What is out of range is refused before anything is read, and where a model or a loss is built in Python.
"""

import contextlib
import copy
import dataclasses
import sys

import jax
import pytest
import tiny
import tiny_cassie
from flax import linen as nn

from as2jax.config import check, jobs
from as2jax.models import losses, ranking_losses
from as2jax.models.asbert import Siamese, Triplet
from as2jax.models.biencoder import BiEncoder, SentenceBert
from as2jax.models.cete import FeatureBased
from as2jax.models.cross_vae import CrossVAELoss
from as2jax.models.crossencoder import CrossEncoder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import Above, AtLeast, Each, OneOf, Share
from configs import squad_cross_vae

SOURCE = """
import dataclasses
from as2jax.models.losses import Loss
from as2jax.models.system import System

class Mine(System):
  width: int

@dataclasses.dataclass(frozen=True)
class MyLoss(Loss):
  weight: float

number = 3
"""


MODULES = ("own_classes", "own_folder.inner", "own_broken", "no_such_module", "own_classes.py")
CLASSES = ("Mine", "MyLoss", "number")


@pytest.fixture
def modules(tmp_path, monkeypatch):
  (tmp_path / "own_classes.py").write_text(SOURCE)
  (tmp_path / "own_broken.py").write_text("import a_module_that_nobody_has\n")
  (tmp_path / "own_folder").mkdir()
  (tmp_path / "own_folder" / "inner.py").write_text(SOURCE)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(
    registry, "_allowed", {f"{module}:{name}" for module in MODULES for name in CLASSES}
  )


@pytest.mark.parametrize("module", ["own_classes", "own_folder.inner"])
def test_a_class_of_the_users_is_announced(module, modules, tmp_path, caplog):
  sys.modules.pop(module, None)
  system = registry.build(registry.MODELS, {"name": f"{module}:Mine", "width": 3}, "model")
  assert type(system).__name__ == "Mine" and system.width == 3
  file = tmp_path / f"{module.replace('.', '/')}.py"
  (line,) = caplog.messages
  assert line == f"model.name = '{module}:Mine': running code of the module {module} ({file})"
  loss = registry.build(registry.LOSSES, {"name": f"{module}:MyLoss", "weight": 0.5}, "loss")
  assert loss.weight == 0.5
  with pytest.raises(InputError, match="model.zebra is not a field of Mine; its .*width"):
    registry.build(registry.MODELS, {"name": f"{module}:Mine", "zebra": 3}, "model")
  with pytest.raises(InputError, match=r"MyLoss wants values for \['weight'"):
    registry.build(registry.LOSSES, {"name": f"{module}:MyLoss"}, "loss")


def test_a_name_of_the_table():
  assert registry.find(registry.MODELS, "biencoder", "model.name") is BiEncoder
  for table in (registry.MODELS, registry.LOSSES, registry.ENCODERS):
    for name in table:
      assert issubclass(registry.find(table, name, "x.name"), registry.resolve(table.base))


@pytest.mark.parametrize(
  "name, message",
  [
    ("zebra", "model.name = 'zebra' is not known; use one of .*triplet.*as module:Class"),
    ("no_such_module:Mine", "there is no module 'no_such_module'; .*PYTHONPATH"),
    ("own_classes:MyLoss", "is no System: derive the class from as2jax.models.system.System"),
    ("own_classes:number", "is no System"),
    ("own_classes:Another", "is code of the module 'own_classes', .* not run: add allow_code=True"),
    (".own_classes:Mine", "write it as module:Class"),
    ("own_classes.py:Mine", "there is no module 'own_classes.py'"),
  ],
)
def test_a_name_that_is_wrong(name, message, modules):
  with pytest.raises(InputError, match=message):
    registry.find(registry.MODELS, name, "model.name")


def test_an_error_inside_of_the_users_module_is_shown_as_it_is(modules):
  with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
    registry.find(registry.MODELS, "own_broken:Mine", "model.name")


@pytest.mark.parametrize(
  "known, right, wrong, message",
  [
    (OneOf(("a", "b")), "b", "c", "use one of a, b"),
    (AtLeast(1), 1, 0, "give 1 or more"),
    (AtLeast(0), 0.5, float("inf"), "give 0 or more"),
    (AtLeast(0), 0, float("nan"), "give 0 or more"),
    (Share(), 0.0, 1.0, "give a number from 0 to below 1"),
    (Share(), 0.99, -0.1, "give a number from 0 to below 1"),
    (Above(0), 1e-9, 0.0, "give a number above 0"),
    (Each(AtLeast(1)), (1, 2), (1, None), "for each: give 1 or more"),
    (Each(OneOf("ab")), ("b", "a"), (), "give one value or more"),
  ],
)
def test_ranges(known, right, wrong, message):
  assert known.problem(right) == "" and known.problem(wrong) == message


# A config of each model that has fields with ranges, and values of which a range refuses some.
JOBS = """wikiqa_triplet wikiqa_siamese wikiqa_crossencoder wikiqa_loct wikiqa_cassie wikiqa_cete
  trecqa_m2snet squad_cross_vae wikiqa_triplet:ranknet wikiqa_triplet:in_batch""".split()
WRONG = ("zebra", -1, 0, 1.5, -0.5, (), (32, 0), ("h", "zebra"))


def refused_by(bound):
  """The first wrong value of a kind that the range compares; None where it takes all of them."""
  for value in WRONG:
    with contextlib.suppress(TypeError):
      if bound.problem(value):
        return value
  raise AssertionError(f"{bound} refuses nothing")


@pytest.mark.parametrize("job", JOBS)
def test_a_config_out_of_range_is_refused_before_anything_is_read(job):
  """Each field of model, loss and encoder that has a range."""
  config, count = jobs.load(job), 0
  check.check(config)
  tables = {"model": registry.MODELS, "loss": registry.LOSSES, "encoder": registry.ENCODERS}
  for section, table in tables.items():
    name = config[section].name
    for field in dataclasses.fields(registry.find(table, "bert" if name == "auto" else name, "")):
      bounds = getattr(field.type, "__metadata__", ())
      if not bounds or field.name not in config[section]:
        continue
      wrong, count = copy.deepcopy(config).unlock(), count + 1
      value = refused_by(bounds[0])
      with wrong[section].ignore_type():
        wrong[section][field.name] = value
      with pytest.raises(InputError) as error:
        check.check(wrong)
      assert str(error.value).startswith(f"{section}.{field.name} = ")
      assert str(error.value).endswith(bounds[0].problem(value))
  assert count > 4


def test_a_class_of_the_users_is_checked_too():
  config = tiny.config("triplet", encoder__name="as2jax.encoders.bert:BertEncoder")
  with config.unlocked():
    config.encoder.unroll = -1
  with pytest.raises(InputError, match="encoder.unroll = -1: give 0 or more"):
    check.check(config)


def cross_vae(**changes):
  section = squad_cross_vae.get_config().model.to_dict() | changes
  extra = {"encoder": nn.Dense(3), "marks": (1, 2), "output_size": 5}
  return registry.build(registry.MODELS, section, "model", **extra)


def cross_vae_loss(**changes):
  section = squad_cross_vae.get_config().loss.to_dict() | {"epochs": 1} | changes
  return CrossVAELoss(**{key: value for key, value in section.items() if key != "name"})


def sentence_bert(**changes):
  fields = {"pooling": ("mean",), "score": "cosine", "dense": (), "normalize": True}
  return SentenceBert(encoder=nn.Dense(3), **(fields | changes))


def initialise(model):
  """Check what only the batch or several fields together tell, without a trace of the rest."""
  batch = tiny_cassie.batch([[tiny_cassie.case(0)]])
  return jax.eval_shape(lambda: model.init(jax.random.key(0), batch, train=False))


REFUSED = {
  "model.pooling = 'median'": lambda: Triplet(nn.Dense(3), "median", "cosine"),
  "model.score = 'head'": lambda: Triplet(nn.Dense(3), "mean", "head"),
  "model.combine = 'sum'": lambda: Siamese(nn.Dense(3), "mean", "cosine", "sum"),
  "model.head = 'sum'": lambda: CrossEncoder(nn.Dense(3), "cls", False, 0.1, head="sum"),
  "'cosine'.* model.pooler to F": lambda: CrossEncoder(nn.Dense(3), "cls", True, 0, head="cosine"),
  r"model.pooling = \('mean', 'sum'\)": lambda: sentence_bert(pooling=("mean", "sum")),
  "model.score = 'manhattan'": lambda: sentence_bert(score="manhattan"),
  "model.template = 'single'": lambda: tiny_cassie.model(template="single"),
  "model.segments = 'ranks': .* no ranks": lambda: initialise(tiny_cassie.model(segments="ranks")),
  r"model.head_reads = \('h', 'x'\)": lambda: tiny_cassie.model(head_reads=("h", "x")),
  "use bert, roberta or xlnet": lambda: initialise(tiny_cassie.model(encoder=nn.Dense(8))),
  "model.norm = 'none'": lambda: FeatureBased(1, 2, 0.2, "none", 1.0, "none", "float32"),
  "model.crossing = 'zigzag'": lambda: cross_vae(crossing="zigzag"),
  "loss.negatives = 'sampled:0'": lambda: cross_vae_loss(negatives="sampled:0"),
  "loss.selection = 'easy'": lambda: losses.TripletLoss(5.0, "easy", "sum"),
  "loss.similarity = 'l2'": lambda: ranking_losses.InBatchSoftmax(20.0, "l2"),
  "loss.temperature = 0.0": lambda: ranking_losses.Distillation(1.0, 0.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_out_of_range_is_refused(message):
  with pytest.raises(InputError, match=message):
    REFUSED[message]()
