"""Recipes: one function a paper's system, with the paper's values; and what we recommend.

Each sets `model`, `loss` and how it is trained in a base config. What a paper leaves open is a key
whose comment says so.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from ml_collections import ConfigDict, FieldReference
from ml_collections.config_dict import placeholder

from as2jax.config import base, words
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

SENTENCE_BERT = "sentence-transformers/bert-base-nli-mean-tokens"
GLOVE = "glove/glove.6B.300d.txt"
HELD_OUT = 0.1  # of the training questions, where no dev file selects the best epoch


def triplet(config: ConfigDict) -> None:
  """Set ASBERT's triplet network (Shonibare 2021, section 3.2, 4.3)."""
  config.model = words.named("triplet", pooling="mean", score="euclidean")
  config.loss = words.named("triplet", margin=5.0, selection="all", reduction="sum")
  _asbert(config)


def siamese(config: ConfigDict) -> None:
  """Set ASBERT's siamese network (Shonibare 2021, section 3.1, 4.3)."""
  config.model = words.named("siamese", pooling="mean", score="euclidean", combine="concat_diff")
  config.loss = words.named("bce")
  _asbert(config)


def _asbert(config: ConfigDict) -> None:
  config.epochs = 40  # the paper gives none; patience ends the run
  config.patience = 20  # paper: 20 epochs
  config.data.update({"train_filter": "answerable", "max_length": 128})  # paper: 128
  config.batch.examples = 32  # paper: 32
  # paper: 2e-5; 10 % of the data; 1e-8; 1
  config.optimizer.update({"rate": 2e-5, "warmup": 0.1, "eps": 1e-8, "clip_norm": 1.0})


def crossencoder(config: ConfigDict) -> None:
  """Set a fine-tuned cross-encoder (CETE section 3.2)."""
  config.model = words.named(
    "crossencoder",
    token=placeholder(str),  # None: the encoder's own
    dropout=0.1,
    position=False,  # whether candidates' places in their document count
    **words.FIRST_TOKEN,  # paper: cls; or head mean, cosine, cosine_linear; token_types zero
  )
  config.loss = words.named("cross_entropy")
  config.epochs = 3
  config.data.max_length = 128  # paper: 128
  config.batch.examples = 16  # paper: 8, 16 or 24
  config.optimizer.update({"rate": 2e-5, "schedule": "linear", "warmup": 0.1})  # paper: or 1e-5


def cassie(config: ConfigDict) -> None:
  """Set CASSIE (Nguyen et al. 2023, section 3), including what the paper leaves open."""
  config.model = words.named(
    "cassie",
    template="context",  # context | pair (no context) | joint (the top K of another ranker)
    # four | three (one for both context sentences) | none; of joint also ranks (one for each rank)
    segments="four",
    segments_start="normal",  # normal | zero
    alignment="transport",  # transport | mean (no alignment)
    marginals="frequency",  # frequency | uniform
    stop_words=True,  # whether stop words and punctuation are left out
    epsilon=0.1,
    epsilon_relative=True,  # to the mean cost
    iterations=50,
    transport_gradient="envelope",  # envelope | unrolled
    # The largest numbers of words; further words are left out. Without stop words, no question of
    # WikiQA has more than 14 words, and 0.04 % of the sentences have more than 64.
    question_words=16,
    sentence_words=64,
    relevance="plan",  # paper: plan; or plan_over_mass, nearest
    graph_layers=2,  # paper: 2
    hidden=400,  # paper: 400
    self_term="none",  # paper: none; or residual, loop
    edges="softmax",  # paper: softmax; or sigmoid
    head_reads=("h",),  # paper: h; one or more of h, r, d, cls
    ranker_head="none",  # none | linear | pooled: adds a transferred ranker's logit
    padding_node=False,
  )
  config.loss = words.named("cassie", gamma=0.3, mi_self_pairs=True)  # paper: 0.3
  _in_context(config)


def loct(config: ConfigDict) -> None:
  """Set LOCT (Lauriola and Moschitti 2021), CASSIE's closest peer, trained as CASSIE is."""
  loct_model(config)
  _in_context(config)


def loct_model(config: ConfigDict) -> None:
  """Set LOCT's model and a cross-encoder's training."""
  crossencoder(config)
  config.model.update(
    {
      "name": "loct",
      "template": "local_context",  # local_context | context | pair (no context)
      "segments": "four",  # four | three (one for both context sentences) | none
      "segments_start": "normal",  # normal | zero
    }
  )


