"""All shared config keys with their defaults; a config file starts from here and sets a handful.

A key that is `None` is taken from the pretrained weights, or is not a field of the named class.

A run that is opened brings its keys of the model (what it is, and how it was trained) and of the data; those of
the machine (`MACHINE`) are never read from its folder (`jobs.of_run`).
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

# The update rule and its rates.
OPTIMIZER = {
  "name": "adam",
  "rate": 2e-5,
  "schedule": "constant",  # constant | linear
  "warmup": 0.0,  # part of the first epoch's examples
  "b1": 0.9,
  "b2": 0.999,
  "eps": 1e-8,
  "clip_norm": 1.0,  # 0: off
  "weight_decay": 0.0,
  "layer_decay": 1.0,  # factor of the rate from a layer to the one below it
  # (regular expression, factor) pairs: factors of the rate by parameter path; 0 freezes, as in
  # (("^encoder/embeddings", 0.0), ("^encoder/layers/[0-5]/", 0.0), ("^head", 10.0)).
  "lr_multipliers": (),
}
# The data set and the part of it that is used.
DATA = {
  # See `as2jax data list`; `hub:NAME`; your own, by path: `files`, or in ASNQ's form `asnq_files`.
  "name": "wikiqa",
  "train": "",
  "dev": "",
  "test": "",
  "columns": "",  # of your own files: FIELD=COLUMN,…, such as question=query,label=is_correct
  "drop": False,  # of your own files: leave out rows without text and repeated ones
  "rules": (),  # text rules in order: ptb, html, lowercase, alphanumeric, mask_numbers
  # What is put before each question and each candidate, ("query: ", "passage: "); a cross-encoder
  # has the first alone. (): as a published model's folder says (encoder.name = sentence_bert or
  # reranker), and nothing of any other encoder's; ("", ""): nothing.
  "prompts": (),
  "root": "",  # "" is $AS2JAX_DATA, then <default cache>/data
  "cache": "",  # "" is $AS2JAX_CACHE, then as2jax in $XDG_CACHE_HOME or ~/.cache; "off" none
  "download": True,  # whether the public archive may be downloaded
  # Folders of `as2jax lab mine`, whose negatives become further candidates of training questions.
  "mined": (),
  # False: training questions keep their positives alone, beside mined negatives.
  "labelled_negatives": True,
  # Sentences around candidates: given; dropped (in training, each is emptied with probability 0.3);
  # drawn (from other articles, in every split of the run).
  "neighbours": "given",
  "train_filter": "all",  # all | answerable | both: which training questions
  # Fraction of the training questions that forms the split `heldout`, the same for every run.
  # It is not trained on and selects in place of dev.
  "holdout": 0.0,
  "train_fraction": 1.0,  # of the remaining training questions, the same for every seed
  "negatives": "none",  # of training questions to a pool: none | paragraph (its other sentences)
  # Tokens of a unit, special tokens included; 0: as many as the encoder or its folder allows.
  "max_length": 128,
  # First-stage ranking: the run whose best candidates a joint model (or best passages a
  # cross-encoder over a pool) re-ranks; for a joint model also run files, with `{split}`.
  "ranking": "",
  # Of joint models: the order of the training questions, which the run above may have been trained
  # on. "": its order; `shuffled`: its best K in random order; or a run or run file such as the
  # cross-fitted scores of `as2jax lab distill`.
  "ranking_train": "",
  # Distillation: runs that have ranked the training questions, or run files with {split}; several
  # are averaged.
  "teachers": (),
  "ranking_size": 5,  # of joint models: K, how many of them
}
# Which examples form a batch, and its shapes.
BATCH = {
  "sampler": "paper",  # paper | grouped | shared
  "examples": 32,  # per batch: exactly (paper) or at most (grouped, shared)
  "rows": 24,  # per batch of whole questions
  "row_lengths": (128,),
  "packed": True,  # several units per row
  "shards": 1,  # parts of a batch; a device holds one or more
  "accumulate": 1,  # batches per step
  "num_row_buckets": 2,  # how many different numbers of rows `paper` batches may have
  "triplet_tile": 32,  # triplets of a huge question come in tiles of tile × tile
  "predict_rows": 32,
}

EVALUATION = {
  "task": "rerank",  # rerank: a question's own candidates | retrieve: one pool for all questions
  "depth": 100,  # of a pool: ranks written to run.trec, and re-ranked
  # Of a pool: also report metrics on queries whose answer is shared by at least this many.
  "min_questions_per_answer": 8,
  "ties": "expected",  # expected | trec | pessimistic
  "splits": ("dev", "test"),  # reported at the end, from the best checkpoint; also "dev+test"
  "data": "",  # in mode evaluate: other data, as NAME:SPLIT or the path of a file of your own
}
LOG = {
  "steps": 20,
  "seconds": 15.0,
  "tensorboard": True,
  "report": True,
  "gradient_norms": False,  # of each term at each step, one backward pass a term
}

FOLDERS = ("compilation_cache", "data.root", "data.cache", "data.download")
COMMAND = ("mode", "predict.input", "predict.output", "predict.ranking", "evaluation.data")
MACHINE = (*FOLDERS, *COMMAND)  # what this machine has, and what one command on it does


def get_config() -> ConfigDict:
  """Returns the base of all configs."""
  return ConfigDict(
    {
      "mode": "train",  # train | evaluate | predict
      "seeds": (0,),  # one run each; results give mean and s.d.
      "seeds_parallel": False,  # True: all seeds step together, under vmap
      "epochs": 3,
      "patience": 20,  # evaluations (one an epoch) without a better dev value
      "select": "map",  # the metric, on dev or on held-out questions, that selects the best epoch
      "warm_start": {
        "run": "",  # folder of a finished run whose best parameters this one begins with; "": none
        # all: all its parameters | encoder: its encoder's alone | matching: its encoder's and those
        # that this model has, too
        "scope": "",
        "seed": placeholder(int),  # which of its seeds; None: each takes its own
      },
      "compilation_cache": "",  # of compiled programs; "" is <data.cache>/programs, "off" none
      "data": DATA,
      # A published transformer; other encoders have their own keys (`recipes.static` and others).
      "encoder": {
        "name": "auto",  # bert | roberta | xlnet, or auto: as the weights say
        "pretrained": "bert-base-uncased",  # a folder, package:NAME/FOLDER, or a hub name
        "dtype": "float32",  # of the computation: float32 | bfloat16; parameters are float32
        "precision": placeholder(str),
        "hidden_dropout": placeholder(float),
        "attention_dropout": placeholder(float),
        # auto | plain | xla | cudnn | kernel (not XLNet's, DeBERTa's)
        "attention": placeholder(str),
        "unroll": 0,  # layers a turn of the loop over layers; 0: all of up to 12
        "remat": False,  # gradient checkpointing
      },
      "model": {"name": "biencoder"},
      "loss": {"name": "none"},
      "batch": BATCH,
      "optimizer": OPTIMIZER,
      "evaluation": EVALUATION,
      "predict": {
        "input": "",  # your file of questions with candidates (TSV, CSV, JSON-lines, Parquet)
        "output": "",  # "" is <workdir>/predictions.tsv; also .csv, .jsonl, .parquet
        "ranking": "",  # of joint models: another ranker's run file over `input`
      },
      "sharding": {"fsdp": 1, "tensor": 1},
      "checkpoint": {"steps": 200},  # besides the end of each epoch
      "log": LOG,
    }
  )
