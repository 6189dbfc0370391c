import dataclasses
import functools
import http.server
import io
import socket
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest
from etils import epath

from as2jax.data.datasets import files_on_disk
from as2jax.data.datasets.files_on_disk import Counts, Spec, find
from as2jax.runtime.errors import InputError

SPEC = Spec(
  name="made",
  reader=lambda path: (),
  version="1.0.0",
  files={"train": ("a.tsv", "b.tsv"), "test": ("c.tsv",)},
  folders=("made", ""),
  clean="answerable",
  published={},
)


def found(tmp_path: Path, *, download: bool = True, **fields):
  root, downloads = epath.Path(tmp_path / "root"), epath.Path(tmp_path / "downloads")
  return find(dataclasses.replace(SPEC, **fields), root, downloads, download=download)


def zipped(names=SPEC.names) -> bytes:
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as packed:
    for name in names:
      packed.writestr(f"corpus/{name}", f"content of {name}" * 50)
  return buffer.getvalue()


def tarred() -> bytes:
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w:bz2") as packed:
    for name in SPEC.names:
      data = f"content of {name}".encode() * 50
      member = tarfile.TarInfo(f"corpus/{name}")
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


def test_the_first_folder_that_holds_the_files(tmp_path):
  folder = tmp_path / "root/made"
  for place in (folder, folder.parent):
    place.mkdir(parents=True, exist_ok=True)
    for name in SPEC.names:
      (place / name).write_text(name)
  here = found(tmp_path)
  assert str(here.folder) == str(folder)
  assert [path.name for path in here.files["train"]] == ["a.tsv", "b.tsv"]
  digest = here.digest()
  assert found(tmp_path).digest() == digest
  (folder / "b.tsv").write_text("B.tsv")
  assert found(tmp_path).digest() != digest
  (folder / "b.tsv").unlink()
  with pytest.raises(InputError, match=r"made lacks b.tsv; put all of a.tsv, b.tsv, c.tsv there"):
    found(tmp_path)


def test_no_address_no_download(tmp_path):
  with pytest.raises(InputError, match="no public address") as error:
    found(tmp_path, citation="Doe (2001)")
  assert "get the files (Doe (2001))" in str(error.value)


@pytest.mark.parametrize("archive", [zipped(), tarred()], ids=["zip", "tar.bz2"])
def test_downloads_once(tmp_path, serve, archive):
  here = found(tmp_path, url=serve(archive))
  assert here.files["test"][0].read_text() == "content of c.tsv" * 50
  assert sorted(path.name for path in here.folder.iterdir()) == sorted(SPEC.names)
  assert found(tmp_path, url=serve(b"gone")) == here
  (here.folder / "b.tsv").unlink()  # as a download that was killed leaves it
  assert found(tmp_path, url=serve(archive)) == here


@pytest.mark.parametrize(
  "archive, words",
  [
    (b"<html>moved</html>", "the download failed"),
    (zipped(("c.tsv",)), "the archive holds no a.tsv"),
    (zipped()[:200], "the download failed"),
    (tarred()[:100], "the download failed"),
    (b"", "the download failed"),
  ],
  ids=["a page", "another archive", "zip cut off", "tar cut off", "empty"],
)
def test_a_wrong_archive_leaves_nothing(tmp_path, serve, archive, words):
  with pytest.raises(InputError, match=words):
    found(tmp_path, url=serve(archive))
  assert not list((tmp_path / "downloads").iterdir())


def test_a_wrong_address(tmp_path, serve):
  with pytest.raises(InputError, match="404"):
    found(tmp_path, url=serve(b"") + "-elsewhere")
  with pytest.raises(InputError, match="the download failed"):
    found(tmp_path, url="no address")


def test_a_silent_server_or_resolver_does_not_hang(tmp_path, monkeypatch):
  monkeypatch.setattr(files_on_disk, "SECONDS", 0.2)
  with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, never answers
    with pytest.raises(InputError, match="the download failed"):
      found(tmp_path, url=f"http://127.0.0.1:{server.getsockname()[1]}/archive")
  monkeypatch.setattr(files_on_disk.urllib.request, "urlopen", lambda *_, **__: time.sleep(20))
  start = time.monotonic()
  with pytest.raises(InputError, match="no answer within 0.2 seconds"):
    found(tmp_path, url="http://127.0.0.1/archive")
  assert time.monotonic() - start < 5


def test_files_that_are_published_one_by_one(tmp_path, serve):
  addresses = dict.fromkeys(SPEC.names, serve(b"content"))
  with pytest.raises(InputError, match="404"):
    found(tmp_path, addresses=addresses | {"c.tsv": addresses["c.tsv"] + "-elsewhere"})
  assert not list((tmp_path / "downloads").iterdir())
  here = found(tmp_path, addresses=addresses)
  assert sorted(path.name for path in here.folder.iterdir()) == sorted(SPEC.names)
  assert here.files["train"][1].read_bytes() == b"content"
  assert found(tmp_path, addresses=addresses, download=False) == here


def test_what_is_lacking(tmp_path):
  root, downloads = epath.Path(tmp_path / "root"), epath.Path(tmp_path / "downloads")
  assert files_on_disk.lacking(SPEC, root, downloads) == list(SPEC.names)
  (root / "made").mkdir(parents=True)
  (root / "made/b.tsv").write_text("b")
  assert files_on_disk.lacking(SPEC, root, downloads) == ["a.tsv", "c.tsv"]
  assert files_on_disk.lacking(dataclasses.replace(SPEC, embedded=True), root, downloads) == []
  downloads.mkdir()
  for name in SPEC.names:
    (downloads / name).write_text(name)
  assert files_on_disk.lacking(SPEC, root, downloads) == []


def test_one_file_for_two_splits():
  spec = dataclasses.replace(SPEC, files={"train": ("a.tsv",), "dev": ("a.tsv",)})
  assert spec.names == ("a.tsv",)


def test_verdicts():
  spec = dataclasses.replace(
    SPEC, published={"train": {"all": Counts(3, 5)}}, documented={"train": {"all": Counts(3, 4)}}
  )
  found = [spec.verdict("train", "all", Counts(3, pairs, 1)) for pairs in (5, 4, 3)]
  assert found == ["match", "documented", "differs"]
  assert spec.verdict("train", "both", Counts(3, 5, 1)) == ""
  assert spec.verdict("test", "all", Counts(3, 5, 1)) == ""


def test_counts_compare_what_is_published():
  assert Counts(3, 5).agrees(Counts(3, 5, 2))
  assert not Counts(3, 5, 1).agrees(Counts(3, 5, 2))
  assert str(Counts(3, None, 1)) == "3/–/1"


def test_compressed_files_are_found_as_the_files_themselves(tmp_path):
  folder = tmp_path / "root" / "made"
  folder.mkdir(parents=True)
  for name in ("a.tsv", "b.tsv.gz", "c.tsv.gz"):
    (folder / name).write_text("x")
  source_ = found(tmp_path, download=False)
  assert [path.name for path in source_.files["train"]] == ["a.tsv", "b.tsv.gz"]
  (folder / "b.tsv").write_text("x")  # the plain file comes first
  assert found(tmp_path, download=False).files["train"][1].name == "b.tsv"
  (folder / "c.tsv.gz").unlink()
  with pytest.raises(InputError, match="lacks c.tsv"):
    found(tmp_path, download=False)