def _in_context(config: ConfigDict) -> None:
  """Train and report as CASSIE's paper does on WikiQA (section 4.1)."""
  words.ENCODERS["roberta"](config)  # paper: RoBERTa-base
  config.update_from_flattened_dict(
    {
      "seeds": (0, 1, 2),  # paper: three
      "epochs": 10,
      "data.train_filter": "all",  # paper: all 2,118 questions
      "data.holdout": 0.1,  # paper: a small part of the training data, as dev is reported
      "data.max_length": 256,
      "batch.examples": 64,  # paper: 64
      "batch.row_lengths": (256,),
      "optimizer.rate": 1e-5,  # paper: Adam, 1e-5
      "optimizer.schedule": "constant",
      "optimizer.warmup": 0.0,
      "evaluation.splits": ("heldout", "dev+test"),  # paper: both together
    }
  )


# The kinds of vectors that CETE's feature-based ranker reads, each by what sets its encoder.
CETE_VECTORS = ("bert", "bert_large", "elmo", "glove")


def feature_based(config: ConfigDict) -> None:
  """Set CETE's new encoder over frozen vectors (Laskar et al. 2020, section 3.1, 4.3)."""
  config.model = words.named(
    "feature_based",
    encoder_layers=1,  # paper: 1
    num_heads=8,  # paper: 8
    dropout=0.2,  # paper: 0.2
    positions="none",  # none | sinusoids, which the authors' code adds to GloVe alone
    feature_scale=1.0,  # of the vectors, before positions are added
    norm="pre",  # pre | post; the paper does not say
    storage="float32",  # of the vectors on disk: float32 | float16
  )
  config.loss = words.named("squared_error")
  config.epochs = 20  # the paper gives none; patience ends the run
  config.patience = 5
  config.data.max_length = 128
  config.batch.examples = 32  # the paper gives none
  config.optimizer.update({"rate": 5e-5, "clip_norm": 0.0})  # paper: 5e-5


def no_encoder(config: ConfigDict) -> None:
  """Rank by the mean of the vectors alone, untrained (CETE figure 4)."""
  config.model.encoder_layers = 0
  config.epochs = 0


def cete(config: ConfigDict, argument: str | None) -> ConfigDict:
  """Apply the words of CETE's feature-based jobs: one of `CETE_VECTORS`, and `no_encoder`."""
  kind = words.one_of(argument, CETE_VECTORS)
  named = words.split(argument)
  if encoders := [word for word in named if kind and word in words.ENCODERS]:
    raise InputError(f"{kind} and {' and '.join(encoders)}: name one of them")
  feature_based(config)
  words.apply(config, argument, (*CETE_VECTORS, "no_encoder"))
  if kind in ("bert", "bert_large"):
    size = kind.removeprefix("bert_").replace("bert", "base")
    config.encoder.pretrained = f"bert-{size}-uncased"
  elif kind == "elmo":
    elmo(config)
  elif kind == "glove":  # 300 wide, which 8 heads do not divide
    static(config, GLOVE, lower=True)
    # The scale is as in the authors' code.
    config.model.update({"num_heads": 6, "positions": "sinusoids", "feature_scale": 300**0.5})
  if "no_encoder" in named:
    no_encoder(config)
  return config


