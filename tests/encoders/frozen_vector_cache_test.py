"""Frozen vectors: keyed by all they depend on, computed once."""

import numpy as np
import pytest

from as2jax.data.text.tokenise import build_units
from as2jax.encoders import frozen_vector_cache
from as2jax.runtime.errors import InputError

SHAPE = (5, 3)
VALUES = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


class Filler:
  """Writes VALUES, the end first, and counts how often."""

  def __init__(self, values=VALUES):
    self.values, self.times = values, 0

  def __call__(self, writer):
    self.times += 1
    writer.put(2, self.values[2:])
    writer.put(0, self.values[:2])


def take(folder, fill, name="key", dtype="float32", shape=SHAPE):
  return frozen_vector_cache.cached(str(folder), name, shape, dtype, fill, {"pretrained": "x"})


@pytest.fixture(scope="module")
def tokenizer():
  from tokenizers import Tokenizer as Backend
  from tokenizers import models, normalizers, pre_tokenizers, processors

  from as2jax.data.text.tokenizer import Tokenizer

  pieces = ["[UNK]", "[CLS]", "[SEP]", *"abcd", *(f"##{c}" for c in "abcd")]
  backend = Backend(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
  backend.normalizer = normalizers.BertNormalizer()
  backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  backend.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
  return Tokenizer(backend, "test")


def table(tokenizer, texts, **options):
  return build_units(
    [(text,) for text in texts], tokenizer, template="single", max_length=9, words=True, **options
  )


def test_words_take_the_place_of_tokens(tokenizer):
  units = table(tokenizer, ["ab c", "\u200b", "dcb"], roles=[0, 1, 1])  # the second has no token
  words = frozen_vector_cache.word_table(units, of_words=False)
  assert words.units.offsets.tolist() == [0, 2, 3, 4]
  assert words.first.tolist() == [1, 3, 0, 1] and words.length.tolist() == [2, 1, 0, 3]
  assert words.units.ids.tolist() == [0, 1, 3, 2] and words.units.forms == ("ab", "c", "dcb")
  assert words.units.role.tolist() == [0, 0, 1, 1] and words.units.type.tolist() == [0] * 4
  # The words of the table are the tokens that stand for one.
  assert words.units.word_offsets.tolist() == [0, 2, 2, 3]
  assert words.units.word_start.tolist() == [0, 1, 0]
  assert words.units.word_length.tolist() == [1, 1, 1]
  same = frozen_vector_cache.word_table(units, of_words=True)
  assert same.units is units and same.first.tolist() == [0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3, 4]
  assert same.length.tolist() == [1] * len(units.ids)


def test_the_key_is_of_all_that_the_encoder_reads(tokenizer):
  def key(texts=("a", "b c"), inputs={}, settings="w"):
    units = table(tokenizer, texts)
    return frozen_vector_cache.key(
      units, frozen_vector_cache.word_table(units, of_words=False), inputs, settings
    )

  letters = np.zeros((9, 4), np.int32)
  keys = {
    key(),
    key(("b c", "a")),
    key(("a", "bc")),
    key(settings="other"),
    key(inputs={"characters": letters}),
    key(inputs={"characters": letters + 1}),
    key(("a", "b c", "d")),
  }
  assert len(keys) == 7 and key() == key()


def test_vectors_are_computed_once_under_their_key(tmp_path):
  fill = Filler()
  for _ in range(2):
    np.testing.assert_array_equal(take(tmp_path, fill), VALUES)
  assert fill.times == 1
  (folder,) = (path for path in (tmp_path / "features").iterdir() if path.is_dir())
  np.testing.assert_array_equal(np.load(folder / "features.npy"), VALUES)
  assert '"about": {"pretrained": "x"}' in (folder / "manifest.json").read_text()
  take(tmp_path, fill, name="other")
  assert fill.times == 2


def test_half_precision_and_no_words(tmp_path):
  half = take(tmp_path, Filler(), dtype="float16")
  assert half.dtype == np.float16
  np.testing.assert_array_equal(half, VALUES.astype(np.float16))
  none = Filler(VALUES[:0])
  for _ in range(2):
    assert take(tmp_path, none, name="none", shape=(0, 3)).shape == (0, 3)
  assert none.times == 1


def test_what_cannot_be_stored_is_named(tmp_path):
  large = np.full(SHAPE, 1e6, np.float32)
  with pytest.raises(InputError, match="1e\\+06, too large for float16.*model.storage"):
    take(tmp_path, Filler(large), dtype="float16")
  with pytest.raises(InputError, match="not finite"):
    take(tmp_path, Filler(np.full(SHAPE, np.nan, np.float32)))
