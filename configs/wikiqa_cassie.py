"""CASSIE on WikiQA (Nguyen et al. 2023, table 3), reported on clean dev and test together.

Words: `joint` (ranks the top K of another ranker together) and `tuned` (a recipe for few steps in place of
the paper's). `joint` wants a finished run that has also ranked the training questions:

python -m as2jax.main --config=rerun:RUN/config.json --config.mode=evaluate --workdir=RUN \
--config.evaluation.splits=train,dev,test
python -m as2jax.main --config=wikiqa_cassie:joint --config.data.ranking=RUN --workdir=…
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  recipes.cassie(config)
  if "joint" in words.split(argument):
    _joint(config)
  if "tuned" in words.split(argument):
    _tuned(config)
  return words.apply(config, argument, ("joint", "tuned"))


def _joint(config):
  """Re-rank the top K of the ranker in --config.data.ranking by CASSIE (section 4.2)."""
  config.model.template = "joint"
  config.data.max_length = 512
  config.batch.examples = 16  # questions, of K candidates each
  config.batch.row_lengths = (512,)


def _tuned(config):
  """Train CASSIE in few steps: what is new learns ten times as fast and reads the alignment.

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
