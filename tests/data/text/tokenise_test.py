import dataclasses
import functools
import itertools
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.text import tokenise
from as2jax.data.text import words as words_module
from as2jax.data.text.input_templates import ROLES, TEMPLATES, truncate
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import Tokenizer
from as2jax.data.text.words import STOP_WORDS, is_kept, words
from as2jax.runtime.errors import InputError

PIECES = [
  "<pad>",
  "<unk>",
  "<open>",
  "<close>",
  "<cls>",
  *"abcdefghijklmnopqrstuvwxyz'.,?",
  *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
PAIRS = {
  "bert": ("<open>:0 $A:0 <close>:0", "<open>:0 $A:0 <close>:0 $B:1 <close>:1"),
  "roberta": ("<open>:0 $A:0 <close>:0", "<open>:0 $A:0 <close>:0 <close>:0 $B:0 <close>:0"),
  "xlnet": ("$A:0 <close>:0 <cls>:2", "$A:0 <close>:0 $B:1 <close>:1 <cls>:2"),
}
TEXT = st.text("abc d.", min_size=1, max_size=30).filter(str.strip)


@functools.cache
def backend_json(kind: str) -> str:
  from tokenizers import Tokenizer as Backend
  from tokenizers import models, normalizers, pre_tokenizers, processors

  backend = Backend(models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="<unk>"))
  backend.normalizer = normalizers.BertNormalizer()
  backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  single, pair = PAIRS[kind]
  backend.post_processor = processors.TemplateProcessing(
    single=single, pair=pair, special_tokens=[(p, PIECES.index(p)) for p in PIECES[2:5]]
  )
  return backend.to_str()


@functools.cache
def letters(kind: str = "bert") -> Tokenizer:
  """One token a letter, with the special tokens of one of the three encoders."""
  from tokenizers import Tokenizer as Backend

  return Tokenizer(Backend.from_str(backend_json(kind)), kind)


@pytest.mark.parametrize("kind", PAIRS)
@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), room=st.integers(2, 60))
def test_pairs_equal_the_library(kind, pairs, room):
  from tokenizers import Tokenizer as Backend

  backend = Backend.from_str(backend_json(kind))
  max_length = room + backend.num_special_tokens_to_add(True)
  backend.enable_truncation(max_length, strategy="longest_first")
  table = build_units(pairs, letters(kind), template="pair", max_length=max_length)
  for i, expected in enumerate(backend.encode_batch(pairs)):
    unit = table.unit(i)
    assert unit.ids.tolist() == expected.ids
    assert unit.type.tolist() == expected.type_ids
    roles = [role for role in expected.sequence_ids if role is not None]
    assert [r for r, t in zip(unit.role, expected.ids, strict=True) if t > 4] == roles
    assert len(unit.word_start) == 0


def test_context_by_hand():
  table = build_units(
    [("ab", "c", "", "de"), ("a", "b", "c", "")], letters(), template="context", max_length=20
  )
  first, second = table.unit(0), table.unit(1)
  tokens = "<open> a ##b <close> c <close> <close> d ##e <close>".split()
  assert letters().tokens(first.ids) == tokens
  assert first.type.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
  assert first.role.tolist() == [0, 0, 0, 0, 1, 1, 2, 3, 3, 3]
  assert second.role.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
  assert table.lengths.tolist() == [10, 8]
  assert (table.truncated_units, table.tokens_lost, table.blank_units) == (0, 0, 0)


def test_single_takes_the_role_of_each_unit():
  units = [("ab",), ("c",)]
  assert set(build_units(units, letters(), template="single", max_length=9).role.tolist()) == {0}
  table = build_units(units, letters(), template="single", max_length=3, roles=[0, 1], words=True)
  assert table.role.tolist() == [0, 0, 0, 1, 1, 1]
  assert table.word_role.tolist() == [0, 1]
  assert table.lost_by_role == (1, 0, 0, 0)


