import dataclasses
import pathlib

import numpy as np
import pytest

from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import Tokenizer

UNITS = [("a b", "b cc"), ("a b", "dd d"), ("c", "a")]
OPTIONS = {"template": "pair", "max_length": 7, "words": True}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
  from tokenizers import Tokenizer as Backend
  from tokenizers import models, pre_tokenizers, processors

  pieces = ["[UNK]", "[CLS]", "[SEP]", *"abcd", *(f"##{c}" for c in "abcd")]
  backend = Backend(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
  backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  backend.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
  return Tokenizer(backend, "test")


@pytest.fixture
def encoded(monkeypatch) -> list[str]:
  """All texts that are tokenised."""
  seen = []
  encode = Tokenizer.encode
  monkeypatch.setattr(
    Tokenizer, "encode", lambda self, texts, **kw: seen.extend(texts) or encode(self, texts, **kw)
  )
  return seen


def assert_equal(first, second):
  for field in (f for f in dataclasses.fields(first) if f.compare):
    a, b = getattr(first, field.name), getattr(second, field.name)
    np.testing.assert_array_equal(a, b)
    if isinstance(a, np.ndarray):
      assert a.dtype == b.dtype and type(a) is type(b) is np.ndarray


def folders(cache: pathlib.Path) -> list[pathlib.Path]:
  return sorted(path for path in (cache / "units").iterdir() if path.is_dir())


def mapped(array: np.ndarray) -> bool:
  while array is not None and not isinstance(array, np.memmap):
    array = array.base
  return array is not None


def test_second_call_maps_the_first_ones_table(tmp_path, tokenizer, encoded):
  plain = build_units(UNITS, tokenizer, **OPTIONS)
  first = build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10
  second = build_units(list(UNITS), tokenizer, **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10
  assert_equal(plain, first)
  assert_equal(first, second)
  assert mapped(second.ids) and not second.ids.flags.writeable and not mapped(plain.ids)
  assert len(folders(tmp_path)) == 1


def test_whatever_differs_has_a_table_of_its_own(tmp_path, tokenizer):
  from tokenizers import Tokenizer as Backend
  from tokenizers import normalizers

  backend = Backend.from_str(tokenizer.backend.to_str())
  backend.normalizer = normalizers.Lowercase()
  context, single = [("a", "b", "c", "d")], [("a",)]
  for units, tok, options in [
    (context[::-1] * 2, tokenizer, {"template": "context"}),
    (context, tokenizer, {"template": "context", "words": True}),
    (context, tokenizer, {"template": "context"}),
    (context, tokenizer, {"template": "local_context"}),
    (context, Tokenizer(backend, "other"), {"template": "context"}),
    (single, tokenizer, {"template": "single"}),
    (single, tokenizer, {"template": "single", "roles": [1]}),
  ]:
    cached = build_units(units, tok, max_length=20, cache=str(tmp_path), **options)
    assert_equal(build_units(units, tok, max_length=20, **options), cached)
  assert len(folders(tmp_path)) == 7


def test_slices_and_report(tokenizer):
  table = build_units(UNITS, tokenizer, **OPTIONS)
  assert len(table) == 3
  unit = table.unit(1)
  assert tokenizer.tokens(unit.ids) == ["[CLS]", "a", "b", "[SEP]", "d", "##d", "[SEP]"]
  assert unit.word_start.tolist() == [1, 2, 4] and unit.word_length.tolist() == [1, 1, 2]
  assert [table.forms[form] for form in unit.word_form] == ["a", "b", "dd"]
  assert "3 units, 19 tokens, 2 units truncated, 2 tokens lost" in table.report()
