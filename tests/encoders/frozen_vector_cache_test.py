"""The cache of frozen vectors: whole or not at all, keyed by all it depends on, one builder."""

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from as2jax.data.text.tokenise import build_units
from as2jax.encoders import frozen_vector_cache
from as2jax.runtime.errors import InputError
from tests.file_damage import damage_one_byte

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


def entries(folder):
  return sorted(path.name for path in (folder / "features").iterdir())


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


def test_a_second_call_maps_what_the_first_wrote(tmp_path):
  fill = Filler()
  first, second = take(tmp_path, fill), take(tmp_path, fill)
  assert fill.times == 1
  for actual in (first, second):
    np.testing.assert_array_equal(actual, VALUES)
    assert not actual.flags.writeable and type(actual) is np.ndarray
    assert isinstance(actual.base, np.memmap)
  assert entries(tmp_path) == ["key", "key.lock"]
  np.testing.assert_array_equal(np.load(tmp_path / "features/key/features.npy"), VALUES)
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


def cut(path):
  path.write_bytes(path.read_bytes()[:-1])


def other_shape(path):
  np.save(path, np.zeros((4, 3), np.float32))


@pytest.mark.parametrize("name", ["features.npy", "manifest.json"])
@pytest.mark.parametrize("damage", [cut, other_shape, os.remove])
def test_what_is_not_whole_is_made_again(tmp_path, name, damage):
  fill = Filler()
  take(tmp_path, fill)
  path = tmp_path / "features/key" / name
  if damage is other_shape:
    with path.open("wb") as file:
      other_shape(file)
  else:
    damage(path)
  np.testing.assert_array_equal(take(tmp_path, fill), VALUES)
  assert fill.times == 2
  take(tmp_path, fill)
  assert fill.times == 2 and entries(tmp_path) == ["key", "key.lock"]


def test_no_damaged_byte_is_used(tmp_path, caplog):
  fill = Filler()
  take(tmp_path, fill)
  for seed in range(50):
    damage_one_byte(tmp_path / "features/key", random.Random(seed))
    caplog.clear()
    np.testing.assert_array_equal(take(tmp_path, fill), VALUES)
    assert fill.times == seed + 2
    (line,) = caplog.messages
    assert "features/key: the cache is damaged" in line and line.endswith("is made anew")
  assert entries(tmp_path) == ["key", "key.lock"]


def test_an_array_of_another_shape_or_type_is_never_used(tmp_path):
  fill = Filler()
  take(tmp_path, fill)
  assert take(tmp_path, fill, dtype="float16").dtype == np.float16
  assert fill.times == 2


def test_an_error_leaves_nothing(tmp_path):
  def broken(writer):
    writer.put(0, VALUES[:2])
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    take(tmp_path, broken)
  assert entries(tmp_path) == ["key.lock"]
  with pytest.raises(AssertionError, match="features': 2"):
    take(tmp_path, lambda writer: writer.put(0, VALUES[:2]))
  assert entries(tmp_path) == ["key.lock"]


KILLED = """
import os, sys
import numpy as np
from as2jax.encoders import frozen_vector_cache

def fill(writer):
  writer.put(0, np.ones((2, 3), np.float32))
  os._exit(9)

frozen_vector_cache.cached(sys.argv[1], "key", (5, 3), "float32", fill, {})
"""


def test_a_killed_builder_is_swept_at_once(tmp_path):
  process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
  assert process.returncode == 9
  assert any("unfinished" in name for name in entries(tmp_path))
  fill = Filler()
  np.testing.assert_array_equal(take(tmp_path, fill), VALUES)
  assert fill.times == 1 and entries(tmp_path) == ["key", "key.lock"]


def test_a_second_builder_waits_and_reads(tmp_path, caplog):
  """One holds the lock (as another process does); the other writes nothing when it is done."""
  begun, done, fill = threading.Event(), threading.Event(), Filler()

  def slow(writer):
    begun.set()
    done.wait(10)
    fill(writer)

  results = {}
  first = threading.Thread(target=lambda: results.update(first=take(tmp_path, slow)))
  first.start()
  assert begun.wait(10)
  second = threading.Thread(target=lambda: results.update(second=take(tmp_path, fill)))
  with caplog.at_level("INFO"):
    second.start()
    deadline = time.monotonic() + 10
    while "waiting for it" not in caplog.text and time.monotonic() < deadline:
      time.sleep(0.01)
  assert "another process computes these features; waiting" in caplog.text
  assert second.is_alive() and not results
  done.set()
  first.join(10)
  second.join(10)
  assert fill.times == 1
  np.testing.assert_array_equal(results["first"], results["second"])


def test_the_lock_of_another_process_holds(tmp_path):
  (tmp_path / "features").mkdir()
  with (tmp_path / "features/key.lock").open("w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fill = Filler()
    waiting = threading.Thread(target=lambda: take(tmp_path, fill))
    waiting.start()
    time.sleep(0.2)
    assert waiting.is_alive() and not fill.times
  waiting.join(10)
  assert fill.times == 1


def test_no_room_is_found_before_anything_is_computed(tmp_path, monkeypatch):
  usage = shutil.disk_usage(tmp_path)
  monkeypatch.setattr(
    frozen_vector_cache.shutil,
    "disk_usage",
    lambda _: usage._replace(free=frozen_vector_cache.MARGIN + 59),
  )
  fill = Filler()
  with pytest.raises(InputError, match=r"no room .*5 words × 3 numbers in float32.*float16"):
    take(tmp_path, fill)
  assert not fill.times and entries(tmp_path) == ["key.lock"]
  take(tmp_path, fill, dtype="float16")  # 30 bytes
  assert fill.times == 1


def test_a_disk_that_fills_meanwhile_is_one_message(tmp_path, monkeypatch):
  def full(_):
    raise OSError(28, "No space left on device")

  with monkeypatch.context() as patch:
    patch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written .*No space left"):
      take(tmp_path, Filler())
  assert entries(tmp_path) == ["key.lock"]


def test_what_cannot_be_stored_is_named(tmp_path):
  large = np.full(SHAPE, 1e6, np.float32)
  with pytest.raises(InputError, match="1e\\+06, too large for float16.*model.storage"):
    take(tmp_path, Filler(large), dtype="float16")
  with pytest.raises(InputError, match="not finite"):
    take(tmp_path, Filler(np.full(SHAPE, np.nan, np.float32)))
  assert entries(tmp_path) == ["key.lock"]


def test_an_unfit_cache_is_named(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match="file/features/key: the cache cannot be written"):
    take(tmp_path / "file", Filler())
  with pytest.raises(InputError, match="not a local folder"):
    frozen_vector_cache.cached("gs://bucket/x", "key", SHAPE, "float32", Filler(), {})


def test_the_manifest_says_whose_they_are(tmp_path):
  take(tmp_path, Filler())
  manifest = json.loads((tmp_path / "features/key/manifest.json").read_text())
  assert manifest["about"] == {"pretrained": "x"}
  assert (
    manifest["bytes"]["features.npy"] == (tmp_path / "features/key/features.npy").stat().st_size
  )
