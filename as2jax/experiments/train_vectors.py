"""Word vectors of one's own (`as2jax lab vectors`), for those who have no published ones.

word2vec's skip-gram with negative sampling (Mikolov et al. 2013), trained by gensim on the training split
of a dataset, or on a text file. Beside the vectors lies `FILE.json`, which says what they were trained on;
results repeat it.
"""

import json
import pathlib
from collections.abc import Iterable
from typing import Any

import gensim  # where it is absent, no data are fetched
from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import tables
from as2jax.data.lines import Lines
from as2jax.data.record import Question
from as2jax.data.text import word_tokenizer
from as2jax.encoders import word_vectors
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

WINDOW, NEGATIVE = 5, 5  # words to either side; noise words for each real one
_LONGEST = 10_000  # words; of a longer sentence gensim silently drops the rest


def training_texts(questions: Iterable[Question]) -> list[str]:
  """Return the distinct texts of questions and candidates, in order of first appearance."""
  texts: dict[str, None] = {}
  for question in questions:
    texts[question.text] = None
    texts |= dict.fromkeys(candidate.text for candidate in question.candidates)
  return list(texts)


def train(
  texts: Iterable[str],
  output: epath.PathLike,
  source: dict[str, Any],
  *,
  dimension: int,
  epochs: int,
  min_count: int,
  seed: int,
  lower: bool,
  treebank: bool,
) -> dict[str, Any]:
  """Train vectors and write them, whole or not at all, and then their description, which is returned.

  The words of all texts lie in memory. One thread, so that equal text and settings give equal vectors on one machine. Frequent words are
  sampled down and the rate falls as gensim does by default (1e-3; 0.025 to 0.0001). `source` is what the
  description says of the texts; InputError where no word is frequent enough, or `output` cannot be written.

  Args:
    dimension: numbers of a vector; epochs: passes over the text.
    min_count: a word that occurs less often gets no vector.
    seed: of initial vectors, noise and windows.
    lower, treebank: how text becomes words (`word_tokenizer.splitter`); the run that uses the vectors
      should say the same.

  """
  output = epath.Path(output)
  tables.check_target(str(output), forms=("",))  # before anything is trained
  sentences, count = [], 0
  splitter = word_tokenizer.splitter(lower=lower, treebank=treebank)
  for words in word_tokenizer.split(texts, splitter):
    count += 1
    sentences += [words[i : i + _LONGEST] for i in range(0, len(words), _LONGEST)]
  model = gensim.models.Word2Vec(
    sg=1, hs=0, workers=1, vector_size=dimension, window=WINDOW,
    min_count=min_count, negative=NEGATIVE, seed=seed,
  )  # fmt: skip
  model.build_vocab(sentences)
  if not len(model.wv):
    raise InputError(
      f"of {model.corpus_total_words} words in {count} texts none occurs "
      f"{min_count} times: give more text, or a smaller --min-count"
    )
  model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
  described = word_vectors.description(output)
  described.unlink(missing_ok=True)  # never beside other vectors than its own
  word_vectors.write(output, model.wv.index_to_key, model.wv.vectors)
  description = {
    **source,
    "sentences": count,
    "words": model.corpus_total_words,
    "vocabulary": len(model.wv),
    "method": f"word2vec skip-gram, gensim {gensim.__version__}",
    "window": WINDOW,
    "negative": NEGATIVE,
    "dimension": dimension,
    "epochs": epochs,
    "min_count": min_count,
    "seed": seed,
    "lower": lower,
    "treebank": treebank,
    "bytes": output.stat().length,
  }
  write_whole(described, json.dumps(description, indent=2) + "\n")
  return description


def source(data: str, text: str) -> tuple[Iterable[str], dict[str, Any]]:
  """Return the texts of a data set's training split or of a text file, and what to say of them."""
  if bool(data) == bool(text):
    raise InputError("give one of --data and --text")
  if text:
    texts = [line for _, line in Lines(text) if line.strip()]
    return texts, {"text": pathlib.Path(text).name}
  dataset = datasets.load(data)
  if "train" not in dataset.splits:
    raise InputError(f"the dataset {data!r} has no training split; name another, or give --text")
  told = {"dataset": data, "split": "train", "fingerprint": dataset.fingerprints["train"]}
  return training_texts(dataset.splits["train"]), told
