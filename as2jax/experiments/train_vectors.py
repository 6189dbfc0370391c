"""Word vectors of one's own (`as2jax lab vectors`).

For those who have no published ones: word2vec's skip-gram with negative sampling (Mikolov et al.
2013), trained by gensim on the training split of a dataset, or on a text file. Beside the vectors
lies `FILE.json`, which says what they were trained on; results repeat it.
"""

import argparse
import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data.lines import Lines
from as2jax.data.record import Question
from as2jax.data.text import normalise, word_tokenizer
from as2jax.encoders import word_vectors
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

_LONGEST = 10_000  # words; of a longer sentence gensim silently drops the rest


@dataclasses.dataclass(frozen=True)
class Settings:
  """What vectors depend on, beside their text.

  Attributes:
    dimension: numbers of a vector.
    window: words to either side that a word predicts.
    epochs: passes over the text.
    min_count: a word that occurs less often gets no vector.
    negative: noise words drawn for each real one.
    seed: of initial vectors, noise and windows.
    lower, treebank: how text becomes words (`word_tokenizer.build`); the run that uses the vectors
      should say the same.

  """

  dimension: int
  window: int
  epochs: int
  min_count: int
  negative: int
  seed: int
  lower: bool
  treebank: bool


class Corpus:
  """The words of each text, split anew in each pass: nothing is kept but counts."""

  def __init__(self, texts: Iterable[str], settings: Settings):
    self.texts, self.settings = texts, settings
    self.sentences = self.words = 0

  def __iter__(self) -> Iterator[list[str]]:
    self.sentences = self.words = 0
    how = {"lower": self.settings.lower, "treebank": self.settings.treebank}
    for words in word_tokenizer.split(self.texts, **how):
      self.sentences += 1
      self.words += len(words)
      yield from (words[i : i + _LONGEST] for i in range(0, len(words), _LONGEST))


class TextFile:
  """The lines of a UTF-8 file that hold something."""

  def __init__(self, path: epath.PathLike):
    self.path = path

  def __iter__(self) -> Iterator[str]:
    return (line for _, line in Lines(self.path) if line.strip())


def training_texts(questions: Iterable[Question]) -> list[str]:
  """The distinct texts of questions and candidates, in order of first appearance."""
  texts = (text for q in questions for text in (q.text, *(c.text for c in q.candidates)))
  return list(dict.fromkeys(texts))


def train(
  texts: Iterable[str], output: epath.PathLike, settings: Settings, source: dict[str, Any]
) -> dict[str, Any]:
  """Trains vectors and writes them, whole or not at all, and then their description.

  One thread, so that equal text and settings give equal vectors on one machine. Frequent words are
  sampled down and the rate falls as gensim does by default (1e-3; 0.025 to 0.0001).

  Args:
    texts: iterated once for the vocabulary and once an epoch.
    source: what the description says of the texts, such as dataset and fingerprint.

  Returns:
    The description.

  Raises:
    InputError: no word is frequent enough, or `output` cannot be written.

  """
  import gensim
  from gensim.models import Word2Vec

  _check_folder(epath.Path(output))
  corpus = Corpus(texts, settings)
  model = Word2Vec(
    sg=1, hs=0, workers=1, vector_size=settings.dimension, window=settings.window,
    min_count=settings.min_count, negative=settings.negative, seed=settings.seed,
  )  # fmt: skip
  model.build_vocab(corpus)
  if not len(model.wv):
    raise InputError(
      f"of {corpus.words} words in {corpus.sentences} texts none occurs "
      f"{settings.min_count} times: give more text, or a smaller --min-count"
    )
  sentences, words = corpus.sentences, corpus.words
  model.train(
    corpus,
    total_examples=model.corpus_count,
    epochs=settings.epochs,
    callbacks=[_progress(output, settings.epochs)],
  )
  described = word_vectors.description(output)
  described.unlink(missing_ok=True)  # never beside other vectors than its own
  word_vectors.write(output, model.wv.index_to_key, model.wv.vectors)
  description = {
    **source,
    "sentences": sentences,
    "words": words,
    "vocabulary": len(model.wv),
    "method": f"word2vec skip-gram, gensim {gensim.__version__}",
    **dataclasses.asdict(settings),
    "bytes": epath.Path(output).stat().length,
  }
  write_whole(described, json.dumps(description, indent=2) + "\n")
  return description


