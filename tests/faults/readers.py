"""Readers of single files, each with whole files and a judge; those of whole folders are in `folders`.

Those of data sets and of own tables have property tests of their own (tests/data).
"""

import gzip
import io
import json
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping

import numpy as np
import tiny_elmo
import tiny_encoders

from as2jax.data import trec_files
from as2jax.data.inputs import protocol as fitted
from as2jax.data.text import word_tokenizer
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import elmo, static, transformer_folder, weights, word_vectors
from as2jax.training.metrics_log import MetricsLog
from tests.faults.fuzz import Reader, judged

ARRAYS = {
  "a": np.arange(12, dtype=np.float32).reshape(3, 4),
  "layer.b": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
  "c": np.asarray([1, 2, 3], np.int64),
}


def weight_formats() -> list[Reader]:
  """The readers of weights."""
  from safetensors.numpy import save

  equal = lambda tensors: (
    tensors.keys() == ARRAYS.keys()
    and all(np.array_equal(tensors[name], ARRAYS[name]) for name in ARRAYS)
  )
  read = lambda path: weights.read_tensors(path.parent)[0]

  def of_shards(path: pathlib.Path) -> dict[str, np.ndarray]:
    path.with_name("one.safetensors").write_bytes(save(ARRAYS))
    return read(path)

  places = {"metadata": {}, "weight_map": dict.fromkeys(ARRAYS, "one.safetensors")}
  return [
    Reader("safetensors", [save(ARRAYS)], judged("model.safetensors", read)),
    Reader(
      "index of shards",
      [json.dumps(places).encode()],
      judged("model.safetensors.index.json", of_shards, equal, place="index of shards"),
    ),
    *_vectors(),
    *_elmo(),
  ]


def _vectors() -> list[Reader]:
  rows = [f"w{i} {i} 0 0.5" for i in range(100)]
  text = "\n".join(("100 3", *rows, "")).encode()
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("vectors.txt", text)

  read = lambda path: word_vectors.read(path, None)
  table = np.asarray([[i, 0, 0.5] for i in range(100)], np.float32)

  def equal(vectors: word_vectors.Vectors) -> bool:  # packed: every byte is checked
    words = [f"w{i}" for i in range(100)]
    return list(vectors.words) == words and np.array_equal(vectors.table, table)

  return [
    Reader("word vectors", [text], judged("v.txt", read)),
    Reader("word vectors.gz", [gzip.compress(text)], judged("v.gz", read, equal)),
    Reader("word vectors.zip", [stream.getvalue()], judged("v.zip", read, equal)),
  ]


def _elmo() -> list[Reader]:
  options = tiny_elmo.options()
  with tempfile.TemporaryDirectory() as scratch:
    folder = tiny_elmo.write(pathlib.Path(scratch), options, tiny_elmo.datasets(options))
    hdf5 = (folder / "lm_weights.hdf5").read_bytes()
  text = json.dumps(options)

  def of_weights(path: pathlib.Path) -> object:
    path.with_name("options.json").write_text(text)
    return elmo.load(path.parent)

  return [
    Reader(
      "ELMo's options",
      [text.encode()],
      judged("options.json", lambda p: elmo.read_options(p.parent)),
    ),
    Reader("ELMo's weights", [hdf5], judged("lm_weights.hdf5", of_weights)),
  ]


def encoders() -> list[Reader]:
  """The readers of an encoder's config and vocabulary, and of what a run keeps of its words."""
  base = pathlib.Path(tempfile.mkdtemp())
  opened = []
  for kind in ("bert", "roberta", "xlnet"):
    folder = tiny_encoders.folder(kind, base / kind)
    config = (folder / "config.json").read_bytes()
    opened.append(Reader(f"{kind}'s config", [config], judged("config.json", _family)))
    tokenizer = load_tokenizer(str(folder))
    opened.append(
      Reader(
        f"{kind}'s tokenizer.json",
        [tokenizer.backend.to_str().encode()],
        judged("tokenizer.json", _ids_are_rows(config)),
      )
    )
    for name in ("vocab.txt", "vocab.json", "merges.txt"):
      if (folder / name).exists():
        others = {
          other: (folder / other).read_bytes()
          for other in ("vocab.json", "merges.txt")
          if (folder / other).exists()
        }
        read = _ids_are_rows(config, others | {name: b""})
        # One message names both files of a byte-pair vocabulary.
        place = "" if name == "vocab.txt" else "vocab.json"
        content = (folder / name).read_bytes()
        opened.append(Reader(f"{kind}'s {name}", [content], judged(name, read, place=place)))
  shutil.rmtree(base)
  return [*opened, *_kept_words(), *_fitted()]


