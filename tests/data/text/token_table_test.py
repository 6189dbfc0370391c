import dataclasses
import errno
import fcntl
import os
import pathlib
import random
import time

import numpy as np
import pytest

from as2jax.data.text import tokenise
from as2jax.data.text.tokenise import build_units
from as2jax.data.text.tokenizer import Tokenizer
from as2jax.runtime import array_folder
from as2jax.runtime.errors import InputError
from tests.file_damage import damage_one_byte

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
  return sorted((cache / "units").iterdir())


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


def test_table_without_words_is_cached_too(tmp_path, tokenizer, encoded):
  options = {**OPTIONS, "words": False, "cache": str(tmp_path)}
  first, second = (build_units(UNITS, tokenizer, **options) for _ in range(2))
  assert len(encoded) == 5
  assert_equal(first, second)
  assert len(second.word_form) == 0 and second.word_offsets.tolist() == [0] * 4


@pytest.mark.parametrize(
  "change",
  [
    {"units": UNITS[::-1]},
    {"units": UNITS[:2]},
    {"units": [*UNITS[:2], ("c", "b")]},
    {"max_length": 8},
    {"words": False},
  ],
)
def test_each_input_has_its_own_table(tmp_path, tokenizer, change):
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  options = {"units": UNITS, **OPTIONS, **change}
  plain = build_units(options.pop("units"), tokenizer, **options)
  cached = build_units(change.get("units", UNITS), tokenizer, **options, cache=str(tmp_path))
  assert_equal(plain, cached)
  assert len(folders(tmp_path)) == 2


def test_template_role_and_tokenizer_have_their_own_tables(tmp_path, tokenizer):
  from tokenizers import Tokenizer as Backend
  from tokenizers import normalizers

  backend = Backend.from_str(tokenizer.backend.to_str())
  backend.normalizer = normalizers.Lowercase()
  context, single = [("a", "b", "c", "d")], [("a",)]
  for units, tok, options in [
    (context, tokenizer, {"template": "context"}),
    (context, tokenizer, {"template": "local_context"}),
    (context, Tokenizer(backend, "other"), {"template": "context"}),
    (single, tokenizer, {"template": "single"}),
    (single, tokenizer, {"template": "single", "roles": [1]}),
  ]:
    build_units(units, tok, max_length=20, cache=str(tmp_path), **options)
  assert len(folders(tmp_path)) == 5


