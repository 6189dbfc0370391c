"""Tokenisers made from bare vocabularies against the published forms, on 2,000 real sentences."""

import csv
import os
import pathlib
import shutil
import unicodedata

import numpy as np
import pytest

from as2jax.data.text.tokenizer import load_tokenizer

ROOT = pathlib.Path(os.environ.get("AS2JAX_DATA", "absent"))
pytestmark = pytest.mark.skipif(
  not (ROOT / "wikiqa").is_dir() or not (ROOT / "tokenizers").is_dir(),
  reason="needs wikiqa/ and tokenizers/ in AS2JAX_DATA",
)


@pytest.fixture(scope="module")
def sentences():
  """2,000 distinct sentences of WikiQA, those that are not plain ASCII first."""
  with (ROOT / "wikiqa" / "WikiQA-train.tsv").open(encoding="utf-8", newline="") as file:
    texts = [row[5] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
  texts = sorted(dict.fromkeys(texts), key=str.isascii)[:2000]
  assert len(texts) == 2000 and sum(not text.isascii() for text in texts) > 500
  return texts


def bare(tmp_path, name, *files):
  """The tokeniser of the files alone, out of the folder of the vocabulary `name`."""
  for file in files:
    shutil.copy(ROOT / "tokenizers" / name / file, tmp_path / file)
  return load_tokenizer(str(tmp_path))


def same(ours, expected, sentences):
  actual = np.split(ours.ids, np.cumsum(ours.lengths)[:-1])
  for text, ids, wanted in zip(sentences, actual, expected, strict=True):
    assert ids.tolist() == list(wanted), text


def test_roberta_vocabulary_and_merges(tmp_path, sentences):
  from tokenizers import Tokenizer

  ours = bare(tmp_path, "roberta-base", "vocab.json", "merges.txt")
  assert ours.vocab_size == 50265
  published = Tokenizer.from_file(str(ROOT / "tokenizers" / "roberta-base" / "tokenizer.json"))
  expected = [e.ids for e in published.encode_batch(sentences, add_special_tokens=False)]
  same(ours.encode(sentences), expected, sentences)


def test_xlnet_sentencepiece(tmp_path, sentences):
  library = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
  file = ROOT / "tokenizers" / "xlnet-base-cased" / "spiece.model"
  model = library.SentencePieceProcessor(model_file=str(file))
  ours = bare(tmp_path, "xlnet-base-cased", "spiece.model")
  assert ours.vocab_size == model.get_piece_size() == 32000
  same(ours.encode(sentences), [original(model, text) for text in sentences], sentences)


def original(model, text):
  """The ids of XLNet's own preprocessing: quotes, accents, and a comma behind a digit cut off."""
  text = " ".join(text.split()).replace("``", '"').replace("''", '"')
  decomposed = unicodedata.normalize("NFKD", text)
  text = "".join(c for c in decomposed if not unicodedata.combining(c))
  ids = []
  for piece in model.encode(text, out_type=str):
    if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
      rest = model.encode(piece[:-1].replace("\u2581", ""), out_type=str)
      if piece[0] != "\u2581" and rest[0][0] == "\u2581":
        rest = rest[1:] if len(rest[0]) == 1 else [rest[0][1:], *rest[1:]]
      ids += [model.piece_to_id(p) for p in (*rest, ",")]
    else:
      ids.append(model.piece_to_id(piece))
  return ids
