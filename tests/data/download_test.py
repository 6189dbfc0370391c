"""Downloads from a server on this machine: whole, within limits, or not at all."""

import dataclasses
import functools
import hashlib
import http.server
import io
import random
import tarfile
import threading
import zipfile

import pytest
from etils import epath
from synthetic_spec import SPEC, files_of

from as2jax.data import download
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import scratch_folder

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
  here = files_of(tmp_path, url=serve(zipped()))
  assert here.folder.is_relative_to(scratch_folder()) and "cannot be written" in caplog.text
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
      download.unpack(archive, SPEC.names, epath.Path(tmp_path), 1 << 20)
    except download.FAILED:
      errors += 1
  assert errors > 200
