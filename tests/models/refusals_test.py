"""What a model or a loss refuses, built in Python: the first value out of range, by its config key."""

import jax
import pytest
import tiny
import tiny_cassie
from flax import linen as nn

from as2jax.models import losses, ranking_losses
from as2jax.models.asbert import Siamese, Triplet
from as2jax.models.biencoder import SentenceBert
from as2jax.models.cete import FeatureBased
from as2jax.models.cross_vae_loss import CrossVAELoss
from as2jax.models.crossencoder import CrossEncoder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from configs import squad_cross_vae


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
  "model.segments = 'two'": lambda: tiny_cassie.model(segments="two"),
  "model.segments = 'ranks': .* no ranks": lambda: initialise(tiny_cassie.model(segments="ranks")),
  "model.marginals = 'idf'": lambda: tiny_cassie.model(marginals="idf"),
  r"model.head_reads = \('h', 'x'\)": lambda: tiny_cassie.model(head_reads=("h", "x")),
  "use bert, roberta or xlnet": lambda: initialise(tiny_cassie.model(encoder=nn.Dense(8))),
  "model.norm = 'none'": lambda: FeatureBased(1, 2, 0.2, "none", 1.0, "none", "float32"),
  "model.positions = 'learned'": lambda: FeatureBased(1, 2, 0.2, "learned", 1.0, "pre", "float32"),
  "model.dropout = 1.0": lambda: FeatureBased(1, 2, 1.0, "none", 1.0, "pre", "float32"),
  "model.crossing = 'zigzag'": lambda: cross_vae(crossing="zigzag"),
  "model.decoder = 'lstm'": lambda: cross_vae(decoder="lstm"),
  "loss.matching = 'other'": lambda: cross_vae_loss(matching="other"),
  "loss.negatives = 'hard'": lambda: cross_vae_loss(negatives="hard"),
  "loss.negatives = 'sampled:0'": lambda: cross_vae_loss(negatives="sampled:0"),
  "loss.selection = 'easy'": lambda: losses.TripletLoss(5.0, "easy", "sum"),
  "loss.similarity = 'l2'": lambda: ranking_losses.InBatchSoftmax(20.0, "l2"),
  "loss.temperature = 0.0": lambda: ranking_losses.Distillation(1.0, 0.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_out_of_range_is_refused(message):
  with pytest.raises(InputError, match=message):
    REFUSED[message]()


def test_a_loss_that_reads_what_a_system_does_not_give_is_refused():
  """CASSIE's node has one logit, whose softmax is 1: the cross entropy would be 0 for every batch."""
  config = tiny.config("triplet").copy_and_resolve_references().unlock()
  config.loss.name, config.model.name = "cross_entropy", "cassie"
  losses.check(tiny_cassie.LOSS, tiny_cassie.quick(), config)
  with pytest.raises(InputError, match="it reads logits, which that system does not give"):
    losses.check(losses.SoftmaxCrossEntropy(), tiny_cassie.quick(), config)
