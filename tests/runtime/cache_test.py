"""The one cache: folders whole or not at all, built by one process; files that are whole, too."""

import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from as2jax.config import base
from as2jax.data import dataset
from as2jax.runtime import cache, compile_cache, files
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from tests.file_damage import flip_bit

VALUES = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


class Build:
  """Writes VALUES, the end first, and a file of its own; counts how often."""

  def __init__(self):
    self.times = 0

  def __call__(self, writer):
    self.times += 1
    writer.create("values", VALUES.shape, VALUES.dtype)
    writer.create("none", (0, 3), np.int32)
    writer.write("values", VALUES[2:], 2)
    writer.write("values", VALUES[:2], 0)
    if writer.folder:
      (writer.folder / "more").mkdir()
      (writer.folder / "more/file").write_bytes(b"other")
    return {"about": ["x"]}


@pytest.fixture(autouse=True)
def _warnings_are_new():
  files.warn_once.cache_clear()


@pytest.fixture
def no_programs():
  """As a process begins: jax has no folder of compiled programs; afterwards that of the tests."""
  names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
  before = {name: getattr(jax.config, name) for name in names}
  jax.config.update("jax_compilation_cache_dir", None)
  yield
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


def take(folder, build, key="key"):
  entry = cache.cached(cache.place(folder, "kind", key), build)
  np.testing.assert_array_equal(entry.arrays["values"], VALUES)
  assert entry.arrays["none"].shape == (0, 3) and entry.fields == {"about": ["x"]}
  return entry


def entries(folder):
  return [path for path in (folder / "kind").iterdir() if path.suffix != ".lock"]


def test_a_second_call_maps_what_the_first_wrote(tmp_path, monkeypatch):
  build = Build()
  first, second = take(tmp_path, build), take(tmp_path, build)
  assert build.times == 1 and entries(tmp_path) == [first.folder]
  for entry in (first, second):
    values = entry.arrays["values"]
    assert type(values) is np.ndarray and isinstance(values.base, np.memmap)
    assert not values.flags.writeable
  monkeypatch.delattr(os, "posix_fallocate")  # as on macOS
  assert take(tmp_path, build, key="other").folder and build.times == 2
  copy = (tmp_path / "kind").rename(tmp_path / "copy")
  assert cache.read(copy / first.folder.name) is not None


def cut(path):
  path.write_bytes(path.read_bytes()[:-1])


def make_pipe(path):
  path.unlink()
  os.mkfifo(path)


@pytest.mark.parametrize(
  ("name", "damage"),
  [
    *(
      (name, damage)
      for name in ("values.npy", "more/file", cache.MANIFEST)
      for damage in (cut, os.remove)
    ),
    (cache.MANIFEST, make_pipe),
  ],
)
def test_what_is_not_whole_is_built_again(tmp_path, name, damage):
  build = Build()
  damage(take(tmp_path, build).folder / name)
  take(tmp_path, build)
  take(tmp_path, build)
  assert build.times == 2 and len(entries(tmp_path)) == 1


def test_no_damaged_byte_is_used(tmp_path, caplog):
  build = Build()
  folder = take(tmp_path, build).folder
  for seed in range(50):
    flip_bit(folder, random.Random(seed))
    caplog.clear()
    take(tmp_path, build)
    assert build.times == seed + 2
    (line,) = caplog.messages
    assert line.startswith(f"{folder}: the cache is damaged") and line.endswith("is made anew")


KILLED = """
import os, sys
from as2jax.runtime import cache, files

def build(writer):
  writer.create("values", (5, 3), "float32")
  os._exit(9)

cache.cached(cache.place(sys.argv[1], "kind", "key"), build)
"""


def test_a_killed_builder_is_swept(tmp_path):
  process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
  assert process.returncode == 9
  assert [path.suffix for path in entries(tmp_path)] == [".unfinished"]
  folder = take(tmp_path, Build()).folder
  assert entries(tmp_path) == [folder]


def test_a_second_builder_waits_and_reads(tmp_path):
  begun, done, build = threading.Event(), threading.Event(), Build()

  def slow(writer):
    begun.set()
    done.wait(10)
    return build(writer)

  results = []
  first = threading.Thread(target=lambda: results.append(take(tmp_path, slow)))
  first.start()
  assert begun.wait(10)
  second = threading.Thread(target=lambda: results.append(take(tmp_path, build)))
  second.start()
  time.sleep(0.2)
  assert second.is_alive() and not results
  done.set()
  first.join(10)
  second.join(10)
  assert build.times == 1 and len(results) == 2