def cross_vae(config: ConfigDict, argument: str | None, crossing: str = "cross") -> ConfigDict:
  """Set Cross-VAEs on SQuAD (Yu et al. 2020): `crossing` is `cross`, `dual` or `none` (Dual-GRUs).

  Words: `mlp`, decoders as in the paper's section 4.3; `small`, sizes and epochs that two CPU cores can
  train; `small,wide`, the same with encoders of 384 units; `tuned`, a recipe that learns to match. An
  encoder's word names the BERT whose input table words begin with.
  """
  named = words.split(argument)
  if "wide" in named and "small" not in named:
    raise InputError("`wide` widens the encoders of `small`: give `small,wide`, or neither")
  squad(config)
  config.encoder = word_table()
  config.model = words.named(
    "cross_vae",
    crossing=crossing,  # cross | dual | none
    decoder="mlp" if "mlp" in named else "gru",
    hidden_size=768,  # paper: 768
    decoder_size=768,  # paper: 768
    latent_size=512,  # paper: 512
    hops=4,
    attention_size=350,  # Lin et al.: 350
    question_length=32,
    answer_length=64,
    tied=True,
    # The paper compares samples (eq. 3), of which 3 % is signal at the start, and says nothing of how
    # both encoders start: drawn apart they rank at chance, equal ones by shared words.
    match_on="mean",  # mean | sample
    answer_start="equal",  # equal | apart
    log_variance_start=0.0,
    match_scale=10.0,
    match_bias=-5.0,
    softmax_chunk=512,
    unroll=1,
    precision="highest",  # default | high | highest
  )
  config.loss = words.named(
    "cross_vae",
    alpha=1.0,
    beta=1.0,
    gamma=1.0,
    epochs=config.get_oneway_ref("epochs"),  # paper: β rises by 2/epochs an epoch up to 1
    negatives="in_batch",  # in_batch | sampled:k
    redundancy=0.0,
    matching="bce",  # paper: bce; or softmax
    reconstruction="sum",  # paper: sum; or mean over words
  )
  config.epochs = config.patience = 100  # paper: 100
  config.optimizer.update({"rate": 1e-5, "clip_norm": 0.0})  # paper: Adam, 1e-5
  config.data.max_length = 64
  config.batch.update({"examples": 128, "packed": False, "num_row_buckets": 1, "rows": 256})
  config.batch.update({"row_lengths": (64,), "predict_rows": 128})
  for word, recipe in (("small", _small), ("tuned", _tuned), ("wide", _wide)):
    if word in named:
      recipe(config)
  return words.apply(config, argument, ("mlp", "small", "tuned", "wide"))


dual_vae = functools.partial(cross_vae, crossing="dual")
dual_gru = functools.partial(cross_vae, crossing="none")


def _small(config: ConfigDict) -> None:
  """Take a sixth of the width, a hundred times the rate and an eighth of the epochs."""
  sizes = ("hidden_size", "decoder_size", "attention_size", "latent_size")
  config.model.update(dict.fromkeys(sizes, 128))
  config.epochs = config.patience = 12
  config.update_from_flattened_dict(
    {
      "encoder.scale": 16.0,  # word vectors of variance near 1: GRUs tell texts apart at once
      "encoder.size": 6000,  # words generated: 92 % of the training text; all others are read
      "model.question_length": 20,
      "model.answer_length": 40,
      "model.tied": False,
      "model.match_bias": 0.0,
      # The paper gives no weights; with equal ones, matching (0.7 nats beside 250) does not begin.
      "loss.alpha": 0.01,
      "loss.beta": 0.01,
      "optimizer.rate": 1e-3,
      "data.max_length": 40,
      "batch.row_lengths": (40,),
    }
  )


def _tuned(config: ConfigDict) -> None:
  """Match by a softmax over the batch, reconstruct the mean word, in few epochs."""
  config.encoder.scale = 16.0
  config.model.update({"match_scale": 20.0, "match_bias": 0.0})
  config.loss.update({"matching": "softmax", "reconstruction": "mean", "alpha": 0.01, "beta": 0.01})
  config.optimizer.rate = 3e-4
  config.epochs = config.patience = 4


def _wide(config: ConfigDict) -> None:
  """Make encoders and latent vectors as wide as MiniLM's word table, with dropout on its vectors.

  Two equal random encoders of 128 units rank with .447 MRR (dev of `squad_parts`), of 384 with .554.
  """
  config.model.hidden_size = config.model.latent_size = 384
  config.encoder.hidden_dropout = 0.2


def word_table() -> ConfigDict:
  """Return the encoder of words whose vectors begin with those of a BERT."""
  return words.named(
    "words",
    pretrained="bert-base-uncased",  # paper: BERT token embeddings, 768
    # Decoders generate the words of the training text. `data` (paper: each word has its vector, or
    # the mean of its pieces'): words of other splits are read, too; `train`: they are unknown.
    vocabulary="data",  # data | train
    size=0,  # the most frequent so many words are generated, the rest as above; 0: all
    scale=1.0,  # of the BERT's vectors, at the start
    marks=("[CLS]", "[SEP]"),  # entries of the BERT before and after each text
    hidden_dropout=0.0,
  )


def static(config: ConfigDict, vectors: str, *, lower: bool) -> None:
  """Read word vectors in place of a transformer."""
  config.encoder = words.named(
    "static",
    lower=lower,
    vectors=vectors,  # a file, also under the folder of the data; `x.zip:member` for a zip's
    vocabulary="data",  # the words of the data set; `file`: every row (to rank other texts)
    treebank=True,  # do n't, John 's, 1,000.5: as the vectors' own text was split
    unknown_words="skip",  # words without a vector: skip | zero | mean | uniform
    markers=(),  # two words put around each sentence
    hidden_dropout=0.0,
  )


