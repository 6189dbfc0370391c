"""A small WikiQA on disk, and the data set's spec changed for a test."""

import dataclasses
from pathlib import Path

import pytest
from etils import epath

from as2jax.data.dataset import SPECS
from as2jax.data.prepared import prepared
from as2jax.data.source import Source

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\r\n"
SPLITS = ("train", "dev", "test")


def split_text(split: str, questions: int = 4, word: str = "red") -> str:
  rows = [
    f"{split}{i}\twho is {i}?\tD{i}\tTitle “{i}”\tD{i}-{j}\tnumber {j} is {word} .\t{j % 2}"
    for i in range(questions)
    for j in range(i + 1)
  ]
  return HEADER + "".join(row + "\r\n" for row in rows)


def write_source(folder: Path, **options) -> Path:
  folder.mkdir(parents=True, exist_ok=True)
  for split in SPLITS:
    (folder / f"WikiQA-{split}.tsv").write_bytes(split_text(split, **options).encode())
  return folder


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
  """Keeps a test off the user's folders, the network and the official counts."""
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  monkeypatch.delenv("AS2JAX_DATA", raising=False)
  change(monkeypatch, published={}, url="http://127.0.0.1:9/WikiQACorpus.zip")


def change(monkeypatch, name="wikiqa", **fields):
  monkeypatch.setitem(SPECS, name, dataclasses.replace(SPECS[name], **fields))


def prepared_of(folder: Path, questions):
  """The prepared copy of a made-up data set whose one split is what `questions` yields."""
  (folder / "file").write_text("content")
  changes = {"name": "made", "files": {"only": ("file",)}, "reader": lambda path: questions()}
  files = Source(epath.Path(folder), {"only": (epath.Path(folder / "file"),)})
  spec = dataclasses.replace(SPECS["wikiqa"], **changes)
  return prepared(spec, files, epath.Path(folder / "cache"))
