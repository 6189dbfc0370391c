"""The folder of a published transformer: config, vocabulary and weights, in and out.

The config is read as JSON rather than by transformers' `AutoConfig`, which puts BERT-base's value in
place of each key that is missing ({"model_type": "bert"} gets a vocab_size of 30522).
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.text import vocabulary
from as2jax.data.text.tokenizer import Tokenizer
from as2jax.encoders import family as families
from as2jax.encoders import hub, weights
from as2jax.encoders.family import Transformer
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, read_object

# Of a config, what was true of another model or of whoever wrote it.
_NOT_KEPT = frozenset(
  "_name_or_path name_or_path architectures torch_dtype dtype transformers_version id2label label2id "
  "num_labels problem_type finetuning_task task_specific_params sentence_transformers auto_map".split()
)


def read_family(folder: epath.PathLike) -> tuple[Transformer, dict[str, Any]]:
  """Reads the family and the fields of the encoder in `folder` from its config."""
  file = epath.Path(folder) / hub.CONFIG
  config = read_object(file, "get the encoder's files again")
  kind = config.get("model_type")
  family = families.find(kind) if isinstance(kind, str) else None
  if not isinstance(family, Transformer):
    known = ", ".join(families.transformers())
    raise InputError(f"{file}: model_type is {kind!r:.80}; known are {known}")
  try:
    return family, family.fields(config)
  except ValueError as error:
    raise InputError(f"{file}: {error}") from None


def published(name: str) -> tuple[Transformer, dict[str, Any]] | None:
  """Returns the family and the fields of the encoder published by `name`; None where it is not known."""
  for family in families.transformers().values():
    if name in family.published:
      return family, family.fields(family.published[name])
  return None


def check_vocabulary(tokenizer: Tokenizer, folder: epath.PathLike) -> Tokenizer:
  """Returns `tokenizer`, that of `folder`, if its ids and types have their rows in the tables.

  Ids are 0 … `vocab_size` − 1 of the config, types are below `type_vocab_size`.
  In most files an id is a line's number: where a line is lost, each word after it takes another
  word's vector, and nothing but this number tells. Fewer than the family's `padding` rows may follow where
  the largest id is declared as that of an added token (multilingual MiniLM has 35, mDeBERTa 898).
  """
  folder = epath.Path(folder)
  family, fields = read_family(folder)
  rows = fields["vocab_size"]
  ids = tokenizer.ids()
  entries, largest = len(ids), max(ids)
  words = folder / vocabulary.file_of(folder)
  padded = entries < rows < entries + family.padding
  if padded:
    padded = vocabulary.ends_as_declared(folder, tokenizer.backend, largest)
  if entries != largest + 1 or entries != rows and not padded:
    raise InputError(
      f"{words}: the vocabulary has {entries} ids, the largest {largest}, but {folder / hub.CONFIG} "
      f"says vocab_size = {rows}, so that words would take other words' vectors; has {words.name} "
      "lost or doubled a line, or is it another encoder's? Get the files of this very encoder again"
    )
  types, largest = fields.get("type_vocab_size"), tokenizer.special.largest_type
  if types and largest >= types:
    raise InputError(
      f"{words}: the tokeniser gives tokens the type {largest}, but {folder / hub.CONFIG} says "
      f"type_vocab_size = {types}; are both this encoder's? Of one that is given no types, "
      'tokenizer_config.json says "model_input_names": ["input_ids", "attention_mask"]'
    )
  return tokenizer


def load_params(folder: epath.PathLike, encoder: Any) -> dict[str, Any]:
  """Loads the `params` collection of `encoder` from a folder's weights, float32 numpy arrays."""
  tensors, source = weights.read_tensors(folder, families.of(encoder).stored_name)
  return weights.from_tensors(tensors, encoder, source)


def load_pooler(folder: epath.PathLike, family: Transformer) -> dict[str, np.ndarray] | None:
  """Loads the pooler {kernel [d, d], bias [d]} of `family`; None where there is none."""
  if not family.pooler:
    return None
  tensors, _ = weights.read_tensors(folder, family.stored_name, keep=family.pooler.values())
  if len(tensors) < len(family.pooler):
    return None
  kernel, bias = (np.asarray(tensors[family.pooler[x]], np.float32) for x in ("kernel", "bias"))
  return {"kernel": kernel.T, "bias": bias}


def load_table(folder: epath.PathLike) -> np.ndarray:
  """Loads the word embeddings [vocab_size, d] of the encoder in `folder` alone, float32."""
  family, fields = read_family(folder)
  name = family.names["embeddings/word"]
  tensors, source = weights.read_tensors(folder, family.stored_name, keep=(name,))
  wanted = (fields["vocab_size"], fields.get("embedding_size", fields["hidden_size"]))
  if name not in tensors or tensors[name].shape != wanted:
    raise InputError(
      f"{source}: the tensor {name!r} is absent, or not {list(wanted)} as the config asks for"
    )
  return np.asarray(tensors[name], np.float32)


def write_transformer(
  folder: epath.PathLike,
  tensors: Mapping[str, np.ndarray],
  *,
  base: epath.PathLike,
  encoder: Any,
  family: Transformer,
  architecture: str,
  settings: Mapping[str, Any],
) -> None:
  """Writes `config.json` and `model.safetensors` (float32) of transformers' class `architecture`.

  The config of the folder `base` is kept where `encoder` and `settings` say nothing.
  """
  stated = read_json(epath.Path(base) / hub.CONFIG)
  config = {key: value for key, value in stated.items() if key not in _NOT_KEPT}
  config |= family.config(encoder) | {"architectures": [architecture], "dtype": "float32"}
  write_json(epath.Path(folder) / hub.CONFIG, config | dict(settings))
  weights.write_tensors(tensors, folder)


def write_json(file: epath.PathLike, content: Any) -> None:
  """Writes indented JSON in UTF-8 and creates the folder where it is missing."""
  file = epath.Path(file)
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(
  folder: epath.PathLike,
  *,
  tokenizer: Tokenizer,
  family: Transformer,
  max_length: int,
  typed: bool = True,
) -> None:
  """Writes `tokenizer.json` and the settings of transformers' general class, which takes it as it is.

  Where not `typed`, the encoder is given no token types, which it takes for 0.
  (`save_pretrained` would name a class that releases before 5 do not have.)
  """
  backend, special = tokenizer.backend, tokenizer.special
  before, after = special.single_before, special.single_after
  first, last = (before[0], after[0]) if family.token == "cls" else (after[-1], after[0])
  named = {"cls": tokenizer.tokens([first[0]])[0], "sep": tokenizer.tokens([last[0]])[0]}
  for name, token in family.special.items():
    for spelling in (token, f"[{name.upper()}]", f"<{name}>"):  # multilingual MiniLM has XLM-R's
      if backend.token_to_id(spelling) is not None:
        named.setdefault(name, spelling)
  settings = {f"{name}_token": token for name, token in named.items()}
  # A tokeniser whose texts are all of type 0 may come from a base whose model is given no types.
  types = ["token_type_ids"] if typed and family.typed and any(special.types) else []
  settings |= {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": ["input_ids", *types, "attention_mask"],
    "padding_side": "left" if family.token == "cls_last" else "right",
    "clean_up_tokenization_spaces": False,
    "model_max_length": max_length,
  }
  folder = epath.Path(folder)
  (folder / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
  write_json(folder / "tokenizer_config.json", settings)
