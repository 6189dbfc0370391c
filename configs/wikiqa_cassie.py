"""CASSIE on WikiQA (Nguyen et al. 2023, table 3), reported on clean dev and test together.

Words: `joint` (ranks the top K of another ranker together, whose finished run --config.data.ranking names;
it has also ranked the training questions) and `tuned` (a recipe for few steps in place of the paper's).
"""

from as2jax.config import base, recipes, words


def get_config(argument=None):
  config = base.get_config()
  config.data.name = "wikiqa"
  recipes.cassie(config)
  named = words.split(argument)
  if "joint" in named:  # re-rank the top K of the ranker in --config.data.ranking (section 4.2)
    config.model.template = "joint"
    config.data.max_length = 512
    config.batch.examples = 16  # questions, of K candidates each
    config.batch.row_lengths = (512,)
  if "tuned" in named:
    _tuned(config)
  return words.apply(config, argument, ("joint", "tuned"))


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
