"""Files of a data set: found on disk, or downloaded from a server on this machine, whole or not at all."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import random
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from etils import epath

from as2jax.data import source
from as2jax.data.source import Spec, find
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import scratch_folder

SPEC = Spec(
  name="made",
  reader=lambda path: (),
  version="1.0.0",
  files={"train": ("a.tsv", "b.tsv"), "test": ("c.tsv",)},
  folders=("made", ""),
  clean="answerable",
  published={},
)


def files_of(tmp_path: Path, *, download: bool = True, **fields):
  """The files of `SPEC` with other `fields`, below `root` or from `downloads` of this folder."""
  root, downloads = epath.Path(tmp_path / "root"), epath.Path(tmp_path / "downloads")
  return find(dataclasses.replace(SPEC, **fields), root, downloads, download=download)


def test_the_first_folder_that_holds_the_files(tmp_path):
  folder = tmp_path / "root/made"
  for place in (folder, folder.parent):
    place.mkdir(parents=True, exist_ok=True)
    for name in SPEC.names:
      (place / name).write_text(name)
  here = files_of(tmp_path)
  assert str(here.folder) == str(folder)
  assert [path.name for path in here.files["train"]] == ["a.tsv", "b.tsv"]
  digest = here.digest()
  assert files_of(tmp_path).digest() == digest
  (folder / "b.tsv").write_text("B.tsv")
  assert files_of(tmp_path).digest() != digest
  (folder / "b.tsv").unlink()  # of the first folder that holds a split, the others are left out
  here = files_of(tmp_path)
  assert str(here.folder) == str(folder) and list(here.files) == ["test"]
  assert here.missing == {"train": ("b.tsv",)}
  (folder / "c.tsv").unlink()
  assert str(files_of(tmp_path).folder) == str(folder.parent)  # the next one that holds a split


def test_files_are_found_by_name_at_any_depth(tmp_path):
  fields = {"folders": ("made",), "anywhere": True, "other_names": {"c.tsv": ("C-2.tsv",)}}
  for name in ("v3/train/a.tsv", "v3/more/b.tsv.gz", "test/English/C-2.tsv", "other/a.tsvx"):
    path = tmp_path / "root/made" / name
    path.parent.mkdir(parents=True)
    path.write_text("x")
  here = files_of(tmp_path, **fields)
  names = {split: [path.name for path in paths] for split, paths in here.files.items()}
  assert names == {"train": ["a.tsv", "b.tsv.gz"], "test": ["C-2.tsv"]}
  (tmp_path / "root/made/other/a.tsv").write_text("x")  # a copy
  assert files_of(tmp_path, **fields).digest() == here.digest()
  (tmp_path / "root/made/other/a.tsv").write_text("y")
  with pytest.raises(InputError, match="made/other/a.tsv and .*have one name and differ"):
    files_of(tmp_path, **fields)


def test_what_is_lacking(tmp_path):
  root, downloads = epath.Path(tmp_path / "root"), epath.Path(tmp_path / "downloads")
  here = lambda: source.located(SPEC, root, downloads)
  assert here().lacks == list(SPEC.names) and not here().files
  (root / "made").mkdir(parents=True)
  (root / "made/b.tsv").write_text("b")
  assert here().lacks == ["a.tsv", "c.tsv"] and not here().files
  with pytest.raises(InputError, match=r"made lacks a.tsv, c.tsv. Looked in .*; downloading is"):
    files_of(tmp_path, download=False)
  (root / "made/c.tsv").write_text("c")
  assert here().lacks == ["a.tsv"] and list(here().files) == ["test"]
  (root / "made/c.tsv").unlink()
  downloads.mkdir()
  for name in SPEC.names:
    (downloads / name).write_text(name)
  assert here().lacks == [] and str(here().folder) == str(downloads)


def test_the_content_is_compared_where_it_is_known(tmp_path):
  folder = tmp_path / "root" / "made"
  folder.mkdir(parents=True)
  for name in SPEC.names:
    (folder / name).write_text(name)
  sha256 = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.tsv", "b.tsv")}
  spec = dataclasses.replace(SPEC, sha256=sha256)
  contents = lambda: files_of(tmp_path).contents(spec)
  assert contents() == {"train": "official", "test": "unknown"}
  (folder / "b.tsv").unlink()
  (folder / "b.tsv.gz").write_bytes(gzip.compress(b"b.tsv"))
  assert contents() == {"train": "official", "test": "unknown"}
  (folder / "a.tsv").write_text("A.tsv")
  assert contents() == {"train": "other", "test": "unknown"}


CONTENT = {name: f"content of {name}".encode() * 50 for name in SPEC.names}
MEMBERS = {f"corpus/{name}": data for name, data in CONTENT.items()}
BOMB = {SPEC.names[0]: bytes(64 << 20)}


def zipped(members=MEMBERS) -> bytes:
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
    for name, data in members.items():
      packed.writestr(name, data)
  return buffer.getvalue()


def tarred(members=MEMBERS) -> bytes:
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w:bz2") as packed:
    for name, data in members.items():
      member = tarfile.TarInfo(name)
      member.size = len(data)
      packed.addfile(member, io.BytesIO(data))
  return buffer.getvalue()


@pytest.fixture
def serve(tmp_path):
  """Serves bytes as a public archive; gives its address."""
  folder = tmp_path / "served"
  folder.mkdir()

  class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
      pass

  handler = functools.partial(Quiet, directory=str(folder))
  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
  threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

  def put(data: bytes) -> str:
    (folder / "archive").write_bytes(data)
    return f"http://127.0.0.1:{server.server_port}/archive"

  yield put
  server.shutdown()
  server.server_close()


@pytest.mark.parametrize("archive", [zipped(), tarred()], ids=["zip", "tar.bz2"])
def test_downloads_once(tmp_path, serve, archive):
  here = files_of(tmp_path, url=serve(archive))
  assert here.files["test"][0].read_text() == "content of c.tsv" * 50
  assert sorted(path.name for path in here.folder.iterdir()) == sorted(SPEC.names)
  assert files_of(tmp_path, url=serve(b"gone")) == here
  (here.folder / "b.tsv").unlink()  # as a download that was killed leaves it
  assert files_of(tmp_path, url=serve(archive)) == here


def test_a_download_whose_folder_cannot_be_made_is_of_this_process(tmp_path, serve, caplog):
  (tmp_path / "downloads").write_text("")
  caplog.set_level("INFO", "as2jax")
  here = files_of(tmp_path, url=serve(zipped()))
  assert here.folder.is_relative_to(scratch_folder()) and "cannot be written" in caplog.text
  assert "downloading http://" in caplog.text
  assert here.files["test"][0].read_text() == "content of c.tsv" * 50


def test_files_that_are_published_one_by_one(tmp_path, serve):
  addresses = dict.fromkeys(SPEC.names, serve(b"content"))
  with pytest.raises(InputError, match="404"):
    files_of(tmp_path, addresses=addresses | {"c.tsv": addresses["c.tsv"] + "-elsewhere"})
  assert not list((tmp_path / "downloads").iterdir())
  here = files_of(tmp_path, addresses=addresses)
  assert sorted(path.name for path in here.folder.iterdir()) == sorted(SPEC.names)
  assert here.files["train"][1].read_bytes() == b"content"
  assert files_of(tmp_path, addresses=addresses, download=False) == here


def test_a_wrong_or_too_large_archive_leaves_nothing(tmp_path, serve):
  for archive, words in (
    (b"<html>moved</html>", "the download failed"),
    (zipped({"c.tsv": b"x"}), "the archive holds no a.tsv"),
    (zipped()[:200], "the download failed"),
    (tarred()[:100], "the download failed"),
    (b"", "the download failed"),
    (bytes(2 << 20), "more than the 1048576 bytes"),
    (zipped(BOMB), "the archive's a.tsv: more than the 1048576 bytes"),
    (tarred(BOMB), "the archive's a.tsv: more than the 1048576 bytes"),
  ):
    with pytest.raises(InputError, match=words):
      files_of(tmp_path, url=serve(archive), max_bytes=1 << 20)
    assert not list((tmp_path / "downloads").iterdir())


def test_only_official_content_is_kept(tmp_path, serve):
  sha256 = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
  url = serve(zipped())
  with pytest.raises(InputError, match="a.tsv is not the official file: its SHA-256 is"):
    files_of(tmp_path, url=url, sha256=sha256 | {"a.tsv": "0" * 64})
  assert not list((tmp_path / "downloads").iterdir())
  spec = dataclasses.replace(SPEC, sha256=sha256)
  contents = files_of(tmp_path, url=url, sha256=sha256).contents(spec)
  assert contents == {"train": "official", "test": "official"}


def test_a_damaged_archive_gives_its_files_or_one_error(tmp_path):
  rng, errors = random.Random(0), 0
  for case in range(300):
    data = bytearray((zipped, tarred)[case % 2]())
    for _ in range(rng.randint(1, 4)):
      data[rng.randrange(len(data))] = rng.randrange(256)
    (tmp_path / "archive").write_bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
    archive = epath.Path(tmp_path / "archive")
    try:
      source.unpack(archive, SPEC.names, epath.Path(tmp_path), 1 << 20)
    except source.FAILED:
      errors += 1
  assert errors > 200