def _family(path: pathlib.Path) -> object:
  return transformer_folder.read_family(path.parent)


def _ids_are_rows(config: bytes, others: Mapping[str, bytes] | None = None) -> Callable:
  """A vocabulary is used only if its ids are those of the table's rows."""

  def read(path: pathlib.Path) -> None:
    path.with_name("config.json").write_bytes(config)
    for name, content in (others or {}).items():
      if name != path.name:
        path.with_name(name).write_bytes(content)
    tokenizer = transformer_folder.check_vocabulary(load_tokenizer(str(path.parent)), path.parent)
    assert max(tokenizer.ids()) < json.loads(config)["vocab_size"]

  return read


def _kept_words() -> list[Reader]:
  """The three files of a run's word vectors, bound by one checksum."""
  table = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
  splitter = word_tokenizer.splitter(lower=True, treebank=False)
  words = word_tokenizer.build(["ice", "caves"], splitter)
  encoding = static.word_encoding(words, table)
  folder = pathlib.Path(tempfile.mkdtemp())
  static.save(encoding, folder)
  files = {path.name: path.read_bytes() for path in folder.iterdir()}
  shutil.rmtree(folder)

  def read(path: pathlib.Path) -> static.WordEncoding:
    for name, content in files.items():
      if name != path.name:
        path.with_name(name).write_bytes(content)
    return static.load(path.parent)

  same = lambda actual: (
    np.array_equal(actual.table, table) and actual.tokenizer.fingerprint == words.fingerprint
  )
  return [
    Reader(f"a run's {name}", [content], judged(name, read, same, place="a run's"))
    for name, content in files.items()
  ]


def _fitted() -> list[Reader]:
  path = pathlib.Path(tempfile.mkdtemp()) / "words.json"
  values = {"sentences": 7, "counts": {"ice": 3, "cave": 2}}
  fitted.save(values, "aa", path)
  content = path.read_bytes()
  shutil.rmtree(path.parent)
  return [
    Reader("fitted inputs", [content], judged("words.json", fitted.load, lambda v: v == values))
  ]


def evaluations() -> list[Reader]:
  """The readers of run files, judgements, scores and logs."""
  run = "".join(f"q{i} Q0 c{j} {j + 1} {9 - j}.5 tag\n" for i in range(3) for j in range(4))
  qrels = "".join(f"q{i} 0 c{j} {j % 2}\n" for i in range(3) for j in range(4))
  table = "question\tcandidates\tpositives\tmap\n" + "".join(f"q{i}\t4\t1\t0.5\n" for i in range(5))
  rows = "".join(json.dumps({"seed": 0, "step": i, "loss": 0.5}) + "\n" for i in range(6))

  def rolled_back(path: pathlib.Path) -> None:
    log = MetricsLog(path.parent, tensorboard=False)
    log.roll_back((0,), 3)
    log.close()

  return [
    Reader("TREC run", [run.encode()], judged("run.trec", trec_files.read_run)),
    Reader("TREC judgements", [qrels.encode()], judged("qrels", trec_files.read_qrels)),
    Reader("scores", [table.encode()], judged("table.tsv", trec_files.read_per_question)),
    Reader("metrics.jsonl", [rows.encode()], judged("metrics.jsonl", rolled_back)),
  ]


def readers() -> list[Reader]:
  """All of them."""
  return [*evaluations(), *weight_formats(), *encoders()]