def infersent(config: ConfigDict) -> None:
  """Read InferSent (Conneau et al. 2017): BiLSTM-max over GloVe."""
  static(config, "glove/glove.840B.300d.txt", lower=False)
  config.encoder.update(
    {
      "name": "recurrent",
      "cell": "lstm",
      "hidden_size": 2048,
      "unroll": 1,
      "weights": "infersent/infersent1.pkl",  # "": random
      "bidirectional": True,
      "markers": ("<s>", "</s>"),
    }
  )
  config.encoder.precision = placeholder(str)


def elmo(config: ConfigDict) -> None:
  """Read ELMo (Peters et al. 2018), the mean of its three layers."""
  config.encoder = words.named(
    "elmo",
    unroll=1,
    pretrained="elmo",  # the folder of options.json and *.hdf5, also under that of the data
    mix="uniform",  # uniform | learned | top, or the number of a layer
    treebank=True,  # do n't, John 's, 1,000.5: as its training text was split
    precision=placeholder(str),
  )


def fast(config: ConfigDict) -> None:
  """Set the recommended bi-encoder: cosine of means, softmax over a question's own candidates."""
  config.model = words.named("biencoder", pooling="mean", score="cosine")
  _recommended(config, 20.0)


def accurate(config: ConfigDict) -> None:
  """Set the recommended cross-encoder: it begins as a cosine; the same softmax, a faster new head."""
  crossencoder(config)
  config.model.update({"head": "cosine_linear", "token_types": "zero", "pooler": False})
  _recommended(config, 1.0)
  config.optimizer.lr_multipliers = (("^(head|pooler)/", 10.0),)


def embedder(config: ConfigDict) -> None:
  """Train a published bi-encoder with its pooling, layers and prompts as `fast` is."""
  _published_embedder(config)
  config.encoder.pretrained = SENTENCE_BERT
  _recommended(config, 20.0)


def _published_embedder(config: ConfigDict) -> None:
  config.model = words.named("sentence_bert", score="cosine")
  config.encoder.name = "sentence_bert"


def reranker(config: ConfigDict) -> None:
  """Train a published cross-encoder (encoder.pretrained) by the loss of `accurate`.

  Of three and more classes, model.label is the one that means "answers the question".
  """
  config.model = words.named("reranker", label=placeholder(int), dropout=0.1)
  config.encoder.name = "reranker"
  _recommended(config, 1.0)


def _recommended(config: ConfigDict, scale: float) -> None:
  """Batch whole questions, so that each is compared with all of its candidates."""
  config.loss = words.named("list_softmax", scale=scale)
  config.epochs = 3
  config.data.train_filter = "both"  # a question without a positive or a negative teaches nothing
  config.data.max_length = 128
  words.grouped(config)
  config.optimizer.update({"rate": 2e-5, "schedule": "linear", "warmup": 0.1})


RECOMMENDED = {recipe.__name__: recipe for recipe in (fast, accurate, embedder, reranker)}
SYSTEMS: dict[str, words.Recipe] = {
  **RECOMMENDED,
  **{recipe.__name__: recipe for recipe in (triplet, siamese, crossencoder, loct, cassie)},
}
LEXICAL = {
  "word_overlap": "Rank by how many words question and candidate share.",
  "idf_overlap": "Rank by the summed IDF of the words that they share.",
  "overlap_regression": "Rank by a logistic regression on M²S-Net's two overlap features.",
  "bm25": "Rank by BM25.",
  "document_order": "Rank candidates as they stand in their document.",
}
UNTRAINED = {
  "mean": "Rank by the cosine of the means of an encoder's token vectors.",
  "cls": "Rank by the cosine of the encoder's vectors of [CLS].",
  "glove": "Rank by the cosine of the means of GloVe's word vectors.",
  "fasttext": "Rank by the cosine of the means of fastText's word vectors.",
  "elmo": "Rank by the cosine of the means of ELMo's word vectors.",
  "word_table": "Rank by the cosine of the means of a BERT's embeddings of words.",
  "infersent": "Rank by the cosine of InferSent's sentence vectors.",
  "sbert": "Rank by a published model of sentence-transformers as it is.",
}
BASELINES = (*LEXICAL, *UNTRAINED)
BI_ENCODERS = ("biencoder", "sentence_bert", "triplet", "siamese")
IN_BATCH = "in_batch_softmax"
OWN_VECTORS: dict[str, words.Recipe] = {  # of the baselines that read no transformer
  "glove": functools.partial(static, vectors=GLOVE, lower=True),
  "fasttext": functools.partial(static, vectors="fasttext/crawl-300d-2M.vec", lower=False),
  "elmo": elmo,
  "infersent": infersent,
}
TRAINING = (*words.LOSSES, *words.STAGES)
NAMES = (*SYSTEMS, *BASELINES)