@given(
  lengths=st.lists(st.tuples(*[st.integers(0, 12)] * 4), min_size=1, max_size=5),
  room=st.integers(2, 40),
  template=st.sampled_from(["context", "local_context"]),
)
def test_context_is_cut_before_question_and_candidate(lengths, room, template):
  lengths = np.array(lengths)
  kept = truncate(lengths, template, room)
  assert (kept >= 0).all() and (kept <= lengths).all()
  np.testing.assert_array_equal(kept.sum(1), np.minimum(lengths.sum(1), room))
  order = [TEMPLATES[template].index(role) for role in ROLES]
  for whole, cut in zip(lengths[:, order], kept[:, order], strict=True):
    (q, c, previous, next_), (kq, kc, kp, kn) = whole, cut
    if q + c <= room:
      assert (kq, kc) == (q, c)
    else:
      assert (kp, kn) == (0, 0)
      assert kq == q or kq >= kc - 1
      assert kc == c or kc >= kq - 1
    # Only the longest loses: a part that lost tokens is not shorter than the other by two.
    assert kp == previous or kp >= kn - 1
    assert kn == next_ or kn >= kp - 1


def test_truncation_is_counted_by_role():
  units = [("a", "b", "cccc", "dd"), ("aaaa", "bbb", "cc", "d"), ("a", "b", "", "")]
  table = build_units(units, letters(), template="context", max_length=5 + 5)
  assert table.lengths.tolist() == [10, 10, 7]
  assert table.truncated_units == 2
  assert (table.lost_by_role, table.tokens_lost) == ((1, 1, 4, 2), 8)
  assert table.report() == "of 3 inputs 2 are cut to the maximum length and lose 8 tokens"


def test_text_without_tokens_is_specials_only_and_counted():
  units = [("\u0001", "\ufffd"), ("i", "\u0000\u0001")]
  table = build_units(units, letters(), template="pair", max_length=9, words=True)
  assert table.lengths.tolist() == [3, 4]
  assert table.blank_units == 2
  assert table.forms == ("i",)
  assert table.report() == "of 2 inputs 2 have a text that gives no token"
  whole = build_units([("i", "b")], letters(), template="pair", max_length=9)
  assert whole.report() == ""


def test_words_keep_contractions_and_split_marks():
  found = [form for form, *_ in words("Don\u2019t stop: John's 3.5-fold \u201cRUN\u201d!")]
  assert found == "don't stop : john's 3 . 5 - fold \u201c run \u201d !".split()
  assert words(" 'a' e\u0301t") == [("'", 1, 2), ("a", 2, 3), ("'", 3, 4), ("e\u0301t", 5, 8)]
  assert words("") == []


@given(
  units=st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=4),
  max_length=st.integers(10, 90),
  kind=st.sampled_from(list(PAIRS)),
)
def test_word_spans_spell_the_words(units, max_length, kind):
  tokenizer = letters(kind)
  table = build_units(units, tokenizer, template="context", max_length=max_length, words=True)
  for i, parts in enumerate(units):
    unit = table.unit(i)
    covered = np.zeros(len(unit.ids), int)
    rest = {role: [form for form, *_ in words(part)] for role, part in enumerate(parts)}
    for start, length, role, form in zip(*unit[3:], strict=True):
      assert length > 0
      covered[start : start + length] += 1
      assert (unit.role[start : start + length] == role).all()
      expected = rest[role].pop(0)
      assert table.forms[form] == expected
      spelling = "".join(tokenizer.tokens(unit.ids[start : start + length])).replace("##", "")
      # Only the last word kept of a part can have lost tokens.
      cut = start + length == len(unit.ids) or unit.ids[start + length] <= 4
      assert spelling == expected or cut and expected.startswith(spelling)
    np.testing.assert_array_equal(covered, unit.ids > 4)  # each text token is in one word


@pytest.mark.parametrize("find_words", [False, True])
def test_chunks_change_nothing(monkeypatch, find_words):
  units = [(f"{a} {b}", f"{b}.{c}") for a, b, c in itertools.product("abc", "def", "ghi")]
  options = {"template": "pair", "max_length": 8, "words": find_words}
  whole = build_units(units, letters(), **options)
  monkeypatch.setattr(tokenise, "_CHUNK", 5)
  monkeypatch.setattr(words_module, "_CHUNK", 3)
  pieces = build_units(units, letters(), **options)
  for name, values in vars(whole).items():
    np.testing.assert_array_equal(values, getattr(pieces, name))
  assert whole.forms == pieces.forms and whole.report() == pieces.report()
  assert bool(len(whole.word_form)) == find_words


