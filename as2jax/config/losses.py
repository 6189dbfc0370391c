"""Words that put another loss in place of a config's own, with the values of its fields.

Each takes a system that gives one score a pair of question and candidate; a triplet or siamese network
becomes the bi-encoder of the same vectors. Batches become whole questions.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

COSINE_SCALE = 20.0  # 1/τ of a softmax of cosines, as in sentence-transformers
BY_COSINE = ("feature_based", "cross_vae")  # models whose score is a cosine, whatever their config
ANY = 1e9  # loss.false_negative_margin: no negative is left out


def _listwise(name: str, about: str, **fields) -> Callable[[ConfigDict], None]:
  """The word of a loss over a question's own candidates; `about` is what lists say of it."""

  def word(config: ConfigDict) -> None:
    over_pairs(config)
    config.loss = ConfigDict({"name": name, "scale": _scale(config), **fields})

  word.__doc__ = about
  return word


def in_batch(config: ConfigDict) -> None:
  """InfoNCE over all candidates of the batch; for bi-encoders."""
  over_pairs(config)
  config.loss = ConfigDict(
    {
      "name": "in_batch_softmax",
      "scale": _scale(config),
      "similarity": config.model.get("score", "cosine"),
      "symmetric": False,
      "false_negative_margin": ANY,
    }
  )


def distil(config: ConfigDict) -> None:
  """Learns the scores of --config.data.teachers (`as2jax lab distill`) in place of labels."""
  over_pairs(config)
  config.loss = ConfigDict(
    {"name": "distillation", "scale": config.loss.get("scale", _scale(config)), "temperature": 1.0}
  )
  config.data.train_filter = "all"  # labels are not read


def over_pairs(config: ConfigDict) -> None:
  """Whole questions a batch, one example a pair of question and candidate."""
  model = config.model
  if model.name in ("triplet", "siamese"):  # their losses', not their vectors', examples
    config.model = ConfigDict({"name": "biencoder", "pooling": model.pooling, "score": model.score})
  grouped(config)


def grouped(config: ConfigDict) -> None:
  """Batches of whole questions: each sentence is encoded once (labelled in the results)."""
  config.batch.sampler = "grouped"
  config.batch.examples = 1024


def shared(config: ConfigDict) -> None:
  """Whole questions, those with the same candidates together: their sentences are encoded once."""
  config.batch.sampler = "shared"
  config.batch.examples = 2048


SAMPLERS: dict[str, Callable[[ConfigDict], None]] = {"grouped": grouped, "shared": shared}


def _scale(config: ConfigDict) -> float:
  cosine = config.model.get("score") == "cosine" or config.model.name in BY_COSINE
  return COSINE_SCALE if cosine else 1.0


WORDS: dict[str, Callable[[ConfigDict], None]] = {
  "list_softmax": _listwise(
    "list_softmax", "Softmax of each positive against the negatives of its question."
  ),
  "listnet": _listwise(
    "listnet", "Softmax of a question's scores against that of its labels (ListNet)."
  ),
  "ranknet": _listwise(
    "ranknet", "Logistic loss of pairs of candidates of a question (RankNet).", weighting="none"
  ),
  "lambdaloss": _listwise(
    "ranknet", "RankNet, each pair weighted by its change of NDCG (LambdaLoss).", weighting="ndcg"
  ),
  "focal": _listwise("focal", "Cross entropy that weighs hard pairs more (focal loss).", gamma=2.0),
  "in_batch": in_batch,
  "margin_mse": _listwise(
    "margin_mse", "Learns the margins of --config.data.teachers by squared error."
  ),
  "distil": distil,
}