# The text rules that CETE's authors' files show: those of 2015 keep upper case.
CETE_SEMEVAL = {
  "semeval2015": ("alphanumeric",),
  "semeval2016": ("lowercase", "alphanumeric"),
  "semeval2017": ("lowercase", "alphanumeric"),
}


def job(
  apply: str | Callable, data: str, rules: tuple[str, ...] = (), default: str | None = None
) -> Callable[..., ConfigDict]:
  """Return the `get_config` of a job on a data set with its text rules.

  `apply` is the name of a system, whose argument has common words alone, or a function of a config and
  an argument that gives the config; `default` is the argument where none is given.
  """

  def get_config(argument: str | None = default) -> ConfigDict:
    config = base.get_config()
    config.data.name, config.data.rules = data, rules
    if not isinstance(apply, str):
      return apply(config, argument)
    SYSTEMS[apply](config)
    return words.apply(config, argument)

  return get_config


def semeval_of_cete(apply: str | Callable) -> Callable[..., ConfigDict]:
  """Return the `get_config` of a `job` on the year of SemEval that a word names, with its text rules."""

  def get_config(argument: str | None = None) -> ConfigDict:
    year = words.one_of(argument, CETE_SEMEVAL, "semeval2015")
    rest = [word for word in words.split(argument) if word not in CETE_SEMEVAL]
    return job(apply, year, CETE_SEMEVAL[year])(",".join(rest))

  return get_config


def squad(config: ConfigDict) -> None:
  """Retrieve sentences of SQuAD 1.1 from one pool (Cross-VAE, table 2)."""
  config.data.name = "squad"
  config.evaluation.task = "retrieve"
  config.select = "mrr"


def recommended(config: ConfigDict, kind: str, argument: str, own: tuple[str, ...]) -> ConfigDict:
  """Apply a recommended system and the words of an argument, with the rate that its encoder wants.

  Dev chose MiniLM's rate and warm-up for `fast` and `accurate` with their own loss, from scratch. They
  are references: another encoder, wherever it is set, has the values of other encoders.
  """
  RECOMMENDED[kind](config)
  words.apply(config, argument, own)
  if (
    kind in ("fast", "accurate")
    and config.loss.name == "list_softmax"
    and not set(words.STAGES) & set(words.split(argument))
  ):
    encoder = config.encoder.get_oneway_ref("pretrained")
    for key, of_minilm in (("rate", 1e-4), ("warmup", 0.5)):
      by_encoder = SimpleNamespace(fn=_of_encoder, args=(encoder, of_minilm))
      config.optimizer[key] = FieldReference(config.optimizer[key], float, by_encoder)
  return config


def _of_encoder(otherwise: float, encoder: str, of_minilm: float) -> float:
  return of_minilm if encoder == words.MINILM else otherwise


def baseline(config: ConfigDict, argument: str) -> ConfigDict:
  """Apply an untrained baseline (ASBERT's tables 3 and 4), one of `BASELINES`, and further words.

  InputError: no baseline or several, an unknown word, or one that the baseline cannot follow.
  """
  config.epochs = 0
  kind = _one_name(argument, BASELINES, "one of", "…_baseline.py:bm25")
  idle = TRAINING
  if kind in OWN_VECTORS:
    idle += tuple(words.ENCODERS)
  if named := [word for word in words.split(argument) if word in idle]:
    why = "is not trained" if named[0] in TRAINING else "reads vectors of its own"
    raise InputError(f"{' and '.join(named)}: {kind} {why}; leave it out")
  words.apply(config, argument, (kind,))
  pretrained = config.encoder.pretrained
  pooling = {"cls": "cls", "infersent": "max"}.get(kind, "mean")
  config.model = words.named("biencoder", pooling=pooling, score="cosine")
  if kind in LEXICAL:
    config.model = words.named(kind)
    if kind == "overlap_regression":
      config.model.overlap = "by_length"  # by_length | counts | shares
  elif kind == "sbert":  # with the pooling and layers that its folder names, cut where it says
    _published_embedder(config)
    config.data.max_length, config.batch.row_lengths = 0, (256,)
    if pretrained == "bert-base-uncased":
      config.encoder.pretrained = SENTENCE_BERT
  elif kind in OWN_VECTORS:
    OWN_VECTORS[kind](config)
  elif kind == "word_table":
    config.encoder = word_table()
    config.encoder.pretrained = pretrained
  return config