def _progress(output: epath.PathLike, epochs: int) -> Any:
  """The callback that prints a line an epoch on stderr."""
  from gensim.models.callbacks import CallbackAny2Vec

  class Progress(CallbackAny2Vec):
    def __init__(self):
      self.epochs = itertools.count(1)

    def on_epoch_end(self, model):
      print(f"{output}: epoch {next(self.epochs)} of {epochs}", file=sys.stderr, flush=True)

  return Progress()


def _check_folder(output: epath.Path) -> None:
  """Raises InputError where vectors cannot be written, before they are trained."""
  if output.is_dir():
    raise InputError(f"{output} is a directory; give the path of a file")
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(f"{output} cannot be written: {error.strerror or error}") from error


def _source(flags: argparse.Namespace) -> tuple[Iterable[str], dict[str, Any]]:
  """The texts that the flags name, and what to say of them."""
  if flags.text:
    return TextFile(flags.text), {"text": os.path.basename(flags.text)}
  name, root, cache, download = flags.data, flags.root, flags.cache, not flags.no_download
  rules: tuple[str, ...] = ()
  if flags.config:
    from as2jax.config import jobs

    data = jobs.load(flags.config).data
    name, root, cache = data.name, root or data.root, cache or data.cache
    download = download and data.download
    rules = tuple(data.rules)
    normalise.check(rules)
  dataset = datasets.load(name, root=root, cache=cache, download=download)
  if "train" not in dataset.splits:
    raise InputError(f"the dataset {name!r} has no training split; name another, or give --text")
  source = {"dataset": name, "split": "train", "fingerprint": dataset.fingerprints["train"]}
  source |= {"rules": list(rules)} if rules else {}
  return training_texts(normalise.apply(dataset.splits["train"], rules)), source


def _positive(value: str) -> int:
  if not value.isdigit() or int(value) < 1:
    raise argparse.ArgumentTypeError(f"{value!r} is no whole number above 0")
  return int(value)


def _seed(value: str) -> int:
  if not value.isdecimal() or int(value) >= 2**32:
    raise argparse.ArgumentTypeError(f"{value!r} is no whole number from 0 to 2**32 - 1")
  return int(value)


def main(arguments: Sequence[str] | None = None) -> int:
  """Trains as the flags say; returns the exit status: 0 or 2 (bad input)."""
  parser = argparse.ArgumentParser(
    prog="as2jax lab vectors", description=(__doc__ or "").partition("\n\n")[2]
  )
  source = parser.add_mutually_exclusive_group(required=True)
  source.add_argument("--data", metavar="NAME", help="a dataset, of which the training split")
  source.add_argument(
    "--config", metavar="FILE", help="a config, whose section `data` names it and its text rules"
  )
  source.add_argument("--text", metavar="FILE", help="a UTF-8 file with a text a line")
  parser.add_argument("--output", metavar="FILE", required=True, help="where the vectors go")
  parser.add_argument("--root", default="", help="folder of the data (default: $AS2JAX_DATA)")
  parser.add_argument("--cache", default="", help="folder of prepared copies ($AS2JAX_CACHE)")
  parser.add_argument("--no-download", action="store_true", help="never fetch the public archive")
  numbers = {"dimension": 300, "window": 5, "epochs": 5, "min_count": 2, "negative": 5}
  for name, value in numbers.items():
    flag, told = f"--{name.replace('_', '-')}", f"(default: {value})"
    parser.add_argument(flag, type=_positive, metavar="N", default=value, help=told)
  parser.add_argument("--seed", type=_seed, metavar="N", default=0, help="(default: 0)")
  parser.add_argument("--cased", action="store_true", help="keep case")
  parser.add_argument(
    "--treebank", action="store_true", help="words as GloVe has them: do n't, John 's, u.s., 1,000"
  )
  flags = parser.parse_args(arguments)
  settings = Settings(
    **{name: getattr(flags, name) for name in numbers},
    seed=flags.seed,
    lower=not flags.cased,
    treebank=flags.treebank,
  )
  try:
    texts, told = _source(flags)
    description = train(texts, flags.output, settings, told)
  except InputError as error:
    print(error, file=sys.stderr)
    return 2
  print(json.dumps(description, indent=2))
  return 0
