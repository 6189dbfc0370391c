"""Published MPNet weights: config keys and tensor names; the rest is BERT's (`bert_weights`)."""

import re
from collections.abc import Mapping
from typing import Any

from as2jax.encoders.checkpoints import bert_weights

PREFIX = "mpnet."  # in front of every name in checkpoints of a model with a head
NAMES = {
  "relative_bias": "encoder.relative_attention_bias.weight",
  **{
    ours: theirs.replace("attention.output.LayerNorm", "attention.LayerNorm")
    for ours, theirs in bert_weights.NAMES.items()
    if ours != "embeddings/type" and "/attention/" not in ours
  },
}
for _ours, _theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
  for _leaf, _tensor in (("kernel", "weight"), ("bias", "bias")):
    NAMES[f"layers/attention/{_ours}/{_leaf}"] = (
      f"encoder.layer.{{}}.attention.attn.{_theirs}.{_tensor}"
    )
# The pooler that transformers adds was never trained.
IGNORED = re.compile(
  r"embeddings\.position_ids|pooler\.dense\.(weight|bias)|(classifier|lm_head)\..+"
)


def fields(config: Mapping[str, Any]) -> dict[str, Any]:
  """`MPNetEncoder` fields that a `config.json` states.

  Errors: `ValueError` for a missing key, or a variant that is not implemented.
  """
  bert_fields = bert_weights.fields(config)
  buckets = config.get("relative_attention_num_buckets", 32)
  if type(buckets) is not int or not 4 <= buckets <= 1 << 12:
    raise ValueError(f"relative_attention_num_buckets is {buckets!r:.80}; expected 4 to 4,096")
  return {**bert_fields, "type_vocab_size": 0, "position_offset": 2, "relative_buckets": buckets}


ours, theirs = bert_weights.ours, bert_weights.theirs
