"""The vocabulary against the config: a lost line is refused, documented padding is not."""

import json

import pytest
import tiny_encoders

from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import open_encoder, piece_vectors
from as2jax.encoders.transformer_folder import PADDING, check_vocabulary
from as2jax.runtime.errors import InputError

SECTION = {"name": "auto", "dtype": "float32", "unroll": 0, "remat": False}


def opened(folder):
  return open_encoder.open_encoder(
    {**SECTION, "pretrained": str(folder)}, texts=lambda: (), workdir="", root=""
  )


def change(file, **values):
  file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def refused(folder, file, entries, largest, rows):
  with pytest.raises(InputError) as caught:
    opened(folder)
  assert str(caught.value).startswith(
    f"{folder / file}: the vocabulary has {entries} ids, the largest {largest}, but "
    f"{folder / 'config.json'} says vocab_size = {rows}, "
  )


@pytest.fixture(params=["bert", "roberta", "xlnet"])
def folder(request, tmp_path):
  return tiny_encoders.folder(request.param, tmp_path / request.param)


@pytest.fixture
def bert(tmp_path):
  return tiny_encoders.folder("bert", tmp_path / "bert")


def rows_of(folder):
  return json.loads((folder / "config.json").read_text())["vocab_size"]


def test_a_vocabulary_as_large_as_the_table_is_taken(folder):
  assert opened(folder).tokenizer.ids() == set(range(rows_of(folder)))


@pytest.mark.parametrize("line", [7, -1])
def test_a_lost_line_is_refused(bert, line):
  rows, lines = rows_of(bert), (bert / "vocab.txt").read_text().splitlines()
  del lines[line]
  (bert / "vocab.txt").write_text("\n".join(lines) + "\n")
  refused(bert, "vocab.txt", rows - 1, rows - 2, rows)
  with pytest.raises(InputError, match=f"vocab.txt: the vocabulary has {rows - 1} ids, "):
    piece_vectors.prepare(("a cat",), bert, size=0, marks=("[CLS]", "[SEP]"))
  change(bert / "config.json", pad_vocab_size_multiple=rows)  # of no use to numbers of lines
  refused(bert, "vocab.txt", rows - 1, rows - 2, rows)


def test_a_line_too_many_or_twice_is_refused(bert):
  rows, text = rows_of(bert), (bert / "vocab.txt").read_text()
  (bert / "vocab.txt").write_text(text + "glacier\n")
  refused(bert, "vocab.txt", rows + 1, rows, rows)
  (bert / "vocab.txt").write_text(text.replace("\nb\n", "\na\n"))
  refused(bert, "vocab.txt", rows - 1, rows - 1, rows)


def serialised(folder, *added):
  """Writes the folder's tokeniser, with further tokens, as `tokenizer.json`; its content."""
  file, tokenizer = folder / "tokenizer.json", load_tokenizer(str(folder))
  tokenizer.backend.add_tokens(list(added))
  content = json.loads(tokenizer.backend.to_str())
  file.write_text(json.dumps(content))
  return file, content


def checked(folder, rows, **config):
  change(folder / "config.json", vocab_size=rows, **config)
  return check_vocabulary(load_tokenizer(str(folder)), folder)


def test_rows_behind_an_added_token_are_padding(bert):
  rows = rows_of(bert)
  file, content = serialised(bert, "glacier")
  for padded in (rows + 1, rows + PADDING):
    assert max(checked(bert, padded).ids()) == rows
  for wrong in (rows, rows + PADDING + 1):  # fewer rows than entries; another encoder's table
    with pytest.raises(InputError, match=f"has {rows + 1} ids, .* vocab_size = {wrong}, "):
      checked(bert, wrong)
  pieces = content["model"]["vocab"]
  del pieces["##b"]  # the ids after it stay
  file.write_text(json.dumps(content))
  with pytest.raises(InputError, match=f"has {rows - 1} ids, the largest {rows - 1}, "):
    checked(bert, rows + 36)
  pieces = {piece: i for i, piece in enumerate(sorted(pieces, key=pieces.get))}  # now they do not
  file.write_text(json.dumps({**content, "model": {**content["model"], "vocab": pieces}}))
  with pytest.raises(InputError, match=f"has {rows} ids, the largest {rows - 1}, "):
    checked(bert, rows + 36)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_tokens_that_a_model_was_given_later_are_read(kind, tmp_path):
  """An old tokeniser lists them, with their ids, beside its vocabulary."""
  folder = tiny_encoders.folder(kind, tmp_path / kind)
  rows = rows_of(folder)
  (folder / "added_tokens.json").write_text(json.dumps({"glaciology": rows, "<q>": rows + 1}))
  tokenizer = checked(folder, rows + 2)
  assert tokenizer.encode(["<q> glaciology"]).ids[[0, -1]].tolist() == [rows + 1, rows]


def test_padding_to_a_multiple_is_stated_by_the_config(bert):
  rows = rows_of(bert)
  with pytest.raises(InputError, match="vocab.txt: "):
    checked(bert, rows + -rows % 64, pad_vocab_size_multiple=64)
  serialised(bert)
  assert -rows % 64
  assert checked(bert, rows + -rows % 64, pad_vocab_size_multiple=64).ids() == set(range(rows))
  for wrong, multiple in (
    (rows + -rows % 64 + 64, 64),
    (rows + -rows % 64, 128),
    (rows + 1, None),
    (rows + 1, 0),
    (rows + 1, "64"),
  ):
    with pytest.raises(InputError, match=f"tokenizer.json: .* vocab_size = {wrong}, "):
      checked(bert, wrong, pad_vocab_size_multiple=multiple)
