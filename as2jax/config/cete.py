"""CETE's feature-based rankers (Laskar et al. 2020, section 3.1): what `*_cete.py` configs share.

Arguments, joined by commas: one of `bert`, `bert_large`, `elmo`, `glove`, `minilm` … (whose vectors
are read; `bert` where none is named); `no_encoder`, the ablation of figure 4; and `sample` …, as
everywhere. Files of vectors and weights that no package has are named by --config.encoder.vectors
and --config.encoder.pretrained.
"""

from ml_collections import ConfigDict

from as2jax.config import presets
from as2jax.runtime.errors import InputError

VECTORS = ("bert", "bert_large", "elmo", "glove")
OTHERS = tuple(presets.ENCODERS)


def apply(config: ConfigDict, argument: str | None) -> ConfigDict:
  """Turns `config` into that of the feature-based ranker that the words of `argument` describe.

  Raises:
    InputError: two encoders, or an unknown word.

  """
  words = (argument or "").split(",")
  kinds = [w for w in words if w in VECTORS]
  clash = kinds + [w for w in words if w in OTHERS]
  if kinds and len(clash) > 1:
    raise InputError(f"{' and '.join(clash)}: name one of {', '.join(VECTORS + OTHERS)}")
  feature_based(config)
  presets.apply(config, argument, (*VECTORS, "no_encoder"))
  if kinds:
    {"bert": bert, "bert_large": bert_large, "elmo": presets.elmo, "glove": glove}[kinds[0]](config)
  if "no_encoder" in words:
    no_encoder(config)
  return config


def feature_based(config: ConfigDict) -> None:
  """The new encoder over frozen vectors (sections 3.1 and 4.3)."""
  config.model = ConfigDict(
    {
      "name": "feature_based",
      "encoder_layers": 1,  # paper: 1
      "num_heads": 8,  # paper: 8
      "dropout": 0.2,  # paper: 0.2
      "positions": "none",  # none | sinusoids, which the authors' code adds to GloVe alone
      "feature_scale": 1.0,  # of the vectors, before positions are added
      "norm": "pre",  # pre | post; the paper does not say
      "storage": "float32",  # of the vectors on disk: float32 | float16
    }
  )
  config.loss = ConfigDict({"name": "squared_error"})
  config.epochs = 20  # the paper gives none; patience ends the run
  config.patience = 5
  config.data.max_length = 128
  config.batch.examples = 32  # the paper gives none
  config.optimizer.rate = 5e-5  # paper: 5e-5
  config.optimizer.clip_norm = 0.0


def bert(config: ConfigDict) -> None:
  """BERT-base, 768 wide."""
  config.encoder.pretrained = "bert-base-uncased"


def bert_large(config: ConfigDict) -> None:
  """BERT-large, 1,024 wide."""
  config.encoder.pretrained = "bert-large-uncased"


def glove(config: ConfigDict) -> None:
  """The baseline: GloVe, 300 wide, which 8 heads do not divide."""
  presets.static(config, "glove/glove.6B.300d.txt", lower=True)
  config.model.num_heads = 6
  config.model.positions = "sinusoids"
  config.model.feature_scale = 300**0.5  # as in the authors' code


def no_encoder(config: ConfigDict) -> None:
  """The mean of the vectors alone, untrained (figure 4)."""
  config.model.encoder_layers = 0
  config.epochs = 0