def own(argument: str) -> ConfigDict:
  """Return the config of a recipe on one's own files: `triplet,mpnet` (or `triplet:mpnet`), with words.

  Without a word for an encoder it reads MiniLM, but for recipes that read weights of their own.
  """
  config, argument = base.get_config(), argument.replace(":", ",", 1)
  name = _one_name(argument, NAMES, "one recipe of", "such as own:triplet,mpnet")
  named = words.split(argument)
  if name not in (*OWN_VECTORS, "reranker") and not {"sample", *words.ENCODERS} & set(named):
    argument += ",minilm"
  if name in RECOMMENDED:
    recommended(config, name, argument, (name,))
  elif name in SYSTEMS:
    SYSTEMS[name](config)
    words.apply(config, argument, (name,))
  else:
    baseline(config, argument)
  if config.data.name != "sample":
    config.data.name = "files"
  return config


def on_pairs(config: ConfigDict, *, negatives: bool) -> ConfigDict:
  """Return the config of training on pairs of question and right answer, with or without wrong ones.

  A bi-encoder learns by the in-batch softmax (the other answers of the batch are wrong ones), and all
  rankers are evaluated over one pool of answers. With `negatives` a config with a loss of its own
  stays.

  InputError: the system learns from wrong answers, and there are none.
  """
  model: Any = registry.find(registry.MODELS, config.model.name, "model.name")
  trains = model.has_parameters and config.epochs > 0
  loss = config.loss.name
  if loss == "distillation" or (negatives and trains and loss not in ("list_softmax", IN_BATCH)):
    return config
  config = copy.deepcopy(config).unlock()
  if trains and config.model.name in BI_ENCODERS:
    words.in_batch(config)
  elif trains and negatives:
    return config.lock()
  elif trains:
    raise InputError(
      f"the file has right answers alone, and {config.model.name} learns from wrong ones: take the "
      "recipe fast, or add columns negative, negative_1 … of wrong answers"
    )
  config.data.update({"negatives": "paragraph", "train_filter": "answerable"})
  config.evaluation.task, config.select = "retrieve", "mrr"
  return config.lock()


def own_files(config: ConfigDict, files: Mapping[str, str]) -> dict[str, Any]:
  """Return the overrides that put a user's files (path or "" by split) in place of a config's data.

  A dev file selects; without one a part of the training questions does, the config's own or a tenth.

  InputError: there is no train file, and a run of the config's model reads one.
  """
  paths = {split: path for split, path in files.items() if path}
  model: Any = registry.find(registry.MODELS, config.model.name, "model.name")
  if "train" not in paths and (model.has_parameters or model.reads_training):
    raise InputError(
      f"a run of {config.model.name} reads training questions, and of your own files there is only "
      f"{' and '.join(paths)}: give a file for `train`, too (as2jax evaluate MODEL --data=FILE needs none)"
    )
  held_out = config.data.holdout or HELD_OUT
  if "dev" in paths or "train" not in paths:  # dev selects; some rankers of words read no `train`
    held_out = 0.0
  reported = ["heldout"] * bool(held_out) + [split for split in ("dev", "test") if split in paths]
  return {
    **{f"data.{split}": path for split, path in paths.items()},
    "data.name": "asnq_files" if config.data.name == "asnq_files" else "files",
    "data.rules": (),
    "data.holdout": held_out,
    "evaluation.splits": tuple(reported),
  }


def _one_name(argument: str, known: tuple[str, ...], what: str, example: str) -> str:
  """Return the one word of an argument that is known; InputError where it is not one."""
  found = [word for word in words.split(argument) if word in known]
  if len(found) != 1:
    hint = "" if found else words.nearest(words.split(argument), known)
    raise InputError(f"name {what} {', '.join(known)}; {hint or example}")
  return found[0]
