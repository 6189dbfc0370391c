"""M²S-Net on TrecQA, TRAIN-ALL (Meng and Li 2016): a row of table 3, `euc`, `cos`, `2` or `4` (default); `shallow`.

Word vectors where GloVe is not at hand: as2jax lab vectors, then --config.encoder.vectors=FILE.
"""

from as2jax.config import base, recipes, words
from as2jax.runtime.errors import InputError

MODES = {"euc": ("euclidean", 1), "cos": ("cosine", 1), "2": ("metric", 2), "4": ("metric", 4)}


def get_config(argument="4"):
  named = words.split(argument)
  similarity, modes = MODES[words.one_of(argument, MODES, "4")]
  if wrong := [word for word in named if word in words.ENCODERS]:
    raise InputError(
      f"{wrong[0]}: M²S-Net reads word vectors; name their file by --config.encoder.vectors"
    )
  config = base.get_config()
  config.data.name = "trecqa_all"
  config.data.rules = ("ptb",)
  config.epochs = 40  # the paper gives none; patience ends the run
  if "sample" in named:
    words.sample(config)
  config.model = words.named(
    "m2snet",
    similarity=similarity,
    modes=modes,
    noise=0.01,
    question_length=33,
    candidate_length=60,
    filters=(32,) if "shallow" in named else (32, 64),  # paper: 32, then 64
    filter_size=5,  # paper: width 5
    pool_size=2,
    hidden_size=32,  # paper: 32
    dropout=0.5,  # paper: 0.5
    # counts | shares | by_length; the paper says "the simplest". AdaDelta does not move the weights
    # of unscaled features in time.
    overlap="counts",
    standardise_overlap=True,
    momentum=0.9,
    eps=1e-5,
    precision="highest",  # default | high | highest
  )
  config.loss = words.named("m2snet", weight=5e-4)  # paper: 5e-4
  recipes.static(config, "glove/glove.6B.50d.txt", lower=True)  # paper: GloVe 6B, 50 dimensions
  config.encoder.unknown_words = "uniform"  # paper: unknown words uniform in ±0.25, trained along
  config.patience = 5  # paper: 5 epochs
  config.data.max_length = config.model.candidate_length
  batch = {"examples": 64, "packed": False, "num_row_buckets": 1, "predict_rows": 128, "rows": 128}
  config.batch.update({**batch, "row_lengths": (config.data.max_length,)})
  config.optimizer.update(
    {"name": "adadelta", "rate": 1.0, "b2": 0.95, "eps": 1e-6, "clip_norm": 0.0}
  )  # paper: AdaDelta (Zeiler's constants)
  return words.apply(config, argument, (*MODES, "shallow", "sample"))
