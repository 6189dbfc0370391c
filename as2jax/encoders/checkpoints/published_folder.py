"""Folders as the original libraries write them: transformer, tokeniser, Sentence-BERT's modules.

The inverse of `as2jax.encoders.checkpoints.pretrained`, `as2jax.data.text.vocabulary` and
`as2jax.encoders.checkpoints.sentence_folder`. What is written loads in transformers and sentence-transformers
without any code of as2jax.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data.text.tokenizer import Tokenizer
from as2jax.encoders.checkpoints.families import Family
from as2jax.encoders.checkpoints.folders import config_file
from as2jax.encoders.checkpoints.sentence_folder import (
  ACTIVATIONS,
  FLAGS,
  MODULES,
  POOLINGS,
  TRANSFORMER_CONFIGS,
)
from as2jax.encoders.checkpoints.weights import WEIGHTS

# transformers' configuration key -> the encoder's field.
_BERT_KEYS = {
  "vocab_size": "vocab_size",
  "hidden_size": "hidden_size",
  "num_hidden_layers": "num_layers",
  "num_attention_heads": "num_heads",
  "intermediate_size": "intermediate_size",
  "max_position_embeddings": "max_positions",
  "type_vocab_size": "type_vocab_size",
  "layer_norm_eps": "layer_norm_eps",
  "hidden_dropout_prob": "hidden_dropout",
  "attention_probs_dropout_prob": "attention_dropout",
  "hidden_act": "activation",
}
_XLNET_KEYS = {
  "vocab_size": "vocab_size",
  "d_model": "hidden_size",
  "n_layer": "num_layers",
  "n_head": "num_heads",
  "d_inner": "intermediate_size",
  "attn_type": "attention_type",
  "clamp_len": "clamp_len",
  "layer_norm_eps": "layer_norm_eps",
  "dropout": "hidden_dropout",
  "dropatt": "attention_dropout",
  "ff_activation": "activation",
}
_MODERNBERT_KEYS = {
  "vocab_size": "vocab_size",
  "hidden_size": "hidden_size",
  "num_hidden_layers": "num_layers",
  "num_attention_heads": "num_heads",
  "intermediate_size": "intermediate_size",
  "max_position_embeddings": "max_positions",
  "local_attention": "window",
  "global_attn_every_n_layers": "global_every",
  "global_rope_theta": "global_theta",
  "local_rope_theta": "local_theta",
  "norm_eps": "layer_norm_eps",
  "embedding_dropout": "embedding_dropout",
  "mlp_dropout": "hidden_dropout",
  "attention_dropout": "attention_dropout",
  "hidden_activation": "activation",
}
# Of the base's config, what was true of another model or of whoever wrote it.
_NOT_KEPT = (
  "_name_or_path",
  "name_or_path",
  "architectures",
  "torch_dtype",
  "dtype",
  "transformers_version",
  "id2label",
  "label2id",
  "num_labels",
  "problem_type",
  "finetuning_task",
  "task_specific_params",
  "sentence_transformers",
  "auto_map",
)
_SPECIALS = {
  "bert": {"unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"},
  "modernbert": {"unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"},
  "roberta": {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
  "mpnet": {"bos": "<s>", "eos": "</s>", "unk": "[UNK]", "pad": "<pad>", "mask": "<mask>"},
  "xlnet": {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"},
}


def write_transformer(
  folder: epath.PathLike,
  tensors: Mapping[str, np.ndarray],
  *,
  base: epath.PathLike,
  encoder: Any,
  family: Family,
  architecture: str,
  settings: Mapping[str, Any],
) -> None:
  """Writes `config.json` and `model.safetensors` (float32).

  Args:
    base: the folder whose config is kept where `encoder` and `settings` say nothing.
    encoder: the module, whose fields are the architecture.
    architecture: transformers' class that `tensors` are the whole of.
    settings: further keys of the config.

  """
  file = config_file(base)
  kept = json.loads(file.read_text())
  config = {key: value for key, value in kept.items() if key not in _NOT_KEPT}
  config |= {"model_type": family.name, "architectures": [architecture], "dtype": "float32"}
  keys = {"xlnet": _XLNET_KEYS, "modernbert": _MODERNBERT_KEYS}.get(family.name, _BERT_KEYS)
  config |= {key: getattr(encoder, field) for key, field in keys.items()}
  if family.name == "mpnet":
    config |= {"relative_attention_num_buckets": encoder.relative_buckets, "pad_token_id": 1}
    del config["type_vocab_size"]
  if family.name == "roberta":
    config["pad_token_id"] = encoder.position_offset - 1
  folder = epath.Path(folder)
  write_json(folder / "config.json", config | dict(settings))
  write_tensors(tensors, folder)


def write_tokenizer(
  folder: epath.PathLike, *, tokenizer: Tokenizer, family: Family, max_length: int
) -> None:
  """Writes `tokenizer.json` and the settings of transformers' general class, which takes it as it is.

  (`save_pretrained` would name a class that releases before 5 do not have.)

  Args:
    max_length: tokens at which the library cuts, special tokens included.

  """
  backend, special = tokenizer.backend, tokenizer.special
  ends = (special.single_before, special.single_after)
  cls_, sep = ends if family.tokens == "cls" else (ends[1][-1:], ends[1])
  names = {"cls": tokenizer.tokens([cls_[0][0]])[0], "sep": tokenizer.tokens([sep[0][0]])[0]}
  for name, token in _SPECIALS[family.name].items():
    if backend.token_to_id(token) is not None:
      names[name] = token
  inputs = ["input_ids", "token_type_ids", "attention_mask"]
  # A tokeniser whose texts are all of type 0 may come from a base whose model is given no types.
  untyped = family.name in ("roberta", "mpnet", "modernbert") or not any(special.types)
  settings = {f"{name}_token": token for name, token in names.items()}
  settings |= {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": inputs[::2] if untyped else inputs,
    "padding_side": "left" if family.tokens == "cls_last" else "right",
    "clean_up_tokenization_spaces": False,
    "model_max_length": max_length,
  }
  folder = epath.Path(folder)
  (folder / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
  write_json(folder / "tokenizer_config.json", settings)


def write_sentence_modules(
  folder: epath.PathLike,
  *,
  width: int,
  fields: Mapping[str, Any],
  params: Mapping[str, np.ndarray],
  max_length: int,
  lower_case: bool,
  similarity: str,
  version: str,
  prompts: Sequence[str] = ("", ""),
) -> None:
  """Writes all of a sentence-transformers folder but the transformer, which lies at its root.

  Args:
    width: of the transformer's token vectors.
    fields, params, lower_case: as in `sentence_folder.SentenceFolder`.
    max_length: tokens of a text, special tokens included.
    similarity: the library's name of the function that compares two vectors: cosine or euclidean.
    version: of as2jax.
    prompts: before questions and before candidates.

  """
  folder = epath.Path(folder)
  names = {ours: theirs for theirs, ours in POOLINGS.items()}
  modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
  pooling = _pooling_config(width, [names[mode] for mode in fields["pooling"]])
  write_json(folder / "1_Pooling" / "config.json", pooling)
  width *= len(fields["pooling"])
  for number, layer in enumerate(fields["dense"]):
    modules.append((f"{len(modules)}_Dense", "Dense"))
    leaves = {leaf: params.get(f"dense_{number}/{leaf}") for leaf in ("kernel", "bias")}
    width = _write_dense(folder / modules[-1][0], layer, leaves, width)
  if fields["normalize"]:
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / modules[-1][0]).mkdir()
  _write_modules(folder, modules)
  write_json(
    folder / TRANSFORMER_CONFIGS[0], {"max_seq_length": max_length, "do_lower_case": lower_case}
  )
  named = dict(zip(("query", "document"), prompts)) if any(prompts) else {}
  write_settings(folder, version=version, prompts=named, similarity=similarity)


def write_scoring_modules(
  folder: epath.PathLike,
  *,
  width: int,
  pooling: Sequence[str],
  layers: Sequence[tuple[tuple, Mapping[str, np.ndarray]]],
  max_length: int,
  lower_case: bool,
) -> None:
  """Writes the modules of a modular `CrossEncoder` behind the transformer at the folder's root.

  Args:
    width: of the transformer's token vectors.
    pooling: our modes.
    layers: of `as2jax.layers.vector_layers` with their parameters by leaf; the last gives scores.
    max_length: tokens of a pair, special tokens included.
    lower_case: as in `sentence_folder.SentenceFolder`.

  """
  folder = epath.Path(folder)
  names = {ours: theirs for theirs, ours in POOLINGS.items()}
  modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
  write_json(
    folder / "1_Pooling" / "config.json", _pooling_config(width, [names[mode] for mode in pooling])
  )
  width *= len(pooling)
  for number, (layer, leaves) in enumerate(layers):
    kind = {"dense": "Dense", "norm": "LayerNorm", "normalize": "Normalize"}[layer[0]]
    path = f"{number + 2}_{kind}"
    modules.append((path, kind))
    if kind == "Dense":
      output = "scores" if number == len(layers) - 1 else "sentence_embedding"
      width = _write_dense(folder / path, layer[1:], leaves, width, output)
    elif kind == "LayerNorm":
      write_json(folder / path / "config.json", {"dimension": width})
      tensors = {"norm.weight": leaves["scale"]}
      tensors["norm.bias"] = leaves.get("bias", np.zeros(width, np.float32))
      write_tensors(tensors, folder / path)
    else:
      (folder / path).mkdir()
  _write_modules(folder, modules)
  write_json(
    folder / TRANSFORMER_CONFIGS[0], {"max_seq_length": max_length, "do_lower_case": lower_case}
  )


def write_classifier_module(
  folder: epath.PathLike, *, prompt: str, lower_case: bool, max_length: int, version: str
) -> None:
  """Writes what `CrossEncoder` does to every pair before a sequence classifier reads it.

  The library reads it in a folder with a list of modules alone, here the classifier as a whole;
  transformers' own classes read none of it.

  Args:
    prompt: before every pair; "" for none.
    lower_case: as in `sentence_folder.SentenceFolder`.
    max_length: tokens of a pair, special tokens included.

  """
  folder = epath.Path(folder)
  _write_modules(folder, [("", "Transformer")])
  task = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
  settings = {"max_seq_length": max_length, "do_lower_case": lower_case}
  write_json(folder / TRANSFORMER_CONFIGS[0], task | settings)
  prompts = {"query": prompt} if prompt else {}
  write_settings(folder, version=version, prompts=prompts, cross_encoder=True, activation=False)


def write_settings(
  folder: epath.PathLike,
  *,
  version: str,
  prompts: Mapping[str, str],
  similarity: str | None = None,
  cross_encoder: bool = False,
  activation: bool = True,
) -> None:
  """Writes the library's settings; of a cross-encoder, the one prompt is that of every pair.

  `activation`: whether they state the sigmoid of its scores; else the transformer's config does.
  """
  content = {"__version__": {"as2jax": version}, "prompts": dict(prompts)}
  content["default_prompt_name"] = next(iter(prompts), None) if cross_encoder else None
  if cross_encoder:
    content |= {"model_type": "CrossEncoder"}
    if activation:
      content |= {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
  else:
    content["similarity_fn_name"] = similarity
  write_json(epath.Path(folder) / "config_sentence_transformers.json", content)


def _write_dense(
  path: epath.Path,
  layer: tuple[int, str, bool],
  leaves: Mapping[str, np.ndarray | None],
  width: int,
  output: str = "sentence_embedding",
) -> int:
  """Writes a dense layer on vectors of `width`; returns the width of what it gives."""
  size, activation, bias = layer
  names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
  config = {
    "in_features": width,
    "out_features": size,
    "bias": bias,
    "activation_function": names[activation],
  }
  if output != "sentence_embedding":  # older releases do not know the key
    config |= {"module_input_name": "sentence_embedding", "module_output_name": output}
  write_json(path / "config.json", config)
  tensors = {"linear.weight": np.asarray(leaves["kernel"]).T}
  if bias:
    tensors["linear.bias"] = np.asarray(leaves["bias"])
  write_tensors(tensors, path)
  return size


def _write_modules(folder: epath.Path, modules: Sequence[tuple[str, str]]) -> None:
  """Writes the list of modules: (path, class) each."""
  write_json(
    folder / MODULES,
    [
      {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
      for i, (path, kind) in enumerate(modules)
    ],
  )


def _pooling_config(width: int, modes: Sequence[str]) -> dict[str, Any]:
  """Flags, which every release reads; a list, which new ones do, where flags lose the order."""
  if list(modes) == [mode for mode in POOLINGS if mode in modes]:
    flags = {flag: mode in modes for flag, mode in FLAGS.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": True}
  return {"embedding_dimension": width, "pooling_mode": list(modes), "include_prompt": True}


def write_tensors(tensors: Mapping[str, np.ndarray], folder: epath.Path) -> None:
  """Writes float32 tensors beside the folder's `config.json`, readable by whoever may read that."""
  from safetensors.numpy import save_file

  arrays = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
  save_file(arrays, str(folder / WEIGHTS), metadata={"format": "pt"})
  shutil.copymode(folder / "config.json", folder / WEIGHTS)


def write_json(file: epath.PathLike, content: Any) -> None:
  """Writes indented JSON in UTF-8 and creates the folder where it is missing."""
  file = epath.Path(file)
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
