"""What is written is what was read: architecture, tokeniser, Sentence-BERT's modules."""

import json
import os
import stat

import numpy as np
import pytest
import tiny
import tiny_encoders
from tokenizer_test import SENTENCES

from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import family as families
from as2jax.encoders import sentence_folder, transformer_folder, weights

TEXTS = [*SENTENCES, "emoji \U0001f600 inside [SEP] <mask> <sep>", "\uff21\uff22"]


@pytest.mark.parametrize(
  "kind", ["bert", "roberta", "xlnet", "electra", "distilbert", "deberta-v2"]
)
def test_a_transformer_and_its_tokeniser_come_back(kind, tmp_path):
  base = tiny_encoders.folder(kind, tmp_path / "base")
  config = json.loads((base / "config.json").read_text())
  config |= {"architectures": ["Old"], "torch_dtype": "float16", "num_labels": 9, "range": 0.03}
  (base / "config.json").write_text(json.dumps(config))
  encoder, out = tiny_encoders.encoder(base), tmp_path / "out"
  out.mkdir()
  params = transformer_folder.load_params(base, encoder)
  how = {"base": base, "encoder": encoder, "family": families.of(encoder), "architecture": "X"}
  transformer_folder.write_transformer(
    out, weights.to_tensors(params, encoder), settings={"extra": 3}, **how
  )
  transformer_folder.write_tokenizer(
    out, tokenizer=load_tokenizer(base), family=how["family"], max_length=40
  )
  assert transformer_folder.read_family(base) == transformer_folder.read_family(out)
  np.testing.assert_equal(transformer_folder.load_params(out, encoder), params)
  config = json.loads((tmp_path / "out" / "config.json").read_text())
  assert (config["architectures"], config["dtype"], config["extra"]) == (["X"], "float32", 3)
  assert config["range"] == 0.03 and not {"torch_dtype", "num_labels"} & set(config)
  assert load_tokenizer(base).fingerprint == load_tokenizer(tmp_path / "out").fingerprint
  types = assert_tokenises_the_same(tmp_path / "out", load_tokenizer(base))
  assert bool(types) == (kind not in ("roberta", "distilbert"))
  modes = {stat.S_IMODE(os.stat(f).st_mode) for f in (tmp_path / "out").iterdir()}
  assert len(modes) == 1  # weights are as readable as the config


def assert_tokenises_the_same(out, tokenizer):
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  original = transformers.AutoTokenizer.from_pretrained(out)
  assert original.model_max_length == 40
  types = {"token_type_ids"} & set(original("a"))
  for text in TEXTS:
    for pair in ((text,), (text, "b c")):
      ours, theirs = tokenizer.backend.encode(*pair), original(*pair)
      assert ours.ids == theirs["input_ids"], pair
      if types:
        assert ours.type_ids == theirs["token_type_ids"], pair
  assert original(TEXTS, padding=True)
  return types


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "xlnet-base-cased"])
def test_real_tokenisers_are_those_of_transformers(name, tmp_path):
  tokenizer = load_tokenizer(tiny.real_data("tokenizers", name))
  kind = name.split("-")[0]
  (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
  transformer_folder.write_tokenizer(
    tmp_path, tokenizer=tokenizer, max_length=40, family=families.find(kind)
  )
  assert_tokenises_the_same(tmp_path, tokenizer)


def cased(base):
  """Without a setting, transformers lower-cases every BERT vocabulary; as2jax looks at it."""
  (base / "vocab.txt").write_text((base / "vocab.txt").read_text() + "The\n")


def of_another_family(base):
  """Multilingual MiniLM is a BERT with XLM-R's tokeniser, whose special tokens are spelled otherwise."""
  (base / "vocab.txt").unlink()
  tiny_encoders.byte_pairs(base)


def without_types(base):
  names = {"model_input_names": ["input_ids", "attention_mask"]}
  (base / "tokenizer_config.json").write_text(json.dumps(names))


@pytest.mark.parametrize("change", [cased, of_another_family, without_types])
def test_a_vocabulary_that_is_not_as_usual_stays_so(change, tmp_path):
  base = tiny_encoders.folder("bert", tmp_path / "base")
  change(base)
  tokenizer = load_tokenizer(base)
  transformer_folder.write_tokenizer(
    base, tokenizer=tokenizer, max_length=40, family=families.find("bert")
  )
  assert bool(assert_tokenises_the_same(base, tokenizer)) == (change is cased)


@pytest.mark.parametrize("pooling", [("cls", "weighted_mean"), ("weighted_mean", "cls")])
def test_the_order_of_poolings_comes_back(pooling, tmp_path):
  """Layers, and all else of such a folder, are read from what `inference/export_test.py` wrote."""
  how = {"layers": (), "prompts": ("", "text: "), "max_length": 30, "similarity": "cosine"}
  how |= {"lower_case": True, "version": "1"}
  sentence_folder.write_modules(tmp_path, width=4, pooling=pooling, **how)
  (tmp_path / "config.json").write_text("{}")
  actual = sentence_folder.read(tmp_path)
  assert (actual.fields["pooling"], actual.prompts) == (pooling, ("", "text: "))
  assert (actual.max_length, actual.lower_case) == (30, True)
