"""What the values of a transformer's config may be, judged before anything has their size."""

import math
from collections.abc import Mapping
from typing import Any

# The largest value of each size that is read: several times that of any published encoder.
_BERT_SIZES = {
  "vocab_size": 1 << 24,
  "hidden_size": 1 << 16,
  "num_hidden_layers": 1 << 10,
  "num_attention_heads": 1 << 12,
  "intermediate_size": 1 << 18,
  "max_position_embeddings": 1 << 20,
  "type_vocab_size": 1 << 10,
}
_XLNET_SIZES = {
  "vocab_size": 1 << 24,
  "d_model": 1 << 16,
  "n_layer": 1 << 10,
  "n_head": 1 << 12,
  "d_inner": 1 << 18,
}
_MODERNBERT_SIZES = {
  **{key: value for key, value in _BERT_SIZES.items() if key != "type_vocab_size"},
  "local_attention": 1 << 20,
  "global_attn_every_n_layers": 1 << 10,
}
_SIZES = {
  "modernbert": _MODERNBERT_SIZES,
  "bert": _BERT_SIZES,
  "roberta": _BERT_SIZES,
  "mpnet": _BERT_SIZES,
  "xlnet": _XLNET_SIZES,
}
_HEADS = {  # the width that the heads divide
  "modernbert": ("hidden_size", "num_attention_heads"),
  "bert": ("hidden_size", "num_attention_heads"),
  "roberta": ("hidden_size", "num_attention_heads"),
  "mpnet": ("hidden_size", "num_attention_heads"),
  "xlnet": ("d_model", "n_head"),
}
_BERT_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_MODERNBERT_RATES = ("embedding_dropout", "mlp_dropout", "attention_dropout")
_RATES = {
  "modernbert": _MODERNBERT_RATES,
  "bert": _BERT_RATES,
  "roberta": _BERT_RATES,
  "mpnet": _BERT_RATES,
  "xlnet": ("dropout", "dropatt"),
}
_WORDS = (
  "position_embedding_type",
  "hidden_act",
  "ff_activation",
  "attn_type",
  "hidden_activation",
)


def check(kind: str, config: Mapping[str, Any]) -> None:
  """Checks those values of a config that are there.

  Args:
    kind: `bert`, `roberta`, `mpnet`, `xlnet` or `modernbert`.

  Raises:
    ValueError: one is of another type, out of its range, or does not fit another; it names the key.

  """
  for key, largest in _SIZES[kind].items():
    _integer(config, key, 1, largest)
  if kind == "xlnet":
    _integer(config, "clamp_len", -1, 1 << 20)
    if config.get("d_head") is not None:
      _integer(config, "d_head", 0, 1 << 16)  # 0 is for none
  if kind == "roberta":
    _integer(config, "pad_token_id", 0, 1 << 16)
  for key in _RATES[kind]:
    _number(config, key, lambda x: 0 <= x < 1, "a number from 0 to below 1")
  for key in ("layer_norm_eps", "norm_eps"):
    _number(config, key, lambda x: 0 <= x <= 1, "a number from 0 to 1")
  for key in _WORDS:
    if key in config and not isinstance(config[key], str):
      raise ValueError(f"{key} is {config[key]!r:.80}; expected a word")
  width, heads = _HEADS[kind]
  if width in config and heads in config and config[width] % config[heads]:
    raise ValueError(
      f"{width} {config[width]} is not a multiple of {heads} {config[heads]}, as the heads share it"
    )


def _integer(config: Mapping[str, Any], key: str, least: int, largest: int) -> None:
  value = config.get(key, least)
  if type(value) is not int or not least <= value <= largest:
    raise ValueError(f"{key} is {value!r:.80}; expected an integer from {least} to {largest:,}")


def _number(config: Mapping[str, Any], key: str, good, what: str) -> None:
  value = config.get(key, 0)
  if type(value) not in (int, float) or not math.isfinite(value) or not good(value):
    raise ValueError(f"{key} is {value!r:.80}; expected {what}")