@pytest.mark.parametrize(
  ("units", "options", "pattern"),
  [
    ([("a", "b"), ("a", " ")], {}, r"unit 1 of 2, \('a', ' '\): text 2 is empty"),
    ([("a", "", "b", "")], {"template": "context"}, "text 2 is empty"),
    ([("a", "b")], {"template": "triple"}, "template 'triple' is unknown; known are single, pair"),
    ([("a", "b")], {"max_length": 4}, "max_length 4 .* 3 special tokens; give at least 5"),
    ([("a", "\ud800")], {}, "surrogate"),
    ([("a", "b", "c")], {}, "not a tuple of question, candidate"),
  ],
)
def test_bad_input_is_named(units, options, pattern):
  with pytest.raises((InputError, ValueError), match=pattern):
    build_units(units, letters(), **{"template": "pair", "max_length": 9, **options})


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlnet"])
def test_joint_units_are_as_long_as_they_have_candidates(kind):
  """Each unit equals the one that a table of units of its length alone has."""
  units = [("ab", "c", "de", "f"), ("ab", "ef"), ("c", "d", "ab")]
  options = {"template": "joint", "max_length": 40, "words": True}
  content = lambda table, u: (
    [x.tolist() for x in table.unit(u)[:-1]]
    + [[table.forms[form] for form in table.unit(u).word_form]]
  )
  mixed = build_units(units, letters(kind), **options)
  for number, unit in enumerate(units):
    table = build_units([unit], letters(kind), **options)
    assert content(table, 0) == content(mixed, number)
    alone = table.unit(0)
    assert sorted(set(alone.word_role.tolist())) == list(range(len(unit)))
    assert alone.word_role.tolist() == sorted(alone.word_role.tolist())
  pair = build_units([units[1]], letters(kind), template="pair", max_length=40, words=True)
  assert content(pair, 0) == content(mixed, 1)
  assert (mixed.truncated_units, mixed.blank_units) == (0, 0)


@given(
  lengths=st.lists(st.tuples(*[st.integers(0, 12)] * 4), min_size=1, max_size=5),
  room=st.integers(4, 40),
)
def test_joint_parts_are_cut_to_one_level(lengths, room):
  lengths = np.array(lengths)
  kept = truncate(lengths, "joint", room)
  assert (kept <= lengths).all() and (kept[lengths > 0] > 0).all()
  np.testing.assert_array_equal(kept.sum(1), np.minimum(lengths.sum(1), room))
  for whole, cut in zip(lengths, kept, strict=True):
    short = cut[cut < whole]
    if len(short):  # those that lost are equal but for the rest of a division, and none is longer
      assert short.max() - short.min() <= 1 and cut.max() <= short.min() + 1


def test_they_are_forms_of_the_word_splitter():
  """A form with an apostrophe is one word of a text, whichever apostrophe that has."""
  for word in STOP_WORDS:
    for text in (word, word.upper(), word.replace("'", "\u2019")):
      assert [form for form, _, _ in words(text)] == [word]


@pytest.mark.parametrize(
  "text, kept",
  [
    ("Don\u2019t they know who won the 1998 cup?", ["know", "1998", "cup"]),
    ("did n't the dog 's owner -- `` Ms. O'Hara '' -- call ?", ["dog", "owner", "ms", "o'hara", "call"]),
    ("caf\u00e9 \u2014 \u65e5\u672c, it's $5", ["caf\u00e9", "\u65e5\u672c", "5"]),
  ],
)  # fmt: skip
def test_what_is_kept(text, kept):
  assert [form for form, _, _ in words(text) if is_kept(form)] == kept


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
  for find_words, count in ((False, 7), (True, 8)):
    how = {"template": "context", "max_length": 20, "words": find_words}
    build_units(context, letters(), cache=str(tmp_path), **how)
    assert len(folders(tmp_path)) == count
