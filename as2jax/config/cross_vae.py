"""Cross-VAEs, Dual-VAEs and Dual-GRUs (Yu et al. 2020): what their configs share.

Arguments, joined by commas: `mlp`, decoders as in the paper's section 4.3 in place of section 3.2's
GRU; `small`, the same structure in sizes and epochs that two CPU cores can train; `small,wide`, the
same with encoders of 384 units; `tuned`, a recipe that learns to match, in place of the paper's, which was
not seen to begin to (see `_tuned`); `squad_44` or `squad_parts`, other parts of SQuAD; and those of as2jax/config/presets.py
(`sample` …), of which the encoder named is the BERT whose input table words begin with.
"""

from ml_collections import ConfigDict

from as2jax.config import presets
from as2jax.runtime.errors import InputError

MARKS = ("[CLS]", "[SEP]")
# Of the word vectors, to a variance near 1: GRUs tell texts apart from the first step on.
SCALE = 16.0


def apply(config: ConfigDict, crossing: str, argument: str | None) -> ConfigDict:
  """Turns `config` into that of a model with this `crossing`; `argument` holds its words.

  Raises:
    InputError: an unknown word, or `wide` without `small`.

  """
  words = (argument or "").split(",")
  if "wide" in words and "small" not in words:
    raise InputError("`wide` widens the encoders of `small`: give `small,wide`, or neither")
  config.encoder = word_table()
  config.model = ConfigDict(
    {
      "name": "cross_vae",
      "crossing": crossing,  # cross | dual | none
      "decoder": "mlp" if "mlp" in words else "gru",
      "hidden_size": 768,  # paper: 768
      "decoder_size": 768,  # paper: 768
      "hops": 4,
      "attention_size": 350,  # Lin et al.: 350 units
      "latent_size": 512,  # paper: 512
      "question_length": 32,
      "answer_length": 64,
      "word_dropout": 0.0,
      "tied": True,
      # The paper compares samples (eq. 3), of which 3 % is signal at the start, and says nothing of how
      # both encoders start: drawn apart they rank at chance, equal ones by shared words.
      "match_on": "mean",  # mean | sample
      "answer_start": "equal",  # equal | apart
      "log_variance_start": 0.0,
      "match_scale": 10.0,
      "match_bias": -5.0,
      "softmax_chunk": 512,
      "unroll": 1,
      "precision": "highest",  # default | high | highest
    }
  )
  config.loss = _loss(config)
  config.epochs = 100  # paper: 100
  config.patience = 100
  config.optimizer.update({"rate": 1e-5, "clip_norm": 0.0})  # paper: Adam, 1e-5
  config.data.max_length = 64
  config.batch.update(
    {
      "examples": 128,
      "packed": False,
      "num_row_buckets": 1,
      "row_lengths": (64,),
      "predict_rows": 128,
      "rows": 256,
    }
  )
  if "small" in words:
    _small(config)
  if "tuned" in words:
    _tuned(config)
  if "wide" in words:
    _wide(config)
  return presets.apply_to_pool(config, argument, ("mlp", "small", "tuned", "wide"))


def word_table() -> ConfigDict:
  """Words whose vectors begin with those of a BERT."""
  return ConfigDict(
    {
      "name": "words",
      "pretrained": "bert-base-uncased",  # paper: BERT token embeddings, 768
      # Decoders generate the words of the training text. `data` (paper: each word has its vector,
      # or the mean of its pieces'): words of other splits are read, too; `train`: they are unknown.
      "vocabulary": "data",  # data | train
      "size": 0,  # the most frequent so many words are generated, the rest as above; 0: all
      "scale": 1.0,  # of the BERT's vectors, at the start
      "marks": MARKS,  # entries of the BERT before and after each text
      "hidden_dropout": 0.0,
    }
  )


def _loss(config: ConfigDict) -> ConfigDict:
  """The loss with the paper's weights and schedule; its epochs are those of the run."""
  return ConfigDict(
    {
      "name": "cross_vae",
      "alpha": 1.0,
      "beta": 1.0,
      "gamma": 1.0,
      "epochs": config.get_oneway_ref("epochs"),  # paper: β rises by 2/epochs an epoch up to 1
      "negatives": "in_batch",  # in_batch | sampled:k
      "redundancy": 0.0,
      "matching": "bce",  # paper: bce; or softmax
      "reconstruction": "sum",  # paper: sum; or mean over words
      "kl_schedule": "linear",  # paper: linear; or delayed, cyclical
      "free_bits": 0.0,
    }
  )


def _small(config: ConfigDict) -> None:
  """A sixth of the paper's width, a hundred times its learning rate and an eighth of its epochs.

  In the 44 articles, 2 % of the questions are longer than 20 words and 27 % of the answers than 40.
  """
  config.encoder.scale = SCALE
  config.encoder.size = 6000  # words generated: 92 % of the training text; all others are read
  config.model.update(
    {
      "hidden_size": 128,
      "decoder_size": 128,
      "attention_size": 128,
      "latent_size": 128,
      "question_length": 20,
      "answer_length": 40,
      "tied": False,
      "match_bias": 0.0,
    }
  )
  # The paper gives no weights. The reconstruction of a text is about 250 nats and its matching 0.7:
  # with equal weights, matching does not begin to be learnt in so short a training.
  config.loss.alpha = config.loss.beta = 0.01
  config.epochs, config.patience = 12, 12
  config.optimizer.rate = 1e-3
  config.data.max_length = 40
  config.batch.row_lengths = (40,)


def _tuned(config: ConfigDict) -> None:
  """Matching by a softmax over the batch at a lower rate, in few epochs.

  The word vectors are scaled, without which the steps are large beside what GRUs make of them. A text's
  reconstruction is the mean over its words: at the paper's sizes their sum takes from the matching.
  """
  config.encoder.scale = SCALE
  config.model.update({"match_scale": 20.0, "match_bias": 0.0})
  config.loss.update({"matching": "softmax", "reconstruction": "mean", "alpha": 0.01, "beta": 0.01})
  config.optimizer.rate = 3e-4
  config.epochs = config.patience = 4


def _wide(config: ConfigDict) -> None:
  """Encoders and latent vectors as wide as MiniLM's word table, and dropout on its vectors.

  Narrower ones lose what the table knows: two equal random encoders of 128 units rank with .447 MRR
  (dev of `squad_parts`), of 384 units with .554.
  """
  config.model.hidden_size = config.model.latent_size = 384
  config.encoder.hidden_dropout = 0.2