def test_interrupted_write_leaves_nothing(tmp_path, tokenizer, monkeypatch, encoded):
  def interrupt(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(tokenise, "assemble", interrupt)
    with pytest.raises(KeyboardInterrupt):
      build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert folders(tmp_path) == []
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10


def cut_in_half(path: pathlib.Path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def put_another(path: pathlib.Path):
  with path.open("wb") as file:
    np.save(file, np.zeros(3, np.int32))


@pytest.mark.parametrize("name", ["ids.npy", "word_offsets.npy", "manifest.json"])
@pytest.mark.parametrize("damage", [cut_in_half, put_another, pathlib.Path.unlink])
def test_damaged_table_is_made_again(tmp_path, tokenizer, encoded, name, damage):
  plain = build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  ids = np.array(plain.ids)
  (folder,) = folders(tmp_path)
  damage(folder / name)
  again = build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10
  np.testing.assert_array_equal(again.ids, ids)
  assert folders(tmp_path) == [folder]
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert len(encoded) == 10


def test_no_damaged_byte_is_used(tmp_path, tokenizer, encoded, caplog):
  plain = build_units(UNITS, tokenizer, **OPTIONS)
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  (folder,) = folders(tmp_path)
  for seed in range(50):
    damage_one_byte(folder, random.Random(seed))
    encoded.clear()
    caplog.clear()
    again = build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
    assert len(encoded) == 5, f"seed {seed}: not made again"
    assert_equal(again, plain)
    (line,) = caplog.messages
    assert line.startswith(f"{folder}: the cache is damaged") and line.endswith("is made anew")
  assert folders(tmp_path) == [folder]


def test_a_file_is_read_for_its_checksum_once_a_process(tmp_path, tokenizer, monkeypatch):
  from as2jax.runtime import checksums

  read, crc32 = [], checksums.zlib.crc32
  monkeypatch.setattr(checksums, "_SETTLED", -1.0)
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  monkeypatch.setattr(checksums.zlib, "crc32", lambda *a: read.append(len(a)) or crc32(*a))
  (folder,) = folders(tmp_path)
  for _ in range(3):
    assert array_folder.open_arrays(folder) is not None
  assert len(read) == 3  # the manifest's own
  time.sleep(0.02)
  os.utime(folder / "ids.npy")
  assert array_folder.open_arrays(folder) is not None
  assert len(read) == 5


def test_the_content_is_on_the_disk_before_its_name(tmp_path, tokenizer, monkeypatch):
  done, fsync, replace = [], os.fsync, os.replace

  def note_fsync(descriptor):
    done.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
    fsync(descriptor)

  monkeypatch.setattr(os, "fsync", note_fsync)
  monkeypatch.setattr(os, "replace", lambda a, b: done.append("renamed") or replace(a, b))
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  (folder,) = folders(tmp_path)
  at = done.index("renamed")
  assert {path.name for path in done[: at - 1]} == {path.name for path in folder.iterdir()}
  assert done[at - 1].name.startswith(f"{folder.name}.unfinished-")
  assert done[at + 1 :] == [folder.parent]


def test_two_writers_at_once_leave_one_table(tmp_path, tokenizer, monkeypatch):
  tables, first, truncate = [], [], tokenise.truncate

  def meanwhile(*arguments):
    monkeypatch.setattr(tokenise, "truncate", truncate)
    tables.append(build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path)))
    first.extend(
      folder.stat().st_ino for folder in folders(tmp_path) if "unfinished" not in folder.name
    )
    return truncate(*arguments)

  monkeypatch.setattr(tokenise, "truncate", meanwhile)
  late = build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert_equal(tables[0], late)
  assert [folder.stat().st_ino for folder in folders(tmp_path)] == first


def test_folders_of_killed_writers_are_swept(tmp_path, tokenizer):
  build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  (folder,) = folders(tmp_path)
  dead, fresh, live = (
    folder.with_name(f"{folder.name}.unfinished-{state}") for state in ("dead", "fresh", "live")
  )
  for path in (dead, fresh, live):
    path.mkdir()
    (path / "ids.npy").write_bytes(b"half")
  hour = time.time() - 3600
  for path in (dead, live):
    os.utime(path, (hour, hour))
  cut_in_half(folder / "ids.npy")
  descriptor = os.open(live, os.O_RDONLY)
  fcntl.flock(descriptor, fcntl.LOCK_EX)  # as another process does
  try:
    build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  finally:
    os.close(descriptor)
  assert folders(tmp_path) == [folder, fresh, live]


def test_full_disk_is_one_message_and_leaves_nothing(tmp_path, tokenizer, monkeypatch):
  def full(_):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(InputError, match="cannot be written .*No space left.*free or allow space"):
    build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path))
  assert folders(tmp_path) == []


def test_unfit_cache_is_named(tmp_path, tokenizer):
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match="file/units/.*cannot be written"):
    build_units(UNITS, tokenizer, **OPTIONS, cache=str(tmp_path / "file"))
  with pytest.raises(InputError, match="not a local folder"):
    build_units(UNITS, tokenizer, **OPTIONS, cache="gs://bucket/cache")


def test_slices_and_report(tokenizer):
  table = build_units(UNITS, tokenizer, **OPTIONS)
  assert len(table) == 3
  unit = table.unit(1)
  assert tokenizer.tokens(unit.ids) == ["[CLS]", "a", "b", "[SEP]", "d", "##d", "[SEP]"]
  assert unit.word_start.tolist() == [1, 2, 4] and unit.word_length.tolist() == [1, 1, 2]
  assert [table.forms[form] for form in unit.word_form] == ["a", "b", "dd"]
  assert table.report() == (
    "3 units, 19 tokens (mean 6.3, longest 7), 2 truncated, 2 tokens lost (candidate 2)"
  )
  for index in (-1, 3):
    with pytest.raises(IndexError):
      table.unit(index)
