"""Untrained baselines (ASBERT, tables 3 and 4): what the `*_baseline.py` configs share.

Arguments, joined by commas: one of `word_overlap`, `idf_overlap`,
`overlap_regression` (on M²S-Net's overlap features), `bm25`, `mean` (MEAN-BERT), `cls`
(CLS-BERT), `glove`, `fasttext`, `elmo`, `word_table` (means of their vectors; the last those that
Cross-VAEs begin with), `infersent` and `sbert` (Sentence-BERT); and `sample`, `minilm` … as everywhere, but for words of training, and for encoders
beside those that read word vectors or ELMo. Vectors and weights that no package has are named by
--config.encoder.vectors, .weights and .pretrained.
"""

from ml_collections import ConfigDict

from as2jax.config import cross_vae, losses, presets
from as2jax.runtime.errors import InputError

LEXICAL = ("word_overlap", "idf_overlap", "overlap_regression", "bm25")
ENCODERS = ("mean", "cls", "glove", "fasttext", "elmo", "word_table", "infersent", "sbert")
# The files as they are published, and whether their words are in lower case.
VECTORS = {
  "glove": ("glove/glove.6B.300d.txt", True),
  "fasttext": ("fasttext/crawl-300d-2M.vec", False),
}
OWN_ENCODER = (*VECTORS, "elmo", "infersent")  # baselines that read no transformer
TRAINING = (*losses.WORDS, "transfer", "adapt")  # words of what is trained


def apply(config: ConfigDict, argument: str) -> ConfigDict:
  """Turns `config` into that of the baseline that the words of `argument` name.

  Raises:
    InputError: no baseline or several, an unknown word, or one that the baseline cannot follow.

  """
  config.epochs = 0
  words = argument.split(",")
  kinds = [w for w in words if w in LEXICAL + ENCODERS]
  if len(kinds) != 1:
    near = "" if kinds else presets.nearest(words, LEXICAL + ENCODERS)
    hint = near or "…_baseline.py:bm25"
    raise InputError(f"name one of {', '.join(LEXICAL + ENCODERS)}: {hint}")
  kind = kinds[0]
  if trains := [w for w in words if w in TRAINING]:
    raise InputError(f"{' and '.join(trains)}: {kind} is not trained; leave it out")
  encoders = [w for w in words if w in presets.ENCODERS]
  if kind in OWN_ENCODER and encoders:
    raise InputError(f"{' and '.join(encoders)}: {kind} reads vectors of its own; leave it out")
  presets.apply(config, argument, kinds)
  if kind in LEXICAL:
    config.model = ConfigDict({"name": kind})
    if kind == "overlap_regression":
      config.model.overlap = "by_length"  # by_length | counts | shares
  elif kind == "sbert":
    config.model = ConfigDict({"name": "sentence_bert", "score": "cosine"})
    config.encoder.name = "sentence_bert"  # with the pooling and layers that its folder names
    config.data.max_length, config.batch.row_lengths = 0, (256,)  # cut where its folder says
    if config.encoder.pretrained == "bert-base-uncased":
      config.encoder.pretrained = presets.SENTENCE_BERT
  else:
    pooling = {"cls": "cls", "infersent": "max"}.get(kind, "mean")
    config.model = ConfigDict({"name": "biencoder", "pooling": pooling, "score": "cosine"})
  if kind in VECTORS:
    presets.static(config, VECTORS[kind][0], lower=VECTORS[kind][1])
  elif kind == "word_table":
    pretrained, config.encoder = config.encoder.pretrained, cross_vae.word_table()
    config.encoder.pretrained = pretrained
  elif kind in ("elmo", "infersent"):
    getattr(presets, kind)(config)
  return config
