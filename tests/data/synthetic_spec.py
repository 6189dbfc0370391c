"""A data set of made-up files, for the tests of files on disk and of downloads."""

import dataclasses
from pathlib import Path

from etils import epath

from as2jax.data.source import Spec, find

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
