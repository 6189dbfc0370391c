"""CASSIE without each of its parts, one at a time: as2jax lab sweep configs/ablations/cassie.py -o runs/parts."""

from as2jax.config import jobs

BASE = "configs/wikiqa_cassie.py"  # any other with --base, such as …_cassie.py:minilm
get_config = jobs.module("wikiqa_cassie").get_config  # named as a config, this file is its own base


def points():
  yield {"model.alignment": "mean"}  # no optimal transport
  yield {"model.graph_layers": 0}  # no graph convolutions
  yield {"loss.gamma": 0.0}  # no mutual information
  yield {"model.marginals": "uniform"}
  # Stop words and punctuation stay, so that texts have more words.
  yield {"model.stop_words": False, "model.question_words": 32, "model.sentence_words": 128}
  yield {"model.segments": "none"}
  yield {"model.template": "pair"}  # no context
