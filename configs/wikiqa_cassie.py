"""CASSIE on WikiQA (Nguyen et al. 2023, table 3), reported on clean dev and test together.

Arguments, joined by commas: `joint` (ranks the top K of another ranker together), `tuned` (a
recipe for few steps in place of the paper's, `presets.tuned_cassie`), and those of
as2jax/config/presets.py (`sample`, `minilm` …). `joint` wants a finished run that has also ranked the
questions that are trained on:

python -m as2jax.main --config=configs/rerun.py:RUN/config.json --config.mode=evaluate --workdir=RUN \
--config.evaluation.splits="('train', 'dev', 'test')"
python -m as2jax.main --config=configs/wikiqa_cassie.py:joint --config.data.ranking=RUN --workdir=…
"""

from as2jax.config import base, presets


def get_config(argument=None):
  words = (argument or "").split(",")
  config = base.get_config()
  config.data.name = "wikiqa"
  presets.cassie(config)
  if "joint" in words:
    presets.joint(config)
  if "tuned" in words:
    presets.tuned_cassie(config)
  return presets.apply(config, argument, ("joint", "tuned"))
