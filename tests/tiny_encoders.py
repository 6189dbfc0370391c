"""Tiny folders of each family of transformers with random weights."""

import json
import pathlib

import jax
import tiny

from as2jax.encoders import transformer_folder, weights

TEXTS = (
  "how are glacier caves formed",
  "A partly submerged glacier cave on Perito Moreno Glacier .",
  "The ice facade is about 60 m high, isn't it?",
  "Na\u00efve caf\u00e9",
  "ice",
  "very long " + "glaciers move slowly , " * 6,
)
SIZES = {
  "vocab_size": 0,
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 24,
  "layer_norm_eps": 1e-5,
  "hidden_act": "gelu",
}

DEBERTA = {
  "position_buckets": 8,
  "relative_attention": True,
  "share_att_key": True,
  "norm_rel_ebd": "layer_norm",
  "position_biased_input": False,
  "pos_att_type": "p2c|c2p",
}


def encoder(folder):
  """The Linen module of a folder."""
  family, sizes = transformer_folder.read_family(folder)
  return family.module(**sizes)


def folder(kind: str, path: pathlib.Path) -> pathlib.Path:
  """Writes config, tokeniser and weights of a tiny encoder of a family into `path`."""
  from safetensors.numpy import save_file

  path.mkdir(parents=True)
  config = globals()[f"_{kind.partition('-')[0]}"](path)
  (path / "config.json").write_text(json.dumps({"model_type": kind, **config}))
  module = encoder(path)
  shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), tiny.tokens(), train=False))
  tensors = weights.to_tensors(tiny.drawn(shapes["params"], 0.3), module)
  save_file(tensors, str(path / "model.safetensors"), metadata={"format": "pt"})
  return path


def _bert(path):
  words = tiny.vocabulary()
  (path / "vocab.txt").write_text("\n".join(words) + "\n")
  return {**SIZES, "vocab_size": len(words), "max_position_embeddings": 128, "type_vocab_size": 2}


def byte_pairs(path):
  """Trains RoBERTa's tokeniser, and returns the number of its pieces."""
  from tokenizers import ByteLevelBPETokenizer

  trained = ByteLevelBPETokenizer()
  trained.train_from_iterator(
    TEXTS,
    vocab_size=300,
    show_progress=False,
    special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
  )
  trained.save_model(str(path))
  return trained.get_vocab_size()


def _roberta(path):
  return {
    **SIZES,
    "vocab_size": byte_pairs(path),
    "max_position_embeddings": 130,
    "type_vocab_size": 1,
    "pad_token_id": 1,
  }


def _electra(path):
  return {**_bert(path), "embedding_size": 8}


def _distilbert(path):
  rows = _bert(path)["vocab_size"]
  names = {"model_input_names": ["input_ids", "attention_mask"]}
  (path / "tokenizer_config.json").write_text(json.dumps(names))
  sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "activation": "gelu"}
  return {**sizes, "vocab_size": rows, "max_position_embeddings": 128}


def _deberta(path):
  return {
    **SIZES,
    "vocab_size": _pieces(
      path,
      ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"],
      single="[CLS]:0 $A:0 [SEP]:0",
      pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
    ),
    "max_position_embeddings": 128,
    "type_vocab_size": 0,
    **DEBERTA,
  }


def _xlnet(path):
  specials = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
  return {
    "vocab_size": _pieces(
      path, specials, single="$A:0 <sep>:0 <cls>:2", pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2"
    ),
    "d_model": 16,
    "n_layer": 2,
    "n_head": 2,
    "d_inner": 24,
    "ff_activation": "gelu",
    "layer_norm_eps": 1e-5,
  }


def _pieces(path, specials, **template):
  """Writes a unigram tokeniser, and returns the number of its pieces."""
  from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

  letters = "\u2581abcdefghijklmnopqrstuvwxyz0123456789.,?!'-()\""
  pieces = [(token, 0.0) for token in specials]
  pieces += [(letter, -8.0 - i / 16) for i, letter in enumerate(letters)]
  pieces += [("\u2581glacier", -4.0), ("\u2581ice", -5.0), ("ing", -5.0)]
  unknown = [token.strip("<[]>").lower() for token in specials].index("unk")
  tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown, byte_fallback=False))
  tokenizer.normalizer = normalizers.Sequence(
    [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
  )
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
  )
  tokenizer.add_special_tokens(
    [AddedToken(token, normalized=False, special=True) for token in specials]
  )
  tokenizer.post_processor = processors.TemplateProcessing(
    **template, special_tokens=[(token, id_) for id_, token in enumerate(specials)]
  )
  tokenizer.save(str(path / "tokenizer.json"))
  return len(pieces)


def _modernbert(path):
  """ModernBERT's tokeniser is a byte-level BPE with BERT's special tokens."""
  from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
  )

  specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
  tokenizer = Tokenizer(models.BPE())
  tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=300,
    show_progress=False,
    special_tokens=[AddedToken(token, normalized=False, special=True) for token in specials],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
  )
  tokenizer.train_from_iterator(TEXTS, trainer)
  tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B [SEP]",
    special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
  )
  tokenizer.save(str(path / "tokenizer.json"))
  return {
    "vocab_size": tokenizer.get_vocab_size(),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 3,
  }
