"""Files that are whole however a machine fails."""

import os

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