@pytest.mark.parametrize("setting", ["off", "file", ""])
def test_every_cache_may_be_off_or_in_a_home_that_is_not_writable(
  setting, tmp_path, monkeypatch, caplog, no_programs
):
  """A file in place of the folder stands for a read-only one: root may write everywhere."""
  monkeypatch.chdir(tmp_path)
  pathlib.Path("file").write_text("")
  monkeypatch.setenv("AS2JAX_CACHE", setting)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
  compiled = []
  monkeypatch.setattr("jax.config.update", lambda name, value: compiled.append((name, value)))
  for _ in range(2):
    take(files.cache_folder(), Build())
    compile_cache.use(base.get_config())
    assert len(dataset.load("sample").splits["dev"]) > 1
  scratch = str(files.scratch_folder())
  assert all(value.startswith(scratch) for name, value in compiled[::2])
  assert bool(compiled) == (setting != "off") and os.listdir() == ["file"]
  lines = [line for line in caplog.messages if "cannot be written" in line]
  assert len(lines) == (setting != "off") and all(line.endswith(files.CACHE) for line in lines)


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync"])
def test_a_full_disk_is_one_warning(tmp_path, monkeypatch, caplog, call):
  def full(*_):
    raise OSError(28, "No space left on device")

  with monkeypatch.context() as patch:
    patch.setattr(os, call, full)
    assert take(tmp_path, Build()).folder is None
  assert entries(tmp_path) == []
  (line,) = caplog.messages
  assert "No space left on device" in line
  assert take(tmp_path, Build()).folder is not None


def test_an_object_store_is_no_cache():
  with pytest.raises(InputError, match="not a local folder.* AS2JAX_CACHE .data.cache where"):
    cache.place("gs://bucket/x", "kind", "key")


@pytest.mark.parametrize("kind", ["a folder of the cache", "a file"])
def test_the_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(
  tmp_path, monkeypatch, kind
):
  done, fsync, replace = [], os.fsync, os.replace

  def note_fsync(descriptor):
    done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
    fsync(descriptor)

  monkeypatch.setattr(os, "fsync", note_fsync)
  monkeypatch.setattr(os, "replace", lambda a, b: done.append("renamed") or replace(a, b))
  if kind == "a file":
    write_whole(tmp_path / "folder" / "file", "content")
    assert done == [f".file.{os.getpid()}", "renamed", "folder"]
    assert (tmp_path / "folder" / "file").read_text() == "content"
    return
  folder = take(tmp_path, Build()).folder
  contents = ["more", "file", "none.npy", "values.npy", cache.MANIFEST, f"{folder.name}.unfinished"]
  assert done == [*contents, "renamed", "kind"]


def test_a_damaged_program_is_compiled_again(tmp_path, monkeypatch, no_programs, caplog):
  """Each of its bits that is flipped is found before the program is loaded."""
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path))
  compilation_cache.reset_cache()
  compile_cache.use(base.get_config())
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
  folder = tmp_path / "programs"
  assert folder.stat().st_mode & 0o777 == 0o700
  compute = lambda: jax.jit(lambda x: jnp.sin(x) @ x.T)(np.ones((3, 3), np.float32))
  expected = compute()
  (program,) = folder.glob("*-cache")
  whole = program.read_bytes()
  np.testing.assert_array_equal(compute(), expected)
  assert "damaged" not in caplog.text and program.read_bytes() == whole
  kept = compile_cache.Programs(str(folder), max_size=-1)
  key = program.name.removesuffix("-cache")
  for at in (*range(len(whole) - 8, len(whole)), *range(0, len(whole), len(whole) // 40)):
    program.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
    assert kept.get(key) is None and not program.exists()
  program.write_bytes(whole[:300])
  caplog.clear()
  np.testing.assert_array_equal(compute(), expected)
  assert "damaged" in caplog.text and kept.get(key)


@pytest.mark.parametrize("whose", ["mine", "another", "anybody", "above"])
def test_programs_that_others_may_have_written_are_not_loaded(
  whose, tmp_path, monkeypatch, no_programs, caplog
):
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  (tmp_path / "cache/programs").mkdir(parents=True)
  reason = {"another": "another user owns", "anybody": "chmod 700", "above": "others may write"}
  if whose == "another":
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
  elif whose != "mine":
    (tmp_path / "cache" / ("programs" if whose == "anybody" else "")).chmod(0o777)
  for _ in range(2):
    compile_cache.use(base.get_config())
  assert bool(jax.config.jax_compilation_cache_dir) == (whose == "mine")
  assert len(caplog.messages) == (whose != "mine") and reason.get(whose, "") in caplog.text
  monkeypatch.setenv("HOME", str(tmp_path))
  config = base.get_config()
  config.compilation_cache = "~/home"
  compile_cache.use(config)
  if whose == "another":
    assert caplog.messages[-1].endswith("name one of yours in compilation_cache")
  else:
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "home")


def test_a_clock_set_back_hides_no_change_and_measures_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr("time.time", lambda: 0.0)
  for content in ("a", "b"):
    (tmp_path / "file").write_text(content)
    assert files.checksum_of(tmp_path / "file") == files.compute_checksum(tmp_path / "file")
  root, wall = pathlib.Path(files.__file__).parents[1], re.compile(r"time\.time\(|datetime\.now\(")
  told = [path.name for path in root.rglob("*.py") if wall.search(path.read_text())]
  # The latter two date what they note or tell; all else is monotonic.
  assert sorted(told) == ["files.py", "results.py", "serve.py"]
