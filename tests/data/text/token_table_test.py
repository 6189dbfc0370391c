import dataclasses
import pathlib

import numpy as np
import pytest
from tokenise_test import letters

from as2jax.data.text import tokenise
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import Tokenizer

UNITS = [("a b", "b cc"), ("a b", "dd d"), ("c", "a")]
OPTIONS = {"template": "pair", "max_length": 7, "words": True}


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


def test_second_call_maps_the_first_ones_table(tmp_path, encoded):
  plain = build_units(UNITS, letters(), **OPTIONS)
  first = build_units(UNITS, letters(), **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10
  second = build_units(list(UNITS), letters(), **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10
  assert_equal(plain, first)
  assert_equal(first, second)
  assert mapped(second.ids) and not second.ids.flags.writeable and not mapped(plain.ids)
  assert len(folders(tmp_path)) == 1


def test_whatever_differs_has_a_table_of_its_own(tmp_path, monkeypatch):
  from tokenizers import Tokenizer as Backend
  from tokenizers import normalizers

  backend = Backend.from_str(letters().backend.to_str())
  backend.normalizer = normalizers.Lowercase()
  context, single = [("a", "b", "c", "d")], [("a",)]
  for units, tok, options in [
    (context[::-1] * 2, letters(), {"template": "context"}),
    (context, letters(), {"template": "context", "words": True}),
    (context, letters(), {"template": "context"}),
    (context, letters(), {"template": "local_context"}),
    (context, Tokenizer(backend, "other"), {"template": "context"}),
    (single, letters(), {"template": "single"}),
    (single, letters(), {"template": "single", "roles": [1]}),
  ]:
    cached = build_units(units, tok, max_length=20, cache=str(tmp_path), **options)
    assert_equal(build_units(units, tok, max_length=20, **options), cached)
  assert len(folders(tmp_path)) == 7
  monkeypatch.setattr(tokenise, "RULES", ("of another version",))
  for words, count in ((False, 7), (True, 8)):
    how = {"template": "context", "max_length": 20, "words": words}
    build_units(context, letters(), cache=str(tmp_path), **how)
    assert len(folders(tmp_path)) == count
