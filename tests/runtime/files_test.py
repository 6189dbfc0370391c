"""Files that are whole however a machine fails, and known whatever its clock says."""

import os
import pathlib
import re

from as2jax.runtime import files
from as2jax.runtime.files import write_whole


def test_the_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(
  tmp_path, monkeypatch
):
  done, fsync, replace = [], os.fsync, os.replace

  def note_fsync(descriptor):
    done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
    fsync(descriptor)

  def note_replace(old, new):
    done.append("replace")
    replace(old, new)

  monkeypatch.setattr(os, "fsync", note_fsync)
  monkeypatch.setattr(os, "replace", note_replace)
  write_whole(tmp_path / "folder" / "file", "content")
  assert done == [f".file.{os.getpid()}", "replace", "folder"]
  assert (tmp_path / "folder" / "file").read_text() == "content"


def test_a_clock_set_back_hides_no_change_and_measures_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr("time.time", lambda: 0.0)
  for content in ("a", "b"):
    (tmp_path / "file").write_text(content)
    assert files.checksum_of(tmp_path / "file") == files.compute_checksum(tmp_path / "file")
  root, wall = pathlib.Path(files.__file__).parents[1], re.compile(r"time\.time\(|datetime\.now\(")
  told = [path.name for path in root.rglob("*.py") if wall.search(path.read_text())]
  assert sorted(told) == [
    "files.py",
    "results.py",
    "serve.py",
  ]  # the latter two date what they note or tell; all else is monotonic
