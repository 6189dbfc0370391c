import dataclasses
import gzip
import hashlib

import pytest
from etils import epath
from synthetic_spec import SPEC, files_of

from as2jax.data import source
from as2jax.data.source import Counts, PoolCounts
from as2jax.runtime.errors import InputError


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


def test_verdicts():
  spec = dataclasses.replace(
    SPEC, published={"train": {"all": Counts(3, 5)}}, documented={"train": {"all": Counts(3, 4)}}
  )
  actual = [spec.verdict("train", "all", Counts(3, pairs, 1)) for pairs in (5, 4, 3)]
  assert actual == ["match", "documented", "differs"]
  assert spec.verdict("train", "both", Counts(3, 5, 1)) == ""
  assert spec.verdict("test", "all", Counts(3, 5, 1)) == ""


def test_counts_compare_what_is_published():
  assert Counts(3, 5).agrees(Counts(3, 5, 2))
  assert not Counts(3, 5, 1).agrees(Counts(3, 5, 2))
  assert PoolCounts(3, None, 3).agrees(PoolCounts(3, 2, 3, 2, 1))
  assert not PoolCounts(3, 3).agrees(PoolCounts(3, 2, 3, 2, 1))


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
